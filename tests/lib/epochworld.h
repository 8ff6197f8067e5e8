/* SPDX-License-Identifier: Apache-2.0 */
/*
 * epochworld: N islands in virtual time that decide epochs: the real net/membership/paxos, net/membership/next_config,
 * net/membership/assign_roles, net/config/config and net/config/config_log under a seeded network (loss, delay,
 * reordering, repetition, cuts one way), crashes with durable votes, reboots, one older disk, proposers that die
 * between seal and decision, islands that never return. The data plane is abstract: an owner makes a result of a part,
 * which is a number; islands store, acknowledge, apply it. One world at a time.
 */
#ifndef TESTS_LIB_EPOCHWORLD_H
#define TESTS_LIB_EPOCHWORLD_H

#include "net/config/config_proof.h"
#include "tests/lib/testlib.h"

#include "common/env.h"
#include "net/config/config_log.h"
#include "net/membership/next_config.h"
#include "net/membership/paxos.h"

enum { EW_N_MAX = 6, EW_F_MAX = 2, EW_SHARDS = 4, EW_V_MAX = 2000, EW_E_MAX = 600 };
enum {
    EW_RESULTS_MAX = 1 << 14,
    EW_CONFIGS_MAX = 1 << 12,
    EW_MESSAGES_MAX = 1 << 12,
    EW_HELD_MAX = 12,
    EW_SAVES_MAX = 64
};
enum { EW_STEP_MS = 5, EW_BEAT_MS = 50, EW_SILENT_MS = 300, EW_TURN_MS = 120, EW_AGAIN_MS = 60 };

/* Every configuration that anyone composed; its number in the world names it, 0: none. */
struct ew_config {
    struct config config;
    uint8_t *bytes;
    size_t bytes_count;
    struct digest digest;
    bool proposed;
};

struct ew_held {
    uint32_t result;
    bool acked;
};

/* What an island says that it holds: in heartbeats, seals and answers. */
struct ew_holds {
    uint64_t epoch, incarnation;
    uint64_t version[EW_F_MAX];
    struct ew_held held[EW_F_MAX][EW_HELD_MAX];
    uint32_t held_count[EW_F_MAX];
};

/* What survives the daemon. `number` grows with every durable change. */
struct ew_disk {
    uint64_t number;
    struct ew_holds holds;
    uint64_t vote_epoch, promised, accepted, own;
    uint32_t accepted_config;
};

struct ew_answer {
    bool there, sealed;
    uint64_t ballot;
    struct ew_holds holds;
};

struct ew_save {
    uint64_t due_ms, number;
    uint64_t epoch, promised, accepted, own;
    uint32_t config;
};

struct ew_island {
    bool alive, gone, witness;
    uint64_t revive_ms, mark, uplink;
    struct ew_disk disk, older;
    bool older_there;
    struct paxos *table;
    struct config_log *config_log;
    uint64_t beat_ms, heard_ms[EW_N_MAX], want_ms;
    struct ew_holds peer[EW_N_MAX];
    struct ew_answer answer[EW_N_MAX];
    struct ew_save save[EW_SAVES_MAX];
    uint32_t saves;
    bool taking;                  /* over, what all voters hold (rule 9) */
    uint32_t draft;               /* fetches what it needs */
    uint8_t acks[EW_RESULTS_MAX]; /* mask of islands that acknowledged, as heard */
};

enum ew_kind { EW_BEAT, EW_EPOCH, EW_RESULT, EW_FETCH, EW_STATE, EW_FETCH_STATE };

struct ew_message {
    bool used;
    enum ew_kind kind;
    uint32_t from, to;
    uint64_t due_ms;
    struct ew_holds holds;
    uint32_t result, fragment;
    struct paxos_message epoch; /* bytes and votes: below */
    uint32_t config, votes_count;
    struct config_vote votes[EW_N_MAX];
};

struct ew_world {
    uint64_t seed, now_ms;
    struct env_rng rng;
    uint32_t n, fragments;
    struct ew_island island[EW_N_MAX];
    struct ew_message *messages;
    uint32_t messages_end;
    struct part_result results[EW_RESULTS_MAX];
    uint32_t results_count;
    struct ew_config configs[EW_CONFIGS_MAX];
    uint32_t configs_count;
    uint32_t decided[EW_E_MAX];
    uint32_t decided_votes_count[EW_E_MAX];
    struct config_vote decided_votes[EW_E_MAX][EW_N_MAX];
    uint64_t newest;
    uint32_t truth[EW_F_MAX][EW_V_MAX][EW_SHARDS]; /* results that were applied */
    bool cut[EW_N_MAX][EW_N_MAX];
    uint64_t cut_ms[EW_N_MAX][EW_N_MAX], delay_most_ms;
    unsigned loss_percent, crash_permille;
    bool healing, rolled, blackout;
    uint32_t rolled_id; /* of the island whose disk came back older, and the incarnation it had said to be */
    uint64_t rolled_incarnation;
    /* A configuration was decided that rests on what that disk has lost: it was proposed when nobody could know. */
    bool beyond;
    unsigned recoveries;
    uint64_t incarnations;
};

extern struct ew_world *ew;

#define EW_HOLDS(condition, ...)                                                                                 \
    do {                                                                                                         \
        if (!(condition)) {                                                                                      \
            print_error("seed %llu at %llu ms: ", (unsigned long long)ew->seed, (unsigned long long)ew->now_ms); \
            print_error(__VA_ARGS__);                                                                            \
            fail_msg(" (repeat with TEST_SEED=%llu)", (unsigned long long)ew->seed);                             \
        }                                                                                                        \
    } while (0)

/* `voters` of the n islands are owners at first, the last of them a witness if so; the others observe. */
void ew_begin(uint64_t seed, uint32_t n, uint32_t voters, bool witness);
void ew_end(void);
void ew_free(void);
/* A step of time. */
void ew_turn(void);
/* All that can still be decided: whether the islands that live and whose disks are not in doubt have a majority in the
 * newest configuration and in every one proposed since. `without`: and one more of them is lost; n: none. */
bool ew_majority(uint32_t without);
void ew_crash(uint32_t i, uint64_t for_ms);
/* It comes back as it was some time ago. */
void ew_roll_back(uint32_t i);
uint64_t ew_top(uint32_t f); /* the highest version that anyone has */
void ew_print(void);

/* ---- for epochworld's own files ---- */
uint64_t ew_below(uint64_t bound);
bool ew_chance(unsigned percent);
uint32_t ew_config_add(const struct config *config);
uint32_t ew_config_of(const struct digest *digest);
void ew_send(const struct ew_message *message);
void ew_step(uint32_t i, const struct paxos_event *event);
void ew_drain(uint32_t i);
void ew_start(uint32_t i);
const struct config *ew_newest(uint32_t i);
bool ew_keeps(uint32_t i, uint32_t f, uint32_t result);
void ew_store(uint32_t i, uint32_t result, bool acked);
/* data plane: epochdata.c */
void ew_data_turn(uint32_t i);
void ew_data_message(const struct ew_message *message);
void ew_learned(uint32_t i, uint32_t config);
/* Asks for what the voters' answers show and this island lacks; false: nothing. */
bool ew_take_over(uint32_t i);

#endif
