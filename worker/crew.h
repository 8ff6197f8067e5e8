/*
 * crew: the ranks of a trainer, as the training loop sees them: which share of a batch is whose, what rank 0 says for
 * all, and libdiloco's view of them. Alone, it is one rank and costs nothing.
 *
 * Owns the communicator. Each rank's one thread calls; all ranks make the same calls in the same order.
 */
#ifndef WORKER_CREW_H
#define WORKER_CREW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"
#include "kernels/kern.h"
#include "worker/comm/comm.h"
#include "worker/launch.h"
#include "worker/libdiloco/diloco.h"

struct crew {
    struct comm *comm; /* NULL: alone */
    int rank, count;
    struct diloco_group group; /* for options.group where there are others */
};

/* `rank` NULL: alone. crew_deinit() before the device is closed. */
ERR_MUST_CHECK enum err crew_init(struct crew *crew, const struct launch_rank *rank, const struct kern *kern,
                                  struct kern_dev *dev);
void crew_deinit(struct crew *crew);

/* Whether this rank speaks for all: files, log, the daemon. */
bool crew_leads(const struct crew *crew);

/* Rank 0's value, on all. */
ERR_MUST_CHECK enum err crew_agree(const struct crew *crew, void *bytes, size_t count);

#endif
