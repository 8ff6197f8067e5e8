/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/rounds/copy.h"

#include <inttypes.h>
#include <string.h>

#include "common/mem.h"

/* Leaves that a job digests at a time, so that rounds never wait for more than some milliseconds behind it. */
enum { LEAVES_AT_A_TIME = 128 };

struct copy {
    struct round_context *context;
    struct keep *keep;
    struct start_job **kept; /* [fragments]: initial tensors, on their way to the disk; NULL: none */
    struct job_pool gives, starts, served;
};

/* The anchor to an area. */
struct publish_job {
    struct job job;
    struct copy *copy;
    uint32_t f;
    float *area;
};

/* The anchor to the base area, or from it. */
struct start_job {
    struct job job;
    struct copy *copy;
    uint32_t f;
    float *base;
    bool initial;
    struct digest hash; /* out, with `initial` */
};

/* A state, for others; then its leaves. */
struct serve_job {
    struct job job;
    struct copy *copy;
    struct served_state *served;
    size_t done; /* leaves */
};

enum err copy_new(struct round_context *context, struct keep *keep, struct copy **out)
{
    TRY(mem_new(1, sizeof **out, "rounds", out));
    **out = (struct copy){.context = context,
                          .keep = keep,
                          .gives.job_bytes = sizeof(struct publish_job),
                          .starts.job_bytes = sizeof(struct start_job),
                          .served.job_bytes = sizeof(struct serve_job)};
    return mem_new(round_context_fragments(context), sizeof *(*out)->kept, "rounds", &(*out)->kept);
}

void copy_free(struct copy *copy)
{
    if (copy == NULL)
        return;
    job_pool_deinit(&copy->gives);
    job_pool_deinit(&copy->starts);
    job_pool_deinit(&copy->served);
    mem_free(copy->kept);
    mem_free(copy);
}

static size_t anchor_bytes(const struct round_context *context, uint32_t f)
{
    return (size_t)context->conf.plan->plan->fragments[f].values_count * sizeof(float);
}

static enum err run_publish(struct job *job, struct jobs_scratch *scratch)
{
    struct publish_job *j = (struct publish_job *)(void *)job;
    const struct round_context *context = j->copy->context;
    (void)scratch;
    memcpy(j->area, replica_anchor(context->conf.replica, j->f), anchor_bytes(context, j->f));
    return ERR_OK;
}

static void done_publish(struct job *job)
{
    struct publish_job *j = (struct publish_job *)(void *)job;
    struct copy *copy = j->copy;
    uint32_t f = j->f;
    job_pool_give(&copy->gives, j);
    event_post(copy->context->conf.events, &(struct event){.type = EVENT_PUBLISHED, .fragment = f});
    round_context_read_end(copy->context, f);
}

void copy_publish(struct copy *copy, uint32_t f, float *area)
{
    struct publish_job *j = round_context_job(copy->context, &copy->gives);
    if (j == NULL)
        return;
    j->copy = copy;
    j->f = f;
    j->area = area;
    round_context_read_begin(copy->context, f);
    round_context_submit(copy->context, &j->job, JOBS_PUBLISH, run_publish, done_publish);
}

static enum err run_start(struct job *job, struct jobs_scratch *scratch)
{
    struct start_job *j = (struct start_job *)(void *)job;
    const struct round_context *context = j->copy->context;
    float *anchor = replica_anchor(context->conf.replica, j->f);
    if (!j->initial) {
        memcpy(j->base, anchor, anchor_bytes(context, j->f));
        return ERR_OK;
    }
    memcpy(anchor, j->base, anchor_bytes(context, j->f));
    return round_context_hash(context, j->f, 0, 0, scratch, &j->hash);
}

static void tell_started(struct start_job *j)
{
    struct copy *copy = j->copy;
    event_post(
        copy->context->conf.events,
        &(struct event){.type = EVENT_STARTED, .fragment = j->f, .start = {.initial = j->initial, .hash = j->hash}});
    job_pool_give(&copy->starts, j);
}

/* What counts on top of initial tensors would be lost with them: first they go to the disk. */
static void keep_first(struct start_job *j)
{
    struct copy *copy = j->copy;
    round_context_begin(copy->context, j->f, &j->hash);
    copy->kept[j->f] = j;
    keep_now(copy->keep, j->f);
}

void copy_on_disk(struct copy *copy, uint32_t f)
{
    struct start_job *j = copy->kept[f];
    copy->kept[f] = NULL;
    if (j != NULL)
        tell_started(j);
}

static void done_start(struct job *job)
{
    struct start_job *j = (struct start_job *)(void *)job;
    struct copy *copy = j->copy;
    uint32_t f = j->f;
    if (job->err != ERR_OK) { /* out of memory: the run must not begin with a hash that is none */
        event_post_fatal(copy->context->conf.events, job->text);
        job_pool_give(&copy->starts, j);
    } else if (j->initial && !sync_known(copy->context->conf.sync, f)) {
        keep_first(j);
    } else {
        tell_started(j);
    }
    round_context_read_end(copy->context, f);
}

void copy_start(struct copy *copy, uint32_t f, float *base, bool initial)
{
    struct start_job *j = round_context_job(copy->context, &copy->starts);
    if (j == NULL)
        return;
    j->copy = copy;
    j->f = f;
    j->base = base;
    j->initial = initial;
    round_context_read_begin(copy->context, f);
    round_context_submit(copy->context, &j->job, JOBS_PUBLISH, run_start, done_start);
}

/* ---- for other islands ---- */

static enum err run_leaves(struct job *job, struct jobs_scratch *scratch)
{
    struct serve_job *j = (struct serve_job *)(void *)job;
    const struct rounds_conf *conf = &j->copy->context->conf;
    const struct served_state *served = j->served;
    size_t count = state_object_leaves(served->bytes), end = j->done + LEAVES_AT_A_TIME;
    (void)scratch;
    end = end < count ? end : count;
    state_object_digest(served->object, served->bytes, j->done, end, served->leaves);
    j->done = end;
    if (end < count)
        return ERR_OK;
    return state_object_check(conf->replica, conf->plan->plan, served->f, &served->state, served->bytes,
                              served->leaves);
}

static void done_leaves(struct job *job)
{
    struct serve_job *j = (struct serve_job *)(void *)job;
    struct round_context *context = j->copy->context;
    if (j->done < state_object_leaves(j->served->bytes)) {
        round_context_submit(context, &j->job, JOBS_STATES, run_leaves, done_leaves);
        return;
    }
    if (job->err != ERR_OK)
        log_error("the state of fragment %" PRIu32 " cannot be given to others: %s", j->served->f, job->text);
    event_post(context->conf.events, &(struct event){.type = EVENT_STATE_SERVED,
                                                     .fragment = j->served->f,
                                                     .server = {.served = j->served, .err = job->err}});
    job_pool_give(&j->copy->served, j);
}

static enum err run_serve(struct job *job, struct jobs_scratch *scratch)
{
    struct serve_job *j = (struct serve_job *)(void *)job;
    const struct rounds_conf *conf = &j->copy->context->conf;
    (void)scratch;
    state_object_make(conf->replica, conf->plan->plan, j->served->f, &j->served->state, j->served->object);
    return ERR_OK;
}

static void done_serve(struct job *job)
{
    struct serve_job *j = (struct serve_job *)(void *)job;
    struct round_context *context = j->copy->context;
    round_context_read_end(context, j->served->f);
    round_context_submit(context, &j->job, JOBS_STATES, run_leaves, done_leaves);
}

void copy_serve(struct copy *copy, struct served_state *served)
{
    struct round_context *context = copy->context;
    struct serve_job *j = round_context_job(context, &copy->served);
    if (j == NULL)
        return;
    j->copy = copy;
    j->served = served;
    round_context_read_begin(context, served->f);
    round_context_submit(context, &j->job, JOBS_STATES, run_serve, done_serve);
}
