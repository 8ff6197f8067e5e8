/*
 * muon: one step on a matrix w(N,K): momentum, five Newton-Schulz iterations that bring all singular values of the
 * direction u near 1, and the update. The products are the library's, of bf16 matrices with fp32 sums, as in Muon's
 * published code; here is what stands between them.
 *
 * The direction lies on its longer side (rows <= cols), so that the squares of it are of the shorter one; where N > K
 * it is turned on the way in and the update on the way out, by tiles in shared memory. Its norm has to be known before
 * it is rounded to bf16, so it is computed twice: once for the momentum and the norm, once more, scaled, for x. That
 * reads 8 bytes a value again, and spares a second rounding or a second copy in float.
 *
 * Who skips the step computes all the same, on what may not be finite, and keeps nothing of it.
 */
#include <math.h>

#include "kernels/cuda/rounding.cuh"

enum { MUON_THREADS = 256, MUON_BLOCKS = 1024, MUON_TILE = 64, MUON_PITCH = MUON_TILE + 2 };

/* u = scale g + momentum m */
__device__ __forceinline__ eight direction(const eight &g, const eight &m, float scale, float momentum)
{
    eight out;
    UNROLL
    for (int j = 0; j < EIGHT; j++)
        out.at[j] = scale * g.at[j] + momentum * m.at[j];
    return out;
}

/* m = momentum m + scale g, and each block's part of the sum of u^2, in double and in fixed order. */
static __global__ void move_momentum(float *m, double *parts, const float *g, int64_t count, const kern_step *step,
                                     float momentum, bool fits)
{
    SHARED(double, room, WARP);
    int64_t stride = (int64_t)gridDim.x * MUON_THREADS * EIGHT;
    bool skip = step->skip != 0;
    float scale = step->scale;
    double sum = 0;
    for (int64_t at = ((int64_t)blockIdx.x * MUON_THREADS + threadIdx.x) * EIGHT; at < count; at += stride) {
        int high = of_eight(count - at);
        eight gradient = load_eight(g + at, 0, high, fits);
        eight moved = direction(gradient, load_eight(m + at, 0, high, fits), scale, momentum);
        eight u = direction(gradient, moved, scale, momentum);
        UNROLL
        for (int j = 0; j < EIGHT; j++)
            sum += (double)u.at[j] * (double)u.at[j];
        if (!skip)
            store_eight(m + at, moved, 0, high, fits);
    }
    sum = block_sum(sum, room);
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

__device__ __forceinline__ eight shrunk_direction(const float *g, const float *m, int high, float scale, float momentum,
                                                  float shrink, bool fits)
{
    eight u = direction(load_eight(g, 0, high, fits), load_eight(m, 0, high, fits), scale, momentum);
    UNROLL
    for (int j = 0; j < EIGHT; j++)
        u.at[j] *= shrink;
    return u;
}

static __global__ void make_lying(bf16 *x, const float *g, const float *m, int64_t count, const kern_step *step,
                                  float momentum, const float *shrink, bool fits)
{
    int64_t at = flat_at();
    int high = of_eight(count - at);
    eight u = shrunk_direction(g + at, m + at, high, step->scale, momentum, *shrink, fits);
    store_eight(x + at, u, 0, high, fits);
}

/* x(K,N) from g(N,K) and m(N,K). Blocks are tiles: (x, y) of (N, K). */
static __global__ void make_turned(bf16 *x, const float *g, const float *m, int64_t N, int64_t K, const kern_step *step,
                                   float momentum, const float *shrink, bool fits, bool turned_fits)
{
    SHARED(bf16, tile, MUON_TILE * MUON_PITCH);
    int64_t n0 = (int64_t)blockIdx.x * MUON_TILE, k0 = (int64_t)blockIdx.y * MUON_TILE;
    float scale = step->scale, factor = *shrink;
    for (int i = (int)threadIdx.x; i < MUON_TILE * MUON_TILE / EIGHT; i += MUON_THREADS) {
        int r = i / (MUON_TILE / EIGHT), c = i % (MUON_TILE / EIGHT) * EIGHT;
        int high = n0 + r < N ? of_eight(K - k0 - c) : 0;
        int64_t at = high > 0 ? (n0 + r) * K + k0 + c : 0;
        vec<bf16> u = round_nearest(shrunk_direction(g + at, m + at, high, scale, momentum, factor, fits));
        UNROLL
        for (int j = 0; j < EIGHT; j++)
            tile[r * MUON_PITCH + c + j] = u.at[j];
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

struct muon_update {
    float *w;
    bf16 *act;
    float keep, step;
    kern_rounding rounding;
    bool fits;
};

/* w = keep w - step u for the eight values of w that begin at `at`. */
__device__ __forceinline__ void update(const muon_update &to, int64_t at, const eight &u, int high)
{
    eight weight = load_eight(to.w + at, 0, high, to.fits);
    UNROLL
    for (int j = 0; j < EIGHT; j++)
        weight.at[j] = to.keep * weight.at[j] - to.step * u.at[j];
    store_eight(to.w + at, weight, 0, high, to.fits);
    store_eight(to.act + at, round_eight(weight, at, to.rounding), 0, high, to.fits);
}

static __global__ void update_lying(muon_update to, const bf16 *x, int64_t count, const kern_step *step)
{
    if (step->skip)
        return;
    int64_t at = flat_at();
    int high = of_eight(count - at);
    update(to, at, load_eight(x + at, 0, high, to.fits), high);
}

/* From x(K,N); blocks as in make_turned(). */
static __global__ void update_turned(muon_update to, const bf16 *x, int64_t N, int64_t K, const kern_step *step,
                                     bool turned_fits)
{
    SHARED(bf16, tile, MUON_TILE * MUON_PITCH);
    int64_t n0 = (int64_t)blockIdx.x * MUON_TILE, k0 = (int64_t)blockIdx.y * MUON_TILE;
    bool skip = step->skip != 0;
    for (int i = (int)threadIdx.x; i < MUON_TILE * MUON_TILE / EIGHT; i += MUON_THREADS) {
        int r = i / (MUON_TILE / EIGHT), c = i % (MUON_TILE / EIGHT) * EIGHT;
        int high = k0 + r < K ? of_eight(N - n0 - c) : 0;
        int64_t at = high > 0 ? (k0 + r) * N + n0 + c : 0;
        vec<bf16> u = round_nearest(load_eight(x + at, 0, high, turned_fits)); /* exact */
        UNROLL
        for (int j = 0; j < EIGHT; j++)
            tile[r * MUON_PITCH + c + j] = u.at[j];
    }
    __syncthreads();
    for (int i = (int)threadIdx.x; i < MUON_TILE * MUON_TILE / EIGHT; i += MUON_THREADS) {
        int r = i / (MUON_TILE / EIGHT), c = i % (MUON_TILE / EIGHT) * EIGHT;
        int high = n0 + r < N ? of_eight(K - k0 - c) : 0;
        eight u;
        UNROLL
        for (int j = 0; j < EIGHT; j++)
            u.at[j] = to_float(tile[(c + j) * MUON_PITCH + r]);
        if (high > 0 && !skip)
            update(to, (n0 + r) * K + k0 + c, u, high);
    }
}

/* ---- the step ---- */

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

void cuda_muon(struct kern_dev *dev, float *w, kern_act *act, const float *g, float *m, int64_t N, int64_t K,
               const struct kern_step *step, struct kern_muon conf, void *scratch)
{
    if (N <= 0 || K <= 0)
        return;
    muon_room room;
    lay_out(N, K, (char *)scratch, &room);
    int64_t count = N * K, whole = divide_up(count, MUON_THREADS * EIGHT), cols = N > K ? N : K;
    int blocks = whole < MUON_BLOCKS ? (int)whole : (int)MUON_BLOCKS;
    bool lying = N <= K, turned_fits = N % EIGHT == 0;
    int64_t width = lying ? 0 : K; /* of rows that have to begin at 16 bytes */
    bool fits = fits_vec<float>(g, 0) && fits_vec<float>(m, 0) && width % EIGHT == 0;
    LAUNCH(dev, move_momentum, (unsigned)blocks, MUON_THREADS, 0, m, room.parts, g, count, step, conf.momentum,
           fits_vec<float>(g, 0) && fits_vec<float>(m, 0));
    LAUNCH(dev, find_shrink, 1, MUON_BLOCKS, 0, room.shrink, room.parts, blocks);
    if (lying)
        LAUNCH(dev, make_lying, flat_blocks(count), FLAT_THREADS, 0, room.x, g, m, count, step, conf.momentum,
               room.shrink, fits);
    else
        LAUNCH(dev, make_turned, tiles(N, K), MUON_THREADS, 0, room.x, g, m, N, K, step, conf.momentum, room.shrink,
               fits, turned_fits);
    newton_schulz(dev, &room, N < K ? N : K, cols);
    muon_update to = {w,
                      (bf16 *)act,
                      1.0f - conf.lr * conf.weight_decay,
                      conf.lr * 0.2f * sqrtf((float)cols),
                      conf.rounding,
                      fits_vec<float>(w, 0) && fits_vec<bf16>(act, 0) && width % EIGHT == 0};
    if (lying)
        LAUNCH(dev, update_lying, flat_blocks(count), FLAT_THREADS, 0, to, room.x, count, step);
    else
        LAUNCH(dev, update_turned, tiles(N, K), MUON_THREADS, 0, to, room.x, N, K, step, turned_fits);
}
