/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sync_beyond: what a draft rests on, and we cannot apply: results beyond the next version. Private to
 * net/sync/sync*.c.
 *
 * A draft may start from a version that we have not come to, and carry results of the one after it; and who is sealed
 * acknowledges nothing, so that the results on the way there need not count here. They are fetched all the same, one
 * version after the other, and kept in the ledger: bytes are what a draft needs to be safe (rule 2 of docs/PROTOCOL.md,
 * "Epochs"). None of them counts before a decided record starts from there; a draft certifies nothing.
 */
#ifndef NET_SYNC_SYNC_BEYOND_H
#define NET_SYNC_SYNC_BEYOND_H

#include <stdbool.h>
#include <stdint.h>

#include "net/sync/sync_core.h"
#include "net/sync/sync_types.h"
#include "net/transport/wire.h"

/* The fragment has come to another version, or an epoch has begun: what is kept is found again where it counts. */
void sync_beyond_reset(struct sync *sync, uint32_t f);

/* How far the bytes lead that are here: the fragment's version, or a later one of which, as of all before it, every
 * result is here. */
uint64_t sync_beyond_reach(const struct sync *sync, uint32_t f);
/* The parts of the version after that. Borrowed. */
const struct sync_parts *sync_beyond_parts(const struct sync *sync, uint32_t f);
/* A proposed record carries a result of that version, if it is not our next one; `digest`: this one of its owner's, or
 * NULL. */
void sync_beyond_want(struct sync *sync, uint32_t f, uint64_t version, uint64_t epoch, uint32_t owner,
                      const struct digest *digest);

/* A result of a later version than the next one is in our ledger. */
void sync_beyond_stored(struct sync *sync, const struct sync_event *event);
/* Whether an object that `from` offers, of a later version than the next one, is wanted. */
enum sync_want sync_beyond_wants(const struct sync *sync, const struct wire_key *key, uint32_t from);

/* Asks for the missing results. At most as many actions as a version has parts. */
void sync_beyond_catch_up(struct sync *sync, uint32_t f);
/* The member said that it has no such result. */
void sync_beyond_not_available(struct sync *sync, const struct sync_event *event);

#endif
