/* SPDX-License-Identifier: Apache-2.0 */
/* Linear layers, embedding, RMSNorm, rotary positions, attention, SwiGLU. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/env.h"
#include "tests/kern/arrays.h"
#include "tests/kern/cases.h"
#include "tests/lib/ref64.h"

static double tolerance(void)
{
    return array_tolerance(ARRAY_ACT);
}

/* A gradient in act passes through one rounding more, and what it is made from through others. */
static double gradient_tolerance(void)
{
    return kern->act_bytes == 2 ? 1e-2 : 1e-5;
}

static double product_tolerance(void)
{
    return tolerance() + arrays_operand_error();
}

/* Where operands are rounded, so is what a product of products is made from. */
static double product_gradient_tolerance(void)
{
    return arrays_operand_error() > 0 ? 1e-2 : gradient_tolerance();
}

/* ---- linear ---- */

struct linear {
    struct array inp, w;
    struct kern_linear s;
};

static void linear_forward(double *out, void *context)
{
    const struct linear *c = context;
    ref_linear(out, c->inp.d, c->w.d, c->s.R, c->s.K, c->s.N);
}

/* (R,N) closely packed from rows ld apart. */
static void pack_rows(double *to, const double *from, int64_t R, int64_t N, int64_t ld)
{
    for (int64_t r = 0; r < R; r++)
        memcpy(to + r * N, from + r * ld, (size_t)N * sizeof *to);
}

static void linear_case(struct kern_linear s)
{
    struct linear c = {.s = s};
    c.inp = array_new(ARRAY_ACT, s.R * s.K, 1);
    c.w = array_new(ARRAY_ACT, s.N * s.K, 1);
    struct array out = array_out(ARRAY_ACT, s.R * s.ld), wide = array_new(ARRAY_ACT, s.R * s.ld, 1);
    struct array dinp = array_out(ARRAY_ACT, s.R * s.K), dw = array_new(ARRAY_FLOAT, s.N * s.K, 1);
    struct array dout = {.count = s.R * s.N, .d = calloc((size_t)(s.R * s.N), sizeof(double))};
    double *want = calloc((size_t)(s.R * s.N), sizeof *want);
    float *got = calloc((size_t)(s.R * s.N), sizeof *got);
    pack_rows(dout.d, wide.d, s.R, s.N, s.ld);
    kern->linear_fwd(dev, out.dev, c.inp.dev, c.w.dev, s);
    linear_forward(want, &c);
    const float *read = array_read(&out);
    for (int64_t r = 0; r < s.R; r++) {
        memcpy(got + r * s.N, read + r * s.ld, (size_t)s.N * sizeof *got);
        for (int64_t i = s.N; i < s.ld; i++)
            assert_true(isnan(read[r * s.ld + i])); /* the columns between the rows are nobody's */
    }
    values_near("linear", got, want, s.R * s.N, product_tolerance());
    kern->linear_bwd_inp(dev, dinp.dev, wide.dev, c.w.dev, s, false);
    array_gradient("linear dinp", linear_forward, &c, &dout, &c.inp, &dinp, NULL, product_gradient_tolerance());
    double *before = calloc((size_t)dinp.count, sizeof *before);
    for (int64_t i = 0; i < dinp.count; i++)
        before[i] = (double)dinp.read[i];
    kern->linear_bwd_inp(dev, dinp.dev, wide.dev, c.w.dev, s, true);
    array_gradient("linear dinp, added", linear_forward, &c, &dout, &c.inp, &dinp, before,
                   product_gradient_tolerance());
    kern->linear_bwd_w(dev, dw.dev, wide.dev, c.inp.dev, s);
    array_gradient("linear dw", linear_forward, &c, &dout, &c.w, &dw, dw.d, 1e-5 + arrays_operand_error());
    free(before);
    free(want);
    free(got);
    free(dout.d);
    arrays_free(&c.inp, &c.w, &out, &wide, &dinp, &dw, NULL);
}

static void linear_holds(void **state)
{
    (void)state;
    static const struct kern_linear shapes[] = {
        {1, 1, 1, 1}, {7, 13, 5, 5}, {33, 64, 96, 96}, {128, 100, 17, 17}, {9, 24, 29, 64}};
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++)
        linear_case(shapes[s]);
}

/* Whatever a table keeps of weights, products are of the values that are there. */
static void kept_weights_are_those_that_were_written(void **state)
{
    (void)state;
    const struct kern_linear s = {.R = 6, .K = 48, .N = 40, .ld = 40};
    const struct kern_matrix matrix = {.at = 16, .N = s.N, .K = s.K};
    struct array w = array_new(ARRAY_ACT, 16 + s.N * s.K, 1), inp = array_new(ARRAY_ACT, s.R * s.K, 1);
    struct array out = array_out(ARRAY_ACT, s.R * s.N), dinp = array_out(ARRAY_ACT, s.R * s.K);
    struct array out_too = array_out(ARRAY_ACT, s.R * s.N), dinp_too = array_out(ARRAY_ACT, s.R * s.K);
    struct kern_weights *kept;
    char *in_use = (char *)w.dev + 16 * kern->act_bytes;
    assert_ok(kern->weights_new(dev, w.dev, &matrix, 1, true, &kept));
    assert_true((kept != NULL) == (kern->weights_bytes(dev, &matrix, 1, true) > 0));
    for (int i = 0; i < 2; i++) {
        struct array fresh = array_new(ARRAY_ACT, s.N * s.K, 1);
        kern->copy(dev, KERN_MAIN, in_use, fresh.dev, (size_t)(s.N * s.K) * kern->act_bytes);
        kern->linear_fwd(dev, out.dev, inp.dev, in_use, s);
        kern->linear_bwd_inp(dev, dinp.dev, out.dev, in_use, s, false);
        kern->linear_fwd(dev, out_too.dev, inp.dev, fresh.dev, s);
        kern->linear_bwd_inp(dev, dinp_too.dev, out_too.dev, fresh.dev, s, false);
        arrays_equal("with kept weights", &out, &out_too);
        arrays_equal("dinp with kept weights", &dinp, &dinp_too);
        array_free(&fresh);
    }
    kern->weights_free(dev, kept);
    arrays_free(&w, &inp, &out, &dinp, &out_too, &dinp_too, NULL);
}

/* ---- embedding ---- */

struct embed {
    struct array w; /* (V,C) */
    int32_t tokens[2000];
    int64_t R, C, first, V;
};

static void embed_forward(double *out, void *context)
{
    const struct embed *c = context;
    for (int64_t r = 0; r < c->R; r++) {
        int64_t row = c->tokens[r] - c->first;
        for (int64_t i = 0; i < c->C; i++)
            out[r * c->C + i] = row >= 0 && row < c->V ? c->w.d[row * c->C + i] : 0;
    }
}

/* The first tokens come often, as in real text. */
static void embed_case(int64_t R, int64_t C, int64_t first, int64_t V, int64_t vocab)
{
    struct embed c = {.R = R, .C = C, .first = first, .V = V};
    c.w = array_new(ARRAY_ACT, V * C, 1);
    for (int64_t r = 0; r < R; r++) {
        double u = env_rng_uniform(&arrays_rng);
        c.tokens[r] = (int32_t)((double)vocab * u * u * u);
    }
    int32_t *tokens = arrays_tokens(c.tokens, R);
    struct array out = array_out(ARRAY_ACT, R * C), dout = array_new(ARRAY_ACT, R * C, 1);
    struct array dw = array_new(ARRAY_FLOAT, V * C, 1);
    double *want = calloc((size_t)(R * C), sizeof *want);
    kern->embed_fwd(dev, out.dev, tokens, c.w.dev, R, C, first, V);
    embed_forward(want, &c);
    array_near("embed", &out, want, 0);
    kern->embed_bwd(dev, dw.dev, dout.dev, tokens, R, C, first, V);
    array_gradient("embed dw", embed_forward, &c, &dout, &c.w, &dw, dw.d, 1e-5);
    free(want);
    kern->free(dev, tokens);
    arrays_free(&c.w, &out, &dout, &dw, NULL);
}

static void embedding_holds(void **state)
{
    (void)state;
    embed_case(1, 1, 0, 3, 3);
    embed_case(50, 70, 0, 11, 11);
    embed_case(300, 64, 0, 40, 40);
    embed_case(300, 8, 10, 15, 40);   /* a rank's part of the vocabulary */
    embed_case(2000, 520, 0, 40, 40); /* more than a block looks at in one go, by several warps */
}

/* ---- RMSNorm ---- */

struct rmsnorm {
    struct array inp, w;
    int64_t R, C;
};

static void rmsnorm_forward(double *out, void *context)
{
    const struct rmsnorm *c = context;
    ref_rmsnorm(out, c->inp.d, c->w.d, c->R, c->C, 1e-5);
}

static void rmsnorm_case(int64_t R, int64_t C)
{
    struct rmsnorm c = {.R = R, .C = C};
    int64_t count = R * C;
    struct array half = array_new(ARRAY_ACT, count, 1);
    c.inp = array_of(ARRAY_ACT, half.d, count); /* twice the half, which no rounding changes */
    for (int64_t i = 0; i < count; i++)
        c.inp.d[i] = 2 * half.d[i];
    array_write(&c.inp);
    c.w = array_new(ARRAY_ACT, C, 1);
    struct array out = array_out(ARRAY_ACT, count), fused = array_out(ARRAY_ACT, count);
    struct array sum = array_out(ARRAY_ACT, count), rstd = array_out(ARRAY_FLOAT, R);
    struct array dout = array_new(ARRAY_ACT, count, 1), dinp = array_new(ARRAY_ACT, count, 1);
    struct array dw = array_new(ARRAY_FLOAT, C, 1);
    double *want = calloc((size_t)count, sizeof *want);
    kern->rmsnorm_fwd(dev, out.dev, rstd.dev, NULL, c.inp.dev, NULL, c.w.dev, R, C, 1e-5f);
    rmsnorm_forward(want, &c);
    array_near("rmsnorm", &out, want, tolerance());
    kern->rmsnorm_fwd(dev, fused.dev, rstd.dev, sum.dev, half.dev, half.dev, c.w.dev, R, C, 1e-5f);
    arrays_equal("rmsnorm of a sum", &fused, &out);
    array_near("the sum", &sum, c.inp.d, 0);
    for (int64_t r = 0; r < R; r++) {
        double square = 0;
        for (int64_t i = 0; i < C; i++)
            square += c.inp.d[r * C + i] * c.inp.d[r * C + i];
        want[r] = 1 / sqrt(square / (double)C + 1e-5);
    }
    array_near("rstd", &rstd, want, 1e-6);
    kern->rmsnorm_bwd(dev, dinp.dev, dw.dev, dout.dev, c.inp.dev, c.w.dev, rstd.dev, R, C);
    if (C > 1) /* with one column the output is a sign: its gradient is all cancellation */
        array_gradient("rmsnorm dinp", rmsnorm_forward, &c, &dout, &c.inp, &dinp, dinp.d, gradient_tolerance());
    array_gradient("rmsnorm dw", rmsnorm_forward, &c, &dout, &c.w, &dw, dw.d, 1e-5);
    free(want);
    arrays_free(&half, &c.inp, &c.w, &out, &fused, &sum, &rstd, &dout, &dinp, &dw, NULL);
}

static void rmsnorm_holds(void **state)
{
    (void)state;
    static const int64_t shapes[][2] = {{1, 1}, {5, 64}, {9, 200}, {40, 130}, {300, 24}, {6, 2064}, {3, 1037}};
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++)
        rmsnorm_case(shapes[s][0], shapes[s][1]);
}

/* ---- rotary positions ---- */

static void rope_case(int64_t B, int64_t T, int64_t H, int64_t D)
{
    int64_t row = (H + 2) * D;
    struct array x = array_new(ARRAY_ACT, B * T * row, 1);
    double *table = calloc((size_t)(T * D), sizeof *table), *want = calloc((size_t)x.count, sizeof *want);
    for (int64_t t = 0; t < T; t++) {
        for (int64_t i = 0; i < D / 2; i++) {
            double angle = (double)t * pow(10000, -2.0 * (double)i / (double)D);
            table[t * D + 2 * i] = cos(angle);
            table[t * D + 2 * i + 1] = sin(angle);
        }
    }
    struct array cos_sin = array_of(ARRAY_FLOAT, table, T * D);
    memcpy(want, x.d, sizeof *want * (size_t)x.count);
    ref_rope(want, B * T, T, row, H, D, 10000);
    kern->rope(dev, x.dev, cos_sin.dev, B * T, T, row, H, D, false);
    array_near("rope", &x, want, tolerance());
    for (int64_t r = 0; r < B * T; r++) /* the heads behind are left alone */
        for (int64_t i = H * D; i < row; i++)
            assert_true((double)x.read[r * row + i] == x.d[r * row + i]);
    /* A rotation's gradient is the inverse rotation; forth and back is where we began. */
    kern->rope(dev, x.dev, cos_sin.dev, B * T, T, row, H, D, true);
    array_near("rope inverse", &x, x.d, tolerance());
    free(table);
    free(want);
    arrays_free(&x, &cos_sin, NULL);
}

static void rope_rotates_and_returns(void **state)
{
    (void)state;
    rope_case(2, 9, 3, 8);
    rope_case(1, 5, 2, 64);
    rope_case(2, 3, 1, 6);
    rope_case(1, 1, 1, 16);
}

/* ---- attention ---- */

struct attention {
    struct array qkv;
    struct kern_attention d;
};

static void attention_forward(double *out, void *context)
{
    const struct attention *c = context;
    ref_attention(out, c->qkv.d, c->d.B, c->d.T, c->d.H, c->d.G, c->d.D);
}

/* Position by position what the whole sequence gives. */
static void decode_case(const struct attention *c, const double *want)
{
    const struct kern_attention d = c->d;
    int64_t row = (d.H + 2 * d.G) * d.D, width = d.H * d.D;
    size_t act = kern->act_bytes;
    void *cache, *scratch;
    struct array out = array_out(ARRAY_ACT, d.T * width);
    assert_ok(kern->alloc(dev, (size_t)(2 * d.T * d.G * d.D) * act, "a cache", &cache));
    assert_ok(kern->alloc(dev, kern->attention_scratch(dev, &d) + 1, "scratch", &scratch));
    for (int64_t t = 0; t < d.T; t++)
        kern->attention_decode(dev, (char *)out.dev + (size_t)(t * width) * act,
                               (const char *)c->qkv.dev + (size_t)(t * row) * act, cache, t, &d, scratch);
    array_near("attention, decoded", &out, want, product_tolerance());
    kern->free(dev, cache);
    kern->free(dev, scratch);
    array_free(&out);
}

static void attention_case(struct kern_attention d)
{
    struct attention c = {.d = d};
    int64_t rows = d.B * d.T, row = (d.H + 2 * d.G) * d.D, count = rows * d.H * d.D;
    void *scratch;
    c.qkv = array_new(ARRAY_ACT, rows * row, 1);
    struct array out = array_out(ARRAY_ACT, count), dout = array_new(ARRAY_ACT, count, 1);
    struct array lse = array_out(ARRAY_FLOAT, d.B * d.H * d.T), dqkv = array_out(ARRAY_ACT, c.qkv.count);
    double *want = calloc((size_t)count, sizeof *want), *sums = calloc((size_t)lse.count, sizeof *sums);
    assert_ok(kern->alloc(dev, kern->attention_scratch(dev, &d) + 1, "scratch", &scratch));
    kern->attention_fwd(dev, out.dev, lse.dev, c.qkv.dev, &d, scratch);
    attention_forward(want, &c);
    array_near("attention", &out, want, product_tolerance());
    for (int64_t b = 0; b < d.B; b++)
        for (int64_t h = 0; h < d.H; h++)
            for (int64_t i = 0; i < d.T; i++) {
                double sum = 0;
                for (int64_t j = 0; j <= i; j++) {
                    double dot = 0;
                    for (int64_t k = 0; k < d.D; k++)
                        dot += c.qkv.d[(b * d.T + i) * row + h * d.D + k] *
                               c.qkv.d[(b * d.T + j) * row + (d.H + h / (d.H / d.G)) * d.D + k];
                    sum += exp(dot / sqrt((double)d.D));
                }
                sums[(b * d.H + h) * d.T + i] = log(sum);
            }
    array_near("log-sum-exp", &lse, sums, 1e-4 + arrays_operand_error());
    kern->attention_bwd(dev, dqkv.dev, dout.dev, out.dev, c.qkv.dev, lse.dev, &d, scratch);
    array_gradient("attention dqkv", attention_forward, &c, &dout, &c.qkv, &dqkv, NULL, product_gradient_tolerance());
    if (d.B == 1)
        decode_case(&c, want);
    free(want);
    free(sums);
    kern->free(dev, scratch);
    arrays_free(&c.qkv, &out, &dout, &lse, &dqkv, NULL);
}

void attention_holds(void **state)
{
    (void)state;
    /* one position; grouped heads; tile borders; several tiles with a rest; every head size that there is */
    static const struct kern_attention shapes[] = {
        {2, 1, 2, 1, 4},   {2, 17, 4, 2, 6},    {1, 128, 2, 2, 8},  {2, 150, 4, 1, 10},
        {2, 1, 2, 1, 16},  {1, 17, 4, 2, 32},   {1, 64, 2, 2, 64},  {2, 150, 4, 1, 16},
        {1, 65, 3, 1, 16}, {1, 130, 2, 1, 128}, {1, 150, 4, 1, 64}, {2, 130, 4, 2, 128},
    };
    int done = 0;
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++)
        if (kern->has_head_size(shapes[s].D)) {
            attention_case(shapes[s]);
            done++;
        }
    assert_true(done >= 5);
    assert_false(kern->has_head_size(0));
    assert_false(kern->has_head_size(3));
}

/* ---- SwiGLU ---- */

struct swiglu {
    struct array gu;
    int64_t R, F;
};

static void swiglu_forward(double *out, void *context)
{
    const struct swiglu *c = context;
    ref_swiglu(out, c->gu.d, c->R, c->F);
}

static void swiglu_case(int64_t R, int64_t F)
{
    struct swiglu c = {.gu = array_new(ARRAY_ACT, 2 * R * F, 4), .R = R, .F = F};
    struct array out = array_out(ARRAY_ACT, R * F), dout = array_new(ARRAY_ACT, R * F, 1);
    struct array dgu = array_out(ARRAY_ACT, 2 * R * F);
    double *want = calloc((size_t)(R * F), sizeof *want);
    if (R * F > 1) { /* where e^x leaves the range of float */
        c.gu.d[0] = -100;
        c.gu.d[1] = 100;
        array_write(&c.gu);
    }
    kern->swiglu_fwd(dev, out.dev, c.gu.dev, R, F);
    swiglu_forward(want, &c);
    array_near("swiglu", &out, want, tolerance());
    kern->swiglu_bwd(dev, dgu.dev, dout.dev, c.gu.dev, R, F);
    array_gradient("swiglu dgu", swiglu_forward, &c, &dout, &c.gu, &dgu, NULL, gradient_tolerance());
    free(want);
    arrays_free(&c.gu, &out, &dout, &dgu, NULL);
}

static void swiglu_holds(void **state)
{
    (void)state;
    swiglu_case(1, 1);
    swiglu_case(6, 50);
    swiglu_case(5, 176);
}

/* ---- what is not finite ---- */

static void assert_not_finite(const char *what, struct array *array, int64_t first, int64_t count)
{
    const float *got = array_read(array);
    for (int64_t i = first; i < first + count; i++)
        if (isfinite(got[i]))
            fail_msg("%s: value %lld is %g, and comes of one that is not finite", what, (long long)i, (double)got[i]);
}

static void bad_linear(double bad)
{
    const struct kern_linear s = {.R = 5, .K = 40, .N = 24, .ld = 24};
    struct array inp = array_new(ARRAY_ACT, s.R * s.K, 1), w = array_new(ARRAY_ACT, s.N * s.K, 1);
    struct array out = array_out(ARRAY_ACT, s.R * s.N), dw = array_new(ARRAY_FLOAT, s.N * s.K, 1);
    inp.d[2 * s.K + 7] = bad;
    array_write(&inp);
    kern->linear_fwd(dev, out.dev, inp.dev, w.dev, s);
    assert_not_finite("linear", &out, 2 * s.N, s.N);
    kern->linear_bwd_w(dev, dw.dev, out.dev, inp.dev, s);
    assert_not_finite("linear dw", &dw, 0, dw.count);
    kern->linear_bwd_inp(dev, inp.dev, out.dev, w.dev, s, false);
    assert_not_finite("linear dinp", &inp, 2 * s.K, s.K);
    arrays_free(&inp, &w, &out, &dw, NULL);
}

static void bad_rows(double bad)
{
    enum { R = 4, C = 48 };
    struct array inp = array_new(ARRAY_ACT, R * C, 1), w = array_new(ARRAY_ACT, C, 1);
    struct array out = array_out(ARRAY_ACT, R * C), rstd = array_out(ARRAY_FLOAT, R);
    struct array dinp = array_new(ARRAY_ACT, R * C, 1), dw = array_new(ARRAY_FLOAT, C, 1);
    inp.d[C + 5] = bad;
    array_write(&inp);
    kern->rmsnorm_fwd(dev, out.dev, rstd.dev, NULL, inp.dev, NULL, w.dev, R, C, 1e-5f);
    assert_not_finite("rmsnorm", &out, C + 5, 1);
    kern->rmsnorm_bwd(dev, dinp.dev, dw.dev, out.dev, inp.dev, w.dev, rstd.dev, R, C);
    assert_not_finite("rmsnorm dinp", &dinp, C + 5, 1);
    assert_not_finite("rmsnorm dw", &dw, 5, 1);
    kern->swiglu_fwd(dev, out.dev, inp.dev, R, C / 2); /* rows of gate and up */
    assert_not_finite("swiglu", &out, C / 2 + 5, 1);
    kern->swiglu_bwd(dev, dinp.dev, out.dev, inp.dev, R, C / 2);
    assert_not_finite("swiglu dgu", &dinp, C + C / 2 + 5, 1);
    arrays_free(&inp, &w, &out, &rstd, &dinp, &dw, NULL);
}

/* Of a value, all positions from its own on; of a query, its own; of what comes back, at least that. */
static void bad_attention(double bad)
{
    const struct kern_attention d = {.B = 1, .T = 70, .H = 2, .G = 1, .D = 16};
    enum { AT = 3 };
    int64_t row = (d.H + 2 * d.G) * d.D, width = d.H * d.D;
    struct array qkv = array_new(ARRAY_ACT, d.T * row, 1), out = array_out(ARRAY_ACT, d.T * width);
    struct array lse = array_out(ARRAY_FLOAT, d.H * d.T), dqkv = array_out(ARRAY_ACT, d.T * row);
    struct array dout = array_new(ARRAY_ACT, d.T * width, 1);
    void *scratch;
    assert_ok(kern->alloc(dev, kern->attention_scratch(dev, &d) + 1, "scratch", &scratch));
    qkv.d[AT * row + (d.H + d.G) * d.D + 2] = bad;
    array_write(&qkv);
    kern->attention_fwd(dev, out.dev, lse.dev, qkv.dev, &d, scratch);
    for (int64_t t = AT; t < d.T; t++)
        assert_not_finite("attention by a value", &out, t * width + 2, 1);
    qkv.d[AT * row + (d.H + d.G) * d.D + 2] = 1;
    qkv.d[AT * row] = NAN;
    array_write(&qkv);
    kern->attention_fwd(dev, out.dev, lse.dev, qkv.dev, &d, scratch);
    assert_not_finite("attention by a query", &out, AT * width, d.D);
    kern->attention_bwd(dev, dqkv.dev, dout.dev, out.dev, qkv.dev, lse.dev, &d, scratch);
    assert_not_finite("attention dqkv", &dqkv, AT * row, d.D);
    kern->free(dev, scratch);
    arrays_free(&qkv, &out, &lse, &dqkv, &dout, NULL);
}

static const double bad_values[] = {NAN, INFINITY, -INFINITY};

void attention_keeps_what_is_not_finite(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof bad_values / sizeof bad_values[0]; i++)
        bad_attention(bad_values[i]);
}

/* It is to reach the norm of the gradient, by which the step is skipped: nothing on the way makes a number of it. */
static void what_is_not_finite_does_not_vanish(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof bad_values / sizeof bad_values[0]; i++) {
        bad_linear(bad_values[i]);
        if (bad_values[i] != -INFINITY) /* of which SwiGLU rightly makes 0 */
            bad_rows(bad_values[i]);
        bad_attention(bad_values[i]);
    }
}

const struct CMUnitTest cases_pass[] = {
    cmocka_unit_test(linear_holds),
    cmocka_unit_test(kept_weights_are_those_that_were_written),
    cmocka_unit_test(embedding_holds),
    cmocka_unit_test(rmsnorm_holds),
    cmocka_unit_test(rope_rotates_and_returns),
    cmocka_unit_test(attention_holds),
    cmocka_unit_test(swiglu_holds),
    cmocka_unit_test(what_is_not_finite_does_not_vanish),
};
const size_t cases_pass_count = sizeof cases_pass / sizeof cases_pass[0];
