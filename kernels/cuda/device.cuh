/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device: what our kernels use of a GPU beside CUDA's own names: bf16, loads of 16 bytes, launches, reductions, and the
 * instructions of tensor cores and asynchronous copies (PTX ISA 8, of sm_80 and later).
 *
 * The same files are compiled twice: by nvcc, and, for tests without a GPU, by a C++ compiler that includes an
 * emulation of the execution model first (tests/emu/emu.cuh, with -include), which defines KERN_EMULATED, CUDA's names
 * (threadIdx, __syncthreads, __shfl_xor_sync, ...) and the emu_ functions below. A kernel that is to run on both
 *   - takes shared memory by SHARED() and SHARED_DYNAMIC(), never by __shared__ itself;
 *   - starts by LAUNCH(); its name and arguments are plain, a template's instance goes through a variable;
 *   - lets no thread of a block return before the last barrier of the block;
 *   - uses no float atomics: the same inputs give the same bits.
 */
#ifndef KERNELS_CUDA_DEVICE_CUH
#define KERNELS_CUDA_DEVICE_CUH

#include <stdint.h>
#include <string.h>

#include "kernels/cuda/cuda.h"

#ifndef KERN_EMULATED
#include <cuda_runtime.h>
#include <math_constants.h>
/* An array of this block's, its size known to the compiler; holds anything at the start. */
#define SHARED(type, name, count) __shared__ __align__(16) type name[count]
/* All the memory that the launch gave as `shared`; aligned to 128 bytes. */
#define SHARED_DYNAMIC(type, name)                         \
    extern __shared__ __align__(128) char shared_memory[]; \
    type *name = (type *)shared_memory
/* Queues kernel<<<grid, block, shared>>>(...) on the device's queue MAIN; a failure becomes the device's fault. */
#define LAUNCH(dev, kernel, grid, block, shared, ...)                                              \
    do {                                                                                           \
        cuda_allow_shared((dev), (const void *)(kernel), (size_t)(shared));                        \
        (kernel)<<<(grid), (block), (shared), (cudaStream_t)cuda_main_stream(dev)>>>(__VA_ARGS__); \
        cuda_launched((dev), #kernel);                                                             \
    } while (0)
#endif

/* ---- types ---- */

struct bf16 {
    uint16_t bits;
};

__device__ __forceinline__ float to_float(bf16 x)
{
    return __uint_as_float((uint32_t)x.bits << 16);
}

__device__ __forceinline__ float to_float(float x)
{
    return x;
}

/* To nearest, ties to even; NaN stays NaN. */
__device__ __forceinline__ bf16 to_bf16(float x)
{
#ifndef KERN_EMULATED
    uint16_t bits;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    return bf16{bits};
#else
    uint32_t bits = __float_as_uint(x);
    if (x != x)
        return bf16{0x7fff};
    return bf16{(uint16_t)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16)};
#endif
}

/* Up where the 16 bits cut off are more than the random ones: right in the mean. What is not finite stays. */
__device__ __forceinline__ bf16 to_bf16_stochastic(float x, uint32_t random16)
{
    uint32_t bits = __float_as_uint(x);
    if ((bits & 0x7f800000u) == 0x7f800000u)
        return to_bf16(x);
    return bf16{(uint16_t)((bits + (random16 & 0xffffu)) >> 16)};
}

/* Two values in one register of a tensor core's operand: `low` in the lower half. */
__device__ __forceinline__ uint32_t pack_bf16(float low, float high)
{
#ifndef KERN_EMULATED
    uint32_t out;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(out) : "f"(high), "f"(low));
    return out;
#else
    return (uint32_t)to_bf16(high).bits << 16 | to_bf16(low).bits;
#endif
}

/* 16 bytes, moved at once. */
template <typename T> struct alignas(16) vec {
    enum { COUNT = 16 / sizeof(T) };
    T at[16 / sizeof(T)];
};

template <typename T> __device__ __forceinline__ vec<T> load_vec(const T *from)
{
    vec<T> out;
    uint4 raw = *(const uint4 *)from;
    memcpy(&out, &raw, 16);
    return out;
}

template <typename T> __device__ __forceinline__ void store_vec(T *to, vec<T> from)
{
    uint4 raw;
    memcpy(&raw, &from, 16);
    *(uint4 *)to = raw;
}

/* Whether rows of `width` values of type T that begin at `base` can be moved 16 bytes at a time. */
template <typename T> static inline bool fits_vec(const void *base, int64_t width)
{
    return (uintptr_t)base % 16 == 0 && width % (int64_t)(16 / sizeof(T)) == 0;
}

/* ---- warps and blocks ---- */

enum { WARP = 32 };
#define WARP_ALL 0xffffffffu

__device__ __forceinline__ float warp_sum(float x)
{
    for (int d = WARP / 2; d > 0; d /= 2)
        x += __shfl_xor_sync(WARP_ALL, x, d);
    return x;
}

__device__ __forceinline__ double warp_sum(double x)
{
    for (int d = WARP / 2; d > 0; d /= 2)
        x += __shfl_xor_sync(WARP_ALL, x, d);
    return x;
}

__device__ __forceinline__ float warp_max(float x)
{
    for (int d = WARP / 2; d > 0; d /= 2)
        x = fmaxf(x, __shfl_xor_sync(WARP_ALL, x, d));
    return x;
}

/* ---- tensor cores and copies; the lanes of a warp together ---- */

/* d(16,8) += a(16,16) b(16,8), bf16 to fp32: mma.sync.aligned.m16n8k16.row.col; fragments as PTX lays them out. */
__device__ __forceinline__ void mma_16816(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])
{
#ifndef KERN_EMULATED
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
    emu_mma_16816(d, a, b);
#endif
}

/* Four 8x8 matrices of 16-bit values; lane l gives the address of row l % 8 of matrix l / 8, in shared memory. */
__device__ __forceinline__ void load_matrix_x4(uint32_t (&r)[4], const void *row)
{
#ifndef KERN_EMULATED
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"((uint32_t)__cvta_generic_to_shared(row))
                 : "memory");
#else
    emu_load_matrix_x4(r, row, false);
#endif
}

/* The same, each matrix transposed. */
__device__ __forceinline__ void load_matrix_x4_trans(uint32_t (&r)[4], const void *row)
{
#ifndef KERN_EMULATED
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"((uint32_t)__cvta_generic_to_shared(row))
                 : "memory");
#else
    emu_load_matrix_x4(r, row, true);
#endif
}

/* 16 bytes from global to shared memory, there after copy_wait(); zeros where not `valid` (nothing is read then). */
__device__ __forceinline__ void copy_async16(void *to, const void *from, bool valid)
{
#ifndef KERN_EMULATED
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"((uint32_t)__cvta_generic_to_shared(to)),
                 "l"(from), "r"(valid ? 16 : 0)
                 : "memory");
#else
    emu_copy_async16(to, from, valid);
#endif
}

/* Ends a group of this thread's copies. */
__device__ __forceinline__ void copy_commit()
{
#ifndef KERN_EMULATED
    asm volatile("cp.async.commit_group;" ::: "memory");
#else
    emu_copy_commit();
#endif
}

/* Waits until at most `pending` of this thread's groups are on their way; a barrier then shows them to the block. */
template <int pending> __device__ __forceinline__ void copy_wait()
{
#ifndef KERN_EMULATED
    asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
#else
    emu_copy_wait(pending);
#endif
}

#endif
