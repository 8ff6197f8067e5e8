/* Optimizer steps and the global gradient norm. */
#include <math.h>
#include <string.h>

#include "kernels/cpu/cpu.h"

enum { NORM_BLOCK = 4096 };

void CPU(sum_squares)(struct kern_dev *dev, double *sum, const float *x, int64_t count)
{
    (void)dev;
    /* Blocks of fixed size, then the blocks in order: one result for every number of threads. Groups of blocks keep
     * the memory for partial sums on the stack. */
    enum { GROUP = 1024 };
    for (int64_t group = 0; group < count; group += (int64_t)GROUP * NORM_BLOCK) {
        double partial[GROUP];
        int64_t left = (count - group + NORM_BLOCK - 1) / NORM_BLOCK;
        int64_t blocks = left < GROUP ? left : GROUP;
#pragma omp parallel for schedule(static)
        for (int64_t b = 0; b < blocks; b++) {
            int64_t begin = group + b * NORM_BLOCK;
            int64_t end = begin + NORM_BLOCK < count ? begin + NORM_BLOCK : count;
            double square = 0;
#pragma omp simd reduction(+ : square)
            for (int64_t i = begin; i < end; i++)
                square += (double)x[i] * (double)x[i];
            partial[b] = square;
        }
        for (int64_t b = 0; b < blocks; b++)
            *sum += partial[b];
    }
}

void CPU(clip_scale)(struct kern_dev *dev, float *scale, const double *sum, float norm_max)
{
    (void)dev;
    double norm = sqrt(*sum);
    *scale = norm_max > 0 && norm > (double)norm_max ? (float)((double)norm_max / norm) : 1.0f;
}

void CPU(adamw)(struct kern_dev *dev, float *w, kern_act *act, const float *g, float *m, float *v, int64_t count,
                const float *scale, const struct kern_adamw *conf)
{
    (void)dev;
    (void)act; /* the same array on the CPU */
    float factor = *scale;
    float step = conf->lr / conf->correction1;
    float root = 1.0f / sqrtf(conf->correction2);
    float keep = 1.0f - conf->lr * conf->weight_decay;
    float b1 = conf->beta1;
    float b2 = conf->beta2;
    float eps = conf->eps;
#pragma omp parallel for simd schedule(static)
    for (int64_t i = 0; i < count; i++) {
        float gradient = factor * g[i];
        float first = b1 * m[i] + (1.0f - b1) * gradient;
        float second = b2 * v[i] + (1.0f - b2) * gradient * gradient;
        m[i] = first;
        v[i] = second;
        w[i] = keep * w[i] - step * first / (sqrtf(second) * root + eps);
    }
}

/* ---- Muon ---- */

/* Two copies of the matrix, lying on its longer side, and two squares of its shorter one. */
size_t CPU(muon_scratch)(int64_t N, int64_t K)
{
    int64_t rows = N < K ? N : K;
    return (size_t)(2 * N * K + 2 * rows * rows);
}

/* The polynomial a x + b x^3 + c x^5 of singular values brings all of them near 1 when applied five times. */
static void newton_schulz(float **x, float **other, float *gram, float *poly, int64_t rows, int64_t cols)
{
    static const float a = 3.4445f, b = -4.7750f, c = 2.0315f;
    for (int round = 0; round < 5; round++) {
        CPU(gemm)(false, true, rows, rows, cols, 1, *x, cols, *x, cols, 0, gram, rows);
        memcpy(poly, gram, (size_t)(rows * rows) * sizeof *poly);
        CPU(gemm)(false, false, rows, rows, rows, c, gram, rows, gram, rows, b, poly, rows);
        memcpy(*other, *x, (size_t)(rows * cols) * sizeof **x);
        CPU(gemm)(false, false, rows, cols, rows, 1, poly, rows, *x, cols, a, *other, cols);
        float *swap = *x;
        *x = *other;
        *other = swap;
    }
}

void CPU(muon)(struct kern_dev *dev, float *w, kern_act *act, const float *g, float *m, int64_t N, int64_t K,
               const float *scale, const struct kern_muon *conf, float *scratch)
{
    (void)act; /* the same array on the CPU */
    bool lying = N <= K;
    int64_t rows = lying ? N : K, cols = lying ? K : N;
    float *x = scratch, *other = x + N * K, *gram = other + N * K, *poly = gram + rows * rows;
    float factor = *scale, momentum = conf->momentum;
#pragma omp parallel for schedule(static)
    for (int64_t n = 0; n < N; n++)
        for (int64_t k = 0; k < K; k++) {
            int64_t i = n * K + k;
            float gradient = factor * g[i];
            m[i] = momentum * m[i] + gradient;
            x[lying ? i : k * N + n] = gradient + momentum * m[i];
        }
    double square = 0;
    CPU(sum_squares)(dev, &square, x, N * K);
    float shrink = (float)(1 / (sqrt(square) + 1e-7));
    for (int64_t i = 0; i < N * K; i++)
        x[i] *= shrink;
    newton_schulz(&x, &other, gram, poly, rows, cols);
    float keep = 1.0f - conf->lr * conf->weight_decay;
    float step = conf->lr * 0.2f * sqrtf((float)cols);
#pragma omp parallel for schedule(static)
    for (int64_t n = 0; n < N; n++)
        for (int64_t k = 0; k < K; k++)
            w[n * K + k] = keep * w[n * K + k] - step * x[lying ? n * K + k : k * N + n];
}

void CPU(sgd)(struct kern_dev *dev, float *w, kern_act *act, const float *g, int64_t count, const float *scale,
              float lr)
{
    (void)dev;
    (void)act;
    float factor = lr * *scale;
#pragma omp parallel for simd schedule(static)
    for (int64_t i = 0; i < count; i++)
        w[i] = w[i] - factor * g[i];
}
