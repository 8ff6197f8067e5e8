/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_library: opens a library of NVIDIA's that is not linked, so that a machine without it is told so in words.
 * Private to this folder; one thread calls.
 */
#ifndef KERNELS_CUDA_CUDA_LIBRARY_H
#define KERNELS_CUDA_CUDA_LIBRARY_H

#include <stdbool.h>
#include <stddef.h>

/* Where the loader looks, then where the toolkit puts such; NULL: nowhere. It is never closed: such libraries make
 * things in the driver that outlive their handles. */
void *cuda_library_open(const char *name);

/* A function by its name; `function` is where its pointer goes. */
struct cuda_symbol {
    const char *name;
    void *function;
};
/* Finds them all; else the name of the first that is not there. */
const char *cuda_library_lacks(void *library, const struct cuda_symbol *wanted, size_t count);

#endif
