/*
 * rounds: the jobs of a round. Shared by rounds.c (contribute, reduce, store, give), rounds_apply.c and
 * rounds_disk.c (checkpoints, recovery, states). Private to them.
 */
#ifndef DAEMON_ROUNDS_H
#define DAEMON_ROUNDS_H

#include "daemon/engine.h"
#include "daemon/rules.h"

/* One job of a fragment or a shard of it. Jobs are kept for reuse when done. */
struct round_job {
    struct job job;
    struct engine *engine; /* for reading what does not change while jobs run */
    uint32_t f, shard, peer;
    uint64_t version;
    struct wire_key key;
    struct slot *slot;
    struct wire_meta meta;
    /* encode */
    const float *base, *theta;
    bool compress; /* reduce, too */
    double seconds;
    /* reduce */
    struct replica_input inputs[WIRE_MEMBERS_MAX];
    uint32_t members[WIRE_MEMBERS_MAX]; /* whose input it is */
    size_t inputs_count, bad;
    /* apply */
    bool included, own_encoding;
    /* install: `hash` is what the peer announced */
    bool expects;
    /* give, install, checkpoint, hash */
    float *area;
    uint64_t bytes;
    struct digest hash;
    struct store_fragment state;
    struct store_fragment *states;
};

/* The numbers of a result's outer step: those it brings, or, from before they travelled, the run spec's. */
struct outer_round rounds_outer(const struct engine *engine, uint64_t version, const struct wire_meta *meta);
/* Numbers that no run spec leads to are refused before they reach an anchor. */
ERR_MUST_CHECK enum err rounds_check_outer(const struct engine *engine, uint64_t version, const struct wire_meta *meta);
/* With CO2's staleness penalty, if the run has it, from the fragment's sizes. */
struct outer_round rounds_penalised(const struct engine *engine, uint32_t f, struct outer_round round);
uint64_t rounds_shard_values(struct engine *engine, uint32_t f, uint32_t shard);

/* A job with these fields set; NULL when out of memory: the daemon then ends in order. */
struct round_job *rounds_job(struct engine *engine, uint32_t f, uint32_t shard, uint64_t version);
void rounds_submit(struct engine *engine, struct round_job *r, job_run *run, job_done *done);
void rounds_recycle(struct engine *engine, struct round_job *r);

/* Around a job that reads the anchor of fragment `f`: an outer step or a peer's state wait for the end of it. */
void rounds_read_begin(struct engine *engine, uint32_t f);
void rounds_read_end(struct engine *engine, uint32_t f);
/* Takes over the state in r->engine's fragment, now or after the readers. */
void rounds_install(struct engine *engine, struct round_job *r);

/* The disk refused: remembered for status, logged now and then. */
void rounds_disk_failed(struct engine *engine, const char *text);
void rounds_disk_works(struct engine *engine);

#endif
