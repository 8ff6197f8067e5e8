/*
 * simworld: N islands in virtual time: the protocol's real state machines under a seeded network that delays, loses,
 * repeats and cuts, daemons and trainers that are killed, jobs that take their time. What work went where is kept as
 * numbers, so that every result can be held against the truth. For tests/sim; one world at a time.
 */
#ifndef TESTS_LIB_SIMWORLD_H
#define TESTS_LIB_SIMWORLD_H

#include "tests/lib/testlib.h"

#include "net/sync.h"

enum { SIM_N_MAX = 8, SIM_F_MAX = 3, SIM_V_MAX = 400, SIM_JOBS_MAX = 512, SIM_OBJECTS_MAX = 4096 };
enum { SIM_STEP_MS = 20 };
/* Contributions and results of two rounds each, a state, and what was asked for: however long a link is away. */
enum { SIM_WAITING_MAX = 8 };

/* Who contributed to a result, and which stretch (from, to] of each island's work it carries. */
struct sim_record {
    bool there;
    uint64_t id; /* unique to the reduction that made it */
    uint64_t contributors;
    uint64_t from[SIM_N_MAX], to[SIM_N_MAX];
};

struct sim_contribution {
    bool there;
    uint64_t version, from, to;
    struct digest base;
};

enum sim_word { SIM_FREE, SIM_SNAPSHOT, SIM_ANCHOR };

struct sim_trainer {
    bool up;
    enum sim_word word;
    uint64_t work, snapshot_work; /* units done; at the snapshot */
    uint64_t next_due_ms;
    bool final, settled;
};

struct sim_island {
    bool alive;
    uint64_t revive_ms, trainer_up_ms;
    struct sync *sync;
    uint64_t session;
    struct sim_record ledger[SIM_F_MAX][SIM_V_MAX][SIM_N_MAX];
    uint64_t flushed[SIM_F_MAX]; /* versions up to here survive a loss of power */
    struct digest chain[SIM_F_MAX];
    uint64_t version[SIM_F_MAX];
    struct sim_record next[SIM_F_MAX];                 /* our shard's result, reduced and not yet stored */
    struct sim_contribution out[SIM_F_MAX][SIM_N_MAX]; /* ours, per shard */
    struct sim_contribution in[SIM_F_MAX][SIM_N_MAX];  /* for our shard, per member */
    uint64_t counted[SIM_F_MAX][SIM_N_MAX];            /* of our work, per shard */
    struct sim_trainer trainer[SIM_F_MAX];
    uint64_t beat_ms;
    bool announce, disturbed; /* disturbed: something was killed or damaged here */
    bool blank;               /* its disk was lost: it starts from nothing */
};

struct sim_job {
    bool used;
    uint64_t due_ms, session;
    uint32_t island;
    struct sync_event event;
};

struct sim_object {
    bool used;
    uint32_t from, to;
    uint64_t from_session, to_session, try_ms;
    struct wire_key key;
};

struct sim_world {
    uint64_t seed, now_ms;
    struct env_rng rng;
    uint32_t n, fragments;
    uint64_t shards[SIM_F_MAX];
    bool link_down[SIM_N_MAX][SIM_N_MAX];
    uint64_t link_ms[SIM_N_MAX][SIM_N_MAX];
    struct sim_island island[SIM_N_MAX];
    struct sim_job jobs[SIM_JOBS_MAX];
    struct sim_object objects[SIM_OBJECTS_MAX];
    size_t jobs_end, objects_end; /* all after are unused */
    uint32_t waiting_most;        /* objects of one fragment on their way from one island to another, at a time */
    struct sim_record truth[SIM_F_MAX][SIM_V_MAX][SIM_N_MAX];
    struct digest chain[SIM_F_MAX][SIM_V_MAX];
    bool chain_known[SIM_F_MAX][SIM_V_MAX];
    uint64_t ids;
    bool healing;
    unsigned loss_percent, kill_permille;
    uint32_t quorum;
    bool finishing;
    bool flips; /* memory is damaged and disks are lost now and then: then only agreement in the end is held */
};

/* The world; its owner allocates it, zeroed, and sets n, fragments, shards, rng and the percentages. */
extern struct sim_world *sim;

#define SIM_HOLDS(condition, ...)                                                                                  \
    do {                                                                                                           \
        if (!(condition)) {                                                                                        \
            print_error("seed %llu at %llu ms: ", (unsigned long long)sim->seed, (unsigned long long)sim->now_ms); \
            print_error(__VA_ARGS__);                                                                              \
            fail_msg(" (repeat with TEST_SEED=%llu)", (unsigned long long)sim->seed);                              \
        }                                                                                                          \
    } while (0)

uint64_t sim_below(uint64_t bound);
bool sim_chance(unsigned percent);

/* A daemon begins, from its ledger; its trainer follows with sim_trainers_up(). */
void sim_start(uint32_t i);
/* It is killed, and comes back at its revive_ms. */
void sim_crash(uint32_t i);
void sim_trainers_up(uint32_t i);
void sim_kill_trainer(uint32_t i);
void sim_set_link(uint32_t a, uint32_t b, bool down);

/* Everything that is due at now_ms. */
void sim_turn(void);

#endif
