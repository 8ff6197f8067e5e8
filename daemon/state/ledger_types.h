/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ledger_types: the names of results and what makes a version of them, for ledger.h and the parts below it.
 */
#ifndef DAEMON_STATE_LEDGER_TYPES_H
#define DAEMON_STATE_LEDGER_TYPES_H

#include <stdint.h>

#include "common/digest.h"
#include "net/transport/result_id.h"

enum {
    LEDGER_PARTS_MAX = 64,    /* of one version */
    LEDGER_RESULTS_MAX = 256, /* of one version: each part's in a few epochs, and a few that were made twice */
};

struct ledger_conf {
    const char *folder;     /* created if need be */
    struct digest run_id;   /* results of another run are refused */
    const uint8_t *nonce;   /* 16 bytes: and those of another run of the same spec; borrowed until it is open */
    uint64_t segment_bytes; /* a new file is begun beyond this */
    uint64_t keep_bytes;    /* results kept at most although a checkpoint covers them */
};

/* Which results made a version, and what came of it. */
struct ledger_commit {
    uint32_t fragment, parts_count;
    uint64_t version;
    struct digest hash;                       /* of the version they made; zeros: it was not known yet */
    struct result_id parts[LEDGER_PARTS_MAX]; /* of this fragment and version */
};

#endif
