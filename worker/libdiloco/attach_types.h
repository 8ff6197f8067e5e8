/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attach_types: values of a tensor's type as fp32 and back, and the carry: what rounding to 16 bits cut off.
 *
 * bf16 and IEEE 754 binary16, to the nearest, ties to even, denormals kept; NaN stays NaN. Pure functions on arrays.
 */
#ifndef WORKER_LIBDILOCO_ATTACH_TYPES_H
#define WORKER_LIBDILOCO_ATTACH_TYPES_H

#include <stddef.h>

#include "worker/libdiloco/diloco.h"

/* Bytes of a value; 0: there is no such type. */
size_t attach_type_bytes(enum diloco_type type);

/* out(count) = values(count) of `type`. */
void attach_widen(enum diloco_type type, const void *values, float *out, size_t count);
/* to(count) of `type` = values(count), rounded. */
void attach_narrow(enum diloco_type type, const float *values, void *to, size_t count);

/* Adds the carried remainders. */
void attach_carry_in(float *values, const float *carry, size_t count);
/* Rounds values(count) to ones that `type` can hold, and keeps the rest in carry(count): none for values that are not
 * finite. */
void attach_carry_out(enum diloco_type type, float *values, float *carry, size_t count);

#endif
