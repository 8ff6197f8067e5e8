/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rig: one island's rounds with everything below them, and the engine played by the test.
 *
 * Real parts in a folder of their own: ledger, jobs, replica, slots, the protocol's core, rounds. rig takes the events
 * out, steps the core, hands its orders out, and keeps what was posted and ordered, in order. There is no network and
 * no trainer: what other islands send is made here and laid where it would lie, and a snapshot is two arrays. Two
 * fragments of four matrices, no padding, nothing sent as bf16. Nothing happens but in the calls below, so what a job
 * has done can be looked at before the loop learns of it. A helper that fails fails the running test.
 * Members are numbers, which are their slots, and have ids that are none of them (rig_id()). All are owners and vote;
 * what we hold the others say they hold, too, unless `alone`, so that a result counts as soon as it is stored.
 */
#ifndef TESTS_LIB_RIG_H
#define TESTS_LIB_RIG_H

#include "daemon/rounds/apply.h"
#include "daemon/rounds/copy.h"
#include "daemon/rounds/round_context.h"
#include "daemon/rounds/encode.h"
#include "daemon/rounds/install.h"
#include "daemon/rounds/keep.h"
#include "daemon/rounds/recover.h"
#include "daemon/rounds/reduce.h"
#include "tests/lib/testlib.h"

#include "daemon/rounds/rounds.h"
#include "daemon/state/results.h"
#include "net/transport/ident.h"
#include "net/transport/wire_object.h"

enum { RIG_FRAGMENTS = 2, RIG_MEMBERS_MAX = 3, RIG_KEPT = 2048, RIG_OBJECT_BYTES = 64 << 10, RIG_STATE_STEP = 77 };

struct rig_conf {
    const char *folder; /* kept, so that a rig can be opened again on what it left */
    const char *sync;   /* lines of the run spec, from [sync] on */
    uint32_t members, self;
    int threads;                        /* 0: two */
    int zstd_level;                     /* of the run spec */
    uint64_t segment_bytes, kept_bytes; /* of the ledger; 0: more than any test writes */
    uint64_t checkpoint_ms;             /* 0: only those that are ordered */
    uint64_t versions;                  /* of results, for others; 0: as the codec has it */
    uint64_t times;                     /* each matrix has so many times its rows; 0: once */
    const struct shardmap *map;         /* of configuration 0, by rig_id(); NULL: equal shares */
};

struct rig {
    struct rig_conf conf;
    struct runspec spec;
    struct view view;
    struct config_log *config_log;
    uint32_t ids[RIG_MEMBERS_MAX];
    struct model_plan *plan;
    struct parts parts;
    struct replica *replica;
    struct ledger *ledger;
    struct slots *slots;
    struct jobs *jobs;
    struct events *events;
    struct sync *sync;
    struct rounds *rounds;
    uint64_t now_ms;
    uint64_t step_line; /* as rounds_tick() has it; at first everybody is believed */

    /* the trainer's arrays, and its next snapshot */
    float *base[RIG_FRAGMENTS], *theta[RIG_FRAGMENTS], *area[RIG_FRAGMENTS];
    struct replica_snapshot snapshot[RIG_FRAGMENTS];
    /* what every other member says of itself */
    struct wire_fragment said[RIG_MEMBERS_MAX][RIG_FRAGMENTS];
    bool alone;                       /* nobody else holds what we hold, as far as we hear */
    uint64_t claims[RIG_MEMBERS_MAX]; /* of each member, how many times too many tokens results of others name; 0: 1 */
    float cosine[RIG_MEMBERS_MAX];    /* of each member's contributions, as the results of others name it */
    bool excused;                     /* states that are brought were proved without our signature */

    unsigned hold;    /* orders (1 << SYNC_DO_...) that are kept, and not handed on */
    bool hold_unread; /* and EVENT_UNREAD */
    struct event posted[RIG_KEPT];
    size_t posted_count;
    struct sync_action ordered[RIG_KEPT];
    size_t ordered_count;
};

/* What the folder has, read by jobs; nothing else may be under way. What went wrong, as recover_end() says. */
enum err rig_recover(struct rig *rig);
/* Opens it as engine does, recovering what the folder has. */
struct rig *rig_open(const struct rig_conf *conf);
/* In a new folder of that name, and begun. */
struct rig *rig_new(const char *name, const char *sync, uint32_t members, uint32_t self, int threads);
/* Waits for its jobs; nothing is saved beyond what was. */
void rig_close(struct rig *rig);
/* Killed and started again. */
struct rig *rig_again(struct rig *rig);
/* What its rounds were born with. */
struct rounds_conf rig_rounds_conf(const struct rig *rig);
/* The next epoch: this configuration follows, which is taken over, and everybody goes over to it. */
void rig_epoch(struct rig *rig, struct config *config);
/* Another replica that holds what the rig's does, for what should have come of it; freed before the rig is closed. */
struct replica *rig_twin(const struct rig *rig);

/* ---- time ---- */

/* Deals with all events. */
void rig_drain(struct rig *rig);
/* Waits for one job, takes it back, drains. */
void rig_withdraw(struct rig *rig);
/* Waits for a job to end, and leaves it where it is: the loop does not know yet. */
void rig_wait_ended(struct rig *rig);
/* Until no job is left. */
void rig_settle(struct rig *rig);
void rig_step(struct rig *rig, const struct sync_event *event);
void rig_tick(struct rig *rig, uint64_t later_ms);

/* ---- what was posted and ordered ---- */

void rig_forget(struct rig *rig);
/* The last event of that type about the fragment; NULL: none. One that stands later in memory was posted later. */
const struct event *rig_posted(const struct rig *rig, enum event_type type, uint32_t f);
const struct event *rig_told(const struct rig *rig, enum sync_event_type type, uint32_t f);
size_t rig_posted_count(const struct rig *rig, enum event_type type);
size_t rig_told_count(const struct rig *rig, enum sync_event_type type);
const struct sync_action *rig_ordered(const struct rig *rig, enum sync_action_type type, uint32_t f);
size_t rig_ordered_count(const struct rig *rig, enum sync_action_type type);

/* ---- the trainer ---- */

/* Version 0 from the trainer's tensors, everywhere the same; the trainer is up, the peers are heard. */
void rig_begin(struct rig *rig);
/* A trainer attaches to what is there: base and tensors are the anchor. */
void rig_attach(struct rig *rig);
/* Its next snapshot: base - theta is `amount` times a pattern. */
void rig_train(struct rig *rig, uint32_t f, uint64_t seed, float amount);
void rig_snapshot(struct rig *rig, uint32_t f, uint64_t step, uint64_t tokens);
/* Both, and our contribution is encoded. */
void rig_contribute(struct rig *rig, uint32_t f, float amount, uint64_t tokens);
/* It has taken the anchor in that was given. */
void rig_mixed(struct rig *rig, uint32_t f);

/* ---- the other islands ---- */

/* All are where we are, and hold what we hold. */
void rig_greet(struct rig *rig);
/* Says what said[member] holds. */
void rig_hear(struct rig *rig, uint32_t member);

struct rig_object {
    struct wire_key key;
    size_t bytes;
    uint8_t byte[RIG_OBJECT_BYTES];
};
/* The id of a member. */
uint32_t rig_id(uint32_t member);
/* Key pair of a member, the same for all rigs of a process. */
const struct ident *rig_ident(uint32_t member);
/* Values under the run's codec, sealed by the member whose it is. */
void rig_seal(const struct rig *rig, const struct wire_key *key, const struct wire_meta *meta, const float *values,
              size_t count, struct rig_object *out);
/* Puts a segment of a codec that there is not into its frame; all digests are right. */
void rig_spoil(struct rig_object *object);
/* Opens an object, whose metadata then lies in it; and seals it with this in its place. */
void rig_open_object(const struct rig_object *object, struct wire_object *what, struct wire_meta *meta);
void rig_seal_again(struct rig_object *object, const struct wire_object *what, const struct wire_meta *meta);
/* Lays a result into the ledger as it is, past all that looks at it. */
void rig_append(const struct rig *rig, const struct rig_object *object);
/* Says that all results which the ledger has of a version made it. */
void rig_commit(const struct rig *rig, uint32_t f, uint64_t version);
/* Whether the ledger has a result of the owner, made in this epoch; under which name. */
bool rig_find(const struct rig *rig, uint32_t f, uint64_t version, uint32_t owner, struct result_id *key);
bool rig_has(const struct rig *rig, uint32_t f, uint64_t version, uint32_t owner);
/* A member's contribution to our shard of the version after ours: `amount` times a pattern. */
void rig_contribution(const struct rig *rig, uint32_t f, uint32_t member, uint64_t tokens, float amount,
                      struct rig_object *out);
/* The result of another's shard of the version after ours, as a mean of these members. */
void rig_result(const struct rig *rig, uint32_t f, uint32_t shard, const struct bitset *members, float amount,
                struct rig_object *out);
/* It lies whole in its memory. */
void rig_bring(struct rig *rig, uint32_t peer, const struct rig_object *object);
/* A contribution, or the result of another's shard that counts us or does not; looked at and taken in. */
void rig_bring_contribution(struct rig *rig, uint32_t f, uint32_t member, uint64_t tokens, float amount);
void rig_bring_result(struct rig *rig, uint32_t f, uint32_t shard, bool naming_us);

/* Gives a state a certificate of these members for this hash, in the place of the one it has. */
void rig_certify(const struct rig *rig, const struct digest *hash, const struct bitset *members,
                 struct rig_object *object);
/* A state of the fragment at our version that is not ours, at run step RIG_STATE_STEP: in a twin, which the caller
 * frees before the rig, and as member 0 would send it, with the signatures of all
 * others. */
void rig_make_state(const struct rig *rig, uint32_t f, float more, struct replica **twin, struct rig_object *out);
/* All others say that they hold this one, and our disk cannot tell: ours has to go. For the last member of three. */
void rig_diverge(struct rig *rig, uint32_t f, struct replica *theirs);

/* A whole round of the fragment: a snapshot of ours, contributions of all others to our shard, the results of the other
 * shards, which count us where `naming_us` has them; and the anchor is taken in. */
void rig_round(struct rig *rig, uint32_t f, const struct bitset *naming_us);

/* ---- looking in ---- */

size_t rig_values(const struct rig *rig, uint32_t f);
struct plan_shard rig_shard(const struct rig *rig, uint32_t f, uint32_t shard);
/* amount * (1 + (something of seed and i between 0 and 1)). */
void rig_pattern(float *out, size_t count, uint64_t seed, float amount);
/* A frame's values; fails if it cannot be decoded. */
void rig_decode(const uint8_t *frame, size_t frame_bytes, float *values, size_t count);
/* What the slot holds: its metadata, and its frame. */
const uint8_t *rig_open_slot(const struct slot *slot, uint32_t kind, struct wire_meta *meta, size_t *frame_bytes);
/* The set of these members or shards. */
#define RIG_SET(...) \
    rig_set((const uint32_t[]){__VA_ARGS__}, sizeof((const uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t))
struct bitset rig_set(const uint32_t *numbers, size_t count);
/* Fails unless the set holds these and no others. */
void rig_assert_set(const struct bitset *set, struct bitset want);
/* Fails unless the core holds results of the next version of these owners, made in this epoch, and no others. */
void rig_assert_held(const struct rig *rig, uint32_t f, struct bitset want);
bool rig_all_zero(const float *values, size_t count);
struct digest rig_hash(const struct rig *rig, uint32_t f, uint64_t version);

#endif
