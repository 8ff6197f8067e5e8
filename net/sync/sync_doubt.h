/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sync_doubt: finds the wrong side when two hashes of a version differ. Private to net/sync/sync*.c.
 *
 * Nobody believes another's hash before he has asked his own disk: checkpoint and ledger lead to one hash, and
 * whoever's memory has another one was wrong and mends itself from there. Only where the disk cannot tell, or most of
 * all members are against it, does the number of those who announce a hash count. Called by sync_peers and sync; it
 * raises SYNC_EV_LOST and never changes a fragment's state itself.
 */
#ifndef NET_SYNC_SYNC_DOUBT_H
#define NET_SYNC_SYNC_DOUBT_H

#include <stdbool.h>
#include <stdint.h>

#include "net/sync/sync_core.h"
#include "net/sync/sync_types.h"

/* Whether the member's state is not ours, as far as that can be known. */
bool sync_doubt_differs(const struct sync *sync, uint32_t f, uint32_t member);
/* Whether it has another of our version, and most voters have ours. */
bool sync_doubt_wrong(const struct sync *sync, uint32_t f, uint32_t member);
/* The member has said how the fragment stands. */
void sync_doubt_compare(struct sync *sync, uint32_t f, uint32_t member);
/* As sync_excused(). */
bool sync_doubt_excused(const struct sync *sync, uint32_t f, uint64_t version, uint32_t member);
/* What our disk says: SYNC_EV_REPLAYED or SYNC_EV_UNPROVEN. */
void sync_doubt_answered(struct sync *sync, const struct sync_event *event);

#endif
