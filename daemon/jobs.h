/* SPDX-License-Identifier: Apache-2.0 */
/*
 * jobs: a few threads for the work that takes long: encoding, averaging, outer steps, hashing, disk.
 *
 * The loop submits and takes finished jobs back; a job runs on one thread, with that thread's scratch, and may share
 * out pieces of its work to threads that have nothing else to do. JOBS_SAVE jobs run on a thread of their own, one
 * after the other and without scratch, and so do JOBS_VOTE jobs on another, and JOBS_DIAL jobs on a third: a slow disk
 * or line keeps nothing else waiting, and a long checkpoint no vote. Jobs of the same fragment are never
 * under way together unless they touch different shards; that is the submitter's business. jobs_submit(),
 * jobs_take_back() and pools are for the loop's thread, jobs_share() for a job's.
 */
#ifndef DAEMON_JOBS_H
#define DAEMON_JOBS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"
#include "outer_opt/codec.h"

/* What a job's processor time is booked under. */
enum jobs_work {
    JOBS_ENCODE,  /* our contributions */
    JOBS_CHECK,   /* others' contributions: whether they are whole */
    JOBS_REDUCE,  /* our results */
    JOBS_STORE,   /* our results into the ledger */
    JOBS_RECEIVE, /* others' results: whether they are whole, and into the ledger */
    JOBS_APPLY,   /* outer steps */
    JOBS_HASH,    /* of versions */
    JOBS_PUBLISH, /* anchors to and from the trainer: they come before all others that wait */
    JOBS_STATES,  /* whole states: for others, from others, from our own disk */
    JOBS_SAVE,    /* checkpoints and exports */
    JOBS_VOTE,    /* votes and configurations, made durable */
    JOBS_DIAL,    /* newcomers' addresses, whether they are reached */
    JOBS_WORKS
};
/* "encode", ... */
const char *jobs_work_name(enum jobs_work work);

/* A thread's own. */
struct jobs_scratch {
    struct codec *codec;
    float *values; /* jobs_room.values of them */
    size_t values_count;
    struct jobs *jobs;   /* whose thread it is */
    enum jobs_work work; /* of the job it runs */
};

struct job;
/* Runs on a job thread; `scratch` is NULL for JOBS_SAVE, JOBS_VOTE and JOBS_DIAL. Its result goes into `err`, its text
 * into `text`. */
typedef enum err job_run(struct job *job, struct jobs_scratch *scratch);
/* Runs in the loop's thread afterwards: the submitter's own, which tells the rest of the daemon by events. */
typedef void job_done(struct job *job);

/* Embedded in the caller's struct; the caller keeps it alive until done() was called. */
struct job {
    enum jobs_work work;
    job_run *run;
    job_done *done;
    enum err err;
    char text[320];
    struct job *next, *made; /* jobs.c's */
};

struct jobs;

struct jobs_conf {
    int threads, zstd_level; /* threads: besides those of JOBS_SAVE, JOBS_VOTE and JOBS_DIAL */
    int nice;                /* added to that of the process, 0 to 19 */
};
ERR_MUST_CHECK enum err jobs_new(const struct jobs_conf *conf, struct jobs **out);
/* Waits for running jobs; drops those that were not begun. */
void jobs_free(struct jobs *jobs);

/* What a thread has room for: values of its own, and as codec_reserve() has it. */
struct jobs_room {
    size_t values, factor_values, segment_values;
};
/* Gives every thread that room. Only while no job is under way. */
ERR_MUST_CHECK enum err jobs_set_scratch(struct jobs *jobs, const struct jobs_room *room);

void jobs_submit(struct jobs *jobs, struct job *job);

/* Piece `i` of a job's work, with the scratch of the thread it runs on. */
typedef enum err job_piece(void *user, size_t i, struct jobs_scratch *scratch);
/* Runs all `count` pieces, in any order and on as many threads as are free, the caller's among them, and returns when
 * all have ended. A piece is no job: it shares nothing out itself. Its processor time is booked under the job's work.
 * `scratch`: of the job that calls; NULL: the caller runs all of them, with none. Returns the error of the first piece
 * that failed, by its number. */
ERR_MUST_CHECK enum err jobs_share(struct jobs_scratch *scratch, size_t count, job_piece *run, void *user);

/* A descriptor that is readable while finished jobs wait to be taken back. */
int jobs_fd(const struct jobs *jobs);
/* Takes one finished job back and calls its done(); false: there is none. */
bool jobs_take_back(struct jobs *jobs);
/* Processor time that jobs of each kind have taken so far, of those that are done, in nanoseconds. */
void jobs_cpu(struct jobs *jobs, uint64_t ns[JOBS_WORKS]);
/* What the job did that was taken back last. */
enum jobs_work jobs_taken(const struct jobs *jobs);
/* Jobs submitted and not yet taken back. */
size_t jobs_pending(const struct jobs *jobs);

/* ---- memory for jobs of one kind: allocated when first needed, then kept for the next ---- */

struct job_pool {
    size_t job_bytes; /* of the struct that begins with struct job */
    struct job *free, *made;
};

/* A zeroed job; NULL when out of memory, with the error recorded. */
void *job_pool_take(struct job_pool *pool);
void job_pool_give(struct job_pool *pool, void *job);
/* Frees all, also those that were never given back; none may be under way. */
void job_pool_deinit(struct job_pool *pool);

#endif
