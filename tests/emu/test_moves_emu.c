/* SPDX-License-Identifier: Apache-2.0 */
/*
 * moves: what libdiloco tells a device is done on emulated queues, which are as late as a GPU's, and comes out as on
 * the host: every kind of move, rows with strides, pieces larger than the memory aside, the products' copy following.
 */
#include "tests/lib/testlib.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/env.h"
#include "kernels/kern_host.h"
#include "tests/emu/emu.h"
#include "tests/emu/kern_emu.h"
#include "tests/lib/late.h"
#include "worker/moves.h"

enum { COUNT = 6000, STRIDE = 90, HOST = 12000, KINDS = DILOCO_ASIDE_OFF + 1 };

static const struct kern *kern = &kern_emu;
static struct kern_dev *dev;
static struct env_rng rng;

/* The same values on the device and for the played one, whose arithmetic is the host's. */
struct both {
    float *w, *aside, *past;
    kern_act *act;
    int32_t *bad;
    struct kern_host shared; /* anchor, base, and where snapshots go: HOST each */
    float host_w[COUNT], *host_aside, *host_past;
    int32_t *host_bad;
    float host_out[HOST];
    struct moves *moves;
    struct late late;
    struct diloco_device plain;
};

static void put(void *to, const float *from, size_t count)
{
    kern->copy(dev, KERN_MAIN, to, from, count * sizeof *from);
}

static void fill(float *to, size_t count)
{
    for (size_t i = 0; i < count; i++)
        to[i] = (float)env_rng_normal(&rng);
}

static kern_act *act_of(const void *user, const float *live)
{
    const struct both *b = user;
    return (char *)b->act + (size_t)(live - b->w) * kern->act_bytes;
}

static void begin(struct both *b)
{
    const struct diloco_device *device;
    memset(b, 0, sizeof *b);
    emu_clear();
    assert_ok(kern->open(&(struct kern_place){0}, &dev));
    assert_ok(kern->alloc(dev, COUNT * sizeof(float), "w", (void **)&b->w));
    assert_ok(kern->alloc(dev, COUNT * kern->act_bytes, "act", &b->act));
    assert_ok(moves_new(kern, dev, b->w, COUNT, act_of, b, &b->moves));
    device = moves_device(b->moves);
    b->plain = late_device(&b->late, true);
    b->aside = device->alloc(device->user, COUNT);
    b->past = device->alloc(device->user, COUNT);
    b->bad = device->alloc(device->user, 1);
    b->host_aside = b->plain.alloc(b->plain.user, COUNT);
    b->host_past = b->plain.alloc(b->plain.user, COUNT);
    b->host_bad = b->plain.alloc(b->plain.user, 1);
    assert_ok(kern_host_new(kern, dev, 3 * HOST * sizeof(float), "shared memory", &b->shared));
    fill(b->host_w, COUNT);
    fill(b->host_aside, COUNT);
    fill(b->host_past, COUNT);
    put(b->w, b->host_w, COUNT);
    put(b->aside, b->host_aside, COUNT);
    put(b->past, b->host_past, COUNT);
    kern->to_act(dev, b->act, b->w, COUNT);
}

static void end(struct both *b)
{
    const struct diloco_device *device = moves_device(b->moves);
    device->free(device->user, b->aside);
    device->free(device->user, b->past);
    device->free(device->user, b->bad);
    b->plain.free(b->plain.user, b->host_aside);
    b->plain.free(b->plain.user, b->host_past);
    b->plain.free(b->plain.user, b->host_bad);
    late_end(&b->late);
    moves_free(b->moves);
    kern_host_free(kern, dev, &b->shared);
    kern->free(dev, b->w);
    kern->free(dev, b->act);
    kern->close(dev);
    assert_string_equal(emu_error(), "");
}

static void arrived(const struct diloco_device *device)
{
    uint64_t mark = device->mark(device->user);
    assert_true(mark != 0);
    int asked = 0;
    for (int state; (state = device->reached(device->user, mark)) != 1; asked++)
        assert_true(state == 0 && asked < 100);
}

static void near(const char *what, const void *array, const float *want, size_t count)
{
    float *got = calloc(count, sizeof *got);
    kern->copy(dev, KERN_MAIN, got, array, count * sizeof *got);
    for (size_t i = 0; i < count; i++)
        if (isnan(want[i]) ? !isnan(got[i]) : !(fabsf(got[i] - want[i]) < 1e-5f))
            fail_msg("%s: value %zu is %g, not %g", what, i, (double)got[i], (double)want[i]);
    free(got);
}

static void act_near(const struct both *b)
{
    float *wide, got[COUNT];
    assert_ok(kern->alloc(dev, COUNT * sizeof *wide, "act", (void **)&wide));
    kern->from_act(dev, wide, b->act, COUNT);
    kern->copy(dev, KERN_MAIN, got, wide, sizeof got);
    for (size_t i = 0; i < COUNT; i++)
        if (isfinite(b->host_w[i]) && !(fabsf(got[i] - b->host_w[i]) <= fabsf(b->host_w[i]) / 128 + 1e-4f))
            fail_msg("act %zu is %g, not %g", i, (double)got[i], (double)b->host_w[i]);
    kern->free(dev, wide);
}

static struct diloco_move draw_move(const struct both *b, enum diloco_move_kind kind, size_t *at)
{
    float *shared = b->shared.bytes;
    struct diloco_move move = {.size = sizeof move,
                               .kind = kind,
                               .base = shared + HOST,
                               .host = kind == DILOCO_READ ? shared + 2 * (size_t)HOST : shared,
                               .stride = STRIDE,
                               .keep = kind == DILOCO_MIX ? 0.3 : 0,
                               .fresh = 0.5,
                               .past_share = 0.25,
                               .decay = 0.9};
    move.rows = 1 + env_rng_below(&rng, 100);
    move.columns = 1 + env_rng_below(&rng, move.rows == 1               ? COUNT
                                           : COUNT / move.rows < STRIDE ? COUNT / move.rows
                                                                        : STRIDE);
    *at = env_rng_below(&rng, COUNT - move.rows * move.columns + 1);
    return move;
}

static void one_move(struct both *b, enum diloco_move_kind kind)
{
    const struct diloco_device *device = moves_device(b->moves);
    size_t at;
    struct diloco_move ours = draw_move(b, kind, &at), plain = ours;
    ours.tensor = b->w;
    ours.first = ours.beside = at;
    ours.aside = b->aside;
    ours.past = b->past;
    ours.bad = b->bad;
    plain.tensor = b->host_w + at;
    plain.aside = b->host_aside + at;
    plain.past = b->host_past + at;
    plain.bad = b->host_bad;
    if (kind == DILOCO_READ)
        plain.host = b->host_out;
    if (device->move(device->user, &ours) != 0)
        fail_msg("kind %d: %s", (int)kind, emu_error());
    assert_int_equal(b->plain.move(b->plain.user, &plain), 0);
    /* Training goes on: what was read is as it was, and what came in is there before this. */
    if (kind != DILOCO_READ)
        return;
    size_t count = ours.rows * ours.columns;
    for (size_t i = 0; i < count; i++)
        b->host_w[at + i] = 5;
    put(b->w + at, b->host_w + at, count);
    kern->to_act(dev, (char *)b->act + at * kern->act_bytes, b->w + at, (int64_t)count);
}

static void every_kind_is_as_on_the_host(void **state)
{
    (void)state;
    struct both b;
    rng = env_rng_init(3, 1);
    for (int round = 0; round < 12; round++) {
        begin(&b);
        const struct diloco_device *device = moves_device(b.moves);
        float *shared = b.shared.bytes;
        fill(shared, 2 * (size_t)HOST);
        memset(shared + 2 * (size_t)HOST, 0, HOST * sizeof *shared);
        for (int i = 0; i < 30; i++)
            one_move(&b, (enum diloco_move_kind)env_rng_below(&rng, KINDS));
        arrived(device);
        arrived(&b.plain);
        assert_memory_equal(shared + 2 * (size_t)HOST, b.host_out, sizeof b.host_out);
        near("w", b.w, b.host_w, COUNT);
        near("aside", b.aside, b.host_aside, COUNT);
        near("past", b.past, b.host_past, COUNT);
        act_near(&b);
        end(&b);
    }
}

/* An Inf or NaN in what is set aside keeps all of it away; marks of long ago are reached. */
static void what_is_bad_stays_away(void **state)
{
    (void)state;
    struct both b;
    begin(&b);
    const struct diloco_device *device = moves_device(b.moves);
    struct diloco_move move = {.size = sizeof move, .kind = DILOCO_ASIDE_LOOK, .rows = 1, .columns = COUNT};
    static float zero;
    struct diloco_move clear = {.size = sizeof clear,
                                .kind = DILOCO_WRITE,
                                .tensor = b.bad,
                                .host = &zero,
                                .rows = 1,
                                .columns = 1,
                                .stride = 1};
    uint64_t first = device->mark(device->user);
    b.host_aside[4321] = INFINITY;
    put(b.aside, b.host_aside, COUNT);
    move.tensor = b.w;
    move.aside = b.aside;
    move.bad = b.bad;
    for (int bad = 1; bad >= 0; bad--) {
        assert_int_equal(device->move(device->user, &clear), 0);
        move.kind = DILOCO_ASIDE_LOOK;
        assert_int_equal(device->move(device->user, &move), 0);
        move.kind = DILOCO_ASIDE_OFF;
        assert_int_equal(device->move(device->user, &move), 0);
        for (size_t i = 0; bad == 0 && i < COUNT; i++)
            b.host_w[i] += b.host_aside[i];
        near("w", b.w, b.host_w, COUNT);
        b.host_aside[4321] = 1;
        put(b.aside, b.host_aside, COUNT);
    }
    for (int i = 0; i < 1000; i++)
        (void)device->mark(device->user);
    for (int asked = 0; device->reached(device->user, first) != 1; asked++)
        assert_true(asked < 10);
    end(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_is_as_on_the_host),
        cmocka_unit_test(what_is_bad_stays_away),
    };
    int failed = cmocka_run_group_tests_name("late queues", tests, NULL, NULL);
    kern_emu_hurry(true);
    return failed + cmocka_run_group_tests_name("COMM and COPY in a hurry", tests, NULL, NULL);
}
