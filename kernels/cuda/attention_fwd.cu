/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Causal grouped-query attention, forward: out(R, H*D) and lse(B, H, T) of qkv(R, (H+2G)*D). FlashAttention-2 (Dao
 * 2023, arXiv:2307.08691) with the instructions of sm_80.
 *
 * A block has 128 query rows of one head and goes over the keys up to its last row, 64 to a tile, with softmax online:
 * in base 2, unnormalised, the sums of a row scaled down when its maximum grows, which is asked once a warp, as it
 * seldom does after the first keys. A warp has 32 rows and not 16, because then every fragment of keys and values that
 * it reads from shared memory serves two products; with 16, reading would take longer than multiplying. With D 128 that
 * leaves no registers for the queries, which are read again for each tile, and for scores of 32 keys only at a time.
 *
 * Keys and values come by asynchronous copies into two stages: a tile is on its way while the one before is used, and
 * one barrier a tile both shows what has come and frees what is used up. Two blocks fit on a processor (registers, and
 * 96 kB of shared memory with D 128). Tiles with most keys start first, so that the short ones fill the end.
 * Only keys that reach beyond the warp's first row are masked, and those beyond its last are left out.
 */
#include "kernels/cuda/attention.cuh"

enum { M16 = 2, ROWS = ATTENTION_WARPS * 16 * M16, KEYS = 64 };

template <int D> static constexpr size_t forward_shared()
{
    return (size_t)(ROWS + 2 * 2 * KEYS) * D * sizeof(bf16);
}

/* Running maximum and sum of each of this lane's rows. The maximum is over the row; the sum is this lane's part. */
struct softmax_state {
    float most[M16][2], sum[M16][2];
};

/* Hides the keys after each row: `ahead` is the first key's position less the warp's first row's. */
template <int STEP> __device__ __forceinline__ void hide_later_keys(float (&s)[M16][STEP / 8][4], int ahead, int lane)
{
    int least = result_row(lane, 0) - result_column(lane, 0) - ahead;
    UNROLL
    for (int m = 0; m < M16; m++) {
        UNROLL
        for (int n = 0; n < STEP / 8; n++) {
            UNROLL
            for (int i = 0; i < 4; i++)
                if (n * 8 + i % 2 - m * 16 - i / 2 * 8 > least)
                    s[m][n][i] = -INFINITY;
        }
    }
}

/* Takes the scores into the rows' maxima; `keep` becomes what the rows' sums so far are worth by the new ones. Whether
 * any of this lane's rows has a new one. */
template <int STEP>
__device__ __forceinline__ bool raise_maxima(float (&keep)[M16][2], softmax_state &state,
                                             const float (&s)[M16][STEP / 8][4], float factor)
{
    bool any = false;
    UNROLL
    for (int m = 0; m < M16; m++) {
        UNROLL
        for (int half = 0; half < 2; half++) {
            float before = state.most[m][half];
            float most = before;
            UNROLL
            for (int n = 0; n < STEP / 8; n++)
                most = fmaxf(most, fmaxf(s[m][n][2 * half], s[m][n][2 * half + 1]));
            most = fmaxf(most, __shfl_xor_sync(WARP_ALL, most, 1));
            most = fmaxf(most, __shfl_xor_sync(WARP_ALL, most, 2));
            keep[m][half] = most == before ? 1.0f : power_of_2((before - most) * factor);
            any = any || most != before;
            state.most[m][half] = most;
        }
    }
    return any;
}

/* Scores to 2^(factor (score - maximum)); the rows' sums come to the new maxima. A row whose scores are all -Inf so far
 * keeps sums of 0. */
template <int D, int STEP>
__device__ __forceinline__ void soften(float (&s)[M16][STEP / 8][4], float (&o)[M16][D / 8][4], softmax_state &state,
                                       float factor)
{
    float keep[M16][2];
    bool raised = raise_maxima<STEP>(keep, state, s, factor);
    if (__any_sync(WARP_ALL, raised)) { /* seldom, once a row has seen many keys */
        UNROLL
        for (int m = 0; m < M16; m++) {
            UNROLL
            for (int n = 0; n < D / 8; n++) {
                UNROLL
                for (int i = 0; i < 4; i++)
                    o[m][n][i] *= keep[m][i / 2];
            }
        }
    }
    UNROLL
    for (int m = 0; m < M16; m++) {
        UNROLL
        for (int half = 0; half < 2; half++) {
            float most = state.most[m][half];
            float base = most == -INFINITY ? 0.0f : most * factor;
            float sum = state.sum[m][half] * keep[m][half];
            UNROLL
            for (int n = 0; n < STEP / 8; n++) {
                UNROLL
                for (int i = 2 * half; i < 2 * half + 2; i++) {
                    s[m][n][i] = power_of_2(s[m][n][i] * factor - base);
                    sum += s[m][n][i];
                }
            }
            state.sum[m][half] = sum;
        }
    }
}

/* Joins the lanes' sums and writes lse; `inverse` becomes what the rows' sums of values are to be multiplied with. */
__device__ __forceinline__ void finish(float (&inverse)[M16][2], float *lse, int valid, const softmax_state &state,
                                       float scale, int lane)
{
    UNROLL
    for (int m = 0; m < M16; m++) {
        UNROLL
        for (int half = 0; half < 2; half++) {
            float sum = state.sum[m][half];
            sum += __shfl_xor_sync(WARP_ALL, sum, 1);
            sum += __shfl_xor_sync(WARP_ALL, sum, 2);
            inverse[m][half] = 1.0f / sum;
            int row = m * 16 + result_row(lane, 2 * half);
            if (lane % 4 == 0 && row < valid)
                lse[row] = state.most[m][half] * scale + logf(sum);
        }
    }
}

/* A stage is a tile of keys, then one of values. */
template <int D>
__device__ __forceinline__ void copy_keys(bf16 *stage, const bf16 *keys, const attention_dims &dims, int valid)
{
    copy_tile<D, KEYS>(stage, keys, qkv_row(dims, D), valid);
    copy_tile<D, KEYS>(stage + KEYS * D, keys + dims.G * D, qkv_row(dims, D), valid);
    copy_commit();
}

template <int D>
__global__ void __launch_bounds__(ATTENTION_THREADS, 2)
    attention_fwd_kernel(bf16 *out, float *lse, const bf16 *qkv, attention_dims dims)
{
    constexpr int STEP = D <= 64 ? KEYS : KEYS / 2; /* keys that scores are held for at a time */
    SHARED_DYNAMIC(bf16, queries);
    bf16 *stages = queries + ROWS * D;
    int lane = (int)threadIdx.x % WARP;
    int warp_row = (int)threadIdx.x / WARP * 16 * M16;
    int sequence = (int)blockIdx.x / dims.H;
    int head = (int)blockIdx.x % dims.H;
    int first = (int)(gridDim.y - 1 - blockIdx.y) * ROWS;
    int mine = first + warp_row;

    copy_tile<D, ROWS>(queries, qkv + qkv_at(dims, D, sequence, first, head), qkv_row(dims, D), dims.T - first);
    copy_commit();
    const bf16 *keys = qkv + qkv_at(dims, D, sequence, 0, dims.H + head / (dims.H / dims.G));
    copy_keys<D>(stages, keys, dims, dims.T);
    copy_wait<1>();
    __syncthreads();
    tile_reader<D> across = chunks_first<D>(lane);
    tile_reader<D> down = rows_first<D>(lane);
    left_rows<D, M16, (D <= 64)> q;
    q.begin(queries + warp_row * D, down);

    float o[M16][D / 8][4] = {};
    softmax_state state = {{{-INFINITY, -INFINITY}, {-INFINITY, -INFINITY}}, {{0, 0}, {0, 0}}};
    int end = min(first + ROWS, dims.T);
    for (int key = 0, turn = 0; key < end; key += KEYS, turn ^= 1) {
        copy_wait<0>();
        __syncthreads();
        keys += KEYS * qkv_row(dims, D);
        if (key + KEYS < end)
            copy_keys<D>(stages + (turn ^ 1) * 2 * KEYS * D, keys, dims, dims.T - key - KEYS);
        const bf16 *stage = stages + turn * 2 * KEYS * D;
        ROLLED
        for (int step = key; step < key + KEYS; step += STEP, stage += STEP * D) {
            if (step >= mine + 16 * M16 || mine >= dims.T)
                break;
            float s[M16][STEP / 8][4];
            forget(across.chunk);
            forget(down.chunk);
            multiply_rows<D, STEP>(s, q, down, stage, across);
            if (step + STEP > mine + 1)
                hide_later_keys<STEP>(s, step - mine, lane);
            soften<D, STEP>(s, o, state, dims.scale * ATTENTION_LOG2E);
            add_weighted<D, STEP>(o, s, stage + KEYS * D, down);
        }
    }

    float inverse[M16][2];
    finish(inverse, lse + stat_at(dims, sequence, mine, head), dims.T - mine, state, dims.scale, lane);
    write_rows<D>(out + out_at(dims, D, sequence, mine, head), (int64_t)dims.H * D, dims.T - mine,
                  queries + warp_row * D, o, inverse);
}

template <int D>
static void forward(struct kern_dev *dev, bf16 *out, float *lse, const bf16 *qkv, const struct kern_attention *dims)
{
    void (*attention_fwd)(bf16 *, float *, const bf16 *, attention_dims) = attention_fwd_kernel<D>;
    dim3 grid((unsigned)(dims->B * dims->H), (unsigned)((dims->T + ROWS - 1) / ROWS));
    LAUNCH(dev, attention_fwd, grid, dim3(ATTENTION_THREADS), forward_shared<D>(), out, lse, qkv,
           attention_dims_of(dims));
}

extern "C" bool cuda_has_head_size(int64_t D)
{
    return D == 16 || D == 32 || D == 64 || D == 128;
}

extern "C" void cuda_attention_fwd(struct kern_dev *dev, kern_act *out, float *lse, const kern_act *qkv,
                                   const struct kern_attention *dims, void *scratch)
{
    (void)scratch;
    switch (dims->D) {
    case 16: forward<16>(dev, (bf16 *)out, lse, (const bf16 *)qkv, dims); break;
    case 32: forward<32>(dev, (bf16 *)out, lse, (const bf16 *)qkv, dims); break;
    case 64: forward<64>(dev, (bf16 *)out, lse, (const bf16 *)qkv, dims); break;
    case 128: forward<128>(dev, (bf16 *)out, lse, (const bf16 *)qkv, dims); break;
    default: break;
    }
}
