/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loss: cross-entropy over rows of logits(R,V), `ld` values apart, and its gradient in their place; whole, or in three
 * moves where each rank has a part of the vocabulary. A block takes a row. One pass finds the largest logit and the sum
 * of exponentials together: a thread lowers its sum when it meets a larger logit. A second writes the gradient; with a
 * thousand threads a block the rows at work fit the L2 cache of a large device, from which that pass reads.
 *
 * The largest logit starts at the lowest float, not at -Inf, whose difference with itself is NaN. fmaxf() passes over
 * NaN, but exp() does not: it gets into the sum, and so into the loss.
 */
#include <float.h>

#include "kernels/cuda/values.cuh"

/* Columns and tokens are int: registers are what a block of a thousand threads is short of. */
enum { LOSS_THREADS = 1024, STATS = 3 };

struct softmax {
    float most; /* logit */
    float sum;  /* of exp(logit - most) */
};

/* Of a row, for all threads of the block. */
__device__ __forceinline__ softmax scan_row(const bf16 *row, int V, bool fits, float *room)
{
    float most = -FLT_MAX, sum = 0;
    for (int at = (int)threadIdx.x * EIGHT; at < V; at += (int)blockDim.x * EIGHT) {
        eight x = load_eight(row + at, 0, of_eight(V - at), fits, -INFINITY);
        float larger = most;
        UNROLL
        for (int j = 0; j < EIGHT; j++)
            larger = fmaxf(larger, x.at[j]);
        sum *= quick_exp(most - larger);
        most = larger;
        UNROLL
        for (int j = 0; j < EIGHT; j++)
            sum += quick_exp(x.at[j] - most);
    }
    float all = block_max(most, room);
    return softmax{all, block_sum(sum * quick_exp(most - all), room)};
}

/* A row becomes factor * exp(logit - from), less `scale` at column `target` if there is one such. */
__device__ __forceinline__ void write_gradient(bf16 *row, int V, bool fits, float from, float factor, float scale,
                                               int target)
{
    for (int at = (int)threadIdx.x * EIGHT; at < V; at += (int)blockDim.x * EIGHT) {
        int high = of_eight(V - at);
        eight x = load_eight(row + at, 0, high, fits);
        UNROLL
        for (int j = 0; j < EIGHT; j++)
            x.at[j] = quick_exp(x.at[j] - from) * factor - (at + j == target ? scale : 0);
        store_eight(row + at, x, 0, high, fits);
    }
}

/* ---- the whole vocabulary ---- */

static __global__ void __launch_bounds__(LOSS_THREADS)
    entropy(float *losses, bf16 *logits, const int32_t *targets, int V, int64_t ld, float scale, bool fits)
{
    SHARED(float, room, WARP);
    bf16 *row = logits + (int64_t)blockIdx.x * ld;
    int target = targets[blockIdx.x];
    float at_target = threadIdx.x == 0 ? to_float(row[target]) : 0; /* before the gradient takes its place */
    softmax all = scan_row(row, V, fits, room);
    if (threadIdx.x == 0)
        losses[blockIdx.x] = logf(all.sum) + all.most - at_target;
    if (scale != 0)
        write_gradient(row, V, fits, all.most, scale / all.sum, scale, target);
}

static unsigned loss_threads(int64_t V)
{
    return threads_for(divide_up(V, EIGHT), LOSS_THREADS);
}

static bool logits_fit(const kern_act *logits, struct kern_logits shape)
{
    return fits_vec<bf16>(logits, shape.ld);
}

void cuda_cross_entropy(struct kern_dev *dev, float *losses, kern_act *logits, const int32_t *targets,
                        struct kern_logits shape, float scale)
{
    if (shape.R <= 0 || shape.V <= 0)
        return;
    LAUNCH(dev, entropy, (unsigned)shape.R, loss_threads(shape.V), 0, losses, (bf16 *)logits, targets, (int)shape.V,
           shape.ld, scale, logits_fit(logits, shape));
}

/* Rows of about half a GB of logits at a time, and of at least a thousand: below that the product with the output
 * weights reads and writes their gradient too often. Pieces are alike, so that the last is no stump. */
void cuda_logits_shape(int64_t R, int64_t V, int64_t *rows, int64_t *ld)
{
    const int64_t bytes = (int64_t)512 << 20, least = 1024, whole = 128;
    *ld = divide_up(V, 64) * 64;
    int64_t most = bytes / (*ld * (int64_t)sizeof(bf16));
    most = most > least ? most : least;
    *rows = R;
    if (R > most) {
        int64_t even = divide_up(divide_up(R, divide_up(R, most)), whole) * whole;
        *rows = even < R ? even : R;
    }
}

/* ---- a part of it ---- */

static __global__ void __launch_bounds__(LOSS_THREADS)
    entropy_part(float *stats, const bf16 *logits, const int32_t *targets, int V, int64_t ld, int64_t first, bool fits)
{
    SHARED(float, room, WARP);
    const bf16 *row = logits + (int64_t)blockIdx.x * ld;
    softmax part = scan_row(row, V, fits, room);
    if (threadIdx.x == 0) {
        int target = targets[blockIdx.x] - first;
        float *own = stats + (int64_t)blockIdx.x * STATS;
        own[0] = part.most;
        own[1] = part.sum;
        own[2] = target >= 0 && target < V ? to_float(row[target]) : 0;
    }
}

/* A thread a row: little work. */
static __global__ void join_parts(float *losses, float *lse, const float *stats, int64_t parts, int64_t R)
{
    int64_t row = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (row < R) {
        float most = -FLT_MAX, sum = 0, at_target = 0;
        for (int64_t p = 0; p < parts; p++)
            most = fmaxf(most, stats[(p * R + row) * STATS]);
        for (int64_t p = 0; p < parts; p++) {
            const float *part = stats + (p * R + row) * STATS;
            sum += part[1] * expf(part[0] - most);
            at_target += part[2];
        }
        lse[row] = logf(sum) + most;
        losses[row] = lse[row] - at_target;
    }
}

static __global__ void __launch_bounds__(LOSS_THREADS)
    entropy_back(bf16 *logits, const float *lse, const int32_t *targets, int V, int64_t ld, int64_t first, float scale,
                 bool fits)
{
    write_gradient(logits + (int64_t)blockIdx.x * ld, V, fits, lse[blockIdx.x], scale, scale,
                   targets[blockIdx.x] - first);
}

void cuda_loss_part(struct kern_dev *dev, float *stats, const kern_act *logits, const int32_t *targets,
                    struct kern_logits shape)
{
    if (shape.R <= 0 || shape.V <= 0)
        return;
    LAUNCH(dev, entropy_part, (unsigned)shape.R, loss_threads(shape.V), 0, stats, (const bf16 *)logits, targets,
           (int)shape.V, shape.ld, (int)shape.first, logits_fit(logits, shape));
}

void cuda_loss_join(struct kern_dev *dev, float *losses, float *lse, const float *stats, int64_t parts, int64_t R)
{
    if (R <= 0)
        return;
    LAUNCH(dev, join_parts, (unsigned)divide_up(R, FLAT_THREADS), FLAT_THREADS, 0, losses, lse, stats, parts, R);
}

void cuda_loss_back(struct kern_dev *dev, kern_act *logits, const float *lse, const int32_t *targets,
                    struct kern_logits shape, float scale)
{
    if (shape.R <= 0 || shape.V <= 0)
        return;
    LAUNCH(dev, entropy_back, (unsigned)shape.R, loss_threads(shape.V), 0, (bf16 *)logits, lse, targets, (int)shape.V,
           shape.ld, (int)shape.first, scale, logits_fit(logits, shape));
}

/* ---- the sum ---- */

static __global__ void sum_losses(double *total, const float *losses, int64_t R, double factor)
{
    SHARED(double, room, WARP);
    double sum = 0;
    for (int64_t row = threadIdx.x; row < R; row += LOSS_THREADS)
        sum += (double)losses[row];
    sum = block_sum(sum, room);
    if (threadIdx.x == 0)
        *total += factor * sum;
}

size_t cuda_loss_scratch(int64_t R)
{
    (void)R;
    return 0;
}

void cuda_add_losses(struct kern_dev *dev, double *total, const float *losses, int64_t R, double factor)
{
    if (R <= 0)
        return;
    LAUNCH(dev, sum_losses, 1, LOSS_THREADS, 0, total, losses, R, factor);
}
