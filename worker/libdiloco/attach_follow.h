/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attach_follow: what a rank does in a call of which rank 0 decides: carries out its orders, until the call is over.
 *
 * Called by the public calls, on the trainer's thread. It waits for rank 0, which may wait for the daemon.
 */
#ifndef WORKER_LIBDILOCO_ATTACH_FOLLOW_H
#define WORKER_LIBDILOCO_ATTACH_FOLLOW_H

#include "worker/libdiloco/attach_core.h"

/* Rank 0's result of the same call, or DILOCO_ERROR if this rank could not do its part. `start` as rank 0's, unless it
 * is NULL. `map` is told of the daemon's shared memory: it takes the descriptor over. */
ERR_MUST_CHECK int attach_follow(struct diloco *d, struct diloco_start *start,
                                 int (*map)(struct diloco *d, int fd, uint64_t session));

#endif
