/* SPDX-License-Identifier: Apache-2.0 */
/*
 * comm_shm: a communicator through memory that the ranks share (group_page.h): for ranks on one machine, also for
 * several on one GPU. Arrays go through the ranks' areas there in pieces, pinned where the system allows it; each rank
 * sums its share of a piece, in order of rank, and all take the sums: the same bits everywhere, in every run.
 *
 * Every collective waits for the other ranks and for the device: when it returns, the array is there. One that fails
 * ends the group: its text is in the page, and all other ranks' calls return it with ERR_CLOSED. Two communicators of
 * one rank are used one after the other; those of different ranks at the same time.
 */
#ifndef WORKER_COMM_COMM_SHM_H
#define WORKER_COMM_COMM_SHM_H

#include "worker/comm/comm.h"
#include "worker/comm/group_page.h"

/* All ranks of the page. `seat` (also its page), table and device are borrowed until it and all that were split from it
 * are freed, in any order. A rank splits at most GROUP_SLOTS - 1 times. host_broadcast() passes descriptors from the
 * page's rank 0 alone. patience_s 0: 60. A page has at most one such communicator at a time. */
ERR_MUST_CHECK enum err comm_shm_new(const struct group_seat *seat, const struct kern *kern, struct kern_dev *dev,
                                     double patience_s, struct comm **out);

/* For a kind that is built on this one, of a communicator from comm_shm_new() or split from such a one: its seat, its
 * place in the ranks' rows of the page (the same for all its ranks), and the rank in the page of its rank `rank`. */
const struct group_seat *comm_shm_seat(const struct comm *comm);
uint32_t comm_shm_slot(const struct comm *comm);
int comm_shm_member(const struct comm *comm, int rank);

#endif
