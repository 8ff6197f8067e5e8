/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kern_emu: a table of operations (kernels/kern_table.h) whose kernels are those of kernels/cuda/, emulated (emu.h),
 * and whose host side is a host that is as late as a GPU may be:
 *   - what a queue holds is done when somebody waits for it, or for a queue that was ordered after it, or has asked for
 *     the second time whether it is done; until then nothing is: who reads, writes or frees too early, or has forgotten
 *     an order between two queues, sees it. With kern_emu_hurry() COMM and COPY are as early as orders let them;
 *   - pinned memory that a copy comes from must not have changed by then, and is taken as it is then;
 *   - memory that is not pinned is copied from at once, and to before the call returns, as CUDA does;
 *   - stream() gives streams of the played NCCL (tests/fakes/fake_nccl.h), whose collectives are work like any other;
 *   - scratch memory holds NaN whenever an operation takes it.
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

/* Of all devices, from now on. */
void kern_emu_hurry(bool yes);

#ifdef __cplusplus
}
#endif

#endif
