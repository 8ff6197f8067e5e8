/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kern_cuda: finds the CUDA table, which is a library of its own, libdiloco-cuda.so: so the program starts where there
 * is no CUDA, and says what is missing only to those who ask for it. A library once loaded stays. One thread calls.
 */
#ifndef KERNELS_KERN_CUDA_H
#define KERNELS_KERN_CUDA_H

#include "kernels/kern_table.h"

/* Beside this program, in ../lib/diloco and ../lib from there, then where the loader looks. ERR_NOTFOUND says where it
 * was looked for and what to do; also of a library that does not load, or is of another version. */
ERR_MUST_CHECK enum err kern_cuda_find(const struct kern **out);

/* The same in `folders`, separated by colons, then, with `loader`, where the loader looks. */
ERR_MUST_CHECK enum err kern_cuda_find_in(const char *folders, bool loader, const struct kern **out);

/* ERR_OK if there is a driver, and a GPU that this process may see; ERR_NOTFOUND says what is missing. Opens none. */
ERR_MUST_CHECK enum err kern_cuda_present(void);

#endif
