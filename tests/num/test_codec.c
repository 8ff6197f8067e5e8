/* SPDX-License-Identifier: Apache-2.0 */
/* Codecs: error bounds, exact residuals, damaged frames, the same bits from every instruction set; and recipes. */
#include "tests/lib/testlib.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/digest.h"
#include "common/mem.h"
#include "outer_opt/codec.h"
#include "outer_opt/recipe.h"
#include "outer_opt/vec.h"

static const struct vec_ops *tables[3];
static size_t tables_count;

/* ---- codecs ---- */

enum { N = 4 * CODEC_SEGMENT + 512 * 3 };

/* Every codec with parameters to test it under, by number. */
static const struct codec_choice choices[] = {
    [CODEC_FP32] = {CODEC_FP32, 0, 0},         [CODEC_BF16] = {CODEC_BF16, 0, 0},
    [CODEC_INT8] = {CODEC_INT8, 0, 0},         [CODEC_E3M0] = {CODEC_E3M0, 0, 0},
    [CODEC_INT4] = {CODEC_INT4, 0, 0},         [CODEC_INT2] = {CODEC_INT2, 0, 0},
    [CODEC_TERNARY] = {CODEC_TERNARY, 0, 0},   [CODEC_UNIFORM] = {CODEC_UNIFORM, 1.4f, 0},
    [CODEC_TOPK] = {CODEC_TOPK, 1.0f / 64, 0}, [CODEC_POWERSGD] = {CODEC_POWERSGD, 0, 4},
};
enum { CODECS_END = CODEC_POWERSGD + 1 };

struct bench {
    struct codec *codec;
    struct codec_part part;
    float *x, *y, *residual, *sum;
    uint8_t *frame;
    size_t frame_max, frame_bytes, fault;
};

static void bench_init(struct bench *b, enum codec_id id)
{
    memset(b, 0, sizeof *b);
    b->part = (struct codec_part){.count = N, .choice = choices[id], .rows = N / 512, .cols = 512};
    assert_ok(codec_choice_check(&b->part.choice));
    assert_ok(codec_new(1, &b->codec));
    assert_ok(codec_reserve(b->codec, (N / 512 + 512) * 4, N));
    assert_ok(mem_new(512, 4 * sizeof(float), "factor", &b->part.factor));
    b->frame_max = codec_frame_bytes_max(&b->part, 1);
    assert_ok(mem_new(N, 4, "x", &b->x));
    assert_ok(mem_new(N, 4, "y", &b->y));
    assert_ok(mem_new(N, 4, "r", &b->residual));
    assert_ok(mem_new(N, 4, "s", &b->sum));
    assert_ok(mem_new(b->frame_max, 1, "f", &b->frame));
}

static void bench_deinit(struct bench *b)
{
    codec_free(b->codec);
    mem_free(b->x);
    mem_free(b->y);
    mem_free(b->residual);
    mem_free(b->sum);
    mem_free(b->frame);
    mem_free(b->part.factor);
}

static void bench_round(struct bench *b)
{
    struct vec_source source = {.minuend = b->x};
    assert_ok(codec_encode(b->codec, &b->part, 1, &source, b->residual, b->frame, &b->frame_bytes, &b->fault));
    assert_true(b->frame_bytes <= b->frame_max);
    assert_ok(codec_decode(b->codec, b->frame, b->frame_bytes, b->y, N));
    for (size_t i = 0; i < N; i++)
        assert_int_equal(testlib_float_bits(b->residual[i]), testlib_float_bits(b->x[i] - b->y[i]));
}

static void codecs_keep_their_error_bounds(void **state)
{
    (void)state;
    static const struct {
        enum codec_id id;
        float ratio;
        double error_max[2], bits_max[2]; /* Gaussian, Laplace: its longer tail stretches steps and spreads codes */
    } rows[] = {
        {CODEC_FP32, 0, {0, 0}, {26.7, 27.0}},
        {CODEC_BF16, 0, {2.1e-3, 2.1e-3}, {10.7, 11.0}},
        {CODEC_INT8, 0, {1e-2, 1.1e-2}, {7.7, 7.2}},
        {CODEC_E3M0, 0, {0.21, 0.21}, {3.6, 3.8}},
        {CODEC_INT4, 0, {0.11, 0.15}, {4.0, 3.7}},
        {CODEC_INT2, 0, {0.35, 0.46}, {2.1, 2.1}},
        {CODEC_TERNARY, 0, {0.44, 0.54}, {1.69, 1.69}},
        {CODEC_UNIFORM, 0.25f, {0.08, 0.08}, {4.2, 4.1}},
        {CODEC_UNIFORM, 0.7f, {0.205, 0.205}, {2.7, 2.6}},
        {CODEC_UNIFORM, 1.0f, {0.29, 0.285}, {2.22, 2.15}},
        {CODEC_UNIFORM, 1.4f, {0.41, 0.395}, {1.77, 1.68}},
        {CODEC_UNIFORM, 1.7f, {0.5, 0.475}, {1.54, 1.44}},
        {CODEC_UNIFORM, 2.0f, {0.51, 0.485}, {1.34, 1.25}},
        {CODEC_TOPK, 1.0f / 64, {0.95, 0.9}, {0.17, 0.17}},
    };
    for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
        for (int laplace = 0; laplace < 2; laplace++) {
            struct bench b;
            struct env_rng rng = env_rng_init(9, r);
            bench_init(&b, rows[r].id);
            if (rows[r].ratio > 0)
                b.part.choice.ratio = rows[r].ratio;
            if (laplace)
                testlib_fill_laplace(&rng, b.x, N, 1e-3);
            else
                testlib_fill_normal(&rng, b.x, N, 1e-3);
            bench_round(&b);
            double error = testlib_relative_error(b.y, b.x, N);
            double bits = 8.0 * (double)b.frame_bytes / N;
            print_message("%s %.3g %s: relative error %.4f, %.3f bit/value\n", codec_name(rows[r].id),
                          (double)rows[r].ratio, laplace ? "laplace" : "gauss", error, bits);
            assert_true(error <= rows[r].error_max[laplace]);
            assert_true(bits <= rows[r].bits_max[laplace]);
            bench_deinit(&b);
        }
    }
}

static void e3m0_keeps_direction_and_elementwise_bound(void **state)
{
    (void)state;
    struct bench b;
    struct env_rng rng = env_rng_init(10, 0);
    bench_init(&b, CODEC_E3M0);
    testlib_fill_laplace(&rng, b.x, N, 1);
    bench_round(&b);
    double dot = 0, xx = 0, yy = 0;
    for (size_t block = 0; block < N; block += CODEC_BLOCK) {
        float most = 0;
        for (size_t i = block; i < block + CODEC_BLOCK; i++)
            most = fmaxf(most, fabsf(b.x[i]));
        for (size_t i = block; i < block + CODEC_BLOCK; i++) {
            dot += (double)b.x[i] * b.y[i];
            xx += (double)b.x[i] * b.x[i];
            yy += (double)b.y[i] * b.y[i];
            float ratio = fabsf(b.x[i]) / most;
            if (ratio >= 1.0f / 63)
                assert_true(fabsf(b.x[i] - b.y[i]) <= fabsf(b.x[i]) * (1.0f / 3 + 1e-6f));
        }
    }
    assert_true(dot / sqrt(xx * yy) >= 0.978);
    bench_deinit(&b);
}

static void error_feedback_sends_everything_in_the_end(void **state)
{
    (void)state;
    /* The same outer gradient again and again: what is sent adds up to what was meant, within one step's residual. */
    struct codec *codec;
    assert_ok(codec_new(0, &codec));
    enum { COUNT = 1024, ROUNDS = 50 };
    static float theta[COUNT], zero[COUNT], residual[COUNT], sent[COUNT];
    static uint8_t frame[COUNT];
    const struct codec_part part = {.count = COUNT, .choice = {.id = CODEC_E3M0}};
    struct env_rng rng = env_rng_init(3, 3);
    testlib_fill_normal(&rng, theta, COUNT, 1e-3);
    struct vec_source source = {.minuend = zero, .subtrahend = theta, .residual = residual};
    for (int round = 0; round < ROUNDS; round++) {
        size_t bytes, fault;
        assert_ok(codec_encode(codec, &part, 1, &source, residual, frame, &bytes, &fault));
        assert_ok(codec_decode_add(codec, frame, bytes, 1.0f, sent, COUNT));
    }
    for (size_t i = 0; i < COUNT; i++)
        assert_true(fabsf(sent[i] + residual[i] + ROUNDS * theta[i]) < 1e-5f);
    double left = 0, meant = 0;
    for (size_t i = 0; i < COUNT; i++) {
        left += (double)residual[i] * residual[i];
        meant += (double)theta[i] * theta[i];
    }
    assert_true(left < meant); /* bounded: it does not grow with the rounds */
    codec_free(codec);
}

/* One block under one of the codecs of which a block is packed by itself; what `y` should become is exact. */
static void assert_decoded(enum codec_id id, const float x[CODEC_BLOCK], const float want[CODEC_BLOCK])
{
    for (size_t t = 0; t < tables_count; t++) {
        const struct vec_codec *codec = &tables[t]->codec[id];
        const struct vec_source source = {.minuend = x};
        uint8_t raw[4 * CODEC_BLOCK];
        float y[CODEC_BLOCK];
        assert_int_equal(codec->encode(&source, 1, raw, NULL), 1);
        codec->decode(raw, raw + codec->head_bytes, 1, y);
        for (size_t i = 0; i < CODEC_BLOCK; i++)
            if (y[i] != want[i])
                fail_msg("%s, %s: %a becomes %a, not %a", codec_name(id), tables[t]->name, (double)x[i], (double)y[i],
                         (double)want[i]);
    }
}

/* FORMATS.md: a magnitude reaches a border that it is on; just below it does not. Scales down to the smallest. */
static void e3m0_reaches_a_border_on_it(void **state)
{
    (void)state;
    static const float borders[7] = {0x1p-7f, 0x1.8p-6f, 0x1.8p-5f, 0x1.8p-4f, 0x1.8p-3f, 0x1.8p-2f, 0x1.8p-1f};
    static const int powers[] = {0, 100, -62, -63, -64, -100, -130, -133};
    for (size_t k = 0; k < sizeof powers / sizeof powers[0]; k++) {
        float x[CODEC_BLOCK] = {0}, want[CODEC_BLOCK] = {0};
        x[0] = want[0] = ldexpf(1, powers[k]); /* the scale */
        for (int m = 1; m <= 7; m++) {
            x[m] = ldexpf(borders[m - 1], powers[k]);
            want[m] = ldexpf(1, powers[k] + m - 7);
            x[128 + m] = -nextafterf(x[m], 0);
            want[128 + m] = m == 1 ? 0 : -want[m - 1];
        }
        assert_decoded(CODEC_E3M0, x, want);
    }
}

/* 127 times a power of two is a scale without rounding: all 255 levels come back, of the smallest numbers there are,
 * too. */
static void int8_has_all_levels_of_any_size(void **state)
{
    (void)state;
    static const int powers[] = {-133, -130, -120, -70, -63, 0, 100, 120};
    for (size_t k = 0; k < sizeof powers / sizeof powers[0]; k++) {
        float x[CODEC_BLOCK] = {0};
        for (int level = -127; level <= 127; level++)
            x[level + 127] = ldexpf((float)level, powers[k]);
        assert_decoded(CODEC_INT8, x, x);
    }
}

static void bf16_rounds_ties_to_even(void **state)
{
    (void)state;
    float x[CODEC_BLOCK] = {0}, want[CODEC_BLOCK] = {0};
    for (int i = 0; i < 128; i++) {
        x[2 * i] = 1 + (float)(2 * i + 1) * 0x1p-8f; /* halfway between two */
        want[2 * i] = 1 + (float)(i % 2 == 0 ? i : i + 1) * 0x1p-7f;
        x[2 * i + 1] = -x[2 * i];
        want[2 * i + 1] = -want[2 * i];
    }
    assert_decoded(CODEC_BF16, x, want);
}

/* minuend - subtrahend + residual, each rounded, in this order, whatever the codec. */
static void a_source_is_summed_in_its_order(void **state)
{
    (void)state;
    for (unsigned id = 1; id < CODECS_END; id++) {
        struct bench b;
        struct env_rng rng = env_rng_init(18, id);
        uint8_t *frame;
        size_t bytes;
        bench_init(&b, id);
        assert_ok(mem_new(b.frame_max, 1, "frame", &frame));
        testlib_fill_normal(&rng, b.y, N, 1);
        testlib_fill_normal(&rng, b.sum, N, 1e-3);
        testlib_fill_normal(&rng, b.residual, N, 1e-3);
        for (size_t i = 0; i < N; i++) {
            b.sum[i] += b.y[i];
            b.x[i] = b.y[i] - b.sum[i];
            b.x[i] += b.residual[i];
        }
        struct vec_source parts = {.minuend = b.y, .subtrahend = b.sum, .residual = b.residual};
        struct vec_source whole = {.minuend = b.x};
        assert_ok(codec_encode(b.codec, &b.part, 1, &parts, b.residual, frame, &bytes, &b.fault));
        memset(b.part.factor, 0, 512 * 4 * sizeof(float));
        assert_ok(codec_encode(b.codec, &b.part, 1, &whole, b.sum, b.frame, &b.frame_bytes, &b.fault));
        assert_int_equal(bytes, b.frame_bytes);
        assert_memory_equal(frame, b.frame, bytes);
        assert_memory_equal(b.residual, b.sum, N * sizeof *b.sum);
        mem_free(frame);
        bench_deinit(&b);
    }
}

static void not_a_number_is_refused_and_placed(void **state)
{
    (void)state;
    const float bad[] = {NAN, -NAN, INFINITY, -INFINITY};
    for (unsigned id = 1; id < CODECS_END; id++) {
        struct bench b;
        size_t unit = id == CODEC_POWERSGD ? 512 : CODEC_BLOCK; /* a row of the matrix */
        bench_init(&b, id);
        for (size_t k = 0; k < 4; k++) {
            size_t place = CODEC_SEGMENT + 1000 * (k + 1);
            b.x[place] = bad[k];
            struct vec_source source = {.minuend = b.x};
            assert_int_equal(codec_encode(b.codec, &b.part, 1, &source, NULL, b.frame, &b.frame_bytes, &b.fault),
                             ERR_NONFINITE);
            assert_int_equal(b.fault, place / unit * unit);
            b.x[place] = 0;
        }
        bench_deinit(&b);
    }
}

static void all_tables_give_the_same_bits(void **state)
{
    (void)state;
    enum { BLOCKS = 64, COUNT = BLOCKS * CODEC_BLOCK };
    static float x[COUNT], sub[COUNT], res[2][COUNT], out[2][COUNT];
    static uint8_t raw[2][4 * COUNT];
    struct env_rng rng = env_rng_init(11, 0);
    for (int trial = 0; trial < 60; trial++) {
        /* Every magnitude, down to subnormals and up to the edge. */
        double scale = exp2(env_rng_uniform(&rng) * 270 - 145);
        testlib_fill_normal(&rng, x, COUNT, scale < 1e37 ? scale : 1e37);
        testlib_fill_normal(&rng, sub, COUNT, scale < 1e37 ? scale : 1e37);
        for (int c = CODEC_FP32; c < VEC_CODECS; c++) {
            for (size_t t = 0; t < tables_count; t++) {
                struct vec_source source = {.minuend = x, .subtrahend = sub};
                size_t slot = t > 0;
                const struct vec_codec *codec = &tables[t]->codec[c];
                memset(out[slot], 0, sizeof out[slot]);
                size_t good = codec->encode(&source, BLOCKS, raw[slot], res[slot]);
                if (good != BLOCKS)
                    break;
                codec->decode_add(raw[slot], raw[slot] + BLOCKS * codec->head_bytes, BLOCKS, 3.7f, out[slot]);
                tables[t]->divide(out[slot], COUNT, 1.3f);
                tables[t]->nesterov(out[slot], res[slot], x, COUNT, 0.37f, 0.91f);
                tables[t]->heavy_ball(out[slot], res[slot], x, COUNT, 0.37f, 0.91f);
                tables[t]->average(out[slot], sub, COUNT);
                assert_memory_equal(raw[0], raw[slot], BLOCKS * codec->raw_bytes);
                assert_memory_equal(res[0], res[slot], sizeof res[0]);
                assert_memory_equal(out[0], out[slot], sizeof out[0]);
            }
        }
    }
    print_message("tables compared: %zu\n", tables_count);
}

static void damaged_frames_are_refused(void **state)
{
    (void)state;
    for (unsigned id = 1; id < CODECS_END; id++) {
        struct bench b;
        struct env_rng rng = env_rng_init(12, id);
        bench_init(&b, id);
        testlib_fill_normal(&rng, b.x, N, 1);
        bench_round(&b);
        assert_fails(ERR_PROTO, "where 256 are due", codec_decode(b.codec, b.frame, b.frame_bytes, b.y, 256));
        size_t stride = b.frame_bytes / 64 + 1;
        for (size_t cut = 0; cut < b.frame_bytes; cut += cut < 100 ? 1 : stride)
            assert_int_equal(codec_decode(b.codec, b.frame, cut, b.y, N), ERR_PROTO);
        for (size_t at = 0; at < b.frame_bytes; at += at < 100 ? 1 : stride) {
            b.frame[at] ^= 0x40;
            assert_int_equal(codec_check(b.frame, b.frame_bytes, N), ERR_PROTO);
            enum err err = codec_decode(b.codec, b.frame, b.frame_bytes, b.y, N); /* whatever it finds, it survives */
            assert_true(err == ERR_OK || err == ERR_PROTO);
            assert_int_equal(codec_decodable(b.codec, b.frame, b.frame_bytes, N), err);
            b.frame[at] ^= 0x40;
        }
        assert_ok(codec_decode(b.codec, b.frame, b.frame_bytes, b.y, N));
        assert_ok(codec_decodable(b.codec, b.frame, b.frame_bytes, N));
        bench_deinit(&b);
    }
}

/* A whole and consistent frame with one segment for all its values: scratch is made for CODEC_SEGMENT of them. */
static void a_segment_larger_than_scratch_is_refused(void **state)
{
    (void)state;
    enum { STEPS = 2 * (N / CODEC_BLOCK), PLANES = 4 + STEPS + 4 + N + 4, BYTES = CODEC_HEADER_BYTES + 12 + PLANES };
    struct bench b;
    uint8_t *frame;
    bench_init(&b, CODEC_UNIFORM);
    bench_round(&b);
    assert_ok(mem_new(BYTES, 1, "a frame", &frame));
    memcpy(frame, b.frame, CODEC_HEADER_BYTES);
    memcpy(frame + 12, &(uint32_t){1}, 4);
    memcpy(frame + 24, &(uint64_t){BYTES - CODEC_HEADER_BYTES}, 8);
    uint8_t *at = frame + CODEC_HEADER_BYTES;
    const uint8_t head[4] = {CODEC_UNIFORM, 3, 3, 0}; /* three planes; a byte a level */
    memcpy(at, head, 4);
    memcpy(at + 4, (const uint32_t[]){N, PLANES, STEPS}, 12);
    memcpy(at + 16 + STEPS, &(uint32_t){N}, 4);
    assert_int_equal(codec_decode(b.codec, frame, BYTES, b.y, N), ERR_PROTO);
    mem_free(frame);
    bench_deinit(&b);
}

/* What a frame announces for all and what its segments hold are two numbers, and a peer can choose both. */
static void segments_that_do_not_add_up_are_refused(void **state)
{
    (void)state;
    enum { HELD = CODEC_SEGMENT, MORE = 2 * HELD, FEWER = HELD / 2 };
    struct bench b;
    bench_init(&b, CODEC_E3M0);
    b.part.count = HELD;
    struct vec_source source = {.minuend = b.x};
    assert_ok(codec_encode(b.codec, &b.part, 1, &source, b.residual, b.frame, &b.frame_bytes, &b.fault));
    assert_ok(codec_decode(b.codec, b.frame, b.frame_bytes, b.y, HELD));
    memcpy(b.frame + 16, &(uint64_t){MORE}, 8);
    assert_fails(ERR_PROTO, "of the values it announces", codec_decode(b.codec, b.frame, b.frame_bytes, b.y, MORE));
    memcpy(b.frame + 16, &(uint64_t){FEWER}, 8);
    assert_fails(ERR_PROTO, "a geometry", codec_decode(b.codec, b.frame, b.frame_bytes, b.y, FEWER));
    bench_deinit(&b);
}

/* decode_add is decode and an addition, whatever the codec; zeros stay zeros where padding relies on it. */
static void sums_and_zeros_are_exact(void **state)
{
    (void)state;
    for (unsigned id = 1; id < CODECS_END; id++) {
        struct bench b;
        struct env_rng rng = env_rng_init(13, id);
        bench_init(&b, id);
        testlib_fill_normal(&rng, b.x, N, 1e-2);
        for (size_t i = 0; i < N; i += 3)
            b.x[i] = 0;
        memset(b.x + CODEC_SEGMENT - 700, 0, 2000 * sizeof *b.x); /* whole blocks, across segments */
        bench_round(&b);
        for (size_t i = 0; i < N; i++)
            b.sum[i] = b.x[i];
        assert_ok(codec_decode_add(b.codec, b.frame, b.frame_bytes, 1.7f, b.sum, N));
        for (size_t i = 0; i < N; i++) {
            assert_int_equal(testlib_float_bits(b.sum[i]), testlib_float_bits(b.x[i] + 1.7f * b.y[i]));
            if (id != CODEC_INT2 && id != CODEC_POWERSGD && b.x[i] == 0)
                assert_true(b.y[i] == 0);
        }
        bench_deinit(&b);
    }
}

/* Values far outside a block's usual ones are kept, not clipped. */
static void uniform_keeps_outliers(void **state)
{
    (void)state;
    static const float ratios[] = {0.2f, 0.5f, 1.0f, 1.4f, 2.0f, 4.0f};
    for (size_t r = 0; r < 6; r++) {
        struct bench b;
        struct env_rng rng = env_rng_init(14, r);
        bench_init(&b, CODEC_UNIFORM);
        b.part.choice.ratio = ratios[r];
        testlib_fill_normal(&rng, b.x, N, 1e-3);
        for (size_t i = 0; i < N; i += 97)
            b.x[i] *= 40;
        b.x[5 * CODEC_BLOCK] = 1e30f;
        bench_round(&b);
        for (size_t block = 0; block < N; block += CODEC_BLOCK) {
            double square = 0;
            for (size_t i = block; i < block + CODEC_BLOCK; i++)
                square += (double)b.x[i] * b.x[i];
            double half_step = 0.5 * ratios[r] * sqrt(square / CODEC_BLOCK);
            for (size_t i = block; i < block + CODEC_BLOCK;
                 i++) /* the decoded block is stretched, by what was left out */
                assert_true(fabs((double)b.x[i] - (double)b.y[i]) <= 1.1 * half_step + 0.25 * fabs((double)b.x[i]));
        }
        bench_deinit(&b);
    }
}

static void topk_sends_the_largest(void **state)
{
    (void)state;
    struct bench b;
    struct env_rng rng = env_rng_init(15, 0);
    bench_init(&b, CODEC_TOPK);
    testlib_fill_normal(&rng, b.x, N, 1);
    for (size_t i = 0; i < 4096; i++)
        b.x[i] = i < 10 ? -3.0f : 0.0f; /* fewer than may be kept; all of them equal */
    bench_round(&b);
    for (size_t begin = 0; begin < N; begin += 4096) {
        size_t count = N - begin < 4096 ? N - begin : 4096;
        size_t kept = 0;
        float least = INFINITY, left = 0;
        for (size_t i = begin; i < begin + count; i++) {
            kept += b.y[i] != 0;
            if (b.y[i] != 0)
                least = fminf(least, fabsf(b.x[i]));
            else
                left = fmaxf(left, fabsf(b.x[i]));
        }
        assert_int_equal(kept, begin == 0 ? 10 : (count + 63) / 64);
        assert_true(least >= left);
    }
    assert_true(b.y[0] == -3.0f);
    bench_deinit(&b);
}

/* A hundredth, rounded up: 41 of 4096, then 3 of the 256 that are left. A bin stands for the mean of its own. */
static void topk_takes_its_share_of_equal_values(void **state)
{
    (void)state;
    enum { FIRST = 4096, COUNT = FIRST + CODEC_BLOCK, LARGE = 30 };
    struct bench b;
    bench_init(&b, CODEC_TOPK);
    b.part.count = COUNT;
    b.part.choice.ratio = 0.01f;
    for (size_t i = 0; i < FIRST; i++)
        b.x[i] = (i % 2 == 0 ? 1.0f : -1.0f) * (i + LARGE < FIRST ? 1 : 2);
    for (size_t i = FIRST; i < COUNT; i++)
        b.x[i] = 0.5f;
    b.x[FIRST + 7] = 5;
    b.x[FIRST + 9] = -3; /* their mean, so of the upper bin */
    b.x[COUNT - 1] = 1;
    struct vec_source source = {.minuend = b.x};
    assert_ok(codec_encode(b.codec, &b.part, 1, &source, b.residual, b.frame, &b.frame_bytes, &b.fault));
    assert_ok(codec_decode(b.codec, b.frame, b.frame_bytes, b.y, COUNT));
    size_t ones = 0, twos = 0, others = 0;
    for (size_t i = 0; i < FIRST; i++) {
        assert_true(b.y[i] == 0 || b.y[i] == b.x[i]);
        ones += fabsf(b.y[i]) == 1;
        twos += fabsf(b.y[i]) == 2;
    }
    assert_int_equal(twos, LARGE); /* none makes room for a smaller one */
    assert_int_equal(ones, 41 - LARGE);
    for (size_t i = FIRST; i < COUNT; i++)
        others += b.y[i] != 0;
    assert_int_equal(others, 3);
    assert_true(b.y[FIRST + 7] == 4 && b.y[FIRST + 9] == -4 && b.y[COUNT - 1] == 1);
    bench_deinit(&b);
}

/* A frame of 256 values in one segment of topk, of these planes. */
static enum err decode_topk(struct bench *b, const uint8_t *gaps, uint32_t gaps_bytes, uint32_t marks_bytes)
{
    uint8_t frame[512] = {0}, *at = frame + CODEC_HEADER_BYTES;
    const struct vec_source zeros = {.minuend = b->x};
    const uint16_t head[3] = {2, 0x3f80, 0x4000}; /* two kept, of magnitude 1 or 2 */
    const uint32_t planes = 4 + sizeof head + 4 + gaps_bytes + 4 + marks_bytes;
    b->part.count = CODEC_BLOCK;
    assert_ok(codec_encode(b->codec, &b->part, 1, &zeros, NULL, b->frame, &b->frame_bytes, &b->fault));
    memcpy(frame, b->frame, CODEC_HEADER_BYTES);
    memcpy(frame + 24, &(uint64_t){12 + planes}, 8);
    memcpy(at, (const uint8_t[]){CODEC_TOPK, 3, 0, 0}, 4);
    memcpy(at + 4, (const uint32_t[]){CODEC_BLOCK, planes, sizeof head}, 12);
    memcpy(at + 16, head, sizeof head);
    at += 16 + sizeof head;
    memcpy(at, &gaps_bytes, 4);
    memcpy(at + 4, gaps, gaps_bytes);
    at += 4 + gaps_bytes;
    memcpy(at, &marks_bytes, 4);
    at[4] = 1; /* the first one is 2 */
    return codec_decode(b->codec, frame, CODEC_HEADER_BYTES + 12 + planes, b->y, CODEC_BLOCK);
}

/* FORMATS.md: a segment that refers to what is not there is refused, and so are bytes left over. */
static void topk_refuses_what_does_not_add_up(void **state)
{
    (void)state;
    struct bench b;
    bench_init(&b, CODEC_TOPK);
    assert_ok(decode_topk(&b, (const uint8_t[]){3, 251}, 2, 1));
    for (size_t i = 0; i < CODEC_BLOCK; i++)
        assert_true(b.y[i] == (i == 3 ? 2 : i == 255 ? 1 : 0));
    assert_ok(decode_topk(&b, (const uint8_t[]){0, 254}, 2, 1));
    assert_int_equal(decode_topk(&b, (const uint8_t[]){3, 252}, 2, 1), ERR_PROTO);
    assert_int_equal(decode_topk(&b, (const uint8_t[]){0, 255, 0}, 3, 1), ERR_PROTO);
    assert_int_equal(decode_topk(&b, (const uint8_t[]){255, 1, 0}, 3, 1), ERR_PROTO);
    assert_int_equal(decode_topk(&b, (const uint8_t[]){3}, 1, 1), ERR_PROTO);
    assert_int_equal(decode_topk(&b, (const uint8_t[]){3, 251, 0}, 3, 1), ERR_PROTO);
    assert_int_equal(decode_topk(&b, (const uint8_t[]){3, 251}, 2, 2), ERR_PROTO);
    assert_int_equal(decode_topk(&b, (const uint8_t[]){3, 251}, 2, 0), ERR_PROTO);
    bench_deinit(&b);
}

/* Of a matrix with singular values 1 and 1/2 one direction is sent: after some encodings it is the first one, whatever
 * the start, since each goes on where the last one ended. */
static void powersgd_goes_on_from_round_to_round(void **state)
{
    (void)state;
    struct bench b;
    bench_init(&b, CODEC_POWERSGD);
    b.part.choice.rank = 1;
    b.x[0] = 1;
    b.x[512 + 1] = 0.5f;
    bench_round(&b);
    assert_true(fabsf(b.y[0] - 1) > 0.01f);
    for (int i = 0; i < 8; i++)
        bench_round(&b);
    assert_true(fabsf(b.y[0] - 1) < 0.005f && fabsf(b.y[512 + 1]) < 0.001f);
    bench_deinit(&b);
}

/* FORMATS.md: zeros behind the matrix, fewer than a block. */
static void powersgd_pads_with_zeros(void **state)
{
    (void)state;
    enum { COUNT = 512 };
    struct bench b;
    bench_init(&b, CODEC_POWERSGD);
    b.part.count = COUNT;
    b.part.choice.rank = 1;
    b.part.rows = 3;
    b.part.cols = 100;
    for (size_t i = 0; i < COUNT; i++) {
        b.x[i] = i < 300 ? (float)(i / 100 + 1) * (float)(i % 100) : 0;
        b.y[i] = b.residual[i] = 7;
    }
    struct vec_source source = {.minuend = b.x};
    assert_ok(codec_encode(b.codec, &b.part, 1, &source, b.residual, b.frame, &b.frame_bytes, &b.fault));
    assert_ok(codec_decode(b.codec, b.frame, b.frame_bytes, b.y, COUNT));
    for (size_t i = 0; i < COUNT; i++)
        assert_true(i < 300 ? fabsf(b.y[i] - b.x[i]) < 4 : b.y[i] == 0 && b.residual[i] == 0);
    b.part.rows = 1; /* a whole block would be padding */
    b.part.cols = 256;
    memset(b.part.factor, 0, 256 * sizeof(float));
    assert_ok(codec_encode(b.codec, &b.part, 1, &source, b.residual, b.frame, &b.frame_bytes, &b.fault));
    assert_fails(ERR_PROTO, "a shape that does not fit", codec_decode(b.codec, b.frame, b.frame_bytes, b.y, COUNT));
    bench_deinit(&b);
}

/* Vogels et al.: power iteration finds a low-rank matrix; here after two encodings, as exact as bf16 factors are. */
static void powersgd_is_exact_up_to_its_rank(void **state)
{
    (void)state;
    enum { ROWS = N / 512, COLS = 512 };
    for (int rank = 1; rank <= 4; rank++) {
        struct bench b;
        static float left[ROWS * 4], right[COLS * 4];
        struct env_rng rng = env_rng_init(16, (uint64_t)rank);
        bench_init(&b, CODEC_POWERSGD);
        testlib_fill_normal(&rng, left, ROWS * 4, 1);
        testlib_fill_normal(&rng, right, COLS * 4, 1e-3);
        for (size_t i = 0; i < ROWS; i++)
            for (size_t j = 0; j < COLS; j++)
                for (int k = 0; k < rank; k++)
                    b.x[i * COLS + j] += left[i * 4 + (size_t)k] * right[j * 4 + (size_t)k];
        bench_round(&b);
        bench_round(&b);
        double error = testlib_relative_error(b.y, b.x, N);
        print_message("powersgd on rank %d: relative error %.2g\n", rank, error);
        assert_true(error < 4e-3);
        assert_true(8.0 * (double)b.frame_bytes / N < 0.2);
        bench_deinit(&b);
    }
    struct bench b; /* and zeros, which have no direction at all, are no trouble */
    bench_init(&b, CODEC_POWERSGD);
    bench_round(&b);
    for (size_t i = 0; i < N; i++)
        assert_true(b.y[i] == 0);
    bench_deinit(&b);
}

static void levels_agree_between_tables(void **state)
{
    (void)state;
    enum { BLOCKS = 64, COUNT = BLOCKS * CODEC_BLOCK, TRIALS = 60 };
    static const float ratios[] = {0.3f, 1.4f, 1.9f, 2.4f}; /* the step that is sent is made in three ways */
    static float x[COUNT], res[2][COUNT], out[2][COUNT];
    static int8_t levels[2][COUNT];
    static uint8_t steps[2][2 * BLOCKS];
    struct env_rng rng = env_rng_init(17, 0);
    for (int trial = 0; trial < 4 * TRIALS; trial++) {
        double scale = exp2(env_rng_uniform(&rng) * 270 - 145);
        testlib_fill_normal(&rng, x, COUNT, scale < 1e37 ? scale : 1e37);
        struct vec_source source = {.minuend = x};
        double norm = tables[0]->square_sum(x, NULL, BLOCKS);
        for (size_t t = 0; t < tables_count; t++) {
            size_t slot = t > 0;
            if (tables[t]->levels_encode(&source, BLOCKS, ratios[trial % 4], steps[slot], levels[slot], res[slot]) !=
                BLOCKS)
                break;
            tables[t]->levels_decode(steps[slot], levels[slot], BLOCKS, out[slot]);
            tables[t]->add(out[slot], x, COUNT, 0.3f);
            tables[t]->scale(out[slot], COUNT, 1.7f);
            tables[t]->clipped(out[slot], res[slot], x, COUNT, 0.4f, 0.9f, 0.01f);
            assert_memory_equal(levels[0], levels[slot], sizeof levels[0]);
            assert_memory_equal(steps[0], steps[slot], sizeof steps[0]);
            assert_memory_equal(res[0], res[slot], sizeof res[0]);
            assert_memory_equal(out[0], out[slot], sizeof out[0]);
            assert_true(tables[t]->square_sum(x, NULL, BLOCKS) == norm);
        }
    }
}

/* Rounding up at the edge of what a float holds would make Inf of a number. */
static void uniform_makes_no_infinity(void **state)
{
    (void)state;
    size_t kept = 0, refused = 0;
    for (int trial = 0; trial < 60; trial++) {
        struct bench b;
        struct env_rng rng = env_rng_init(18, (uint64_t)trial);
        bench_init(&b, CODEC_UNIFORM);
        b.part.count = CODEC_BLOCK;
        b.part.choice.ratio = 0.2f + 0.05f * (float)trial;
        for (size_t i = 0; i < CODEC_BLOCK; i++)
            b.x[i] = (float)((env_rng_uniform(&rng) < 0.5 ? -3.39e38 : 3.39e38) * env_rng_uniform(&rng));
        b.x[trial] = 3.39e38f;
        struct vec_source source = {.minuend = b.x};
        enum err err = codec_encode(b.codec, &b.part, 1, &source, NULL, b.frame, &b.frame_bytes, &b.fault);
        if (err == ERR_OK)
            assert_ok(codec_decode(b.codec, b.frame, b.frame_bytes, b.y, CODEC_BLOCK));
        for (size_t i = 0; err == ERR_OK && i < CODEC_BLOCK; i++)
            assert_true(isfinite(b.y[i]));
        kept += err == ERR_OK;
        refused += err == ERR_NONFINITE;
        bench_deinit(&b);
    }
    print_message("%zu blocks at the edge encoded, %zu refused\n", kept, refused);
    assert_true(kept > 0 && refused > 0 && kept + refused == 60);
}

/* ---- recipe ---- */

static void recipe_cuts_by_tensor(void **state)
{
    (void)state;
    static const struct plan_tensor tensors[] = {
        {.name = "embed", .layer = -1, .count = 40000, .rows = 200},
        {.name = "a.norm", .layer = 0, .count = 200, .sensitive = true},
        {.name = "a.w1", .layer = 0, .count = 20000, .rows = 100},
        {.name = "a.w2", .layer = 0, .count = 30000, .rows = 150},
        {.name = "a.tiny", .layer = 0, .count = 64, .rows = 8},
    };
    static const enum codec_id ids[] = {CODEC_UNIFORM, CODEC_INT2, CODEC_POWERSGD, CODEC_FP32};
    for (size_t c = 0; c < 4; c++) {
        struct codec_choice choice = choices[ids[c]];
        struct plan_conf conf = {.layers_per_fragment = 1, .whole_tensors = ids[c] == CODEC_POWERSGD};
        struct plan *plan;
        struct recipe *recipe;
        struct codec_part parts[16 + 2 * PLAN_SHARDS_MAX];
        assert_ok(plan_new(tensors, 5, &conf, &plan));
        assert_ok(recipe_new(plan, &choice, c == 0, &recipe));
        assert_true(recipe_parts_max(recipe) <= sizeof parts / sizeof parts[0]);
        const uint64_t all = plan_shards(plan, 1);
        const uint32_t quarter = plan->fragments[1].shards_count / 4;
        const uint64_t first = ((uint64_t)1 << quarter) - 1, middle = (((uint64_t)1 << 3 * quarter) - 1) & ~first;
        const uint64_t masks[3] = {first, middle, all & ~first & ~middle};
        uint64_t at = 0;
        for (uint32_t s = 0; s < 3; s++) {
            struct plan_share share;
            plan_share(plan, 1, masks[s], &share);
            assert_int_equal(share.runs_count, 1);
            struct plan_shard shard = share.run[0];
            assert_int_equal(shard.begin, at);
            size_t count = recipe_parts(recipe, RECIPE_RESULT, 1, &share, parts);
            assert_true(codec_frame_bytes_max(parts, count) <= recipe_frame_bytes_max(plan, &choice, 1, &share));
            for (size_t i = 0; i < count; i++) {
                const struct plan_tensor *tensor = plan_tensor_at(plan, 1, at);
                assert_non_null(tensor);
                if (tensor->sensitive && ids[c] != CODEC_FP32)
                    assert_int_equal(parts[i].choice.id, CODEC_BF16);
                if (parts[i].choice.id == CODEC_POWERSGD) {
                    assert_int_equal(parts[i].rows * parts[i].cols, tensor->count);
                    assert_non_null(parts[i].factor);
                }
                if (ids[c] == CODEC_POWERSGD)
                    assert_int_equal(at, tensor->offset);
                at += parts[i].count;
            }
            assert_int_equal(at, shard.end);
        }
        assert_int_equal(at, plan->fragments[1].values_count);
        recipe_free(recipe);
        plan_free(plan);
    }
}

/* The same bits as at once, wherever the pieces end. */
static void assert_read_in_pieces(struct bench *b, size_t piece, const float *weight)
{
    struct codec_reader reader;
    memset(b->residual, 0, N * sizeof(float));
    assert_ok(codec_read_begin(b->frame, b->frame_bytes, N, &reader));
    for (size_t at = 0; at < N; at += piece) {
        size_t count = N - at < piece ? N - at : piece;
        assert_ok(codec_read(b->codec, &reader, count, weight, b->residual + at));
        assert_int_equal(reader.values_left, N - at - count);
    }
    assert_ok(codec_read_end(&reader));
    assert_memory_equal(b->residual, weight != NULL ? b->sum : b->y, N * sizeof(float));
    assert_int_equal(codec_read(b->codec, &reader, CODEC_BLOCK, weight, b->residual), ERR_PROTO);
}

static void a_frame_is_read_piece_by_piece(void **state)
{
    (void)state;
    static const size_t pieces[] = {CODEC_SEGMENT, CODEC_BLOCK * 77, CODEC_SEGMENT + CODEC_BLOCK * 5, N};
    const float weight = 1.75f;
    for (unsigned id = 1; id < CODECS_END; id++) {
        struct bench b;
        struct env_rng rng = env_rng_init(21, id);
        struct codec_reader reader;
        float *values;
        size_t count, at = 0;
        bench_init(&b, id);
        testlib_fill_normal(&rng, b.x, N, 1);
        bench_round(&b);
        assert_ok(codec_decode_add(b.codec, b.frame, b.frame_bytes, weight, b.sum, N));
        for (size_t p = id == CODEC_POWERSGD ? 3 : 0; p < 4; p++) { /* a product of factors is not made in parts */
            assert_read_in_pieces(&b, pieces[p], NULL);
            assert_read_in_pieces(&b, pieces[p], &weight);
        }
        assert_ok(codec_read_begin(b.frame, b.frame_bytes, N, &reader));
        for (; codec_read_segment(b.codec, &reader, &values, &count) == ERR_OK && count > 0; at += count)
            assert_memory_equal(values, b.y + at, count * sizeof(float));
        assert_int_equal(at, N);
        bench_deinit(&b);
    }
}

static void a_frame_is_written_piece_by_piece(void **state)
{
    (void)state;
    for (unsigned id = 1; id < CODEC_POWERSGD; id++) {
        struct bench b;
        struct env_rng rng = env_rng_init(22, id);
        bench_init(&b, id);
        testlib_fill_normal(&rng, b.x, N, 1);
        bench_round(&b);
        uint8_t *again;
        assert_ok(mem_new(b.frame_max, 1, "f", &again));
        struct codec_writer w = codec_write_begin(again);
        for (size_t at = 0, count; at < N; at += count) {
            const struct vec_source source = {.minuend = b.x + at};
            count = N - at < 2 * CODEC_SEGMENT ? N - at : 2 * CODEC_SEGMENT;
            const struct codec_part part = {.count = count, .choice = choices[id]};
            assert_ok(codec_write(b.codec, &w, &part, &source, b.y + at, &b.fault));
        }
        assert_int_equal(codec_write_end(&w), b.frame_bytes);
        assert_memory_equal(again, b.frame, b.frame_bytes);
        assert_memory_equal(b.y, b.residual, N * sizeof(float));
        mem_free(again);
        bench_deinit(&b);
    }
}

int main(void)
{
    assert_ok(digest_init());
    tables_count = vec_all(tables, 3);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(codecs_keep_their_error_bounds),
        cmocka_unit_test(e3m0_keeps_direction_and_elementwise_bound),
        cmocka_unit_test(error_feedback_sends_everything_in_the_end),
        cmocka_unit_test(e3m0_reaches_a_border_on_it),
        cmocka_unit_test(int8_has_all_levels_of_any_size),
        cmocka_unit_test(bf16_rounds_ties_to_even),
        cmocka_unit_test(a_source_is_summed_in_its_order),
        cmocka_unit_test(not_a_number_is_refused_and_placed),
        cmocka_unit_test(all_tables_give_the_same_bits),
        cmocka_unit_test(damaged_frames_are_refused),
        cmocka_unit_test(a_segment_larger_than_scratch_is_refused),
        cmocka_unit_test(segments_that_do_not_add_up_are_refused),
        cmocka_unit_test(sums_and_zeros_are_exact),
        cmocka_unit_test(uniform_keeps_outliers),
        cmocka_unit_test(topk_sends_the_largest),
        cmocka_unit_test(topk_takes_its_share_of_equal_values),
        cmocka_unit_test(topk_refuses_what_does_not_add_up),
        cmocka_unit_test(powersgd_is_exact_up_to_its_rank),
        cmocka_unit_test(powersgd_goes_on_from_round_to_round),
        cmocka_unit_test(powersgd_pads_with_zeros),
        cmocka_unit_test(levels_agree_between_tables),
        cmocka_unit_test(uniform_makes_no_infinity),
        cmocka_unit_test(recipe_cuts_by_tensor),
        cmocka_unit_test(a_frame_is_read_piece_by_piece),
        cmocka_unit_test(a_frame_is_written_piece_by_piece),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
