/* SPDX-License-Identifier: Apache-2.0 */
/*
 * simworld: N islands in virtual time, each with the protocol core (net/sync) and the membership (net/membership) that
 * the daemon has, and a host of the world's own: under a seeded network that delays, loses, reorders, repeats and cuts,
 * also one way only; daemons and trainers that are killed, some for good, proposers that die between seal and decision,
 * daemons that are stopped for a while, disks that take their time, fill up, or come back older or empty, power that is
 * lost everywhere, memory that is damaged, a member that lies; jobs that take their time. What work went where is kept
 * as numbers, so that every result can be held against the truth. For tests/sim; one world at a time.
 *
 * Islands are numbers here. Their ids are others (sim_id()), and every island has slots of its own for the members
 * (sim_slot()), so that who takes one for the other is seen. Signatures are tags (tests/fakes/tagged_ident.c).
 */
#ifndef TESTS_LIB_SIMWORLD_H
#define TESTS_LIB_SIMWORLD_H

#include "net/config/config_proof.h"
#include "tests/lib/testlib.h"

#include "net/config/config_log.h"
#include "net/config/view.h"
#include "net/config/certificate.h"
#include "net/membership/key_turns.h"
#include "net/membership/membership.h"
#include "net/sync/sync.h"
#include "net/membership/wire_paxos.h"

enum { SIM_N_MAX = 64, SIM_F_MAX = 3, SIM_V_MAX = 400, SIM_SMALL = 8, /* islands of most runs */ SIM_NINE = 9 };
enum { SIM_SHARDS_MAX = SHARDMAP_SLOTS, SIM_SHARDS_FEW = 7, SIM_EPOCHS_MAX = 512 };
enum { SIM_JOBS_MAX = 1 << 15, SIM_OBJECTS_MAX = 1 << 15, SIM_BEATS_MAX = 1 << 15, SIM_RESULTS_MAX = 1 << 17 };
enum { SIM_ALTERED_MAX = 1 << 11 };
enum { SIM_CONFIGS_MAX = 1 << 13, SIM_LETTERS_MAX = 1 << 15, SIM_MESSAGE_MAX = 1 << 20 };
enum { SIM_FORGIVE_MS = 20 * 60 * 1000 }; /* docs/PROTOCOL.md: after so long one loss of a member is forgotten */
enum { SIM_SAID = 64 };                   /* numbers of orders, and of words, that are remembered */
enum { SIM_LINE_MS = 80, SIM_STEP_MS = 20, SIM_SILENT_MS = 1000, SIM_AWAY_MS = 3000 };
/* Contributions and results of two rounds each, a state, and what was asked for, of two versions where a draft rests on
 * them: however long a link is away. */
enum { SIM_WAITING_MAX = 16 };

/* A result of a part: who contributed to it, and which stretch (from, to] of each island's work it carries. Its number
 * in the world names it; 0: none. */
struct sim_result {
    uint32_t fragment, owner;
    uint64_t version, epoch, shards, contributors;
    uint32_t *spans;       /* [n][1 + shards_count]: to, and from by shard */
    uint32_t twin;         /* the other one that a liar made of the same part; 0: none */
    uint64_t acknowledged; /* by these islands, durably, while it could count */
    bool committed;
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
    uint64_t flushed[SIM_F_MAX];   /* commits up to this version are durable: a result came after them */
    uint64_t epoch, epoch_first;   /* the newest configuration it has, and the first that has it */
    bool fresh;                    /* nothing was ever on it */
    uint64_t number, incarnation;  /* of durable votes; of the disk */
    uint64_t stored;               /* how many results were, ever */
    uint64_t vote_epoch, promised, accepted, own;
    uint32_t accepted_config; /* its number in the world */
    uint64_t evidence;        /* of these islands: that they signed two results of one part */
    struct said_numbers numbers;
    uint64_t numbers_of; /* this incarnation */
};

/* Outside the disk; it does not survive the machine (daemon/membership/vote.h). */
struct sim_mark {
    bool there;
    enum vote_doubt doubt; /* of this disk, which has not been forgiven yet */
    uint64_t number, incarnation, stored, named, trusted_epoch;
};

/* Every configuration that anyone composed; its number in the world names it, 0: none. */
struct sim_config {
    struct config config;
    uint8_t *bytes;
    size_t bytes_count;
    struct digest digest;
    bool proposed, decided;
    struct config_vote votes[CONFIG_VOTERS_MAX];
    uint32_t votes_count;
};

/* A message of the epoch protocol, packed. */
struct sim_letter {
    uint32_t from, to;
    uint64_t from_session, to_session, due_ms; /* 0: not used */
    uint32_t type;
    uint8_t *bytes;
    size_t bytes_count;
};

/* A vote on its way to the disk. */
struct sim_saving {
    uint64_t number, due_ms; /* number: 0: there is none */
    struct paxos_vote vote;
    uint32_t accepted; /* the number of its configuration in the world */
};

/* An island's voice in who takes part, and what of it is on its way to the disk. */
struct sim_voice {
    uint32_t self; /* the island */
    struct membership *membership;
    struct ident ident, next;           /* next: that its word states; zeros: none */
    struct sim_saving writing, unsaved; /* unsaved: the newest, where another one is being written */
    uint32_t keeping;                   /* the number of the configuration that was decided; 0: none */
    uint64_t kept_ms;                   /* when it is durable */
    bool taken, wants;                  /* the configuration that was decided waits; the core is to be stepped */
    struct bitset silent;               /* members that we do not hear, by slot */
    uint64_t tick_ms, admit_ms;
};

/* Of an island, beside its disks (tests/lib/simkeys.c). */
struct sim_keys {
    struct ident own, before, next; /* before: zeros: it has its first; */ /* next: zeros: it asks for no other, nor did
                                                                              and may still be given it */
    bool asks;                                                             /* for `next`; else it was taken back */
    bool links_by_next;
    uint32_t made;
    struct key_turns turns;
};

struct sim_island {
    struct sim_keys keys;
    bool joined;      /* some configuration has it */
    bool alive, gone; /* gone: for good */
    bool die;         /* as soon as what it does now is done */
    bool witness;
    bool wants_shards;
    bool dials; /* it cannot be dialled: no two of these meet */
    uint64_t uplink;
    struct sim_mark mark;
    struct view view;
    struct certificates *certificates; /* NULL: of the witness */
    struct voting_disk voting;
    uint64_t full_ms;                  /* the disk takes nothing until then */
    uint64_t clock_ms;                 /* by how much its clock has jumped */
    uint64_t drains_ms;                /* it leaves until then, by its own word */
    uint64_t up_free_ms, down_free_ms; /* when its lines have sent, and brought, what they are at */
    bool forgot; /* what its disks had up to this incarnation, which a configuration may still come to name */
    uint64_t forgot_upto;
    struct sim_voice voice;
    uint64_t revive_ms, trainer_up_ms, go_on_ms; /* go_on_ms: stopped until then */
    struct sync *sync;
    struct config_log *config_log;
    uint64_t session, epoch;
    uint64_t known;              /* members of its newest configuration */
    struct sim_disk disk, older; /* older: as it was some time ago */
    struct {
        uint64_t orders[SIM_SAID], words[SIM_SAID];
    } said; /* the numbers that it gave last, the newest first */
    struct digest hash[SIM_F_MAX];
    uint64_t version[SIM_F_MAX];
    bool step_by_step[SIM_F_MAX]; /* it applied what its configurations say; no state of a later epoch was taken over */
    uint32_t next[SIM_F_MAX];     /* our part's result, reduced and not yet stored */
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
    bool sent; /* it has had its turn on the lines, and is tried at `try_ms` */
    uint32_t from, to;
    uint64_t number; /* in the order in which they were handed over */
    uint64_t from_session, to_session, delay_ms, try_ms;
    struct wire_key key;
};

enum sim_lie {
    SIM_HONEST,
    SIM_LIE_VERSION,  /* it says that it is a million versions ahead */
    SIM_LIE_HASH,     /* that it has another state */
    SIM_LIE_HELD,     /* that it holds results that there are not */
    SIM_LIE_MUTE,     /* that it contributes, and sends nothing */
    SIM_LIE_IDLE,     /* it owns parts and makes no result */
    SIM_LIE_DRAFT,    /* it is a million versions ahead, wants all to start there, and answers nobody, or falsely */
    SIM_LIE_PROMISE,  /* in its seals, that it has versions and results that there are not */
    SIM_LIE_LOSES,    /* it acknowledges what others made, and does not keep it */
    SIM_LIE_TWO,      /* it makes two results of its part and sends one to each half of the others */
    SIM_LIE_TWO_ACKS, /* and tells each half that it holds the one that this half has */
    SIM_LIE_SEAL,     /* it promises, and goes on making and acknowledging results */
    SIM_LIES,
    SIM_LIE_COPY = SIM_LIES, /* it does not lie: its disk was copied, and two daemons speak with its key, in turns */
    SIM_LIE_ORDER,           /* it is no operator, gives orders and forges others', and proposes what no order says */
    SIM_LIE_LEAVES_OUT, /* it hears no order and no word, and gives one after the other, so that it goes on proposing */
    SIM_LIE_DRAINS,     /* it is about to leave, and is not, by turns */
    SIM_LIE_FLAPS,      /* it is heard, and is not, by turns */
    SIM_LIE_DISK,       /* its disk keeps nothing, and does again, by turns */
    SIM_LIE_NAMES,      /* it says that it does not hear who owns nothing, and one more after the other */
    SIM_LIE_HIDES       /* likewise, and these hear nothing of it */
};

/* What happened, so that nobody takes an idle world for a sound one. */
struct sim_tally {
    unsigned blackouts, recoveries, older, emptied, witness_disks, deaths, joined, proposers_died, forks, named, swaps,
        stuck, apart, equivocated, full, uncommitted, asked, forgiven, turns, distrusted, rekeyed, paused, misproposed;
    uint64_t line_ms; /* for which objects held a line */
};

struct sim_world {
    uint64_t seed, now_ms;
    struct env_rng rng;
    uint32_t n, fragments, places;
    uint32_t shards_counts[SIM_F_MAX];
    bool link_down[SIM_N_MAX][SIM_N_MAX]; /* [from][to] */
    bool severed[SIM_N_MAX][SIM_N_MAX];   /* [from][to]: cut until all are to come to rest */
    uint64_t link_ms[SIM_N_MAX][SIM_N_MAX];
    size_t jobs_end, objects_end, results_end; /* all after are unused */
    uint64_t objects_count;                    /* how often one was handed over */
    size_t beats_end, beats_free;              /* free: those before are used */
    uint32_t waiting_most; /* objects of one fragment on their way from one island to another, at a time */
    uint32_t truth[SIM_F_MAX][SIM_V_MAX][SIM_SHARDS_MAX]; /* numbers of the results that were applied */
    struct digest hash[SIM_F_MAX][SIM_V_MAX];
    bool hash_known[SIM_F_MAX][SIM_V_MAX];
    uint64_t sessions;
    uint64_t sever_ms; /* when a line is cut that stays cut; 0: never */
    bool healing, finishing;
    bool rekeys; /* islands change their keys */
    unsigned loss_percent, kill_permille;
    unsigned shuffle_permille; /* how often who wants to own, or an uplink, changes for no reason */
    uint32_t quorum;
    uint32_t line_ms;          /* how long an object may take, about, apart from its turn on the lines */
    uint32_t fragment_ms;      /* how long a whole fragment holds a line; 0: no time */
    bool jumps;                /* a clock jumps now and then */
    bool forgives;             /* losses are, since clocks jump by hours */
    bool people;               /* ask for an eviction now and then, or drain an island */
    bool pauses;               /* the run is paused now and then, and goes on; in the end it does */
    uint64_t pause_ms;         /* when people order that next */
    uint64_t paused_ms;        /* since when all that are alive know that it is paused; 0: they do not */
    uint64_t begun[SIM_F_MAX]; /* and the version up to which one may be made since */
    uint32_t disk_ms;          /* how long a vote or a configuration may take to be durable; 0: no time */
    bool full;                 /* a disk takes nothing for a while, now and then */
    bool flips;                /* memory is damaged now and then */
    bool disks;                /* a disk comes back older or empty now and then, or without what was not flushed */
    bool deaths;               /* an island goes for good now and then */
    bool blackouts;            /* power is lost everywhere now and then */
    enum sim_lie lie;
    uint32_t liar, second; /* `second`: lies, too, if `second_lie` is not SIM_HONEST */
    enum sim_lie second_lie;
    bool copied;                      /* its disk is, and a second daemon has begun */
    bool steady, lying;               /* it lies all the time since it began, and nothing else is wrong */
    bool beyond;                      /* a configuration was decided that rests on disks which were lost while it was */
    bool evicted;                     /* the liar, by people, once it was named */
    bool forked;                      /* by a liar's fault a result counts that the next configuration may not name */
    bool split;                       /* and two results of one part were applied */
    uint32_t ids[SIM_N_MAX];          /* 0: not on the roster yet */
    uint32_t decided[SIM_EPOCHS_MAX]; /* numbers of the configurations */
    struct sim_island other;          /* of the two daemons the one that nobody hears now */
    uint64_t losses_ms[SIM_NINE][SIM_NINE]; /* [member][i]: i's clock when a configuration first said its losses */
    uint64_t newest, incarnations;
    uint32_t configs_count, altered_count;
    size_t letters_end;
    uint32_t upto[SIM_F_MAX][SIM_SHARDS_MAX][SIM_N_MAX]; /* of each island's work, what has been counted */
    struct sim_tally tally;
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

/* With TEST_TRACE=1 a world tells its story: one line for what islands do to configurations and disks. */
void sim_tell(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* A world of n islands, none of which has started. The caller sets fragments, shards and the percentages, and then
 * calls sim_found(). */
void sim_begin(uint64_t seed, uint32_t n);
void sim_new_disk(struct sim_disk *disk);
/* Ends all islands; the memory is kept for the next world. */
void sim_end(void);
void sim_free(void);

uint64_t sim_below(uint64_t bound);
bool sim_chance(unsigned percent);

/* Time as island i has it. */
uint64_t sim_clock(uint32_t i);
/* The slot that island i has for island k, and back. */
uint32_t sim_slot(uint32_t i, uint32_t k);
uint32_t sim_at(uint32_t i, uint32_t slot);
/* Whether i's newest configuration has k. */
bool sim_knows(uint32_t i, uint32_t k);
/* Whether they hear each other. */
bool sim_linked(uint32_t i, uint32_t k);
/* Whether a line is between them at all. */
bool sim_meet(uint32_t i, uint32_t k);
/* What its people say of owning: enum config_owner_choice. */
uint8_t sim_owner_choice(uint32_t i);

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
bool sim_keeps(const struct sim_disk *disk, uint32_t number);
/* A result that is there stays there. */
void sim_keep(uint32_t i, uint32_t number);
/* A result that is made as `number` was; its digest is another. */
uint32_t sim_twin(uint32_t number);
/* The result of a part that a disk holds; 0: none. `owner`: its number. */
uint32_t sim_find(const struct sim_disk *disk, uint32_t f, uint64_t version, uint64_t epoch, uint32_t owner);

void sim_step(uint32_t i, const struct sync_event *event);
void sim_drain(uint32_t i);
bool sim_stopped(uint32_t i);
/* The island's anchor is at the next version, which its disk says is made of these results. */
void sim_arrive_at(uint32_t i, uint32_t f, uint64_t version);
/* Tells the core what the ledger has of the next version. */
void sim_tell_held(uint32_t i, uint32_t f);
/* Likewise when it has just come to its version; then, that this was all. */
void sim_tell_listed(uint32_t i, uint32_t f);
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
/* What the island acknowledges of a fragment's next version is noted. */
void sim_note_acknowledged(uint32_t i, uint32_t f);
void sim_run_island(uint32_t i);

/* ---- configurations, and letters about them: simconfigs.c ---- */

/* Configuration 0: the islands that are admitted, of which those own shards that want to. */
void sim_found(void);
void sim_configs_end(void);
/* The number of the configuration of this digest; 0: there is none. */
uint32_t sim_config_of(const struct digest *digest);
uint32_t sim_config_add(const struct config *config);
struct sim_config *sim_config(uint32_t number);
const struct config *sim_newest(void);
/* Of its trainer's data, as many as its uplink is odd. */
uint32_t sim_units(uint32_t i);
/* The run step that results of a version name. */
uint64_t sim_run_step(uint32_t f, uint64_t version);
/* What common/deal.c rests on: whatever an island has applied, no configuration that it does not know yet deals data as
 * if that were not so. */
void sim_check_deal(uint32_t i);
/* A configuration is decided: there is no other of its epoch, and it goes on from the one before. */
void sim_decided(uint32_t i, uint32_t number, const struct config_vote *votes, uint32_t votes_count);
uint32_t sim_id(uint32_t i);
/* The island of this id; sim->n: none. */
uint32_t sim_of(uint32_t id);
/* Its config log as far as its disk knows it. */
void sim_load_config_log(uint32_t i);
struct sync_view sim_view(uint32_t i);
/* The mark says what the disk has. */
void sim_mark(uint32_t i);
/* Puts the next configuration, which was decided, at the end of the island's config log. */
void sim_extend(uint32_t i);
void sim_send_letter(uint32_t from, uint32_t to, uint32_t type, const uint8_t *bytes, size_t bytes_count);
void sim_letters_in(void);
/* Whether all that can still be decided can be, without one more island (n: none): a majority of the voters of the
 * newest configuration, and of those proposed since, lives, and their disks are not in doubt. */
bool sim_can_spare(uint32_t without);

/* ---- the host of net/membership: simhost.c ---- */

struct ident sim_ident(uint32_t i); /* its first */
/* Whether one of the two can open a connection to the other, by the keys that they have, and know of each other. */
bool sim_lets_in(uint32_t i, uint32_t k);
/* Its newest configuration may have given it another key. */
void sim_keys_settle(uint32_t i);
/* Who hears nobody tries the other key. */
void sim_keys_tick(uint32_t i);
/* Somebody asks for another key, takes that back, or orders it. */
void sim_rekey(void);
/* The signer of a result, by the configuration of its epoch. */
struct ident sim_ident_in(uint32_t i, uint64_t epoch);
/* The island begins, its config log and view loaded; and when its core is there. */
void sim_voice_start(uint32_t i);
void sim_voice_plan_known(uint32_t i);
void sim_voice_end(uint32_t i);
void sim_voice_letter(uint32_t i, const struct sim_letter *letter);
void sim_voice_up(uint32_t i, uint32_t k, bool up);
/* A heartbeat of island k; and our own, which goes out. */
void sim_voice_heard(uint32_t i, uint32_t k, const struct wire_heartbeat *beat);
void sim_voice_beat(uint32_t i, const struct wire_heartbeat *beat);
void sim_voice_tick(uint32_t i);
/* Somebody asks there for another number of steps. */
/* So many to SIM_ORDERED_STEPS - 1 of them, beyond all that a world counts; a liar orders more. */
enum { SIM_ORDERED_FROM = 100000, SIM_ORDERED_STEPS = 200000 };
void sim_voice_order_steps(uint32_t i);
/* Likewise, that the run goes on without an island. */
void sim_voice_order_out(uint32_t i, uint32_t whom);
/* Likewise, that the run is paused, or goes on. */
void sim_voice_order_pause(uint32_t i, bool pause);
/* Whether island i knows that the run is paused: its trainers stand. */
bool sim_stands(uint32_t i);
bool sim_votes(uint32_t i);
bool sim_in_doubt(uint32_t i);
bool sim_disk_full(uint32_t i);

/* What island i's newest configuration says of island k; NULL: nothing. */
const struct config_member *sim_member_of(uint32_t i, uint32_t k);

/* ---- who lies: simliar.c ---- */

bool sim_is_liar(uint32_t i);

bool sim_lies(uint32_t i, enum sim_lie lie);
/* What the liar makes of its heartbeat to island `to`. */
struct sim_beat;
void sim_lie_beat(uint32_t i, uint32_t to, struct wire_fragment *rows, struct wire_held *held, uint32_t *held_count);
/* At every tick: now and then it proposes a configuration of its own. */
void sim_lie_draft(uint32_t i);
/* Whom it says that it does not hear, and whether it is silent to `to`. `ids`: [SIM_N_MAX] */
void sim_lie_silent(uint32_t i, uint32_t *ids, uint32_t *count);
bool sim_lie_hides(uint32_t i, uint32_t to);
/* What it says in its seal. */
void sim_lie_promise(uint32_t i, struct paxos_message *out);
/* Now and then: orders to all others, which it may not give. */
void sim_lie_order(uint32_t i);
/* What a configuration that it proposes says besides: mem_free() the bytes. */
void sim_lie_config(uint32_t i, const struct paxos_message *message, uint8_t **bytes, size_t *bytes_count);
/* Whether a configuration is one of those, as of the last SIM_ALTERED_MAX. */
bool sim_is_lie(const struct digest *digest);
/* Island i has both results that island k made of one part: the evidence is kept, and told. */
void sim_prove(uint32_t i, uint32_t number);
enum err sim_save_evidence(uint32_t i, uint32_t k, const uint8_t *bytes, size_t bytes_count);
enum err sim_load_evidence(uint32_t i, uint32_t k, uint8_t **bytes, size_t *bytes_count);
/* The result that the liar sends to `to` instead of its own. */
uint32_t sim_lie_result(uint32_t to, uint32_t number);

/* ---- the invariants: simcheck.c ---- */

/* The island is about to be at `version`, which its disk says is made of these results. */
void sim_check_applied(uint32_t i, uint32_t f, uint64_t version);
void sim_check_hash(uint32_t i, uint32_t f);
/* It says, durably, that it holds a result. */
void sim_check_acknowledged(uint32_t i, uint32_t f, uint32_t number);
/* It has taken in a new configuration. */
void sim_check_epoch(uint32_t i);

/* ---- trouble: simtrouble.c ---- */

/* A daemon begins, from its disk; its trainer follows with sim_trainers_up(). */
void sim_start(uint32_t i);
/* It is killed, and comes back at its revive_ms. */
void sim_crash(uint32_t i);
/* Power is lost everywhere. */
void sim_blackout(void);
/* The liar's disk is copied, and a second daemon begins on another machine; from then on they take turns. */
void sim_take_turns(void);
/* It stands still for a while, and nobody is told. */
void sim_stop(uint32_t i);
void sim_trainers_up(uint32_t i);
void sim_kill_trainer(uint32_t i);
/* What `from` sends does not come to `to`. */
void sim_cut(uint32_t from, uint32_t to);
void sim_sever(uint32_t from, uint32_t to);
/* What the seed has in store for this moment. */
void sim_disturb(void);
/* What was killed, stopped or cut comes back when its time has come. */
void sim_repair(void);

#endif
