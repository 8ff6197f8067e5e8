/* SPDX-License-Identifier: Apache-2.0 */
/* Softmax and cross-entropy, row by row, in place: the logits' memory becomes that of their gradient, so that no second
 * array of (R,V) is needed. In one go, or in the three moves that ranks with a part of the vocabulary each take. */
#include <math.h>

#include "kernels/cpu/cpu.h"

/* Logits of this many bytes at a time: large vocabularies would otherwise need more memory than the model. */
enum { LOGITS_BYTES_MAX = 64 << 20 };

void CPU(logits_shape)(int64_t R, int64_t V, int64_t *rows, int64_t *ld)
{
    int64_t most = LOGITS_BYTES_MAX / (V * (int64_t)sizeof(float));
    *rows = most < 1 ? 1 : most > R ? R : most;
    *ld = V;
}

static float largest(const float *restrict x, int64_t count)
{
    float most = x[0];
#pragma omp simd reduction(max : most)
    for (int64_t i = 0; i < count; i++)
        most = x[i] > most ? x[i] : most;
    return most;
}

static float sum_exp(const float *restrict x, int64_t count, float most)
{
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < count; i++)
        sum += cpu_exp(x[i] - most);
    return sum;
}

void CPU(cross_entropy)(struct kern_dev *dev, float *losses, kern_act *logits_, const int32_t *targets,
                        struct kern_logits s, float scale)
{
    (void)dev;
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < s.R; r++) {
        float *restrict x = (float *)logits_ + r * s.ld;
        float most = largest(x, s.V);
        float at_target = x[targets[r]];
        float sum = 0;
        if (scale == 0) {
            sum = sum_exp(x, s.V, most);
        } else {
#pragma omp simd reduction(+ : sum)
            for (int64_t i = 0; i < s.V; i++) {
                float e = cpu_exp(x[i] - most);
                x[i] = e;
                sum += e;
            }
            float factor = scale / sum;
            for (int64_t i = 0; i < s.V; i++)
                x[i] *= factor;
            x[targets[r]] -= scale;
        }
        losses[r] = logf(sum) + most - at_target;
    }
}

void CPU(loss_part)(struct kern_dev *dev, float *stats, const kern_act *logits, const int32_t *targets,
                    struct kern_logits s)
{
    (void)dev;
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < s.R; r++) {
        const float *x = (const float *)logits + r * s.ld;
        int64_t at = targets[r] - s.first;
        float most = largest(x, s.V);
        stats[3 * r] = most;
        stats[3 * r + 1] = sum_exp(x, s.V, most);
        stats[3 * r + 2] = at >= 0 && at < s.V ? x[at] : 0;
    }
}

void CPU(loss_join)(struct kern_dev *dev, float *losses, float *lse, const float *stats, int64_t parts, int64_t R)
{
    (void)dev;
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < R; r++) {
        float most = stats[3 * r];
        float sum = 0;
        float at_target = 0;
        for (int64_t p = 1; p < parts; p++)
            most = stats[3 * (p * R + r)] > most ? stats[3 * (p * R + r)] : most;
        for (int64_t p = 0; p < parts; p++) {
            const float *part = stats + 3 * (p * R + r);
            sum += part[1] * cpu_exp(part[0] - most);
            at_target += part[2];
        }
        lse[r] = logf(sum) + most;
        losses[r] = lse[r] - at_target;
    }
}

void CPU(loss_back)(struct kern_dev *dev, kern_act *logits, const float *lse, const int32_t *targets,
                    struct kern_logits s, float scale)
{
    (void)dev;
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < s.R; r++) {
        float *restrict x = (float *)logits + r * s.ld;
        int64_t at = targets[r] - s.first;
        float whole = lse[r];
#pragma omp simd
        for (int64_t i = 0; i < s.V; i++)
            x[i] = scale * cpu_exp(x[i] - whole);
        if (at >= 0 && at < s.V)
            x[at] -= scale;
    }
}

void CPU(add_losses)(struct kern_dev *dev, double *total, const float *losses, int64_t R, double factor)
{
    double sum = 0;
    (void)dev;
    for (int64_t r = 0; r < R; r++)
        sum += (double)losses[r];
    *total += factor * sum;
}
