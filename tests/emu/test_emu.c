/* SPDX-License-Identifier: Apache-2.0 */
/* emu: the emulated GPU itself: it computes what a GPU does, in every order, and says what is wrong. */
#include "tests/lib/testlib.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernels/cuda/cuda.h"
#include "tests/emu/emu.h"
#include "tests/emu/emu_kernels.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define __SANITIZE_ADDRESS__ 1
#endif
#endif

enum { ORDERS = 60, RESULTS = TRY_BLOCKS * TRY_THREADS };

/* What the emulated table has, and this test does without. */
void cuda_launched(struct kern_dev *dev, const char *operation)
{
    (void)dev, (void)operation;
}

static int start(void **state)
{
    (void)state;
    emu_clear();
    emu_set_order(0);
    return 0;
}

static void assert_said(const char *part)
{
    if (!strstr(emu_error(), part))
        fail_msg("the emulator said '%s', not '%s'", emu_error(), part);
    emu_clear();
}

static void assert_silent(void)
{
    assert_string_equal(emu_error(), "");
}

/* ---- what a sanitizer ends the program for ---- */

/* Whether a program that does this ends well; what it prints is not shown. */
static bool child_ends_well(void (*act)(int), int how)
{
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        int nowhere = open("/dev/null", O_WRONLY);
        dup2(nowhere, 2);
        act(how);
        exit(emu_error()[0] != '\0' ? 3 : 0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

#ifdef __SANITIZE_THREAD__
/* The sanitizer's own: without it each child would wait for a second at its end, for threads to come to an end. */
const char *__tsan_default_options(void);
const char *__tsan_default_options(void)
{
    return "allocator_may_return_null=1:atexit_sleep_ms=0";
}

static float shown[RESULTS];
static int32_t counted;

static void act_neighbours(int right)
{
    try_neighbours(shown, right);
}

static void act_warp(int right)
{
    try_warp_neighbours(shown, right);
}

static void act_blocks(int right)
{
    try_blocks(&counted, right);
}

static void act_twice(int right)
{
    (void)right;
    for (int i = 0; i < 3; i++) {
        emu_set_order((uint64_t)i);
        try_neighbours(shown, true);
        shown[0] += 1;
        try_blocks(&counted, true);
        counted++;
    }
}
#endif

static void races_are_seen_and_nothing_else(void **state)
{
    (void)state;
#ifdef __SANITIZE_THREAD__
    assert_false(child_ends_well(act_neighbours, false));
    assert_true(child_ends_well(act_neighbours, true));
    assert_false(child_ends_well(act_warp, false));
    assert_true(child_ends_well(act_warp, true));
    assert_false(child_ends_well(act_blocks, false));
    assert_true(child_ends_well(act_blocks, true));
    assert_true(child_ends_well(act_twice, true));
#else
    skip_because("races are for the thread sanitizer");
#endif
}

static void act_dynamic(int i)
{
    try_dynamic(13, i);
}

static void act_static(int i)
{
    try_static(i);
}

static void shared_memory_written_out_of_bounds_is_seen(void **state)
{
    (void)state;
    assert_true(child_ends_well(act_dynamic, 0));
    assert_true(child_ends_well(act_dynamic, 12));
    assert_false(child_ends_well(act_dynamic, 13));
    assert_false(child_ends_well(act_dynamic, -1));
    assert_true(child_ends_well(act_static, 7));
    assert_false(child_ends_well(act_static, 8));
    assert_false(child_ends_well(act_static, -1));
#ifndef __SANITIZE_ADDRESS__
    try_dynamic(13, 13);
    assert_said("write_dynamic: shared memory is written out of bounds, 1 bytes after the dynamic memory");
    try_static(-1);
    assert_said("before memory (32 bytes)");
#endif
}

/* ---- barriers and orders ---- */

static void a_barrier_holds_in_every_order(void **state)
{
    (void)state;
    float out[RESULTS];
    for (uint64_t order = 0; order < testlib_seeds(ORDERS); order++) {
        emu_set_order(order);
        memset(out, 0, sizeof out);
        try_neighbours(out, true);
        for (int i = 0; i < RESULTS; i++) {
            int t = i % TRY_THREADS;
            assert_true(out[i] == (t + 1) % TRY_THREADS + 1 + (t + TRY_THREADS - 1) % TRY_THREADS + 1);
        }
        try_warp_neighbours(out, true);
        for (int i = 0; i < 64; i++)
            assert_true(out[i] == (i ^ 1));
    }
    assert_silent();
}

static void a_missing_barrier_shows(void **state)
{
    (void)state;
#ifdef __SANITIZE_THREAD__
    skip_because("the thread sanitizer would report it");
#else
    float out[2][RESULTS];
    for (uint64_t order = 0; order < 2; order++) {
        unsigned nan = 0;
        emu_set_order(order);
        try_neighbours(out[order], false);
        for (int i = 0; i < RESULTS; i++)
            nan += isnan(out[order][i]) != 0;
        assert_true(nan > 0);
    }
    assert_memory_not_equal(out[0], out[1], sizeof out[0]);
    assert_silent();
#endif
}

static void every_thread_has_its_turn(void **state)
{
    (void)state;
    int32_t turns[2][RESULTS];
    for (uint64_t order = 0; order < testlib_seeds(ORDERS); order++) {
        bool seen[RESULTS] = {false};
        int32_t count = 0, *now = turns[order % 2];
        emu_set_order(order);
        try_turns(now, &count);
        for (int i = 0; i < RESULTS; i++) {
            assert_in_range(now[i], 0, RESULTS - 1);
            assert_false(seen[now[i]]);
            seen[now[i]] = true;
            assert_true(order > 0 || now[i] == i);
        }
        if (order > 0)
            assert_memory_not_equal(turns[0], turns[1], sizeof turns[0]);
    }
    int32_t count = 0;
    emu_set_order(1);
    try_turns(turns[0], &count);
    count = 0;
    emu_set_order(1);
    try_turns(turns[1], &count);
    assert_memory_equal(turns[0], turns[1], sizeof turns[0]);
    assert_silent();
}

/* ---- what is recorded ---- */

static void wrong_barriers_and_warps_are_recorded(void **state)
{
    (void)state;
    static const struct {
        enum try_fault what;
        const char *said;
    } cases[] = {
        {TRY_RETURNED, "but others of its block have returned"},
        {TRY_RETURNS_LATER, "has returned while others of its block wait"},
        {TRY_TWO_BARRIERS, "threads of a block wait at different barriers"},
        {TRY_BARRIER_AND_WARP, "waits for lane"},
        {TRY_WARP_AND_BARRIER, "which is at the barrier of"},
        {TRY_NOT_IN_MASK, "lane 3 is not in mask 0xf0"},
        {TRY_LANE_LEFT, "names lane 0, which has left"},
        {TRY_LANE_LEAVES, "names lane 31, which has left"},
        {TRY_NO_SUCH_LANE, "names lane 8, which has left"},
        {TRY_OTHER_MASK, "with mask 0xf waits for lane 0"},
        {TRY_CIRCLE, "no thread can go on"},
        {TRY_FROM_OUTSIDE, "takes a value from lane 9, which mask 0xff does not name"},
    };
    int32_t out[128];
    for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        try_wrong(cases[i].what, out);
        assert_memory_equal(emu_error(), "wrong: ", 7);
        assert_said(cases[i].said);
        for (uint64_t order = 1; order < testlib_seeds(ORDERS); order++) {
            emu_set_order(order);
            try_wrong(cases[i].what, out);
            assert_string_not_equal(emu_error(), "");
            emu_clear();
        }
        emu_set_order(0);
        try_wrong(TRY_HALVES, out); /* and all is well after it */
        for (int l = 0; l < 32; l++)
            assert_int_equal(out[l], l ^ 1);
        assert_silent();
    }
}

static void the_first_fault_is_kept(void **state)
{
    (void)state;
    int32_t out[128];
    try_wrong(TRY_NOT_IN_MASK, out);
    try_wrong(TRY_CIRCLE, out);
    assert_said("is not in mask");
    assert_silent();
}

static void what_is_not_aligned_is_recorded(void **state)
{
    (void)state;
    _Alignas(16) uint32_t memory[12] = {0};
    try_vector(memory, 16);
    try_row(16);
    try_copy(memory, 16);
    assert_silent();
    try_vector(memory, 4);
    assert_said("vector: uint4 at");
    try_row(8);
    assert_said("row: a row of a matrix at");
    try_copy(memory, 8);
    assert_said("copy: the source of an asynchronous copy at");
}

static void launches_that_no_gpu_takes_are_recorded(void **state)
{
    (void)state;
#ifndef __SANITIZE_THREAD__ /* for which so many threads take gigabytes */
    try_launch(1, EMU_THREADS_MAX, 0);
#endif
    try_launch(1, 32, EMU_SHARED_MAX);
    assert_silent();
    try_launch(1, EMU_THREADS_MAX + 1, 0);
    assert_said("no GPU launches");
    try_launch(0, 32, 0);
    assert_said("no GPU launches");
    try_launch(1, 0, 0);
    assert_said("no GPU launches");
    try_launch(1, 32, EMU_SHARED_MAX + 1);
    assert_said("no GPU launches");
}

/* ---- memory ---- */

static void shared_memory_begins_as_nan(void **state)
{
    (void)state;
    uint32_t out[3 * TRY_BLOCKS];
    for (int again = 0; again < 2; again++) {
        memset(out, 0, sizeof out);
        try_poison(out);
        for (int i = 0; i < 3 * TRY_BLOCKS; i++)
            assert_int_equal(out[i], 0xffffffff);
    }
    assert_silent();
}

static void asynchronous_copies_land_at_their_wait(void **state)
{
    (void)state;
    _Alignas(16) uint32_t in[12], out[12] = {0};
    for (uint32_t i = 0; i < 12; i++)
        in[i] = 100 + i;
    try_async(out, in);
    const uint32_t nan = 0xffffffff, want[12] = {nan, nan, nan, 0, 100, nan, nan, 0, 103, 107, 0, 0};
    for (int i = 0; i < 12; i++)
        assert_int_equal(out[i], want[i]);
    assert_silent();
}

static void integers_are_changed_at_once(void **state)
{
    (void)state;
    int32_t out[4] = {0};
    emu_set_order(3);
    try_atomics(out);
    assert_int_equal(out[0], 255 * 256 / 2);
    assert_int_equal(out[1], 255);
    assert_int_equal(out[2], -255);
    assert_int_equal(out[3], 31);
    int32_t blocks = 0;
    try_blocks(&blocks, true);
    assert_int_equal(blocks, 2);
    assert_silent();
}

/* ---- warps ---- */

static void shuffles_take_from_the_lane_they_name(void **state)
{
    (void)state;
    double value[32], out[10][32], sum = 0;
    for (int l = 0; l < 32; l++)
        sum += value[l] = l * l % 37 + 1;
    for (uint64_t order = 0; order < testlib_seeds(ORDERS); order++) {
        emu_set_order(order);
        try_shuffles(out[0], value);
        for (int l = 0; l < 32; l++) {
            assert_true(out[0][l] == value[(l * 7 + 3) % 32]);
            assert_true(out[1][l] == value[l ^ 5]);
            assert_true(out[2][l] == value[l < 3 ? l : l - 3]);
            assert_true(out[3][l] == value[l > 28 ? l : l + 3]);
            assert_true(out[4][l] == value[l / 8 * 8 + 2]);
            assert_true(out[5][l] == value[l & 8 ? l ^ 8 : l]);
            assert_true(out[6][l] == value[l % 4 < 2 ? l : l - 2]);
            assert_true(out[7][l] == value[l % 4 < 2 ? l + 2 : l]);
            assert_true(out[8][l] == sum);
            assert_true(out[9][l] == 37);
        }
    }
    assert_silent();
}

static void votes_are_counted(void **state)
{
    (void)state;
    int32_t value[32];
    uint32_t out[4][32], all = 0;
    for (int l = 0; l < 32; l++) {
        value[l] = l % 3 == 1 ? l : 0;
        all |= value[l] ? 1u << l : 0;
    }
    try_votes(out[0], value);
    for (int l = 0; l < 32; l++) {
        assert_int_equal(out[0][l], all);
        assert_int_equal(out[1][l], all & (l < 16 ? 0xffffu : 0xffff0000u));
        assert_int_equal(out[2][l], 0);
        assert_int_equal(out[3][l], 1);
    }
    assert_silent();
}

/* ---- tensor cores ---- */

static float widen(uint16_t bits)
{
    return testlib_bits_float((uint32_t)bits << 16);
}

static void products_are_the_plain_product(void **state)
{
    (void)state;
    struct env_rng rng = env_rng_init(7, 1);
    for (int round = 0; round < 10; round++) {
        uint16_t a[16][16], b[16][8];
        float values[384], d[16][8], want[16][8], again[16][8];
        testlib_fill_normal(&rng, values, 384, 1);
        for (int i = 0; i < 256; i++)
            a[i / 16][i % 16] = (uint16_t)(testlib_float_bits(values[i]) >> 16);
        for (int i = 0; i < 128; i++)
            b[i / 8][i % 8] = (uint16_t)(testlib_float_bits(values[256 + i]) >> 16);
        testlib_fill_normal(&rng, d[0], 128, 1);
        memcpy(again, d, sizeof d);
        for (int m = 0; m < 16; m++)
            for (int n = 0; n < 8; n++) {
                want[m][n] = d[m][n];
                for (int k = 0; k < 16; k++)
                    want[m][n] += widen(a[m][k]) * widen(b[k][n]);
            }
        emu_set_order((uint64_t)round);
        try_mma(d[0], a[0], b[0]);
        assert_memory_equal(d, want, sizeof d);
        try_mma_loaded(again[0], a[0], b[0]);
        assert_memory_equal(again, want, sizeof again);
    }
    assert_silent();
}

static void matrices_are_spread_as_the_manual_says(void **state)
{
    (void)state;
    uint16_t in[4][8][8];
    uint32_t out[32][4];
    for (int i = 0; i < 256; i++)
        in[i / 64][i / 8 % 8][i % 8] = (uint16_t)(i * 257 + 1);
    for (int trans = 0; trans < 2; trans++) {
        try_matrix(out[0], in[0][0], trans);
        for (int m = 0; m < 4; m++)
            for (int r = 0; r < 8; r++)
                for (int c = 0; c < 8; c++) {
                    /* Value c of row r is in half c % 2 of lane 4 r + c / 2. */
                    uint32_t word = out[4 * r + c / 2][m];
                    assert_int_equal(word >> c % 2 * 16 & 0xffff, trans ? in[m][c][r] : in[m][r][c]);
                }
    }
    assert_silent();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(races_are_seen_and_nothing_else, start),
        cmocka_unit_test_setup(shared_memory_written_out_of_bounds_is_seen, start),
        cmocka_unit_test_setup(a_barrier_holds_in_every_order, start),
        cmocka_unit_test_setup(a_missing_barrier_shows, start),
        cmocka_unit_test_setup(every_thread_has_its_turn, start),
        cmocka_unit_test_setup(wrong_barriers_and_warps_are_recorded, start),
        cmocka_unit_test_setup(the_first_fault_is_kept, start),
        cmocka_unit_test_setup(what_is_not_aligned_is_recorded, start),
        cmocka_unit_test_setup(launches_that_no_gpu_takes_are_recorded, start),
        cmocka_unit_test_setup(shared_memory_begins_as_nan, start),
        cmocka_unit_test_setup(asynchronous_copies_land_at_their_wait, start),
        cmocka_unit_test_setup(integers_are_changed_at_once, start),
        cmocka_unit_test_setup(shuffles_take_from_the_lane_they_name, start),
        cmocka_unit_test_setup(votes_are_counted, start),
        cmocka_unit_test_setup(products_are_the_plain_product, start),
        cmocka_unit_test_setup(matrices_are_spread_as_the_manual_says, start),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
