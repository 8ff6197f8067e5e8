/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copy: anchors to the memory shared with the trainer, and a trainer's initial tensors to the anchors. Private to
 * rounds/; the loop's thread calls.
 */
#ifndef DAEMON_ROUNDS_COPY_H
#define DAEMON_ROUNDS_COPY_H

#include "daemon/rounds/desk.h"

struct copy;

/* `desk` is borrowed for its life. ERR_NOMEM. */
ERR_MUST_CHECK enum err copy_new(struct desk *desk, struct copy **out);
void copy_free(struct copy *copy);
/* As rounds_give() and rounds_start(): the areas hold all values of the fragment, and are borrowed until the answer.
 * Without memory for a job, or for the hash, the daemon ends. */
void copy_give(struct copy *copy, uint32_t f, float *area);
void copy_start(struct copy *copy, uint32_t f, float *base, bool initial);

#endif
