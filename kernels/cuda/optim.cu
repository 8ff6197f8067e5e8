/* SPDX-License-Identifier: Apache-2.0 */
/*
 * optim: AdamW and SGD over spans of the flat arrays of weights, gradients and state, all spans in one launch: a block
 * takes a piece of up to SPAN_PIECE values (cuda_spans.c). Bound by memory: 30 bytes a value for AdamW, 14 for SGD.
 *
 * A thread's eight values begin at a multiple of eight of the flat array, also where a span does not, so that the
 * values are always rounded with the same random bits, and 16 bytes move at a time wherever the arrays are aligned.
 */
#include "kernels/cuda/cuda_spans.h"
#include "kernels/cuda/rounding.cuh"

enum { OPTIM_THREADS = 256 };

/* The eights of a piece that are a thread's: positions from `at` on, OPTIM_THREADS eights apart. */
struct stretch {
    int64_t at, begin, end;
    bool decay;
};

__device__ __forceinline__ stretch own_stretch(const span_piece *pieces)
{
    span_piece piece = pieces[blockIdx.x];
    int64_t first = piece.begin / EIGHT + threadIdx.x;
    return stretch{first * EIGHT, piece.begin, piece.begin + piece.count, piece.decay != 0};
}

/* The first of the eight at `at` that belongs to the piece. */
__device__ __forceinline__ int low_of(const stretch &own, int64_t at)
{
    return at < own.begin ? (int)(own.begin - at) : 0;
}

struct adamw_factors {
    float scale; /* of the gradient */
    float step, root, keep;
};

__device__ __forceinline__ adamw_factors factors_of(const kern_step &step, const kern_adamw &conf, bool decay)
{
    return adamw_factors{step.scale, conf.lr / step.correction1, 1.0f / sqrtf(step.correction2),
                         decay ? 1.0f - conf.lr * conf.weight_decay : 1.0f};
}

static __global__ void adamw_step(float *w, bf16 *act, const float *g, float *m, float *v, const span_piece *pieces,
                                  const kern_step *step, kern_adamw conf, bool fits)
{
    if (step->skip)
        return;
    stretch own = own_stretch(pieces);
    adamw_factors by = factors_of(*step, conf, own.decay);
    for (int64_t at = own.at; at < own.end; at += OPTIM_THREADS * EIGHT) {
        int low = low_of(own, at), high = of_eight(own.end - at);
        eight gradient = load_eight(g + at, low, high, fits);
        eight first = load_eight(m + at, low, high, fits);
        eight second = load_eight(v + at, low, high, fits);
        eight weight = load_eight(w + at, low, high, fits);
        UNROLL
        for (int j = 0; j < EIGHT; j++) {
            float x = by.scale * gradient.at[j];
            first.at[j] = conf.beta1 * first.at[j] + (1.0f - conf.beta1) * x;
            second.at[j] = conf.beta2 * second.at[j] + (1.0f - conf.beta2) * x * x;
            float size = quick_reciprocal(quick_sqrt(second.at[j]) * by.root + conf.eps);
            weight.at[j] = by.keep * weight.at[j] - by.step * first.at[j] * size;
        }
        store_eight(m + at, first, low, high, fits);
        store_eight(v + at, second, low, high, fits);
        store_eight(w + at, weight, low, high, fits);
        store_eight(act + at, round_eight(weight, at, conf.rounding), low, high, fits);
    }
}

static __global__ void sgd_step(float *w, bf16 *act, const float *g, const span_piece *pieces, const kern_step *step,
                                float lr, kern_rounding rounding, bool fits)
{
    if (step->skip)
        return;
    stretch own = own_stretch(pieces);
    float factor = lr * step->scale;
    for (int64_t at = own.at; at < own.end; at += OPTIM_THREADS * EIGHT) {
        int low = low_of(own, at), high = of_eight(own.end - at);
        eight weight = load_eight(w + at, low, high, fits);
        eight gradient = load_eight(g + at, low, high, fits);
        UNROLL
        for (int j = 0; j < EIGHT; j++)
            weight.at[j] -= factor * gradient.at[j];
        store_eight(w + at, weight, low, high, fits);
        store_eight(act + at, round_eight(weight, at, rounding), low, high, fits);
    }
}

void cuda_adamw(struct kern_dev *dev, float *w, kern_act *act, const float *g, float *m, float *v,
                const struct kern_spans *spans, const struct kern_step *step, struct kern_adamw conf)
{
    if (spans->count == 0)
        return;
    bool fits = fits_vec<float>(w, 0) && fits_vec<bf16>(act, 0) && fits_vec<float>(g, 0) && fits_vec<float>(m, 0) &&
                fits_vec<float>(v, 0);
    LAUNCH(dev, adamw_step, (unsigned)spans->count, OPTIM_THREADS, 0, w, (bf16 *)act, g, m, v, spans->pieces, step,
           conf, fits);
}

void cuda_sgd(struct kern_dev *dev, float *w, kern_act *act, const float *g, const struct kern_spans *spans,
              const struct kern_step *step, float lr, struct kern_rounding rounding)
{
    if (spans->count == 0)
        return;
    bool fits = fits_vec<float>(w, 0) && fits_vec<bf16>(act, 0) && fits_vec<float>(g, 0);
    LAUNCH(dev, sgd_step, (unsigned)spans->count, OPTIM_THREADS, 0, w, (bf16 *)act, g, spans->pieces, step, lr,
           rounding, fits);
}
