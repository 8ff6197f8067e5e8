/* SPDX-License-Identifier: Apache-2.0 */
/*
 * emu: a GPU's execution model on the CPU, for tests: kernels of kernels/cuda/ are compiled by a C++ compiler with
 * tests/emu/emu.cuh included first, and run thread by thread, in an order that a test chooses. This header is the
 * tests' side of it.
 *
 * Each thread of a block is a fiber of its own; blocks run one after the other. A launch of no device is done when it
 * returns (others: kern_emu.h). What a kernel does wrong is recorded, the first fault since emu_clear(), and ends the
 * launch if there is no way to go on:
 *   - a thread that has returned while others wait at a barrier, or threads that wait at different ones;
 *   - an operation of a warp whose mask lacks the lane itself, or names lanes that have left or are elsewhere;
 *   - vectors, rows of matrices and asynchronous copies that are not aligned to their size;
 *   - shared memory written past its ends;
 *   - a launch that no GPU would take: its number of threads, blocks, or bytes of shared memory.
 * Shared memory holds NaN when a block begins. With the thread sanitizer, what threads of a block do between barriers,
 * and what blocks do, is unordered, so races are reported; with the address sanitizer, so is all that is out of bounds.
 * Not seen: timing, occupancy, and the weak order of memory between blocks.
 *
 * One state for the process; launches of several threads take turns.
 */
#ifndef TESTS_EMU_EMU_H
#define TESTS_EMU_EMU_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { EMU_THREADS_MAX = 1024, EMU_SHARED_MAX = 227 * 1024 };

/* The order of threads within a block, drawn anew whenever each has had its turn, and of blocks. 0: ascending. Odd: the
 * order of warps is drawn, and one goes on as long as it can, which runs far ahead where a barrier is missing. */
void emu_set_order(uint64_t seed);
/* The first fault since emu_clear(), with the kernel's name; "" if there is none. Valid until the next emu_clear(). */
const char *emu_error(void);
void emu_clear(void);
/* Records a fault, unless there is one. */
void emu_record(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* work(context) is done when the device's queue MAIN comes to it, with a copy of context(bytes); without a device, or
 * in a program that has no kern_emu, at once. */
struct kern_dev;
void emu_queue(struct kern_dev *dev, void (*work)(void *context), void *context, size_t bytes);

#ifdef __cplusplus
}
#endif

#endif
