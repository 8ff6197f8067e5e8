/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rounds_types: what rounds/'s parts are born with and what they tell, for rounds.h and the parts below it.
 */
#ifndef DAEMON_ROUNDS_ROUNDS_TYPES_H
#define DAEMON_ROUNDS_ROUNDS_TYPES_H

#include <stdbool.h>

#include "common/runspec.h"
#include "daemon/event.h"
#include "daemon/jobs.h"
#include "daemon/state/ledger.h"
#include "daemon/state/model_plan.h"
#include "daemon/state/parts.h"
#include "daemon/state/replica.h"
#include "daemon/state/slots.h"
#include "daemon/state/store.h"
#include "net/sync/sync.h"
#include "net/config/view.h"

/* All borrowed for the life of the rounds. */
struct rounds_conf {
    const struct runspec *spec;
    const struct view *view;
    const struct ident *ident; /* ours: results are signed with it */
    const uint8_t *nonce;      /* of the run, WIRE_NONCE_BYTES */
    const struct model_plan *plan;
    const struct parts *parts;
    const char *folder; /* for checkpoints and exported anchors */
    /* Keeps the proof that the member of this id signed two results of one part; any thread. */
    enum err (*save_proof)(const char *folder, uint32_t id, const uint8_t *bytes, size_t bytes_count);
    bool compress_auto;
    uint64_t checkpoint_ms;   /* age at which a checkpoint is written anew; 0: none is written by itself */
    uint64_t ledger_keep;     /* bytes, as the ledger's conf has it */
    uint64_t ledger_versions; /* whose results are kept for others; 0: as many as are worth it */
    struct replica *replica;
    struct ledger *ledger;
    struct slots *slots;
    struct jobs *jobs; /* whose scratch is made fit for the plan */
    struct events *events;
    const struct sync *sync;
};

/* Of the exported anchors. */
enum rounds_export_state { ROUNDS_EXPORT_NONE, ROUNDS_EXPORT_WRITING, ROUNDS_EXPORT_DONE, ROUNDS_EXPORT_FAILED };

/* How far a start has come with reading what the disk has. */
struct rounds_recovery {
    uint32_t fragments, fragments_done;
    uint64_t versions; /* replayed from the ledger */
};

#endif
