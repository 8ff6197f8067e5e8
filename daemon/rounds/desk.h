/* SPDX-License-Identifier: Apache-2.0 */
/*
 * desk: what all jobs of the rounds share: the run's parts, what each fragment's anchor is and who reads it, whether
 * zstd pays, and what the disk said last.
 *
 * Readers: a job that reads an anchor begins and ends reading it; who changes it (an outer step, a peer's state, a
 * residual that moves) waits until nobody reads, and is told by EVENT_UNREAD.
 * Users: jobs that encode or reduce work on the parts that a fragment is cut in. Who wants it cut anew, for a version
 * of other parts, waits until there are no users and no readers; who was refused is told by EVENT_UNREAD, too. The
 * loop's thread owns it; jobs read `conf` and, of the fragment they work on, what cannot change under them.
 */
#ifndef DAEMON_ROUNDS_DESK_H
#define DAEMON_ROUNDS_DESK_H

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
    /* Keeps the proof that the member of this id signed two results of one part; any thread. */
    enum err (*save_proof)(const char *folder, uint32_t id, const uint8_t *bytes, size_t bytes_count);
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
struct desk_sent {
    uint64_t version;     /* 0: nothing, or it is not whole */
    struct digest digest; /* of the contribution, as its object says */
};

struct desk_fragment {
    struct store_fragment state; /* version, step, hash of the anchor */
    struct desk_sent sent[PLAN_SHARDS_MAX];
    struct digest made; /* our result that was stored last; its residual is pending */
    uint32_t readers;   /* jobs that read the anchor */
    uint32_t users;     /* jobs that work on the present parts */
    bool users_wanted;  /* someone waits for them to end */
};

/* Whether zstd behind the codec shortens a transfer on this link. Both ways are measured on what is really encoded; the
 * shorter one is used, and the other tried again now and then. */
struct squeeze {
    struct squeeze_side {
        double seconds, bytes; /* per value, smoothed */
        uint64_t samples;
    } side[2]; /* without, with */
    uint64_t asked;
};

struct desk {
    struct rounds_conf conf;
    struct desk_fragment *fragments;
    uint32_t id; /* ours: the same in all epochs; jobs ask for it while the view changes */
    uint64_t now_ms;
    uint64_t uplink_bits; /* per second, as measured; 0: not known */
    struct squeeze squeeze;
    struct standing standing;
    char disk_note[480]; /* why the disk cannot be written, and what to do; "" if it can */
    struct log_limit disk_said;
    uint64_t refused_since_ms; /* since when nothing of a round can be kept; 0: it can */
    uint64_t probe_ms;         /* when it is tried whether it can */
    size_t refused_bytes;      /* the most that was refused */
    struct job_pool probes;
    bool probing;
};

ERR_MUST_CHECK enum err desk_init(struct desk *desk, const struct rounds_conf *conf);
void desk_deinit(struct desk *desk);

uint32_t desk_self(const struct desk *desk); /* slot; not for jobs */
uint32_t desk_id(const struct desk *desk);   /* ours */
uint32_t desk_fragments(const struct desk *desk);
const char *desk_name(const struct desk *desk, uint32_t member);
/* Values of some shards. */
uint64_t desk_values(const struct desk *desk, uint32_t f, uint64_t shards);

/* What some shards have on average of their values. */
double desk_average(const struct desk *desk, uint32_t f, uint64_t shards, const double by_shard[PLAN_SHARDS_MAX]);
/* What a member's contribution to some shards says of the tokens behind each, by number; and on average. */
uint64_t desk_tokens(const struct desk *desk, uint32_t f, uint64_t shards, uint32_t id, const struct wire_meta *meta,
                     uint64_t by_shard[PLAN_SHARDS_MAX]);

/* The parts of a version, as daemon/state/parts.h has them. */
uint32_t desk_parts(const struct desk *desk, uint32_t f, uint64_t version, struct chain_part parts[CHAIN_PARTS_MAX]);
/* The part that an object's key names, and its index; CHAIN_PARTS_MAX: there is none. */
uint32_t desk_part(const struct desk *desk, const struct wire_key *key, struct chain_part *part);
/* The part of a version that we are to make, and its index; CHAIN_PARTS_MAX: there is none. */
uint32_t desk_own_part(const struct desk *desk, uint32_t f, uint64_t version, struct chain_part *part);

/* Cuts the replica into the parts of a version, as far as they are not carried. False: jobs are under way, and
 * EVENT_UNREAD follows when they are not; or there is no memory for it, and the daemon ends. */
bool desk_cut(struct desk *desk, uint32_t f, uint64_t version);
void desk_use_begin(struct desk *desk, uint32_t f);
void desk_use_end(struct desk *desk, uint32_t f);
/* Whether there are users; if so, EVENT_UNREAD follows. */
bool desk_used(struct desk *desk, uint32_t f);
/* The shards whose last contribution went out for a version after `version`. */
uint64_t desk_in_flight(const struct desk *desk, uint32_t f, uint64_t version);

void desk_read_begin(struct desk *desk, uint32_t f);
void desk_read_end(struct desk *desk, uint32_t f);

/* The hash of a fragment as replica_hash() makes it, on all threads that have nothing else to do; for a job. */
ERR_MUST_CHECK enum err desk_hash(const struct desk *desk, uint32_t f, uint64_t version, uint64_t step,
                                  struct jobs_scratch *scratch, struct digest *hash);

/* The disk refused: remembered for status, logged now and then; or it works. */
void desk_disk_failed(struct desk *desk, const char *text);
void desk_disk_works(struct desk *desk);
/* The same of what a round waits for: a result, ours or another's, or what made a version, of so many bytes. From then
 * on as many are written and removed every two seconds, until that succeeds: rounds may have gone on without us, and
 * bring nothing to keep. */
void desk_round_refused(struct desk *desk, size_t bytes, const char *text);
/* Looks after that; once a tick. */
void desk_probe(struct desk *desk);
/* Whether that has been refused for so long that the others had better go on without us. */
bool desk_refuses(const struct desk *desk);

/* A job of the pool; NULL when out of memory: a round that one cannot go on with would stand for ever, so the daemon
 * then ends in order and goes on from the ledger when it is started again. */
void *desk_job(struct desk *desk, struct job_pool *pool);
/* Room in a slot for the object of some shards; false as above. */
bool desk_room(struct desk *desk, struct slot *slot, uint32_t f, uint64_t shards);
void desk_submit(struct desk *desk, struct job *job, enum jobs_work work, job_run *run, job_done *done);

/* Whether the next range is encoded with zstd, as the link asks for. `measured`: the other way is tried now and then,
 * and squeeze_note() on `squeeze` follows. */
bool desk_compress(struct desk *desk, bool measured);
/* On a job's thread. */
ERR_MUST_CHECK enum err desk_set_compression(const struct desk *desk, bool compress, struct codec *codec);

/* Schedules count on the step that an object names. ERR_PROTO. */
ERR_MUST_CHECK enum err desk_check_step(const struct desk *desk, const struct wire_meta *meta);

/* What an object says that we make: a contribution to a part, or the result of our own. */
struct wire_object desk_object(const struct desk *desk, enum wire_kind kind, const struct chain_part *part);
/* Whether an object is the one of this name, of this run, and holds these shards. ERR_PROTO. */
ERR_MUST_CHECK enum err desk_check_object(const struct desk *desk, const struct wire_object *what,
                                          const struct wire_key *key, uint64_t shards);

/* What became of an object that came in: for its sender. */
void desk_judged(struct desk *desk, uint32_t peer, const struct wire_key *key, enum wire_done done);
void desk_post(struct desk *desk, const struct sync_event *event);
/* Which result of a part is to be applied: the one that the core holds, or, where it holds none, the first one that the
 * ledger has. */
struct result_id desk_result(const struct desk *desk, const struct chain_part *part);

/* ---- whether zstd pays: pure, the caller brings the measurements ---- */

/* The way found best on a link of `bits_per_s` (0: not known). */
bool squeeze_best(const struct squeeze *squeeze, double bits_per_s);
/* Whether the next range is to be compressed; squeeze_note() follows. Now and then the way that is not the best. */
bool squeeze_next(struct squeeze *squeeze, double bits_per_s);

/* What encoding `values` values took, and how large they became. */
void squeeze_note(struct squeeze *squeeze, bool with, uint64_t values, double seconds, uint64_t bytes);

#endif
