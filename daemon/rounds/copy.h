/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copy: anchors to the memory shared with the trainer, and a trainer's initial tensors to the anchors; copies of states
 * for other islands. The loop's thread calls.
 */
#ifndef DAEMON_ROUNDS_COPY_H
#define DAEMON_ROUNDS_COPY_H

#include "daemon/rounds/keep.h"
#include "daemon/rounds/round_context.h"
#include "daemon/state/state_object.h"

struct copy;

/* Both are borrowed for its life. ERR_NOMEM. */
ERR_MUST_CHECK enum err copy_new(struct round_context *context, struct keep *keep, struct copy **out);
void copy_free(struct copy *copy);
/* The anchor to an area of the trainer's memory: EVENT_PUBLISHED. To the base area, or with `initial` the tensors there
 * become the anchor, version 0, and go to the disk: EVENT_STARTED when that is done. The areas have room for all the
 * fragment's values, padding included, and are borrowed until the answer. Without memory for a job, or for the hash,
 * the daemon ends. */
void copy_publish(struct copy *copy, uint32_t f, float *area);
void copy_start(struct copy *copy, uint32_t f, float *base, bool initial);
/* EVENT_ON_DISK: initial tensors are durable, if it is about such. */
void copy_on_disk(struct copy *copy, uint32_t f);
/* Copies the fragment's state, which is `served->state` and at rest, as an object of `served->bytes`, with its leaves:
 * EVENT_STATE_SERVED; `served` is borrowed until then. The anchor is read only while it is copied; the copy's leaves
 * are digested after that, and nobody waits for them. */
void copy_serve(struct copy *copy, struct served_state *served);

#endif
