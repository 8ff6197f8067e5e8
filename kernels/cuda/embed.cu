/* SPDX-License-Identifier: Apache-2.0 */
/*
 * embed: rows of w(V,C) by token, and the gradient dw(V,C)[token] += dout(R,C), the rows of a token in order.
 *
 * The gradient without atomics: block (x, y) owns the tokens that are x modulo the number of buckets, and a piece of
 * the columns. It looks at all tokens and keeps a list of those rows that are its own, in order, in shared memory; when
 * the list is full, or at the end, it goes through the distinct tokens of the list, adds up the rows of each in
 * registers, a few of them on their way at a time, and adds the sum to dw once. Looking is cheap: 4 bytes of each row,
 * from the L2 cache, in each of up to 2048 buckets, beside the row itself and twice 4 C bytes of dw. Text uses few
 * tokens much and most tokens rarely, so the rows of one token are chained and none is looked for twice.
 */
#include "kernels/cuda/values.cuh"

enum {
    EMBED_THREADS = 256,
    LOOKS = 4, /* tokens that a thread looks at between two barriers */
    LIST = 2 * EMBED_THREADS * LOOKS,
    AT_ONCE = 4, /* rows on their way */
    BUCKETS_MAX = 2048,
    END = 0xffff
};

static __global__ void embed_forward(bf16 *out, const int32_t *tokens, const bf16 *w, int64_t C, int64_t first,
                                     int64_t V, bool fits)
{
    int64_t token = tokens[blockIdx.x] - first;
    bool own = token >= 0 && token < V;
    for (int64_t at = (int64_t)threadIdx.x * EIGHT; at < C; at += (int64_t)blockDim.x * EIGHT) {
        int high = of_eight(C - at);
        eight x = load_eight(w + (own ? token * C + at : 0), 0, own ? high : 0, fits);
        store_eight(out + (int64_t)blockIdx.x * C + at, x, 0, high, fits);
    }
}

void cuda_embed_fwd(struct kern_dev *dev, kern_act *out, const int32_t *tokens, const kern_act *w, int64_t R, int64_t C,
                    int64_t first, int64_t V)
{
    if (R <= 0 || C <= 0)
        return;
    bool fits = fits_vec<bf16>(out, C) && fits_vec<bf16>(w, C);
    LAUNCH(dev, embed_forward, (unsigned)R, threads_for(divide_up(C, EIGHT), EMBED_THREADS), 0, (bf16 *)out, tokens,
           (const bf16 *)w, C, first, V, fits);
}

/* ---- backward ---- */

struct embed_list {
    uint32_t *rows;
    int32_t *tokens;
    uint16_t *next;   /* entry of the same token, or END */
    uint8_t *follows; /* is the next of another */
};

/* What a block works on. */
struct embed_share {
    const int32_t *tokens;
    int64_t R, first, V;
    uint32_t buckets; /* a power of two */
    uint32_t bucket;
};

/* Appends to a list that has `count` entries the rows of base .. base + blockDim.x * LOOKS - 1 that are this block's,
 * in order; the new count. Each warp looks at a stretch of its own; `found` is shared memory for a number a warp. */
__device__ __forceinline__ int collect(const embed_share &share, int64_t base, const embed_list &list, int count,
                                       int *found)
{
    int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP, warps = (int)blockDim.x / WARP;
    int64_t row = base + (int64_t)warp * WARP * LOOKS + lane;
    int64_t token[LOOKS];
    uint32_t mine[LOOKS];
    int own = 0;
    UNROLL
    for (int i = 0; i < LOOKS; i++)
        token[i] = row + i * WARP < share.R ? share.tokens[row + i * WARP] - share.first : -1;
    UNROLL
    for (int i = 0; i < LOOKS; i++) {
        bool hit = token[i] >= 0 && token[i] < share.V && ((uint32_t)token[i] & (share.buckets - 1)) == share.bucket;
        mine[i] = __ballot_sync(WARP_ALL, hit);
        own += __popc(mine[i]);
    }
    __syncthreads(); /* the last numbers have been read, and a list that was full */
    if (lane == 0)
        found[warp] = own;
    __syncthreads();
    int at = count;
    for (int i = 0; i < warps; i++) {
        at += i < warp ? found[i] : 0;
        count += found[i];
    }
    UNROLL
    for (int i = 0; i < LOOKS; i++) {
        if (mine[i] >> lane & 1) {
            int entry = at + __popc(mine[i] & ((1u << lane) - 1));
            list.rows[entry] = (uint32_t)(row + i * WARP);
            list.tokens[entry] = (int32_t)token[i];
        }
        at += __popc(mine[i]);
    }
    return count;
}

/* Finds for each entry the next of the same token. Its first barrier shows all threads what collect() has written. */
__device__ __forceinline__ void chain(const embed_list &list, int count)
{
    for (int e = (int)threadIdx.x; e < count; e += (int)blockDim.x)
        list.follows[e] = 0;
    __syncthreads();
    for (int e = (int)threadIdx.x; e < count; e += (int)blockDim.x) {
        int next = e + 1;
        while (next < count && list.tokens[next] != list.tokens[e])
            next++;
        list.next[e] = (uint16_t)(next < count ? next : (int)END);
        if (next < count)
            list.follows[next] = 1;
    }
    __syncthreads();
}

/* The rows of the token that begins at `entry`, added up in order, to `dw`; this thread's eight columns. */
__device__ __forceinline__ void add_token(float *dw, const bf16 *dout, int64_t C, const embed_list &list, int entry,
                                          int high, bool fits)
{
    eight old = load_eight(dw, 0, high, fits), sum = no_eight();
    while (entry != END) {
        eight x[AT_ONCE];
        UNROLL
        for (int i = 0; i < AT_ONCE; i++) {
            bool there = entry != END;
            x[i] = load_eight(dout + (there ? (int64_t)list.rows[entry] * C : 0), 0, there ? high : 0, fits);
            entry = there ? list.next[entry] : (int)END;
        }
        UNROLL
        for (int i = 0; i < AT_ONCE; i++) {
            UNROLL
            for (int j = 0; j < EIGHT; j++)
                sum.at[j] += x[i].at[j];
        }
    }
    UNROLL
    for (int j = 0; j < EIGHT; j++)
        old.at[j] += sum.at[j];
    store_eight(dw, old, 0, high, fits);
}

static __global__ void embed_backward(float *dw, const bf16 *dout, const int32_t *tokens, int64_t R, int64_t C,
                                      int64_t first, int64_t V, bool fits)
{
    SHARED(uint32_t, rows, LIST);
    SHARED(int32_t, own_tokens, LIST);
    SHARED(uint16_t, next, LIST);
    SHARED(uint8_t, follows, LIST);
    SHARED(int, found, WARP);
    embed_list list = {rows, own_tokens, next, follows};
    embed_share share = {tokens, R, first, V, gridDim.x, blockIdx.x};
    int64_t column = ((int64_t)blockIdx.y * blockDim.x + threadIdx.x) * EIGHT;
    int64_t looked = (int64_t)blockDim.x * LOOKS;
    int high = of_eight(C - column), count = 0;
    for (int64_t base = 0; base < R; base += looked) {
        count = collect(share, base, list, count, found);
        if (base + looked < R && count + looked <= LIST)
            continue;
        chain(list, count);
        for (int e = 0; e < count; e++)
            if (!list.follows[e] && high > 0)
                add_token(dw + list.tokens[e] * C + column, dout + column, C, list, e, high, fits);
        count = 0; /* all have read it when the first of collect()'s barriers is behind them */
    }
}

size_t cuda_embed_scratch(int64_t R, int64_t C)
{
    (void)R;
    (void)C;
    return 0;
}

void cuda_embed_bwd(struct kern_dev *dev, float *dw, const kern_act *dout, const int32_t *tokens, int64_t R, int64_t C,
                    int64_t first, int64_t V)
{
    if (R <= 0 || C <= 0 || V <= 0)
        return;
    unsigned buckets = 1;
    while (buckets < BUCKETS_MAX && (int64_t)buckets * 2 * EIGHT <= R)
        buckets *= 2;
    int64_t groups = divide_up(C, EIGHT);
    unsigned pieces = (unsigned)divide_up(groups, EMBED_THREADS);
    unsigned threads = threads_for(divide_up(groups, pieces), EMBED_THREADS);
    bool fits = fits_vec<bf16>(dout, C) && fits_vec<float>(dw, C);
    LAUNCH(dev, embed_backward, dim3(buckets, pieces), threads, 0, dw, (const bf16 *)dout, tokens, R, C, first, V,
           fits);
}
