/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/rounds/copy.h"

#include <string.h>

#include "common/mem.h"

struct copy {
    struct desk *desk;
    struct job_pool gives, starts;
};

/* The anchor to an area. */
struct give_job {
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

enum err copy_new(struct desk *desk, struct copy **out)
{
    TRY(mem_new(1, sizeof **out, "rounds", out));
    **out = (struct copy){
        .desk = desk, .gives.job_bytes = sizeof(struct give_job), .starts.job_bytes = sizeof(struct start_job)};
    return ERR_OK;
}

void copy_free(struct copy *copy)
{
    if (copy == NULL)
        return;
    job_pool_deinit(&copy->gives);
    job_pool_deinit(&copy->starts);
    mem_free(copy);
}

static size_t anchor_bytes(const struct desk *desk, uint32_t f)
{
    return (size_t)desk->conf.plan->plan->fragments[f].values_count * sizeof(float);
}

static enum err run_give(struct job *job, struct jobs_scratch *scratch)
{
    struct give_job *j = (struct give_job *)(void *)job;
    const struct desk *desk = j->copy->desk;
    (void)scratch;
    memcpy(j->area, replica_anchor(desk->conf.replica, j->f), anchor_bytes(desk, j->f));
    return ERR_OK;
}

static void done_give(struct job *job)
{
    struct give_job *j = (struct give_job *)(void *)job;
    struct copy *copy = j->copy;
    uint32_t f = j->f;
    job_pool_give(&copy->gives, j);
    event_post(copy->desk->conf.events, &(struct event){.type = EVENT_GIVEN, .fragment = f});
    desk_read_end(copy->desk, f);
}

void copy_give(struct copy *copy, uint32_t f, float *area)
{
    struct give_job *j = desk_job(copy->desk, &copy->gives);
    if (j == NULL)
        return;
    j->copy = copy;
    j->f = f;
    j->area = area;
    desk_read_begin(copy->desk, f);
    desk_submit(copy->desk, &j->job, JOBS_GIVE, run_give, done_give);
}

static enum err run_start(struct job *job, struct jobs_scratch *scratch)
{
    struct start_job *j = (struct start_job *)(void *)job;
    const struct desk *desk = j->copy->desk;
    float *anchor = replica_anchor(desk->conf.replica, j->f);
    if (!j->initial) {
        memcpy(j->base, anchor, anchor_bytes(desk, j->f));
        return ERR_OK;
    }
    memcpy(anchor, j->base, anchor_bytes(desk, j->f));
    return desk_hash(desk, j->f, 0, 0, scratch, &j->hash);
}

static void done_start(struct job *job)
{
    struct start_job *j = (struct start_job *)(void *)job;
    struct copy *copy = j->copy;
    struct event event = {.type = EVENT_STARTED, .fragment = j->f, .start = {.initial = j->initial, .hash = j->hash}};
    if (job->err == ERR_OK)
        event_post(copy->desk->conf.events, &event);
    else /* out of memory: the run must not begin with a hash that is none */
        event_post_fatal(copy->desk->conf.events, job->text);
    job_pool_give(&copy->starts, j);
    desk_read_end(copy->desk, event.fragment);
}

void copy_start(struct copy *copy, uint32_t f, float *base, bool initial)
{
    struct start_job *j = desk_job(copy->desk, &copy->starts);
    if (j == NULL)
        return;
    j->copy = copy;
    j->f = f;
    j->base = base;
    j->initial = initial;
    desk_read_begin(copy->desk, f);
    desk_submit(copy->desk, &j->job, JOBS_GIVE, run_start, done_start);
}
