/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dtype: how a value of a tensor is kept in a file: as float, or in two bytes; and the way from one to the other.
 *
 * Every bf16 and every f16 is a float, so reading loses nothing; writing rounds to nearest, ties to even. Integers
 * alone: the same bits on every machine. Pure; any thread.
 */
#ifndef COMMON_DTYPE_H
#define COMMON_DTYPE_H

#include <stddef.h>
#include <stdint.h>

#include "common/err.h"

/* 0 is what our own files hold. OTHER: a file may hold it, and nobody here can read it. */
enum dtype { DTYPE_F32, DTYPE_BF16, DTYPE_F16, DTYPE_OTHER };

/* As the user gives them: "f32", "bf16", "f16". ERR_ARG lists them. */
const char *dtype_name(enum dtype dtype);
ERR_MUST_CHECK enum err dtype_find(const char *name, enum dtype *out);

/* As safetensors has them: "F32", "BF16", "F16". Of another name, DTYPE_OTHER. */
const char *dtype_tag(enum dtype dtype);
enum dtype dtype_of_tag(const char *tag);

/* Of a value; 0 of DTYPE_OTHER. */
size_t dtype_bytes(enum dtype dtype);

/* `count` little-endian values at `from`, on no particular boundary, to floats. Not of DTYPE_OTHER. */
void dtype_decode(enum dtype dtype, const void *from, size_t count, float *to);

/* The other way. Returns how many values were finite and are not any more: too large for it. */
size_t dtype_encode(enum dtype dtype, const float *from, size_t count, void *to);

#endif
