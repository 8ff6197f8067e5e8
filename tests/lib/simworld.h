/*
 * simworld: N islands in virtual time: the protocol's real state machines under a seeded network that delays, loses,
 * reorders, repeats and cuts, also one way only; daemons and trainers that are killed, some for good, daemons that are
 * stopped for a while, disks that come back older or empty, memory that is damaged; jobs that take their time; epochs
 * that begin on every island at another moment. What work went where is kept as numbers, so that every result can be
 * held against the truth. For tests/sim; one world at a time.
 *
 * Islands are numbers here. Their ids are others (roster_id()), and every island has slots of its own for the members
 * (sim_slot()), so that who takes one for the other is seen.
 */
#ifndef TESTS_LIB_SIMWORLD_H
#define TESTS_LIB_SIMWORLD_H

#include "tests/lib/testlib.h"

#include "net/sync.h"

enum { SIM_N_MAX = 64, SIM_F_MAX = 3, SIM_V_MAX = 400, SIM_SMALL = 8 /* islands of most runs */ };
enum { SIM_SHARDS_MAX = SHARDMAP_SLOTS, SIM_SHARDS_FEW = 7, SIM_EPOCHS_MAX = 512 };
enum { SIM_JOBS_MAX = 1 << 15, SIM_OBJECTS_MAX = 1 << 15, SIM_BEATS_MAX = 1 << 15, SIM_RESULTS_MAX = 1 << 17 };
enum { SIM_STEP_MS = 20, SIM_SILENT_MS = 1000 };
/* Contributions and results of two rounds each, a state, and what was asked for: however long a link is away. */
enum { SIM_WAITING_MAX = 8 };

/* A result of a part: who contributed to it, and which stretch (from, to] of each island's work it carries. Its number
 * in the world names it; 0: none. */
struct sim_result {
    uint32_t fragment, owner;
    uint64_t version, epoch, shards, contributors;
    uint32_t *spans; /* [n][1 + shards_count]: to, and from by shard */
};

struct sim_contribution {
    bool there;
    uint64_t version, epoch;
    uint32_t to, from[SIM_SHARDS_MAX];
    struct digest base;
};

enum sim_word { SIM_FREE, SIM_SNAPSHOT, SIM_ANCHOR };

struct sim_trainer {
    bool up;
    enum sim_word word;
    uint32_t work, snapshot_work; /* units done; at the snapshot */
    uint64_t next_due_ms;
    bool settled;
};

/* What survives the daemon. */
struct sim_disk {
    uint32_t *ledger;      /* [fragments][SIM_V_MAX][places]: numbers of results */
    uint32_t *commits;     /* [fragments][SIM_V_MAX][shards]: which of them made the version */
    bool blank[SIM_F_MAX]; /* nothing on it: it starts without a state */
    uint64_t version[SIM_F_MAX];
    struct digest hash[SIM_F_MAX]; /* the checkpoint; the commits lead on from it */
    uint64_t epoch;                /* the newest record it has; it has all before */
    bool sealed;                   /* in this epoch */
};

struct sim_island {
    bool enrolled;    /* some record has it */
    bool alive, gone; /* gone: for good */
    bool wants_shards;
    uint64_t incarnation;                        /* of its disk */
    uint64_t revive_ms, trainer_up_ms, go_on_ms; /* go_on_ms: stopped until then */
    uint64_t joined_ms;                          /* when it was last in touch with half of the others */
    struct sync *sync;
    struct chain *chain;
    uint64_t session, epoch;
    uint64_t known;              /* members of its newest record */
    struct sim_disk disk, older; /* older: as it was some time ago */
    struct digest hash[SIM_F_MAX];
    uint64_t version[SIM_F_MAX];
    uint32_t next[SIM_F_MAX];                         /* our part's result, reduced and not yet stored */
    uint32_t applying[SIM_F_MAX][SIM_SHARDS_MAX];     /* results of the version that is being applied */
    struct sim_contribution out[SIM_F_MAX];           /* ours */
    struct sim_contribution in[SIM_F_MAX][SIM_N_MAX]; /* for our part, per member */
    uint32_t counted[SIM_F_MAX][SIM_SHARDS_MAX];      /* of our work */
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
    uint32_t island, result; /* result: what is being stored */
    struct sync_event event;
};

struct sim_object {
    bool used;
    uint32_t from, to;
    uint64_t from_session, to_session, try_ms;
    struct wire_key key;
};

/* What a voter told when it was sealed. */
struct sim_seal {
    bool given;
    uint64_t version[SIM_F_MAX];
    uint32_t held_count[SIM_F_MAX];
    uint32_t held[SIM_F_MAX][CHAIN_PARTS_MAX]; /* numbers of results that it acknowledged */
};

/* Those who decide on the next epoch: simcouncil.c. */
struct sim_council {
    struct digest digests[SIM_EPOCHS_MAX];
    struct chain *chain; /* all that were decided */
    uint64_t epoch;      /* the newest */
    bool sitting;
    uint64_t since_ms, next_ms;
    struct sim_seal seals[SIM_N_MAX];
    bool witness; /* is a voter, who never fails */
};

struct sim_world {
    uint64_t seed, now_ms;
    struct env_rng rng;
    uint32_t n, fragments, places;
    uint32_t shards_counts[SIM_F_MAX];
    bool link_down[SIM_N_MAX][SIM_N_MAX]; /* [from][to] */
    uint64_t link_ms[SIM_N_MAX][SIM_N_MAX];
    size_t jobs_end, objects_end, results_end; /* all after are unused */
    size_t beats_end, beats_free;              /* free: those before are used */
    uint32_t waiting_most; /* objects of one fragment on their way from one island to another, at a time */
    uint32_t truth[SIM_F_MAX][SIM_V_MAX][SIM_SHARDS_MAX]; /* numbers of the results that were applied */
    struct digest hash[SIM_F_MAX][SIM_V_MAX];
    bool hash_known[SIM_F_MAX][SIM_V_MAX];
    uint64_t ids;
    bool healing, finishing;
    unsigned loss_percent, kill_permille;
    unsigned shuffle_permille; /* how often the council changes the owners for no reason */
    uint32_t quorum;
    bool flips;  /* memory is damaged now and then */
    bool disks;  /* a disk comes back older or empty now and then, or without what was not flushed */
    bool deaths; /* an island goes for good now and then */
    struct sim_council council;
    struct sim_island island[SIM_N_MAX]; /* the last: cleared as far as it is used */
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

/* A world of n islands, none of which has started. The caller sets fragments, shards and the percentages, and then
 * calls sim_found(). */
void sim_begin(uint64_t seed, uint32_t n);
/* Ends all islands; the memory is kept for the next world. */
void sim_end(void);
void sim_free(void);

uint64_t sim_below(uint64_t bound);
bool sim_chance(unsigned percent);

/* The slot that island i has for island k, and back. */
uint32_t sim_slot(uint32_t i, uint32_t k);
uint32_t sim_at(uint32_t i, uint32_t slot);
/* Whether i's newest record has k. */
bool sim_knows(uint32_t i, uint32_t k);
/* Whether they hear each other. */
bool sim_linked(uint32_t i, uint32_t k);

const struct sim_result *sim_result(uint32_t number);
uint32_t sim_from(const struct sim_result *result, uint32_t island, uint32_t shard);
uint32_t sim_to(const struct sim_result *result, uint32_t island);
/* Results are told apart by their digests, which bear their numbers. */
struct digest sim_digest(uint32_t number);
uint32_t sim_number(const struct digest *digest);

/* The results of a version that a disk holds: sim->places numbers; unused ones are 0. */
uint32_t *sim_ledger(const struct sim_disk *disk, uint32_t f, uint64_t version);
/* What made the version, by shard; 0: it is not there. */
uint32_t *sim_commit(const struct sim_disk *disk, uint32_t f, uint64_t version);
/* The result of a part that a disk holds; 0: none. */
uint32_t sim_find(const struct sim_disk *disk, uint32_t f, uint64_t version, uint64_t epoch, uint32_t owner);

void sim_step(uint32_t i, const struct sync_event *event);
void sim_drain(uint32_t i);
bool sim_stopped(uint32_t i);
/* The island's anchor is at the next version, which its disk says is made of these results. */
void sim_arrive_at(uint32_t i, uint32_t f, uint64_t version);
/* Tells the core what the ledger has of the next version. */
void sim_tell_held(uint32_t i, uint32_t f);
/* Puts something on its way; the caller's jobs report back as events. */
void sim_add_job(uint32_t i, uint64_t delay_ms, struct sync_event event, uint32_t result);
void sim_add_object(uint32_t from, uint32_t to, const struct wire_key *key);

/* Everything that is due at now_ms. */
void sim_turn(void);

/* ---- what goes over the network, and what trainers do: simisland.c ---- */

void sim_try_objects(void);
/* What island i has on its way, and does not send any more. */
void sim_retire(uint32_t i, uint32_t kind, uint32_t f, uint64_t version_max);
void sim_beats_in(void);
void sim_run_island(uint32_t i);

/* ---- epochs: simcouncil.c ---- */

/* Record 0: the islands that are enrolled, of which those own shards that want to. */
void sim_found(void);
void sim_council_end(void);
/* Those who decide meet if there is a reason, seal, and decide when they may. */
void sim_council(void);
/* The island takes in the newer records of others. */
void sim_learn(uint32_t i);
/* Its chain as far as its disk knows it. */
void sim_load_chain(uint32_t i);
struct sync_view sim_view(uint32_t i);
/* Whether the disk is not the one that the newest record lets vote. */
bool sim_in_doubt(uint32_t i);
/* Whether the others could still decide and certify if island i were lost, or its disk. */
bool sim_can_spare(uint32_t i);

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
