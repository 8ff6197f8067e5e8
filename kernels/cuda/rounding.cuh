/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rounding: float to bf16 as an optimizer wants it: to nearest, or up and down by chance so that the mean is kept.
 * The chance is Philox-4x32-10 (Salmon and others, SC'11) of (seed, index of the value), so that it depends on nothing
 * else: not on how the work was cut, and not on the machine. One call gives 128 bits, 16 for each of eight values.
 */
#ifndef KERNELS_CUDA_ROUNDING_CUH
#define KERNELS_CUDA_ROUNDING_CUH

#include "kernels/cuda/values.cuh"

struct random_bits {
    uint32_t word[4];
};

/* Bits for the values 8 group .. 8 group + 7. */
__device__ __forceinline__ random_bits philox(uint64_t seed, uint64_t group)
{
    uint32_t c0 = (uint32_t)group, c1 = (uint32_t)(group >> 32), c2 = 0, c3 = 0;
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    UNROLL
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xd2511f53u * c0, p1 = (uint64_t)0xcd9e8d57u * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += 0x9e3779b9u;
        k1 += 0xbb67ae85u;
    }
    return random_bits{{c0, c1, c2, c3}};
}

/* For the eight values with indices at .. at + 7; `at` may be any index. */
__device__ __forceinline__ random_bits bits_of_eight(uint64_t seed, uint64_t at)
{
    random_bits low = philox(seed, at / EIGHT);
    if (at % EIGHT == 0)
        return low;
    /* Rows whose width is no multiple of eight: the eight lie in two groups. Shifts by halves of words, in steps whose
     * indices are known ahead: an array indexed otherwise would lie in memory. */
    random_bits high = philox(seed, at / EIGHT + 1);
    uint32_t word[8];
    UNROLL
    for (int i = 0; i < 8; i++)
        word[i] = i < 4 ? low.word[i % 4] : high.word[i % 4];
    UNROLL
    for (int i = 0; i < 7; i++)
        word[i] = at & 1 ? word[i] >> 16 | word[i + 1] << 16 : word[i];
    UNROLL
    for (int i = 0; i < 6; i++)
        word[i] = at & 2 ? word[i + 1] : word[i];
    UNROLL
    for (int i = 0; i < 4; i++)
        word[i] = at & 4 ? word[i + 2] : word[i];
    return random_bits{{word[0], word[1], word[2], word[3]}};
}

__device__ __forceinline__ vec<bf16> round_eight(const eight &x, int64_t at, kern_rounding rounding)
{
    if (!rounding.stochastic)
        return round_nearest(x);
    vec<bf16> out;
    random_bits bits = bits_of_eight(rounding.seed, (uint64_t)(rounding.first + at));
    UNROLL
    for (int j = 0; j < EIGHT; j++)
        out.at[j] = to_bf16_stochastic(x.at[j], bits.word[j / 2] >> (j % 2 * 16));
    return out;
}

#endif
