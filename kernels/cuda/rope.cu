/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rope: rotary positions, in place, on the first `heads` heads of each row of x(R, row). A block a row, so that the
 * row's angles are read once from far and then for every head from the L1 cache; a thread turns eight pairs (i, i +
 * D/2) at a time, in fp32. 16 bytes at a time where D/2 and row are multiples of 8.
 */
#include "kernels/cuda/values.cuh"

enum { ROPE_THREADS = 256 };

/* Both members of each pair, by angles (cosine, sine) of eight pairs in two eights. */
__device__ __forceinline__ void turn(eight &low, eight &high, const eight (&angles)[2], float direction)
{
    UNROLL
    for (int j = 0; j < EIGHT; j++) {
        float cosine = angles[j / 4].at[j % 4 * 2];
        float sine = direction * angles[j / 4].at[j % 4 * 2 + 1];
        float a = low.at[j], b = high.at[j];
        low.at[j] = a * cosine - b * sine;
        high.at[j] = b * cosine + a * sine;
    }
}

static __global__ void rotate(bf16 *x, const float *cos_sin, int64_t T, int64_t row, int heads, int D, float direction,
                              bool fits)
{
    int half = D / 2, groups = (half + EIGHT - 1) / EIGHT;
    const float *angles = cos_sin + (int64_t)blockIdx.x % T * D; /* D/2 pairs */
    for (int i = (int)threadIdx.x; i < heads * groups; i += (int)blockDim.x) {
        int pair = i % groups * EIGHT;
        int pairs = of_eight(half - pair);
        bf16 *low_at = x + (int64_t)blockIdx.x * row + (int64_t)(i / groups) * D + pair;
        bf16 *high_at = low_at + half;
        eight low = load_eight(low_at, 0, pairs, fits);
        eight high = load_eight(high_at, 0, pairs, fits);
        eight own[2];
        UNROLL
        for (int p = 0; p < 2; p++)
            own[p] = load_eight(angles + 2 * pair + p * EIGHT, 0, of_eight(2 * pairs - p * EIGHT), fits);
        turn(low, high, own, direction);
        store_eight(low_at, low, 0, pairs, fits);
        store_eight(high_at, high, 0, pairs, fits);
    }
}

void cuda_rope(struct kern_dev *dev, kern_act *x, const float *cos_sin, int64_t R, int64_t T, int64_t row,
               int64_t heads, int64_t D, bool inverse)
{
    if (R <= 0 || heads <= 0 || D < 2)
        return;
    bool fits = fits_vec<bf16>(x, row) && D / 2 % EIGHT == 0 && fits_vec<float>(cos_sin, D);
    unsigned threads = threads_for(heads * divide_up(D / 2, EIGHT), ROPE_THREADS);
    LAUNCH(dev, rotate, (unsigned)R, threads, 0, (bf16 *)x, cos_sin, T, row, (int)heads, (int)D, inverse ? -1.0f : 1.0f,
           fits);
}
