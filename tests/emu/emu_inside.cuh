/* SPDX-License-Identifier: Apache-2.0 */
/*
 * emu_inside: what the files of the emulator share; private to them.
 */
#ifndef TESTS_EMU_EMU_INSIDE_CUH
#define TESTS_EMU_EMU_INSIDE_CUH

#include "tests/emu/emu.cuh"

/* Functions that sanitizers do not look into. */
#if defined(__clang__)
#define QUIET __attribute__((disable_sanitizer_instrumentation, no_sanitize("address", "thread", "undefined")))
#else
#define QUIET __attribute__((no_sanitize("address", "thread", "undefined"), noipa))
#endif

enum { WARP_LANES = 32 };

/* Goes on where `to` was left, keeping in *save where to come back to. A stack that nobody has been on yet: SAVED words
 * from `to` on, of which RETURN is the function to begin with, and the address after them a multiple of 16. */
extern "C" void emu_switch(void **save, void *to);
#if defined(__x86_64__)
enum { SAVED = 8, RETURN = 6 };
#elif defined(__aarch64__)
enum { SAVED = 20, RETURN = 1 };
#else
#error "a switch between stacks is written for x86-64 and aarch64"
#endif

/* Does `op` for all the lanes that its mask names; ops(32) are what they wait with. */
void emu_together(struct emu_op *const *ops, const struct emu_op *op);

#endif
