/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/late.h"

#include <stdlib.h>
#include <string.h>

#include "worker/libdiloco/aside.h"
#include "worker/libdiloco/attach_types.h"

struct late_move {
    struct late_move *next;
    struct diloco_move move;
    uint64_t number;
    float *values; /* READ: for the host; else what it lent: the anchor, and behind it the base */
};

static void take_rows(float *to, const float *from, const struct diloco_move *m)
{
    for (size_t r = 0; from != NULL && r < m->rows; r++)
        memcpy(to + r * m->columns, from + r * m->stride, m->columns * sizeof *to);
}

static bool rows_changed(const float *was, const float *now, const struct diloco_move *m)
{
    bool changed = false;
    for (size_t r = 0; now != NULL && r < m->rows; r++)
        changed |= memcmp(was + r * m->columns, now + r * m->stride, m->columns * sizeof *was) != 0;
    return changed;
}

/* On packed values. */
static void compute(const struct diloco_move *m, float *live, const float *host, const float *base, size_t count)
{
    const struct aside_rule rule = {(float)m->keep, (float)m->fresh, (float)m->past_share, (float)m->decay};
    int32_t *bad = m->bad;
    float *aside = m->aside != NULL ? (float *)m->aside + m->beside : NULL;
    float *past = m->past != NULL ? (float *)m->past + m->beside : NULL;
    if (m->kind == DILOCO_WRITE)
        memcpy(live, host, count * sizeof *live);
    if (m->kind == DILOCO_ASIDE_OUT)
        aside_out(&rule, live, base, aside, past, count);
    if (m->kind == DILOCO_ASIDE_COUNTED || m->kind == DILOCO_ASIDE_MISSED)
        aside_in(&rule, live, base, host, aside, past, m->kind == DILOCO_ASIDE_COUNTED, count);
    if (m->kind == DILOCO_ASIDE_OFF)
        aside_off(&rule, live, aside, past, *bad == 0, count);
    for (size_t i = 0; i < count; i++) {
        if (m->kind == DILOCO_MIX)
            live[i] = (float)m->keep * live[i] + (float)(1 - m->keep) * host[i];
        if (m->kind == DILOCO_SHIFT)
            live[i] += host[i] - base[i];
        if (m->kind == DILOCO_ASIDE_LOOK && !__builtin_isfinite(aside[i]))
            *bad = 1;
    }
}

/* As compute(), of a tensor of any type; or READ into `out`. */
static void compute_typed(const struct diloco_move *m, float *out, const float *host, const float *base, size_t count)
{
    char *live = (char *)m->tensor + m->first * attach_type_bytes(m->type);
    float *carry = m->carry != NULL ? (float *)m->carry + m->beside : NULL;
    float *wide = calloc(count + 1, sizeof *wide);
    if (m->kind != DILOCO_ASIDE_LOOK) {
        attach_widen(m->type, live, wide, count);
        if (carry != NULL)
            attach_carry_in(wide, carry, count);
    }
    if (m->kind == DILOCO_READ)
        memcpy(out, wide, count * sizeof *out);
    else
        compute(m, wide, host, base, count);
    if (m->kind != DILOCO_READ && m->kind != DILOCO_ASIDE_LOOK) {
        if (carry != NULL)
            attach_carry_out(m->type, wide, carry, count);
        attach_narrow(m->type, wide, live, count);
    }
    free(wide);
}

static int late_move(void *user, const struct diloco_move *move)
{
    struct late *late = user;
    struct late_move *item = calloc(1, sizeof *item);
    size_t count = move->rows * move->columns;
    if (move->size != sizeof *move)
        return -1;
    *item = (struct late_move){.move = *move, .number = ++late->moves, .values = calloc(2 * count + 1, sizeof(float))};
    if (move->kind == DILOCO_READ) {
        compute_typed(move, item->values, NULL, NULL, count);
    } else {
        take_rows(item->values, move->host, move);
        take_rows(item->values + count, move->base, move);
        compute_typed(move, NULL, item->values, item->values + count, count);
    }
    *late->end = item;
    late->end = &item->next;
    return 0;
}

static uint64_t late_mark(void *user)
{
    return ((struct late *)user)->moves + 1; /* of none so far, too, a number */
}

static void arrive(struct late *late, struct late_move *item)
{
    const struct diloco_move *m = &item->move;
    size_t count = m->rows * m->columns;
    for (size_t r = 0; m->kind == DILOCO_READ && r < m->rows; r++)
        memcpy(m->host + r * m->stride, item->values + r * m->columns, m->columns * sizeof(float));
    if (m->kind != DILOCO_READ)
        late->broken |= rows_changed(item->values, m->host, m) || rows_changed(item->values + count, m->base, m);
}

static void drop_first(struct late *late)
{
    struct late_move *item = late->first;
    late->first = item->next;
    if (late->first == NULL)
        late->end = &late->first;
    free(item->values);
    free(item);
}

static int late_reached(void *user, uint64_t mark)
{
    struct late *late = user;
    if (late->fails)
        return -1;
    if (late->refuse > 0) {
        late->refuse--;
        return 0;
    }
    while (late->first != NULL && late->first->number < mark) {
        arrive(late, late->first);
        drop_first(late);
    }
    return 1;
}

static void *late_alloc(void *user, size_t values)
{
    ((struct late *)user)->memory++;
    return calloc(values, 4);
}

static void late_free(void *user, void *memory)
{
    ((struct late *)user)->memory--;
    free(memory);
}

static void late_pin(void *user, void *memory, size_t bytes)
{
    (void)memory, (void)bytes;
    ((struct late *)user)->pins++;
}

static void late_unpin(void *user, void *memory)
{
    (void)memory;
    ((struct late *)user)->pins--;
}

struct diloco_device late_device(struct late *late, bool computes)
{
    *late = (struct late){0};
    late->end = &late->first;
    return (struct diloco_device){.size = sizeof(struct diloco_device),
                                  .user = late,
                                  .move = late_move,
                                  .mark = late_mark,
                                  .reached = late_reached,
                                  .alloc = computes ? late_alloc : NULL,
                                  .free = computes ? late_free : NULL,
                                  .pin = late_pin,
                                  .unpin = late_unpin};
}

bool late_is_under_way(const struct late *late, enum diloco_move_kind kind)
{
    for (const struct late_move *item = late->first; item != NULL; item = item->next)
        if (item->move.kind == kind)
            return true;
    return false;
}

void late_end(struct late *late)
{
    while (late->first != NULL)
        drop_first(late);
}
