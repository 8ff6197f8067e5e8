/* SPDX-License-Identifier: Apache-2.0 */
/* Optimizer steps and the global gradient norm. */
#include <math.h>
#include <string.h>

#include "common/mem.h"
#include "kernels/cpu/cpu.h"

enum { NORM_BLOCK = 4096 };

static double squares(const float *x, int64_t count)
{
    /* Blocks of fixed size, then the blocks in order: one result for every number of threads. Groups of blocks keep
     * the memory for partial sums on the stack. */
    enum { GROUP = 1024 };
    double sum = 0;
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
            sum += partial[b];
    }
    return sum;
}

void CPU(sum_squares)(struct kern_dev *dev, struct kern_step *step, const float *x, int64_t count)
{
    (void)dev;
    step->sum += squares(x, count);
}

void CPU(judge)(struct kern_dev *dev, struct kern_step *step, struct kern_judge conf)
{
    (void)dev;
    step->norm = sqrt(step->sum);
    step->skip = isfinite(step->norm) ? 0 : 1;
    step->updates += step->skip == 0;
    double limit = (double)conf.norm_max;
    step->scale = limit > 0 && step->norm > limit ? (float)(limit / step->norm) : 1.0f;
    step->correction1 = (float)(1 - pow(conf.beta1, (double)step->updates));
    step->correction2 = (float)(1 - pow(conf.beta2, (double)step->updates));
    step->sum = 0;
}

/* ---- optimizers over spans ---- */

struct kern_spans {
    size_t count;
    struct kern_span *spans;
};

enum err CPU(spans_new)(struct kern_dev *dev, const struct kern_span *spans, size_t count, struct kern_spans **out)
{
    (void)dev;
    struct kern_spans *made;
    *out = NULL;
    TRY(mem_new(1, sizeof *made, "the optimizer's spans", &made));
    if (mem_new(count, sizeof *made->spans, "the optimizer's spans", &made->spans) != ERR_OK) {
        mem_free(made);
        return ERR_NOMEM;
    }
    memcpy(made->spans, spans, count * sizeof *spans);
    made->count = count;
    *out = made;
    return ERR_OK;
}

void CPU(spans_free)(struct kern_dev *dev, struct kern_spans *spans)
{
    (void)dev;
    if (spans == NULL)
        return;
    mem_free(spans->spans);
    mem_free(spans);
}

void CPU(adamw)(struct kern_dev *dev, float *w_, kern_act *act, const float *g_, float *m_, float *v_,
                const struct kern_spans *spans, const struct kern_step *at, struct kern_adamw conf)
{
    float factor = at->scale;
    float step = conf.lr / at->correction1;
    float root = 1.0f / sqrtf(at->correction2);
    float b1 = conf.beta1;
    float b2 = conf.beta2;
    float eps = conf.eps;
    for (size_t s = 0; at->skip == 0 && s < spans->count; s++) {
        const struct kern_span *span = &spans->spans[s];
        float keep = span->decay ? 1.0f - conf.lr * conf.weight_decay : 1.0f;
        float *w = w_ + span->begin;
        float *m = m_ + span->begin;
        float *v = v_ + span->begin;
        const float *g = g_ + span->begin;
#pragma omp parallel for simd schedule(static)
        for (int64_t i = 0; i < span->count; i++) {
            float gradient = factor * g[i];
            float first = b1 * m[i] + (1.0f - b1) * gradient;
            float second = b2 * v[i] + (1.0f - b2) * gradient * gradient;
            m[i] = first;
            v[i] = second;
            w[i] = keep * w[i] - step * first / (sqrtf(second) * root + eps);
        }
        cpu_follow(dev, (float *)act + span->begin, w, span->count);
    }
}

void CPU(sgd)(struct kern_dev *dev, float *w_, kern_act *act, const float *g_, const struct kern_spans *spans,
              const struct kern_step *at, float lr, struct kern_rounding rounding)
{
    (void)rounding;
    float factor = lr * at->scale;
    for (size_t s = 0; at->skip == 0 && s < spans->count; s++) {
        float *w = w_ + spans->spans[s].begin;
        const float *g = g_ + spans->spans[s].begin;
#pragma omp parallel for simd schedule(static)
        for (int64_t i = 0; i < spans->spans[s].count; i++)
            w[i] = w[i] - factor * g[i];
        cpu_follow(dev, (float *)act + spans->spans[s].begin, w, spans->spans[s].count);
    }
}

/* ---- Muon ---- */

/* Two copies of the matrix, lying on its longer side, and two squares of its shorter one. */
size_t CPU(muon_scratch)(int64_t N, int64_t K)
{
    int64_t rows = N < K ? N : K;
    return (size_t)(2 * N * K + 2 * rows * rows) * sizeof(float);
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

void CPU(muon_aim)(struct kern_dev *dev, float *g, float *m, int64_t count, const struct kern_step *step,
                   float momentum)
{
    (void)dev;
    float factor = step->scale;
    if (step->skip != 0)
        return;
#pragma omp parallel for simd schedule(static)
    for (int64_t i = 0; i < count; i++) {
        float gradient = factor * g[i];
        m[i] = momentum * m[i] + gradient;
        g[i] = gradient + momentum * m[i];
    }
}

void CPU(orthogonalise)(struct kern_dev *dev, float *u, int64_t N, int64_t K, void *scratch)
{
    (void)dev;
    bool lying = N <= K;
    int64_t rows = lying ? N : K, cols = lying ? K : N;
    float *x = scratch, *other = x + N * K, *gram = other + N * K, *poly = gram + rows * rows;
    float shrink = (float)(1 / (sqrt(squares(u, N * K)) + 1e-7));
#pragma omp parallel for schedule(static)
    for (int64_t n = 0; n < N; n++)
        for (int64_t k = 0; k < K; k++)
            x[lying ? n * K + k : k * N + n] = shrink * u[n * K + k];
    newton_schulz(&x, &other, gram, poly, rows, cols);
#pragma omp parallel for schedule(static)
    for (int64_t n = 0; n < N; n++)
        for (int64_t k = 0; k < K; k++)
            u[n * K + k] = x[lying ? n * K + k : k * N + n];
}

void CPU(muon_apply)(struct kern_dev *dev, float *w, kern_act *act, const float *u, int64_t count, int64_t longer,
                     const struct kern_step *step, struct kern_muon conf)
{
    float keep = 1.0f - conf.lr * conf.weight_decay;
    float far = conf.lr * 0.2f * sqrtf((float)longer);
    if (step->skip != 0)
        return;
#pragma omp parallel for simd schedule(static)
    for (int64_t i = 0; i < count; i++)
        w[i] = keep * w[i] - far * u[i];
    cpu_follow(dev, act, w, count);
}
