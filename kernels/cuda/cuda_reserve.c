/* SPDX-License-Identifier: Apache-2.0 */
/* How much scratch memory the operations need: the largest of what each takes, as they come one after another. */
#include "kernels/cuda/cuda.h"

size_t cuda_reserve_bytes(const struct kern_dev *dev, int64_t R, int64_t C, int64_t L)
{
    (void)dev;
    (void)L; /* products read them where they are */
    const size_t needs[] = {cuda_rmsnorm_scratch(R, C), cuda_embed_scratch(R, C), cuda_norm_scratch(),
                            cuda_loss_scratch(R)};
    size_t most = 0;
    for (size_t i = 0; i < sizeof needs / sizeof needs[0]; i++)
        most = needs[i] > most ? needs[i] : most;
    return most;
}
