/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attention: what the forward and the backward kernels of attention share: tiles in shared memory, and products of them
 * on tensor cores.
 *
 * A block is 4 warps; a warp owns M16 times 16 rows of the block's own tile (queries; in the kernel of dK and dV, keys)
 * from the first product to the last, so that softmax needs no word between warps. Registers hold the sums; a row of
 * scores lies in 4 neighbouring lanes. Scores turn from the result of one product into the left operand of the next
 * without leaving their registers, because m16n8k16 lays out both alike.
 *
 * A tile is rows of D values, in chunks of 16 bytes whose order within a row is XORed with the row's number: 8
 * rows of one column of chunks, which is what ldmatrix reads at a time, lie in 8 different groups of banks, as do the
 * chunks of a row, which cp.async writes. Rows beyond the sequence are zeros.
 */
#ifndef KERNELS_CUDA_ATTENTION_CUH
#define KERNELS_CUDA_ATTENTION_CUH

#include <math.h>

#include "kernels/cuda/device.cuh"

/* Arrays in registers need loops that are unrolled; a C++ compiler has no use for that, and another name for it. */
#ifndef KERN_EMULATED
#define UNROLL _Pragma("unroll")
#define ROLLED _Pragma("unroll 1")
#else
#define UNROLL
#define ROLLED
#endif

enum { ATTENTION_WARPS = 4, ATTENTION_THREADS = ATTENTION_WARPS * WARP };

#define ATTENTION_LOG2E 1.4426950408889634f

struct attention_dims {
    int T, H, G;
    float scale; /* of scores: 1 / sqrt(D) */
};

static inline struct attention_dims attention_dims_of(const struct kern_attention *dims)
{
    struct attention_dims out = {(int)dims->T, (int)dims->H, (int)dims->G, 1.0f / sqrtf((float)dims->D)};
    return out;
}

/* Values from one position to the next in qkv. */
__device__ __forceinline__ int64_t qkv_row(const attention_dims &dims, int D)
{
    return (int64_t)(dims.H + 2 * dims.G) * D;
}

/* Where a head of qkv is at a position of a sequence: query heads count from 0, key heads from H, value heads from
 * H + G. */
__device__ __forceinline__ int64_t qkv_at(const attention_dims &dims, int D, int sequence, int position, int head)
{
    return ((int64_t)sequence * dims.T + position) * qkv_row(dims, D) + head * D;
}

/* The same in out(R, H*D) and in its gradient. */
__device__ __forceinline__ int64_t out_at(const attention_dims &dims, int D, int sequence, int position, int head)
{
    return (((int64_t)sequence * dims.T + position) * dims.H + head) * D;
}

/* In lse(B, H, T) and delta(B, H, T). */
__device__ __forceinline__ int64_t stat_at(const attention_dims &dims, int sequence, int position, int head)
{
    return ((int64_t)sequence * dims.H + head) * dims.T + position;
}

/* 2^x in one instruction (relative error 2^-22; subnormal results are 0). */
__device__ __forceinline__ float power_of_2(float x)
{
#ifndef KERN_EMULATED
    float out;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(out) : "f"(x));
    return out;
#else
    return exp2f(x);
#endif
}

/* Makes of x a value that the compiler knows nothing about. Said once a tile of what places are computed from: it would
 * else keep each of those places in a register of its own from tile to tile, and spill what is more than it has. To
 * compute them again is an instruction each. */
__device__ __forceinline__ void forget(int &x)
{
#ifndef KERN_EMULATED
    asm volatile("" : "+r"(x));
#else
    (void)x;
#endif
}

__device__ __forceinline__ void forget(int64_t &x)
{
#ifndef KERN_EMULATED
    asm volatile("" : "+l"(x));
#else
    (void)x;
#endif
}

/* ---- tiles ---- */

/* What the numbers of a row's chunks are XORed with; depends on row % 8 alone. */
template <int D> __device__ __forceinline__ int chunk_order(int row)
{
    constexpr int CHUNKS = D / 8;
    if (CHUNKS >= 8)
        return row % 8;
    return row / (8 / (CHUNKS < 8 ? CHUNKS : 8)) % CHUNKS;
}

template <int D> __device__ __forceinline__ int chunk_at(int row, int chunk)
{
    return row * D + (chunk ^ chunk_order<D>(row)) * 8;
}

/* Begins to copy ROWS rows, `row` values apart, into a tile; those from `valid` on become zeros. A thread copies the
 * same chunk of every STEP-th row, so that one pointer and one place in the tile are all that it keeps. */
template <int D, int ROWS>
__device__ __forceinline__ void copy_tile(bf16 *tile, const bf16 *from, int64_t row, int valid)
{
    constexpr int CHUNKS = D / 8;
    constexpr int STEP = ATTENTION_THREADS / CHUNKS;
    static_assert(STEP % 8 == 0, "the order of chunks is the same in all of a thread's rows");
    int r = (int)threadIdx.x / CHUNKS;
    int chunk = (int)threadIdx.x % CHUNKS;
    bf16 *to = tile + chunk_at<D>(r, chunk);
    forget(row);
    from += r * row + chunk * 8;
    UNROLL
    for (int i = 0; i < ROWS; i += STEP) {
        if (STEP <= ROWS || r < ROWS)
            copy_async16(to + i * D, from, r + i < valid);
        from += STEP * row;
    }
}

/* Where this lane points ldmatrix for 16 rows and 2 chunks of a tile. */
template <int D> struct tile_reader {
    int first; /* values */
    int chunk;

    __device__ __forceinline__ const bf16 *at(const bf16 *tile, int row, int pair) const
    {
        return tile + row * D + first + ((2 * pair) ^ chunk) * 8;
    }
};

/* The four matrices of 8 x 8 in the order (rows 0-7, 8-15) of chunk 0, then of chunk 1: a left operand; transposed, two
 * right operands whose sum goes over the rows. */
template <int D> __device__ __forceinline__ tile_reader<D> rows_first(int lane)
{
    int row = lane % 16;
    return tile_reader<D>{row * D, (lane / 16) ^ chunk_order<D>(row)};
}

/* In the order (chunk 0, 1) of rows 0-7, then of rows 8-15: two right operands whose sum goes over the columns. */
template <int D> __device__ __forceinline__ tile_reader<D> chunks_first(int lane)
{
    int row = lane / 16 * 8 + lane % 8;
    return tile_reader<D>{row * D, (lane / 8 % 2) ^ chunk_order<D>(row)};
}

/* ---- products ---- */

/* A warp's rows as the left operand of a product over D: read once, where registers suffice; or again each time. */
template <int D, int M16, bool HELD> struct left_rows;

template <int D, int M16> struct left_rows<D, M16, true> {
    uint32_t held[D / 16][M16][4];

    __device__ __forceinline__ void begin(const bf16 *rows, tile_reader<D> reader)
    {
        UNROLL
        for (int pair = 0; pair < D / 16; pair++) {
            UNROLL
            for (int m = 0; m < M16; m++)
                load_matrix_x4(held[pair][m], reader.at(rows, m * 16, pair));
        }
    }

    __device__ __forceinline__ void take(uint32_t (&a)[4], int m, int pair, tile_reader<D>) const
    {
        UNROLL
        for (int i = 0; i < 4; i++)
            a[i] = held[pair][m][i];
    }
};

template <int D, int M16> struct left_rows<D, M16, false> {
    const bf16 *rows;

    __device__ __forceinline__ void begin(const bf16 *rows_, tile_reader<D>)
    {
        rows = rows_;
    }

    __device__ __forceinline__ void take(uint32_t (&a)[4], int m, int pair, tile_reader<D> reader) const
    {
        load_matrix_x4(a, reader.at(rows, m * 16, pair));
    }
};

/* out(16 M16, N) = left(16 M16, D) right(N, D)^T */
template <int D, int N, int M16, bool HELD>
__device__ __forceinline__ void multiply_rows(float (&out)[M16][N / 8][4], const left_rows<D, M16, HELD> &left,
                                              tile_reader<D> left_reader, const bf16 *right, tile_reader<D> reader)
{
    UNROLL
    for (int m = 0; m < M16; m++) {
        UNROLL
        for (int n = 0; n < N / 8; n++) {
            UNROLL
            for (int i = 0; i < 4; i++)
                out[m][n][i] = 0;
        }
    }
    UNROLL
    for (int pair = 0; pair < D / 16; pair++) {
        uint32_t a[M16][4];
        UNROLL
        for (int m = 0; m < M16; m++)
            left.take(a[m], m, pair, left_reader);
        UNROLL
        for (int n = 0; n < N / 16; n++) {
            uint32_t both[4];
            load_matrix_x4(both, reader.at(right, n * 16, pair));
            uint32_t b0[2] = {both[0], both[1]};
            uint32_t b1[2] = {both[2], both[3]};
            UNROLL
            for (int m = 0; m < M16; m++) {
                mma_16816(out[m][2 * n], a[m], b0);
                mma_16816(out[m][2 * n + 1], a[m], b1);
            }
        }
    }
}

/* sum(16 M16, D) += left(16 M16, N) right(N, D), the left one rounded to bf16 */
template <int D, int N, int M16>
__device__ __forceinline__ void add_weighted(float (&sum)[M16][D / 8][4], const float (&left)[M16][N / 8][4],
                                             const bf16 *right, tile_reader<D> reader)
{
    UNROLL
    for (int n = 0; n < N / 16; n++) {
        uint32_t a[M16][4];
        UNROLL
        for (int m = 0; m < M16; m++) {
            a[m][0] = pack_bf16(left[m][2 * n][0], left[m][2 * n][1]);
            a[m][1] = pack_bf16(left[m][2 * n][2], left[m][2 * n][3]);
            a[m][2] = pack_bf16(left[m][2 * n + 1][0], left[m][2 * n + 1][1]);
            a[m][3] = pack_bf16(left[m][2 * n + 1][2], left[m][2 * n + 1][3]);
        }
        UNROLL
        for (int pair = 0; pair < D / 16; pair++) {
            uint32_t both[4];
            load_matrix_x4_trans(both, reader.at(right, n * 16, pair));
            uint32_t b0[2] = {both[0], both[1]};
            uint32_t b1[2] = {both[2], both[3]};
            UNROLL
            for (int m = 0; m < M16; m++) {
                mma_16816(sum[m][2 * pair], a[m], b0);
                mma_16816(sum[m][2 * pair + 1], a[m], b1);
            }
        }
    }
}

/* ---- a warp's results ---- */

/* The row and the column of value i of this lane in one result of m16n8k16. */
__device__ __forceinline__ int result_row(int lane, int i)
{
    return lane / 4 + i / 2 * 8;
}

__device__ __forceinline__ int result_column(int lane, int i)
{
    return lane % 4 * 2 + i % 2;
}

struct alignas(4) bf16_pair {
    bf16 at[2];
};

/* Writes factor times sum(16 M16, D), one factor a row, to rows `row` values apart, the first `valid` of them. Goes
 * through `mine`, this warp's rows of a tile that nobody else reads any more, so that 16 bytes are written at a time.
 */
template <int D, int M16>
__device__ __forceinline__ void write_rows(bf16 *to, int64_t row, int valid, bf16 *mine,
                                           const float (&sum)[M16][D / 8][4], const float (&factor)[M16][2])
{
    int lane = (int)threadIdx.x % WARP;
    __syncwarp();
    UNROLL
    for (int m = 0; m < M16; m++) {
        UNROLL
        for (int n = 0; n < D / 8; n++) {
            UNROLL
            for (int half = 0; half < 2; half++) {
                uint32_t bits =
                    pack_bf16(sum[m][n][2 * half] * factor[m][half], sum[m][n][2 * half + 1] * factor[m][half]);
                bf16_pair pair;
                memcpy(&pair, &bits, 4);
                int r = m * 16 + result_row(lane, 2 * half);
                *(bf16_pair *)(mine + chunk_at<D>(r, n) + result_column(lane, 0)) = pair;
            }
        }
    }
    __syncwarp();
    constexpr int CHUNKS = D / 8;
    UNROLL
    for (int i = lane; i < 16 * M16 * CHUNKS; i += WARP) {
        int r = i / CHUNKS;
        int chunk = i % CHUNKS;
        if (r < valid)
            store_vec(to + r * row + chunk * 8, load_vec(mine + chunk_at<D>(r, chunk)));
    }
}

#endif
