/* SPDX-License-Identifier: Apache-2.0 */
/*
 * moves: a kern device as libdiloco knows devices (struct diloco_device): what the exchange between islands does to
 * live parameters, queued on the device beside training.
 *
 * What goes out is copied aside on the queue MAIN and leaves on COPY while training goes on; what comes in comes on
 * COPY, and MAIN waits for it only where it is used. Parameters that products have a copy of (act) are kept alike.
 * Owns that memory aside, of 8 bytes a parameter at most, less for large models. One thread calls.
 */
#ifndef WORKER_MOVES_H
#define WORKER_MOVES_H

#include "common/err.h"
#include "kernels/kern.h"
#include "worker/libdiloco/diloco.h"

struct moves;

/* Bytes aside, on the device, for so many parameters. */
size_t moves_memory(int64_t count);

/* Where the products' copy of a live value lies. */
typedef kern_act *moves_act(const void *user, const float *live);

/* For w(count) on the device, whose copies are where `act` says; all stay the caller's. */
ERR_MUST_CHECK enum err moves_new(const struct kern *kern, struct kern_dev *dev, float *w, int64_t count,
                                  moves_act *act, const void *user, struct moves **out);
/* After libdiloco has detached; NULL is fine. */
void moves_free(struct moves *moves);

/* For options.device; valid until moves_free(). */
const struct diloco_device *moves_device(const struct moves *moves);

#endif
