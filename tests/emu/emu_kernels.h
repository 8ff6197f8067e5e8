/* SPDX-License-Identifier: Apache-2.0 */
/*
 * emu_kernels: small kernels, right ones and wrong ones, for the test of the emulator itself. Each function launches
 * one; arrays are the caller's.
 */
#ifndef TESTS_EMU_EMU_KERNELS_H
#define TESTS_EMU_EMU_KERNELS_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { TRY_BLOCKS = 6, TRY_THREADS = 96 };

/* out(blocks, threads): sums of two neighbours' values, through shared memory, with its barrier or without. */
void try_neighbours(float *out, bool barrier);
/* out(2, 32): the neighbour's value in a warp, through shared memory, with __syncwarp() or a shuffle between. */
void try_warp_neighbours(float *out, bool barrier);
/* turns(blocks, threads): the how-manieth each thread was to count; `count` starts at 0. */
void try_turns(int32_t *turns, int32_t *count);
/* Each block writes out(1), or adds to it. */
void try_blocks(int32_t *out, bool atomic);
/* Uses of barriers and warps that are wrong, and one that is odd but right. */
enum try_fault {
    TRY_RETURNED,
    TRY_RETURNS_LATER,
    TRY_TWO_BARRIERS,
    TRY_BARRIER_AND_WARP,
    TRY_WARP_AND_BARRIER,
    TRY_NOT_IN_MASK,
    TRY_LANE_LEFT,
    TRY_LANE_LEAVES,
    TRY_NO_SUCH_LANE,
    TRY_OTHER_MASK,
    TRY_CIRCLE,
    TRY_FROM_OUTSIDE,
    TRY_HALVES
};
void try_wrong(enum try_fault what, int32_t *out);
/* Of memory that begins at 16 bytes: a vector, a row, a copy that begins `by` bytes later. */
void try_vector(uint32_t *memory, int by);
void try_row(int by);
void try_copy(const void *memory, int by);
/* Writes the i-th float of `count` in dynamic, or of 8 in static shared memory. */
void try_dynamic(int count, int i);
void try_static(int i);
void try_launch(int blocks, int threads, int shared);
/* out(blocks, 3): what shared memory holds at the start: dynamic, and static of 5 and of 7 values by one template. */
void try_poison(uint32_t *out);
/* out(10, 32): see the kernel; `value`(32). */
void try_shuffles(double *out, const double *value);
/* out(4, 32) */
void try_votes(uint32_t *out, const int32_t *value);
/* d(16,8) += a(16,16) b(16,8), bf16: fragments by index, or by matrices loaded from shared memory. */
void try_mma(float *d, const uint16_t *a, const uint16_t *b);
void try_mma_loaded(float *d, const uint16_t *a, const uint16_t *b);
/* out(32, 4) of in(4, 8, 8) */
void try_matrix(uint32_t *out, const uint16_t *in, bool trans);
/* out(4, 4): the first word of two groups' copies and an invalid one: issued; one group to go; none; in(12) */
void try_async(uint32_t *out, const uint32_t *in);
/* atomics of integers, by all threads, on out(4) */
void try_atomics(int32_t *out);

#ifdef __cplusplus
}
#endif

#endif
