/* SPDX-License-Identifier: Apache-2.0 */
/*
 * peers_types: what peers/'s parts are born with, for peers.h and the part below it.
 */
#ifndef DAEMON_PEERS_PEERS_TYPES_H
#define DAEMON_PEERS_PEERS_TYPES_H

#include <stdint.h>

#include "common/runspec.h"
#include "daemon/dconf.h"
#include "daemon/event.h"
#include "daemon/jobs.h"
#include "daemon/membership/vote.h"
#include "daemon/trainer/trainer.h"
#include "daemon/transfer/transfer_plan.h"
#include "net/config/chain.h"
#include "net/transport/ident.h"
#include "net/sync/sync.h"
#include "net/config/view.h"

/* All borrowed. */
struct peers_conf {
    const struct dconf *conf;
    const struct runspec *spec;
    const struct view *view; /* follows the newest record of the chain */
    const struct chain *chain;
    const struct ident *ident;
    struct vote *vote;
    struct events *events;
    struct jobs *jobs;
    const struct trainer *trainer;
    uint64_t session;  /* random, of this daemon process */
    uint64_t start_ms; /* of the daemon */
};

#endif
