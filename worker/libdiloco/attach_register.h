/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attach_register: the tensors of a trainer: which can be registered, in what order they stand, which have changed.
 *
 * Owns d->tensors and d->frozen. Called by the public calls, on the trainer's thread.
 */
#ifndef WORKER_LIBDILOCO_ATTACH_REGISTER_H
#define WORKER_LIBDILOCO_ATTACH_REGISTER_H

#include <stdbool.h>

#include "worker/libdiloco/attach_core.h"

/* DILOCO_ERROR: it cannot be, and nothing is registered. */
ERR_MUST_CHECK int attach_register(struct diloco *d, const struct diloco_tensor *tensor);

ERR_MUST_CHECK int attach_register_frozen(struct diloco *d, const struct diloco_frozen *frozen);

/* By layer and name, once all are there: the same order wherever they are registered, in every rank and on every
 * island.
 */
ERR_MUST_CHECK int attach_register_sort(struct diloco *d);

/* diloco_place(). */
ERR_MUST_CHECK int attach_register_place(struct diloco *d, int tensor, void *data);

/* A public call begins that may change tensors; whether it changed this one, or any. */
void attach_register_unchanged(struct diloco *d);
bool attach_register_changed(const struct diloco *d, int tensor);

#endif
