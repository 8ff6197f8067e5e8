/* SPDX-License-Identifier: Apache-2.0 */
/*
 * muon: a step's three moves: momentum and direction; five Newton-Schulz iterations that bring all singular values of a
 * direction u(N,K) near 1; the update. The products are the library's, of bf16 matrices with fp32 sums, as in Muon's
 * published code; here is what stands between them.
 *
 * For the products the direction lies on its longer side (rows <= cols), so that the squares of it are of the shorter
 * one; where N > K it is turned on the way in and out, by tiles in shared memory. Its norm has to be known before it is
 * rounded to bf16, so u is read twice.
 *
 * Who skips the step iterates all the same, on what may not be finite, and keeps nothing of it.
 */
#include <math.h>

#include "kernels/cuda/rounding.cuh"

enum { MUON_THREADS = 256, MUON_BLOCKS = 1024, MUON_TILE = 64, MUON_PITCH = MUON_TILE + 2 };

/* m = momentum m + scale g; g = scale g + momentum m */
static __global__ void aim(float *g, float *m, int64_t count, const kern_step *step, float momentum, bool fits)
{
    if (step->skip)
        return;
    int64_t at = flat_at();
    int high = of_eight(count - at);
    float scale = step->scale;
    eight gradient = load_eight(g + at, 0, high, fits), moved = load_eight(m + at, 0, high, fits);
    UNROLL
    for (int j = 0; j < EIGHT; j++) {
        float x = scale * gradient.at[j];
        moved.at[j] = momentum * moved.at[j] + x;
        gradient.at[j] = x + momentum * moved.at[j];
    }
    store_eight(m + at, moved, 0, high, fits);
    store_eight(g + at, gradient, 0, high, fits);
}

/* Each block's part of the sum of u^2, in double and in fixed order. */
static __global__ void square_up(double *parts, const float *u, int64_t count, bool fits)
{
    SHARED(double, room, WARP);
    double sum = block_squares(u, count, MUON_THREADS, fits, room);
    if (threadIdx.x == 0)
        parts[blockIdx.x] = sum;
}

static __global__ void find_shrink(float *shrink, const double *parts, int blocks)
{
    SHARED(double, room, WARP);
    double sum = block_sum((int)threadIdx.x < blocks ? parts[threadIdx.x] : 0.0, room);
    if (threadIdx.x == 0)
        *shrink = (float)(1 / (sqrt(sum) + 1e-7));
}

/* ---- into x and out of it ---- */

__device__ __forceinline__ eight shrunk(const float *u, int high, float shrink, bool fits)
{
    eight out = load_eight(u, 0, high, fits);
    UNROLL
    for (int j = 0; j < EIGHT; j++)
        out.at[j] *= shrink;
    return out;
}

static __global__ void make_lying(bf16 *x, const float *u, int64_t count, const float *shrink, bool fits)
{
    int64_t at = flat_at();
    int high = of_eight(count - at);
    store_eight(x + at, shrunk(u + at, high, *shrink, fits), 0, high, fits);
}

/* x(K,N) from u(N,K). Blocks are tiles: (x, y) of (N, K). */
static __global__ void make_turned(bf16 *x, const float *u, int64_t N, int64_t K, const float *shrink, bool fits,
                                   bool turned_fits)
{
    SHARED(bf16, tile, MUON_TILE * MUON_PITCH);
    int64_t n0 = (int64_t)blockIdx.x * MUON_TILE, k0 = (int64_t)blockIdx.y * MUON_TILE;
    float factor = *shrink;
    for (int i = (int)threadIdx.x; i < MUON_TILE * MUON_TILE / EIGHT; i += MUON_THREADS) {
        int r = i / (MUON_TILE / EIGHT), c = i % (MUON_TILE / EIGHT) * EIGHT;
        int high = n0 + r < N ? of_eight(K - k0 - c) : 0;
        int64_t at = high > 0 ? (n0 + r) * K + k0 + c : 0;
        vec<bf16> part = round_nearest(shrunk(u + at, high, factor, fits));
        UNROLL
        for (int j = 0; j < EIGHT; j++)
            tile[r * MUON_PITCH + c + j] = part.at[j];
    }
    __syncthreads();
    for (int i = (int)threadIdx.x; i < MUON_TILE * MUON_TILE / EIGHT; i += MUON_THREADS) {
        int r = i / (MUON_TILE / EIGHT), c = i % (MUON_TILE / EIGHT) * EIGHT;
        int high = k0 + r < K ? of_eight(N - n0 - c) : 0;
        vec<bf16> out;
        UNROLL
        for (int j = 0; j < EIGHT; j++)
            out.at[j] = tile[(c + j) * MUON_PITCH + r];
        store_eight(x + (k0 + r) * N + n0 + c, out, 0, high, turned_fits);
    }
}

static __global__ void take_lying(float *u, const bf16 *x, int64_t count, bool fits)
{
    int64_t at = flat_at();
    int high = of_eight(count - at);
    store_eight(u + at, load_eight(x + at, 0, high, fits), 0, high, fits);
}

/* u(N,K) from x(K,N); blocks as in make_turned(). */
static __global__ void take_turned(float *u, const bf16 *x, int64_t N, int64_t K, bool fits, bool turned_fits)
{
    SHARED(bf16, tile, MUON_TILE * MUON_PITCH);
    int64_t n0 = (int64_t)blockIdx.x * MUON_TILE, k0 = (int64_t)blockIdx.y * MUON_TILE;
    for (int i = (int)threadIdx.x; i < MUON_TILE * MUON_TILE / EIGHT; i += MUON_THREADS) {
        int r = i / (MUON_TILE / EIGHT), c = i % (MUON_TILE / EIGHT) * EIGHT;
        int high = k0 + r < K ? of_eight(N - n0 - c) : 0;
        int64_t at = high > 0 ? (k0 + r) * N + n0 + c : 0;
        vec<bf16> part = round_nearest(load_eight(x + at, 0, high, turned_fits)); /* exact */
        UNROLL
        for (int j = 0; j < EIGHT; j++)
            tile[r * MUON_PITCH + c + j] = part.at[j];
    }
    __syncthreads();
    for (int i = (int)threadIdx.x; i < MUON_TILE * MUON_TILE / EIGHT; i += MUON_THREADS) {
        int r = i / (MUON_TILE / EIGHT), c = i % (MUON_TILE / EIGHT) * EIGHT;
        int high = n0 + r < N ? of_eight(K - k0 - c) : 0;
        eight out;
        UNROLL
        for (int j = 0; j < EIGHT; j++)
            out.at[j] = to_float(tile[(c + j) * MUON_PITCH + r]);
        if (high > 0)
            store_eight(u + (n0 + r) * K + k0 + c, out, 0, high, fits);
    }
}

/* w = keep w - far u */
static __global__ void apply(float *w, bf16 *act, const float *u, int64_t count, const kern_step *step, float keep,
                             float far, kern_rounding rounding, bool fits)
{
    if (step->skip)
        return;
    int64_t at = flat_at();
    int high = of_eight(count - at);
    eight weight = load_eight(w + at, 0, high, fits), direction = load_eight(u + at, 0, high, fits);
    UNROLL
    for (int j = 0; j < EIGHT; j++)
        weight.at[j] = keep * weight.at[j] - far * direction.at[j];
    store_eight(w + at, weight, 0, high, fits);
    store_eight(act + at, round_eight(weight, at, rounding), 0, high, fits);
}

/* ---- the moves ---- */

struct muon_room {
    bf16 *x, *other, *gram, *poly;
    double *parts;
    float *shrink;
};

/* The next `bytes` of scratch, if that is there yet; the part after begins at a multiple of 256. */
static void *take(char *scratch, size_t *used, size_t bytes)
{
    void *out = scratch != NULL ? scratch + *used : NULL;
    *used += (bytes + 255) / 256 * 256;
    return out;
}

/* The parts of scratch, and how large it is. */
static size_t lay_out(int64_t N, int64_t K, char *scratch, muon_room *room)
{
    size_t matrix = (size_t)(N * K) * sizeof(bf16), used = 0;
    int64_t rows = N < K ? N : K;
    size_t square = (size_t)(rows * rows) * sizeof(bf16);
    room->x = (bf16 *)take(scratch, &used, matrix);
    room->other = (bf16 *)take(scratch, &used, matrix);
    room->gram = (bf16 *)take(scratch, &used, square);
    room->poly = (bf16 *)take(scratch, &used, square);
    room->parts = (double *)take(scratch, &used, MUON_BLOCKS * sizeof(double));
    room->shrink = (float *)take(scratch, &used, sizeof(float));
    return used;
}

size_t cuda_muon_scratch(int64_t N, int64_t K)
{
    muon_room room;
    return lay_out(N, K, NULL, &room);
}

/* A product of matrices that lie close. */
static void product(struct kern_dev *dev, bf16 *c, const bf16 *a, const bf16 *b, bool tb, int64_t M, int64_t N,
                    int64_t K, float alpha, float beta)
{
    struct cuda_product shape = {};
    shape.tb = tb;
    shape.M = M;
    shape.N = N;
    shape.K = K;
    shape.lda = K;
    shape.ldb = tb ? K : N;
    shape.ldc = N;
    shape.alpha = alpha;
    shape.beta = beta;
    cuda_multiply(dev, c, a, b, shape);
}

/* x(rows, cols) = (a + b x x^T + c (x x^T)^2) x, five times. */
static void newton_schulz(struct kern_dev *dev, muon_room *room, int64_t rows, int64_t cols)
{
    const float a = 3.4445f, b = -4.7750f, c = 2.0315f;
    size_t square = (size_t)(rows * rows) * sizeof(bf16), matrix = (size_t)(rows * cols) * sizeof(bf16);
    for (int round = 0; round < 5; round++) {
        product(dev, room->gram, room->x, room->x, true, rows, rows, cols, 1, 0);
        cuda_copy(dev, KERN_MAIN, room->poly, room->gram, square);
        product(dev, room->poly, room->gram, room->gram, false, rows, rows, rows, c, b);
        cuda_copy(dev, KERN_MAIN, room->other, room->x, matrix);
        product(dev, room->other, room->poly, room->x, false, rows, cols, rows, 1, a);
        bf16 *swap = room->x;
        room->x = room->other;
        room->other = swap;
    }
}

static dim3 tiles(int64_t N, int64_t K)
{
    return dim3((unsigned)divide_up(N, MUON_TILE), (unsigned)divide_up(K, MUON_TILE));
}

void cuda_muon_aim(struct kern_dev *dev, float *g, float *m, int64_t count, const struct kern_step *step,
                   float momentum)
{
    if (count > 0)
        LAUNCH(dev, aim, flat_blocks(count), FLAT_THREADS, 0, g, m, count, step, momentum,
               fits_vec<float>(g, 0) && fits_vec<float>(m, 0));
}

void cuda_orthogonalise(struct kern_dev *dev, float *u, int64_t N, int64_t K, void *scratch)
{
    if (N <= 0 || K <= 0)
        return;
    muon_room room;
    lay_out(N, K, (char *)scratch, &room);
    int64_t count = N * K, whole = divide_up(count, MUON_THREADS * EIGHT);
    int blocks = whole < MUON_BLOCKS ? (int)whole : (int)MUON_BLOCKS;
    bool lying = N <= K, flat_fits = fits_vec<float>(u, 0);
    bool fits = flat_fits && K % EIGHT == 0, turned_fits = N % EIGHT == 0; /* rows have to begin at 16 bytes */
    LAUNCH(dev, square_up, (unsigned)blocks, MUON_THREADS, 0, room.parts, u, count, flat_fits);
    LAUNCH(dev, find_shrink, 1, MUON_BLOCKS, 0, room.shrink, room.parts, blocks);
    if (lying)
        LAUNCH(dev, make_lying, flat_blocks(count), FLAT_THREADS, 0, room.x, u, count, room.shrink, flat_fits);
    else
        LAUNCH(dev, make_turned, tiles(N, K), MUON_THREADS, 0, room.x, u, N, K, room.shrink, fits, turned_fits);
    newton_schulz(dev, &room, N < K ? N : K, N > K ? N : K);
    if (lying)
        LAUNCH(dev, take_lying, flat_blocks(count), FLAT_THREADS, 0, u, room.x, count, flat_fits);
    else
        LAUNCH(dev, take_turned, tiles(N, K), MUON_THREADS, 0, u, room.x, N, K, fits, turned_fits);
}

void cuda_muon_apply(struct kern_dev *dev, float *w, kern_act *act, const float *u, int64_t count, int64_t longer,
                     const struct kern_step *step, struct kern_muon conf)
{
    if (count > 0)
        LAUNCH(dev, apply, flat_blocks(count), FLAT_THREADS, 0, w, (bf16 *)act, u, count, step,
               1.0f - conf.lr * conf.weight_decay, conf.lr * 0.2f * sqrtf((float)longer), conf.rounding,
               fits_vec<float>(w, 0) && fits_vec<bf16>(act, 0) && fits_vec<float>(u, 0));
}
