/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Causal grouped-query attention, a tile of query rows at a time (after FlashAttention-2, Dao 2023).
 *
 * For a tile of CPU_TILE query rows the scores against all keys up to the tile's last row fit a thread's scratch,
 * (CPU_TILE, T) floats; nothing of size T x T is ever held, and the backward pass recomputes the scores from the stored
 * log-sum-exp. Forward: (batch, query head) pairs in parallel. Backward: (batch, key/value head) pairs, because the
 * query heads of a group add into the same dK and dV.
 */
#include <math.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/cpu_scores.h"

size_t CPU(attention_scratch)(const struct kern_dev *dev, const struct kern_attention *dims)
{
    int64_t tile = CPU_TILE < dims->T ? CPU_TILE : dims->T;
    size_t halves = dev->bf16 != NULL ? CPU(heads_bf16_bytes)(dims) : 0;
    return (size_t)dev->threads * (2 * (size_t)(tile * dims->T) * sizeof(float) + halves);
}

static void forward_tile(const struct cpu_heads *v, float *out, float *lse, const float *qkv, int64_t b, int64_t h,
                         int64_t q0, float *s)
{
    const struct kern_attention *d = v->d;
    int64_t rows = d->T - q0 < CPU_TILE ? d->T - q0 : CPU_TILE;
    int64_t keys = q0 + rows;
    int64_t g = h / (d->H / d->G);
    CPU(gemm)
    (false, true, rows, keys, d->D, v->scale, qkv + cpu_at_q(v, b, h) + q0 * v->row, v->row, qkv + cpu_at_k(v, b, g),
     v->row, 0, s, keys);
    for (int64_t i = 0; i < rows; i++)
        lse[(b * d->H + h) * d->T + q0 + i] = CPU(softmax_row)(s + i * keys, q0 + i + 1, keys);
    CPU(gemm)
    (false, false, rows, d->D, keys, 1, s, keys, qkv + cpu_at_v(v, b, g), v->row, 0,
     out + cpu_at_out(v, b, h) + q0 * d->H * d->D, d->H * d->D);
}

void CPU(attention_fwd)(struct kern_dev *dev, kern_act *out, float *lse, const kern_act *qkv,
                        const struct kern_attention *dims, void *scratch)
{
    struct cpu_heads v = cpu_heads_of(dims);
    size_t per_thread = CPU(attention_scratch)(dev, dims) / (size_t)dev->threads / sizeof(float);
    if (dev->bf16 != NULL && CPU(heads_bf16_bytes)(dims) > 0) {
        CPU(heads_bf16_fwd)(out, lse, qkv, dims, scratch, per_thread);
        return;
    }
#pragma omp parallel for schedule(static)
    for (int64_t bh = 0; bh < dims->B * dims->H; bh++) {
        float *s = (float *)scratch + (size_t)cpu_thread() * per_thread;
        for (int64_t q0 = 0; q0 < dims->T; q0 += CPU_TILE)
            forward_tile(&v, out, lse, qkv, bh / dims->H, bh % dims->H, q0, s);
    }
}

struct backward {
    struct cpu_heads v;
    float *dqkv;
    const float *dout, *out, *qkv, *lse;
};

static void backward_tile(const struct backward *w, int64_t b, int64_t h, int64_t q0, float *p, float *dp)
{
    const struct cpu_heads *v = &w->v;
    const struct kern_attention *d = v->d;
    int64_t rows = d->T - q0 < CPU_TILE ? d->T - q0 : CPU_TILE;
    int64_t keys = q0 + rows;
    int64_t g = h / (d->H / d->G);
    int64_t width = d->H * d->D;
    const float *q = w->qkv + cpu_at_q(v, b, h) + q0 * v->row;
    const float *k = w->qkv + cpu_at_k(v, b, g);
    const float *value = w->qkv + cpu_at_v(v, b, g);
    const float *dout = w->dout + cpu_at_out(v, b, h) + q0 * width;
    const float *out = w->out + cpu_at_out(v, b, h) + q0 * width;
    CPU(gemm)(false, true, rows, keys, d->D, v->scale, q, v->row, k, v->row, 0, p, keys);
    CPU(gemm)(false, true, rows, keys, d->D, 1, dout, width, value, v->row, 0, dp, keys);
    for (int64_t i = 0; i < rows; i++) {
        float delta = 0;
#pragma omp simd reduction(+ : delta)
        for (int64_t c = 0; c < d->D; c++)
            delta += dout[i * width + c] * out[i * width + c];
        CPU(score_gradient_row)
        (p + i * keys, dp + i * keys, q0 + i + 1, keys, w->lse[(b * d->H + h) * d->T + q0 + i], delta, v->scale);
    }
    CPU(gemm)(true, false, keys, d->D, rows, 1, p, keys, dout, width, 1, w->dqkv + cpu_at_v(v, b, g), v->row);
    CPU(gemm)
    (false, false, rows, d->D, keys, 1, dp, keys, k, v->row, 0, w->dqkv + cpu_at_q(v, b, h) + q0 * v->row, v->row);
    CPU(gemm)(true, false, keys, d->D, rows, 1, dp, keys, q, v->row, 1, w->dqkv + cpu_at_k(v, b, g), v->row);
}

void CPU(attention_bwd)(struct kern_dev *dev, kern_act *dqkv, const kern_act *dout, const kern_act *out,
                        const kern_act *qkv, const float *lse, const struct kern_attention *dims, void *scratch)
{
    struct backward w = {cpu_heads_of(dims), dqkv, dout, out, qkv, lse};
    size_t per_thread = CPU(attention_scratch)(dev, dims) / (size_t)dev->threads / sizeof(float);
    int64_t group = dims->H / dims->G;
    if (dev->bf16 != NULL && CPU(heads_bf16_bytes)(dims) > 0) {
        CPU(heads_bf16_bwd)(dqkv, dout, out, qkv, lse, dims, scratch, per_thread);
        return;
    }
#pragma omp parallel for schedule(static)
    for (int64_t bg = 0; bg < dims->B * dims->G; bg++) {
        float *p = (float *)scratch + (size_t)cpu_thread() * per_thread;
        float *dp = p + per_thread / 2;
        int64_t b = bg / dims->G;
        int64_t g = bg % dims->G;
        CPU(zero_head)(w.dqkv, &w.v, cpu_at_k(&w.v, b, g));
        CPU(zero_head)(w.dqkv, &w.v, cpu_at_v(&w.v, b, g));
        for (int64_t h = g * group; h < (g + 1) * group; h++)
            for (int64_t q0 = 0; q0 < dims->T; q0 += CPU_TILE)
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
        CPU(softmax_row)(s, at + 1, at + 1);
        CPU(gemm)
        (false, false, 1, dims->D, at + 1, 1, s, at + 1, values + g * dims->D, width, 0, (float *)out + h * dims->D,
         dims->D);
    }
}
