/* SPDX-License-Identifier: Apache-2.0 */
/*
 * round_context: shared by all jobs of the rounds: the run's parts, each fragment's anchor and its readers, whether
 * zstd pays, and the disk's last answer.
 *
 * Readers: a job that reads an anchor begins and ends reading it; who changes it (an outer step, a peer's state, a
 * residual that moves) waits until nobody reads, and is told by EVENT_UNREAD. Users: jobs that encode or reduce work on
 * the parts that a fragment is cut in. Who wants it cut anew, for a version of other parts, waits until there are no
 * users and no readers; a refused one is told by EVENT_UNREAD, too. The loop's thread owns it; jobs read `conf` and, of
 * the fragment they work on, what cannot change under them.
 */
#ifndef DAEMON_ROUNDS_ROUND_CONTEXT_H
#define DAEMON_ROUNDS_ROUND_CONTEXT_H

#include <stdbool.h>
#include <stdint.h>

#include "common/log.h"
#include "common/runspec.h"
#include "daemon/event.h"
#include "daemon/jobs.h"
#include "daemon/rounds/standing.h"
#include "daemon/state/ledger.h"
#include "daemon/state/model_plan.h"
#include "daemon/state/parts.h"
#include "daemon/state/replica.h"
#include "daemon/state/slots.h"
#include "daemon/state/store.h"
#include "net/config/view.h"
#include "net/sync/sync.h"
#include "net/transport/wire_object.h"

/* All borrowed for the life of the rounds. */
struct rounds_conf {
    const struct runspec *spec;
    const struct view *view;
    const struct ident *ident; /* ours: results are signed with it */
    const uint8_t *nonce;      /* of the run, WIRE_NONCE_BYTES */
    const struct model_plan *plan;
    const struct parts *parts;
    const char *folder; /* for checkpoints and exported anchors */
    /* Keeps the evidence that the member of this id signed two results of one part; any thread. */
    enum err (*save_evidence)(const char *folder, uint32_t id, const uint8_t *bytes, size_t bytes_count);
    bool compress_auto;
    uint64_t checkpoint_ms;   /* age at which a checkpoint is written anew; 0: none is written by itself */
    uint64_t ledger_keep;     /* bytes, as the ledger's conf has it */
    uint64_t ledger_versions; /* whose results are kept for others; 0: as many as are worth it */
    struct replica *replica;
    struct ledger *ledger;
    struct slots *slots;
    struct jobs *jobs; /* whose scratch is made fit for the plan */
    struct events *events;
    const struct sync *sync;
};

/* What this process encoded last for a shard. */
struct round_context_sent {
    uint64_t version;     /* 0: nothing, or it is not whole */
    struct digest digest; /* of the contribution, as its object says */
};

struct round_context_fragment {
    struct store_fragment state; /* version, step, hash of the anchor */
    struct round_context_sent sent[PLAN_SHARDS_MAX];
    struct digest made; /* our result that was stored last; its residual is pending */
    uint32_t readers;   /* jobs that read the anchor */
    uint32_t users;     /* jobs that work on the present parts */
    bool users_wanted;  /* someone waits for them to end */
};

/* Whether zstd behind the codec shortens a transfer on this link. Both ways are measured on real encodings; the shorter
 * one is used, and the other tried again now and then. */
struct zstd_choice {
    struct zstd_choice_side {
        double seconds, bytes; /* per value, smoothed */
        uint64_t samples;
    } side[2]; /* without, with */
    uint64_t asked;
};

struct round_context {
    struct rounds_conf conf;
    struct round_context_fragment *fragments;
    uint32_t id; /* ours: the same in all epochs; jobs ask for it while the view changes */
    uint64_t now_ms;
    /* No object names a later step (net/config/config.h, config_steps_most()); jobs look at it, too. */
    _Atomic uint64_t steps_most;
    /* Up to which run step one contribution alone is believed, as of the last tick; jobs look at it, too. */
    _Atomic uint64_t step_line;
    uint64_t uplink_bits; /* per second, as measured; 0: not known */
    struct zstd_choice zstd_choice;
    struct standing standing;
    char disk_note[480]; /* why the disk cannot be written, and what to do; "" if it can */
    struct log_limit disk_said;
    uint64_t refused_since_ms; /* since when nothing of a round can be kept; 0: it can */
    uint64_t probe_ms;         /* when it is tried whether it can */
    size_t refused_bytes;      /* the most that was refused */
    struct job_pool probes;
    bool probing;
};

ERR_MUST_CHECK enum err round_context_init(struct round_context *context, const struct rounds_conf *conf);
void round_context_deinit(struct round_context *context);

/* The run begins here: fragment `f` is at version 0 with this hash. */
void round_context_begin(struct round_context *context, uint32_t f, const struct digest *hash);
/* What the anchor of fragment `f` counts is another now: who is turned away in it. `tell`: changes are news. */
void round_context_counted(struct round_context *context, uint32_t f, bool tell);
uint32_t round_context_self(const struct round_context *context); /* slot; not for jobs */
uint32_t round_context_id(const struct round_context *context);   /* ours */
uint32_t round_context_fragments(const struct round_context *context);
const char *round_context_name(const struct round_context *context, uint32_t member);
/* Values of some shards. */
uint64_t round_context_values(const struct round_context *context, uint32_t f, uint64_t shards);

/* What some shards have on average of their values. */
double round_context_average(const struct round_context *context, uint32_t f, uint64_t shards,
                             const double by_shard[PLAN_SHARDS_MAX]);
/* What a member's contribution to some shards says of the tokens behind each, by number; and on average. */
uint64_t round_context_tokens(const struct round_context *context, uint32_t f, uint64_t shards, uint32_t id,
                              const struct wire_meta *meta, uint64_t by_shard[PLAN_SHARDS_MAX]);

/* The parts of a version, as daemon/state/parts.h has them. */
uint32_t round_context_parts(const struct round_context *context, uint32_t f, uint64_t version,
                             struct version_part parts[VERSION_PARTS_MAX]);
/* The part that an object's key names, and its index; VERSION_PARTS_MAX: there is none. */
uint32_t round_context_part(const struct round_context *context, const struct wire_key *key, struct version_part *part);
/* The part of a version that we are to make, and its index; VERSION_PARTS_MAX: there is none. */
uint32_t round_context_own_part(const struct round_context *context, uint32_t f, uint64_t version,
                                struct version_part *part);

/* Cuts the replica into the parts of a version, as far as they are not carried. False: jobs are under way, and
 * EVENT_UNREAD follows when they are not; or there is no memory for it, and the daemon ends. */
bool round_context_cut(struct round_context *context, uint32_t f, uint64_t version);
void round_context_use_begin(struct round_context *context, uint32_t f);
void round_context_use_end(struct round_context *context, uint32_t f);
/* Whether there are users; if so, EVENT_UNREAD follows. */
bool round_context_used(struct round_context *context, uint32_t f);
/* The shards whose last contribution went out for a version after `version`. */
uint64_t round_context_in_flight(const struct round_context *context, uint32_t f, uint64_t version);

void round_context_read_begin(struct round_context *context, uint32_t f);
void round_context_read_end(struct round_context *context, uint32_t f);

/* The hash of a fragment as replica_hash() makes it, on all threads that have nothing else to do; for a job. */
ERR_MUST_CHECK enum err round_context_hash(const struct round_context *context, uint32_t f, uint64_t version,
                                           uint64_t step, struct jobs_scratch *scratch, struct digest *hash);

/* The disk refused: remembered for status, logged now and then; or it works. */
void round_context_disk_failed(struct round_context *context, const char *text);
void round_context_disk_works(struct round_context *context);
/* The same of what a round waits for: a result, ours or another's, or what made a version, of so many bytes. From then
 * on as many are written and removed every two seconds, until that succeeds: rounds may have gone on without us, and
 * bring nothing to keep. */
void round_context_round_refused(struct round_context *context, size_t bytes, const char *text);
/* Looks after that; once a tick. */
void round_context_probe(struct round_context *context);
/* Whether that has been refused for so long that the others had better go on without us. */
bool round_context_refuses(const struct round_context *context);

/* A job of the pool; NULL when out of memory: a round that one cannot go on with would stand for ever, so the daemon
 * then ends in order and goes on from the ledger when it is started again. */
void *round_context_job(struct round_context *context, struct job_pool *pool);
/* Room in a slot for the object of some shards; false as above. */
bool round_context_room(struct round_context *context, struct slot *slot, uint32_t f, uint64_t shards);
void round_context_submit(struct round_context *context, struct job *job, enum jobs_work work, job_run *run,
                          job_done *done);

/* Whether the next range is encoded with zstd, as the link asks for. `measured`: the other way is tried now and then,
 * and zstd_choice_note() on `zstd_choice` follows. */
bool round_context_compress(struct round_context *context, bool measured);
/* On a job's thread. */
ERR_MUST_CHECK enum err round_context_set_compression(const struct round_context *context, bool compress,
                                                      struct codec *codec);

/* Schedules count on the step that an object names. ERR_PROTO. */
ERR_MUST_CHECK enum err round_context_check_step(const struct round_context *context, const struct wire_meta *meta);

/* What an object says that we make: a contribution to a part, or the result of our own. */
struct wire_object round_context_object(const struct round_context *context, enum wire_kind kind,
                                        const struct version_part *part);
/* Whether an object is the one of this name, of this run, and holds these shards. ERR_PROTO. */
ERR_MUST_CHECK enum err round_context_check_object(const struct round_context *context, const struct wire_object *what,
                                                   const struct wire_key *key, uint64_t shards);

/* What became of an object that came in: for its sender. */
void round_context_judged(struct round_context *context, uint32_t peer, const struct wire_key *key,
                          enum wire_done done);
void round_context_post(struct round_context *context, const struct sync_event *event);
/* Which result of a part is to be applied: the one that the core holds, or, where it holds none, the first one that the
 * ledger has. */
struct result_id round_context_result(const struct round_context *context, const struct version_part *part);

/* ---- whether zstd pays: pure, the caller brings the measurements ---- */

/* The way found best on a link of `bits_per_s` (0: not known). */
bool zstd_choice_best(const struct zstd_choice *zstd_choice, double bits_per_s);
/* Whether the next range is to be compressed; zstd_choice_note() follows. Now and then the way that is not the best. */
bool zstd_choice_next(struct zstd_choice *zstd_choice, double bits_per_s);

/* What encoding `values` values took, and how large they became. */
void zstd_choice_note(struct zstd_choice *zstd_choice, bool with, uint64_t values, double seconds, uint64_t bytes);

#endif
