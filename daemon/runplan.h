/* SPDX-License-Identifier: Apache-2.0 */
/*
 * runplan: the parts of an island that the run's plan makes: replica, slots, the protocol's core and the rounds,
 * recovered from its disk by jobs.
 *
 * Made once, by the engine, and freed after all that looks into it. What stands above it is told by the engine. Only
 * the loop's thread.
 */
#ifndef DAEMON_RUNPLAN_H
#define DAEMON_RUNPLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"
#include "common/runspec.h"
#include "daemon/dconf.h"
#include "daemon/event.h"
#include "daemon/jobs.h"
#include "daemon/membership/config_store.h"
#include "daemon/rounds/rounds.h"
#include "daemon/state/ledger.h"
#include "daemon/state/model_plan.h"
#include "daemon/state/parts.h"
#include "daemon/state/replica.h"
#include "daemon/state/slots.h"
#include "net/config/certificate.h"
#include "net/sync/sync.h"
#include "net/transport/ident.h"

/* All borrowed as long as the other lives. */
struct runplan_conf {
    const struct dconf *conf;
    const struct runspec *spec;
    const struct ident *ident;
    struct config_store *configs;
    struct ledger *ledger;
    struct jobs *jobs;
    struct events *events;
    bool votes; /* our disk is not in doubt */
};

/* All NULL before; of a witness, which never sends a state, replica, slots, rounds and certificates stay so. */
struct runplan {
    struct model_plan *plan;
    uint32_t *shards_counts; /* per fragment */
    uint64_t *filled;        /* likewise: mask of the shards with values */
    struct parts parts;
    struct replica *replica;
    struct slots *slots;
    struct sync *sync;
    struct rounds *rounds;
    struct certificates *certificates; /* what members certify in heartbeats */
    uint64_t memory_bytes;             /* at most */
    struct runplan_saving *saving;     /* of a plan that is new; NULL: it was on disk */
};

/* The plan that an earlier start has left on disk; the caller's. `*out` is NULL where there is none that leads on: the
 * first trainer, or another island, brings one. `*damaged`: there was one. ERR_CONF: the saved plan is another run's.
 */
ERR_MUST_CHECK enum err runplan_find(const struct dconf *conf, const struct runspec *spec, const struct view *view,
                                     struct model_plan **out, bool *damaged);
/* Allocates, and has jobs read what the disk has: EVENT_RECOVERED when that is over, and runplan_restore() follows.
 * Until then no epoch may begin, and nobody hears of the plan: of what this island holds nothing is known yet.
 * `saved`: the plan is on disk already; if not, a job keeps it first, and EVENT_FATAL says if that fails. On failure
 * the plan is the run's if run->plan is set, and the daemon cannot go on; if not (ERR_NOMEM: it is too large) it is
 * still the caller's. */
ERR_MUST_CHECK enum err runplan_make(const struct runplan_conf *conf, struct model_plan *plan, bool saved,
                                     struct runplan *run);
/* Tells the protocol's core the state that was read, fragment by fragment: SYNC_EV_STORED may follow. Returns the first
 * error. */
ERR_MUST_CHECK enum err runplan_restore(struct runplan *run);
/* An empty one is fine. */
void runplan_free(struct runplan *run);

/* 0 before it is there. */
uint32_t runplan_fragments(const struct runplan *run);

#endif
