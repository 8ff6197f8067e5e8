/* SPDX-License-Identifier: Apache-2.0 */
/*
 * comm_open: which kind of communicator suits the ranks of an island: NCCL where each has a GPU of its own, else memory
 * that they share. Each rank's one thread calls; all ranks get the same kind.
 */
#ifndef WORKER_COMM_COMM_OPEN_H
#define WORKER_COMM_COMM_OPEN_H

#include "worker/comm/comm.h"
#include "worker/comm/group_page.h"

enum comm_kind {
    COMM_SHM,
    COMM_SHM_MIXED, /* on several GPUs, of which one has several ranks: NCCL refuses those */
    COMM_NCCL
};

/* By the names of the ranks' devices in the page. One rank: COMM_SHM. */
enum comm_kind comm_kind_of(const struct group_page *page);

/* All ranks of the page, as comm_shm_new() and comm_nccl_new() do, of which it has the conditions and errors. NCCL's
 * library is opened where it is used, and ERR_NOTFOUND if there is none. */
ERR_MUST_CHECK enum err comm_open(const struct group_seat *seat, const struct kern *kern, struct kern_dev *dev,
                                  double patience_s, struct comm **out);

#endif
