/* SPDX-License-Identifier: Apache-2.0 */
/* act: float to bf16, to nearest, and back; flat arrays of `count` values. Bound by memory: 6 bytes a value. */
#include "kernels/cuda/values.cuh"

static __global__ void float_to_act(bf16 *to, const float *from, int64_t count, bool fits)
{
    int64_t at = flat_at();
    int high = of_eight(count - at);
    store_eight(to + at, load_eight(from + at, 0, high, fits), 0, high, fits);
}

static __global__ void act_to_float(float *to, const bf16 *from, int64_t count, bool fits)
{
    int64_t at = flat_at();
    int high = of_eight(count - at);
    store_eight(to + at, load_eight(from + at, 0, high, fits), 0, high, fits);
}

void cuda_to_act(struct kern_dev *dev, kern_act *to, const float *from, int64_t count)
{
    if (count <= 0)
        return;
    bool fits = fits_vec<bf16>(to, 0) && fits_vec<float>(from, 0);
    LAUNCH(dev, float_to_act, flat_blocks(count), FLAT_THREADS, 0, (bf16 *)to, from, count, fits);
}

void cuda_from_act(struct kern_dev *dev, float *to, const kern_act *from, int64_t count)
{
    if (count <= 0)
        return;
    bool fits = fits_vec<float>(to, 0) && fits_vec<bf16>(from, 0);
    LAUNCH(dev, act_to_float, flat_blocks(count), FLAT_THREADS, 0, to, (const bf16 *)from, count, fits);
}
