/* SPDX-License-Identifier: Apache-2.0 */
/*
 * isa: which of the instruction sets that hot loops are compiled for this processor runs.
 *
 * The Makefile compiles such a file once per level and names the results *_base, *_avx2, *_avx512; other processors
 * than x86-64 have the base alone. Pure; any thread.
 */
#ifndef COMMON_ISA_H
#define COMMON_ISA_H

#include <stddef.h>

/* Narrowest first; each level has everything below it. */
enum isa_level { ISA_LEVEL_BASE, ISA_LEVEL_AVX2, ISA_LEVEL_AVX512, ISA_LEVELS_MAX };

/* How many levels, from the base on, this processor runs: 1 to ISA_LEVELS_MAX. */
size_t isa_levels(void);

#endif
