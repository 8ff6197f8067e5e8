/* SPDX-License-Identifier: Apache-2.0 */
/*
 * comm_sum: sums of arrays in host memory, in a fixed order. Pure; any thread.
 */
#ifndef WORKER_COMM_COMM_SUM_H
#define WORKER_COMM_COMM_SUM_H

#include "worker/comm/comm.h"

/* Bytes of one value; 0 of an unknown type. */
size_t comm_type_bytes(enum comm_type type);

/* out(count) = ((part[0] + part[1]) + part[2]) ...; F32 in float, F64 in double; BF16 in float, rounded once at the
 * end, to nearest, ties to even; I32 wraps. `out` may be one of the parts. parts_count is 1 or more. */
void comm_sum(enum comm_type type, void *out, const void *const *part, int parts_count, int64_t count);

#endif
