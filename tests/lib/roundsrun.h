/*
 * roundsrun: one island's rounds with everything below them, and the engine played by the test.
 *
 * Real parts in a folder of their own: ledger, jobs, replica, slots, the protocol's core, rounds. isle takes the events
 * out, steps the core, hands its orders out, and keeps what was posted and ordered, in order. There is no network and
 * no trainer: what other islands send is made here and laid where it would lie, and a snapshot is two arrays. Two
 * fragments of four matrices, no padding, nothing sent as bf16. Nothing happens but in the calls below, so what a job
 * has done can be looked at before the loop learns of it. A helper that fails fails the running test.
 */
#ifndef TESTS_LIB_ROUNDSRUN_H
#define TESTS_LIB_ROUNDSRUN_H

#include "tests/lib/testlib.h"

#include "daemon/rounds/rounds.h"

enum {
    ROUNDSRUN_FRAGMENTS = 2,
    ROUNDSRUN_MEMBERS_MAX = 3,
    ROUNDSRUN_KEPT = 1024,
    ROUNDSRUN_OBJECT_BYTES = 64 << 10,
    ROUNDSRUN_STATE_STEP = 77
};

struct roundsrun_conf {
    const char *folder; /* kept, so that an isle can be opened again on what it left */
    const char *sync;   /* lines of the run spec, from [sync] on */
    uint32_t members, self;
    int threads;                        /* 0: two */
    uint64_t segment_bytes, kept_bytes; /* of the ledger; 0: more than any test writes */
};

struct roundsrun {
    struct roundsrun_conf conf;
    struct runspec spec;
    struct view_member members[ROUNDSRUN_MEMBERS_MAX];
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
    struct bitset results[ROUNDSRUN_FRAGMENTS]; /* as rounds_recover() said */

    /* the trainer's arrays, and its next snapshot */
    float *base[ROUNDSRUN_FRAGMENTS], *theta[ROUNDSRUN_FRAGMENTS], *area[ROUNDSRUN_FRAGMENTS];
    struct replica_snapshot snapshot[ROUNDSRUN_FRAGMENTS];
    /* what every other member says of itself */
    struct wire_fragment said[ROUNDSRUN_MEMBERS_MAX][ROUNDSRUN_FRAGMENTS];

    unsigned hold;    /* orders (1 << SYNC_DO_...) that are kept, and not handed on */
    bool hold_unread; /* and EVENT_UNREAD */
    struct event posted[ROUNDSRUN_KEPT];
    size_t posted_count;
    struct sync_action ordered[ROUNDSRUN_KEPT];
    size_t ordered_count;
};

/* Opens it as engine does, recovering what the folder has. */
struct roundsrun *roundsrun_open(const struct roundsrun_conf *conf);
/* In a new folder of that name, and begun. */
struct roundsrun *roundsrun_new(const char *name, const char *sync, uint32_t members, uint32_t self, int threads);
/* Waits for its jobs; nothing is saved beyond what was. */
void roundsrun_close(struct roundsrun *isle);
/* Killed and started again. */
struct roundsrun *roundsrun_again(struct roundsrun *isle);
/* What its rounds were born with. */
struct rounds_conf roundsrun_rounds_conf(const struct roundsrun *isle);
/* Another replica that holds what the isle's does, for what should have come of it; freed before the isle is closed. */
struct replica *roundsrun_twin(const struct roundsrun *isle);

/* ---- time ---- */

/* Deals with all events. */
void roundsrun_drain(struct roundsrun *isle);
/* Waits for one job, takes it back, drains. */
void roundsrun_take_back(struct roundsrun *isle);
/* Waits for a job to end, and leaves it where it is: the loop does not know yet. */
void roundsrun_wait_ended(struct roundsrun *isle);
/* Until no job is left. */
void roundsrun_settle(struct roundsrun *isle);
void roundsrun_step(struct roundsrun *isle, const struct sync_event *event);
void roundsrun_tick(struct roundsrun *isle, uint64_t later_ms);

/* ---- what was posted and ordered ---- */

void roundsrun_forget(struct roundsrun *isle);
/* The last event of that type about the fragment; NULL: none. One that stands later in memory was posted later. */
const struct event *roundsrun_posted(const struct roundsrun *isle, enum event_type type, uint32_t f);
const struct event *roundsrun_told(const struct roundsrun *isle, enum sync_event_type type, uint32_t f);
size_t roundsrun_posted_count(const struct roundsrun *isle, enum event_type type);
size_t roundsrun_told_count(const struct roundsrun *isle, enum sync_event_type type);
const struct sync_action *roundsrun_ordered(const struct roundsrun *isle, enum sync_action_type type, uint32_t f);
size_t roundsrun_ordered_count(const struct roundsrun *isle, enum sync_action_type type);

/* ---- the trainer ---- */

/* Version 0 from the trainer's tensors, everywhere the same; the trainer is up, the peers are heard. */
void roundsrun_begin(struct roundsrun *isle);
/* A trainer attaches to what is there: base and tensors are the anchor. */
void roundsrun_attach(struct roundsrun *isle);
/* Its next snapshot: base - theta is `amount` times a pattern. */
void roundsrun_train(struct roundsrun *isle, uint32_t f, uint64_t seed, float amount);
void roundsrun_snapshot(struct roundsrun *isle, uint32_t f, uint64_t step, uint64_t tokens);
/* Both, and our contribution is encoded. */
void roundsrun_contribute(struct roundsrun *isle, uint32_t f, float amount, uint64_t tokens);
/* It has taken the anchor in that was given. */
void roundsrun_mixed(struct roundsrun *isle, uint32_t f);

/* ---- the other islands ---- */

/* Says what said[member] holds. */
void roundsrun_hear(struct roundsrun *isle, uint32_t member);

struct roundsrun_object {
    struct wire_key key;
    size_t bytes;
    uint8_t byte[ROUNDSRUN_OBJECT_BYTES];
};
/* Values under the run's codec, sealed. */
void roundsrun_seal(const struct roundsrun *isle, const struct wire_key *key, const struct wire_meta *meta,
                    const float *values, size_t count, struct roundsrun_object *out);
/* Puts a segment of a codec that there is not into its frame; all digests are right. */
void roundsrun_spoil(struct roundsrun_object *object);
/* A member's contribution to our shard of the version after ours: `amount` times a pattern. */
void roundsrun_contribution(const struct roundsrun *isle, uint32_t f, uint32_t member, uint64_t tokens, float amount,
                            struct roundsrun_object *out);
/* The result of another's shard of the version after ours, as a mean of these members. */
void roundsrun_result(const struct roundsrun *isle, uint32_t f, uint32_t shard, const struct bitset *members,
                      float amount, struct roundsrun_object *out);
/* It lies whole in its memory. */
void roundsrun_bring(struct roundsrun *isle, uint32_t peer, const struct roundsrun_object *object);
/* A contribution, or the result of another's shard that counts us or does not; looked at and taken in. */
void roundsrun_bring_contribution(struct roundsrun *isle, uint32_t f, uint32_t member, uint64_t tokens, float amount);
void roundsrun_bring_result(struct roundsrun *isle, uint32_t f, uint32_t shard, bool naming_us);

/* A state of the fragment at our version that is not ours, at run step ROUNDSRUN_STATE_STEP: in a twin, which the
 * caller frees before the isle, and as member 0 would send it. */
void roundsrun_make_state(const struct roundsrun *isle, uint32_t f, float more, struct replica **twin,
                          struct roundsrun_object *out);
/* All others say that they hold this one; ours has to go. For the last member of three. */
void roundsrun_diverge(struct roundsrun *isle, uint32_t f, struct replica *theirs);

/* A whole round of the fragment: a snapshot of ours, contributions of all others to our shard, the results of the other
 * shards, which count us where `naming_us` has them; and the anchor is taken in. */
void roundsrun_round(struct roundsrun *isle, uint32_t f, const struct bitset *naming_us);

/* ---- looking in ---- */

size_t roundsrun_values(const struct roundsrun *isle, uint32_t f);
struct plan_shard roundsrun_shard(const struct roundsrun *isle, uint32_t f, uint32_t shard);
/* amount * (1 + (something of seed and i between 0 and 1)). */
void roundsrun_pattern(float *out, size_t count, uint64_t seed, float amount);
/* Damages one byte of a file. */
void roundsrun_damage(const char *path, long at);
/* A frame's values; fails if it cannot be decoded. */
void roundsrun_decode(const uint8_t *frame, size_t frame_bytes, float *values, size_t count);
/* What the slot holds: its metadata, and its frame. */
const uint8_t *roundsrun_open_slot(const struct slot *slot, uint32_t kind, struct wire_meta *meta, size_t *frame_bytes);
bool roundsrun_all_zero(const float *values, size_t count);
struct digest roundsrun_hash(const struct roundsrun *isle, uint32_t f, uint64_t version);

#endif
