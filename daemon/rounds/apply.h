/* SPDX-License-Identifier: Apache-2.0 */
/*
 * apply: results: those that come in are checked and go into the ledger; when all of a version are there, the outer
 * step, one job per part, then the hash, and durably into the ledger which results it was made of: only then is it
 * told. The loop's thread calls, and recovery's jobs where it is said.
 */
#ifndef DAEMON_ROUNDS_APPLY_H
#define DAEMON_ROUNDS_APPLY_H

#include "daemon/rounds/round_context.h"
#include "daemon/state/results.h"
#include "outer_opt/outer.h"

struct apply;

/* `round_context` is borrowed for its life. ERR_NOMEM. */
ERR_MUST_CHECK enum err apply_new(struct round_context *context, struct apply **out);
void apply_free(struct apply *apply);
/* A result of `bytes` lies whole in its slot: looked at, into the ledger, then judged; SYNC_EV_STORED if it is good. */
void apply_result_in(struct apply *apply, uint32_t peer, const struct wire_key *key, uint64_t bytes);
/* The outer step with the ledger's results, now, or when nobody reads the anchor and nothing is encoded or reduced:
 * EVENT_COUNTED; SYNC_EV_MADE when what it is made of is durable, unless a part could not be applied; SYNC_EV_APPLIED.
 */
void apply_begin(struct apply *apply, uint32_t f, uint64_t version);
void apply_unread(struct apply *apply, uint32_t f);
/* An outer step is ordered and waits for readers: the anchor stands still until they have gone. */
bool apply_waits(const struct apply *apply, uint32_t f);
/* How many times as large as before an anchor is that has run away (outer_opt/runaway.h); 0: it has not. */
double apply_grown(const struct apply *apply, uint32_t f);

/* What the disk refused is tried again. */
void apply_tick(struct apply *apply);

/* A result from the ledger, if it can be applied: with numbers that make sense. ERR_NOTFOUND, ERR_PROTO; after a
 * failure there is nothing to close. Any thread. */
ERR_MUST_CHECK enum err apply_open(const struct round_context *context, const struct result_id *key,
                                   struct result *out);

/* Fragment `f` has come to a new version, or an epoch has begun: results of the next version that the ledger has
 * already, from before a crash or kept beside an older state, are told, so that others hear of them and nobody fetches
 * or makes them again; but for those that cannot be applied, which are fetched. */
void apply_post_held(struct round_context *context, uint32_t f);
/* Likewise of a version that has just come: then SYNC_EV_LISTED, since what is missing now is nowhere here. */
void apply_post_listed(struct round_context *context, uint32_t f);
/* The two halves of apply_post_held(): finds the ledger's results of `version` that can be applied, at most one of each
 * part; and tells of them. Finding is for any thread, while no epoch begins. */
struct held_result {
    struct result_id id;
    uint64_t step; /* run step that it names */
};
uint32_t apply_find_held(const struct round_context *context, uint32_t f, uint64_t version,
                         struct held_result held[VERSION_PARTS_MAX]);
void apply_tell_held(struct round_context *context, const struct held_result *held, uint32_t count);

/* Whether a result's step and numbers may be those of this run. ERR_PROTO: they make no sense. */
ERR_MUST_CHECK enum err apply_check(const struct round_context *context, const struct wire_meta *meta);
/* The numbers of an outer step, as its result brings them; with CO2's staleness penalty, if the run has it, from
 * `sizes`: one of each of the version's parts, as replica_measure() found them. */
struct outer_round apply_numbers(const struct round_context *context, const struct wire_meta *meta,
                                 const struct replica_size *sizes, uint32_t sizes_count);

#endif
