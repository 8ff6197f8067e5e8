/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transfer_plan: what is there once the run's plan is known, for the files of daemon/transfer and for daemon/peers.
 */
#ifndef DAEMON_TRANSFER_TRANSFER_PLAN_H
#define DAEMON_TRANSFER_TRANSFER_PLAN_H

#include <stdint.h>

#include "daemon/rounds/rounds.h"
#include "daemon/state/ledger.h"
#include "daemon/state/model_plan.h"
#include "daemon/state/parts.h"
#include "daemon/state/replica.h"
#include "daemon/state/slots.h"
#include "net/sync/sync.h"

/* All borrowed. Of a witness replica, slots and rounds are NULL. */
struct transfer_plan {
    const struct model_plan *plan;
    struct replica *replica;
    const struct parts *parts;
    struct ledger *ledger;
    struct slots *slots;
    struct sync *sync;             /* read, and sealed, by nobody but membership */
    const uint32_t *shards_counts; /* per fragment */
    const struct rounds *rounds;
};

#endif
