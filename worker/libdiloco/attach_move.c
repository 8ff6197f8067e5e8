/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/libdiloco/attach_move.h"

#include <inttypes.h>
#include <string.h>

#include "common/ipc.h"
#include "common/mem.h"
#include "worker/libdiloco/attach_device.h"
#include "worker/libdiloco/attach_group.h"
#include "worker/libdiloco/attach_link.h"

/* ---- values ---- */

/* How many of a tensor's own values lie before position `at` of the whole tensor. */
static uint64_t own_before(const struct tensor *t, uint64_t at)
{
    uint64_t column = at % t->width;
    uint64_t in_row = column <= t->column0 ? 0 : column - t->column0 < t->columns ? column - t->column0 : t->columns;
    uint64_t before = at / t->width * t->columns + in_row;
    return before <= t->first ? 0 : before - t->first < t->count ? before - t->first : t->count;
}

/* The rows that own values from `own` to before `end` make, as many as are alike: how they lie in the whole tensor
 * (from `*at` on), and how many values they are. */
static uint64_t next_block(const struct tensor *t, uint64_t own, uint64_t end, uint64_t *at, struct diloco_move *move)
{
    uint64_t of_all = t->first + own, column = of_all % t->columns, left = end - own;
    *at = of_all / t->columns * t->width + t->column0 + column;
    move->rows = 1;
    move->stride = t->width;
    if (t->columns == t->width) { /* rows follow each other closely */
        move->columns = left;
    } else if (column != 0 || left < t->columns) {
        move->columns = left < t->columns - column ? left : t->columns - column;
    } else {
        move->rows = left / t->columns;
        move->columns = t->columns;
    }
    return move->rows * move->columns;
}

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
    uint64_t last = own_before(t, end - offset);
    for (uint64_t own = own_before(t, begin - offset), at; own < last;) {
        struct diloco_move move = {.kind = what->kind,
                                   .bad = d->bad,
                                   .keep = d->shm->mix,
                                   .fresh = (float)(d->local[f].share * d->shm->eager_fresh),
                                   .past_share = (float)(d->local[f].share * d->shm->eager_past),
                                   .decay = d->shm->eager_decay};
        uint64_t count = next_block(t, own, last, &at, &move);
        move.beside = t->own_offset + own;
        move.host = what->host != NULL ? what->host + offset + at : NULL;
        move.base = what->base != NULL ? what->base + offset + at : NULL;
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
static void pack(const struct tensor *t, float *area, float *values, bool back)
{
    for (uint64_t own = 0, at; own < t->count;) {
        struct diloco_move block;
        uint64_t of_block = next_block(t, own, t->count, &at, &block);
        for (size_t row = 0; row < block.rows; row++) {
            float *packed = values + own + row * block.columns;
            float *there = area + t->place.offset + at + row * block.stride;
            memcpy(back ? there : packed, back ? packed : there, block.columns * sizeof *values);
        }
        own += of_block;
    }
}

int attach_read_anchor(struct diloco *d, int tensor, float *values, uint64_t count)
{
    const struct tensor *t = find_tensor(d, tensor);
    if (t == NULL || count != t->count)
        return attach_fail(d, DILOCO_ERROR, "diloco_anchor() of %" PRIu64 " values of tensor %d, which has %" PRIu64,
                           count, tensor, t != NULL ? t->count : 0);
    pack(t, ipc_base(d->shm, ipc_fragment(d->shm, t->place.fragment)), values, false);
    return DILOCO_OK;
}

static float *area_of(const struct diloco *d, uint32_t f, uint32_t which)
{
    const struct ipc_fragment *fragment = ipc_fragment(d->shm, f);
    return which == ATTACH_BASE ? ipc_base(d->shm, fragment) : ipc_area(d->shm, fragment);
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
        pack(t, ipc_area(d->shm, fragment), values, false);
    else
        pack(t, ipc_base(d->shm, fragment), values, false);
    return DILOCO_OK;
}

static int take_kept(struct diloco *d, const struct tensor *t, enum diloco_kept kind, float *values)
{
    const struct ipc_fragment *fragment = ipc_fragment(d->shm, t->place.fragment);
    float *own = kept_beside(d, t, kind);
    if (own == NULL && kind != DILOCO_KEPT_ANCHOR && kind != DILOCO_KEPT_SENT)
        return DILOCO_OK; /* what 16 bits could not hold, of fp32 */
    if (d->options.kept_values(d->options.kept_values_user, (int)t->number, kind, values, t->count) != 0)
        return attach_fail(d, DILOCO_ERROR, "options.kept_values has not what the checkpoint kept of tensor %s",
                           t->announced.name);
    if (own != NULL)
        return move_kept(d, t, own, DILOCO_WRITE, values);
    pack(t, kind == DILOCO_KEPT_SENT ? ipc_area(d->shm, fragment) : ipc_base(d->shm, fragment), values, true);
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
    int result =
        move_values(d, f, &(struct what){.kind = DILOCO_READ, .host = ipc_area(d->shm, fragment)}, 0, UINT64_MAX);
    d->local[f].share = fragment->eager_share;
    if (result == DILOCO_OK && d->shm->set_aside != 0)
        result = move_values(d, f, &(struct what){.kind = DILOCO_ASIDE_OUT, .base = ipc_base(d->shm, fragment)}, 0,
                             UINT64_MAX);
    return result;
}

static int anchor_values(struct diloco *d, uint32_t f, bool sent, bool ending)
{
    struct ipc_fragment *fragment = ipc_fragment(d->shm, f);
    int result = DILOCO_OK;
    for (uint32_t r = 0; result == DILOCO_OK && r < fragment->ranges_count && r < IPC_RANGES_MAX; r++) {
        const struct ipc_range *range = &fragment->ranges[r];
        struct what what = {.host = ipc_area(d->shm, fragment), .base = ipc_base(d->shm, fragment)};
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

int attach_own_part(struct diloco *d, const struct attach_order *order)
{
    uint32_t f = order->fragment;
    struct what what = {0};
    int result = attach_before_moves(d);
    if (result != DILOCO_OK)
        return result;
    switch ((enum attach_order_kind)order->kind) {
    case ATTACH_ORDER_COPY_OUT:
    case ATTACH_ORDER_COPY_IN:
        what.kind = order->kind == ATTACH_ORDER_COPY_OUT ? DILOCO_READ : DILOCO_WRITE;
        what.host = area_of(d, f, order->which);
        return move_values(d, f, &what, 0, UINT64_MAX);
    case ATTACH_ORDER_BESIDE_OUT: return copy_beside(d, f, order->which, DILOCO_READ, d->scratch);
    case ATTACH_ORDER_BESIDE_IN: return copy_beside(d, f, order->which, DILOCO_WRITE, d->scratch);
    case ATTACH_ORDER_PAST_ANEW: return past_anew(d, f);
    case ATTACH_ORDER_KEPT_IN: return own_kept(d, f, (enum diloco_kept)order->which);
    case ATTACH_ORDER_SNAPSHOT: return snapshot_values(d, f);
    case ATTACH_ORDER_ANCHOR: return anchor_values(d, f, order->sent != 0, order->ending != 0);
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
    int result = attach_order(d, &what, -1);
    return result == DILOCO_OK ? attach_own_part(d, &what) : result;
}

int attach_settle_all(struct diloco *d)
{
    bool done;
    int result = attach_order(d, &(struct attach_order){.kind = ATTACH_ORDER_SETTLE}, -1);
    if (result == DILOCO_OK)
        result = attach_device_reached(d, attach_device_mark(d), true, &done);
    return result == DILOCO_OK ? attach_meet(d) : result;
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

int attach_merge(struct diloco *d, uint32_t f, bool ending)
{
    struct ipc_fragment *fragment = ipc_fragment(d->shm, f);
    struct local *local = &d->local[f];
    bool counted = false, missed = false;
    int result = attach_before_moves(d);
    if (result != DILOCO_OK || !ipc_move(fragment, IPC_TRAINER, IPC_ANCHOR, IPC_MIXING))
        return result;
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
        result = attach_group_done(d, f, wait, &done);
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
