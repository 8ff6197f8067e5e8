/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attach_part: where the values of a part lie in the whole tensor. Pure functions.
 */
#ifndef WORKER_LIBDILOCO_ATTACH_PART_H
#define WORKER_LIBDILOCO_ATTACH_PART_H

#include <stdbool.h>
#include <stdint.h>

#include "worker/libdiloco/attach_core.h"

/* How many of a tensor's own values lie before position `at` of the whole tensor. */
uint64_t attach_part_before(const struct tensor *t, uint64_t at);

/* The rows that own values from `own` to before `end` make, as many as are alike: how they lie in the whole tensor
 * (from `*at` on), in move->rows, columns and stride, and how many values they are. */
uint64_t attach_part_block(const struct tensor *t, uint64_t own, uint64_t end, uint64_t *at, struct diloco_move *move);

/* values(t->count) = the own values of a tensor from one of its fragment's areas, closely packed; or `back`. */
void attach_part_pack(const struct tensor *t, float *area, float *values, bool back);

#endif
