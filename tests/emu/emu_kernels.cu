/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels for the test of the emulator: see emu_kernels.h. */
#include "tests/emu/emu_kernels.h"

#include "kernels/cuda/device.cuh"

template <typename T, typename = void> struct can_add : std::false_type {
};
template <typename T> struct can_add<T, decltype((void)atomicAdd((T *)nullptr, T(1)))> : std::true_type {
};
static_assert(can_add<int>::value && can_add<unsigned>::value && !can_add<float>::value && !can_add<double>::value,
              "atomics are for integers");

static kern_dev *const no_dev = nullptr;

/* ---- barriers and orders ---- */

__global__ void neighbours(float *out, bool barrier)
{
    SHARED(float, mine, TRY_THREADS);
    SHARED_DYNAMIC(float, again);
    int t = threadIdx.x;
    mine[t] = t + 1;
    if (barrier)
        __syncthreads();
    again[t] = mine[(t + 1) % TRY_THREADS];
    out[blockIdx.x * TRY_THREADS + t] = again[t] + mine[(t + TRY_THREADS - 1) % TRY_THREADS];
}

void try_neighbours(float *out, bool barrier)
{
    LAUNCH(no_dev, neighbours, TRY_BLOCKS, TRY_THREADS, TRY_THREADS * sizeof(float), out, barrier);
}

__global__ void warp_neighbours(float *out, bool barrier)
{
    SHARED(float, mine, 64);
    int t = threadIdx.x, other = t ^ 1;
    mine[t] = t;
    if (barrier)
        __syncwarp();
    else
        (void)__shfl_sync(WARP_ALL, t, 0);
    out[t] = mine[other];
}

void try_warp_neighbours(float *out, bool barrier)
{
    LAUNCH(no_dev, warp_neighbours, 1, 64, 0, out, barrier);
}

__global__ void take_turns(int32_t *turns, int32_t *count)
{
    turns[blockIdx.x * blockDim.x + threadIdx.x] = atomicAdd(count, 1);
}

void try_turns(int32_t *turns, int32_t *count)
{
    LAUNCH(no_dev, take_turns, TRY_BLOCKS, TRY_THREADS, 0, turns, count);
}

__global__ void all_blocks(int32_t *out, bool atomic)
{
    if (threadIdx.x == 1 && threadIdx.y == 2 && threadIdx.z == 1) {
        if (atomic)
            atomicAdd(out, 1);
        else
            out[0] += 1;
    }
    __syncthreads();
}

void try_blocks(int32_t *out, bool atomic)
{
    LAUNCH(no_dev, all_blocks, dim3(2), dim3(8, 4, 2), 0, out, atomic);
}

/* ---- wrong uses ---- */

__device__ static int wrong_lane(try_fault what, int t)
{
    switch (what) {
    case TRY_NOT_IN_MASK: return __shfl_sync(t == 3 ? 0xf0u : WARP_ALL, t, 0);
    case TRY_LANE_LEFT:
    case TRY_LANE_LEAVES: return __shfl_sync(WARP_ALL, t, 0);
    case TRY_NO_SUCH_LANE: return t < 64 ? 0 : __shfl_sync(WARP_ALL, t, 0);
    case TRY_OTHER_MASK: return __shfl_sync(t == 1 ? 0x0fu : 0xffu, t, 0);
    case TRY_CIRCLE: return t < 3 ? __shfl_sync(1u << t | 1u << (t + 1) % 3, t, 0) : 0;
    case TRY_FROM_OUTSIDE: return t < 8 ? __shfl_sync(0xffu, t, 9) : 0;
    default: return __shfl_xor_sync(t < 16 ? 0x0000ffffu : 0xffff0000u, t, 1);
    }
}

__global__ void wrong(try_fault what, int32_t *out)
{
    int t = threadIdx.x;
    bool odd = t == 5;
    if ((what == TRY_RETURNED && t == 0) || (what == TRY_RETURNS_LATER && t == (int)blockDim.x - 1) ||
        (what == TRY_LANE_LEFT && t == 0) || (what == TRY_LANE_LEAVES && t == 31))
        return;
    if (what == TRY_TWO_BARRIERS && odd)
        __syncthreads();
    else if ((what == TRY_BARRIER_AND_WARP && odd) || (what == TRY_WARP_AND_BARRIER && !odd))
        __syncwarp();
    else if (what <= TRY_WARP_AND_BARRIER)
        __syncthreads();
    else
        out[t] = wrong_lane(what, t);
}

void try_wrong(enum try_fault what, int32_t *out)
{
    int threads = what == TRY_NO_SUCH_LANE ? 72 : what <= TRY_WARP_AND_BARRIER ? 64 : 32;
    LAUNCH(no_dev, wrong, 1, threads, 0, what, out);
}

__attribute__((no_sanitize("undefined"))) __global__ void vector(uint32_t *memory, int by)
{
    uint4 x = *(const uint4 *)((char *)memory + by);
    memory[8] = x.x;
}

void try_vector(uint32_t *memory, int by)
{
    LAUNCH(no_dev, vector, 1, 1, 0, memory, by);
}

__global__ void row(int by)
{
    SHARED(char, memory, 64);
    uint32_t r[4];
    memory[threadIdx.x] = memory[32 + threadIdx.x] = 0;
    __syncwarp();
    load_matrix_x4(r, memory + (threadIdx.x == 7 ? by : 0));
}

void try_row(int by)
{
    LAUNCH(no_dev, row, 1, 32, 0, by);
}

__global__ void copy(const void *from, int by)
{
    SHARED(char, memory, 64);
    copy_async16(memory, (const char *)from + by, true);
    copy_commit();
    copy_wait<0>();
}

void try_copy(const void *from, int by)
{
    LAUNCH(no_dev, copy, 1, 1, 0, from, by);
}

/* ---- shared memory ---- */

__global__ void write_dynamic(int i)
{
    SHARED_DYNAMIC(float, memory);
    memory[i] = 1;
}

void try_dynamic(int count, int i)
{
    LAUNCH(no_dev, write_dynamic, 2, 1, count * sizeof(float), i);
}

__global__ void write_static(int i)
{
    SHARED(float, memory, 8);
    float *at = memory;
    at[i] = 1;
}

void try_static(int i)
{
    LAUNCH(no_dev, write_static, 2, 1, 16, i);
}

__global__ void nothing()
{
}

void try_launch(int blocks, int threads, int shared)
{
    LAUNCH(no_dev, nothing, blocks, threads, shared);
}

template <int count> __device__ static uint32_t at_start()
{
    SHARED(uint32_t, memory, count);
    static_assert(sizeof(memory) == 4 * count, "an array");
    uint32_t all = WARP_ALL;
    for (int i = 0; i < count; i++) {
        all &= memory[i];
        memory[i] = count;
    }
    return all;
}

__global__ void poison(uint32_t *out)
{
    SHARED_DYNAMIC(uint32_t, memory);
    out[blockIdx.x * 3] = (uintptr_t)memory % 128 == 0 ? memory[0] : 0;
    memory[0] = 1;
    out[blockIdx.x * 3 + 1] = at_start<5>();
    out[blockIdx.x * 3 + 2] = at_start<7>();
}

void try_poison(uint32_t *out)
{
    LAUNCH(no_dev, poison, TRY_BLOCKS, 1, 4, out);
}

/* ---- warps ---- */

__global__ void shuffles(double *out, const double *value)
{
    int l = threadIdx.x;
    out[0 * 32 + l] = __shfl_sync(WARP_ALL, value[l], (l * 7 + 3) % 32);
    out[1 * 32 + l] = __shfl_xor_sync(WARP_ALL, (float)value[l], 5);
    out[2 * 32 + l] = __shfl_up_sync(WARP_ALL, (int)value[l], 3);
    out[3 * 32 + l] = __shfl_down_sync(WARP_ALL, (unsigned)value[l], 3);
    out[4 * 32 + l] = __shfl_sync(WARP_ALL, (int64_t)value[l], 10, 8);
    out[5 * 32 + l] = __shfl_xor_sync(WARP_ALL, value[l], 8, 8);
    out[6 * 32 + l] = __shfl_up_sync(WARP_ALL, value[l], 2, 4);
    out[7 * 32 + l] = __shfl_down_sync(WARP_ALL, value[l], 2, 4);
    out[8 * 32 + l] = warp_sum(value[l]);
    out[9 * 32 + l] = warp_max((float)value[l]);
}

void try_shuffles(double *out, const double *value)
{
    LAUNCH(no_dev, shuffles, 1, 32, 0, out, value);
}

__global__ void votes(uint32_t *out, const int32_t *value)
{
    int l = threadIdx.x;
    out[l] = __ballot_sync(WARP_ALL, value[l]);
    out[32 + l] = l < 16 ? __ballot_sync(0xffffu, value[l]) : __ballot_sync(0xffff0000u, value[l]);
    out[64 + l] = __any_sync(WARP_ALL, value[l] && l == 0);
    out[96 + l] = __all_sync(WARP_ALL, value[l] || l >= 0);
}

void try_votes(uint32_t *out, const int32_t *value)
{
    LAUNCH(no_dev, votes, 1, 32, 0, out, value);
}

/* ---- tensor cores ---- */

__device__ static uint32_t pair_of(uint16_t low, uint16_t high)
{
    return (uint32_t)high << 16 | low;
}

/* i of the manual's formulas for a: row g for i 0, 1, 4, 5, else g + 8; column 2t + (i & 1), + 8 for i >= 4. */
__global__ void mma(float *d, const uint16_t *a, const uint16_t *b)
{
    int g = threadIdx.x >> 2, t = threadIdx.x % 4;
    uint16_t a_values[8], b_values[4];
    uint32_t a_words[4], b_words[2];
    float sums[4];
    for (int i = 0; i < 8; i++) {
        int r = i < 2 || (i >= 4 && i < 6) ? g : g + 8, k = t * 2 + (i & 1) + (i >= 4 ? 8 : 0);
        a_values[i] = a[r * 16 + k];
    }
    for (int i = 0; i < 4; i++) {
        int k = t * 2 + (i & 1) + (i >= 2 ? 8 : 0);
        b_values[i] = b[k * 8 + g];
    }
    for (int i = 0; i < 4; i++) {
        a_words[i] = pair_of(a_values[2 * i], a_values[2 * i + 1]);
        sums[i] = d[(i < 2 ? g : g + 8) * 8 + t * 2 + (i & 1)];
    }
    for (int i = 0; i < 2; i++)
        b_words[i] = pair_of(b_values[2 * i], b_values[2 * i + 1]);
    mma_16816(sums, a_words, b_words);
    for (int i = 0; i < 4; i++)
        d[(i < 2 ? g : g + 8) * 8 + t * 2 + (i & 1)] = sums[i];
}

void try_mma(float *d, const uint16_t *a, const uint16_t *b)
{
    LAUNCH(no_dev, mma, 1, 32, 0, d, a, b);
}

__global__ void mma_loaded(float *d, const uint16_t *a, const uint16_t *b)
{
    SHARED(uint16_t, a_tile, 256);
    SHARED(uint16_t, b_tile, 128);
    int l = threadIdx.x, g = l / 4, t = l % 4;
    for (int i = l; i < 256; i += 32)
        a_tile[i] = a[i];
    for (int i = l; i < 128; i += 32)
        b_tile[i] = b[i];
    __syncwarp();
    uint32_t a_words[4], b_words[4];
    float sums[4];
    /* The four quarters of a: rows 0 and 8 of columns 0, then of columns 8. */
    load_matrix_x4(a_words, a_tile + (l % 16) * 16 + l / 16 * 8);
    /* Rows 0..15 of b, twice. */
    load_matrix_x4_trans(b_words, b_tile + (l % 16) * 8);
    const uint32_t b_pair[2] = {b_words[0], b_words[1]};
    for (int i = 0; i < 4; i++)
        sums[i] = d[(g + i / 2 * 8) * 8 + t * 2 + i % 2];
    mma_16816(sums, a_words, b_pair);
    for (int i = 0; i < 4; i++)
        d[(g + i / 2 * 8) * 8 + t * 2 + i % 2] = sums[i];
}

void try_mma_loaded(float *d, const uint16_t *a, const uint16_t *b)
{
    LAUNCH(no_dev, mma_loaded, 1, 32, 0, d, a, b);
}

__global__ void matrix(uint32_t *out, const uint16_t *in, bool trans)
{
    SHARED(uint16_t, tile, 256);
    for (int i = threadIdx.x; i < 256; i += 32)
        tile[i] = in[i];
    __syncwarp();
    uint32_t r[4];
    if (trans)
        load_matrix_x4_trans(r, tile + threadIdx.x * 8);
    else
        load_matrix_x4(r, tile + threadIdx.x * 8);
    for (int i = 0; i < 4; i++)
        out[threadIdx.x * 4 + i] = r[i];
}

void try_matrix(uint32_t *out, const uint16_t *in, bool trans)
{
    LAUNCH(no_dev, matrix, 1, 32, 0, out, in, trans);
}

__global__ void async(uint32_t *out, const uint32_t *in)
{
    SHARED(uint32_t, memory, 12);
    copy_async16(memory, in, true);
    copy_commit();
    copy_async16(memory + 4, in + 4, true);
    copy_async16(memory + 8, in + 8, false);
    copy_commit();
    for (int i = 0; i < 3; i++)
        out[i] = memory[4 * i];
    copy_wait<1>();
    for (int i = 0; i < 3; i++)
        out[4 + i] = memory[4 * i];
    copy_wait<0>();
    for (int i = 0; i < 3; i++)
        out[8 + i] = memory[4 * i + 3];
}

void try_async(uint32_t *out, const uint32_t *in)
{
    LAUNCH(no_dev, async, 1, 1, 0, out, in);
}

__global__ void atomics(int32_t *out)
{
    int n = blockIdx.x * blockDim.x + threadIdx.x;
    atomicAdd(&out[0], n);
    atomicMax(&out[1], n);
    atomicMin(&out[2], -n);
    atomicOr(&out[3], 1 << n % 5);
}

void try_atomics(int32_t *out)
{
    LAUNCH(no_dev, atomics, 4, 64, 0, out);
}
