/* SPDX-License-Identifier: Apache-2.0 */
/*
 * values: what the kernels that are bound by memory share: eight values at a time (16 bytes of bf16, 32 of float) as
 * floats, sums over a block, quick exponentials and reciprocals, and how many threads and blocks cover so many things.
 *
 * A thread always works on eight values. Where the arrays are aligned for it (`fits`, found by the launcher) and all
 * eight are there, they move 16 bytes at a time; else, at ragged ends and in arrays that begin or have rows anywhere,
 * one by one: the same code for every size, the quick way for the sizes that matter.
 */
#ifndef KERNELS_CUDA_VALUES_CUH
#define KERNELS_CUDA_VALUES_CUH

#include "kernels/cuda/device.cuh"

/* Before a loop that has to be unrolled; g++ warns of a pragma that it does not know. */
#ifndef KERN_EMULATED
#define UNROLL _Pragma("unroll")
#else
#define UNROLL
#endif

/* ---- eight values ---- */

enum { EIGHT = 8 };

struct eight {
    float at[EIGHT];
};

/* How many of the next eight there are when `left` are left. */
__device__ __forceinline__ int of_eight(int64_t left)
{
    return left <= 0 ? 0 : left < EIGHT ? (int)left : (int)EIGHT;
}

__device__ __forceinline__ eight no_eight()
{
    eight out;
    UNROLL
    for (int j = 0; j < EIGHT; j++)
        out.at[j] = 0;
    return out;
}

/* Values low .. high - 1 of the eight that begin at `from`; the others are not read and become `rest`. */
template <typename T>
__device__ __forceinline__ eight load_eight(const T *from, int low, int high, bool fits, float rest = 0)
{
    eight out;
    if (fits && low == 0 && high == EIGHT) {
        UNROLL
        for (int p = 0; p < EIGHT / vec<T>::COUNT; p++) {
            vec<T> part = load_vec(from + p * vec<T>::COUNT);
            UNROLL
            for (int j = 0; j < vec<T>::COUNT; j++)
                out.at[p * vec<T>::COUNT + j] = to_float(part.at[j]);
        }
    } else {
        UNROLL
        for (int j = 0; j < EIGHT; j++)
            out.at[j] = low <= j && j < high ? to_float(from[j]) : rest;
    }
    return out;
}

/* The first `high` of the eight that begin at `from`, as they lie there; the others are 0 and not read. FITS: they are
 * aligned for 16 bytes, and all there or none. */
template <bool FITS> __device__ __forceinline__ vec<bf16> load_raw(const bf16 *from, int high)
{
    vec<bf16> out = {};
    if (FITS) {
        if (high > 0)
            out = load_vec(from);
    } else {
        UNROLL
        for (int j = 0; j < EIGHT; j++)
            if (j < high)
                out.at[j] = from[j];
    }
    return out;
}

__device__ __forceinline__ eight to_eight(const vec<bf16> &raw)
{
    eight out;
    UNROLL
    for (int j = 0; j < EIGHT; j++)
        out.at[j] = to_float(raw.at[j]);
    return out;
}

__device__ __forceinline__ vec<bf16> round_nearest(const eight &x)
{
    uint32_t pairs[EIGHT / 2];
    vec<bf16> out;
    UNROLL
    for (int j = 0; j < EIGHT / 2; j++)
        pairs[j] = pack_bf16(x.at[2 * j], x.at[2 * j + 1]);
    memcpy(&out, pairs, sizeof out);
    return out;
}

/* Values low .. high - 1; the others are left alone. */
__device__ __forceinline__ void store_eight(bf16 *to, const vec<bf16> &x, int low, int high, bool fits)
{
    if (fits && low == 0 && high == EIGHT) {
        store_vec(to, x);
    } else {
        UNROLL
        for (int j = 0; j < EIGHT; j++)
            if (low <= j && j < high)
                to[j] = x.at[j];
    }
}

__device__ __forceinline__ void store_eight(bf16 *to, const eight &x, int low, int high, bool fits)
{
    store_eight(to, round_nearest(x), low, high, fits);
}

__device__ __forceinline__ void store_eight(float *to, const eight &x, int low, int high, bool fits)
{
    if (fits && low == 0 && high == EIGHT) {
        UNROLL
        for (int p = 0; p < EIGHT / vec<float>::COUNT; p++) {
            vec<float> part;
            UNROLL
            for (int j = 0; j < vec<float>::COUNT; j++)
                part.at[j] = x.at[p * vec<float>::COUNT + j];
            store_vec(to + p * vec<float>::COUNT, part);
        }
    } else {
        UNROLL
        for (int j = 0; j < EIGHT; j++)
            if (low <= j && j < high)
                to[j] = x.at[j];
    }
}

/* ---- sums over a block ---- */

/* The sum of all threads' x, the same for all, added up in the order of warps. `room` is shared memory for WARP values;
 * it may be used again at once. The block is whole warps. */
template <typename T> __device__ __forceinline__ T block_sum(T x, T *room)
{
    int warps = (int)blockDim.x / WARP;
    x = warp_sum(x);
    __syncthreads(); /* who reads what an earlier call left is done */
    if (threadIdx.x % WARP == 0)
        room[threadIdx.x / WARP] = x;
    __syncthreads();
    T total = room[0];
    for (int i = 1; i < warps; i++)
        total += room[i];
    return total;
}

__device__ __forceinline__ float block_max(float x, float *room)
{
    int warps = (int)blockDim.x / WARP;
    x = warp_max(x);
    __syncthreads();
    if (threadIdx.x % WARP == 0)
        room[threadIdx.x / WARP] = x;
    __syncthreads();
    float most = room[0];
    for (int i = 1; i < warps; i++)
        most = fmaxf(most, room[i]);
    return most;
}

/* ---- quick functions: an instruction or two each, right to about 1e-6; what is below 2^-126 is 0 ---- */

__device__ __forceinline__ float quick_exp(float x)
{
#ifndef KERN_EMULATED
    float out;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(out) : "f"(x * 1.4426950408889634f));
    return out;
#else
    return expf(x);
#endif
}

/* Of Inf it is 0. */
__device__ __forceinline__ float quick_reciprocal(float x)
{
#ifndef KERN_EMULATED
    float out;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(out) : "f"(x));
    return out;
#else
    return 1.0f / x;
#endif
}

__device__ __forceinline__ float quick_sqrt(float x)
{
#ifndef KERN_EMULATED
    float out;
    asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(out) : "f"(x));
    return out;
#else
    return sqrtf(x);
#endif
}

/* ---- on the host: sizes of launches ---- */

static inline int64_t divide_up(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

/* Threads of a block that does `units` things, each thread as many as the others: whole warps, at most `most`. */
static inline unsigned threads_for(int64_t units, int64_t most)
{
    int64_t threads = divide_up(units, WARP) * WARP;
    return (unsigned)(threads < most ? threads : most);
}

/* A kernel that goes once over a flat array has FLAT_THREADS a block and each thread takes eight values; the grid's
 * first dimension has room for 4e12 values. */
enum { FLAT_THREADS = 256 };

static inline unsigned flat_blocks(int64_t count)
{
    return (unsigned)divide_up(count, FLAT_THREADS * EIGHT);
}

/* The first of this thread's eight values. */
__device__ __forceinline__ int64_t flat_at()
{
    return ((int64_t)blockIdx.x * FLAT_THREADS + threadIdx.x) * EIGHT;
}

/* The sum of this block's squares, where every block of the grid takes its turns of `threads` times eight: in double
 * and, by the number of blocks, in one order. The same in all threads. */
__device__ __forceinline__ double block_squares(const float *x, int64_t count, int threads, bool fits, double *room)
{
    int64_t stride = (int64_t)gridDim.x * threads * EIGHT;
    double sum = 0;
    for (int64_t at = ((int64_t)blockIdx.x * threads + threadIdx.x) * EIGHT; at < count; at += stride) {
        eight own = load_eight(x + at, 0, of_eight(count - at), fits);
        UNROLL
        for (int j = 0; j < EIGHT; j++)
            sum += (double)own.at[j] * (double)own.at[j];
    }
    return block_sum(sum, room);
}

#endif
