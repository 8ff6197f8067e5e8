/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_blas: products of matrices by cuBLASLt, which is opened with dlopen, so that a machine without it is told so in
 * words. For each shape that comes up a plan is made once and kept: what the library calls the shape, and of its best
 * algorithms the one that was fastest here, or that a process before has chosen (cuda_choices). Algorithms whose sums
 * depend on the order in which blocks finish are left out, so the same call gives the same bits as long as the plan is
 * the same.
 * cuda_multiply() is declared in cuda.h. Private to this folder; the thread that uses the device calls.
 */
#ifndef KERNELS_CUDA_CUDA_BLAS_H
#define KERNELS_CUDA_CUDA_BLAS_H

#include "kernels/kern_table.h"

/* ERR_NOTFOUND: the library is not there. ERR_NOMEM: its workspace does not fit. `choices`: see
 * kern_place. After a failure, too, the close. */
ERR_MUST_CHECK enum err cuda_blas_open(struct kern_dev *dev, const char *choices);
/* When nothing of it is queued any more. */
void cuda_blas_close(struct kern_dev *dev);

#endif
