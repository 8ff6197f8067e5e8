/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/libdiloco/attach_far.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "common/blake2b.h"
#include "common/env.h"
#include "common/err.h"
#include "common/ipc.h"
#include "common/mem.h"
#include "worker/libdiloco/attach_device.h"
#include "worker/libdiloco/attach_gate.h"
#include "worker/libdiloco/attach_group.h"
#include "worker/libdiloco/attach_part.h"

enum { VERSION_BYTES = 32, NAME_LENGTH = ATTACH_NAME_BYTES - 1 };
/* Bytes: larger arrays go in several messages, as some ways between machines have a limit. */
enum { PIECE_BYTES = 256 << 20 };
enum { DRAIN_MS = 1000 };
/* A tag: the fragment, TAG_KINDS times, and what it is. Before there are fragments, others. */
enum { TAG_UP, TAG_DOWN, TAG_DID, TAG_KINDS };
enum { TAG_GREET = DILOCO_TAGS - 1, TAG_MEET = DILOCO_TAGS - 2, TAG_PARTS = DILOCO_TAGS - 3 };
_Static_assert(TAG_KINDS *IPC_FRAGMENTS_MAX <= TAG_PARTS, "each has a tag of its own");

/* One that this rank serves. */
struct served {
    int rank;
    struct tensor *parts; /* as d->tensors, with its parts of them */
    uint64_t *own_count;  /* by fragment: of its values */
};

enum stage { WAY_DEVICE, WAY_UNDER_WAY, WAY_DONE };

/* Something on its way between a far rank and the one that serves it; both have one of it. */
struct way {
    enum stage stage;
    uint32_t tag;
    bool sends;
    bool answers;               /* a far rank says when it has it */
    int peer;                   /* the other end */
    const struct served *whose; /* in who serves; NULL: in a far rank */
    uint64_t mark;              /* WAY_DEVICE: of the device, to be reached first */
    char *bytes;
    size_t bytes_count;
    bool owned;        /* the bytes */
    float *into;       /* received parts are put into this array of the whole fragment; NULL: nowhere */
    uint64_t *numbers; /* of the group, of each piece; 0: has arrived */
    uint32_t pieces;
    struct way *next;
};

struct attach_far {
    char (*name)[ATTACH_NAME_BYTES]; /* by rank: what people call it */
    int *server;                     /* by rank: who serves it; its own: it is near */
    struct served *served;
    uint32_t served_count;
    struct way *first; /* on their way, the oldest first */
    /* A far rank's: */
    float *values;      /* both areas of all fragments */
    float *(*areas)[2]; /* by fragment */
    uint32_t *base;     /* by fragment: which of them is the base */
    void *head;         /* what d->shm is */
};

static bool speaks_far(const struct diloco *d)
{
    return d->group.count > 1 && d->group.send != NULL;
}

static int no_memory(struct diloco *d)
{
    return attach_fail(d, DILOCO_ERROR, "%s", err_text());
}

static int lost(struct diloco *d, int rank)
{
    if (attach_gate_why(d) != NULL)
        return attach_fail(d, DILOCO_ERROR, "%s", attach_gate_why(d));
    char number[ATTACH_NAME_BYTES];
    const char *name = d->far->name[rank];
    snprintf(number, sizeof number, "rank %d", rank);
    return attach_fail(d, DILOCO_ERROR, "%s has lost %s, or the way to it", d->name, name[0] != '\0' ? name : number);
}

/* ---- whole messages, waited for ---- */

static int bring(struct diloco *d, int peer, uint32_t tag, void *bytes, size_t count, bool sends)
{
    const struct diloco_group *group = &d->group;
    uint64_t number = sends ? group->send(group->user, peer, tag, bytes, count)
                            : group->receive(group->user, peer, tag, bytes, count);
    return number != 0 && group->arrived(group->user, number, 1) == 1 ? DILOCO_OK : lost(d, peer);
}

/* all(count) of rank 0 are those of every rank, its own first. */
static int gather(struct diloco *d, uint32_t tag, void *own, void *all, size_t bytes)
{
    if (attach_follows(d))
        return bring(d, 0, tag, own, bytes, true);
    memcpy(all, own, bytes);
    int result = DILOCO_OK;
    for (int r = 1; result == DILOCO_OK && r < d->group.count; r++)
        result = bring(d, r, tag, (char *)all + (size_t)r * bytes, bytes, false);
    return result;
}

static int tell_all(struct diloco *d, void *bytes, size_t count)
{
    int none = -1;
    if (d->group.broadcast(d->group.user, bytes, count, &none) == 0)
        return DILOCO_OK;
    if (attach_gate_why(d) != NULL)
        return attach_fail(d, DILOCO_ERROR, "%s", attach_gate_why(d));
    return attach_fail(d, DILOCO_ERROR, "%s has lost the others of its group", d->name);
}

/* What rank 0 finds is what all hear. */
struct verdict {
    int32_t result;
    char text[2 * IPC_TEXT_BYTES];
};

static int agree(struct diloco *d, struct verdict *verdict)
{
    int result = tell_all(d, verdict, sizeof *verdict);
    if (result != DILOCO_OK)
        return result;
    verdict->text[sizeof verdict->text - 1] = '\0';
    return verdict->result == DILOCO_OK ? DILOCO_OK : attach_fail(d, verdict->result, "%s", verdict->text);
}

/* ---- the same build ---- */

/* Of the same size in every build. */
struct greeting {
    char version[VERSION_BYTES], name[ATTACH_NAME_BYTES];
    uint32_t ipc_version, order_bytes;
};

static bool same_build(const struct greeting *a, const struct greeting *b)
{
    return strncmp(a->version, b->version, sizeof a->version) == 0 && a->ipc_version == b->ipc_version &&
           a->order_bytes == b->order_bytes;
}

static void judge_builds(const struct greeting *all, int count, struct verdict *out)
{
    for (int r = 1; r < count; r++) {
        if (same_build(&all[r], &all[0]))
            continue;
        out->result = DILOCO_ERROR;
        snprintf(out->text, sizeof out->text,
                 "%.*s has libdiloco %.31s (%" PRIu32 ", %" PRIu32 "), and %.*s has %.31s (%" PRIu32 ", %" PRIu32
                 "): install the same package on all machines of an island",
                 NAME_LENGTH, all[r].name, all[r].version, all[r].ipc_version, all[r].order_bytes, NAME_LENGTH,
                 all[0].name, all[0].version, all[0].ipc_version, all[0].order_bytes);
        return;
    }
}

int attach_far_greet(struct diloco *d)
{
    struct greeting own = {.ipc_version = IPC_VERSION, .order_bytes = sizeof(struct attach_order)};
    struct verdict verdict = {.result = DILOCO_OK};
    const uint32_t count = (uint32_t)d->group.count;
    struct greeting *all;
    if (!speaks_far(d))
        return DILOCO_OK;
    snprintf(own.version, sizeof own.version, "%s", DILOCO_VERSION);
    snprintf(own.name, sizeof own.name, "%s", d->name);
    if (mem_new(1, sizeof *d->far, "ranks", &d->far) != ERR_OK ||
        mem_new(count, sizeof *d->far->name, "ranks", &d->far->name) != ERR_OK ||
        mem_new(count, sizeof *d->far->server, "ranks", &d->far->server) != ERR_OK ||
        mem_new(count, sizeof *all, "ranks", &all) != ERR_OK)
        return no_memory(d);
    int result = gather(d, TAG_GREET, &own, all, sizeof own);
    if (result == DILOCO_OK && !attach_follows(d)) {
        judge_builds(all, d->group.count, &verdict);
        for (uint32_t r = 0; r < count; r++)
            snprintf(d->far->name[r], ATTACH_NAME_BYTES, "%.*s", NAME_LENGTH, all[r].name);
    }
    mem_free(all);
    if (result == DILOCO_OK)
        result = agree(d, &verdict);
    return result == DILOCO_OK ? tell_all(d, d->far->name, count * sizeof *d->far->name) : result;
}

/* ---- who is near, and who serves whom ---- */

struct arrival {
    int32_t result;
    uint32_t near, tensors;
    uint64_t values;
    uint8_t digest[BLAKE2B_BYTES]; /* of names, shapes and layers */
    char text[IPC_TEXT_BYTES];
};

static struct arrival own_arrival(const struct diloco *d, int mapped)
{
    struct arrival own = {.result = mapped, .near = d->shm != NULL, .tensors = d->tensors_count};
    struct blake2b state;
    blake2b_begin(&state);
    for (uint32_t i = 0; i < d->tensors_count; i++) {
        const struct ipc_tensor *t = &d->tensors[i].announced;
        blake2b_add(&state, t->name, sizeof t->name);
        blake2b_add(&state, &t->layer, sizeof t->layer);
        blake2b_add(&state, &t->dims, sizeof t->dims);
        blake2b_add(&state, t->shape, sizeof t->shape);
        own.values += d->tensors[i].whole;
    }
    blake2b_end(&state, own.digest);
    snprintf(own.text, sizeof own.text, "%.*s", (int)sizeof own.text - 1, mapped != DILOCO_OK ? d->error : "");
    return own;
}

static void judge_arrivals(const struct diloco *d, const struct arrival *all, struct verdict *out)
{
    for (int r = 0; r < d->group.count; r++) {
        const char *name = d->far->name[r];
        bool other = memcmp(all[r].digest, all[0].digest, sizeof all[r].digest) != 0;
        if (all[r].result == DILOCO_OK && !other)
            continue;
        out->result = all[r].result != DILOCO_OK ? all[r].result : DILOCO_ERROR;
        if (all[r].result != DILOCO_OK)
            snprintf(out->text, sizeof out->text, "%s: %.*s", name, (int)sizeof all[r].text - 1, all[r].text);
        else
            snprintf(out->text, sizeof out->text,
                     "%s attaches another model than %s: %" PRIu32 " tensors of %" PRIu64
                     " values, and that one has %" PRIu32 " of %" PRIu64 ", or others of other names or shapes",
                     name, d->far->name[0], all[r].tensors, all[r].values, all[0].tensors, all[0].values);
        return;
    }
}

/* Each far rank by the near one that serves fewest; rank 0, which has the daemon to speak with, by turns the last. */
static bool choose_servers(struct attach_far *far, const struct arrival *all, int count)
{
    bool any = false;
    int near = 0;
    for (int r = 0; r < count; r++) {
        far->server[r] = r;
        near += all[r].near != 0;
    }
    for (int r = 0, turn = 1; r < count; r++) {
        if (all[r].near != 0)
            continue;
        int want = turn++ % near, at = 0;
        while (all[at].near == 0 || want-- > 0)
            at++;
        far->server[r] = at;
        any = true;
    }
    return any;
}

/* The head and tables of the shared memory: all before its first area. */
static uint64_t head_bytes(struct ipc_shm *shm)
{
    uint64_t bytes = shm->bytes;
    for (uint32_t f = 0; f < shm->fragments_count; f++)
        for (int k = 0; k < 2; k++) {
            uint64_t at = ipc_fragment(shm, f)->area_offset[k];
            bytes = at < bytes ? at : bytes;
        }
    return bytes;
}

/* A far rank's d->shm is a copy of them. */
static int become_far(struct diloco *d, struct ipc_shm *head)
{
    d->far->head = head;
    if (ipc_shm_check(head, head->bytes) != ERR_OK || head->tensors_count != d->tensors_count)
        return attach_fail(d, DILOCO_ERROR, "the daemon's tables do not fit: %s", err_text());
    if (mem_new(head->fragments_count, sizeof *d->local, "fragments", &d->local) != ERR_OK)
        return no_memory(d);
    d->shm = head;
    d->is_far = true;
    return DILOCO_OK;
}

static int share_head(struct diloco *d, uint64_t bytes)
{
    struct ipc_shm *head;
    if (mem_new_unset(bytes, 1, "the daemon's tables", &head) != ERR_OK)
        return no_memory(d);
    if (!attach_follows(d))
        memcpy(head, d->shm, bytes);
    int result = tell_all(d, head, bytes);
    if (result == DILOCO_OK && d->shm == NULL)
        return become_far(d, head);
    mem_free(head);
    return result;
}

int attach_far_meet(struct diloco *d, int mapped)
{
    struct verdict verdict = {.result = DILOCO_OK};
    struct arrival *all = NULL;
    uint64_t head = 0; /* 0: all are near */
    if (d->far == NULL)
        return mapped;
    struct arrival own = own_arrival(d, mapped);
    if (!attach_follows(d) && mem_new((size_t)d->group.count, sizeof *all, "ranks", &all) != ERR_OK)
        return no_memory(d);
    int result = gather(d, TAG_MEET, &own, all, sizeof own);
    if (result == DILOCO_OK && !attach_follows(d)) {
        judge_arrivals(d, all, &verdict);
        if (verdict.result == DILOCO_OK && choose_servers(d->far, all, d->group.count))
            head = head_bytes(d->shm);
    }
    mem_free(all);
    if (result == DILOCO_OK)
        result = agree(d, &verdict);
    if (result == DILOCO_OK)
        result = tell_all(d, d->far->server, (size_t)d->group.count * sizeof *d->far->server);
    if (result == DILOCO_OK)
        result = tell_all(d, &head, sizeof head);
    if (result != DILOCO_OK)
        return result;
    if (head > 0)
        return share_head(d, head);
    attach_far_deinit(d);
    return DILOCO_OK;
}

/* ---- the parts of far ranks ---- */

static int make_areas(struct diloco *d)
{
    struct attach_far *far = d->far;
    const uint32_t fragments = d->shm->fragments_count;
    uint64_t values = 0;
    for (uint32_t f = 0; f < fragments; f++)
        values += d->local[f].own_count;
    if (mem_new(fragments, sizeof *far->areas, "areas", &far->areas) != ERR_OK ||
        mem_new(fragments, sizeof *far->base, "areas", &far->base) != ERR_OK ||
        mem_new_unset(2 * values + 1, sizeof *far->values, "own parts of what is exchanged", &far->values) != ERR_OK)
        return no_memory(d);
    float *at = far->values;
    for (uint32_t f = 0; f < fragments; f++)
        for (int k = 0; k < 2; k++, at += d->local[f].own_count)
            far->areas[f][k] = at;
    attach_device_pin(d, far->values, (2 * values + 1) * sizeof *far->values);
    return DILOCO_OK;
}

static int take_parts(struct diloco *d, struct served *one, const struct diloco_part *said)
{
    for (uint32_t i = 0; i < d->tensors_count; i++) {
        struct tensor *t = &one->parts[i];
        *t = d->tensors[i];
        t->column0 = said[i].column0;
        t->columns = said[i].columns;
        t->first = said[i].first;
        t->count = said[i].count;
        uint64_t rows = t->width > 0 ? t->whole / t->width : 0;
        if (t->columns > t->width || t->column0 > t->width - t->columns || t->first > rows * t->columns ||
            t->count > rows * t->columns - t->first)
            return attach_fail(d, DILOCO_ERROR, "%s: its part of tensor \"%s\" does not lie in it",
                               d->far->name[one->rank], t->announced.name);
        t->own_offset = one->own_count[t->place.fragment];
        one->own_count[t->place.fragment] += t->count;
    }
    return DILOCO_OK;
}

static int hear_parts(struct diloco *d, struct served *one, struct diloco_part *said)
{
    if (mem_new(d->tensors_count, sizeof *one->parts, "parts of far ranks", &one->parts) != ERR_OK ||
        mem_new(d->shm->fragments_count, sizeof *one->own_count, "parts of far ranks", &one->own_count) != ERR_OK)
        return no_memory(d);
    int result = bring(d, one->rank, TAG_PARTS, said, d->tensors_count * sizeof *said, false);
    return result == DILOCO_OK ? take_parts(d, one, said) : result;
}

static int tell_parts(struct diloco *d, struct diloco_part *said)
{
    for (uint32_t i = 0; i < d->tensors_count; i++) {
        const struct tensor *t = &d->tensors[i];
        said[i] = (struct diloco_part){t->column0, t->columns, t->first, t->count};
    }
    return bring(d, d->far->server[d->group.rank], TAG_PARTS, said, d->tensors_count * sizeof *said, true);
}

int attach_far_parts(struct diloco *d)
{
    struct attach_far *far = d->far;
    struct diloco_part *said;
    int result = DILOCO_OK;
    if (far == NULL)
        return DILOCO_OK;
    if (mem_new((size_t)d->group.count, sizeof *far->served, "parts of far ranks", &far->served) != ERR_OK ||
        mem_new(d->tensors_count, sizeof *said, "parts of far ranks", &said) != ERR_OK)
        return no_memory(d);
    for (int r = 0; result == DILOCO_OK && r < d->group.count; r++) {
        if (far->server[r] != d->group.rank || r == d->group.rank)
            continue;
        struct served *one = &far->served[far->served_count++];
        one->rank = r;
        result = hear_parts(d, one, said);
    }
    if (result == DILOCO_OK && d->is_far)
        result = tell_parts(d, said);
    mem_free(said);
    return result == DILOCO_OK && d->is_far ? make_areas(d) : result;
}

/* ---- what is on its way ---- */

static void free_way(struct way *way)
{
    if (way->owned)
        mem_free(way->bytes);
    mem_free(way->numbers);
    mem_free(way);
}

/* Appended, with its bytes: its own, to be filled, where `bytes` is NULL. */
static int new_way(struct diloco *d, const struct way *what, struct way **out)
{
    struct way *way, **at = &d->far->first;
    if (mem_new(1, sizeof *way, "what is on its way", &way) != ERR_OK)
        return no_memory(d);
    *way = *what;
    way->pieces = (uint32_t)((way->bytes_count + PIECE_BYTES - 1) / PIECE_BYTES);
    way->owned = way->bytes == NULL;
    if (mem_new(way->pieces, sizeof *way->numbers, "what is on its way", &way->numbers) != ERR_OK ||
        (way->owned && mem_new_unset(way->bytes_count, 1, "what is on its way", &way->bytes) != ERR_OK)) {
        way->owned = false;
        free_way(way);
        return no_memory(d);
    }
    while (*at != NULL)
        at = &(*at)->next;
    *at = way;
    *out = way;
    return DILOCO_OK;
}

static int set_out(struct diloco *d, struct way *way)
{
    const struct diloco_group *group = &d->group;
    way->stage = WAY_UNDER_WAY;
    for (uint32_t i = 0; i < way->pieces; i++) {
        size_t at = (size_t)i * PIECE_BYTES, left = way->bytes_count - at,
               count = left < PIECE_BYTES ? left : PIECE_BYTES;
        way->numbers[i] = way->sends ? group->send(group->user, way->peer, way->tag, way->bytes + at, count)
                                     : group->receive(group->user, way->peer, way->tag, way->bytes + at, count);
        if (way->numbers[i] == 0)
            return lost(d, way->peer);
    }
    return DILOCO_OK;
}

/* Whether it has arrived, in stage. */
static int look_at(struct diloco *d, struct way *way, bool wait)
{
    for (uint32_t i = 0; i < way->pieces; i++) {
        int there = way->numbers[i] == 0 ? 1 : d->group.arrived(d->group.user, way->numbers[i], wait);
        if (there < 0)
            return lost(d, way->peer);
        if (there == 0)
            return DILOCO_OK;
        way->numbers[i] = 0;
    }
    way->stage = WAY_DONE;
    return DILOCO_OK;
}

/* What is under way moves into or out of our memory: where the group is not at an end it soon has arrived. False: it
 * has not, and the memory has to stay. */
static bool drain(struct diloco *d)
{
    const struct timespec pause = {.tv_nsec = 1000000};
    for (uint64_t end_ms = env_mono_ms() + DRAIN_MS;; nanosleep(&pause, NULL)) {
        bool under_way = false;
        for (struct way *way = d->far->first; way != NULL; way = way->next) {
            if (way->stage == WAY_UNDER_WAY && look_at(d, way, false) != DILOCO_OK)
                return false;
            under_way |= way->stage == WAY_UNDER_WAY;
        }
        if (!under_way || env_mono_ms() >= end_ms)
            return !under_way;
    }
}

void attach_far_deinit(struct diloco *d)
{
    struct attach_far *far = d->far;
    if (far == NULL)
        return;
    const bool drained = drain(d);
    for (struct way *way = far->first; drained && way != NULL;) {
        struct way *next = way->next;
        free_way(way);
        way = next;
    }
    for (uint32_t i = 0; i < far->served_count; i++) {
        mem_free(far->served[i].parts);
        mem_free(far->served[i].own_count);
    }
    mem_free(far->served);
    mem_free(far->name);
    mem_free(far->server);
    mem_free(far->areas);
    mem_free(far->base);
    if (drained)
        mem_free(far->values);
    mem_free(far->head);
    if (d->is_far)
        d->shm = NULL;
    d->is_far = false;
    mem_free(far);
    d->far = NULL;
}

static uint32_t tag_of(uint32_t f, uint32_t kind)
{
    return TAG_KINDS * f + kind;
}

/* Whether something of the same fragment, that was begun before it between the same two, has not arrived. */
static bool is_held_back(const struct diloco *d, const struct way *way)
{
    for (const struct way *before = d->far->first; before != way; before = before->next)
        if (before->peer == way->peer && before->tag / TAG_KINDS == way->tag / TAG_KINDS && before->stage != WAY_DONE)
            return true;
    return false;
}

/* Values of a far rank, from or to an array of the whole fragment. */
static void put_parts(const struct diloco *d, const struct served *one, uint32_t f, float *whole, float *packed,
                      bool back)
{
    for (uint32_t i = 0; i < d->tensors_count; i++) {
        const struct tensor *t = &one->parts[i];
        if (t->place.fragment == f)
            attach_part_pack(t, whole, packed + t->own_offset, back);
    }
}

/* What comes of it when it has arrived. */
static int take_way(struct diloco *d, struct way *way)
{
    const uint32_t f = way->tag / TAG_KINDS, kind = way->tag % TAG_KINDS;
    uint32_t failed;
    if (way->answers)
        return attach_far_did(d, f, false);
    if (way->sends || way->whose == NULL)
        return DILOCO_OK;
    if (kind == TAG_UP) {
        put_parts(d, way->whose, f, way->into, (float *)(void *)way->bytes, true);
    } else if (kind == TAG_DID) {
        memcpy(&failed, way->bytes, sizeof failed);
        attach_group_did(d, f, failed != 0);
    }
    return DILOCO_OK;
}

/* What a device cannot give is sent all the same, as whoever serves it waits for it; the word says that it failed. */
static int turn_way(struct diloco *d, struct way *way, bool wait)
{
    int result = DILOCO_OK, reached = DILOCO_OK;
    if (way->stage == WAY_DEVICE) {
        bool done;
        reached = attach_device_reached(d, way->mark, wait, &done);
        if (reached != DILOCO_OK || done)
            result = set_out(d, way);
    }
    if (result == DILOCO_OK && way->stage == WAY_UNDER_WAY)
        result = look_at(d, way, wait);
    /* A word counts what was brought up before it. */
    if (result == DILOCO_OK && way->stage == WAY_DONE && way->tag % TAG_KINDS == TAG_DID && is_held_back(d, way))
        way->stage = WAY_UNDER_WAY;
    return reached != DILOCO_OK ? reached : result;
}

int attach_far_turn(struct diloco *d, bool wait)
{
    if (d->far == NULL)
        return DILOCO_OK;
    for (struct way **at = &d->far->first; *at != NULL;) {
        struct way *way = *at;
        int result = turn_way(d, way, wait);
        if (result != DILOCO_OK)
            return result;
        if (way->stage != WAY_DONE) {
            at = &way->next;
            continue;
        }
        result = take_way(d, way);
        *at = way->next;
        free_way(way);
        if (result != DILOCO_OK)
            return result;
    }
    return DILOCO_OK;
}

bool attach_far_idle(const struct diloco *d)
{
    return d->far == NULL || d->far->first == NULL;
}

/* ---- values ---- */

float *attach_far_area(const struct diloco *d, uint32_t f, enum attach_area which)
{
    const struct ipc_fragment *fragment = ipc_fragment(d->shm, f);
    if (d->is_far)
        return d->far->areas[f][d->far->base[f] ^ (which == ATTACH_AREA)];
    return which == ATTACH_BASE ? ipc_base(d->shm, fragment) : ipc_area(d->shm, fragment);
}

uint64_t attach_far_place(const struct diloco *d, const struct tensor *t, uint64_t own, uint64_t at)
{
    return d->is_far ? t->own_offset + own : t->place.offset + at;
}

void attach_far_swap(struct diloco *d, uint32_t f)
{
    if (d->is_far)
        d->far->base[f] ^= 1;
}

/* ---- carrying ---- */

int attach_far_up(struct diloco *d, uint32_t f, float *to)
{
    struct way *way;
    int result = DILOCO_OK;
    if (d->far == NULL)
        return DILOCO_OK;
    if (d->is_far) {
        struct way up = {.stage = WAY_DEVICE,
                         .tag = tag_of(f, TAG_UP),
                         .sends = true,
                         .peer = d->far->server[d->group.rank],
                         .mark = attach_device_mark(d),
                         .bytes = (char *)to,
                         .bytes_count = d->local[f].own_count * sizeof *to};
        return up.bytes_count > 0 ? new_way(d, &up, &way) : DILOCO_OK;
    }
    for (uint32_t i = 0; result == DILOCO_OK && i < d->far->served_count; i++) {
        const struct served *one = &d->far->served[i];
        struct way up = {.tag = tag_of(f, TAG_UP),
                         .peer = one->rank,
                         .whose = one,
                         .bytes_count = one->own_count[f] * sizeof *to,
                         .into = to};
        if (up.bytes_count > 0)
            result = new_way(d, &up, &way);
        if (up.bytes_count > 0 && result == DILOCO_OK)
            result = set_out(d, way);
    }
    return result;
}

int attach_far_down(struct diloco *d, uint32_t f, float *from, bool wait)
{
    struct way *way;
    int result = DILOCO_OK;
    if (d->far == NULL)
        return DILOCO_OK;
    if (d->is_far) {
        struct way down = {.tag = tag_of(f, TAG_DOWN),
                           .peer = d->far->server[d->group.rank],
                           .answers = !wait,
                           .bytes = (char *)from,
                           .bytes_count = d->local[f].own_count * sizeof *from};
        if (down.bytes_count == 0)
            return wait ? DILOCO_OK : attach_far_did(d, f, false);
        result = new_way(d, &down, &way);
        if (result == DILOCO_OK)
            result = set_out(d, way);
        return result == DILOCO_OK && wait ? attach_far_turn(d, true) : result;
    }
    for (uint32_t i = 0; result == DILOCO_OK && i < d->far->served_count; i++) {
        const struct served *one = &d->far->served[i];
        struct way down = {.tag = tag_of(f, TAG_DOWN),
                           .sends = true,
                           .peer = one->rank,
                           .whose = one,
                           .bytes_count = one->own_count[f] * sizeof *from};
        if (down.bytes_count == 0)
            continue;
        result = new_way(d, &down, &way);
        if (result != DILOCO_OK)
            break;
        put_parts(d, one, f, from, (float *)(void *)way->bytes, false);
        result = set_out(d, way);
    }
    return result;
}

int attach_far_expect(struct diloco *d, uint32_t f)
{
    int result = DILOCO_OK;
    for (uint32_t i = 0; d->far != NULL && result == DILOCO_OK && i < d->far->served_count; i++) {
        const struct served *one = &d->far->served[i];
        struct way *way,
            did = {.tag = tag_of(f, TAG_DID), .peer = one->rank, .whose = one, .bytes_count = sizeof(uint32_t)};
        result = new_way(d, &did, &way);
        if (result == DILOCO_OK)
            result = set_out(d, way);
    }
    return result;
}

int attach_far_did(struct diloco *d, uint32_t f, bool failed)
{
    struct way *way, did = {.tag = tag_of(f, TAG_DID), .sends = true, .bytes_count = sizeof(uint32_t)};
    if (!d->is_far) {
        attach_group_did(d, f, failed);
        return DILOCO_OK;
    }
    did.peer = d->far->server[d->group.rank];
    int result = new_way(d, &did, &way);
    if (result != DILOCO_OK)
        return result;
    const uint32_t word = failed;
    memcpy(way->bytes, &word, sizeof word);
    return set_out(d, way);
}
