/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Causal grouped-query attention, backward: dqkv(R, (H+2G)*D) of dout(R, H*D), after FlashAttention-2 (Dao 2023,
 * arXiv:2307.08691), with the instructions of sm_80. With P = exp(scale Q K^T - lse) recomputed from the forward pass's
 * lse, and delta(B, H, T) = the rows' sums of dout * out:
 *   dV = P^T dout;  dS = P * (dout V^T - delta);  dQ = scale dS K;  dK = scale dS^T Q.
 *
 * Three kernels: delta, into scratch; dK and dV, a block for each tile of keys of a key/value head, going over the
 * query heads of the group and over their queries from the tile on; dQ, a block for each tile of queries of a query
 * head, going over the keys up to it. The scores are so computed twice, 7 products in place of 5; in exchange every
 * value of dqkv has one owner that sums in registers, in a fixed order: no float atomics, no second buffer of fp32, the
 * same bits each time.
 *
 * A warp has 32 rows (with D 128, 16: its sums of two gradients take 128 registers already). In the kernel of dK and dV
 * the scores are computed transposed, keys by queries, so that P^T and dS^T are left operands as they lie in registers;
 * lse and delta then belong to columns and come through shared memory. What the block goes over comes in two stages by
 * asynchronous copies, as in the forward pass; heaviest tiles first.
 */
#include "kernels/cuda/attention.cuh"

enum { DELTA_THREADS = 256 };

/* OWN rows of a block's own tile, 16 M16 of each warp; OTHER rows of the other side to a stage. The kernel of dK and dV
 * has registers for the scores of STEP of these at a time. */
template <int D> struct sizes {
    enum { M16 = D == 128 ? 1 : 2, OWN = ATTENTION_WARPS * 16 * M16, OTHER = D == 128 ? 64 : 32 };
    enum { STEP = D == 64 ? 16 : 32 };
    enum { STAGE = 2 * OTHER * D }; /* values of two tiles */
};

/* dout * out, summed over a head of a row; D / 8 lanes each. */
template <int D>
__global__ void __launch_bounds__(DELTA_THREADS)
    attention_delta_kernel(float *delta, const bf16 *dout, const bf16 *out, attention_dims dims, int64_t heads)
{
    constexpr int LANES = D / 8;
    int64_t i = ((int64_t)blockIdx.x * DELTA_THREADS + threadIdx.x) / LANES;
    int part = (int)threadIdx.x % LANES;
    float sum = 0;
    if (i < heads) {
        vec<bf16> x = load_vec(dout + i * D + part * 8);
        vec<bf16> y = load_vec(out + i * D + part * 8);
        UNROLL
        for (int c = 0; c < 8; c++)
            sum += to_float(x.at[c]) * to_float(y.at[c]);
    }
    UNROLL
    for (int d = LANES / 2; d > 0; d /= 2)
        sum += __shfl_xor_sync(WARP_ALL, sum, d);
    if (i < heads && part == 0) {
        int64_t row = i / dims.H;
        delta[stat_at(dims, (int)(row / dims.T), (int)(row % dims.T), (int)(i % dims.H))] = sum;
    }
}

/* ---- dK and dV ---- */

/* Which queries are next: of the heads of a group, one after the other, those from a tile on. */
struct query_walk {
    int head, last_head;
    int begin, row;

    __device__ __forceinline__ void advance(int by, int T)
    {
        row += by;
        if (row >= T) {
            row = begin;
            head++;
        }
    }
};

/* A stage is a tile of queries, then one of dout. */
template <int D>
__device__ __forceinline__ void copy_queries(bf16 *stage, const bf16 *qkv, const bf16 *dout, const attention_dims &dims,
                                             int sequence, const query_walk &at)
{
    constexpr int OTHER = sizes<D>::OTHER;
    copy_tile<D, OTHER>(stage, qkv + qkv_at(dims, D, sequence, at.row, at.head), qkv_row(dims, D), dims.T - at.row);
    copy_tile<D, OTHER>(stage + OTHER * D, dout + out_at(dims, D, sequence, at.row, at.head), (int64_t)dims.H * D,
                        dims.T - at.row);
    copy_commit();
}

/* This thread's part of the queries' statistics: lse, in units of log 2, in the first COUNT threads, delta in the next.
 * Beyond the sequence such that P becomes 0. */
template <int COUNT>
__device__ __forceinline__ float read_stat(const float *lse, const float *delta, const attention_dims &dims,
                                           int sequence, const query_walk &at)
{
    int i = (int)threadIdx.x;
    int row = at.row + i % COUNT;
    if (i < COUNT)
        return row < dims.T ? lse[stat_at(dims, sequence, row, at.head)] * ATTENTION_LOG2E : INFINITY;
    return i < 2 * COUNT && row < dims.T ? delta[stat_at(dims, sequence, row, at.head)] : 0.0f;
}

/* Scores, keys by queries, to P^T. `ahead` is the first query's position less the warp's first key's; `stats` are the
 * queries' lse. */
template <int N, int M16>
__device__ __forceinline__ void weigh_queries(float (&s)[M16][N / 8][4], const float *stats, int ahead, float factor,
                                              int lane)
{
    UNROLL
    for (int n = 0; n < N / 8; n++) {
        float2 lse = *(const float2 *)(stats + n * 8 + result_column(lane, 0));
        UNROLL
        for (int m = 0; m < M16; m++) {
            UNROLL
            for (int i = 0; i < 4; i++)
                s[m][n][i] = power_of_2(s[m][n][i] * factor - (i % 2 == 0 ? lse.x : lse.y));
        }
    }
    if (ahead >= 16 * M16 - 1)
        return;
    int least = result_row(lane, 0) - result_column(lane, 0) - ahead;
    UNROLL
    for (int m = 0; m < M16; m++) {
        UNROLL
        for (int n = 0; n < N / 8; n++) {
            UNROLL
            for (int i = 0; i < 4; i++)
                if (n * 8 + i % 2 - m * 16 - i / 2 * 8 < least)
                    s[m][n][i] = 0;
        }
    }
}

/* P^T to dS^T; `stats` are the queries' delta. */
template <int N, int M16>
__device__ __forceinline__ void differentiate_queries(float (&p)[M16][N / 8][4], const float (&dp)[M16][N / 8][4],
                                                      const float *stats, int lane)
{
    UNROLL
    for (int n = 0; n < N / 8; n++) {
        float2 delta = *(const float2 *)(stats + n * 8 + result_column(lane, 0));
        UNROLL
        for (int m = 0; m < M16; m++) {
            UNROLL
            for (int i = 0; i < 4; i++)
                p[m][n][i] *= dp[m][n][i] - (i % 2 == 0 ? delta.x : delta.y);
        }
    }
}

template <int D> static constexpr size_t key_shared()
{
    return (size_t)(2 * sizes<D>::OWN * D + 2 * sizes<D>::STAGE) * sizeof(bf16) +
           (size_t)(2 * 2 * sizes<D>::OTHER) * sizeof(float);
}

template <int D>
__global__ void __launch_bounds__(ATTENTION_THREADS, 2)
    attention_dkv_kernel(bf16 *dqkv, const bf16 *dout, const bf16 *qkv, const float *lse, const float *delta,
                         attention_dims dims)
{
    constexpr int M16 = sizes<D>::M16, OWN = sizes<D>::OWN, N = sizes<D>::OTHER, STAGE = sizes<D>::STAGE;
    constexpr int STEP = sizes<D>::STEP;
    SHARED_DYNAMIC(bf16, keys);
    bf16 *values = keys + OWN * D;
    bf16 *stages = values + OWN * D;
    float *stats = (float *)(stages + 2 * STAGE);
    int lane = (int)threadIdx.x % WARP;
    int warp_row = (int)threadIdx.x / WARP * 16 * M16;
    int sequence = (int)blockIdx.x / dims.G;
    int group = (int)blockIdx.x % dims.G;
    int first = (int)blockIdx.y * OWN;
    int mine = first + warp_row;
    int64_t at_keys = qkv_at(dims, D, sequence, first, dims.H + group);
    query_walk next = {group * (dims.H / dims.G), (group + 1) * (dims.H / dims.G), first, first};

    copy_tile<D, OWN>(keys, qkv + at_keys, qkv_row(dims, D), dims.T - first);
    copy_tile<D, OWN>(values, qkv + at_keys + dims.G * D, qkv_row(dims, D), dims.T - first);
    copy_queries<D>(stages, qkv, dout, dims, sequence, next);
    float stat = read_stat<N>(lse, delta, dims, sequence, next);

    tile_reader<D> across = chunks_first<D>(lane);
    tile_reader<D> down = rows_first<D>(lane);
    left_rows<D, M16, false> k, v;
    k.begin(keys + warp_row * D, down);
    v.begin(values + warp_row * D, down);
    float dk[M16][D / 8][4] = {};
    float dv[M16][D / 8][4] = {};
    for (int turn = 0; next.head < next.last_head; turn ^= 1) {
        int row = next.row;
        next.advance(N, dims.T);
        if (threadIdx.x < 2 * N)
            stats[turn * 2 * N + (int)threadIdx.x] = stat;
        copy_wait<0>();
        __syncthreads();
        if (next.head < next.last_head) {
            copy_queries<D>(stages + (turn ^ 1) * STAGE, qkv, dout, dims, sequence, next);
            stat = read_stat<N>(lse, delta, dims, sequence, next);
        }
        const bf16 *stage = stages + turn * STAGE;
        const float *stage_stats = stats + turn * 2 * N;
        ROLLED
        for (int step = 0; step < N; step += STEP, stage += STEP * D, stage_stats += STEP) {
            if (row + step + STEP <= mine)
                continue;
            float p[M16][STEP / 8][4], dp[M16][STEP / 8][4];
            forget(across.chunk);
            forget(down.chunk);
            multiply_rows<D, STEP>(p, k, down, stage, across);
            weigh_queries<STEP, M16>(p, stage_stats, row + step - mine, dims.scale * ATTENTION_LOG2E, lane);
            multiply_rows<D, STEP>(dp, v, down, stage + N * D, across);
            add_weighted<D, STEP>(dv, p, stage + N * D, down);
            differentiate_queries<STEP, M16>(p, dp, stage_stats + N, lane);
            add_weighted<D, STEP>(dk, p, stage, down);
        }
    }

    int64_t to = qkv_at(dims, D, sequence, mine, dims.H + group);
    float once[M16][2], scale[M16][2];
    UNROLL
    for (int m = 0; m < M16; m++) {
        once[m][0] = once[m][1] = 1;
        scale[m][0] = scale[m][1] = dims.scale;
    }
    write_rows<D>(dqkv + to, qkv_row(dims, D), dims.T - mine, keys + warp_row * D, dk, scale);
    write_rows<D>(dqkv + to + dims.G * D, qkv_row(dims, D), dims.T - mine, values + warp_row * D, dv, once);
}

/* ---- dQ ---- */

/* A stage is a tile of keys, then one of values. */
template <int D>
__device__ __forceinline__ void copy_keys(bf16 *stage, const bf16 *keys, const attention_dims &dims, int valid)
{
    constexpr int OTHER = sizes<D>::OTHER;
    copy_tile<D, OTHER>(stage, keys, qkv_row(dims, D), valid);
    copy_tile<D, OTHER>(stage + OTHER * D, keys + dims.G * D, qkv_row(dims, D), valid);
    copy_commit();
}

/* The statistics of this lane's rows, as in read_stat(). */
template <int M16>
__device__ __forceinline__ void read_stats(float (&log_sum)[M16][2], float (&change)[M16][2], const float *lse,
                                           const float *delta, int valid, int lane)
{
    UNROLL
    for (int m = 0; m < M16; m++) {
        UNROLL
        for (int half = 0; half < 2; half++) {
            int row = m * 16 + result_row(lane, 2 * half);
            log_sum[m][half] = row < valid ? lse[row] * ATTENTION_LOG2E : INFINITY;
            change[m][half] = row < valid ? delta[row] : 0.0f;
        }
    }
}

/* Scores to P. `ahead` is the first key's position less the warp's first query's. */
template <int N, int M16>
__device__ __forceinline__ void weigh_keys(float (&s)[M16][N / 8][4], const float (&lse)[M16][2], int ahead,
                                           float factor, int lane)
{
    UNROLL
    for (int m = 0; m < M16; m++) {
        UNROLL
        for (int n = 0; n < N / 8; n++) {
            UNROLL
            for (int i = 0; i < 4; i++)
                s[m][n][i] = power_of_2(s[m][n][i] * factor - lse[m][i / 2]);
        }
    }
    if (ahead + N <= 1)
        return;
    int least = result_row(lane, 0) - result_column(lane, 0) - ahead;
    UNROLL
    for (int m = 0; m < M16; m++) {
        UNROLL
        for (int n = 0; n < N / 8; n++) {
            UNROLL
            for (int i = 0; i < 4; i++)
                if (n * 8 + i % 2 - m * 16 - i / 2 * 8 > least)
                    s[m][n][i] = 0;
        }
    }
}

/* P to dS. */
template <int N, int M16>
__device__ __forceinline__ void differentiate_keys(float (&p)[M16][N / 8][4], const float (&dp)[M16][N / 8][4],
                                                   const float (&delta)[M16][2])
{
    UNROLL
    for (int m = 0; m < M16; m++) {
        UNROLL
        for (int n = 0; n < N / 8; n++) {
            UNROLL
            for (int i = 0; i < 4; i++)
                p[m][n][i] *= dp[m][n][i] - delta[m][i / 2];
        }
    }
}

template <int D> static constexpr size_t query_shared()
{
    return (size_t)(2 * sizes<D>::OWN * D + 2 * sizes<D>::STAGE) * sizeof(bf16);
}

template <int D>
__global__ void __launch_bounds__(ATTENTION_THREADS, 2)
    attention_dq_kernel(bf16 *dqkv, const bf16 *dout, const bf16 *qkv, const float *lse, const float *delta,
                        attention_dims dims)
{
    constexpr int M16 = sizes<D>::M16, OWN = sizes<D>::OWN, N = sizes<D>::OTHER, STAGE = sizes<D>::STAGE;
    SHARED_DYNAMIC(bf16, queries);
    bf16 *changes = queries + OWN * D;
    bf16 *stages = changes + OWN * D;
    int lane = (int)threadIdx.x % WARP;
    int warp_row = (int)threadIdx.x / WARP * 16 * M16;
    int sequence = (int)blockIdx.x / dims.H;
    int head = (int)blockIdx.x % dims.H;
    int first = (int)(gridDim.y - 1 - blockIdx.y) * OWN;
    int mine = first + warp_row;

    copy_tile<D, OWN>(queries, qkv + qkv_at(dims, D, sequence, first, head), qkv_row(dims, D), dims.T - first);
    copy_tile<D, OWN>(changes, dout + out_at(dims, D, sequence, first, head), (int64_t)dims.H * D, dims.T - first);
    copy_commit();
    const bf16 *keys = qkv + qkv_at(dims, D, sequence, 0, dims.H + head / (dims.H / dims.G));
    copy_keys<D>(stages, keys, dims, dims.T);
    float log_sum[M16][2], change[M16][2];
    int64_t stat = stat_at(dims, sequence, mine, head);
    read_stats<M16>(log_sum, change, lse + stat, delta + stat, dims.T - mine, lane);
    copy_wait<1>();
    __syncthreads();
    tile_reader<D> across = chunks_first<D>(lane);
    tile_reader<D> down = rows_first<D>(lane);
    left_rows<D, M16, true> q; /* for dout as well there are no registers */
    left_rows<D, M16, false> dout_rows;
    q.begin(queries + warp_row * D, down);
    dout_rows.begin(changes + warp_row * D, down);

    float dq[M16][D / 8][4] = {};
    int end = min(first + OWN, dims.T);
    for (int key = 0, turn = 0; key < end; key += N, turn ^= 1) {
        copy_wait<0>();
        __syncthreads();
        keys += N * qkv_row(dims, D);
        if (key + N < end)
            copy_keys<D>(stages + (turn ^ 1) * STAGE, keys, dims, dims.T - key - N);
        if (key >= mine + 16 * M16 || mine >= dims.T)
            continue;
        const bf16 *stage = stages + turn * STAGE;
        float p[M16][N / 8][4], dp[M16][N / 8][4];
        forget(across.chunk);
        forget(down.chunk);
        multiply_rows<D, N>(p, q, down, stage, across);
        weigh_keys<N, M16>(p, log_sum, key - mine, dims.scale * ATTENTION_LOG2E, lane);
        multiply_rows<D, N>(dp, dout_rows, down, stage + N * D, across);
        differentiate_keys<N, M16>(p, dp, change);
        add_weighted<D, N>(dq, p, stage, down);
    }

    float scale[M16][2];
    UNROLL
    for (int m = 0; m < M16; m++)
        scale[m][0] = scale[m][1] = dims.scale;
    write_rows<D>(dqkv + qkv_at(dims, D, sequence, mine, head), qkv_row(dims, D), dims.T - mine, queries + warp_row * D,
                  dq, scale);
}

/* ---- launchers ---- */

struct backward_arrays {
    bf16 *dqkv;
    const bf16 *dout, *out, *qkv;
    const float *lse;
    float *delta;
};

template <int D>
static void backward(struct kern_dev *dev, struct backward_arrays on, const struct kern_attention *dims)
{
    attention_dims given = attention_dims_of(dims);
    int64_t heads = dims->B * dims->T * dims->H;
    unsigned tiles = (unsigned)((dims->T + sizes<D>::OWN - 1) / sizes<D>::OWN);
    void (*attention_delta)(float *, const bf16 *, const bf16 *, attention_dims, int64_t) = attention_delta_kernel<D>;
    LAUNCH(dev, attention_delta, dim3((unsigned)((heads * (D / 8) + DELTA_THREADS - 1) / DELTA_THREADS)),
           dim3(DELTA_THREADS), 0, on.delta, on.dout, on.out, given, heads);
    void (*attention_dkv)(bf16 *, const bf16 *, const bf16 *, const float *, const float *, attention_dims) =
        attention_dkv_kernel<D>;
    LAUNCH(dev, attention_dkv, dim3((unsigned)(dims->B * dims->G), tiles), dim3(ATTENTION_THREADS), key_shared<D>(),
           on.dqkv, on.dout, on.qkv, on.lse, on.delta, given);
    void (*attention_dq)(bf16 *, const bf16 *, const bf16 *, const float *, const float *, attention_dims) =
        attention_dq_kernel<D>;
    LAUNCH(dev, attention_dq, dim3((unsigned)(dims->B * dims->H), tiles), dim3(ATTENTION_THREADS), query_shared<D>(),
           on.dqkv, on.dout, on.qkv, on.lse, on.delta, given);
}

/* delta */
extern "C" size_t cuda_attention_scratch(const struct kern_dev *dev, const struct kern_attention *dims)
{
    (void)dev;
    return (size_t)(dims->B * dims->H * dims->T) * sizeof(float);
}

extern "C" void cuda_attention_bwd(struct kern_dev *dev, kern_act *dqkv, const kern_act *dout, const kern_act *out,
                                   const kern_act *qkv, const float *lse, const struct kern_attention *dims,
                                   void *scratch)
{
    struct backward_arrays on = {(bf16 *)dqkv, (const bf16 *)dout, (const bf16 *)out, (const bf16 *)qkv,
                                 lse,          (float *)scratch};
    switch (dims->D) {
    case 16: backward<16>(dev, on, dims); break;
    case 32: backward<32>(dev, on, dims); break;
    case 64: backward<64>(dev, on, dims); break;
    case 128: backward<128>(dev, on, dims); break;
    default: break;
    }
}
