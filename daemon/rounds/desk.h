/*
 * desk: what all jobs of the rounds share: the run's parts, what each fragment's anchor is and who reads it, whether
 * zstd pays, and what the disk said last. Private to rounds/.
 *
 * Readers: a job that reads an anchor begins and ends reading it; who changes it (an outer step, a peer's state, a
 * residual that moves) waits until nobody reads, and is told by EVENT_UNREAD.
 * The loop's thread owns it; jobs read `conf` and, of the fragment they work on, what cannot change under them.
 */
#ifndef DAEMON_ROUNDS_DESK_H
#define DAEMON_ROUNDS_DESK_H

#include "common/log.h"
#include "daemon/rounds/rounds_types.h"
#include "daemon/rounds/squeeze.h"
#include "net/wire_object.h"

struct desk_fragment {
    struct store_fragment state; /* version, step, hash of the anchor */
    uint64_t encoded_version;    /* last one this process encoded a contribution for; 0: none */
    uint32_t readers;            /* jobs that read the anchor */
};

struct desk {
    struct rounds_conf conf;
    struct desk_fragment *fragments;
    uint64_t now_ms;
    uint64_t uplink_bits; /* per second, as measured; 0: not known */
    struct squeeze squeeze;
    char disk_note[320]; /* why the disk cannot be written; "" if it can */
    struct log_limit disk_said;
};

ERR_MUST_CHECK enum err desk_init(struct desk *desk, const struct rounds_conf *conf);
void desk_deinit(struct desk *desk);

uint32_t desk_self(const struct desk *desk);
uint32_t desk_fragments(const struct desk *desk);
const char *desk_name(const struct desk *desk, uint32_t member);
/* Values of a shard; 0: it is empty and has no owner. */
uint64_t desk_values(const struct desk *desk, uint32_t f, uint32_t shard);

void desk_read_begin(struct desk *desk, uint32_t f);
void desk_read_end(struct desk *desk, uint32_t f);

/* The disk refused: remembered for status, logged now and then; or it works. */
void desk_disk_failed(struct desk *desk, const char *text);
void desk_disk_works(struct desk *desk);

/* A job of the pool; NULL when out of memory: a round that one cannot go on with would stand for ever, so the daemon
 * then ends in order and goes on from the ledger when it is started again. */
void *desk_job(struct desk *desk, struct job_pool *pool);
/* Room in a slot for the object of a shard; false as above. */
bool desk_room(struct desk *desk, struct slot *slot, uint32_t f, uint32_t shard);
void desk_submit(struct desk *desk, struct job *job, job_run *run, job_done *done);

/* Whether the next range is encoded with zstd, as the link asks for. `measured`: the other way is tried now and then,
 * and squeeze_note() on `squeeze` follows. */
bool desk_compress(struct desk *desk, bool measured);
/* On a job's thread. */
ERR_MUST_CHECK enum err desk_set_compression(const struct desk *desk, bool compress, struct codec *codec);

/* Schedules count on the step that an object names. ERR_PROTO. */
ERR_MUST_CHECK enum err desk_check_step(const struct desk *desk, const struct wire_meta *meta);

/* Shards of a member's part, as a mask. */
uint64_t desk_shards(const struct desk *desk, uint32_t f, uint32_t owner);
/* What an object says that we make: a contribution to an owner's part, or the result of our own. */
struct wire_object desk_object(const struct desk *desk, enum wire_kind kind, uint32_t f, uint64_t version,
                               uint32_t owner);
/* Whether an object is the one of this name, of this run, and holds the shards of its owner's part. ERR_PROTO. */
ERR_MUST_CHECK enum err desk_check_object(const struct desk *desk, const struct wire_object *what,
                                          const struct wire_key *key);

/* What became of an object that came in: for its sender. */
void desk_judged(struct desk *desk, uint32_t peer, const struct wire_key *key, enum wire_done done);
void desk_post(struct desk *desk, const struct sync_event *event);
/* Fragment `f` has come to a new version: results of the next one that the ledger has already, from before a crash or
 * kept beside an older state, are told, so that others hear of them and nobody fetches or makes them again. */
void desk_post_held(struct desk *desk, uint32_t f);

#endif
