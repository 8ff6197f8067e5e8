/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attach_device: single moves of values between a tensor, wherever it is, and host memory; and the memory beside the
 * tensors. On plain host memory they are computed here, at once; on a device by its own functions, which may queue
 * them; on one that can only read and write, and where there are tensors of 16 bits, here as well, a stretch at a time.
 *
 * Owns the stretch. Called by attach_move and attach_keep, on the trainer's thread.
 */
#ifndef WORKER_LIBDILOCO_ATTACH_DEVICE_H
#define WORKER_LIBDILOCO_ATTACH_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "worker/libdiloco/attach_core.h"

/* DILOCO_ERROR: the options' device lacks a function, or is of another size. */
ERR_MUST_CHECK int attach_device_take(struct diloco *d, const struct diloco_device *device);
void attach_device_deinit(struct diloco *d);

/* Memory beside the tensors: values of 4 bytes, zeroed; NULL and a text if there is none. */
void *attach_device_alloc(struct diloco *d, uint64_t values, const char *what);
void attach_device_free(struct diloco *d, void *memory);

/* The host memory that moves will name from now on, until attach_device_deinit(). */
void attach_device_pin(struct diloco *d, void *memory, size_t bytes);

/* Does or queues one move of a tensor's values; move->size is set here. What a device without memory of its own cannot
 * do itself goes through host memory and is waited for. */
ERR_MUST_CHECK int attach_device_move(struct diloco *d, const struct diloco_move *move);
/* Reads or writes what attach_device_alloc() gave. */
ERR_MUST_CHECK int attach_device_move_beside(struct diloco *d, const struct diloco_move *move);
/* For all moves so far; 0: they are done. */
uint64_t attach_device_mark(struct diloco *d);
/* Whether they are: `*done`; waits for it with `wait`. */
ERR_MUST_CHECK int attach_device_reached(struct diloco *d, uint64_t mark, bool wait, bool *done);

#endif
