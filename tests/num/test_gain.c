/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A codec's gain, <decoded, x> / <x, x>: what it makes of a step's length along the step itself. Relative errors do not
 * show it: on Gaussian values all is well, and on the blocks of one magnitude that AdamW's first steps and the rows of
 * rare tokens are, a coarse codec can multiply. Encoded once as a contribution, and the decoded values once more, as an
 * owner does with the mean.
 */
#include "tests/lib/testlib.h"

#include <math.h>
#include <string.h>

#include "common/digest.h"
#include "common/mem.h"
#include "outer_opt/codec.h"

enum { UNIT = 4096, UNITS = 64, N = UNIT * UNITS };
enum { COLS = 64, ROWS = N / COLS, RANK = 4 };

enum family { FLAT, FLAT_NOISE, SPARSE, GAUSS, LAPLACE, FAMILIES };
static const char *const family_names[FAMILIES] = {"flat", "flat, noise", "sparse", "gauss", "laplace"};

/* Smallest and largest gain of any block, encoded once and twice. */
struct gains {
    double once[2], twice[2];
};

static struct codec *codec;
static float *x, *once, *twice, *factor;
static uint8_t *frame;

/* Blocks of many sizes and grades: the magnitude moves over the rounding of a block's step. */
static void fill(enum family family, uint64_t seed)
{
    static const double noise[] = {0.01, 0.03, 0.1, 0.2};
    static const int kept[] = {1, 2, 16, 64}; /* of 256 */
    struct env_rng rng = env_rng_init(seed, family);
    testlib_fill_normal(&rng, x, N, 1);
    if (family == LAPLACE)
        testlib_fill_laplace(&rng, x, N, 1);
    for (size_t i = 0; i < N; i++) {
        size_t block = i / CODEC_BLOCK;
        float size = (float)(1e-3 * exp2(1.0 / 37 * (double)(block % 37)));
        if (family == FLAT)
            x[i] = x[i] < 0 ? -1 : 1;
        if (family == FLAT_NOISE)
            x[i] = copysignf((float)(1 + noise[block % 4] * env_rng_normal(&rng)), x[i]);
        if (family == SPARSE && (int)(i % CODEC_BLOCK * 37 % CODEC_BLOCK) >= kept[block % 4])
            x[i] = 0;
        x[i] *= size;
    }
}

static void code(const struct codec_part *part, const float *in, float *out)
{
    size_t bytes, fault;
    struct vec_source source = {.minuend = in};
    assert_ok(codec_encode(codec, part, 1, &source, NULL, frame, &bytes, &fault));
    assert_ok(codec_decode(codec, frame, bytes, out, N));
}

static void note(double gain, double range[2])
{
    range[0] = gain < range[0] ? gain : range[0];
    range[1] = gain > range[1] ? gain : range[1];
}

/* The range of gains over all stretches of `unit` values. */
static void measure(const float *decoded, size_t unit, double range[2])
{
    range[0] = INFINITY;
    range[1] = -INFINITY;
    for (size_t begin = 0; begin < N; begin += unit) {
        double dot = 0, square = 0;
        for (size_t i = begin; i < begin + unit; i++) {
            dot += (double)decoded[i] * x[i];
            square += (double)x[i] * x[i];
        }
        if (square > 0)
            note(dot / square, range);
    }
}

static struct gains gains_of(struct codec_choice choice, enum family family, size_t unit)
{
    struct gains gains;
    struct codec_part part = {.count = N, .choice = choice, .rows = ROWS, .cols = COLS, .factor = factor};
    memset(factor, 0, COLS * RANK * sizeof *factor);
    fill(family, 7);
    code(&part, x, once);
    code(&part, once, twice);
    measure(once, unit, gains.once);
    measure(twice, unit, gains.twice);
    print_message("%-8s %5.3g  %-11s  once %.4f to %.4f, twice %.4f to %.4f\n", codec_name(choice.id),
                  (double)choice.ratio, family_names[family], gains.once[0], gains.once[1], gains.twice[0],
                  gains.twice[1]);
    return gains;
}

static void assert_gain(const double range[2], double least, double most)
{
    if (!(range[0] >= least && range[1] <= most))
        fail_msg("a gain of %.4f to %.4f where %.4f to %.4f are allowed", range[0], range[1], least, most);
}

static double length_of(const float *block)
{
    double square = 0;
    for (size_t i = 0; i < CODEC_BLOCK; i++)
        square += (double)block[i] * block[i];
    return sqrt(square);
}

static void uniform_neither_lengthens_nor_shortens_a_block(void **state)
{
    (void)state;
    static const float steps[] = {0.25f, 0.35f, 0.5f, 0.7f, 1.0f, 1.2f, 1.4f, 1.5f, 1.7f};
    for (size_t s = 0; s < sizeof steps / sizeof steps[0]; s++)
        for (enum family family = 0; family < FAMILIES; family++) {
            struct gains gains = gains_of((struct codec_choice){CODEC_UNIFORM, steps[s], 0}, family, CODEC_BLOCK);
            /* Rounding takes more of some Gaussian blocks with 1.7 than a step may be stretched. */
            assert_gain(gains.once, steps[s] > 1.5f ? 0.95 : 0.99, 1.01);
            assert_gain(gains.twice, 0.95, 1.07);
        }
}

/* Above, a block of one magnitude may lie below half a step and be left out, but never grows; from 2 on not even across
 * its own direction, where the few values that are left would stand for all. */
static void uniform_with_wide_steps_never_lengthens(void **state)
{
    (void)state;
    static const float steps[] = {1.8f, 1.9f, 2.0f, 2.2f, 2.4f, 2.8f, 4.0f, 8.0f};
    for (size_t s = 0; s < sizeof steps / sizeof steps[0]; s++)
        for (enum family family = 0; family < FAMILIES; family++) {
            struct gains gains = gains_of((struct codec_choice){CODEC_UNIFORM, steps[s], 0}, family, CODEC_BLOCK);
            assert_gain(gains.once, 0, 1.1);
            assert_gain(gains.twice, 0, 1.1);
            for (size_t block = 0; steps[s] >= 2 && block < N; block += CODEC_BLOCK)
                assert_true(length_of(once + block) <= 1.02 * length_of(x + block));
        }
}

/* A block of one magnitude but for one value that is 4 to 300 times as large: what a row of an embedding has beside an
 * outlier feature. The small values may get lost, but neither does the large one stand for them, nor does the block get
 * longer. A gain does not show it: it is 1 however much of a block is put into one value. */
static void fill_spikes(void)
{
    struct env_rng rng = env_rng_init(9, 0);
    testlib_fill_normal(&rng, x, N, 1);
    for (size_t i = 0; i < N; i++)
        x[i] = x[i] < 0 ? -1e-3f : 1e-3f;
    for (size_t block = 0; block < N / CODEC_BLOCK; block++)
        x[block * CODEC_BLOCK + block * 37 % CODEC_BLOCK] *= (float)(4 * exp2(6.23 / 63 * (double)(block % 64)));
}

/* The most that one encoding may multiply a value with. Rounded up from half a step it is doubled, and the large one is
 * taken along by half where the small ones have a level; where they have none, by a quarter. */
static double growth_allowed(float value, bool small_lost)
{
    return fabsf(value) < 3e-3f ? 2.02 : small_lost ? 1.27 : 1.55;
}

/* The largest of what any value and any block were multiplied with. */
static void note_growth(const float *before, const float *after, double *value, double *block)
{
    *value = *block = 0;
    for (size_t begin = 0; begin < N; begin += CODEC_BLOCK) {
        size_t lost = 0;
        for (size_t i = begin; i < begin + CODEC_BLOCK; i++)
            lost += after[i] == 0;
        for (size_t i = begin; i < begin + CODEC_BLOCK; i++) {
            double grown = before[i] != 0 ? (double)(after[i] / before[i]) : after[i] != 0;
            if (!(grown >= 0 && grown <= growth_allowed(before[i], lost > 1)))
                fail_msg("%g became %g; the block's length was %g, and %zu of its values are lost", (double)before[i],
                         (double)after[i], length_of(before + begin), lost);
            *value = grown > *value ? grown : *value;
        }
        double grown = length_of(after + begin) / length_of(before + begin);
        *block = grown > *block ? grown : *block;
    }
}

static void uniform_makes_no_value_stand_for_its_block(void **state)
{
    (void)state;
    static const float steps[] = {0.25f, 0.7f, 1.0f, 1.4f, 1.5f, 1.6f, 1.7f, 1.8f, 1.9f, 1.99f, 2.0f, 2.4f, 4.0f};
    fill_spikes();
    for (size_t s = 0; s < sizeof steps / sizeof steps[0]; s++) {
        struct codec_part part = {.count = N, .choice = {CODEC_UNIFORM, steps[s], 0}};
        double value[2], block[2];
        code(&part, x, once);
        code(&part, once, twice);
        note_growth(x, once, &value[0], &block[0]);
        note_growth(once, twice, &value[1], &block[1]);
        print_message("uniform %4.2f, one large value: values up to %.3f and %.3f times, blocks up to %.3f and %.3f\n",
                      (double)steps[s], value[0], value[1], block[0], block[1]);
        assert_true(block[0] <= 1.13 && block[1] <= 1.13);
    }
}

/* What the others may do, by family. Encoding a second time changes next to nothing: their levels stay levels. */
struct bounds {
    struct codec_choice choice;
    size_t unit; /* values that belong together */
    double gain[FAMILIES][2];
};

#define ALL(least, most)                                            \
    {                                                               \
        {least, most}, {least, most}, {least, most}, {least, most}, \
        {                                                           \
            least, most                                             \
        }                                                           \
    }
static const struct bounds others[] = {
    {{CODEC_FP32, 0, 0}, CODEC_BLOCK, ALL(1, 1)},
    {{CODEC_BF16, 0, 0}, CODEC_BLOCK, ALL(0.996, 1.004)},
    /* Rounded to nearest; a scale is rounded up to bf16, by .8 % at most. */
    {{CODEC_INT8, 0, 0}, CODEC_BLOCK, ALL(0.99, 1.01)},
    {{CODEC_INT4, 0, 0}, CODEC_BLOCK, {{1, 1.01}, {0.98, 1.04}, {0.96, 1.04}, {0.97, 1.03}, {0.97, 1.03}}},
    /* Any one value by up to a third; a block with few values, or all near one border between levels, shows that. */
    {{CODEC_E3M0, 0, 0}, CODEC_BLOCK, {{1, 1.01}, {0.86, 1.14}, {0.83, 1.14}, {0.87, 1.13}, {0.87, 1.13}}},
    /* Means stand for their bins: shorter by the square of the relative error, never longer. Where most values are zero
     * the bins hold these, too. */
    {{CODEC_INT2, 0, 0}, CODEC_BLOCK, {{0.996, 1.004}, {0.96, 1.004}, {0.44, 1.004}, {0.83, 0.92}, {0.62, 0.9}}},
    {{CODEC_TERNARY, 0, 0}, CODEC_BLOCK, {{0.996, 1.004}, {0.9, 1.004}, {0.44, 1.004}, {0.75, 0.87}, {0.53, 0.82}}},
    /* What is kept, of one in 64 values; nothing of what is not. */
    {{CODEC_TOPK, 1.0f / 64, 0}, UNIT, {{0.015, 0.06}, {0.015, 0.06}, {0.55, 0.72}, {0.11, 0.17}, {0.19, 0.28}}},
    /* A projection: what of an arbitrary matrix lies in four directions of 64. */
    {{CODEC_POWERSGD, 0, RANK}, N, ALL(0.05, 0.1)},
};

static void every_other_codec_keeps_to_its_nature(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        for (enum family family = 0; family < FAMILIES; family++) {
            const struct bounds *b = &others[i];
            struct gains gains = gains_of(b->choice, family, b->unit);
            assert_gain(gains.once, b->gain[family][0], b->gain[family][1]);
            assert_gain(gains.twice, b->gain[family][0], b->gain[family][1]);
        }
}

static int set_up(void **state)
{
    (void)state;
    const struct codec_part largest = {.count = N, .choice = {CODEC_FP32, 0, 0}};
    assert_ok(digest_init());
    assert_ok(codec_new(1, &codec));
    assert_ok(codec_reserve(codec, (ROWS + COLS) * RANK, N));
    assert_ok(mem_new(N, sizeof *x, "x", &x));
    assert_ok(mem_new(N, sizeof *once, "once", &once));
    assert_ok(mem_new(N, sizeof *twice, "twice", &twice));
    assert_ok(mem_new(COLS * RANK, sizeof *factor, "factor", &factor));
    return mem_new(2 * codec_frame_bytes_max(&largest, 1), 1, "frame", &frame) != ERR_OK;
}

static int tear_down(void **state)
{
    (void)state;
    codec_free(codec);
    mem_free(x);
    mem_free(once);
    mem_free(twice);
    mem_free(factor);
    mem_free(frame);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(uniform_neither_lengthens_nor_shortens_a_block),
        cmocka_unit_test(uniform_with_wide_steps_never_lengthens),
        cmocka_unit_test(uniform_makes_no_value_stand_for_its_block),
        cmocka_unit_test(every_other_codec_keeps_to_its_nature),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
