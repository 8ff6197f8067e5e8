/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rows: which fragments a heartbeat tells of, and what. Pure.
 */
#ifndef NET_SYNC_ROWS_H
#define NET_SYNC_ROWS_H

#include <stdint.h>

#include "net/sync/sync.h"
#include "net/config/vouch.h"
#include "net/transport/wire.h"

/* The last report of a fragment; all ones: none. */
struct rows_said {
    struct wire_fragment row;
    uint64_t epoch, held; /* held: mask of the parts whose results were named */
};

/* Adds to `beat`, whose epoch is set, what changed since `said` was last told, then some of the other fragments in turn
 * from `*refresh` on; `said` (one for each fragment) and `*refresh` follow. `sync` may be NULL without fragments. What
 * we vouch for is signed, once. */
void rows_fill(const struct sync *sync, struct vouches *vouches, uint32_t fragments, struct rows_said *said,
               uint32_t *refresh, struct wire_heartbeat *beat);

#endif
