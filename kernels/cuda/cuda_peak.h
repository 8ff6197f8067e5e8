/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_peak: what a GPU's tensor cores can do at best, from what it says of itself. Pure; needs no toolkit. Private to
 * this folder.
 */
#ifndef KERNELS_CUDA_CUDA_PEAK_H
#define KERNELS_CUDA_CUDA_PEAK_H

/* Floating-point operations a second in dense products of bf16 with sums in fp32. `capability`: 10 * major + minor;
 * `clock_khz`: the highest of its processors. 0: not known of this capability. */
double cuda_peak_of(int capability, int processors, int clock_khz);

#endif
