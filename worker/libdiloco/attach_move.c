/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/libdiloco/attach_move.h"

#include <inttypes.h>
#include <string.h>

#include "common/ipc.h"
#include "common/mem.h"
#include "worker/libdiloco/attach_device.h"
#include "worker/libdiloco/attach_far.h"
#include "worker/libdiloco/attach_group.h"
#include "worker/libdiloco/attach_link.h"
#include "worker/libdiloco/attach_part.h"

/* ---- values ---- */

/* What is moved: `own` is NULL for the tensors themselves, else an array of the fragment's that lies as they do. */
struct what {
    enum diloco_move_kind kind;
    float *own;
    float *host;
    const float *base;
};

static int move_beside(struct diloco *d, float *own, struct diloco_move *move)
{
    move->tensor = own;
    move->first = move->beside;
    return attach_device_move_beside(d, move);
}

static int move_live(struct diloco *d, uint32_t f, struct tensor *t, uint64_t own, struct diloco_move *move)
{
    const struct local *local = &d->local[f];
    move->tensor = t->data;
    move->type = t->type;
    move->first = t->begin + own;
    move->aside = local->aside;
    move->past = local->past;
    move->carry = t->type != DILOCO_F32 ? local->carry : NULL;
    return attach_device_move(d, move);
}

static int move_tensor(struct diloco *d, uint32_t f, struct tensor *t, const struct what *what, uint64_t begin,
                       uint64_t end)
{
    const uint64_t offset = t->place.offset;
    if (what->own == NULL && what->kind != DILOCO_READ && what->kind != DILOCO_ASIDE_LOOK)
        d->any_changed = d->changed[t->number] = true;
    uint64_t last = attach_part_before(t, end - offset);
    for (uint64_t own = attach_part_before(t, begin - offset), at; own < last;) {
        struct diloco_move move = {.kind = what->kind,
                                   .bad = d->bad,
                                   .keep = d->shm->mix,
                                   .fresh = (float)(d->local[f].share * d->shm->eager_fresh),
                                   .past_share = (float)(d->local[f].share * d->shm->eager_past),
                                   .decay = d->shm->eager_decay};
        uint64_t count = attach_part_block(t, own, last, &at, &move);
        uint64_t there = attach_far_place(d, t, own, at);
        move.stride = d->is_far ? move.columns : move.stride;
        move.beside = t->own_offset + own;
        move.host = what->host != NULL ? what->host + there : NULL;
        move.base = what->base != NULL ? what->base + there : NULL;
        int result = what->own != NULL ? move_beside(d, what->own, &move) : move_live(d, f, t, own, &move);
        if (result != DILOCO_OK)
            return result;
        own += count;
    }
    return DILOCO_OK;
}

/* All own values of a fragment from `begin` to before `end`. */
static int move_values(struct diloco *d, uint32_t f, const struct what *what, uint64_t begin, uint64_t end)
{
    int result = DILOCO_OK;
    for (uint32_t i = 0; result == DILOCO_OK && i < d->tensors_count; i++) {
        struct tensor *t = &d->tensors[i];
        uint64_t from = begin > t->place.offset ? begin : t->place.offset;
        uint64_t to = t->place.offset + t->place.count;
        to = to < end ? to : end;
        if (t->place.fragment == f && from < to)
            result = move_tensor(d, f, t, what, from, to);
    }
    return result;
}

static const struct tensor *find_tensor(const struct diloco *d, int number)
{
    for (uint32_t i = 0; number >= 0 && i < d->tensors_count; i++)
        if (d->tensors[i].number == (uint32_t)number)
            return &d->tensors[i];
    return NULL;
}

/* Own values of a tensor from one of its fragment's areas to `values`, closely packed; or `back`. */
static void pack(const struct diloco *d, const struct tensor *t, enum attach_area which, float *values, bool back)
{
    float *area = attach_far_area(d, t->place.fragment, which), *own = area + t->own_offset;
    if (d->is_far)
        memcpy(back ? own : values, back ? values : own, t->count * sizeof *values);
    else
        attach_part_pack(t, area, values, back);
}

int attach_read_anchor(struct diloco *d, int tensor, float *values, uint64_t count)
{
    const struct tensor *t = find_tensor(d, tensor);
    if (t == NULL || count != t->count)
        return attach_fail(d, DILOCO_ERROR, "diloco_anchor() of %" PRIu64 " values of tensor %d, which has %" PRIu64,
                           count, tensor, t != NULL ? t->count : 0);
    pack(d, t, ATTACH_BASE, values, false);
    return DILOCO_OK;
}

static float *beside(const struct diloco *d, uint32_t f, uint32_t which)
{
    const struct local *local = &d->local[f];
    return which == ATTACH_ASIDE ? local->aside : which == ATTACH_PAST ? local->past : local->carry;
}

static int copy_beside(struct diloco *d, uint32_t f, uint32_t which, enum diloco_move_kind kind, float *values)
{
    struct what what = {.kind = kind, .own = beside(d, f, which), .host = values};
    return what.own != NULL ? move_values(d, f, &what, 0, UINT64_MAX) : DILOCO_OK;
}

/* ---- what a checkpoint keeps, a tensor at a time ---- */

static float *kept_beside(const struct diloco *d, const struct tensor *t, enum diloco_kept kind)
{
    const struct local *local = &d->local[t->place.fragment];
    if (kind == DILOCO_KEPT_CARRY)
        return t->type != DILOCO_F32 ? local->carry : NULL;
    return kind == DILOCO_KEPT_ASIDE ? local->aside : kind == DILOCO_KEPT_PAST ? local->past : NULL;
}

static int move_kept(struct diloco *d, const struct tensor *t, float *own, enum diloco_move_kind kind, float *values)
{
    struct diloco_move move = {.kind = kind,
                               .tensor = own,
                               .first = t->own_offset,
                               .host = values,
                               .rows = 1,
                               .columns = t->count,
                               .stride = t->count};
    bool done;
    int result = attach_device_move_beside(d, &move);
    return result == DILOCO_OK ? attach_device_reached(d, attach_device_mark(d), true, &done) : result;
}

int attach_kept_out(struct diloco *d, int tensor, enum diloco_kept kind, float *values, uint64_t count)
{
    const struct tensor *t = find_tensor(d, tensor);
    if (t == NULL || kind < DILOCO_KEPT_ANCHOR || kind >= DILOCO_KEPT_KINDS || (values != NULL && count != t->count))
        return attach_fail(d, DILOCO_ERROR,
                           "diloco_keep_values() of %" PRIu64 " values, kind %d, of tensor %d, which has %" PRIu64,
                           count, (int)kind, tensor, t != NULL ? t->count : 0);
    const struct ipc_fragment *fragment = ipc_fragment(d->shm, t->place.fragment);
    const enum ipc_word word = ipc_word(fragment);
    float *own = kept_beside(d, t, kind);
    bool there = own != NULL || kind == DILOCO_KEPT_ANCHOR || kind == DILOCO_KEPT_SENT;
    if (values == NULL)
        return there && t->count > 0;
    if (!there)
        return attach_fail(d, DILOCO_ERROR, "diloco_keep_values(): this run has no values of kind %d", (int)kind);
    if (own != NULL)
        return t->count > 0 ? move_kept(d, t, own, DILOCO_READ, values) : DILOCO_OK;
    if (kind == DILOCO_KEPT_SENT && word != IPC_COPYING && word != IPC_SNAPSHOT)
        memset(values, 0, count * sizeof *values);
    else if (kind == DILOCO_KEPT_SENT || word == IPC_MIXING)
        pack(d, t, ATTACH_AREA, values, false);
    else
        pack(d, t, ATTACH_BASE, values, false);
    return DILOCO_OK;
}

static int take_kept(struct diloco *d, const struct tensor *t, enum diloco_kept kind, float *values)
{
    float *own = kept_beside(d, t, kind);
    if (own == NULL && kind != DILOCO_KEPT_ANCHOR && kind != DILOCO_KEPT_SENT)
        return DILOCO_OK; /* what 16 bits could not hold, of fp32 */
    if (d->options.kept_values(d->options.kept_values_user, (int)t->number, kind, values, t->count) != 0)
        return attach_fail(d, DILOCO_ERROR, "options.kept_values has not what the checkpoint kept of tensor %s",
                           t->announced.name);
    if (own != NULL)
        return move_kept(d, t, own, DILOCO_WRITE, values);
    pack(d, t, kind == DILOCO_KEPT_SENT ? ATTACH_AREA : ATTACH_BASE, values, true);
    return DILOCO_OK;
}

static int own_kept(struct diloco *d, uint32_t f, enum diloco_kept kind)
{
    int result = DILOCO_OK;
    if (d->options.kept_values == NULL)
        return attach_fail(d, DILOCO_ERROR, "options.kept is of diloco_keep_rest(), and options.kept_values is NULL");
    for (uint32_t i = 0; result == DILOCO_OK && i < d->tensors_count; i++) {
        const struct tensor *t = &d->tensors[i];
        float *values;
        if (t->place.fragment != f || t->count == 0)
            continue;
        if (mem_new(t->count, sizeof *values, "what a checkpoint kept", &values) != ERR_OK)
            return attach_fail(d, DILOCO_ERROR, "%s", err_text());
        result = take_kept(d, t, kind, values);
        mem_free(values);
    }
    return result;
}

/* ---- memory beside the tensors ---- */

static int make_carry(struct diloco *d)
{
    for (uint32_t i = 0; i < d->tensors_count; i++) {
        struct local *local = &d->local[d->tensors[i].place.fragment];
        if (d->tensors[i].type == DILOCO_F32 || local->carry != NULL)
            continue;
        local->carry = attach_device_alloc(d, local->own_count, "what 16 bits cannot hold");
        if (local->carry == NULL)
            return DILOCO_ERROR;
    }
    return DILOCO_OK;
}

int attach_make_beside(struct diloco *d)
{
    int result = make_carry(d);
    if (result != DILOCO_OK || d->shm->set_aside == 0)
        return result;
    d->bad = attach_device_alloc(d, 1, "work set aside");
    bool all = d->bad != NULL;
    for (uint32_t f = 0; all && f < d->shm->fragments_count; f++) {
        uint64_t count = d->local[f].own_count;
        d->local[f].aside = attach_device_alloc(d, count, "work set aside");
        if (d->shm->eager_fresh != 0 && d->local[f].aside != NULL)
            d->local[f].past = attach_device_alloc(d, count, "work of earlier rounds");
        all = d->local[f].aside != NULL && (d->shm->eager_fresh == 0 || d->local[f].past != NULL);
    }
    return all ? DILOCO_OK : DILOCO_ERROR;
}

void attach_free_beside(struct diloco *d)
{
    for (uint32_t f = 0; d->local != NULL && f < d->shm->fragments_count; f++) {
        attach_device_free(d, d->local[f].aside);
        attach_device_free(d, d->local[f].past);
        attach_device_free(d, d->local[f].carry);
    }
    attach_device_free(d, d->bad);
}

static int past_anew(struct diloco *d, uint32_t f)
{
    struct local *local = &d->local[f];
    if (local->past == NULL)
        return DILOCO_OK;
    attach_device_free(d, local->past);
    local->past = attach_device_alloc(d, local->own_count, "work of earlier rounds");
    return local->past != NULL ? DILOCO_OK : DILOCO_ERROR;
}

/* ---- the moves of a fragment ---- */

static int snapshot_values(struct diloco *d, uint32_t f)
{
    struct ipc_fragment *fragment = ipc_fragment(d->shm, f);
    int result = move_values(d, f, &(struct what){.kind = DILOCO_READ, .host = attach_far_area(d, f, ATTACH_AREA)}, 0,
                             UINT64_MAX);
    d->local[f].share = fragment->eager_share;
    if (result == DILOCO_OK && d->shm->set_aside != 0)
        result = move_values(d, f, &(struct what){.kind = DILOCO_ASIDE_OUT, .base = attach_far_area(d, f, ATTACH_BASE)},
                             0, UINT64_MAX);
    return result;
}

static int anchor_values(struct diloco *d, uint32_t f, bool sent, bool ending)
{
    struct ipc_fragment *fragment = ipc_fragment(d->shm, f);
    int result = DILOCO_OK;
    for (uint32_t r = 0; result == DILOCO_OK && r < fragment->ranges_count && r < IPC_RANGES_MAX; r++) {
        const struct ipc_range *range = &fragment->ranges[r];
        struct what what = {.host = attach_far_area(d, f, ATTACH_AREA), .base = attach_far_area(d, f, ATTACH_BASE)};
        bool aside = d->shm->set_aside != 0 && sent;
        if (range->mode == IPC_RESET || (ending && range->mode != IPC_SHIFT))
            what.kind = DILOCO_WRITE;
        else if (range->mode == IPC_SHIFT)
            what.kind = aside ? DILOCO_ASIDE_MISSED : DILOCO_SHIFT;
        else if (aside)
            what.kind = DILOCO_ASIDE_COUNTED;
        else /* and without a share of the old value, an Inf in it cannot survive as 0 * Inf */
            what.kind = d->shm->mix == 0 ? DILOCO_WRITE : DILOCO_MIX;
        result = move_values(d, f, &what, range->begin, range->end);
    }
    return result;
}

/* What was set aside comes back, unless there is NaN in it; then nothing does. */
static int aside_values_back(struct diloco *d, uint32_t f)
{
    static float zero; /* bits of an int32_t 0, too */
    struct diloco_move clear = {
        .kind = DILOCO_WRITE, .tensor = d->bad, .host = &zero, .rows = 1, .columns = 1, .stride = 1};
    int result = attach_device_move_beside(d, &clear);
    if (result == DILOCO_OK)
        result = move_values(d, f, &(struct what){.kind = DILOCO_ASIDE_LOOK}, 0, UINT64_MAX);
    if (result == DILOCO_OK)
        result = move_values(d, f, &(struct what){.kind = DILOCO_ASIDE_OFF}, 0, UINT64_MAX);
    return result;
}

/* What was moved to `values` goes on to the array of whoever serves this rank. Where that failed it goes all the same,
 * as the other end waits for it; whoever it failed for says so at the call's end. */
static int then_up(struct diloco *d, uint32_t f, float *values, int moved)
{
    int gone = attach_far_up(d, f, values);
    return moved != DILOCO_OK ? moved : gone;
}

/* Of a far rank what goes in comes from whoever serves it first. */
static int move_area(struct diloco *d, uint32_t f, enum attach_area which, bool out)
{
    struct what what = {.kind = out ? DILOCO_READ : DILOCO_WRITE, .host = attach_far_area(d, f, which)};
    int result = out ? DILOCO_OK : attach_far_down(d, f, what.host, true);
    if (result == DILOCO_OK)
        result = move_values(d, f, &what, 0, UINT64_MAX);
    return out ? then_up(d, f, what.host, result) : result;
}

static int move_beside_by_scratch(struct diloco *d, uint32_t f, uint32_t which, bool out)
{
    int result = out ? DILOCO_OK : attach_far_down(d, f, d->scratch, true);
    if (result == DILOCO_OK)
        result = copy_beside(d, f, which, out ? DILOCO_READ : DILOCO_WRITE, d->scratch);
    return out ? then_up(d, f, d->scratch, result) : result;
}

static int kept_values_in(struct diloco *d, uint32_t f, enum diloco_kept kind)
{
    int result = own_kept(d, f, kind);
    if (kind != DILOCO_KEPT_ANCHOR && kind != DILOCO_KEPT_SENT)
        return result;
    return then_up(d, f, attach_far_area(d, f, kind == DILOCO_KEPT_SENT ? ATTACH_AREA : ATTACH_BASE), result);
}

/* Who sees the shared memory has it already. */
static int bring_values(struct diloco *d, uint32_t f)
{
    int result = attach_far_down(d, f, attach_far_area(d, f, ATTACH_AREA), false);
    if (attach_follows(d) && !d->is_far)
        attach_group_did(d, f, false);
    return result;
}

/* Those that a far rank's word is to be counted for: the rank that serves it knows from then on. */
static int counted(struct diloco *d, uint32_t f, int moved)
{
    return moved == DILOCO_OK ? attach_far_expect(d, f) : moved;
}

static void take_now(struct diloco *d, const struct attach_order *order)
{
    struct ipc_fragment *fragment = ipc_fragment(d->shm, order->fragment);
    atomic_store(&fragment->word, order->now.word);
    fragment->eager_share = order->now.eager_share;
    fragment->ranges_count = order->now.ranges_count;
    memcpy(fragment->ranges, order->now.ranges, sizeof fragment->ranges);
}

/* Parts of an order that every rank says it has done, or that tells what there is. */
static int counted_part(struct diloco *d, const struct attach_order *order)
{
    const uint32_t f = order->fragment;
    if (d->is_far)
        take_now(d, order);
    switch ((enum attach_order_kind)order->kind) {
    case ATTACH_ORDER_SNAPSHOT:
        return counted(d, f, then_up(d, f, attach_far_area(d, f, ATTACH_AREA), snapshot_values(d, f)));
    case ATTACH_ORDER_BRING: return counted(d, f, bring_values(d, f));
    case ATTACH_ORDER_ANCHOR: return counted(d, f, anchor_values(d, f, order->sent != 0, order->ending != 0));
    default: return DILOCO_OK;
    }
}

int attach_own_part(struct diloco *d, const struct attach_order *order)
{
    const uint32_t f = order->fragment, which = order->which;
    int result = attach_before_moves(d);
    if (result != DILOCO_OK)
        return result;
    switch ((enum attach_order_kind)order->kind) {
    case ATTACH_ORDER_COPY_OUT: return move_area(d, f, (enum attach_area)which, true);
    case ATTACH_ORDER_COPY_IN: return move_area(d, f, (enum attach_area)which, false);
    case ATTACH_ORDER_BESIDE_OUT: return move_beside_by_scratch(d, f, which, true);
    case ATTACH_ORDER_BESIDE_IN: return move_beside_by_scratch(d, f, which, false);
    case ATTACH_ORDER_PAST_ANEW: return past_anew(d, f);
    case ATTACH_ORDER_KEPT_IN: return kept_values_in(d, f, (enum diloco_kept)which);
    case ATTACH_ORDER_SNAPSHOT:
    case ATTACH_ORDER_BRING:
    case ATTACH_ORDER_ANCHOR:
    case ATTACH_ORDER_LOOK: return counted_part(d, order);
    case ATTACH_ORDER_BACK: return aside_values_back(d, f);
    case ATTACH_ORDER_MAP:
    case ATTACH_ORDER_SCRATCH:
    case ATTACH_ORDER_SETTLE:
    case ATTACH_ORDER_WAIT:
    case ATTACH_ORDER_END: break;
    }
    return attach_fail(d, DILOCO_ERROR, "an order that moves nothing");
}

/* Of all ranks, this one too. */
static int order(struct diloco *d, struct attach_order what)
{
    const struct ipc_fragment *fragment = ipc_fragment(d->shm, what.fragment);
    if (d->far != NULL) {
        what.now = (struct attach_now){
            .word = ipc_word(fragment), .ranges_count = fragment->ranges_count, .eager_share = fragment->eager_share};
        memcpy(what.now.ranges, fragment->ranges, sizeof what.now.ranges);
    }
    int result = attach_order(d, &what, -1);
    return result == DILOCO_OK ? attach_own_part(d, &what) : result;
}

int attach_settle_all(struct diloco *d)
{
    bool done;
    int result = attach_order(d, &(struct attach_order){.kind = ATTACH_ORDER_SETTLE}, -1);
    if (result == DILOCO_OK)
        result = attach_device_reached(d, attach_device_mark(d), true, &done);
    if (result == DILOCO_OK)
        result = attach_far_turn(d, true);
    return result == DILOCO_OK ? attach_meet(d) : result;
}

int attach_look(struct diloco *d)
{
    int result = DILOCO_OK;
    for (uint32_t f = 0; d->far != NULL && result == DILOCO_OK && f < d->shm->fragments_count; f++)
        result = order(d, (struct attach_order){.kind = ATTACH_ORDER_LOOK, .fragment = f});
    return result;
}

int attach_copy_out(struct diloco *d, uint32_t f, enum attach_area to)
{
    return order(d, (struct attach_order){.kind = ATTACH_ORDER_COPY_OUT, .fragment = f, .which = to});
}

int attach_copy_in(struct diloco *d, uint32_t f, enum attach_area from)
{
    return order(d, (struct attach_order){.kind = ATTACH_ORDER_COPY_IN, .fragment = f, .which = from});
}

int attach_past_anew(struct diloco *d, uint32_t f)
{
    return order(d, (struct attach_order){.kind = ATTACH_ORDER_PAST_ANEW, .fragment = f});
}

/* By way of memory that all ranks see. */
int attach_beside_out(struct diloco *d, uint32_t f, enum attach_beside which, float *values)
{
    uint64_t count = ipc_fragment(d->shm, f)->values_count;
    int result = attach_group_scratch(d, count);
    if (result == DILOCO_OK)
        result = order(d, (struct attach_order){.kind = ATTACH_ORDER_BESIDE_OUT, .fragment = f, .which = which});
    if (result == DILOCO_OK)
        result = attach_settle_all(d);
    if (result == DILOCO_OK)
        memcpy(values, d->scratch, count * sizeof *values);
    return result;
}

int attach_beside_in(struct diloco *d, uint32_t f, enum attach_beside which, const float *values)
{
    uint64_t count = ipc_fragment(d->shm, f)->values_count;
    int result = attach_group_scratch(d, count);
    if (result != DILOCO_OK)
        return result;
    memcpy(d->scratch, values, count * sizeof *values);
    result = order(d, (struct attach_order){.kind = ATTACH_ORDER_BESIDE_IN, .fragment = f, .which = which});
    return result == DILOCO_OK ? attach_settle_all(d) : result;
}

int attach_kept_in(struct diloco *d, uint32_t f, enum diloco_kept kind)
{
    int result = order(d, (struct attach_order){.kind = ATTACH_ORDER_KEPT_IN, .fragment = f, .which = kind});
    return result == DILOCO_OK ? attach_settle_all(d) : result;
}

int attach_snapshot(struct diloco *d, uint32_t f, bool final)
{
    struct ipc_fragment *fragment = ipc_fragment(d->shm, f);
    struct local *local = &d->local[f];
    int result = attach_before_moves(d);
    if (result != DILOCO_OK || !ipc_move(fragment, IPC_TRAINER, IPC_FREE, IPC_COPYING))
        return result;
    attach_group_begins(d, f);
    result = order(d, (struct attach_order){.kind = ATTACH_ORDER_SNAPSHOT, .fragment = f});
    if (result != DILOCO_OK)
        return result;
    fragment->snapshot_step = d->step;
    fragment->snapshot_tokens = d->tokens;
    fragment->snapshot_final = final;
    fragment->mix_step = final ? d->step : d->step + d->shm->overlap;
    local->sent = true;
    local->last = d->leave;
    local->moving = IPC_COPYING;
    local->mark = attach_device_mark(d);
    return attach_settle_move(d, f, false);
}

/* Whether all ranks have done what they were ordered to do to a fragment: `*done`; waits for it with `wait`. */
static int are_done(struct diloco *d, uint32_t f, bool wait, bool *done)
{
    int result = attach_far_turn(d, false);
    if (result == DILOCO_OK)
        result = attach_group_done(d, f, done);
    if (result != DILOCO_OK || *done || !wait)
        return result;
    result = attach_settle_all(d);
    return result == DILOCO_OK ? attach_group_done(d, f, done) : result;
}

int attach_bring(struct diloco *d, uint32_t f, bool wait, bool *there)
{
    const struct ipc_fragment *fragment = ipc_fragment(d->shm, f);
    struct local *local = &d->local[f];
    const uint64_t want = fragment->anchor_version + 1;
    int result = DILOCO_OK;
    *there = true;
    if (d->far == NULL)
        return DILOCO_OK;
    if (local->brought != 0 && local->brought != want) { /* the daemon took that one back */
        result = are_done(d, f, wait, there);
        if (result != DILOCO_OK || !*there)
            return result;
        local->brought = 0;
    }
    if (local->brought == 0) {
        attach_group_begins(d, f);
        local->brought = want;
        result = order(d, (struct attach_order){.kind = ATTACH_ORDER_BRING, .fragment = f});
    }
    return result == DILOCO_OK ? are_done(d, f, wait, there) : result;
}

int attach_merge(struct diloco *d, uint32_t f, bool ending, bool wait)
{
    struct ipc_fragment *fragment = ipc_fragment(d->shm, f);
    struct local *local = &d->local[f];
    bool counted = false, missed = false, there;
    int result = attach_before_moves(d);
    if (result == DILOCO_OK)
        result = attach_bring(d, f, wait, &there);
    if (result != DILOCO_OK || !there || !ipc_move(fragment, IPC_TRAINER, IPC_ANCHOR, IPC_MIXING))
        return result;
    if (local->brought != fragment->anchor_version + 1) /* taken back just now, for another one */
        result = attach_bring(d, f, true, &there);
    if (result != DILOCO_OK)
        return result;
    local->brought = 0;
    attach_group_begins(d, f);
    result = order(
        d, (struct attach_order){.kind = ATTACH_ORDER_ANCHOR, .fragment = f, .sent = local->sent, .ending = ending});
    if (result != DILOCO_OK)
        return result;
    for (uint32_t r = 0; r < fragment->ranges_count && r < IPC_RANGES_MAX; r++) {
        missed |= fragment->ranges[r].mode == IPC_SHIFT;
        counted |= fragment->ranges[r].mode != IPC_SHIFT;
    }
    if (counted && !missed)
        local->tokens_counted = local->sent ? fragment->snapshot_tokens : d->tokens;
    local->sent = false;
    local->moving = IPC_MIXING;
    local->mark = attach_device_mark(d);
    return attach_settle_move(d, f, false);
}

/* Gives away a word that is ours. It is what we left there, unless somebody else writes into the memory. */
static int give_word(struct diloco *d, uint32_t f, enum ipc_word from, enum ipc_word to)
{
    struct ipc_fragment *fragment = ipc_fragment(d->shm, f);
    if (ipc_move(fragment, IPC_TRAINER, from, to))
        return DILOCO_OK;
    return attach_fail(d, DILOCO_ERROR,
                       "fragment %u: another process wrote %s over our %s in the shared memory; end it, and start this "
                       "trainer anew",
                       f, ipc_word_name(ipc_word(fragment)), ipc_word_name(from));
}

int attach_settle_move(struct diloco *d, uint32_t f, bool wait)
{
    struct ipc_fragment *fragment = ipc_fragment(d->shm, f);
    struct local *local = &d->local[f];
    bool done, copying = local->moving == IPC_COPYING;
    if (local->moving == IPC_FREE || !attach_words_free(d))
        return DILOCO_OK;
    int result = attach_device_reached(d, local->mark, wait, &done);
    if (result == DILOCO_OK && done)
        result = are_done(d, f, wait, &done);
    if (result != DILOCO_OK || !done)
        return result;
    if (!copying) {
        fragment->base ^= 1;
        fragment->base_version = fragment->anchor_version;
    }
    local->moving = IPC_FREE;
    result = copying ? give_word(d, f, IPC_COPYING, IPC_SNAPSHOT) : give_word(d, f, IPC_MIXING, IPC_FREE);
    if (result == DILOCO_OK)
        attach_say(d, copying ? IPC_TAKEN : IPC_MIXED, f);
    return result;
}

int attach_withdraw(struct diloco *d, uint32_t f, bool *released)
{
    struct local *local = &d->local[f];
    *released = local->sent && local->moving == IPC_FREE && ipc_word(ipc_fragment(d->shm, f)) == IPC_FREE;
    if (!*released)
        return DILOCO_OK;
    local->sent = false;
    if (d->shm->set_aside == 0)
        return DILOCO_OK;
    return order(d, (struct attach_order){.kind = ATTACH_ORDER_BACK, .fragment = f});
}
