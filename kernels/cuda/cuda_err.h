/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_err: where failures inside libdiloco-cuda.so go; see cuda_err.c. Private to this folder.
 */
#ifndef KERNELS_CUDA_CUDA_ERR_H
#define KERNELS_CUDA_CUDA_ERR_H

#include "kernels/kern_services.h"

/* Before anything else in the library; `services` is copied. */
void cuda_err_init(const struct kern_services *services);

#endif
