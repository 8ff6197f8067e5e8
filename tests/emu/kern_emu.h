/*
 * kern_emu: a table of operations (kernels/kern_table.h) whose kernels are those of kernels/cuda/, emulated (emu.h),
 * and whose host side is a host that is as late as a GPU may be:
 *   - copies on COMM and COPY, and those on MAIN to pinned memory, are done when somebody waits for them, orders MAIN
 *     after them, or has asked for the second time whether they are done; who reads, writes or frees too early sees it;
 *   - operations on MAIN, and all other copies there, are done at once; pinned memory that they come from is looked at
 *     again when they are known to be done, and must not have changed;
 *   - memory that is not pinned is copied from at once and to at once, as CUDA does;
 *   - scratch memory holds NaN whenever an operation takes it.
 * Not seen: a copy on COMM or COPY that was to be ordered after MAIN and is not.
 *
 * fault(), wait() and sync() tell what emu_error() does. That also has what is wrong with copies, pins and scratch:
 * past the end of an array, unpinned while in use, more than was reserved, not given back at close().
 */
#ifndef TESTS_EMU_KERN_EMU_H
#define TESTS_EMU_KERN_EMU_H

#include "kernels/kern_table.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const struct kern kern_emu;

#ifdef __cplusplus
}
#endif

#endif
