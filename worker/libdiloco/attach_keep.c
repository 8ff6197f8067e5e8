/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/libdiloco/attach_keep.h"

#include <math.h>
#include <string.h>

#include "common/blake2b.h"
#include "common/err.h"
#include "common/ipc.h"
#include "worker/libdiloco/attach_group.h"
#include "worker/libdiloco/attach_move.h"

enum { KEEP_VERSION = 2 };
#define KEEP_MAGIC 0x3150454b4f4c4944u /* "DILOKEP1" */

enum { DIGEST_PIECE = 64 << 20 };

/* head; for each fragment keep_fragment and the values of its parts, in this order; the digest of all before it. */
enum keep_part {
    PART_BASE,
    PART_SNAPSHOT,
    PART_ASIDE,
    PART_PAST,
    PART_CARRY,
    PARTS,
    PART_FREE = PARTS /* no values: the word */
};

struct keep_head {
    uint64_t magic;
    uint32_t version, fragments_count;
    uint64_t bytes, plan_tag, step, tokens;
};

struct keep_fragment {
    uint64_t values_count, base_version, due_step, snapshot_step, snapshot_tokens, mix_step, tokens_counted;
    uint32_t parts; /* 1 << enum keep_part */
    uint32_t sent;  /* a snapshot is on its way, though its values may be gone */
    uint64_t counted_tokens[IPC_RANGES_MAX];
};

static uint32_t fragments_of(const struct diloco *d)
{
    return d->shm != NULL ? d->shm->fragments_count : 0;
}

/* Most that a fragment's may be: its base and a snapshot always. */
static size_t parts_of(const struct local *local)
{
    return 2u + (local->aside != NULL) + (local->past != NULL) + (local->carry != NULL);
}

size_t attach_keep_bytes(const struct diloco *d)
{
    size_t bytes = sizeof(struct keep_head) + BLAKE2B_BYTES;
    for (uint32_t f = 0; f < fragments_of(d); f++)
        bytes += sizeof(struct keep_fragment) +
                 parts_of(&d->local[f]) * (size_t)ipc_fragment(d->shm, f)->values_count * sizeof(float);
    return d->shm != NULL ? bytes : 0;
}

/* ---- writing ---- */

static char *put(char *to, const void *from, size_t bytes)
{
    memcpy(to, from, bytes);
    return to + bytes;
}

/* The daemon may take the snapshot's area for an anchor while it is copied; what then has been copied is nothing. What
 * we are at ourselves (d->local[].moving) is done, though its word may not say so yet. */
static char *put_snapshot(const struct diloco *d, uint32_t f, struct keep_fragment *keep, char *to)
{
    const struct ipc_fragment *fragment = ipc_fragment(d->shm, f);
    bool ours = d->local[f].moving == IPC_COPYING;
    if (ipc_word(fragment) == IPC_FREE || d->local[f].moving == IPC_MIXING)
        keep->parts |= 1u << PART_FREE; /* what was sent, if anything, was refused or lost, and comes back */
    if (!ours && ipc_word(fragment) != IPC_SNAPSHOT)
        return to;
    char *after = put(to, ipc_area(d->shm, fragment), (size_t)keep->values_count * sizeof(float));
    if (!ours && ipc_word(fragment) != IPC_SNAPSHOT)
        return to;
    keep->parts |= 1u << PART_SNAPSHOT;
    return after;
}

static char *put_beside(struct diloco *d, uint32_t f, enum attach_beside which, char *to, size_t bytes, int *result)
{
    memset(to, 0, bytes); /* what lies between tensors */
    if (*result == DILOCO_OK)
        *result = attach_beside_out(d, f, which, (float *)(void *)to);
    return to + bytes;
}

/* The same in all ranks. */
static bool has_carry(const struct diloco *d, uint32_t f)
{
    return d->local[f].carry != NULL;
}

static char *put_fragment(struct diloco *d, uint32_t f, char *to, int *result)
{
    const struct ipc_fragment *fragment = ipc_fragment(d->shm, f);
    const struct local *local = &d->local[f];
    size_t bytes = (size_t)fragment->values_count * sizeof(float);
    bool mixed = local->moving == IPC_MIXING;
    struct keep_fragment keep = {.values_count = fragment->values_count,
                                 .base_version = mixed ? fragment->anchor_version : fragment->base_version,
                                 .due_step = fragment->due_step,
                                 .snapshot_step = fragment->snapshot_step,
                                 .snapshot_tokens = fragment->snapshot_tokens,
                                 .mix_step = fragment->mix_step,
                                 .tokens_counted = local->tokens_counted,
                                 .parts = 1u << PART_BASE,
                                 .sent = local->sent};
    memcpy(keep.counted_tokens, fragment->counted_tokens, sizeof keep.counted_tokens);
    char *head = to;
    to = put(to + sizeof keep, mixed ? ipc_area(d->shm, fragment) : ipc_base(d->shm, fragment), bytes);
    to = put_snapshot(d, f, &keep, to);
    if (local->aside != NULL) {
        to = put_beside(d, f, ATTACH_ASIDE, to, bytes, result);
        keep.parts |= 1u << PART_ASIDE;
    }
    if (local->past != NULL) {
        to = put_beside(d, f, ATTACH_PAST, to, bytes, result);
        keep.parts |= 1u << PART_PAST;
    }
    if (has_carry(d, f)) {
        to = put_beside(d, f, ATTACH_CARRY, to, bytes, result);
        keep.parts |= 1u << PART_CARRY;
    }
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

size_t attach_keep(struct diloco *d, void *to)
{
    int result = attach_settle_all(d);
    for (uint32_t f = 0; result == DILOCO_OK && f < fragments_of(d); f++)
        result = attach_settle_move(d, f, true);
    struct keep_head head = {.magic = KEEP_MAGIC,
                             .version = KEEP_VERSION,
                             .fragments_count = fragments_of(d),
                             .plan_tag = d->shm->plan_tag,
                             .step = d->step,
                             .tokens = d->tokens};
    char *at = (char *)to + sizeof head;
    for (uint32_t f = 0; f < head.fragments_count; f++) {
        attach_group_awake(d);
        at = put_fragment(d, f, at, &result);
    }
    if (result != DILOCO_OK)
        return 0;
    head.bytes = (uint64_t)(at - (char *)to) + BLAKE2B_BYTES;
    put(to, &head, sizeof head);
    digest_slowly(d, to, (size_t)(at - (char *)to), (uint8_t *)at);
    return (size_t)head.bytes;
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
        return attach_fail(d, DILOCO_ERROR, "options.kept is too short to be what diloco_keep() gave");
    memcpy(&head, d->options.kept, sizeof head);
    if (head.magic != KEEP_MAGIC || head.version != KEEP_VERSION || head.bytes > bytes ||
        head.bytes < sizeof head + BLAKE2B_BYTES)
        return attach_fail(d, DILOCO_ERROR,
                           "options.kept is not what diloco_keep() of this version gave; begin without it");
    const char *end = (const char *)d->options.kept + head.bytes - BLAKE2B_BYTES;
    digest_slowly(d, d->options.kept, (size_t)head.bytes - BLAKE2B_BYTES, digest);
    if (memcmp(digest, end, BLAKE2B_BYTES) != 0)
        return attach_fail(d, DILOCO_ERROR, "options.kept is damaged; begin without it, or with an older checkpoint");
    d->step = head.step;
    d->tokens = head.tokens;
    d->kept = true;
    return DILOCO_OK;
}

/* Takes one part, if the fragment has it: its values, or NULL. False: the bytes are too few. */
static bool take_part(const struct keep_fragment *keep, enum keep_part part, const char **at, const char *end,
                      const char **values)
{
    *values = NULL;
    if ((keep->parts >> part & 1) == 0)
        return true;
    if (keep->values_count > (uint64_t)(end - *at) / sizeof(float))
        return false;
    *values = *at;
    *at += keep->values_count * sizeof(float);
    return true;
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

static int restore_snapshot(struct diloco *d, struct ipc_fragment *fragment, const struct keep_fragment *keep,
                            float *area, const char *values)
{
    if (!ipc_move(fragment, IPC_TRAINER, IPC_FREE, IPC_COPYING))
        return scribbled(d);
    if (values != NULL)
        memcpy(area, values, (size_t)keep->values_count * sizeof *area);
    else
        fragment->kept = IPC_KEPT_BUT_SNAPSHOT;
    fragment->snapshot_step = keep->snapshot_step;
    fragment->snapshot_tokens = keep->snapshot_tokens;
    fragment->mix_step = keep->mix_step;
    return ipc_move(fragment, IPC_TRAINER, IPC_COPYING, IPC_SNAPSHOT) ? DILOCO_OK : scribbled(d);
}

static int restore_fragment(struct diloco *d, uint32_t f, const struct keep_fragment *keep, const char *const *part)
{
    struct ipc_fragment *fragment = ipc_fragment(d->shm, f);
    struct local *local = &d->local[f];
    size_t bytes = (size_t)keep->values_count * sizeof(float);
    bool finite;
    int result = look(d, f, &finite);
    if (result != DILOCO_OK || !finite)
        return result;
    memcpy(ipc_base(d->shm, fragment), part[PART_BASE], bytes);
    memcpy(fragment->counted_tokens, keep->counted_tokens, sizeof keep->counted_tokens);
    fragment->base_version = keep->base_version;
    fragment->due_step = keep->due_step;
    local->sent = keep->sent != 0;
    local->tokens_counted = keep->tokens_counted;
    if (local->aside != NULL)
        result = attach_beside_in(d, f, ATTACH_ASIDE, (const float *)(const void *)part[PART_ASIDE]);
    if (result == DILOCO_OK && local->past != NULL)
        result = attach_beside_in(d, f, ATTACH_PAST, (const float *)(const void *)part[PART_PAST]);
    if (result == DILOCO_OK && has_carry(d, f) && part[PART_CARRY] != NULL)
        result = attach_beside_in(d, f, ATTACH_CARRY, (const float *)(const void *)part[PART_CARRY]);
    if (result != DILOCO_OK)
        return result;
    fragment->kept = IPC_KEPT_ALL;
    if (keep->parts >> PART_FREE & 1 || !local->sent)
        return DILOCO_OK;
    return restore_snapshot(d, fragment, keep, ipc_area(d->shm, fragment), part[PART_SNAPSHOT]);
}

int attach_keep_restore(struct diloco *d)
{
    struct keep_head head;
    struct keep_fragment keep;
    const char *at = d->options.kept, *part[PARTS];
    memcpy(&head, at, sizeof head);
    const char *end = at + head.bytes - BLAKE2B_BYTES;
    at += sizeof head;
    bool ours = head.plan_tag == d->shm->plan_tag && head.fragments_count == d->shm->fragments_count;
    for (uint32_t f = 0; ours && f < head.fragments_count; f++) {
        ours = (size_t)(end - at) >= sizeof keep;
        if (!ours)
            break;
        memcpy(&keep, at, sizeof keep);
        at += sizeof keep;
        ours = keep.values_count == ipc_fragment(d->shm, f)->values_count && (keep.parts >> PART_BASE & 1) != 0;
        for (int p = 0; ours && p < PARTS; p++)
            ours = take_part(&keep, (enum keep_part)p, &at, end, &part[p]);
        ours = ours && (d->local[f].aside == NULL || part[PART_ASIDE] != NULL) &&
               (d->local[f].past == NULL || part[PART_PAST] != NULL);
        int result = ours ? restore_fragment(d, f, &keep, part) : DILOCO_OK;
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
