/* SPDX-License-Identifier: Apache-2.0 */
/*
 * comm_nccl: a communicator whose arrays go through NCCL, for ranks that have a GPU each. It stands on one through
 * shared memory (comm_shm.h), by which the ranks' hosts meet: host_broadcast() and barrier() are that one's, and so is
 * the group that a failure ends.
 *
 * Collectives are queued and the call returns, when NCCL has queued them, which at the first one of a kind may take the
 * other ranks' coming. Sums are NCCL's: the same bits on every rank; another run, number of ranks or machine may sum in
 * another order. Calls are NCCL's "non-blocking" ones, so that no wait is without an end: a failure, cancel(), or a
 * collective under way on the device for longer than `patience_s` aborts what this rank's device waits for
 * (nccl_watch.h). A wait for the device then ends as if all were done: check() says whether it is.
 *
 * free() waits up to 2 s for what is queued and for the other ranks to come to it; then it aborts.
 */
#ifndef WORKER_COMM_COMM_NCCL_H
#define WORKER_COMM_COMM_NCCL_H

#include "worker/comm/comm.h"
#include "worker/comm/nccl_api.h"

/* All ranks of `host`, which is from comm_shm_new() with the same table and device, and which this one owns from now
 * on: where it fails it is freed. `api` is copied. All ranks call it together. patience_s 0: 60. */
ERR_MUST_CHECK enum err comm_nccl_new(const struct nccl_api *api, struct comm *host, const struct kern *kern,
                                      struct kern_dev *dev, double patience_s, struct comm **out);

#endif
