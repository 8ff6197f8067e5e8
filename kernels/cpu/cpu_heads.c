/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention with bf16 operands, added up in float: the tiles of cpu_attention.c, whose softmax it has.
 *
 * Its products are small and many, so they are loops of our own on AVX512-BF16, which multiplies pairs of neighbours
 * along what is added up over: oneDNN's primitives take two microseconds to begin, and a tile's product ten. An operand
 * is made of pairs, a word each, once for a head or a tile: `rows` as they lie, pairs within a row; `columns`, pairs
 * within a row and the array turned; `pairs` of two rows, interleaved. Where an odd one is left over its neighbour is
 * 0.
 */
#include "kernels/cpu/cpu_scores.h"

#if defined(__AVX512F__) && defined(__AVX512BW__)

#include <immintrin.h>

#define WITH_BF16 __attribute__((target("avx512bf16")))

enum { LANES = 16, WIDE = 4, TALL = 6 };

static int64_t up(int64_t value, int64_t unit)
{
    return (value + unit - 1) / unit * unit;
}

/* ---- operands ---- */

static inline uint32_t pair_of(float low, float high)
{
    return (uint32_t)cpu_half_of(low) | (uint32_t)cpu_half_of(high) << 16;
}

/* to(rows, (columns+1)/2) */
static void make_rows(uint32_t *restrict to, const float *restrict from, int64_t rows, int64_t columns, int64_t ld,
                      float scale)
{
    int64_t pairs = (columns + 1) / 2;
    for (int64_t r = 0; r < rows; r++) {
        cpu_half *restrict row = (cpu_half *)(to + r * pairs);
        for (int64_t i = 0; i < columns; i++)
            row[i] = cpu_half_of(scale * from[r * ld + i]);
        if (columns % 2 != 0)
            row[columns] = 0;
    }
}

/* to(columns/2, ld_to) of from(rows, columns), columns even */
static void make_columns(uint32_t *restrict to, int64_t ld_to, const float *restrict from, int64_t rows,
                         int64_t columns, int64_t ld)
{
    for (int64_t r0 = 0; r0 < rows; r0 += LANES) {
        int64_t r1 = r0 + LANES < rows ? r0 + LANES : rows;
        for (int64_t p = 0; p < columns / 2; p++) {
            for (int64_t r = r0; r < r1; r++)
                to[p * ld_to + r] = pair_of(from[r * ld + 2 * p], from[r * ld + 2 * p + 1]);
            for (int64_t r = r1; r < r0 + LANES; r++)
                to[p * ld_to + r] = 0;
        }
    }
}

/* to((rows+1)/2, ld_to) of from(rows, columns) */
static void make_pairs(uint32_t *restrict to, int64_t ld_to, const float *restrict from, int64_t rows, int64_t columns,
                       int64_t ld)
{
    for (int64_t p = 0; p < (rows + 1) / 2; p++) {
        const float *low = from + 2 * p * ld, *high = low + ld;
        uint32_t *row = to + p * ld_to;
        if (2 * p + 1 < rows)
            for (int64_t i = 0; i < columns; i++)
                row[i] = pair_of(low[i], high[i]);
        else
            for (int64_t i = 0; i < columns; i++)
                row[i] = cpu_half_of(low[i]);
        for (int64_t i = columns; i < ld_to; i++)
            row[i] = 0;
    }
}

/* ---- products ---- */

struct small {
    float *c; /* (rows, n), rows ldc apart */
    int64_t ldc, rows, n;
    const uint32_t *a; /* pair p of row r is a[r * row + p * step] */
    int64_t row, step;
    const uint32_t *b; /* (pairs, ldb), and readable up to a multiple of LANES */
    int64_t ldb, pairs;
    bool add;
};

WITH_BF16 static inline __attribute__((always_inline)) void block(const struct small *s, int64_t r0, int64_t n0,
                                                                  const int tall, const int wide)
{
    __m512 sum[TALL][WIDE];
    const uint32_t *a = s->a + r0 * s->row, *b = s->b + n0;
    for (int r = 0; r < tall; r++)
        for (int w = 0; w < wide; w++)
            sum[r][w] = _mm512_setzero_ps();
    for (int64_t p = 0; p < s->pairs; p++) {
        __m512i right[WIDE];
        for (int w = 0; w < wide; w++)
            right[w] = _mm512_loadu_si512(b + p * s->ldb + w * LANES);
        for (int r = 0; r < tall; r++) {
            __m512i left = _mm512_set1_epi32((int)a[r * s->row + p * s->step]);
            for (int w = 0; w < wide; w++)
                sum[r][w] = _mm512_dpbf16_ps(sum[r][w], (__m512bh)left, (__m512bh)right[w]);
        }
    }
    for (int r = 0; r < tall; r++)
        for (int w = 0; w < wide; w++) {
            int64_t left = s->n - n0 - w * LANES;
            __mmask16 mask = left >= LANES ? 0xffff : (__mmask16)((1u << left) - 1);
            float *to = s->c + (r0 + r) * s->ldc + n0 + w * LANES;
            __m512 before = s->add ? _mm512_maskz_loadu_ps(mask, to) : _mm512_setzero_ps();
            _mm512_mask_storeu_ps(to, mask, _mm512_add_ps(before, sum[r][w]));
        }
}

WITH_BF16 static void multiply(const struct small *s)
{
    for (int64_t n = 0; n<s->n; n += s->n - n>(WIDE - 1) * LANES ? WIDE * LANES : LANES) {
        bool wide = s->n - n > (WIDE - 1) * LANES;
        int64_t r = 0;
        for (; wide && r + TALL <= s->rows; r += TALL)
            block(s, r, n, TALL, WIDE);
        for (; wide && r < s->rows; r++)
            block(s, r, n, 1, WIDE);
        for (; r + TALL <= s->rows; r += TALL)
            block(s, r, n, TALL, 1);
        for (; r < s->rows; r++)
            block(s, r, n, 1, 1);
    }
}

/* ---- what a thread has ---- */

struct bench {
    float *p, *dp;                      /* (CPU_TILE, T) */
    uint32_t *panel[3];                 /* of a head: its keys and values, all positions */
    uint32_t *rows, *other;             /* of a tile: (CPU_TILE, D/2) */
    uint32_t *pairs, *other_pairs;      /* (CPU_TILE/2, D) */
    uint32_t *score_rows, *score_pairs; /* (CPU_TILE, T/2), (CPU_TILE/2, T) */
    int64_t T, D;                       /* rounded up to LANES: what the arrays are laid out with */
};

/* Words of one after the other, in the order of the struct. */
static size_t sizes(const struct kern_attention *d, size_t words[9])
{
    int64_t T = up(d->T, LANES), D = up(d->D, LANES), sum = 0;
    const int64_t all[9] = {D * T / 2,        D * T / 2,        D * T / 2,        CPU_TILE * D / 2, CPU_TILE * D / 2,
                            CPU_TILE / 2 * D, CPU_TILE / 2 * D, CPU_TILE * T / 2, CPU_TILE / 2 * T};
    for (int i = 0; i < 9; i++) {
        words[i] = (size_t)all[i];
        sum += all[i];
    }
    return (size_t)sum;
}

size_t CPU(heads_bf16_bytes)(const struct kern_attention *dims)
{
    size_t words[9];
    return sizes(dims, words) * sizeof(uint32_t);
}

static struct bench bench_at(const struct kern_attention *d, float *memory)
{
    struct bench b = {.T = up(d->T, LANES), .D = up(d->D, LANES)};
    uint32_t **const places[9] = {&b.panel[0], &b.panel[1],    &b.panel[2],   &b.rows,       &b.other,
                                  &b.pairs,    &b.other_pairs, &b.score_rows, &b.score_pairs};
    int64_t tile = CPU_TILE < d->T ? CPU_TILE : d->T;
    size_t words[9];
    sizes(d, words);
    b.p = memory;
    b.dp = memory + tile * d->T;
    uint32_t *next = (uint32_t *)(b.dp + tile * d->T);
    for (int i = 0; i < 9; i++) {
        *places[i] = next;
        next += words[i];
    }
    return b;
}

/* ---- forward ---- */

static void scores(const struct bench *b, float *to, const uint32_t *rows, const uint32_t *panel, int64_t count,
                   int64_t keys, int64_t D)
{
    multiply(&(struct small){.c = to,
                             .ldc = keys,
                             .rows = count,
                             .n = keys,
                             .a = rows,
                             .row = D / 2,
                             .step = 1,
                             .b = panel,
                             .ldb = b->T,
                             .pairs = D / 2});
}

static void forward_tile(const struct cpu_heads *v, const struct bench *w, float *out, float *lse, const float *qkv,
                         int64_t b, int64_t h, int64_t q0)
{
    const struct kern_attention *d = v->d;
    int64_t rows = d->T - q0 < CPU_TILE ? d->T - q0 : CPU_TILE;
    int64_t keys = q0 + rows, width = d->H * d->D;
    make_rows(w->rows, qkv + cpu_at_q(v, b, h) + q0 * v->row, rows, d->D, v->row, v->scale);
    scores(w, w->p, w->rows, w->panel[0], rows, keys, d->D);
    for (int64_t i = 0; i < rows; i++)
        lse[(b * d->H + h) * d->T + q0 + i] = CPU(softmax_row)(w->p + i * keys, q0 + i + 1, keys);
    make_rows(w->score_rows, w->p, rows, keys, keys, 1);
    multiply(&(struct small){.c = out + cpu_at_out(v, b, h) + q0 * width,
                             .ldc = width,
                             .rows = rows,
                             .n = d->D,
                             .a = w->score_rows,
                             .row = (keys + 1) / 2,
                             .step = 1,
                             .b = w->panel[1],
                             .ldb = w->D,
                             .pairs = (keys + 1) / 2});
}

void CPU(heads_bf16_fwd)(float *out, float *lse, const float *qkv, const struct kern_attention *dims, float *scratch,
                         size_t per_thread)
{
    struct cpu_heads v = cpu_heads_of(dims);
    int64_t group = dims->H / dims->G;
#pragma omp parallel for schedule(static)
    for (int64_t bh = 0; bh < dims->B * dims->H; bh++) {
        struct bench w = bench_at(dims, scratch + (size_t)cpu_thread() * per_thread);
        int64_t b = bh / dims->H, h = bh % dims->H;
        make_columns(w.panel[0], w.T, qkv + cpu_at_k(&v, b, h / group), dims->T, dims->D, v.row);
        make_pairs(w.panel[1], w.D, qkv + cpu_at_v(&v, b, h / group), dims->T, dims->D, v.row);
        for (int64_t q0 = 0; q0 < dims->T; q0 += CPU_TILE)
            forward_tile(&v, &w, out, lse, qkv, b, h, q0);
    }
}

/* ---- backward ---- */

struct back {
    struct cpu_heads v;
    float *dqkv;
    const float *dout, *out, *qkv, *lse;
};

/* to(keys,D) += scores(rows,keys)^T x(rows,D), both as pairs of rows */
static void add_back(const struct bench *w, float *to, int64_t ldc, const uint32_t *pairs, int64_t rows, int64_t keys,
                     int64_t D)
{
    multiply(&(struct small){.c = to,
                             .ldc = ldc,
                             .rows = keys,
                             .n = D,
                             .a = w->score_pairs,
                             .row = 1,
                             .step = w->T,
                             .b = pairs,
                             .ldb = w->D,
                             .pairs = (rows + 1) / 2,
                             .add = true});
}

static void backward_tile(const struct back *x, const struct bench *w, int64_t b, int64_t h, int64_t q0)
{
    const struct cpu_heads *v = &x->v;
    const struct kern_attention *d = v->d;
    int64_t rows = d->T - q0 < CPU_TILE ? d->T - q0 : CPU_TILE;
    int64_t keys = q0 + rows, g = h / (d->H / d->G), width = d->H * d->D;
    const float *q = x->qkv + cpu_at_q(v, b, h) + q0 * v->row;
    const float *dout = x->dout + cpu_at_out(v, b, h) + q0 * width;
    const float *out = x->out + cpu_at_out(v, b, h) + q0 * width;
    make_rows(w->rows, q, rows, d->D, v->row, v->scale);
    make_rows(w->other, dout, rows, d->D, width, 1);
    make_pairs(w->pairs, w->D, q, rows, d->D, v->row);
    make_pairs(w->other_pairs, w->D, dout, rows, d->D, width);
    scores(w, w->p, w->rows, w->panel[0], rows, keys, d->D);
    scores(w, w->dp, w->other, w->panel[1], rows, keys, d->D);
    for (int64_t i = 0; i < rows; i++) {
        float delta = 0;
#pragma omp simd reduction(+ : delta)
        for (int64_t c = 0; c < d->D; c++)
            delta += dout[i * width + c] * out[i * width + c];
        CPU(score_gradient_row)
        (w->p + i * keys, w->dp + i * keys, q0 + i + 1, keys, x->lse[(b * d->H + h) * d->T + q0 + i], delta, v->scale);
    }
    make_pairs(w->score_pairs, w->T, w->p, rows, keys, keys);
    add_back(w, x->dqkv + cpu_at_v(v, b, g), v->row, w->other_pairs, rows, keys, d->D);
    make_rows(w->score_rows, w->dp, rows, keys, keys, 1);
    multiply(&(struct small){.c = x->dqkv + cpu_at_q(v, b, h) + q0 * v->row,
                             .ldc = v->row,
                             .rows = rows,
                             .n = d->D,
                             .a = w->score_rows,
                             .row = (keys + 1) / 2,
                             .step = 1,
                             .b = w->panel[2],
                             .ldb = w->D,
                             .pairs = (keys + 1) / 2});
    make_pairs(w->score_pairs, w->T, w->dp, rows, keys, keys);
    add_back(w, x->dqkv + cpu_at_k(v, b, g), v->row, w->pairs, rows, keys, d->D);
}

void CPU(heads_bf16_bwd)(float *dqkv, const float *dout, const float *out, const float *qkv, const float *lse,
                         const struct kern_attention *dims, float *scratch, size_t per_thread)
{
    struct back x = {cpu_heads_of(dims), dqkv, dout, out, qkv, lse};
    int64_t group = dims->H / dims->G;
#pragma omp parallel for schedule(static)
    for (int64_t bg = 0; bg < dims->B * dims->G; bg++) {
        struct bench w = bench_at(dims, scratch + (size_t)cpu_thread() * per_thread);
        int64_t b = bg / dims->G, g = bg % dims->G;
        make_columns(w.panel[0], w.T, qkv + cpu_at_k(&x.v, b, g), dims->T, dims->D, x.v.row);
        make_columns(w.panel[1], w.T, qkv + cpu_at_v(&x.v, b, g), dims->T, dims->D, x.v.row);
        make_pairs(w.panel[2], w.D, qkv + cpu_at_k(&x.v, b, g), dims->T, dims->D, x.v.row);
        CPU(zero_head)(dqkv, &x.v, cpu_at_k(&x.v, b, g));
        CPU(zero_head)(dqkv, &x.v, cpu_at_v(&x.v, b, g));
        for (int64_t h = g * group; h < (g + 1) * group; h++)
            for (int64_t q0 = 0; q0 < dims->T; q0 += CPU_TILE)
                backward_tile(&x, &w, b, h, q0);
    }
}

#else

size_t CPU(heads_bf16_bytes)(const struct kern_attention *dims)
{
    (void)dims;
    return 0;
}

void CPU(heads_bf16_fwd)(float *out, float *lse, const float *qkv, const struct kern_attention *dims, float *scratch,
                         size_t per_thread)
{
    (void)out, (void)lse, (void)qkv, (void)dims, (void)scratch, (void)per_thread;
}

void CPU(heads_bf16_bwd)(float *dqkv, const float *dout, const float *out, const float *qkv, const float *lse,
                         const struct kern_attention *dims, float *scratch, size_t per_thread)
{
    (void)dqkv, (void)dout, (void)out, (void)qkv, (void)lse, (void)dims, (void)scratch, (void)per_thread;
}

#endif
