/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sync_patience: how long others are waited for that can be heard and do not do what they say: a contribution that does
 * not come, a result that is not made, a version or result that is claimed and not shown. Private to net/sync/sync*.c.
 *
 * Nobody can tell one that lies from one that is slow, so patience goes by how long rounds usually take here: the
 * shortest of the last ones, since one that was held up is no measure. It ends nothing that anybody has acknowledged:
 * a round closes without a member, whose work goes out with its next contribution; a claim of one alone is not
 * believed any more; and whose result does not come is complained of, which is for a majority to judge. Called by the
 * floors above; it orders nothing.
 */
#ifndef NET_SYNC_SYNC_PATIENCE_H
#define NET_SYNC_SYNC_PATIENCE_H

#include <stdbool.h>
#include <stdint.h>

#include "net/sync/sync_core.h"

/* The fragment has come to another version; and it was made here, of the one that came at `since_ms`, if that one was
 * made, too (0: it was not). */
void sync_patience_arrived(struct sync *sync, uint32_t f);
void sync_patience_made(struct sync *sync, uint32_t f, uint64_t since_ms);
/* Nothing is waited for: a new epoch, or the next one is being decided. */
void sync_patience_anew(struct sync *sync, uint32_t f);

/* It can be heard from now on: each wait for it begins again. */
void sync_patience_up(struct sync *sync, uint32_t member);

/* The round of our part has this many contributions, and waits for so many that take part. */
void sync_patience_keeps(struct sync *sync, uint32_t f, uint32_t have, uint32_t missing);
/* Whether the round of our part waits for a member that is missing. */
bool sync_patience_waits(const struct sync *sync, uint32_t f, uint32_t member);
/* It closed without the member that was missing. */
void sync_patience_missed(struct sync *sync, uint32_t f, uint32_t member);
/* Its contribution came in time. */
void sync_patience_came(struct sync *sync, uint32_t f, uint32_t member);

/* Looks after claims and results that are due; with time. */
void sync_patience_tick(struct sync *sync);

/* What there is to complain of. */
enum sync_fault sync_patience_fault(const struct sync *sync, uint32_t member);

#endif
