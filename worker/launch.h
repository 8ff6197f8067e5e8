/* SPDX-License-Identifier: Apache-2.0 */
/*
 * launch: starts the ranks of an island as processes of this machine, and watches them to their end.
 *
 * launch_run() forks, so it is called before there are threads and before anything has opened a device, and by the
 * thread that stays: ranks are killed when it ends, however it does. To whoever started it, it stands for all ranks:
 * SIGTERM and SIGINT are blocked here and in the ranks, and sent on to them. It owns the memory they share
 * (comm/group_page.h) and the sockets between rank 0 and each other rank.
 *
 * The first failure ends all: a rank that ends with one, is killed, or makes no step in a collective. All others are
 * told, given a moment, and killed. The one error that comes of it names the rank, its device, and what it was in.
 */
#ifndef WORKER_LAUNCH_H
#define WORKER_LAUNCH_H

#include <stddef.h>

#include "common/err.h"
#include "worker/comm/group_page.h"

struct launch_conf {
    int ranks;
    const char *device; /* their kind, for people: "cpu", "cuda" */
    const int *number;  /* number[ranks]: of the device of each; NULL: it has none, and is 0 */
    size_t stage_bytes; /* of each rank's area for arrays on their way; 0: GROUP_STAGE_USUAL */
    double patience_s;  /* how long a rank may make no step in a collective; 0: 60 */
    double grace_s;     /* from the first failure until those that still run are killed; 0: 8 */
};

/* What a rank gets; it stays the launcher's. */
struct launch_rank {
    int rank, count;
    int device;  /* its number */
    int devices; /* how many different ones all ranks have */
    double patience_s;
    const struct group_seat *seat; /* for comm_shm_new() */
};

/* Runs in the rank's process, with SIGTERM and SIGINT blocked; also ERR_OK if they asked it to end. What it says of a
 * failure becomes launch_run()'s error, if it is the first one. */
typedef enum err launch_main(void *user, const struct launch_rank *rank);

/* Returns when no rank is left. ERR_OK: all returned ERR_OK; else the first failure, with its code where a rank
 * returned it, ERR_STATE where one was killed or stuck. */
ERR_MUST_CHECK enum err launch_run(const struct launch_conf *conf, launch_main *rank_main, void *user);

#endif
