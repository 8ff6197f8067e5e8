/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_open: the GPU that a place names, or why there is none, in one line with what to do about it; and what it is
 * called. Private to this folder; any thread.
 */
#ifndef KERNELS_CUDA_CUDA_OPEN_H
#define KERNELS_CUDA_CUDA_OPEN_H

#include "kernels/kern_table.h"

/* Makes it the thread's current GPU and fills what stands at the top of `dev`. ERR_NOTFOUND: no driver, no GPU, or
 * none of that number; ERR_STATE: it, or its driver, cannot be used. */
ERR_MUST_CHECK enum err cuda_open_device(struct kern_dev *dev, const struct kern_place *place);

/* The table's: its name, the driver's version and the GPU's capability. */
void cuda_describe(struct kern_dev *dev, char *text, size_t bytes);
/* The table's: by processors and clock. */
double cuda_peak_flops(struct kern_dev *dev);

#endif
