/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sync_fragment: a fragment's state machine on its island, as drawn in sync_types.h: from the trainer's snapshot to the
 * anchor it takes in, and the repair from a peer's state. Private to net/sync/sync*.c.
 *
 * A table of handlers, [state][event]; an event that has no place in a state is reported as a bug of ours. Called by
 * sync_peers and sync; it tells sync_owner what our own shard has to know, and never decides which peer is right.
 */
#ifndef NET_SYNC_SYNC_FRAGMENT_H
#define NET_SYNC_SYNC_FRAGMENT_H

#include <stdbool.h>
#include <stdint.h>

#include "common/bitset.h"
#include "common/digest.h"
#include "net/sync/sync_core.h"
#include "net/sync/sync_types.h"
#include "net/transport/wire.h"

/* As sync_restore(). */
void sync_fragment_restore(struct sync *sync, uint32_t f, uint64_t version, const struct digest *hash);
/* A new epoch has begun: results that do not count in it are dropped, a contribution in flight goes to new owners. */
void sync_fragment_epoch(struct sync *sync, uint32_t f);

/* Runs the fragment's table. `type` is below SYNC_FRAGMENT_EVENTS; `event` brings what it says. */
void sync_fragment_raise(struct sync *sync, uint32_t f, enum sync_event_type type, const struct sync_event *event);

/* A result is in the ledger: our part's round is over if it is ours; with the last one the fragment may be complete. */
void sync_fragment_result_stored(struct sync *sync, const struct sync_event *event);
/* Whether the fragment is complete now: something was stored, or a voter said what it holds. */
void sync_fragment_look(struct sync *sync, uint32_t f);

/* Sends our contribution in flight to the owners that are up and whose result is not here; to `only` if that is not
 * SYNC_NOBODY. */
void sync_fragment_send_contributions(struct sync *sync, uint32_t f, uint32_t only);

/* An owner refuses our contribution: it is offered again after a while, which grows, since one of us will mend itself.
 */
void sync_fragment_turned_down(struct sync *sync, const struct sync_event *event);
/* The member's state has become what ours is: what it had refused of ours, or taken and dropped, goes to it again. */
void sync_fragment_owner_mended(struct sync *sync, uint32_t f, uint32_t member);
/* To be called every tick: offers again the contributions that are due. */
void sync_fragment_offer_again(struct sync *sync, uint32_t f);

/* Asks a member for its state of the fragment, and remembers what and whom. */
void sync_fragment_ask_for_state(struct sync *sync, uint32_t f, uint32_t member);
/* REPAIR: puts in place what our own disk leads to; nobody's state is waited for. */
void sync_fragment_repair(struct sync *sync, uint32_t f);
/* Our disk does not lead to our version: the state is asked of others. */
void sync_fragment_cannot_repair(struct sync *sync, uint32_t f);
/* As sync_fetching_state() and sync_state_moves(). */
bool sync_fragment_fetching_state(const struct sync *sync, uint32_t f, struct wire_key *key);
void sync_fragment_state_moves(struct sync *sync, uint32_t f, bool comes);

/* Whether a state that `from` offers, or a result, is wanted. */
enum sync_want sync_fragment_wants_state(const struct sync *sync, const struct wire_key *key, uint32_t from);
enum sync_want sync_fragment_wants_result(const struct sync *sync, const struct wire_key *key, uint32_t from);
/* Owners whose result a fragment that has contributed waits for. */
struct bitset sync_fragment_waiting_for(const struct sync *sync, uint32_t f);

#endif
