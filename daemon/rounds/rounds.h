/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rounds: a round's arithmetic and disk work, as jobs: encode, reduce, store, apply, give, install, checkpoint, export.
 *
 * Born when the run's plan is known. Orders come from the engine; what becomes of them is posted as events. Only the
 * loop's thread calls; jobs run on threads of their own and touch the part or fragment they are for. The protocol's
 * core sees to it that no two of them want the same; where that is not its business, readers are waited for.
 * Everything goes by the parts of a version (daemon/state/parts.h). Encoding and reducing for a version whose parts are
 * not those of the one before cut the replica anew first, which waits for jobs that work on the parts there were; so an
 * epoch that begins needs no call of its own here. Transfers are at the slots' memory: the caller ends those of a
 * fragment's objects before it orders anything for other parts.
 * A part never knows who asked: it sees no peer's connection and no trainer's socket.
 */
#ifndef DAEMON_ROUNDS_ROUNDS_H
#define DAEMON_ROUNDS_ROUNDS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/bitset.h"
#include "common/err.h"
#include "daemon/rounds/rounds_types.h"

struct rounds;
struct state_loan;

/* `conf` is copied, what it points to borrowed until rounds_free(). ERR_NOMEM. */
ERR_MUST_CHECK enum err rounds_new(const struct rounds_conf *conf, struct rounds **out);
/* No job may be under way. */
void rounds_free(struct rounds *rounds);

/* Recovers all fragments from checkpoints and ledger, as jobs: EVENT_RECOVERED when they have ended. Until then nothing
 * else may be ordered, and no epoch begin; nor is anything known of what is held here. Once. ERR_NOMEM. */
ERR_MUST_CHECK enum err rounds_recover(struct rounds *rounds);
/* The daemon ends: jobs under way end soon, and no EVENT_RECOVERED comes. */
void rounds_recover_stop(struct rounds *rounds);
/* How far that has come. */
struct rounds_recovery rounds_recovery(const struct rounds *rounds);
/* After EVENT_RECOVERED, once: takes over what was found, or says what went wrong. */
ERR_MUST_CHECK enum err rounds_recovered(struct rounds *rounds);
/* And then of each fragment: whether it has a state; and, once the core knows it, what rounds_post_held() would tell.
 */
bool rounds_known(const struct rounds *rounds, uint32_t f);
void rounds_tell_recovered(struct rounds *rounds, uint32_t f);
/* Tells the core which results of the version after the fragment's the ledger has already. */
void rounds_post_held(struct rounds *rounds, uint32_t f);
/* Room for members in slots 0 to `count` - 1 (BITSET_MAX at most), at any time; the view's are there from the
 * beginning. ERR_NOMEM: for as many as before, or more. */
ERR_MUST_CHECK enum err rounds_members(struct rounds *rounds, uint32_t count);
/* The run begins here: fragment `f` is at version 0 with this hash. */
void rounds_begin(struct rounds *rounds, uint32_t f, const struct digest *hash);

/* ---- the core's orders ---- */

/* Our contribution to `version` from a snapshot, whose arrays stay as they are until EVENT_ENCODED. May be ordered
 * again for the same version when its parts have become others: what is not carried is encoded anew, in the place of
 * what was, and the residual pending for what is carried stays. One EVENT_ENCODED follows the last of several orders.
 */
void rounds_encode(struct rounds *rounds, uint32_t f, uint64_t version, const struct replica_snapshot *snapshot);
/* The mean of the contributions of `have`, members by their slots, over our part: SYNC_EV_REDUCED, SYNC_EV_DROPPED, or
 * SYNC_EV_OVERTAKEN if an epoch began before it could be made.
 * The slot of our result is written: what was in it is not to be sent any more. */
void rounds_reduce(struct rounds *rounds, uint32_t f, uint64_t version, const struct bitset *have);
/* Our result into the ledger, durably; tried again until the disk takes it: SYNC_EV_STORED. */
void rounds_store(struct rounds *rounds, uint32_t f, uint64_t version);
/* The outer step with the ledger's results of `version`: EVENT_COUNTED, SYNC_EV_MADE, SYNC_EV_APPLIED. */
void rounds_apply(struct rounds *rounds, uint32_t f, uint64_t version);
/* Where checkpoint and ledger lead, beside what is in memory: SYNC_EV_REPLAYED or SYNC_EV_UNPROVEN. */
void rounds_replay(struct rounds *rounds, uint32_t f, uint64_t version);
/* The same, put in the place of what is in memory: SYNC_EV_INSTALLED or SYNC_EV_UNPROVEN. */
void rounds_mend(struct rounds *rounds, uint32_t f, uint64_t version);

/* ---- what other parts ask for ---- */

/* Copies the anchor to an area of the trainer's memory, which has room for all the fragment's values, padding included,
 * and is borrowed until the answer: EVENT_GIVEN. */
void rounds_give(struct rounds *rounds, uint32_t f, float *area);
/* Copies it to the base area, or with `initial` takes the tensors there over as the anchor. As large, and borrowed as
 * long: EVENT_STARTED. */
void rounds_start(struct rounds *rounds, uint32_t f, float *base, bool initial);
/* Copies the fragment's state, which is `loan->state` and at rest, as an object of `loan->bytes`, and its leaves: the
 * answer is EVENT_LENT, and the loan is borrowed until then. */
void rounds_lend(struct rounds *rounds, struct state_loan *loan);
/* An object of a peer lies whole in its slot: checked, then EVENT_JUDGED and what the core wants to know. */
void rounds_object_in(struct rounds *rounds, uint32_t peer, const struct wire_key *key, uint64_t bytes);
/* Nobody reads the anchor any more (EVENT_UNREAD): goes on with what waited for that. */
void rounds_unread(struct rounds *rounds, uint32_t f);
/* Begins a checkpoint of a fragment that stands still and is not on disk yet, with residuals. Others begin by
 * themselves, in rounds_tick(). */
void rounds_checkpoint(struct rounds *rounds, uint32_t f);
/* One of each fragment, at the end: from then on none begins by itself. */
void rounds_checkpoint_all(struct rounds *rounds);
/* Writes all anchors to one file for people, as soon as nothing changes them. */
void rounds_export(struct rounds *rounds);
/* From now on that file follows, when other islands' last rounds come in. */
void rounds_export_follow(struct rounds *rounds);
/* Once a tick. `uplink_bits`: per second, as measured; 0: not known. */
void rounds_tick(struct rounds *rounds, uint64_t now_ms, uint64_t uplink_bits);

/* ---- looking in ---- */

/* Version, step and hash of a fragment's anchor. */
const struct store_fragment *rounds_state(const struct rounds *rounds, uint32_t f);
/* The oldest epoch whose record a restart needs; 0: that is not known. */
uint64_t rounds_first_epoch(const struct rounds *rounds);
/* Highest run step among the results applied. */
uint64_t rounds_step(const struct rounds *rounds);

/* Whether the disk has kept nothing of the rounds for a while, so that the others had better go on without us. */
bool rounds_refused(const struct rounds *rounds);

struct rounds_info {
    const char *disk_note; /* why the disk cannot be written; "" if it can */
    bool compressing;      /* zstd is used behind the codec */
    enum rounds_export_state saving;
    uint64_t cpu_ns[JOBS_WORKS]; /* processor time taken by jobs, by what they did */
    const char *saved;           /* path of the exported anchors, or why there is none; "" before */
};
struct rounds_info rounds_info(const struct rounds *rounds);
/* How many times as large as before a fragment's anchor is that has run away (outer_opt/runaway.h); 0: it has not. */
double rounds_grown(const struct rounds *rounds, uint32_t f);
/* Contributions of a member that we, as an owner, left out or scaled down; `*lately`: of the last eight. */
uint64_t rounds_outliers(const struct rounds *rounds, uint32_t member, unsigned *lately);

#endif
