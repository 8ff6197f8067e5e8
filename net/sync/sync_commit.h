/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sync_commit: the results of a fragment's next version: which are here, which at other members, and whether they
 * count. Private to net/sync/sync*.c.
 *
 * A result counts when it is committed: its bytes are durable at so many voters that every later epoch has to know of
 * it (net/config/config.h), or the epoch's configuration itself names it. Before that nothing may be applied, for a
 * result that only a few hold can be made anew in the next epoch. Called by the floors above; it raises nothing, and
 * orders nothing but results beyond the next version.
 */
#ifndef NET_SYNC_SYNC_COMMIT_H
#define NET_SYNC_SYNC_COMMIT_H

#include <stdbool.h>
#include <stdint.h>

#include "net/sync/sync_core.h"
#include "net/sync/sync_types.h"
#include "net/transport/wire.h"

/* ---- the parts of any version ---- */

/* The part that this owner makes, or made, in that epoch; VERSION_PARTS_MAX: there is none. */
uint32_t sync_commit_find(const struct sync_parts *parts, uint64_t epoch, uint32_t owner);
/* Mask of those that have no result here, or not the one that a proposed configuration wants. */
uint64_t sync_commit_missing(const struct sync_parts *parts);
/* A proposed configuration wants this result of part `p`: where another one of its owner's is here, it is missing. */
void sync_commit_prefer(struct sync_parts *parts, uint32_t p, const struct digest *digest);
/* A result of part `p` is in our ledger: true if it is news, and may count. */
bool sync_commit_keep(struct sync_parts *parts, uint32_t p, const struct digest *digest);

/* ---- those of the next one ---- */

/* The fragment has come to another version: its parts are those of the next one, of which nothing is known. */
void sync_commit_arrive(struct sync *sync, uint32_t f);
/* A new epoch has begun: results here stay that count in it. */
void sync_commit_epoch(struct sync *sync, uint32_t f);

/* The part of the next version that this owner makes, or made, in that epoch; VERSION_PARTS_MAX: there is none. */
uint32_t sync_commit_part(const struct sync *sync, uint32_t f, uint64_t epoch, uint32_t owner);
/* The part that we are to make in this epoch; VERSION_PARTS_MAX: none. */
uint32_t sync_commit_ours(const struct sync *sync, uint32_t f);

/* A result of the next version is in our ledger: true if it is news. */
bool sync_commit_stored(struct sync *sync, uint32_t f, const struct sync_event *event);
/* A voter says what it holds of the version after its own, as far as it says so in this epoch. */
void sync_commit_heard(struct sync *sync, uint32_t f, uint32_t member, const struct wire_held *held, uint32_t count);
/* What it said is void. */
void sync_commit_forget(struct sync *sync, uint32_t member);

/* Whether the member has the result of a part of our next version: it says so, or has applied that version. */
bool sync_commit_has(const struct sync *sync, uint32_t f, uint32_t member, uint32_t p);
/* The same of any of these parts. */
bool sync_commit_has_any(const struct sync *sync, uint32_t f, uint32_t member, uint64_t parts);
/* Whether a part has no result here, or not the one that a proposed configuration wants. */
bool sync_commit_lacks(const struct sync *sync, uint32_t f, uint32_t p);
/* Whether a full voter says that it has applied the next version: all its results are committed then, so a sealed
 * island, too, may store and tell them. */
bool sync_commit_applied(const struct sync *sync, uint32_t f);
/* Whether a result of our own part of `version` that is not here is elsewhere: we lost it. What one member alone says
 * of it counts as long as it may still show it; the word of as many as commit counts always. */
bool sync_commit_lost(const struct sync *sync, uint32_t f, uint64_t version);
bool sync_commit_surely_lost(const struct sync *sync, uint32_t f, uint64_t version);
/* Whether that member says so. */
bool sync_commit_claims(const struct sync *sync, uint32_t f, uint64_t version, uint32_t member);

/* The version up to which all results count: the start in the epoch's configuration, or the version taken over from all
 * voters when most disks were in doubt (rule 9). */
uint64_t sync_commit_start(const struct sync *sync, uint32_t f);
/* Whether the result of part `p`, which is here, counts. */
bool sync_commit_counts(const struct sync *sync, uint32_t f, uint32_t p);
/* Whether every part's result is here, and counts; remembers which do. */
bool sync_commit_complete(struct sync *sync, uint32_t f);
/* Whether a member that is up says to hold another result of part `p` than the one that is here, made in the same
 * epoch: its owner signed two, or it is not true. Not its owner, who shows each the one that it has. */
bool sync_commit_rivals(const struct sync *sync, uint32_t f, uint32_t p, uint32_t member);
/* The first of these from slot `first` on, round; SYNC_NOBODY: nobody says so. */
uint32_t sync_commit_rival(const struct sync *sync, uint32_t f, uint32_t p, uint32_t first);
/* Voters whose word a part waits for that is here and does not count yet. */
struct bitset sync_commit_waiting_for(const struct sync *sync, uint32_t f);

/* ---- what a draft rests on, and we cannot apply: results beyond the next version ----
 *
 * A draft may start from a version that we have not come to, and carry results of the one after it; and a sealed island
 * acknowledges nothing, so that the results on the way there need not count here. They are fetched all the same, one
 * version after the other, and kept in the ledger: bytes are what a draft needs to be safe (rule 2 of docs/PROTOCOL.md,
 * "Epochs"). None of them counts before a decided configuration starts from there; a draft commits nothing. */

/* The fragment has come to another version, or an epoch has begun: sorts the kept results anew where they count. */
void sync_beyond_reset(struct sync *sync, uint32_t f);

/* How far the bytes lead that are here: the fragment's version, or a later one of which, as of all before it, every
 * result is here. */
uint64_t sync_beyond_reach(const struct sync *sync, uint32_t f);
/* The parts of the version after that. Borrowed. */
const struct sync_parts *sync_beyond_parts(const struct sync *sync, uint32_t f);
/* A proposed configuration carries a result of that version, if it is not our next one; `digest`: this one of its
 * owner's, or NULL. */
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
