/*
 * Causal grouped-query attention, a tile of query rows at a time (after FlashAttention-2, Dao 2023).
 *
 * For a tile of TILE query rows the scores against all keys up to the tile's last row fit a thread's scratch,
 * (TILE, T) floats; nothing of size T x T is ever held, and the backward pass recomputes the scores from the stored
 * log-sum-exp. Forward: (batch, query head) pairs in parallel. Backward: (batch, key/value head) pairs, because the
 * query heads of a group add into the same dK and dV.
 */
#include <math.h>

#include "kernels/cpu/cpu.h"

enum { TILE = 128 };

struct view {
    const struct kern_attention *d;
    int64_t row; /* floats between two positions in qkv */
    float scale;
};

static struct view view_of(const struct kern_attention *dims)
{
    return (struct view){.d = dims, .row = (dims->H + 2 * dims->G) * dims->D, .scale = 1.0f / sqrtf((float)dims->D)};
}

/* Offsets of a head's first element at the first position of batch b. */
static int64_t at_q(const struct view *v, int64_t b, int64_t h)
{
    return b * v->d->T * v->row + h * v->d->D;
}

static int64_t at_k(const struct view *v, int64_t b, int64_t g)
{
    return b * v->d->T * v->row + (v->d->H + g) * v->d->D;
}

static int64_t at_v(const struct view *v, int64_t b, int64_t g)
{
    return b * v->d->T * v->row + (v->d->H + v->d->G + g) * v->d->D;
}

static int64_t at_out(const struct view *v, int64_t b, int64_t h)
{
    return (b * v->d->T * v->d->H + h) * v->d->D;
}

size_t CPU(attention_scratch)(const struct kern_dev *dev, const struct kern_attention *dims)
{
    int64_t tile = TILE < dims->T ? TILE : dims->T;
    return (size_t)dev->threads * 2 * (size_t)(tile * dims->T) * sizeof(float);
}

/* Row of `n` scores to probabilities; the rest up to `keys` becomes 0. Returns the row's log-sum-exp. */
static float softmax_row(float *restrict s, int64_t n, int64_t keys)
{
    float most = s[0];
#pragma omp simd reduction(max : most)
    for (int64_t j = 0; j < n; j++)
        most = s[j] > most ? s[j] : most;
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t j = 0; j < n; j++) {
        float e = cpu_exp(s[j] - most);
        s[j] = e;
        sum += e;
    }
    float inverse = 1.0f / sum;
    for (int64_t j = 0; j < n; j++)
        s[j] *= inverse;
    for (int64_t j = n; j < keys; j++)
        s[j] = 0;
    return most + logf(sum);
}

static void forward_tile(const struct view *v, float *out, float *lse, const float *qkv, int64_t b, int64_t h,
                         int64_t q0, float *s)
{
    const struct kern_attention *d = v->d;
    int64_t rows = d->T - q0 < TILE ? d->T - q0 : TILE;
    int64_t keys = q0 + rows;
    int64_t g = h / (d->H / d->G);
    CPU(gemm)
    (false, true, rows, keys, d->D, v->scale, qkv + at_q(v, b, h) + q0 * v->row, v->row, qkv + at_k(v, b, g), v->row, 0,
     s, keys);
    for (int64_t i = 0; i < rows; i++)
        lse[(b * d->H + h) * d->T + q0 + i] = softmax_row(s + i * keys, q0 + i + 1, keys);
    CPU(gemm)
    (false, false, rows, d->D, keys, 1, s, keys, qkv + at_v(v, b, g), v->row, 0,
     out + at_out(v, b, h) + q0 * d->H * d->D, d->H * d->D);
}

void CPU(attention_fwd)(struct kern_dev *dev, kern_act *out, float *lse, const kern_act *qkv,
                        const struct kern_attention *dims, void *scratch)
{
    struct view v = view_of(dims);
    size_t per_thread = CPU(attention_scratch)(dev, dims) / (size_t)dev->threads / sizeof(float);
#pragma omp parallel for schedule(static)
    for (int64_t bh = 0; bh < dims->B * dims->H; bh++) {
        float *s = (float *)scratch + (size_t)cpu_thread() * per_thread;
        for (int64_t q0 = 0; q0 < dims->T; q0 += TILE)
            forward_tile(&v, out, lse, qkv, bh / dims->H, bh % dims->H, q0, s);
    }
}

/* p: scores to probabilities by the stored log-sum-exp; then ds = p * (dp - delta) * scale in place of dp. */
static void score_gradient_row(float *restrict p, float *restrict dp, int64_t n, int64_t keys, float lse, float delta,
                               float scale)
{
#pragma omp simd
    for (int64_t j = 0; j < n; j++) {
        float e = cpu_exp(p[j] - lse);
        p[j] = e;
        dp[j] = e * (dp[j] - delta) * scale;
    }
    for (int64_t j = n; j < keys; j++) {
        p[j] = 0;
        dp[j] = 0;
    }
}

struct backward {
    struct view v;
    float *dqkv;
    const float *dout, *out, *qkv, *lse;
};

static void backward_tile(const struct backward *w, int64_t b, int64_t h, int64_t q0, float *p, float *dp)
{
    const struct view *v = &w->v;
    const struct kern_attention *d = v->d;
    int64_t rows = d->T - q0 < TILE ? d->T - q0 : TILE;
    int64_t keys = q0 + rows;
    int64_t g = h / (d->H / d->G);
    int64_t width = d->H * d->D;
    const float *q = w->qkv + at_q(v, b, h) + q0 * v->row;
    const float *k = w->qkv + at_k(v, b, g);
    const float *value = w->qkv + at_v(v, b, g);
    const float *dout = w->dout + at_out(v, b, h) + q0 * width;
    const float *out = w->out + at_out(v, b, h) + q0 * width;
    CPU(gemm)(false, true, rows, keys, d->D, v->scale, q, v->row, k, v->row, 0, p, keys);
    CPU(gemm)(false, true, rows, keys, d->D, 1, dout, width, value, v->row, 0, dp, keys);
    for (int64_t i = 0; i < rows; i++) {
        float delta = 0;
#pragma omp simd reduction(+ : delta)
        for (int64_t c = 0; c < d->D; c++)
            delta += dout[i * width + c] * out[i * width + c];
        score_gradient_row(p + i * keys, dp + i * keys, q0 + i + 1, keys, w->lse[(b * d->H + h) * d->T + q0 + i], delta,
                           v->scale);
    }
    CPU(gemm)(true, false, keys, d->D, rows, 1, p, keys, dout, width, 1, w->dqkv + at_v(v, b, g), v->row);
    CPU(gemm)(false, false, rows, d->D, keys, 1, dp, keys, k, v->row, 0, w->dqkv + at_q(v, b, h) + q0 * v->row, v->row);
    CPU(gemm)(true, false, keys, d->D, rows, 1, dp, keys, q, v->row, 1, w->dqkv + at_k(v, b, g), v->row);
}

static void zero_head(float *dqkv, const struct view *v, int64_t at)
{
    for (int64_t t = 0; t < v->d->T; t++)
        memset(dqkv + at + t * v->row, 0, (size_t)v->d->D * sizeof *dqkv);
}

void CPU(attention_bwd)(struct kern_dev *dev, kern_act *dqkv, const kern_act *dout, const kern_act *out,
                        const kern_act *qkv, const float *lse, const struct kern_attention *dims, void *scratch)
{
    struct backward w = {view_of(dims), dqkv, dout, out, qkv, lse};
    size_t per_thread = CPU(attention_scratch)(dev, dims) / (size_t)dev->threads / sizeof(float);
    int64_t group = dims->H / dims->G;
#pragma omp parallel for schedule(static)
    for (int64_t bg = 0; bg < dims->B * dims->G; bg++) {
        float *p = (float *)scratch + (size_t)cpu_thread() * per_thread;
        float *dp = p + per_thread / 2;
        int64_t b = bg / dims->G;
        int64_t g = bg % dims->G;
        zero_head(w.dqkv, &w.v, at_k(&w.v, b, g));
        zero_head(w.dqkv, &w.v, at_v(&w.v, b, g));
        for (int64_t h = g * group; h < (g + 1) * group; h++)
            for (int64_t q0 = 0; q0 < dims->T; q0 += TILE)
                backward_tile(&w, b, h, q0, p, dp);
    }
}

void CPU(attention_decode)(struct kern_dev *dev, kern_act *out, const kern_act *qkv_, kern_act *cache, int64_t at,
                           const struct kern_attention *dims, void *scratch)
{
    (void)dev;
    const float *qkv = qkv_;
    int64_t width = dims->G * dims->D;
    float *keys = cache;
    float *values = keys + dims->T * width;
    float *s = scratch; /* at + 1 scores */
    float scale = 1.0f / sqrtf((float)dims->D);
    memcpy(keys + at * width, qkv + dims->H * dims->D, (size_t)width * sizeof *keys);
    memcpy(values + at * width, qkv + (dims->H + dims->G) * dims->D, (size_t)width * sizeof *values);
    for (int64_t h = 0; h < dims->H; h++) {
        int64_t g = h / (dims->H / dims->G);
        CPU(gemm)
        (false, true, 1, at + 1, dims->D, scale, qkv + h * dims->D, dims->D, keys + g * dims->D, width, 0, s, at + 1);
        softmax_row(s, at + 1, at + 1);
        CPU(gemm)
        (false, false, 1, dims->D, at + 1, 1, s, at + 1, values + g * dims->D, width, 0, (float *)out + h * dims->D,
         dims->D);
    }
}
