/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/libdiloco/attach_keep.h"

#include <math.h>
#include <string.h>

#include "common/blake2b.h"
#include "common/err.h"
#include "common/ipc.h"
#include "worker/libdiloco/attach_group.h"
#include "worker/libdiloco/attach_move.h"

enum { KEEP_VERSION = 3 };
#define KEEP_MAGIC 0x3150454b4f4c4944u /* "DILOKEP1" */

enum { DIGEST_PIECE = 64 << 20 };
enum { PART_FREE = DILOCO_KEPT_KINDS }; /* no values: the word */

/* keep_head; keep_fragment of each fragment; unless they are apart, the values of each fragment's parts, in the order
 * of enum diloco_kept; the digest of all before it. */
struct keep_head {
    uint64_t magic;
    uint32_t version, fragments_count;
    uint64_t bytes, plan_tag, step, tokens;
    uint64_t apart; /* the tensors' values are somewhere else */
};

struct keep_fragment {
    uint64_t values_count, base_version, due_step, snapshot_step, snapshot_tokens, mix_step, tokens_counted;
    uint32_t parts; /* 1 << enum diloco_kept, or PART_FREE */
    uint32_t sent;  /* a snapshot is on its way, though its values may be gone */
    uint64_t counted_tokens[IPC_RANGES_MAX];
};

static uint32_t fragments_of(const struct diloco *d)
{
    return d->shm != NULL ? d->shm->fragments_count : 0;
}

static size_t heads_bytes(const struct diloco *d)
{
    return sizeof(struct keep_head) + fragments_of(d) * sizeof(struct keep_fragment);
}

size_t attach_keep_rest_bytes(const struct diloco *d)
{
    return d->shm != NULL ? heads_bytes(d) + BLAKE2B_BYTES : 0;
}

/* Most that a fragment's may be: its base and a snapshot always. */
static size_t parts_of(const struct local *local)
{
    return 2u + (local->aside != NULL) + (local->past != NULL) + (local->carry != NULL);
}

size_t attach_keep_bytes(const struct diloco *d)
{
    size_t bytes = attach_keep_rest_bytes(d);
    for (uint32_t f = 0; f < fragments_of(d); f++)
        bytes += parts_of(&d->local[f]) * (size_t)ipc_fragment(d->shm, f)->values_count * sizeof(float);
    return bytes;
}

/* ---- writing ---- */

static char *put(char *to, const void *from, size_t bytes)
{
    memcpy(to, from, bytes);
    return to + bytes;
}

/* Whether the area holds what was sent. The daemon may take it for an anchor at any time; what then has been copied is
 * nothing. What we are at ourselves (d->local[].moving) is done, though its word may not say so yet. */
static bool has_snapshot(const struct diloco *d, uint32_t f)
{
    enum ipc_word word = ipc_word(ipc_fragment(d->shm, f));
    return word == IPC_COPYING || word == IPC_SNAPSHOT;
}

static struct keep_fragment describe(const struct diloco *d, uint32_t f)
{
    const struct ipc_fragment *fragment = ipc_fragment(d->shm, f);
    const struct local *local = &d->local[f];
    const enum ipc_word word = ipc_word(fragment);
    struct keep_fragment keep = {.values_count = fragment->values_count,
                                 .base_version = word == IPC_MIXING ? fragment->anchor_version : fragment->base_version,
                                 .due_step = fragment->due_step,
                                 .snapshot_step = fragment->snapshot_step,
                                 .snapshot_tokens = fragment->snapshot_tokens,
                                 .mix_step = fragment->mix_step,
                                 .tokens_counted = local->tokens_counted,
                                 .parts = 1u << DILOCO_KEPT_ANCHOR,
                                 .sent = local->sent};
    memcpy(keep.counted_tokens, fragment->counted_tokens, sizeof keep.counted_tokens);
    keep.parts |= local->aside != NULL ? 1u << DILOCO_KEPT_ASIDE : 0;
    keep.parts |= local->past != NULL ? 1u << DILOCO_KEPT_PAST : 0;
    keep.parts |= local->carry != NULL ? 1u << DILOCO_KEPT_CARRY : 0;
    if (word == IPC_FREE || word == IPC_MIXING)
        keep.parts |= 1u << PART_FREE; /* what was sent, if anything, was refused or lost, and comes back */
    return keep;
}

static enum attach_beside beside_of(enum diloco_kept part)
{
    return part == DILOCO_KEPT_ASIDE ? ATTACH_ASIDE : part == DILOCO_KEPT_PAST ? ATTACH_PAST : ATTACH_CARRY;
}

static char *put_beside(struct diloco *d, uint32_t f, enum diloco_kept part, char *to, size_t bytes, int *result)
{
    memset(to, 0, bytes); /* what lies between tensors */
    if (*result == DILOCO_OK)
        *result = attach_beside_out(d, f, beside_of(part), (float *)(void *)to);
    return to + bytes;
}

/* Its values; `head` is where what is said of it goes. */
static char *put_fragment(struct diloco *d, uint32_t f, char *head, char *to, int *result)
{
    const struct ipc_fragment *fragment = ipc_fragment(d->shm, f);
    const size_t bytes = (size_t)fragment->values_count * sizeof(float);
    const bool mixed = ipc_word(fragment) == IPC_MIXING;
    struct keep_fragment keep = describe(d, f);
    to = put(to, mixed ? ipc_area(d->shm, fragment) : ipc_base(d->shm, fragment), bytes);
    if (has_snapshot(d, f)) {
        char *after = put(to, ipc_area(d->shm, fragment), bytes);
        if (has_snapshot(d, f)) {
            keep.parts |= 1u << DILOCO_KEPT_SENT;
            to = after;
        }
    }
    for (enum diloco_kept part = DILOCO_KEPT_ASIDE; part < DILOCO_KEPT_KINDS; part++)
        if ((keep.parts >> part & 1) != 0)
            to = put_beside(d, f, part, to, bytes, result);
    put(head, &keep, sizeof keep);
    return to;
}

/* Of gigabytes, which takes as many seconds. */
static void digest_slowly(struct diloco *d, const char *bytes, size_t count, uint8_t *digest)
{
    struct blake2b state;
    blake2b_begin(&state);
    for (size_t at = 0, piece; at < count; at += piece) {
        piece = count - at < DIGEST_PIECE ? count - at : DIGEST_PIECE;
        blake2b_add(&state, bytes + at, piece);
        attach_group_awake(d);
    }
    blake2b_end(&state, digest);
}

int attach_keep_settle(struct diloco *d)
{
    int result = attach_settle_all(d);
    for (uint32_t f = 0; result == DILOCO_OK && f < fragments_of(d); f++)
        result = attach_settle_move(d, f, true);
    return result == DILOCO_OK ? attach_look(d) : result;
}

/* The head, and the digest behind all that was written up to `end`. */
static size_t put_head(struct diloco *d, char *to, char *end, bool apart)
{
    struct keep_head head = {.magic = KEEP_MAGIC,
                             .version = KEEP_VERSION,
                             .fragments_count = fragments_of(d),
                             .bytes = (uint64_t)(end - to) + BLAKE2B_BYTES,
                             .plan_tag = d->shm->plan_tag,
                             .step = d->step,
                             .tokens = d->tokens,
                             .apart = apart};
    put(to, &head, sizeof head);
    digest_slowly(d, to, (size_t)(end - to), (uint8_t *)end);
    return (size_t)head.bytes;
}

size_t attach_keep(struct diloco *d, void *to)
{
    int result = attach_keep_settle(d);
    char *head = (char *)to + sizeof(struct keep_head), *at = (char *)to + heads_bytes(d);
    for (uint32_t f = 0; f < fragments_of(d); f++) {
        attach_group_awake(d);
        at = put_fragment(d, f, head, at, &result);
        head += sizeof(struct keep_fragment);
    }
    return result == DILOCO_OK ? put_head(d, to, at, false) : 0;
}

size_t attach_keep_rest(struct diloco *d, void *to)
{
    char *at = (char *)to + sizeof(struct keep_head);
    if (attach_settle_all(d) != DILOCO_OK) /* all ranks have their values */
        return 0;
    for (uint32_t f = 0; f < fragments_of(d); f++) {
        struct keep_fragment keep = describe(d, f);
        keep.parts |= has_snapshot(d, f) ? 1u << DILOCO_KEPT_SENT : 0;
        at = put(at, &keep, sizeof keep);
    }
    return put_head(d, to, at, true);
}

/* ---- reading ---- */

int attach_keep_read(struct diloco *d)
{
    struct keep_head head;
    uint8_t digest[BLAKE2B_BYTES];
    size_t bytes = d->options.kept != NULL ? d->options.kept_bytes : 0;
    if (bytes == 0)
        return DILOCO_OK;
    if (bytes < sizeof head + BLAKE2B_BYTES)
        return attach_fail(d, DILOCO_ERROR,
                           "options.kept is too short to be what diloco_keep() or diloco_keep_rest() gave");
    memcpy(&head, d->options.kept, sizeof head);
    if (head.magic != KEEP_MAGIC || head.version != KEEP_VERSION || head.bytes > bytes ||
        head.bytes < sizeof head + BLAKE2B_BYTES)
        return attach_fail(d, DILOCO_ERROR,
                           "options.kept is not what diloco_keep() or diloco_keep_rest() of this version gave; begin "
                           "without it");
    const char *end = (const char *)d->options.kept + head.bytes - BLAKE2B_BYTES;
    digest_slowly(d, d->options.kept, (size_t)head.bytes - BLAKE2B_BYTES, digest);
    if (memcmp(digest, end, BLAKE2B_BYTES) != 0)
        return attach_fail(d, DILOCO_ERROR, "options.kept is damaged; begin without it, or with an older checkpoint");
    d->step = head.step;
    d->tokens = head.tokens;
    d->kept = true;
    return DILOCO_OK;
}

/* What is read from: the values of one fragment. */
struct source {
    struct keep_fragment keep;
    bool apart;
    const char *values[DILOCO_KEPT_KINDS]; /* not apart: of its parts; NULL: it has not this one */
};

static bool has_part(const struct source *from, enum diloco_kept part)
{
    return (from->keep.parts >> part & 1) != 0;
}

/* Takes what is said of fragment `f`, and, from `*at`, its values. False: it is of another run, or too few bytes. */
static bool take_fragment(const struct diloco *d, uint32_t f, const struct keep_head *head, const char **at,
                          struct source *from)
{
    const char *start = d->options.kept, *end = start + head->bytes - BLAKE2B_BYTES;
    const struct local *local = &d->local[f];
    *from = (struct source){.apart = head->apart != 0};
    memcpy(&from->keep, start + sizeof *head + f * sizeof from->keep, sizeof from->keep);
    const uint64_t count = from->keep.values_count;
    for (enum diloco_kept part = DILOCO_KEPT_ANCHOR; !from->apart && part < DILOCO_KEPT_KINDS; part++) {
        if (!has_part(from, part))
            continue;
        if (count > (uint64_t)(end - *at) / sizeof(float))
            return false;
        from->values[part] = *at;
        *at += count * sizeof(float);
    }
    return count == ipc_fragment(d->shm, f)->values_count && has_part(from, DILOCO_KEPT_ANCHOR) &&
           (local->aside == NULL || has_part(from, DILOCO_KEPT_ASIDE)) &&
           (local->past == NULL || has_part(from, DILOCO_KEPT_PAST));
}

/* Whether the tensors of a fragment hold no NaN; its area is free to be used. */
static int look(struct diloco *d, uint32_t f, bool *finite)
{
    const float *area = ipc_area(d->shm, ipc_fragment(d->shm, f));
    uint64_t count = ipc_fragment(d->shm, f)->values_count;
    int result = attach_copy_out(d, f, ATTACH_AREA);
    if (result == DILOCO_OK)
        result = attach_settle_all(d);
    *finite = true;
    for (uint64_t i = 0; result == DILOCO_OK && i < count; i++)
        *finite &= isfinite(area[i]) != 0;
    return result;
}

static int scribbled(struct diloco *d)
{
    return attach_fail(d, DILOCO_ERROR, "another process writes into the shared memory; end it");
}

static int restore_part(struct diloco *d, uint32_t f, const struct source *from, enum diloco_kept part)
{
    const struct ipc_fragment *fragment = ipc_fragment(d->shm, f);
    const char *values = from->values[part];
    if (from->apart)
        return attach_kept_in(d, f, part);
    if (part != DILOCO_KEPT_ANCHOR && part != DILOCO_KEPT_SENT)
        return attach_beside_in(d, f, beside_of(part), (const float *)(const void *)values);
    memcpy(part == DILOCO_KEPT_SENT ? ipc_area(d->shm, fragment) : ipc_base(d->shm, fragment), values,
           (size_t)from->keep.values_count * sizeof(float));
    return DILOCO_OK;
}

static int restore_snapshot(struct diloco *d, uint32_t f, const struct source *from)
{
    struct ipc_fragment *fragment = ipc_fragment(d->shm, f);
    if (!ipc_move(fragment, IPC_TRAINER, IPC_FREE, IPC_COPYING))
        return scribbled(d);
    int result = DILOCO_OK;
    if (has_part(from, DILOCO_KEPT_SENT))
        result = restore_part(d, f, from, DILOCO_KEPT_SENT);
    else
        fragment->kept = IPC_KEPT_BUT_SNAPSHOT;
    if (result != DILOCO_OK)
        return result;
    fragment->snapshot_step = from->keep.snapshot_step;
    fragment->snapshot_tokens = from->keep.snapshot_tokens;
    fragment->mix_step = from->keep.mix_step;
    return ipc_move(fragment, IPC_TRAINER, IPC_COPYING, IPC_SNAPSHOT) ? DILOCO_OK : scribbled(d);
}

static int restore_fragment(struct diloco *d, uint32_t f, const struct source *from)
{
    struct ipc_fragment *fragment = ipc_fragment(d->shm, f);
    struct local *local = &d->local[f];
    bool finite;
    int result = look(d, f, &finite);
    if (result != DILOCO_OK || !finite)
        return result;
    result = restore_part(d, f, from, DILOCO_KEPT_ANCHOR);
    memcpy(fragment->counted_tokens, from->keep.counted_tokens, sizeof from->keep.counted_tokens);
    fragment->base_version = from->keep.base_version;
    fragment->due_step = from->keep.due_step;
    local->sent = from->keep.sent != 0;
    local->tokens_counted = from->keep.tokens_counted;
    if (result == DILOCO_OK && local->aside != NULL)
        result = restore_part(d, f, from, DILOCO_KEPT_ASIDE);
    if (result == DILOCO_OK && local->past != NULL)
        result = restore_part(d, f, from, DILOCO_KEPT_PAST);
    if (result == DILOCO_OK && local->carry != NULL && has_part(from, DILOCO_KEPT_CARRY))
        result = restore_part(d, f, from, DILOCO_KEPT_CARRY);
    if (result != DILOCO_OK)
        return result;
    fragment->kept = IPC_KEPT_ALL;
    if ((from->keep.parts >> PART_FREE & 1) != 0 || !local->sent)
        return DILOCO_OK;
    return restore_snapshot(d, f, from);
}

int attach_keep_restore(struct diloco *d)
{
    struct keep_head head;
    struct source from;
    memcpy(&head, d->options.kept, sizeof head);
    const char *at = (const char *)d->options.kept + heads_bytes(d);
    bool ours = head.plan_tag == d->shm->plan_tag && head.fragments_count == d->shm->fragments_count &&
                head.bytes >= attach_keep_rest_bytes(d);
    for (uint32_t f = 0; ours && f < head.fragments_count; f++) {
        ours = take_fragment(d, f, &head, &at, &from);
        int result = ours ? restore_fragment(d, f, &from) : DILOCO_OK;
        if (result != DILOCO_OK)
            return result;
    }
    return ours ? DILOCO_OK
                : attach_fail(d, DILOCO_ERROR, "options.kept is of another run than the daemon's; begin without it");
}

int attach_keep_begins(struct diloco *d, uint32_t f, bool *kept)
{
    struct local *local = &d->local[f];
    *kept = ipc_fragment(d->shm, f)->kept != IPC_KEPT_NOTHING;
    if (*kept)
        return DILOCO_OK;
    local->sent = false;
    local->tokens_counted = d->tokens; /* the work that they stand for is not there any more */
    return local->past != NULL ? attach_past_anew(d, f) : DILOCO_OK;
}
