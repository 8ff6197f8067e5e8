/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cuda/cuda_peak.h"

#include <stddef.h>

/* From NVIDIA's architecture white papers. One capability stands for one chip here; 8.6 and 8.9 stand for many boards,
 * of which GeForce's do half of what the others do, so that nothing is known of them. */
static const struct {
    int capability;
    double flops_per_clock; /* of one streaming multiprocessor */
    double clock_share;     /* the tensor cores' highest clock, as a share of the processors' */
} chips[] = {
    /* A100: 108 x 2048 x 1.41 GHz = 312 TFLOP/s */
    {80, 2048, 1},
    /* Hopper's tensor cores have a boost clock of their own. H100 SXM: 132 x 4096 x 1.83 of 1.98 GHz = 989 TFLOP/s;
     * H100 PCIe: 114 x 4096 x 1.62 of 1.755 GHz = 756 TFLOP/s. */
    {90, 4096, 12.0 / 13},
    /* Twice Hopper's per clock; what clock its tensor cores have is not published, so this may be a little too much. */
    {100, 8192, 1},
};

double cuda_peak_of(int capability, int processors, int clock_khz)
{
    if (processors <= 0 || clock_khz <= 0)
        return 0;
    for (size_t i = 0; i < sizeof chips / sizeof chips[0]; i++)
        if (chips[i].capability == capability)
            return processors * chips[i].flops_per_clock * chips[i].clock_share * clock_khz * 1e3;
    return 0;
}
