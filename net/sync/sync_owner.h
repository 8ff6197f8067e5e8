/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sync_owner: our parts' rounds: the missing members, how long to wait for them, when to reduce, store and announce.
 * Private to net/sync/sync*.c.
 *
 * Runs the pure tables of owner and grace with what the core knows of the members, and puts what they order. Called by
 * the floors above it; it never raises an event of a fragment and never looks at a hash. For a fragment of which we own
 * no part it orders nothing.
 */
#ifndef NET_SYNC_SYNC_OWNER_H
#define NET_SYNC_SYNC_OWNER_H

#include <stdbool.h>
#include <stdint.h>

#include "common/bitset.h"
#include "net/sync/sync_core.h"
#include "net/sync/sync_types.h"
#include "net/transport/wire.h"

/* Begins with the round after `version`, unless the round under way is as late, whose contributions may be here. */
void sync_owner_restore(struct sync *sync, uint32_t f, uint64_t version);
/* A new epoch has begun: what came was for other shards, and what a job makes is of no use. */
void sync_owner_epoch(struct sync *sync, uint32_t f);

/* Closes the round if nobody is missing, or the quorum is there and the others' grace is over. To be called when
 * anything has changed that this depends on; one fragment, or all. */
void sync_owner_check(struct sync *sync, uint32_t f);
void sync_owner_check_all(struct sync *sync);
/* The same, with time: how long it has been waiting is noted. */
void sync_owner_tick(struct sync *sync, uint32_t f);

/* Our own contribution to `version` is encoded. */
void sync_owner_contributed(struct sync *sync, uint32_t f, uint64_t version);
/* A member's came: whole and checked, or unusable. One to another round is passed over. */
void sync_owner_contribution_in(struct sync *sync, const struct sync_event *event);
void sync_owner_contribution_refused(struct sync *sync, const struct sync_event *event);

/* What became of the job: the reduction is encoded, or failed at a member's contribution. */
void sync_owner_reduced(struct sync *sync, uint32_t f);
/* See sync_quorum(). */
uint32_t sync_owner_quorum(const struct sync *sync);
void sync_owner_overtaken(struct sync *sync, uint32_t f);
void sync_owner_dropped(struct sync *sync, uint32_t f, uint32_t member);
/* Our part's result of `version` is in the ledger: the one that was being stored, which we made (`member` is us), is
 * published; one that a member still had from before a crash of ours stands. */
void sync_owner_stored(struct sync *sync, uint32_t f, uint64_t version, uint32_t member);
/* The member says something new of the fragment: it may hold the result that we are about to make. */
void sync_owner_heard(struct sync *sync, uint32_t f, uint32_t member);
/* Our state was wrong and is mended: the round begins anew. */
void sync_owner_restarted(struct sync *sync, uint32_t f);
/* The fragment stands at `version`: so does our shard. */
void sync_owner_advanced(struct sync *sync, uint32_t f, uint64_t version);

/* Whether a contribution that `from` offers is wanted. */
enum sync_want sync_owner_wants(const struct sync *sync, const struct wire_key *key, uint32_t from);
/* Members whose contribution the round waits for; none before anyone has contributed. */
struct bitset sync_owner_waiting_for(const struct sync *sync, uint32_t f);
/* As sync_missed(). */
uint64_t sync_owner_missed(const struct sync *sync, uint32_t member, bool *too_late);

#endif
