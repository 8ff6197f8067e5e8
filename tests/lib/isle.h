/*
 * isle: one island's rounds with everything below them, and the engine played by the test.
 *
 * Real parts in a folder of their own: ledger, jobs, replica, slots, the protocol's core, rounds. isle takes the events
 * out, steps the core, hands its orders out, and keeps what was posted and ordered, in order. There is no network and
 * no trainer: what other islands send is made here and laid where it would lie, and a snapshot is two arrays. Two
 * fragments of four matrices, no padding, nothing sent as bf16. Nothing happens but in the calls below, so what a job
 * has done can be looked at before the loop learns of it. A helper that fails fails the running test.
 */
#ifndef TESTS_LIB_ISLE_H
#define TESTS_LIB_ISLE_H

#include "tests/lib/testlib.h"

#include "daemon/rounds/rounds.h"

enum { ISLE_FRAGMENTS = 2, ISLE_MEMBERS_MAX = 3, ISLE_KEPT = 1024, ISLE_OBJECT_BYTES = 64 << 10, ISLE_STATE_STEP = 77 };

struct isle_conf {
    const char *folder; /* kept, so that an isle can be opened again on what it left */
    const char *sync;   /* lines of the run spec, from [sync] on */
    uint32_t members, self;
    int threads;                        /* 0: two */
    uint64_t segment_bytes, kept_bytes; /* of the ledger; 0: more than any test writes */
};

struct isle {
    struct isle_conf conf;
    struct runspec spec;
    struct view_member members[ISLE_MEMBERS_MAX];
    struct view view;
    struct model_plan *plan;
    struct replica *replica;
    struct ledger *ledger;
    struct slots *slots;
    struct jobs *jobs;
    struct events *events;
    struct sync *sync;
    struct rounds *rounds;
    uint64_t now_ms;
    struct bitset results[ISLE_FRAGMENTS]; /* as rounds_recover() said */

    /* the trainer's arrays, and its next snapshot */
    float *base[ISLE_FRAGMENTS], *theta[ISLE_FRAGMENTS], *area[ISLE_FRAGMENTS];
    struct replica_snapshot snapshot[ISLE_FRAGMENTS];
    /* what every other member says of itself */
    struct wire_fragment said[ISLE_MEMBERS_MAX][ISLE_FRAGMENTS];

    unsigned hold;    /* orders (1 << SYNC_DO_...) that are kept, and not handed on */
    bool hold_unread; /* and EVENT_UNREAD */
    struct event posted[ISLE_KEPT];
    size_t posted_count;
    struct sync_action ordered[ISLE_KEPT];
    size_t ordered_count;
};

/* Opens it as engine does, recovering what the folder has. */
struct isle *isle_open(const struct isle_conf *conf);
/* In a new folder of that name, and begun. */
struct isle *isle_new(const char *name, const char *sync, uint32_t members, uint32_t self, int threads);
/* Waits for its jobs; nothing is saved beyond what was. */
void isle_close(struct isle *isle);
/* Killed and started again. */
struct isle *isle_again(struct isle *isle);
/* What its rounds were born with. */
struct rounds_conf isle_rounds_conf(const struct isle *isle);
/* Another replica that holds what the isle's does, for what should have come of it; freed before the isle is closed. */
struct replica *isle_twin(const struct isle *isle);

/* ---- time ---- */

/* Deals with all events. */
void isle_drain(struct isle *isle);
/* Waits for one job, takes it back, drains. */
void isle_take_back(struct isle *isle);
/* Waits for a job to end, and leaves it where it is: the loop does not know yet. */
void isle_wait_ended(struct isle *isle);
/* Until no job is left. */
void isle_settle(struct isle *isle);
void isle_step(struct isle *isle, const struct sync_event *event);
void isle_tick(struct isle *isle, uint64_t later_ms);

/* ---- what was posted and ordered ---- */

void isle_forget(struct isle *isle);
/* The last event of that type about the fragment; NULL: none. One that stands later in memory was posted later. */
const struct event *isle_posted(const struct isle *isle, enum event_type type, uint32_t f);
const struct event *isle_told(const struct isle *isle, enum sync_event_type type, uint32_t f);
size_t isle_posted_count(const struct isle *isle, enum event_type type);
size_t isle_told_count(const struct isle *isle, enum sync_event_type type);
const struct sync_action *isle_ordered(const struct isle *isle, enum sync_action_type type, uint32_t f);
size_t isle_ordered_count(const struct isle *isle, enum sync_action_type type);

/* ---- the trainer ---- */

/* Version 0 from the trainer's tensors, everywhere the same; the trainer is up, the peers are heard. */
void isle_begin(struct isle *isle);
/* A trainer attaches to what is there: base and tensors are the anchor. */
void isle_attach(struct isle *isle);
/* Its next snapshot: base - theta is `amount` times a pattern. */
void isle_train(struct isle *isle, uint32_t f, uint64_t seed, float amount);
void isle_snapshot(struct isle *isle, uint32_t f, uint64_t step, uint64_t tokens);
/* Both, and our contribution is encoded. */
void isle_contribute(struct isle *isle, uint32_t f, float amount, uint64_t tokens);
/* It has taken the anchor in that was given. */
void isle_mixed(struct isle *isle, uint32_t f);

/* ---- the other islands ---- */

/* Says what said[member] holds. */
void isle_hear(struct isle *isle, uint32_t member);

struct isle_object {
    struct wire_key key;
    size_t bytes;
    uint8_t byte[ISLE_OBJECT_BYTES];
};
/* Values under the run's codec, sealed. */
void isle_seal(const struct isle *isle, const struct wire_key *key, const struct wire_meta *meta, const float *values,
               size_t count, struct isle_object *out);
/* Puts a segment of a codec that there is not into its frame; all digests are right. */
void isle_spoil(struct isle_object *object);
/* A member's contribution to our shard of the version after ours: `amount` times a pattern. */
void isle_contribution(const struct isle *isle, uint32_t f, uint32_t member, uint64_t tokens, float amount,
                       struct isle_object *out);
/* The result of another's shard of the version after ours, as a mean of these members. */
void isle_result(const struct isle *isle, uint32_t f, uint32_t shard, const struct bitset *members, float amount,
                 struct isle_object *out);
/* It lies whole in its memory. */
void isle_bring(struct isle *isle, uint32_t peer, const struct isle_object *object);
/* A contribution, or the result of another's shard that counts us or does not; looked at and taken in. */
void isle_bring_contribution(struct isle *isle, uint32_t f, uint32_t member, uint64_t tokens, float amount);
void isle_bring_result(struct isle *isle, uint32_t f, uint32_t shard, bool naming_us);

/* A state of the fragment at our version that is not ours, at run step ISLE_STATE_STEP: in a twin, which the caller
 * frees before the isle, and as member 0 would send it. */
void isle_make_state(const struct isle *isle, uint32_t f, float more, struct replica **twin, struct isle_object *out);
/* All others say that they hold this one; ours has to go. For the last member of three. */
void isle_diverge(struct isle *isle, uint32_t f, struct replica *theirs);

/* A whole round of the fragment: a snapshot of ours, contributions of all others to our shard, the results of the other
 * shards, which count us where `naming_us` has them; and the anchor is taken in. */
void isle_round(struct isle *isle, uint32_t f, const struct bitset *naming_us);

/* ---- looking in ---- */

size_t isle_values(const struct isle *isle, uint32_t f);
struct plan_shard isle_shard(const struct isle *isle, uint32_t f, uint32_t shard);
/* amount * (1 + (something of seed and i between 0 and 1)). */
void isle_pattern(float *out, size_t count, uint64_t seed, float amount);
/* Damages one byte of a file. */
void isle_damage(const char *path, long at);
/* A frame's values; fails if it cannot be decoded. */
void isle_decode(const uint8_t *frame, size_t frame_bytes, float *values, size_t count);
/* What the slot holds: its metadata, and its frame. */
const uint8_t *isle_open_slot(const struct slot *slot, uint32_t kind, struct wire_meta *meta, size_t *frame_bytes);
bool isle_all_zero(const float *values, size_t count);
struct digest isle_hash(const struct isle *isle, uint32_t f, uint64_t version);

#endif
