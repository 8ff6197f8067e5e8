/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_dnn: cuDNN, which is opened with dlopen where it is installed. Private to this folder; one thread calls.
 */
#ifndef KERNELS_CUDA_CUDA_DNN_H
#define KERNELS_CUDA_CUDA_DNN_H

#include "kernels/cuda/cuda_dnn_graph.h"

/* The library's functions into *calls, and its version, as 91900 for 9.19.0. False: it is not there, is too old or
 * lacks a function, and `why`(bytes) says so; nobody has failed then, so it is no error. */
bool cuda_dnn_load(struct cuda_dnn_calls *calls, size_t *version, char *why, size_t bytes);

#endif
