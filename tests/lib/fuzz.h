/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz: replays a fuzz target's corpus, and seeded mutations of it, in every `make check`. The same targets build with
 * libFuzzer (`make fuzz`, needs clang), which is what finds new inputs; those are added to tests/fuzz/corpus/NAME/.
 */
#ifndef TESTS_LIB_FUZZ_H
#define TESTS_LIB_FUZZ_H

#include <stddef.h>
#include <stdint.h>

typedef int fuzz_target(const uint8_t *data, size_t bytes);

/* Feeds every file of tests/fuzz/corpus/NAME and `mutations` changed copies of each to the target. Returns 0; a target
 * that misbehaves ends the process (sanitizers, asserts, crashes). Non-zero if there is no corpus. */
int fuzz_replay(const char *name, fuzz_target *target, unsigned mutations);

#endif
