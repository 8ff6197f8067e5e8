/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/ref64.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void ref_linear(double *out, const double *inp, const double *w, int64_t R, int64_t K, int64_t N)
{
    for (int64_t r = 0; r < R; r++) {
        for (int64_t n = 0; n < N; n++) {
            double sum = 0;
            for (int64_t k = 0; k < K; k++)
                sum += inp[r * K + k] * w[n * K + k];
            out[r * N + n] = sum;
        }
    }
}

void ref_embed(double *out, const int32_t *tokens, const double *w, int64_t R, int64_t C)
{
    for (int64_t r = 0; r < R; r++)
        memcpy(out + r * C, w + tokens[r] * C, (size_t)C * sizeof *out);
}

void ref_rmsnorm(double *out, const double *inp, const double *w, int64_t R, int64_t C, double eps)
{
    for (int64_t r = 0; r < R; r++) {
        double square = 0;
        for (int64_t c = 0; c < C; c++)
            square += inp[r * C + c] * inp[r * C + c];
        double root = sqrt(square / (double)C + eps);
        for (int64_t c = 0; c < C; c++)
            out[r * C + c] = inp[r * C + c] / root * w[c];
    }
}

void ref_rope(double *x, int64_t R, int64_t T, int64_t row, int64_t heads, int64_t D, double theta)
{
    for (int64_t r = 0; r < R; r++) {
        for (int64_t h = 0; h < heads; h++) {
            double *head = x + r * row + h * D;
            for (int64_t i = 0; i < D / 2; i++) {
                double angle = (double)(r % T) * pow(theta, -2.0 * (double)i / (double)D);
                double a = head[i];
                double b = head[i + D / 2];
                head[i] = a * cos(angle) - b * sin(angle);
                head[i + D / 2] = b * cos(angle) + a * sin(angle);
            }
        }
    }
}

void ref_attention(double *out, const double *qkv, int64_t B, int64_t T, int64_t H, int64_t G, int64_t D)
{
    int64_t row = (H + 2 * G) * D;
    double *p = malloc((size_t)T * sizeof *p);
    for (int64_t b = 0; b < B; b++) {
        for (int64_t h = 0; h < H; h++) {
            int64_t g = h / (H / G);
            for (int64_t i = 0; i < T; i++) {
                const double *q = qkv + (b * T + i) * row + h * D;
                double sum = 0;
                for (int64_t j = 0; j <= i; j++) {
                    const double *k = qkv + (b * T + j) * row + (H + g) * D;
                    double dot = 0;
                    for (int64_t c = 0; c < D; c++)
                        dot += q[c] * k[c];
                    p[j] = exp(dot / sqrt((double)D));
                    sum += p[j];
                }
                for (int64_t c = 0; c < D; c++) {
                    double value = 0;
                    for (int64_t j = 0; j <= i; j++)
                        value += p[j] / sum * qkv[(b * T + j) * row + (H + G + g) * D + c];
                    out[((b * T + i) * H + h) * D + c] = value;
                }
            }
        }
    }
    free(p);
}

void ref_swiglu(double *out, const double *gu, int64_t R, int64_t F)
{
    for (int64_t r = 0; r < R; r++) {
        for (int64_t f = 0; f < F; f++) {
            double gate = gu[r * 2 * F + f];
            out[r * F + f] = gate / (1 + exp(-gate)) * gu[r * 2 * F + F + f];
        }
    }
}

double ref_cross_entropy(const double *logits, const int32_t *targets, int64_t R, int64_t V)
{
    double total = 0;
    for (int64_t r = 0; r < R; r++) {
        double most = logits[r * V];
        double sum = 0;
        for (int64_t i = 1; i < V; i++)
            most = fmax(most, logits[r * V + i]);
        for (int64_t i = 0; i < V; i++)
            sum += exp(logits[r * V + i] - most);
        total += log(sum) + most - logits[r * V + targets[r]];
    }
    return total / (double)R;
}
