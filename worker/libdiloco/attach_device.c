/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/libdiloco/attach_device.h"

#include <string.h>
#include <time.h>

#include "common/mem.h"
#include "worker/libdiloco/aside.h"
#include "worker/libdiloco/attach_types.h"

/* Values that are moved at a time where the device can only read and write: copies to and from it should be long. */
enum { STRETCH = 1 << 18 };
enum {
    STRETCH_HOST = 1 << 12
};                         /* in host memory it should stay in the first cache, as it is gone over several times */
enum { WAIT_NS = 200000 }; /* between two looks whether a device has come so far */

static const struct diloco_device *device_of(const struct diloco *d)
{
    return &d->device;
}

/* It computes itself, and has what is set aside. */
static bool computes(const struct diloco *d)
{
    return device_of(d)->alloc != NULL;
}

int attach_device_take(struct diloco *d, const struct diloco_device *device)
{
    if (device == NULL)
        return DILOCO_OK;
    if (!attach_take(&d->device, sizeof d->device, device))
        return attach_fail(d, DILOCO_ERROR, ATTACH_WRONG_SIZE, "diloco_device");
    if (device->move == NULL || (device->mark == NULL) != (device->reached == NULL) ||
        (device->alloc == NULL) != (device->free == NULL) || (device->pin == NULL) != (device->unpin == NULL))
        return attach_fail(d, DILOCO_ERROR,
                           "options.device: move is needed, and mark, alloc and pin only with reached, free and unpin");
    return DILOCO_OK;
}

void attach_device_deinit(struct diloco *d)
{
    mem_free(d->stretch);
    if (d->pinned != NULL)
        device_of(d)->unpin(device_of(d)->user, d->pinned);
}

void *attach_device_alloc(struct diloco *d, uint64_t values, const char *what)
{
    void *out = NULL;
    if (computes(d)) {
        out = device_of(d)->alloc(device_of(d)->user, values > 0 ? values : 1);
        if (out == NULL)
            attach_fail(d, DILOCO_ERROR, "the device has no memory for %s", what);
    } else if (mem_new(values, sizeof(float), what, &out) != ERR_OK) {
        attach_fail(d, DILOCO_ERROR, "%s", err_text());
    }
    return out;
}

void attach_device_free(struct diloco *d, void *memory)
{
    if (!computes(d))
        mem_free(memory);
    else if (memory != NULL)
        device_of(d)->free(device_of(d)->user, memory);
}

void attach_device_pin(struct diloco *d, void *memory, size_t bytes)
{
    if (device_of(d)->pin == NULL || d->pinned != NULL)
        return;
    device_of(d)->pin(device_of(d)->user, memory, bytes);
    d->pinned = memory;
}

/* ---- arithmetic on the host ---- */

static bool holds_bad(const float *values, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!__builtin_isfinite(values[i]))
            return true;
    return false;
}

static inline __attribute__((always_inline)) void mix_values(float *live, const float *anchor, size_t count,
                                                             double alpha)
{
    float keep = (float)alpha, take = (float)(1 - alpha);
    for (size_t i = 0; i < count; i++)
        live[i] = keep * live[i] + take * anchor[i];
}

#ifdef __x86_64__
/* The same bits; where the pages of both arrays fall badly, four values at a time take twice as long as eight. */
__attribute__((target("avx2"))) static void mix_wide(float *live, const float *anchor, size_t count, double alpha)
{
    mix_values(live, anchor, count, alpha);
}
#endif

static void mix(float *live, const float *anchor, size_t count, double alpha)
{
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx2")) {
        mix_wide(live, anchor, count, alpha);
        return;
    }
#endif
    mix_values(live, anchor, count, alpha);
}

/* `count` values, in `live`: one row of `move`, or a piece of one, that begins `at` values after its first. */
static void move_row(const struct diloco_move *move, float *live, float *host, const float *base, size_t at,
                     size_t count)
{
    const struct aside_rule rule = {(float)move->keep, (float)move->fresh, (float)move->past_share, (float)move->decay};
    float *aside = move->aside != NULL ? (float *)move->aside + move->beside + at : NULL;
    float *past = move->past != NULL ? (float *)move->past + move->beside + at : NULL;
    int32_t *bad = move->bad;
    switch (move->kind) {
    case DILOCO_READ: memcpy(host, live, count * sizeof *host); break;
    case DILOCO_WRITE: memcpy(live, host, count * sizeof *live); break;
    case DILOCO_MIX: mix(live, host, count, move->keep); break;
    case DILOCO_SHIFT:
        for (size_t i = 0; i < count; i++)
            live[i] += host[i] - base[i];
        break;
    case DILOCO_ASIDE_OUT: aside_out(&rule, live, base, aside, past, count); break;
    case DILOCO_ASIDE_COUNTED:
    case DILOCO_ASIDE_MISSED:
        aside_in(&rule, live, base, host, aside, past, move->kind == DILOCO_ASIDE_COUNTED, count);
        break;
    case DILOCO_ASIDE_LOOK: *bad |= holds_bad(aside, count); break;
    case DILOCO_ASIDE_OFF: aside_off(&rule, live, aside, past, *bad == 0, count); break;
    }
}

static const float *row_of(const float *values, const struct diloco_move *move, size_t row)
{
    return values != NULL ? values + row * move->stride : NULL;
}

/* ---- through the stretch ---- */

static int wait_for(struct diloco *d)
{
    bool done;
    return attach_device_reached(d, attach_device_mark(d), true, &done);
}

static int pass(struct diloco *d, const struct diloco_move *move)
{
    if (device_of(d)->move(device_of(d)->user, move) != 0)
        return attach_fail(d, DILOCO_ERROR, "the device that the tensors are on has failed");
    return DILOCO_OK;
}

/* Values of the tensor to the stretch, or from it. */
static int stretch_move(struct diloco *d, const struct diloco_move *move, enum diloco_move_kind kind, size_t at,
                        size_t count)
{
    struct diloco_move single = {.size = sizeof single,
                                 .kind = kind,
                                 .type = move->type,
                                 .tensor = move->tensor,
                                 .first = move->first + at,
                                 .host = d->stretch,
                                 .rows = 1,
                                 .columns = count,
                                 .stride = count};
    char *values = (char *)move->tensor + single.first * attach_type_bytes(move->type);
    if (device_of(d)->move != NULL) {
        int result = pass(d, &single);
        return result == DILOCO_OK ? wait_for(d) : result;
    }
    if (kind == DILOCO_READ)
        attach_widen(move->type, values, d->stretch, count);
    else
        attach_narrow(move->type, d->stretch, values, count);
    return DILOCO_OK;
}

/* One row or a piece of it. */
static int move_through(struct diloco *d, const struct diloco_move *move, size_t row, size_t column, size_t count)
{
    size_t at = row * move->columns + column;
    float *carry = move->carry != NULL ? (float *)move->carry + move->beside + at : NULL;
    const float *host = row_of(move->host, move, row), *base = row_of(move->base, move, row);
    bool reads = move->kind != DILOCO_ASIDE_LOOK && move->kind != DILOCO_WRITE;
    bool writes = move->kind != DILOCO_ASIDE_LOOK && move->kind != DILOCO_READ;
    int result = reads ? stretch_move(d, move, DILOCO_READ, at, count) : DILOCO_OK;
    if (result != DILOCO_OK)
        return result;
    if (reads && carry != NULL)
        attach_carry_in(d->stretch, carry, count);
    move_row(move, d->stretch, host != NULL ? (float *)host + column : NULL, base != NULL ? base + column : NULL, at,
             count);
    if (writes && carry != NULL)
        attach_carry_out(move->type, d->stretch, carry, count);
    return writes ? stretch_move(d, move, DILOCO_WRITE, at, count) : DILOCO_OK;
}

static int move_by_stretches(struct diloco *d, const struct diloco_move *move)
{
    if (d->stretch == NULL && mem_new(STRETCH, sizeof *d->stretch, "values on their way", &d->stretch) != ERR_OK)
        return attach_fail(d, DILOCO_ERROR, "%s", err_text());
    const size_t most = device_of(d)->move != NULL ? STRETCH : STRETCH_HOST;
    for (size_t row = 0; row < move->rows; row++)
        for (size_t column = 0; column < move->columns; column += most) {
            size_t left = move->columns - column;
            int result = move_through(d, move, row, column, left < most ? left : most);
            if (result != DILOCO_OK)
                return result;
        }
    return DILOCO_OK;
}

/* ---- any ---- */

static void move_here(const struct diloco_move *move)
{
    float *live = (float *)move->tensor + move->first;
    for (size_t row = 0; row < move->rows; row++)
        move_row(move, live + row * move->columns, (float *)row_of(move->host, move, row),
                 row_of(move->base, move, row), row * move->columns, move->columns);
}

int attach_device_move(struct diloco *d, const struct diloco_move *what)
{
    struct diloco_move move = *what;
    bool device = device_of(d)->move != NULL, wide = move.type == DILOCO_F32;
    bool copies = move.kind == DILOCO_READ || move.kind == DILOCO_WRITE;
    move.size = sizeof move;
    if (device && (computes(d) || (wide && copies)))
        return pass(d, &move);
    if (device || !wide)
        return move_by_stretches(d, &move);
    move_here(&move);
    return DILOCO_OK;
}

int attach_device_move_beside(struct diloco *d, const struct diloco_move *what)
{
    struct diloco_move move = *what;
    move.size = sizeof move;
    if (computes(d))
        return pass(d, &move);
    move_here(&move);
    return DILOCO_OK;
}

uint64_t attach_device_mark(struct diloco *d)
{
    return device_of(d)->mark != NULL ? device_of(d)->mark(device_of(d)->user) : 0;
}

int attach_device_reached(struct diloco *d, uint64_t mark, bool wait, bool *done)
{
    const struct timespec pause = {.tv_nsec = WAIT_NS};
    *done = true;
    while (mark != 0) {
        int state = device_of(d)->reached(device_of(d)->user, mark);
        if (state < 0)
            return attach_fail(d, DILOCO_ERROR, "the device that the tensors are on has failed");
        *done = state > 0;
        if (*done || !wait)
            break;
        nanosleep(&pause, NULL);
    }
    return DILOCO_OK;
}
