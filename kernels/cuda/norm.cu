/* SPDX-License-Identifier: Apache-2.0 */
/*
 * norm: the gradient's norm, and what follows from it for the step: all on the device, so that no step waits for the
 * host. Sums are of doubles, in an order that depends on the number of values alone.
 */
#include <math.h>

#include "kernels/cuda/values.cuh"

enum { NORM_THREADS = 256, NORM_BLOCKS = 1024 };

static __global__ void square_parts(double *parts, const float *x, int64_t count, bool fits)
{
    SHARED(double, room, WARP);
    double sum = block_squares(x, count, NORM_THREADS, fits, room);
    if (threadIdx.x == 0)
        parts[blockIdx.x] = sum;
}

static __global__ void join_squares(kern_step *step, const double *parts, int blocks)
{
    SHARED(double, room, WARP);
    double sum = block_sum((int)threadIdx.x < blocks ? parts[threadIdx.x] : 0.0, room);
    if (threadIdx.x == 0)
        step->sum += sum;
}

size_t cuda_norm_scratch(void)
{
    return NORM_BLOCKS * sizeof(double);
}

void cuda_sum_squares(struct kern_dev *dev, struct kern_step *step, const float *x, int64_t count)
{
    if (count <= 0)
        return;
    int64_t whole = divide_up(count, NORM_THREADS * EIGHT);
    int blocks = whole < NORM_BLOCKS ? (int)whole : (int)NORM_BLOCKS;
    double *parts = (double *)cuda_scratch(dev, cuda_norm_scratch());
    if (parts == NULL)
        return;
    LAUNCH(dev, square_parts, (unsigned)blocks, NORM_THREADS, 0, parts, x, count, fits_vec<float>(x, 0));
    LAUNCH(dev, join_squares, 1, NORM_BLOCKS, 0, step, parts, blocks);
}

/* base^exponent by squaring: pow() of doubles takes local memory. */
__device__ __forceinline__ double power(double base, uint64_t exponent)
{
    double out = 1;
    for (; exponent > 0; exponent >>= 1) {
        if (exponent & 1)
            out *= base;
        base *= base;
    }
    return out;
}

static __global__ void judge_step(kern_step *step, kern_judge conf)
{
    double norm = sqrt(step->sum), norm_max = (double)conf.norm_max;
    bool finite = isfinite(step->sum);
    if (finite)
        step->updates++;
    step->skip = finite ? 0 : 1;
    step->norm = norm;
    step->scale = norm_max > 0 && norm > norm_max ? (float)(norm_max / norm) : 1.0f;
    step->correction1 = (float)(1 - power(conf.beta1, step->updates));
    step->correction2 = (float)(1 - power(conf.beta2, step->updates));
    step->sum = 0;
}

void cuda_judge(struct kern_dev *dev, struct kern_step *step, struct kern_judge conf)
{
    LAUNCH(dev, judge_step, 1, 1, 0, step, conf);
}

/* ---- what is not finite ---- */

static __global__ void look_for_bad(int *bad, const float *x, int64_t count, bool fits)
{
    int64_t at = flat_at();
    eight own = load_eight(x + at, 0, of_eight(count - at), fits);
    bool found = false;
    UNROLL
    for (int j = 0; j < EIGHT; j++)
        found = found || (__float_as_uint(own.at[j]) & 0x7f800000u) == 0x7f800000u;
    if (found)
        atomicOr(bad, 1);
}

void cuda_find_bad(struct kern_dev *dev, int32_t *bad, const float *x, int64_t count)
{
    if (count <= 0)
        return;
    LAUNCH(dev, look_for_bad, flat_blocks(count), FLAT_THREADS, 0, bad, x, count, fits_vec<float>(x, 0));
}
