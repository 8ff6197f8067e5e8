/*
 * engine: the daemon's heart: what the loop's thread owns, and the calls between the files that work on it.
 *
 *   engine.c    start and end, the plan, the sync core's actions handed out, timers
 *   rounds*.c   a round's arithmetic as jobs: encode, reduce, store, apply, give, install, checkpoint
 *   exchange.c  peers: greetings, heartbeats, objects in and out
 *   port.c      the trainer's socket and shared memory
 *   workers.c   the trainer's process
 *   control.c   dilococtl's socket;  status.c  what it shows
 *
 * Only the loop's thread touches struct engine. Jobs get what they need in their own struct and the arrays of the
 * fragment they work on; the sync core sees to it that no two of them want the same.
 */
#ifndef DAEMON_ENGINE_H
#define DAEMON_ENGINE_H

#include <poll.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/env.h"
#include "common/err.h"
#include "common/log.h"
#include "common/runspec.h"
#include "daemon/dconf.h"
#include "daemon/jobs.h"
#include "daemon/state/ledger.h"
#include "daemon/state/model_plan.h"
#include "daemon/state/replica.h"
#include "daemon/rounds/squeeze.h"
#include "daemon/state/store.h"
#include "net/ident.h"
#include "net/link.h"
#include "net/meter.h"
#include "net/pace.h"
#include "net/sync.h"
#include "net/xfer.h"

struct engine;
struct port;
struct workers;
struct control;

/* Memory for one object that is made, sent or received. Allocated when first used, then kept. */
struct slot {
    uint8_t *data;
    size_t bytes_max, bytes;
    uint64_t version; /* of the object in it; 0: none */
    bool busy;        /* a job or a transfer is at it */
};

struct engine_fragment {
    struct slot *out;            /* [members]: our contribution per shard */
    struct slot *in;             /* [members]: contributions to our shard */
    struct slot *result;         /* [members]: results received, on their way into the ledger */
    struct slot own;             /* the result of our shard */
    struct store_fragment state; /* version, step, hash */
    uint64_t encoded_version;    /* last one this process encoded a contribution for; 0: none */
    uint64_t mixed_shards;       /* bit s: an applied result counts us and the trainer has not taken it in yet */
    bool void_work;              /* the snapshot was refused: the trainer's values are replaced by the next anchor */
    uint32_t parts_left;         /* jobs of the step under way */
    enum err parts_err;
    struct replica_size *sizes;      /* [members]: of the results being applied, by shard */
    uint64_t apply_included;         /* of the apply under way: shards that count us */
    uint32_t readers;                /* jobs that read the anchor; who changes it waits for them */
    uint64_t apply_waits;            /* version to apply then; 0: none */
    uint64_t stored_waits;           /* our own result, durable, to be counted then; 0: none */
    struct round_job *install_waits; /* a peer's state to take over then */
    bool checkpointing;
    uint64_t checkpoint_version; /* on disk */
    uint64_t store_again_ms;     /* our result could not be written: when to try again */
    uint8_t *state_in;           /* a peer's state on its way in */
};

struct engine_peer {
    bool greeted; /* a hello of the present session was accepted */
    bool up;      /* greeted and heard from lately */
    uint64_t session;
    uint64_t heard_ms, hello_ms, beat_ms;
    uint64_t sequence_in, sequence_in_ms;   /* last heartbeat received */
    uint64_t sequence_out, sequence_out_ms; /* last one sent */
    uint32_t rtt_ms;
    uint64_t window_bytes; /* what it takes in unacknowledged; 0: not told yet */
    bool plan_known;
    struct digest plan_id;
    struct wire_heartbeat *last; /* last heartbeat, without fragments */
    struct wire_fragment *said;  /* [fragments]: what we last told it */
    uint32_t refresh;            /* next fragment to repeat */
    struct log_limit trouble, outlier_said;
    uint64_t outliers;            /* its contributions that we, as an owner, left out or scaled down */
    bool refused;                 /* it, or we, would not talk: not a matter of time */
    char note[WIRE_REASON_BYTES]; /* why it is not up, for status; "" if nothing is known */
};

/* Something served from outside the slots: a mapped ledger record, or a copy. */
struct served {
    bool used;
    uint32_t peer;
    struct wire_key key;
    struct ledger_map map;
    uint8_t *copy;
};
enum { ENGINE_SERVED_MAX = 64 };

struct engine {
    const struct dconf *conf;
    struct runspec spec;
    struct ident ident;
    struct view view;
    uint64_t session;
    uint64_t now_ms;

    struct ledger *ledger;
    struct jobs *jobs;
    struct link *link;
    struct xfer *xfer;
    struct pace pace;
    struct meter meter;     /* our uplink, as seen */
    struct squeeze squeeze; /* whether zstd pays on it */
    struct log_limit feedback_said;
    uint64_t chunk_wait_us;

    struct model_plan *plan; /* NULL until known */
    uint8_t *plan_in;        /* one on its way in */
    uint64_t plan_ms;        /* when to ask for it (again) */
    struct replica *replica;
    struct sync *sync;
    struct engine_fragment *fragments;
    uint64_t memory_bytes;
    struct round_job *free_jobs;

    struct engine_peer *peers;
    struct served served[ENGINE_SERVED_MAX];
    bool announce;
    uint64_t announce_ms;

    struct port *port;
    struct workers *workers;
    struct control *control;

    uint64_t start_ms, tick_ms, sample_ms, checkpoint_ms;
    bool exporting, export_wanted;
    bool export_follows; /* our trainer is done: the file is written again when other islands' last rounds come in */
    uint64_t exported_versions, export_ms;    /* sum of versions in the file; when it was written */
    uint64_t versions_seen, versions_seen_ms; /* the sum, and since when it stands */
    char export_note[320];                    /* last outcome */
    bool stopping;
    bool failed; /* something the daemon cannot go on without; its text is in fatal_note */
    char fatal_note[320];
    char disk_note[320];                  /* why the disk cannot be written; "" if it can */
    uint64_t stranger_count, stranger_ms; /* ms: the last one */
    char stranger_note[300];
    uint64_t objects_sent_bytes; /* of payload */
};

/* ---- engine.c ---- */
ERR_MUST_CHECK enum err engine_new(const struct dconf *conf, struct engine **out);
void engine_free(struct engine *engine);
/* Runs until `*stop` is set by a signal, then ends in order. */
ERR_MUST_CHECK enum err engine_run(struct engine *engine, int signal_fd);
/* Gives the sync core an event and carries out what it orders. */
void engine_event(struct engine *engine, const struct sync_event *event);
/* Makes the plan known: allocates, restores from disk, starts the sync core. On failure the plan is the engine's if
 * engine->plan is set, and the daemon cannot go on; if not (ERR_NOMEM: it is too large) it is still the caller's. */
ERR_MUST_CHECK enum err engine_set_plan(struct engine *engine, struct model_plan *plan);
/* The daemon cannot go on: the loop ends in order and reports this. */
void engine_fail(struct engine *engine, const char *text);
uint32_t engine_fragments(const struct engine *engine);
/* Highest run step among the results applied. */
uint64_t engine_step(const struct engine *engine);

/* ---- rounds.c ---- */
void rounds_encode(struct engine *engine, uint32_t f, uint64_t version);
/* Of the contributions that our shard's owner has. */
void rounds_reduce(struct engine *engine, uint32_t f, uint64_t version);
void rounds_store(struct engine *engine, uint32_t f, uint64_t version);
void rounds_apply(struct engine *engine, uint32_t f, uint64_t version);
/* The anchor is copied to the trainer's area, which is ours (word IPC_FILLING); port_given() follows. */
void rounds_give(struct engine *engine, uint32_t f, float *area);
/* The anchor is copied to the base area, or with `initial` taken from it and hashed; port_started() follows. */
void rounds_start(struct engine *engine, uint32_t f, float *base, bool initial);
/* Shards whose result of `version` counts us, as the ledger has them. */
uint64_t rounds_included(struct engine *engine, uint32_t f, uint64_t version);
/* A complete object lies in its buffer: check it, then tell the sync core and the sender. */
void rounds_contribution_in(struct engine *engine, uint32_t peer, const struct wire_key *key, uint64_t bytes);
void rounds_result_in(struct engine *engine, uint32_t peer, const struct wire_key *key, uint64_t bytes);
void rounds_state_in(struct engine *engine, uint32_t peer, const struct wire_key *key, uint64_t bytes);
void rounds_checkpoint(struct engine *engine, uint32_t f);
void rounds_export(struct engine *engine);
/* Once a tick: writes it again after our own trainer is done, as later versions come in. */
void rounds_export_follow(struct engine *engine);
void rounds_free_jobs(struct engine *engine);
/* Makes sure a slot has room for one object over `values` values. */
ERR_MUST_CHECK enum err rounds_slot_room(struct engine *engine, struct slot *slot, uint32_t f, uint32_t shard);
/* Recovers fragment `f` from checkpoint and ledger, at start; true if it has a state. */
ERR_MUST_CHECK enum err rounds_recover(struct engine *engine, uint32_t f, bool *known, uint64_t *results);

/* ---- exchange.c ---- */
ERR_MUST_CHECK enum err exchange_new(struct engine *engine);
void exchange_free(struct engine *engine);
/* Takes in everything that arrived and sends what may go. */
void exchange_run(struct engine *engine);
void exchange_tick(struct engine *engine);
void exchange_send(struct engine *engine, const struct wire_key *key, uint32_t member);
void exchange_fetch(struct engine *engine, const struct wire_key *key, uint32_t member);
void exchange_retire(struct engine *engine, uint32_t f, uint64_t version);
/* No result of our shard up to `version` is sent from its slot any more. */
void exchange_retire_results(struct engine *engine, uint32_t f, uint64_t version);
void exchange_bye(struct engine *engine, const char *reason);
/* The plan is known: peers learn of it. */
ERR_MUST_CHECK enum err exchange_plan_known(struct engine *engine);

/* ---- port.c, port_fragment.c ---- */
ERR_MUST_CHECK enum err port_new(struct engine *engine);
void port_free(struct engine *engine);
/* Tells the trainer how far the run is, by the furthest island. */
void port_run_step(struct engine *engine, uint64_t step);
size_t port_poll(struct engine *engine, struct pollfd *items, size_t items_max);
void port_run(struct engine *engine);
void port_tick(struct engine *engine);
void port_leave(struct engine *engine);
/* sync's orders */
void port_release(struct engine *engine, uint32_t f);
void port_give(struct engine *engine, uint32_t f);
void port_take_back(struct engine *engine, uint32_t f);
/* The anchor lies in the trainer's area (after rounds_give()). */
void port_given(struct engine *engine, uint32_t f);
/* The anchor lies in the base area, or the trainer's initial values are the anchor (after rounds_start()). */
void port_started(struct engine *engine, uint32_t f, bool initial, const struct digest *hash);
/* A result was applied: which shards count us. */
void port_counted(struct engine *engine, uint32_t f, uint64_t shards);
/* What rounds_encode() reads; every job that reads the shared memory holds it with a pin. */
struct port_snapshot {
    const float *base, *theta;
    uint64_t step, tokens;
    uint64_t counted_tokens[WIRE_MEMBERS_MAX];
};
bool port_snapshot(struct engine *engine, uint32_t f, struct port_snapshot *out);
/* Whether jobs are taking a trainer's initial tensors over as the anchor. */
bool port_initialising(const struct engine *engine);
void port_pin(struct engine *engine);
void port_unpin(struct engine *engine);

struct port_info {
    bool attached, training, finishing, finished;
    uint32_t pid;
    char trainer[64];
    uint64_t step, tokens;
    double loss, tokens_per_s, lr, grad_norm;
    uint64_t report_ms;
};
struct port_info port_info(const struct engine *engine);

/* ---- workers.c ---- */
enum workers_state {
    WORKERS_OFF,
    WORKERS_STOPPED,
    WORKERS_RUNNING,
    WORKERS_LEAVING,
    WORKERS_WAITING,
    WORKERS_FINISHED
};
ERR_MUST_CHECK enum err workers_new(struct engine *engine);
void workers_free(struct engine *engine);
size_t workers_poll(struct engine *engine, struct pollfd *items, size_t items_max);
void workers_run(struct engine *engine);
void workers_tick(struct engine *engine);
ERR_MUST_CHECK enum err workers_join(struct engine *engine);
ERR_MUST_CHECK enum err workers_leave(struct engine *engine);
/* Without waiting for the last contributions to be counted. */
ERR_MUST_CHECK enum err workers_leave_now(struct engine *engine);
/* The trainer said that it is done: its end is not a failure. */
void workers_finished(struct engine *engine);
/* Asks the trainer to end (SIGTERM); it saves first. */
void workers_stop(struct engine *engine);
bool workers_running(const struct engine *engine);
struct workers_info {
    enum workers_state state;
    int pid;
    unsigned failures;
    uint64_t next_start_ms;
    char note[320];
};
struct workers_info workers_info(const struct engine *engine);
const char *workers_state_name(enum workers_state state);

/* ---- control.c ---- */
ERR_MUST_CHECK enum err control_new(struct engine *engine);
void control_free(struct engine *engine);
size_t control_poll(struct engine *engine, struct pollfd *items, size_t items_max);
void control_run(struct engine *engine);

/* ---- status.c ---- */
struct json_t;
struct json_t *status_json(struct engine *engine);
struct json_t *status_peers_json(struct engine *engine);
struct json_t *status_fragments_json(struct engine *engine);
/* One line for systemd's status field. */
void status_line(struct engine *engine, char *line, size_t line_bytes);

#endif
