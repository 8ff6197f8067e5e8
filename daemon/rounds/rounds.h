/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rounds: a round's arithmetic and disk work, as jobs: encode, reduce, store, apply, publish, install, checkpoint,
 * export.
 *
 * Born when the run's plan is known. Orders come from the engine; what becomes of them is posted as events. Only the
 * loop's thread calls; jobs run on threads of their own and touch the part or fragment they are for. The protocol's
 * core sees to it that no two of them want the same; where that is not its business, readers are waited for. Everything
 * goes by the parts of a version (daemon/state/parts.h). Encoding and reducing for a version whose parts are not those
 * of the one before cut the replica anew first, which waits for jobs that work on the parts there were; so an epoch
 * that begins needs no call of its own here. Transfers are at the slots' memory: the caller ends those of a fragment's
 * objects before it orders anything for other parts. A part never knows who asked: it sees no peer's connection and no
 * trainer's socket.
 *
 * Owns: the arithmetic and disk work of rounds, as jobs: contributions, results, outer steps, states, checkpoints.
 * Called by: daemon, daemon/control, daemon/peers, daemon/transfer.
 * Never includes: daemon/peers/, daemon/transfer/, daemon/membership/, daemon/trainer/, daemon/control/, <zmq.h>,
 * <sys/socket.h>.
 */
#ifndef DAEMON_ROUNDS_ROUNDS_H
#define DAEMON_ROUNDS_ROUNDS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"
#include "daemon/rounds/round_context.h"
#include "daemon/rounds/keep.h"

struct apply;
struct copy;
struct encode;
struct install;
struct recover;
struct reduce;

/* Its parts, each as its own header has it: whoever orders something, or asks, does so there. */
struct rounds {
    struct round_context *context;
    struct encode *encode;
    struct reduce *reduce;
    struct apply *apply;
    struct copy *copy;
    struct install *install;
    struct keep *keep;
    struct recover *recover;
};

/* `conf` is copied, what it points to borrowed until rounds_free(). ERR_NOMEM. */
ERR_MUST_CHECK enum err rounds_new(const struct rounds_conf *conf, struct rounds **out);
/* No job may be under way. */
void rounds_free(struct rounds *rounds);

/* Room for members in slots 0 to `count` - 1 (BITSET_MAX at most), at any time; the view's are there from the
 * beginning. ERR_NOMEM: for as many as before, or more. */
ERR_MUST_CHECK enum err rounds_members(struct rounds *rounds, uint32_t count);
/* A new epoch: the greatest length that the run has had (net/config/config.h, config_steps_most()). Before it is said:
 * that of the run spec. */
void rounds_steps_most(struct rounds *rounds, uint64_t most);
/* The member of that slot has left: what is known of it is not another's, who gets the slot. */
void rounds_forget(struct rounds *rounds, uint32_t member);
/* An object of a peer lies whole in its slot: checked, then EVENT_JUDGED and what the core wants to know. `excused`: a
 * state that was proved without our signature (sync_excused()). */
void rounds_object_in(struct rounds *rounds, uint32_t peer, const struct wire_key *key, uint64_t bytes, bool excused);
/* EVENT_ON_DISK: initial tensors, or the state that was taken over, are durable. */
void rounds_on_disk(struct rounds *rounds, uint32_t f);
/* Nobody reads the anchor any more (EVENT_UNREAD): goes on with what waited for that. */
void rounds_unread(struct rounds *rounds, uint32_t f);
/* Once a tick. `uplink_bits`: per second, as measured; 0: not known. `step_line`: up to which run step one contribution
 * alone is believed. */
void rounds_tick(struct rounds *rounds, uint64_t now_ms, uint64_t uplink_bits, uint64_t step_line);

/* ---- looking in ---- */

/* Version, step and hash of a fragment's anchor. */
const struct store_fragment *rounds_state(const struct rounds *rounds, uint32_t f);
/* Highest run step among the results applied. */
uint64_t rounds_step(const struct rounds *rounds);

struct rounds_info {
    const char *disk_note; /* why the disk cannot be written; "" if it can */
    bool compressing;      /* zstd is used behind the codec */
    enum rounds_export_state saving;
    uint64_t cpu_ns[JOBS_WORKS]; /* processor time taken by jobs, by what they did */
    const char *saved;           /* path of the exported anchors, or why there is none; "" before */
};
struct rounds_info rounds_info(const struct rounds *rounds);
/* Contributions of a member that we, as an owner, left out or scaled down; `*lately`: of the last eight. */
uint64_t rounds_outliers(const struct rounds *rounds, uint32_t member, unsigned *lately);
/* Whether a member's contributions weigh nothing, for they pointed away from the others'. */
bool rounds_turned_away(const struct rounds *rounds, uint32_t member);
/* Whether a member says that it trains far more tokens than most others, and than count. */
bool rounds_claims_much(const struct rounds *rounds, uint32_t member);

#endif
