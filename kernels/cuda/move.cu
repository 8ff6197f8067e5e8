/* SPDX-License-Identifier: Apache-2.0 */
/*
 * move: what the exchange between islands does to the live parameters, and to their copy in bf16, to nearest; flat
 * arrays, whose beginning may lie anywhere in a tensor. The arithmetic is that of worker/libdiloco (mix_host() and
 * aside.c), value by value. Bound by memory.
 */
#include "kernels/cuda/values.cuh"

__device__ __forceinline__ bool is_finite(float x)
{
    return (__float_as_uint(x) & 0x7f800000u) != 0x7f800000u;
}

__device__ __forceinline__ void store_live(float *live, bf16 *act, int64_t at, const eight &x, int high, bool fits)
{
    store_eight(live + at, x, 0, high, fits);
    store_eight(act + at, x, 0, high, fits);
}

/* Whether an array can be moved 16 bytes at a time; one that is not there is no hindrance. */
static bool fits_flat(const float *x)
{
    return fits_vec<float>(x, 0);
}

static bool live_fits(const float *live, const kern_act *act)
{
    return fits_flat(live) && fits_vec<bf16>(act, 0);
}

/* ---- mixing ---- */

static __global__ void mix_live(float *live, bf16 *act, const float *anchor, int64_t count, float keep, float take,
                                bool fits)
{
    int64_t at = flat_at();
    int high = of_eight(count - at);
    eight x = load_eight(anchor + at, 0, high, fits);
    if (keep != 0) { /* an Inf in the old value is not to survive as 0 * Inf */
        eight old = load_eight(live + at, 0, high, fits);
        UNROLL
        for (int j = 0; j < EIGHT; j++)
            x.at[j] = keep * old.at[j] + take * x.at[j];
    }
    store_live(live, act, at, x, high, fits);
}

static __global__ void shift_live(float *live, bf16 *act, const float *anchor, const float *base, int64_t count,
                                  bool fits)
{
    int64_t at = flat_at();
    int high = of_eight(count - at);
    eight x = load_eight(live + at, 0, high, fits);
    eight to = load_eight(anchor + at, 0, high, fits);
    eight from = load_eight(base + at, 0, high, fits);
    UNROLL
    for (int j = 0; j < EIGHT; j++)
        x.at[j] += to.at[j] - from.at[j];
    store_live(live, act, at, x, high, fits);
}

void cuda_mix(struct kern_dev *dev, float *live, kern_act *act, const float *anchor, int64_t count, float keep)
{
    if (count <= 0)
        return;
    bool fits = live_fits(live, act) && fits_flat(anchor);
    LAUNCH(dev, mix_live, flat_blocks(count), FLAT_THREADS, 0, live, (bf16 *)act, anchor, count, keep,
           (float)(1 - (double)keep), fits);
}

void cuda_shift(struct kern_dev *dev, float *live, kern_act *act, const float *anchor, const float *base, int64_t count)
{
    if (count <= 0)
        return;
    bool fits = live_fits(live, act) && fits_flat(anchor) && fits_flat(base);
    LAUNCH(dev, shift_live, flat_blocks(count), FLAT_THREADS, 0, live, (bf16 *)act, anchor, base, count, fits);
}

/* ---- work set aside ---- */

static __global__ void put_aside(float *live, bf16 *act, const float *base, float *aside, const float *past,
                                 int64_t count, kern_aside rule, bool fits)
{
    int64_t at = flat_at();
    int high = of_eight(count - at);
    eight x = load_eight(live + at, 0, high, fits);
    eight from = load_eight(base + at, 0, high, fits);
    eight before = load_eight(past + (past != NULL ? at : 0), 0, past != NULL ? high : 0, fits);
    eight set_aside;
    UNROLL
    for (int j = 0; j < EIGHT; j++) {
        float moved = x.at[j] - from.at[j];
        float kept = rule.keep > 0 ? rule.keep * moved : 0; /* what is not finite is not to live on as 0 * Inf */
        set_aside.at[j] = moved - kept;
        x.at[j] = from.at[j] + kept;
        if (past != NULL && is_finite(moved))
            x.at[j] += rule.fresh * moved - rule.past * before.at[j];
    }
    store_eight(aside + at, set_aside, 0, high, fits);
    store_live(live, act, at, x, high, fits);
}

/* Takes what put_aside() added on account back. */
__device__ __forceinline__ float without_estimate(const kern_aside &rule, float live, float aside, float past)
{
    return is_finite(aside) ? live - (rule.fresh * aside - rule.past * past) : live;
}

static __global__ void take_counted(float *live, bf16 *act, const float *base, const float *anchor, const float *aside,
                                    float *past, int64_t count, kern_aside rule, bool fits)
{
    int64_t at = flat_at();
    int high = of_eight(count - at);
    eight x = load_eight(live + at, 0, high, fits);
    eight moved = load_eight(anchor + at, 0, high, fits);
    eight from = load_eight(base + at, 0, high, fits);
    UNROLL
    for (int j = 0; j < EIGHT; j++)
        moved.at[j] -= from.at[j];
    if (past != NULL) {
        eight set_aside = load_eight(aside + at, 0, high, fits);
        eight before = load_eight(past + at, 0, high, fits);
        UNROLL
        for (int j = 0; j < EIGHT; j++) {
            x.at[j] = without_estimate(rule, x.at[j], set_aside.at[j], before.at[j]);
            before.at[j] = rule.decay * before.at[j] - set_aside.at[j];
        }
        store_eight(past + at, before, 0, high, fits);
    }
    UNROLL
    for (int j = 0; j < EIGHT; j++)
        x.at[j] += rule.keep > 0 ? moved.at[j] - rule.keep * moved.at[j] : moved.at[j];
    store_live(live, act, at, x, high, fits);
}

static __global__ void take_missed(float *live, bf16 *act, const float *base, const float *anchor, const float *aside,
                                   const float *past, int64_t count, kern_aside rule, bool fits)
{
    int64_t at = flat_at();
    int high = of_eight(count - at);
    eight x = load_eight(live + at, 0, high, fits);
    eight moved = load_eight(anchor + at, 0, high, fits);
    eight from = load_eight(base + at, 0, high, fits);
    eight set_aside = load_eight(aside + at, 0, high, fits);
    eight before = load_eight(past + (past != NULL ? at : 0), 0, past != NULL ? high : 0, fits);
    UNROLL
    for (int j = 0; j < EIGHT; j++) {
        if (past != NULL)
            x.at[j] = without_estimate(rule, x.at[j], set_aside.at[j], before.at[j]);
        x.at[j] += moved.at[j] - from.at[j] + set_aside.at[j];
    }
    store_live(live, act, at, x, high, fits);
}

static __global__ void take_back(float *live, bf16 *act, const float *aside, const float *past, const int32_t *bad,
                                 int64_t count, kern_aside rule, bool fits)
{
    int64_t at = flat_at();
    int high = of_eight(count - at);
    bool restore = *bad == 0;
    eight x = load_eight(live + at, 0, high, fits);
    eight set_aside = load_eight(aside + at, 0, high, fits);
    eight before = load_eight(past + (past != NULL ? at : 0), 0, past != NULL ? high : 0, fits);
    UNROLL
    for (int j = 0; j < EIGHT; j++) {
        if (past != NULL)
            x.at[j] = without_estimate(rule, x.at[j], set_aside.at[j], before.at[j]);
        if (restore)
            x.at[j] += set_aside.at[j];
    }
    store_live(live, act, at, x, high, fits);
}

void cuda_aside_out(struct kern_dev *dev, float *live, kern_act *act, const float *base, float *aside,
                    const float *past, int64_t count, struct kern_aside rule)
{
    if (count <= 0)
        return;
    bool fits = live_fits(live, act) && fits_flat(base) && fits_flat(aside) && fits_flat(past);
    LAUNCH(dev, put_aside, flat_blocks(count), FLAT_THREADS, 0, live, (bf16 *)act, base, aside, past, count, rule,
           fits);
}

void cuda_aside_in(struct kern_dev *dev, float *live, kern_act *act, const float *base, const float *anchor,
                   const float *aside, float *past, bool counted, int64_t count, struct kern_aside rule)
{
    if (count <= 0)
        return;
    bool fits = live_fits(live, act) && fits_flat(base) && fits_flat(anchor) && fits_flat(aside) && fits_flat(past);
    if (counted)
        LAUNCH(dev, take_counted, flat_blocks(count), FLAT_THREADS, 0, live, (bf16 *)act, base, anchor, aside, past,
               count, rule, fits);
    else
        LAUNCH(dev, take_missed, flat_blocks(count), FLAT_THREADS, 0, live, (bf16 *)act, base, anchor, aside, past,
               count, rule, fits);
}

void cuda_aside_off(struct kern_dev *dev, float *live, kern_act *act, const float *aside, const float *past,
                    const int32_t *bad, int64_t count, struct kern_aside rule)
{
    if (count <= 0)
        return;
    bool fits = live_fits(live, act) && fits_flat(aside) && fits_flat(past);
    LAUNCH(dev, take_back, flat_blocks(count), FLAT_THREADS, 0, live, (bf16 *)act, aside, past, bad, count, rule, fits);
}
