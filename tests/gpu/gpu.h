/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu: the table "cuda" for the programs of tests/gpu, or why they are skipped. DILOCO_GPU says which GPU (default 0).
 */
#ifndef TESTS_GPU_GPU_H
#define TESTS_GPU_GPU_H

#include "kernels/kern_table.h"

enum { GPU_SKIPPED = 77 };

/* The library of this build: beside the program, or two folders up, as build folder and kit have it; else as
 * kern_cuda_find() does. Opens the GPU and says on standard output what it is. Returns 0, or the exit status to end
 * with, having said why: GPU_SKIPPED, unless there is a GPU after all and DILOCO_GPU_NEEDED is set: then 1. */
int gpu_open(const struct kern **table, struct kern_dev **dev);

/* The same in a process of its own, so that this one, which forks, has never seen a GPU. */
int gpu_there(void);
/* In a process that forks no more: that table, without opening anything. */
ERR_MUST_CHECK enum err gpu_find(const struct kern **table);
/* DILOCO_GPU */
int gpu_number(void);

#endif
