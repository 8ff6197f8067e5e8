/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of attention's scores, and what else its two forms have in common. */
#include "kernels/cpu/cpu_scores.h"

float CPU(softmax_row)(float *restrict s, int64_t n, int64_t keys)
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

void CPU(score_gradient_row)(float *restrict p, float *restrict dp, int64_t n, int64_t keys, float lse, float delta,
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

void CPU(zero_head)(float *dqkv, const struct cpu_heads *v, int64_t at)
{
    for (int64_t t = 0; t < v->d->T; t++)
        memset(dqkv + at + t * v->row, 0, (size_t)v->d->D * sizeof *dqkv);
}
