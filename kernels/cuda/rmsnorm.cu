/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rmsnorm: y = x w / sqrt(mean(x^2) + eps) over rows of C values, and its gradient. Bound by memory.
 *
 * Forward, a block takes a row and holds it in registers: KEPT times eight values a thread, as many threads as that
 * takes. What rows wider than KEPT * 8 * MOST_THREADS have beyond that is read twice. What is normalised is the sum as
 * it was rounded, so that the backward pass, which reads it, sees the same.
 *
 * Backward, a block takes a group of rows one after the other and holds its columns' sums of dy x rstd, the gradient of
 * w, in registers until the end. A second kernel adds up the groups. How rows are grouped depends on their number and
 * width alone, so sums come out the same everywhere.
 */
#include "kernels/cuda/values.cuh"

enum { KEPT = 2, MOST_THREADS = 512 };

static unsigned row_threads(int64_t C)
{
    return threads_for(divide_up(C, KEPT * EIGHT), MOST_THREADS);
}

/* ---- forward ---- */

struct forward_row {
    bf16 *sum;
    const bf16 *inp, *add;
    bool fits;
};

/* Eight values of what is normalised; where they are a sum, writes it. */
__device__ __forceinline__ eight take_sum(const forward_row &row, int64_t at, int high)
{
    eight x = load_eight(row.inp + at, 0, high, row.fits);
    if (row.add == NULL)
        return x;
    eight more = load_eight(row.add + at, 0, high, row.fits);
    UNROLL
    for (int j = 0; j < EIGHT; j++)
        x.at[j] += more.at[j];
    vec<bf16> rounded = round_nearest(x);
    store_eight(row.sum + at, rounded, 0, high, row.fits);
    UNROLL
    for (int j = 0; j < EIGHT; j++)
        x.at[j] = to_float(rounded.at[j]);
    return x;
}

__device__ __forceinline__ float squares(const eight &x)
{
    float sum = 0;
    UNROLL
    for (int j = 0; j < EIGHT; j++)
        sum += x.at[j] * x.at[j];
    return sum;
}

__device__ __forceinline__ void put_normalised(bf16 *out, eight x, const bf16 *w, float scale, int high, bool fits)
{
    eight weight = load_eight(w, 0, high, fits);
    UNROLL
    for (int j = 0; j < EIGHT; j++)
        x.at[j] *= scale * weight.at[j];
    store_eight(out, x, 0, high, fits);
}

static __global__ void rmsnorm_forward(bf16 *out, float *rstd, bf16 *sum, const bf16 *inp, const bf16 *add,
                                       const bf16 *w, int64_t C, float eps, bool fits)
{
    SHARED(float, room, WARP);
    int64_t begin = (int64_t)blockIdx.x * C, stride = (int64_t)blockDim.x * EIGHT;
    int64_t first = (int64_t)threadIdx.x * EIGHT;
    forward_row row = {NULL, inp + begin, NULL, fits};
    if (add != NULL) {
        row.sum = sum + begin;
        row.add = add + begin;
    }
    eight kept[KEPT];
    float square = 0;
    UNROLL
    for (int k = 0; k < KEPT; k++) {
        kept[k] = take_sum(row, first + k * stride, of_eight(C - first - k * stride));
        square += squares(kept[k]);
    }
    for (int64_t at = first + KEPT * stride; at < C; at += stride)
        square += squares(take_sum(row, at, of_eight(C - at)));
    float scale = 1.0f / sqrtf(block_sum(square, room) / (float)C + eps);
    if (threadIdx.x == 0)
        rstd[blockIdx.x] = scale;
    UNROLL
    for (int k = 0; k < KEPT; k++) {
        int64_t at = first + k * stride;
        put_normalised(out + begin + at, kept[k], w + at, scale, of_eight(C - at), fits);
    }
    const bf16 *again = add != NULL ? row.sum : row.inp;
    for (int64_t at = first + KEPT * stride; at < C; at += stride) {
        int high = of_eight(C - at);
        put_normalised(out + begin + at, load_eight(again + at, 0, high, fits), w + at, scale, high, fits);
    }
}

void cuda_rmsnorm_fwd(struct kern_dev *dev, kern_act *out, float *rstd, kern_act *sum, const kern_act *inp,
                      const kern_act *add, const kern_act *w, int64_t R, int64_t C, float eps)
{
    if (R <= 0 || C <= 0)
        return;
    bool fits = fits_vec<bf16>(out, C) && fits_vec<bf16>(inp, C) && fits_vec<bf16>(w, C) &&
                (add == NULL || (fits_vec<bf16>(sum, C) && fits_vec<bf16>(add, C)));
    LAUNCH(dev, rmsnorm_forward, (unsigned)R, row_threads(C), 0, (bf16 *)out, rstd, (bf16 *)sum, (const bf16 *)inp,
           (const bf16 *)add, (const bf16 *)w, C, eps, fits);
}

/* ---- backward ---- */

/* Rows of a group. Enough groups for a few blocks a processor on the largest devices, few enough that their sums are
 * little beside the rows. */
static int64_t group_rows(int64_t R, int64_t C)
{
    return divide_up(R, C <= 1024 ? 1024 : 512);
}

size_t cuda_rmsnorm_scratch(int64_t R, int64_t C)
{
    /* Narrower rows come in more groups; the narrow ones of all may need more than the widest. */
    int64_t narrow = C < 1024 ? C : 1024;
    int64_t groups = R < 512 ? R : 512, narrow_groups = R < 1024 ? R : 1024;
    int64_t values = groups * C > narrow_groups * narrow ? groups * C : narrow_groups * narrow;
    return (size_t)values * sizeof(float);
}

struct backward_row {
    bf16 *dinp;
    const bf16 *dout, *inp, *w;
    float rstd;
    bool fits;
};

/* x and w dy of eight values; adds their share to `dot`, and dy x rstd to `sums`. */
__device__ __forceinline__ void take_gradient(const eight &weight, float rstd, const eight &x, eight &wdy, eight &sums,
                                              float &dot)
{
    UNROLL
    for (int j = 0; j < EIGHT; j++) {
        sums.at[j] += wdy.at[j] * x.at[j] * rstd;
        wdy.at[j] *= weight.at[j];
        dot += wdy.at[j] * x.at[j];
    }
}

/* dx += rstd (w dy - x back), back = rstd^2 mean(w dy x) */
__device__ __forceinline__ void put_gradient(const backward_row &row, int64_t at, int high, const eight &x,
                                             const eight &wdy, eight dx, float back)
{
    UNROLL
    for (int j = 0; j < EIGHT; j++)
        dx.at[j] += row.rstd * (wdy.at[j] - x.at[j] * back);
    store_eight(row.dinp + at, dx, 0, high, row.fits);
}

/* What a thread keeps of a row, as it lies in memory: a load is waited for where it is made into floats, so that those
 * of a row are all on their way before anything of it is needed. */
struct raw_row {
    vec<bf16> x[KEPT], dy[KEPT], w[KEPT], dx[KEPT];
};

template <bool FITS> __device__ __forceinline__ raw_row load_row(const backward_row &row, int64_t C)
{
    int64_t stride = (int64_t)blockDim.x * EIGHT, first = (int64_t)threadIdx.x * EIGHT;
    raw_row raw;
    UNROLL
    for (int k = 0; k < KEPT; k++) {
        int64_t at = first + k * stride;
        int high = of_eight(C - at);
        raw.x[k] = load_raw<FITS>(row.inp + at, high);
        raw.dy[k] = load_raw<FITS>(row.dout + at, high);
        raw.w[k] = load_raw<FITS>(row.w + at, high);
        raw.dx[k] = load_raw<FITS>(row.dinp + at, high);
    }
    return raw;
}

/* One row; `kept` are sums of the columns that the thread holds, `part` those of the columns beyond. */
__device__ __forceinline__ void row_backward(const backward_row &row, const raw_row &raw, float *part,
                                             eight (&kept)[KEPT], int64_t C, float *room)
{
    int64_t stride = (int64_t)blockDim.x * EIGHT, first = (int64_t)threadIdx.x * EIGHT;
    eight x[KEPT], wdy[KEPT];
    float dot = 0;
    UNROLL
    for (int k = 0; k < KEPT; k++) {
        x[k] = to_eight(raw.x[k]);
        wdy[k] = to_eight(raw.dy[k]);
        take_gradient(to_eight(raw.w[k]), row.rstd, x[k], wdy[k], kept[k], dot);
    }
    for (int64_t at = first + KEPT * stride; at < C; at += stride) {
        int high = of_eight(C - at);
        eight own = load_eight(part + at, 0, high, row.fits), more = load_eight(row.dout + at, 0, high, row.fits);
        take_gradient(load_eight(row.w + at, 0, high, row.fits), row.rstd, load_eight(row.inp + at, 0, high, row.fits),
                      more, own, dot);
        store_eight(part + at, own, 0, high, row.fits);
    }
    float back = block_sum(dot, room) * row.rstd * row.rstd / (float)C;
    UNROLL
    for (int k = 0; k < KEPT; k++) {
        int64_t at = first + k * stride;
        put_gradient(row, at, of_eight(C - at), x[k], wdy[k], to_eight(raw.dx[k]), back);
    }
    for (int64_t at = first + KEPT * stride; at < C; at += stride) {
        int high = of_eight(C - at);
        eight again = load_eight(row.inp + at, 0, high, row.fits), more = load_eight(row.dout + at, 0, high, row.fits);
        eight added = no_eight();
        take_gradient(load_eight(row.w + at, 0, high, row.fits), row.rstd, again, more, added, dot); /* sums have it */
        put_gradient(row, at, high, again, more, load_eight(row.dinp + at, 0, high, row.fits), back);
    }
}

template <bool FITS>
static __global__ void __launch_bounds__(MOST_THREADS)
    rmsnorm_backward(bf16 *dinp, float *parts, const bf16 *dout, const bf16 *inp, const bf16 *w, const float *rstd,
                     int64_t R, int64_t C, int64_t rows)
{
    SHARED(float, room, WARP);
    int64_t stride = (int64_t)blockDim.x * EIGHT, first = (int64_t)threadIdx.x * EIGHT;
    int64_t begin = (int64_t)blockIdx.x * rows, end = begin + rows < R ? begin + rows : R;
    float *part = parts + (int64_t)blockIdx.x * C;
    eight kept[KEPT];
    UNROLL
    for (int k = 0; k < KEPT; k++)
        kept[k] = no_eight();
    for (int64_t at = first + KEPT * stride; at < C; at += stride)
        store_eight(part + at, no_eight(), 0, of_eight(C - at), FITS);
    for (int64_t r = begin; r < end; r++) {
        backward_row row = {dinp + r * C, dout + r * C, inp + r * C, w, rstd[r], FITS};
        row_backward(row, load_row<FITS>(row, C), part, kept, C, room);
    }
    UNROLL
    for (int k = 0; k < KEPT; k++)
        store_eight(part + first + k * stride, kept[k], 0, of_eight(C - first - k * stride), FITS);
}

/* dw(C) += the sums of all groups. A lane has a column; of a block's warps each adds up every 32nd group, and the
 * first warp what they found, in order. */
static __global__ void join_groups(float *dw, const float *parts, int64_t groups, int64_t C)
{
    SHARED(float, room, WARP *WARP);
    int64_t column = (int64_t)blockIdx.x * WARP + threadIdx.x % WARP;
    float sum = 0;
    if (column < C)
        for (int64_t group = threadIdx.x / WARP; group < groups; group += WARP)
            sum += parts[group * C + column];
    room[threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.x < WARP && column < C) {
        float total = 0;
        for (int i = 0; i < WARP; i++)
            total += room[i * WARP + threadIdx.x];
        dw[column] += total;
    }
}

void cuda_rmsnorm_bwd(struct kern_dev *dev, kern_act *dinp, float *dw, const kern_act *dout, const kern_act *inp,
                      const kern_act *w, const float *rstd, int64_t R, int64_t C)
{
    if (R <= 0 || C <= 0)
        return;
    int64_t rows = group_rows(R, C), groups = divide_up(R, rows);
    float *parts = (float *)cuda_scratch(dev, (size_t)(groups * C) * sizeof(float));
    if (parts == NULL)
        return;
    bool fits = fits_vec<bf16>(dinp, C) && fits_vec<bf16>(dout, C) && fits_vec<bf16>(inp, C) && fits_vec<bf16>(w, C);
    auto *backward = fits ? rmsnorm_backward<true> : rmsnorm_backward<false>;
    LAUNCH(dev, backward, (unsigned)groups, row_threads(C), 0, (bf16 *)dinp, parts, (const bf16 *)dout,
           (const bf16 *)inp, (const bf16 *)w, rstd, R, C, rows);
    LAUNCH(dev, join_groups, (unsigned)divide_up(C, WARP), WARP * WARP, 0, dw, parts, groups, C);
}
