/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cpu_scores: rows of scores, and where the heads of attention lie in qkv(R, (H+2G) D) and out(R, H D), and what its
 * two forms (in float: cpu_attention.c; with bf16 operands: cpu_heads.c) do alike; private to them.
 */
#ifndef KERNELS_CPU_CPU_SCORES_H
#define KERNELS_CPU_CPU_SCORES_H

#include <math.h>

#include "kernels/cpu/cpu.h"

enum { CPU_TILE = 128 }; /* rows of queries at a time */

struct cpu_heads {
    const struct kern_attention *d;
    int64_t row; /* floats between two positions in qkv */
    float scale;
};

static inline struct cpu_heads cpu_heads_of(const struct kern_attention *dims)
{
    return (struct cpu_heads){
        .d = dims, .row = (dims->H + 2 * dims->G) * dims->D, .scale = 1.0f / sqrtf((float)dims->D)};
}

/* Offsets of a head's first element at the first position of batch b. */
static inline int64_t cpu_at_q(const struct cpu_heads *v, int64_t b, int64_t h)
{
    return b * v->d->T * v->row + h * v->d->D;
}

static inline int64_t cpu_at_k(const struct cpu_heads *v, int64_t b, int64_t g)
{
    return b * v->d->T * v->row + (v->d->H + g) * v->d->D;
}

static inline int64_t cpu_at_v(const struct cpu_heads *v, int64_t b, int64_t g)
{
    return b * v->d->T * v->row + (v->d->H + v->d->G + g) * v->d->D;
}

static inline int64_t cpu_at_out(const struct cpu_heads *v, int64_t b, int64_t h)
{
    return (b * v->d->T * v->d->H + h) * v->d->D;
}

/* Row of `n` scores to probabilities; the rest up to `keys` becomes 0. Returns the row's log-sum-exp. */
float CPU(softmax_row)(float *restrict s, int64_t n, int64_t keys);
/* p: scores to probabilities by the stored log-sum-exp; then ds = p * (dp - delta) * scale in place of dp. */
void CPU(score_gradient_row)(float *restrict p, float *restrict dp, int64_t n, int64_t keys, float lse, float delta,
                             float scale);
/* One head of a batch, at all positions. */
void CPU(zero_head)(float *dqkv, const struct cpu_heads *v, int64_t at);

#endif
