/* SPDX-License-Identifier: Apache-2.0 */
/*
 * comm: what the ranks of an island do together: sums and copies of arrays, and small things between their hosts.
 *
 * A rank is one process with one device. Ranks make the same calls in the same order; each call is for all ranks of its
 * communicator. Arrays are on the rank's device; what is done to them is queued behind what the queue named holds, and
 * the host may be made to wait (comm_shm) or not (comm_nccl): who needs the end of it orders queues, or waits for a
 * mark and then asks check(). The same calls with the same inputs give the same bits on every rank, and, but for NCCL's
 * sums, in every run.
 *
 * ERR_CLOSED: a rank is gone or cancel() was called; the communicator is of no use any more, and the text says which
 * rank, device and operation. Nothing waits longer than `patience_s` for another rank. One thread calls, but for
 * cancel(), which any thread and a signal handler may call.
 *
 * Owns: what the ranks of an island's trainer do together.
 * Called by: worker, worker/model.
 * Never includes: daemon/, net/, outer_opt/, worker/libdiloco/, worker/model/.
 */
#ifndef WORKER_COMM_COMM_H
#define WORKER_COMM_COMM_H

#include <stddef.h>
#include <stdint.h>

#include "common/err.h"
#include "kernels/kern_table.h"

enum comm_type { COMM_F32, COMM_BF16, COMM_I32, COMM_F64 };

struct comm;

struct comm_calls {
    /* array(count) = sum of all ranks' array */
    enum err (*all_reduce)(struct comm *comm, enum kern_queue queue, void *array, int64_t count, enum comm_type type);
    /* part(count) = this rank's share, number `rank`, of the sum of all ranks' array(ranks * count); part may lie where
     * that share lies in array */
    enum err (*reduce_scatter)(struct comm *comm, enum kern_queue queue, void *part, const void *array, int64_t count,
                               enum comm_type type);
    /* array(ranks * count) = all ranks' part(count), in order of rank; part may lie where its share lies in array */
    enum err (*all_gather)(struct comm *comm, enum kern_queue queue, void *array, const void *part, int64_t count,
                           enum comm_type type);
    /* array(count) = that of rank `root` */
    enum err (*broadcast)(struct comm *comm, enum kern_queue queue, void *array, int64_t count, enum comm_type type,
                          int root);
    /* Whether all that was queued counts: asked when that is known to be done (kern->wait), before it goes anywhere.
     * ERR_CLOSED: arrays may hold anything. Never waits. */
    enum err (*check)(struct comm *comm);
    /* Of the hosts: returns when all have called it. */
    enum err (*barrier)(struct comm *comm);
    /* bytes(count) in host memory = those of rank `root`; with `fd` not NULL a descriptor (or -1) goes along: the
     * others get one of their own, which they close. */
    enum err (*host_broadcast)(struct comm *comm, void *bytes, size_t count, int *fd, int root);
    /* A communicator of the ranks that give the same color, ordered by key, then by rank here. */
    enum err (*split)(struct comm *comm, int color, int key, struct comm **out);
    /* Ends all waiting, here and for all other ranks. */
    void (*cancel)(struct comm *comm);
    void (*free)(struct comm *comm);
};

/* What every kind begins with. */
struct comm {
    const struct comm_calls *calls;
    int rank, count; /* this one's number, from 0; how many there are */
};

/* One rank alone: sums and copies of its own. */
ERR_MUST_CHECK enum err comm_self_new(const struct kern *kern, struct kern_dev *dev, struct comm **out);

#endif
