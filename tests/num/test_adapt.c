/* SPDX-License-Identifier: Apache-2.0 */
/* adaptive: a codec for every tensor, at the error of one for all, in the fewest bytes. */
#include "tests/lib/testlib.h"

#include <string.h>

#include "common/digest.h"
#include "common/mem.h"
#include "outer_opt/adapt.h"
#include "outer_opt/codec.h"
#include "outer_opt/outer.h"

enum { N = 4 * CODEC_SEGMENT + 512 * 3, PARTS = 4 };

static void the_programme_finds_the_best_choice(void **state)
{
    (void)state;
    /* Against trying everything: 4 tensors, 5 candidates, random costs. */
    enum { TENSORS = 4, OPTIONS = 5, ALL = 625 };
    struct adapt *adapt;
    struct env_rng rng = env_rng_init(31, 0);
    assert_ok(adapt_new(TENSORS, &adapt));
    for (int trial = 0; trial < 200; trial++) {
        struct adapt_cost costs[TENSORS * OPTIONS];
        size_t chosen[TENSORS];
        double budget = 0, best = 1e300, bytes = 0, error = 0;
        for (int i = 0; i < TENSORS * OPTIONS; i++)
            costs[i] = (struct adapt_cost){env_rng_uniform(&rng), env_rng_uniform(&rng)};
        for (int t = 0; t < TENSORS; t++)
            budget += costs[t * OPTIONS + OPTIONS - 1].error; /* the last one is the reference */
        for (int all = 0; all < ALL; all++) {
            double b = 0, e = 0;
            for (int t = 0, rest = all; t < TENSORS; t++, rest /= OPTIONS) {
                b += costs[t * OPTIONS + rest % OPTIONS].bytes;
                e += costs[t * OPTIONS + rest % OPTIONS].error;
            }
            best = e <= budget && b < best ? b : best;
        }
        adapt_solve(adapt, costs, TENSORS, OPTIONS, budget, OPTIONS - 1, chosen);
        for (int t = 0; t < TENSORS; t++) {
            bytes += costs[(size_t)t * OPTIONS + chosen[t]].bytes;
            error += costs[(size_t)t * OPTIONS + chosen[t]].error;
        }
        assert_true(error <= budget * 1.006); /* the grid's own grain */
        assert_true(bytes <= best * 1.05 + 0.02);
    }
    adapt_free(adapt);
}

/* All of a grain too much, each: of what the grid leaves over, one for each tensor, no more may be used. */
static void errors_are_never_rounded_down(void **state)
{
    (void)state;
    enum { TENSORS = 4 };
    struct adapt *adapt;
    struct adapt_cost costs[TENSORS * 2];
    size_t chosen[TENSORS];
    double error = 0;
    for (size_t t = 0; t < TENSORS; t++) {
        costs[2 * t] = (struct adapt_cost){1, 0.25 + 1.9 / 1024};
        costs[2 * t + 1] = (struct adapt_cost){2, 0.25};
    }
    assert_ok(adapt_new(TENSORS, &adapt));
    adapt_solve(adapt, costs, TENSORS, 2, 1, 1, chosen);
    for (size_t t = 0; t < TENSORS; t++)
        error += costs[2 * t + chosen[t]].error;
    assert_true(error <= 1 + TENSORS / 1024.0);
    adapt_free(adapt);
}

static void where_nothing_fits_it_is_the_fallback(void **state)
{
    (void)state;
    enum { TENSORS = 3 };
    struct adapt *adapt;
    size_t chosen[TENSORS];
    const struct adapt_cost costs[TENSORS * 2] = {{1, 2}, {2, 2}, {1, 2}, {2, 2}, {1, 2}, {2, 2}};
    static const double budgets[] = {0, 1};
    assert_ok(adapt_new(TENSORS, &adapt));
    for (size_t i = 0; i < 2; i++) {
        adapt_solve(adapt, costs, TENSORS, 2, budgets[i], 1, chosen);
        for (size_t t = 0; t < TENSORS; t++)
            assert_int_equal(chosen[t], 1);
    }
    adapt_free(adapt);
}

/* Bytes, and the error, of one codec for all and of one for each. */
struct adapted {
    size_t bytes[2];
    double error[2];
};

/* Tensors of three sizes, with a residual (all 0) or without. */
static struct adapted adapt_unequal(bool feedback, struct codec_part parts[PARTS])
{
    static float x[N], residual[N];
    const struct codec_choice reference = {CODEC_UNIFORM, 1.4f, 0};
    struct codec_part same[PARTS];
    const struct codec_part *both[] = {same, parts}, largest = {.count = N, .choice = {CODEC_FP32, 0, 0}};
    struct codec *codec;
    struct adapt *adapt;
    struct adapted adapted;
    struct env_rng rng = env_rng_init(32, 0);
    uint8_t *frame;
    size_t at = 0, fault;
    assert_ok(codec_new(1, &codec));
    assert_ok(mem_new(codec_frame_bytes_max(&largest, 1), 1, "frame", &frame));
    for (size_t i = 0; i < PARTS; i++) {
        size_t count = i + 1 < PARTS ? CODEC_SEGMENT : N - at;
        testlib_fill_normal(&rng, x + at, count, i == 0 ? 1e-2 : i == 1 ? 1e-3 : 1e-4);
        same[i] = parts[i] = (struct codec_part){.at = at, .count = count, .choice = reference};
        at += count;
    }
    memset(residual, 0, sizeof residual);
    struct vec_source source = {.minuend = x, .residual = feedback ? residual : NULL};
    assert_ok(adapt_new(PARTS, &adapt));
    assert_ok(adapt_parts(adapt, codec, &reference, &source, parts, PARTS));
    source.residual = NULL; /* it was 0, and each encoding leaves its own */
    for (size_t k = 0; k < 2; k++) {
        assert_ok(codec_encode(codec, both[k], PARTS, &source, residual, frame, &adapted.bytes[k], &fault));
        adapted.error[k] = outer_square_sum(residual, NULL, N);
    }
    print_message("one codec for all: %zu bytes, error %.4g; one for each, %s feedback: %zu bytes, error %.4g\n",
                  adapted.bytes[0], adapted.error[0], feedback ? "with" : "without", adapted.bytes[1],
                  adapted.error[1]);
    adapt_free(adapt);
    codec_free(codec);
    mem_free(frame);
    assert_true(adapted.error[1] <= 1.03 * adapted.error[0]);
    return adapted;
}

static void unequal_tensors_get_unequal_codecs(void **state)
{
    (void)state;
    struct codec_part parts[PARTS];
    struct adapted with = adapt_unequal(true, parts);
    for (size_t i = 0; i < PARTS; i++)
        assert_true(parts[i].choice.id != CODEC_INT2); /* it would make something of padding */
    assert_true((double)with.bytes[1] < 0.6 * (double)with.bytes[0]);
}

/* What a wide step leaves out comes later, or without feedback never. */
static void wide_steps_are_for_feedback(void **state)
{
    (void)state;
    struct codec_part parts[PARTS];
    (void)adapt_unequal(true, parts);
    assert_true(parts[PARTS - 1].choice.id == CODEC_UNIFORM && parts[PARTS - 1].choice.ratio >= 2);
    struct adapted without = adapt_unequal(false, parts);
    for (size_t i = 0; i < PARTS; i++)
        assert_true(parts[i].choice.id != CODEC_UNIFORM || parts[i].choice.ratio < 2);
    assert_true((double)without.bytes[1] < 0.95 * (double)without.bytes[0]);
}

static const struct codec_choice usual = {CODEC_UNIFORM, 1.4f, 0};

static void choose(const struct vec_source *source, struct codec_part *parts, size_t parts_count)
{
    struct codec *codec;
    struct adapt *adapt;
    assert_ok(codec_new(1, &codec));
    assert_ok(adapt_new(parts_count, &adapt));
    assert_ok(adapt_parts(adapt, codec, &usual, source, parts, parts_count));
    adapt_free(adapt);
    codec_free(codec);
}

/* Of x = x/2 + x/2 the same comes as of x: every stretch is taken from where it lies in all three arrays. A part that
 * stays bf16 is none of those that are chosen for. */
static void each_tensor_is_measured_where_it_lies(void **state)
{
    (void)state;
    static float x[N], half[N], minus_half[N], zero[N];
    static const double sizes[PARTS] = {1, 1e-2, 1e-3, 1e-4};
    struct codec_part parts[3][PARTS], alone[PARTS - 1];
    struct env_rng rng = env_rng_init(33, 0);
    for (size_t i = 0; i < PARTS; i++) {
        testlib_fill_normal(&rng, x + i * CODEC_SEGMENT, CODEC_SEGMENT, sizes[i]);
        parts[0][i] = (struct codec_part){.at = i * CODEC_SEGMENT, .count = CODEC_SEGMENT, .choice = usual};
    }
    parts[0][0].choice = (struct codec_choice){CODEC_BF16, 0, 0};
    for (size_t i = 0; i < PARTS * CODEC_SEGMENT; i++) {
        half[i] = x[i] / 2;
        minus_half[i] = -half[i];
    }
    memcpy(parts[1], parts[0], sizeof parts[0]);
    memcpy(parts[2], parts[0], sizeof parts[0]);
    memcpy(alone, parts[0] + 1, sizeof alone);
    choose(&(struct vec_source){.minuend = x, .residual = zero}, parts[0], PARTS);
    choose(&(struct vec_source){.minuend = x, .residual = zero}, alone, PARTS - 1);
    choose(&(struct vec_source){.minuend = half, .residual = half}, parts[1], PARTS);
    choose(&(struct vec_source){.minuend = half, .subtrahend = minus_half, .residual = zero}, parts[2], PARTS);
    for (size_t k = 0; k < 3; k++) {
        assert_int_equal(parts[k][0].choice.id, CODEC_BF16);
        for (size_t i = 1; i < PARTS; i++) {
            assert_int_equal(parts[k][i].choice.id, alone[i - 1].choice.id);
            assert_true(parts[k][i].choice.ratio == alone[i - 1].choice.ratio);
        }
    }
    assert_true(alone[0].choice.ratio < alone[2].choice.ratio); /* and the choices differ */
}

/* A tensor twelve times as large makes twelve times the error: to spare bytes there by a finer codec on the small one
 * would cost more than that saves. */
static void a_large_tensor_counts_whole(void **state)
{
    (void)state;
    enum { SMALL = CODEC_SEGMENT / 4, LARGE = 3 * CODEC_SEGMENT, COUNT = SMALL + LARGE };
    static float x[COUNT], residual[COUNT];
    struct codec_part same[2] = {{.count = SMALL, .choice = usual}, {.at = SMALL, .count = LARGE, .choice = usual}};
    struct codec_part parts[2] = {same[0], same[1]};
    const struct codec_part *both[] = {same, parts}, largest = {.count = COUNT, .choice = {CODEC_FP32, 0, 0}};
    struct codec *codec;
    struct env_rng rng = env_rng_init(34, 0);
    uint8_t *frame;
    size_t bytes, fault;
    double error[2];
    testlib_fill_normal(&rng, x, COUNT, 1e-3);
    choose(&(struct vec_source){.minuend = x, .residual = residual}, parts, 2);
    assert_ok(codec_new(1, &codec));
    assert_ok(mem_new(codec_frame_bytes_max(&largest, 1), 1, "frame", &frame));
    for (size_t k = 0; k < 2; k++) {
        const struct vec_source source = {.minuend = x};
        assert_ok(codec_encode(codec, both[k], 2, &source, residual, frame, &bytes, &fault));
        error[k] = outer_square_sum(residual, NULL, COUNT);
    }
    assert_true(error[1] <= 1.03 * error[0]);
    codec_free(codec);
    mem_free(frame);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_programme_finds_the_best_choice),
        cmocka_unit_test(errors_are_never_rounded_down),
        cmocka_unit_test(where_nothing_fits_it_is_the_fallback),
        cmocka_unit_test(unequal_tensors_get_unequal_codecs),
        cmocka_unit_test(wide_steps_are_for_feedback),
        cmocka_unit_test(each_tensor_is_measured_where_it_lies),
        cmocka_unit_test(a_large_tensor_counts_whole),
    };
    return digest_init() != ERR_OK || cmocka_run_group_tests(tests, NULL, NULL);
}
