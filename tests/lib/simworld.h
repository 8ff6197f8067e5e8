/*
 * simworld: N islands in virtual time: the protocol's real state machines under a seeded network that delays, loses,
 * reorders, repeats and cuts, also one way only; daemons and trainers that are killed, daemons that are stopped for a
 * while, disks that come back older or empty, memory that is damaged; jobs that take their time. What work went where
 * is kept as numbers, so that every result can be held against the truth. For tests/sim; one world at a time.
 */
#ifndef TESTS_LIB_SIMWORLD_H
#define TESTS_LIB_SIMWORLD_H

#include "tests/lib/testlib.h"

#include "net/sync.h"

enum { SIM_N_MAX = 64, SIM_F_MAX = 3, SIM_V_MAX = 400, SIM_SMALL = 8 /* islands of most runs */ };
enum { SIM_JOBS_MAX = 1 << 15, SIM_OBJECTS_MAX = 1 << 15, SIM_BEATS_MAX = 1 << 15, SIM_RECORDS_MAX = 1 << 17 };
enum { SIM_STEP_MS = 20, SIM_SILENT_MS = 1000 };
/* Contributions and results of two rounds each, a state, and what was asked for: however long a link is away. */
enum { SIM_WAITING_MAX = 8 };

/* Who contributed to a result, and which stretch (from, to] of each island's work it carries. Its number in the world
 * names it; 0: none. */
struct sim_record {
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

/* What survives the daemon. */
struct sim_disk {
    uint32_t *ledger;      /* [fragments][SIM_V_MAX][n]: numbers of records */
    bool blank[SIM_F_MAX]; /* nothing on it: it starts without a state */
    uint64_t version[SIM_F_MAX];
    struct digest chain[SIM_F_MAX]; /* the checkpoint; the ledger leads on from it */
};

struct sim_island {
    bool alive;
    uint64_t revive_ms, trainer_up_ms, go_on_ms; /* go_on_ms: stopped until then */
    struct sync *sync;
    uint64_t session;
    struct sim_disk disk, older; /* older: as it was some time ago */
    uint64_t flushed[SIM_F_MAX]; /* versions up to here survive a loss of power */
    struct digest chain[SIM_F_MAX];
    uint64_t version[SIM_F_MAX];
    uint32_t next[SIM_F_MAX];                          /* our shard's result, reduced and not yet stored */
    struct sim_contribution out[SIM_F_MAX][SIM_N_MAX]; /* ours, per shard */
    struct sim_contribution in[SIM_F_MAX][SIM_N_MAX];  /* for our shard, per member */
    uint64_t counted[SIM_F_MAX][SIM_N_MAX];            /* of our work, per shard */
    struct sim_trainer trainer[SIM_F_MAX];
    uint64_t beat_ms, sequence;
    bool announce, disturbed; /* disturbed: something was killed or damaged here */
    /* what it knows of the others */
    uint64_t greeted[SIM_N_MAX];  /* the session that is up; 0: none */
    uint64_t heard_ms[SIM_N_MAX]; /* when it could last be heard */
    uint64_t taken_in[SIM_N_MAX]; /* sequence of its last heartbeat */
    uint64_t greeted_last[SIM_N_MAX];
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

struct sim_beat {
    bool used, taking_part;
    uint32_t from, to;
    uint64_t session, sequence, due_ms;
    struct wire_fragment rows[SIM_F_MAX];
};

struct sim_world {
    uint64_t seed, now_ms;
    struct env_rng rng;
    uint32_t n, fragments;
    uint64_t shards[SIM_F_MAX];
    bool link_down[SIM_N_MAX][SIM_N_MAX]; /* [from][to] */
    uint64_t link_ms[SIM_N_MAX][SIM_N_MAX];
    struct sim_island island[SIM_N_MAX];
    size_t jobs_end, objects_end, beats_end, records_end; /* all after are unused */
    uint32_t waiting_most; /* objects of one fragment on their way from one island to another, at a time */
    uint32_t truth[SIM_F_MAX][SIM_V_MAX][SIM_N_MAX]; /* numbers of records */
    struct digest chain[SIM_F_MAX][SIM_V_MAX];
    bool chain_known[SIM_F_MAX][SIM_V_MAX];
    uint64_t ids;
    bool healing, finishing;
    unsigned loss_percent, kill_permille;
    uint32_t quorum;
    bool flips; /* memory is damaged now and then */
    bool disks; /* a disk comes back older or empty now and then */
};

extern struct sim_world *sim;

#define SIM_HOLDS(condition, ...)                                                                                  \
    do {                                                                                                           \
        if (!(condition)) {                                                                                        \
            print_error("seed %llu at %llu ms: ", (unsigned long long)sim->seed, (unsigned long long)sim->now_ms); \
            print_error(__VA_ARGS__);                                                                              \
            fail_msg(" (repeat with TEST_SEED=%llu)", (unsigned long long)sim->seed);                              \
        }                                                                                                          \
    } while (0)

/* A world of n islands, none of which has started. The caller sets fragments, shards and the percentages. */
void sim_begin(uint64_t seed, uint32_t n);
/* Ends all islands; the memory is kept for the next world. */
void sim_end(void);
void sim_free(void);

uint64_t sim_below(uint64_t bound);
bool sim_chance(unsigned percent);

/* A result on an island's disk, and the true one; 0: none. */
uint32_t *sim_held(struct sim_disk *disk, uint32_t f, uint64_t version, uint32_t shard);
const struct sim_record *sim_record(uint32_t number);

void sim_step(uint32_t i, const struct sync_event *event);
bool sim_stopped(uint32_t i);
/* The island's anchor is at the next version, which is on its disk. */
void sim_arrive_at(uint32_t i, uint32_t f, uint64_t version);

/* Everything that is due at now_ms. */
void sim_turn(void);

/* ---- trouble: simtrouble.c ---- */

/* A daemon begins, from its disk; its trainer follows with sim_trainers_up(). */
void sim_start(uint32_t i);
/* It is killed, and comes back at its revive_ms. */
void sim_crash(uint32_t i);
/* It stands still for a while, and nobody is told. */
void sim_stop(uint32_t i);
void sim_trainers_up(uint32_t i);
void sim_kill_trainer(uint32_t i);
/* What `from` sends does not come to `to`. */
void sim_cut(uint32_t from, uint32_t to);
/* What the seed has in store for this moment. */
void sim_disturb(void);
/* What was killed, stopped or cut comes back when its time has come. */
void sim_mend(void);

#endif
