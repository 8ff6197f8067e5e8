/*
 * ledger_types: the names of results and what makes a version of them, for ledger.h and the parts below it.
 */
#ifndef DAEMON_STATE_LEDGER_TYPES_H
#define DAEMON_STATE_LEDGER_TYPES_H

#include <stdint.h>

#include "common/digest.h"

enum {
    LEDGER_PARTS_MAX = 64,    /* of one version */
    LEDGER_RESULTS_MAX = 256, /* of one version: each part's in a few epochs, and a few that were made twice */
};

/* A result. Two that differ have different digests, whatever else they share. */
struct ledger_key {
    uint32_t fragment, owner; /* owner: its id */
    uint64_t version, epoch;
    struct digest digest; /* the object's */
};

/* Which results made a version, and what came of it. */
struct ledger_part {
    uint64_t epoch;
    uint32_t owner;
    struct digest digest;
};
struct ledger_commit {
    uint32_t fragment, parts_count;
    uint64_t version;
    struct digest hash; /* of the version they made; zeros: it was not known yet */
    struct ledger_part parts[LEDGER_PARTS_MAX];
};

#endif
