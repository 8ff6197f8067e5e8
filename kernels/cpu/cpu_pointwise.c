/* SPDX-License-Identifier: Apache-2.0 */
/* Embedding, RMSNorm, rotary positions, SwiGLU: row by row, rows in parallel. Sums over rows (weight gradients) are cut
 * by columns instead, so that each sum is taken in row order whatever the number of threads. */
#include <math.h>

#include "kernels/cpu/cpu.h"

enum { COLUMNS = 64 }; /* of one piece of a column-wise sum: a few cache lines per row */

void CPU(embed_fwd)(struct kern_dev *dev, kern_act *out_, const int32_t *tokens, const kern_act *w_, int64_t R,
                    int64_t C, int64_t first, int64_t V)
{
    (void)dev;
    float *out = out_;
    const float *w = w_;
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < R; r++) {
        int64_t row = tokens[r] - first;
        if (row >= 0 && row < V)
            memcpy(out + r * C, w + row * C, (size_t)C * sizeof *out);
        else
            memset(out + r * C, 0, (size_t)C * sizeof *out);
    }
}

void CPU(embed_bwd)(struct kern_dev *dev, float *dw, const kern_act *dout_, const int32_t *tokens, int64_t R, int64_t C,
                    int64_t first, int64_t V)
{
    (void)dev;
    const float *dout = dout_;
#pragma omp parallel for schedule(static)
    for (int64_t c0 = 0; c0 < C; c0 += COLUMNS) {
        int64_t c1 = c0 + COLUMNS < C ? c0 + COLUMNS : C;
        for (int64_t r = 0; r < R; r++) {
            int64_t row = tokens[r] - first;
            if (row < 0 || row >= V)
                continue;
            float *restrict to = dw + row * C;
            const float *restrict from = dout + r * C;
            for (int64_t c = c0; c < c1; c++)
                to[c] += from[c];
        }
    }
}

void CPU(rmsnorm_fwd)(struct kern_dev *dev, kern_act *out_, float *rstd, kern_act *sum_, const kern_act *inp_,
                      const kern_act *add_, const kern_act *w_, int64_t R, int64_t C, float eps)
{
    (void)dev;
    const float *w = w_;
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < R; r++) {
        const float *x = (const float *)inp_ + r * C;
        float *restrict out = (float *)out_ + r * C;
        if (add_ != NULL) {
            const float *restrict add = (const float *)add_ + r * C;
            float *restrict sum = (float *)sum_ + r * C;
            for (int64_t c = 0; c < C; c++)
                sum[c] = x[c] + add[c];
            x = sum;
        }
        float square = 0;
#pragma omp simd reduction(+ : square)
        for (int64_t c = 0; c < C; c++)
            square += x[c] * x[c];
        float scale = 1.0f / sqrtf(square / (float)C + eps);
        rstd[r] = scale;
        for (int64_t c = 0; c < C; c++)
            out[c] = x[c] * scale * w[c];
    }
}

/* y_c = w_c x_c s,  s = (mean x^2 + eps)^-1/2:  dx_c += s (w_c dy_c - x_c s^2 mean(w dy x)) */
void CPU(rmsnorm_bwd)(struct kern_dev *dev, kern_act *dinp_, float *dw, const kern_act *dout_, const kern_act *inp_,
                      const kern_act *w_, const float *rstd, int64_t R, int64_t C)
{
    (void)dev;
    const float *w = w_;
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < R; r++) {
        const float *restrict dy = (const float *)dout_ + r * C;
        const float *restrict x = (const float *)inp_ + r * C;
        float *restrict dx = (float *)dinp_ + r * C;
        float dot = 0;
#pragma omp simd reduction(+ : dot)
        for (int64_t c = 0; c < C; c++)
            dot += w[c] * dy[c] * x[c];
        float s = rstd[r];
        float back = dot * s * s / (float)C;
        for (int64_t c = 0; c < C; c++)
            dx[c] += s * (w[c] * dy[c] - x[c] * back);
    }
#pragma omp parallel for schedule(static)
    for (int64_t c0 = 0; c0 < C; c0 += COLUMNS) {
        int64_t width = C - c0 < COLUMNS ? C - c0 : COLUMNS;
        float sum[COLUMNS] = {0};
        for (int64_t r = 0; r < R; r++) {
            const float *restrict dy = (const float *)dout_ + r * C + c0;
            const float *restrict x = (const float *)inp_ + r * C + c0;
            float s = rstd[r];
            for (int64_t c = 0; c < width; c++)
                sum[c] += dy[c] * x[c] * s;
        }
        for (int64_t c = 0; c < width; c++)
            dw[c0 + c] += sum[c];
    }
}

void CPU(rope)(struct kern_dev *dev, kern_act *x_, const float *cos_sin, int64_t R, int64_t T, int64_t row,
               int64_t heads, int64_t D, bool inverse)
{
    (void)dev;
    int64_t half = D / 2;
    float direction = inverse ? -1.0f : 1.0f;
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < R; r++) {
        const float *angles = cos_sin + r % T * D; /* D/2 pairs */
        for (int64_t h = 0; h < heads; h++) {
            float *restrict low = (float *)x_ + r * row + h * D;
            float *restrict high = low + half;
            for (int64_t i = 0; i < half; i++) {
                float cosine = angles[2 * i];
                float sine = direction * angles[2 * i + 1];
                float a = low[i];
                float b = high[i];
                low[i] = a * cosine - b * sine;
                high[i] = b * cosine + a * sine;
            }
        }
    }
}

void CPU(swiglu_fwd)(struct kern_dev *dev, kern_act *out_, const kern_act *gu_, int64_t R, int64_t F)
{
    (void)dev;
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < R; r++) {
        float *restrict out = (float *)out_ + r * F;
        const float *restrict gate = (const float *)gu_ + r * 2 * F;
        const float *restrict up = gate + F;
#pragma omp simd
        for (int64_t f = 0; f < F; f++)
            out[f] = gate[f] / (1.0f + cpu_exp(-gate[f])) * up[f];
    }
}

void CPU(swiglu_bwd)(struct kern_dev *dev, kern_act *dgu_, const kern_act *dout_, const kern_act *gu_, int64_t R,
                     int64_t F)
{
    (void)dev;
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < R; r++) {
        const float *restrict dout = (const float *)dout_ + r * F;
        const float *restrict gate = (const float *)gu_ + r * 2 * F;
        const float *restrict up = gate + F;
        float *restrict dgate = (float *)dgu_ + r * 2 * F;
        float *restrict dup = dgate + F;
#pragma omp simd
        for (int64_t f = 0; f < F; f++) {
            float sigmoid = 1.0f / (1.0f + cpu_exp(-gate[f]));
            float silu = gate[f] * sigmoid;
            dup[f] = dout[f] * silu;
            dgate[f] = dout[f] * up[f] * (sigmoid + silu * (1.0f - sigmoid));
        }
    }
}
