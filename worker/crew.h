/* SPDX-License-Identifier: Apache-2.0 */
/*
 * crew: the ranks of a trainer, as the training loop sees them: the grid they are for the model, what rank 0 says for
 * all, and libdiloco's view of them. Alone, it is one rank and costs nothing.
 *
 * Owns the communicators. Each rank's one thread calls; all ranks make the same calls in the same order.
 */
#ifndef WORKER_CREW_H
#define WORKER_CREW_H

#include <stddef.h>
#include <stdint.h>

#include "common/err.h"
#include "kernels/kern.h"
#include "worker/comm/comm.h"
#include "worker/launch.h"
#include "worker/libdiloco/diloco.h"
#include "worker/model/model.h"

struct crew {
    struct comm *comm; /* NULL: alone */
    int rank, count;
    struct model_grid grid;
    struct diloco_group group; /* for options.group where there are others */
};

/* The grid of a rank, for rows of `tp` (0 is 1), without communicators: for who plans. `rank` NULL: alone. */
struct model_grid crew_grid(const struct launch_rank *rank, int tp);

/* crew_deinit() before the device is closed, also after a failure. */
ERR_MUST_CHECK enum err crew_init(struct crew *crew, const struct launch_rank *rank, int tp, const struct kern *kern,
                                  struct kern_dev *dev);
void crew_deinit(struct crew *crew);

/* Returns when all ranks have called it. */
ERR_MUST_CHECK enum err crew_meet(const struct crew *crew);

/* Rank 0's value, on all. */
ERR_MUST_CHECK enum err crew_agree(const struct crew *crew, void *bytes, size_t count);

#endif
