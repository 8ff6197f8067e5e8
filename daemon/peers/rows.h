/*
 * rows: which fragments a heartbeat tells of, and what. Private to peers/.
 */
#ifndef DAEMON_PEERS_ROWS_H
#define DAEMON_PEERS_ROWS_H

#include <stdint.h>

#include "net/sync.h"
#include "net/wire.h"

/* Adds to `beat` what changed since `said` was last told, then some of the other fragments in turn from `*refresh` on;
 * `said` (one for each fragment; all ones: nothing was told) and `*refresh` follow. `sync` may be NULL without
 * fragments.
 */
void rows_fill(const struct sync *sync, uint32_t fragments, struct wire_fragment *said, uint32_t *refresh,
               struct wire_heartbeat *beat);

#endif
