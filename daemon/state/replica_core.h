/* SPDX-License-Identifier: Apache-2.0 */
/*
 * replica_core: what a replica remembers. Private to daemon/state/replica*.c.
 */
#ifndef DAEMON_STATE_REPLICA_CORE_H
#define DAEMON_STATE_REPLICA_CORE_H

#include <stdatomic.h>

#include "daemon/state/counted.h"
#include "daemon/state/mean.h"
#include "daemon/state/packed.h"
#include "daemon/state/part_cut.h"
#include "daemon/state/replica_types.h"
#include "outer_opt/recipe.h"

struct replica_fragment {
    struct part_cut *cuts; /* of our contributions, one a part */
    uint32_t cuts_count;
    struct part_cut own; /* of our results */
    float *anchor, *momentum, *residual, *pending;
    struct packed owner_residual; /* of at least our own shards */
    struct packed owner_pending;  /* of exactly these */
    struct counted counted;
    bool owner_made;           /* what is pending is of a mean that this cut made, not committed yet */
    _Atomic bool settled;      /* the run's warm-up is over */
    _Atomic uint64_t cut_down; /* residuals; jobs of several parts count */
    struct mean mean;          /* of contributions to our own shards */
};

struct replica {
    struct replica_conf conf;
    struct recipe *recipe;
    struct replica_fragment *fragments;
};

/* What encoding these shards takes; NULL: they are no part. */
static inline struct part_cut *replica_find_cut(const struct replica_fragment *fragment, uint64_t shards)
{
    for (uint32_t p = 0; p < fragment->cuts_count; p++)
        if (fragment->cuts[p].shards == shards)
            return &fragment->cuts[p];
    return NULL;
}

/* What holds a fragment's residuals down. */
static inline struct restraint replica_restraint(const struct replica *replica, const struct replica_fragment *fragment)
{
    return (struct restraint){.decay = (double)replica->conf.feedback_decay,
                              .limit = (double)replica->conf.feedback_limit,
                              .settled = atomic_load(&fragment->settled)};
}

#endif
