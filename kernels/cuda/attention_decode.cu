/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Causal grouped-query attention of one more position over the cache of those before it: cache(2, T, G*D), keys then
 * values.
 *
 * There is nothing to multiply here but rows by one vector; all that counts is to read the cache once, at full width.
 * So a block for each query head, and in it teams of D / 8 lanes: a team takes every TEAMS-th position, a lane 8 values
 * of its key and of its value, by one load each; AHEAD positions are on their way at a time. Each team keeps a softmax
 * online of its own (as in FlashAttention-2, Dao 2023, arXiv:2307.08691), and the teams are joined at the end, within
 * warps and then over them, in a fixed order. Query heads of a group read the same keys, from the cache of level 2.
 */
#include "kernels/cuda/attention.cuh"

enum { THREADS = 512, DECODE_WARPS = THREADS / WARP, AHEAD = 4 };

/* Puts the keys and values of a position, 8 values a thread, where they belong. */
__global__ void __launch_bounds__(THREADS)
    attention_cache_kernel(bf16 *keys, bf16 *values, const bf16 *new_keys, const bf16 *new_values, int chunks)
{
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < chunks)
        store_vec(keys + i * 8, load_vec(new_keys + i * 8));
    else if (i < 2 * chunks)
        store_vec(values + (i - chunks) * 8, load_vec(new_values + (i - chunks) * 8));
}

/* Softmax so far over some positions, of 8 columns: the largest score, in units of log 2; the sum of 2^(score - that);
 * and the values weighted so. */
struct partial {
    float most, sum;
    float o[8];
};

/* What a sum by the maximum `before` is worth by `most`. */
__device__ __forceinline__ float worth(float before, float most)
{
    return before == most ? 1.0f : power_of_2(before - most);
}

__device__ __forceinline__ void take_position(partial &p, float score, vec<bf16> value)
{
    float most = fmaxf(p.most, score);
    float keep = worth(p.most, most);
    float weight = power_of_2(most == -INFINITY ? score : score - most);
    p.most = most;
    p.sum = p.sum * keep + weight;
    UNROLL
    for (int c = 0; c < 8; c++)
        p.o[c] = p.o[c] * keep + weight * to_float(value.at[c]);
}

/* Takes in what the lane `across` away, by XOR, has of the same columns. */
__device__ __forceinline__ void join_lanes(partial &p, int across)
{
    float other = __shfl_xor_sync(WARP_ALL, p.most, across);
    float most = fmaxf(p.most, other);
    float keep = worth(p.most, most);
    float add = worth(other, most);
    p.most = most;
    p.sum = p.sum * keep + __shfl_xor_sync(WARP_ALL, p.sum, across) * add;
    UNROLL
    for (int c = 0; c < 8; c++)
        p.o[c] = p.o[c] * keep + __shfl_xor_sync(WARP_ALL, p.o[c], across) * add;
}

/* One column of the result, of the warps' partial ones. */
template <int D>
__device__ __forceinline__ float join_warps(const float *mosts, const float *sums, const float *columns, int column)
{
    float most = -INFINITY;
    for (int w = 0; w < DECODE_WARPS; w++)
        most = fmaxf(most, mosts[w]);
    float sum = 0;
    float o = 0;
    for (int w = 0; w < DECODE_WARPS; w++) {
        float add = worth(mosts[w], most);
        sum += sums[w] * add;
        o += columns[w * D + column] * add;
    }
    return o / sum;
}

template <int D>
__global__ void __launch_bounds__(THREADS)
    attention_decode_kernel(bf16 *out, const bf16 *queries, const bf16 *keys, const bf16 *values, int64_t count,
                            attention_dims dims)
{
    constexpr int LANES = D / 8, TEAMS = THREADS / LANES;
    SHARED(float, mosts, DECODE_WARPS);
    SHARED(float, sums, DECODE_WARPS);
    SHARED(float, columns, DECODE_WARPS *D);
    int team = (int)threadIdx.x / LANES;
    int part = (int)threadIdx.x % LANES;
    int head = (int)blockIdx.x;
    int64_t row = (int64_t)dims.G * D;
    int64_t mine = head / (dims.H / dims.G) * D + part * 8;

    float q[8];
    vec<bf16> query = load_vec(queries + head * D + part * 8);
    UNROLL
    for (int c = 0; c < 8; c++)
        q[c] = to_float(query.at[c]) * (dims.scale * ATTENTION_LOG2E);
    partial p = {-INFINITY, 0, {}};
    for (int64_t first = 0; first < count; first += TEAMS * AHEAD) {
        vec<bf16> key[AHEAD] = {}, value[AHEAD] = {};
        UNROLL
        for (int a = 0; a < AHEAD; a++) {
            int64_t position = first + a * TEAMS + team;
            if (position < count) {
                key[a] = load_vec(keys + position * row + mine);
                value[a] = load_vec(values + position * row + mine);
            }
        }
        UNROLL
        for (int a = 0; a < AHEAD; a++) {
            float score = 0;
            UNROLL
            for (int c = 0; c < 8; c++)
                score += q[c] * to_float(key[a].at[c]);
            UNROLL
            for (int d = LANES / 2; d > 0; d /= 2)
                score += __shfl_xor_sync(WARP_ALL, score, d);
            if (first + a * TEAMS + team < count)
                take_position(p, score, value[a]);
        }
    }

    UNROLL
    for (int across = LANES; across < WARP; across *= 2)
        join_lanes(p, across);
    int warp = (int)threadIdx.x / WARP;
    int lane = (int)threadIdx.x % WARP;
    if (lane == 0) {
        mosts[warp] = p.most;
        sums[warp] = p.sum;
    }
    if (lane < LANES) {
        UNROLL
        for (int c = 0; c < 8; c++)
            columns[warp * D + part * 8 + c] = p.o[c];
    }
    __syncthreads();
    if (threadIdx.x < D)
        out[head * D + (int)threadIdx.x] = to_bf16(join_warps<D>(mosts, sums, columns, (int)threadIdx.x));
}

template <int D>
static void decode(struct kern_dev *dev, bf16 *out, const bf16 *qkv, bf16 *cache, int64_t at,
                   const struct kern_attention *dims)
{
    int64_t row = dims->G * D;
    bf16 *values = cache + dims->T * row;
    const bf16 *new_keys = qkv + dims->H * D;
    int chunks = (int)(row / 8);
    LAUNCH(dev, attention_cache_kernel, dim3((unsigned)((2 * chunks + THREADS - 1) / THREADS)), dim3(THREADS), 0,
           cache + at * row, values + at * row, new_keys, new_keys + row, chunks);
    void (*attention_decode)(bf16 *, const bf16 *, const bf16 *, const bf16 *, int64_t, attention_dims) =
        attention_decode_kernel<D>;
    LAUNCH(dev, attention_decode, dim3((unsigned)dims->H), dim3(THREADS), 0, out, qkv, cache, values, at + 1,
           attention_dims_of(dims));
}

extern "C" void cuda_attention_decode(struct kern_dev *dev, kern_act *out, const kern_act *qkv, kern_act *cache,
                                      int64_t at, const struct kern_attention *dims, void *scratch)
{
    (void)scratch;
    switch (dims->D) {
    case 16: decode<16>(dev, (bf16 *)out, (const bf16 *)qkv, (bf16 *)cache, at, dims); break;
    case 32: decode<32>(dev, (bf16 *)out, (const bf16 *)qkv, (bf16 *)cache, at, dims); break;
    case 64: decode<64>(dev, (bf16 *)out, (const bf16 *)qkv, (bf16 *)cache, at, dims); break;
    case 128: decode<128>(dev, (bf16 *)out, (const bf16 *)qkv, (bf16 *)cache, at, dims); break;
    default: break;
    }
}
