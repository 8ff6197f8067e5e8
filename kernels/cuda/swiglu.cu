/* SPDX-License-Identifier: Apache-2.0 */
/*
 * swiglu: out(R,F) = silu(gate) * up of gu(R, 2F), and its gradient; fp32 inside. Bound by memory: 6 bytes a value
 * forward, 10 backward. The grid is (rows, pieces of F), pieces of one size, so that no thread has to divide by F.
 * exp(-gate) may be Inf: its reciprocal is 0 then, which is what the sigmoid of a gate so far down is.
 */
#include "kernels/cuda/values.cuh"

enum { SWIGLU_THREADS = 256 };

__device__ __forceinline__ float sigmoid(float x)
{
    return quick_reciprocal(1.0f + quick_exp(-x));
}

static __global__ void swiglu_forward(bf16 *out, const bf16 *gu, int64_t F, bool fits)
{
    int64_t row = blockIdx.x, at = ((int64_t)blockIdx.y * blockDim.x + threadIdx.x) * EIGHT;
    int high = of_eight(F - at);
    eight gate = load_eight(gu + row * 2 * F + at, 0, high, fits);
    eight up = load_eight(gu + row * 2 * F + F + at, 0, high, fits);
    UNROLL
    for (int j = 0; j < EIGHT; j++)
        up.at[j] *= gate.at[j] * sigmoid(gate.at[j]);
    store_eight(out + row * F + at, up, 0, high, fits);
}

static __global__ void swiglu_backward(bf16 *dgu, const bf16 *dout, const bf16 *gu, int64_t F, bool fits)
{
    int64_t row = blockIdx.x, at = ((int64_t)blockIdx.y * blockDim.x + threadIdx.x) * EIGHT;
    int high = of_eight(F - at);
    eight gate = load_eight(gu + row * 2 * F + at, 0, high, fits);
    eight up = load_eight(gu + row * 2 * F + F + at, 0, high, fits);
    eight dy = load_eight(dout + row * F + at, 0, high, fits);
    UNROLL
    for (int j = 0; j < EIGHT; j++) {
        float s = sigmoid(gate.at[j]);
        float silu = gate.at[j] * s;
        gate.at[j] = dy.at[j] * up.at[j] * (s + silu * (1.0f - s));
        up.at[j] = dy.at[j] * silu;
    }
    store_eight(dgu + row * 2 * F + at, gate, 0, high, fits);
    store_eight(dgu + row * 2 * F + F + at, up, 0, high, fits);
}

/* Threads of a block for rows of F values, and in *pieces how many blocks a row takes. */
static unsigned cut(int64_t F, unsigned *pieces)
{
    int64_t groups = divide_up(F, EIGHT);
    *pieces = (unsigned)divide_up(groups, SWIGLU_THREADS);
    return threads_for(divide_up(groups, *pieces), SWIGLU_THREADS);
}

void cuda_swiglu_fwd(struct kern_dev *dev, kern_act *out, const kern_act *gu, int64_t R, int64_t F)
{
    if (R <= 0 || F <= 0)
        return;
    unsigned pieces;
    unsigned threads = cut(F, &pieces);
    bool fits = fits_vec<bf16>(out, F) && fits_vec<bf16>(gu, F);
    LAUNCH(dev, swiglu_forward, dim3((unsigned)R, pieces), threads, 0, (bf16 *)out, (const bf16 *)gu, F, fits);
}

void cuda_swiglu_bwd(struct kern_dev *dev, kern_act *dgu, const kern_act *dout, const kern_act *gu, int64_t R,
                     int64_t F)
{
    if (R <= 0 || F <= 0)
        return;
    unsigned pieces;
    unsigned threads = cut(F, &pieces);
    bool fits = fits_vec<bf16>(dgu, F) && fits_vec<bf16>(dout, F) && fits_vec<bf16>(gu, F);
    LAUNCH(dev, swiglu_backward, dim3((unsigned)R, pieces), threads, 0, (bf16 *)dgu, (const bf16 *)dout,
           (const bf16 *)gu, F, fits);
}
