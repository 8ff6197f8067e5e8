/* SPDX-License-Identifier: Apache-2.0 */
/*
 * digest: one number for an array's bits, by which two results are told apart without a copy of either. Each word is
 * mixed with its place and all are added up as whole numbers, so the order of the threads changes nothing.
 */
#include "kernels/cuda/device.cuh"

enum { THREADS = 256, BLOCKS = 512 };

/* The finalizer of MurmurHash3 (public domain): every bit of the input reaches every bit of the output. */
__device__ __forceinline__ uint64_t mixed(uint64_t x)
{
    x ^= x >> 33;
    x *= 0xff51afd7ed558ccdull;
    x ^= x >> 33;
    x *= 0xc4ceb9fe1a85ec53ull;
    return x ^ x >> 33;
}

static __global__ void digest_parts(uint64_t *parts, const uint32_t *words, int64_t count)
{
    SHARED(uint64_t, room, THREADS);
    uint64_t sum = 0;
    for (int64_t i = (int64_t)blockIdx.x * THREADS + (int64_t)threadIdx.x; i < count; i += (int64_t)BLOCKS * THREADS)
        sum += mixed((uint64_t)i << 32 ^ mixed(words[i]));
    room[threadIdx.x] = sum;
    for (int half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if ((int)threadIdx.x < half)
            room[threadIdx.x] += room[threadIdx.x + half];
    }
    if (threadIdx.x == 0)
        parts[blockIdx.x] = room[0];
}

size_t cuda_digest_parts(void)
{
    return BLOCKS;
}

void cuda_digest(struct kern_dev *dev, uint64_t *parts, const void *array, size_t bytes)
{
    LAUNCH(dev, digest_parts, BLOCKS, THREADS, 0, parts, (const uint32_t *)array, (int64_t)(bytes / sizeof(uint32_t)));
}
