/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/rounds/copy.h"

#include <inttypes.h>
#include <string.h>

#include "common/mem.h"

/* Leaves that a job digests at a time, so that rounds never wait for more than some milliseconds behind it. */
enum { LEAVES_AT_A_TIME = 128 };

struct copy {
    struct desk *desk;
    struct job_pool gives, starts, loans;
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

/* A state, for others; then its leaves. */
struct loan_job {
    struct job job;
    struct copy *copy;
    struct state_loan *loan;
    size_t done; /* leaves */
};

enum err copy_new(struct desk *desk, struct copy **out)
{
    TRY(mem_new(1, sizeof **out, "rounds", out));
    **out = (struct copy){.desk = desk,
                          .gives.job_bytes = sizeof(struct give_job),
                          .starts.job_bytes = sizeof(struct start_job),
                          .loans.job_bytes = sizeof(struct loan_job)};
    return ERR_OK;
}

void copy_free(struct copy *copy)
{
    if (copy == NULL)
        return;
    job_pool_deinit(&copy->gives);
    job_pool_deinit(&copy->starts);
    job_pool_deinit(&copy->loans);
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

/* ---- for other islands ---- */

static enum err run_leaves(struct job *job, struct jobs_scratch *scratch)
{
    struct loan_job *j = (struct loan_job *)(void *)job;
    const struct rounds_conf *conf = &j->copy->desk->conf;
    const struct state_loan *loan = j->loan;
    size_t count = state_object_leaves(loan->bytes), end = j->done + LEAVES_AT_A_TIME;
    (void)scratch;
    end = end < count ? end : count;
    state_object_digest(loan->object, loan->bytes, j->done, end, loan->leaves);
    j->done = end;
    if (end < count)
        return ERR_OK;
    return state_object_check(conf->replica, conf->plan->plan, loan->f, &loan->state, loan->bytes, loan->leaves);
}

static void done_leaves(struct job *job)
{
    struct loan_job *j = (struct loan_job *)(void *)job;
    struct desk *desk = j->copy->desk;
    if (j->done < state_object_leaves(j->loan->bytes)) {
        desk_submit(desk, &j->job, JOBS_STATES, run_leaves, done_leaves);
        return;
    }
    if (job->err != ERR_OK)
        log_error("the state of fragment %" PRIu32 " cannot be given to others: %s", j->loan->f, job->text);
    event_post(desk->conf.events,
               &(struct event){.type = EVENT_LENT, .fragment = j->loan->f, .lend = {.loan = j->loan, .err = job->err}});
    job_pool_give(&j->copy->loans, j);
}

static enum err run_loan(struct job *job, struct jobs_scratch *scratch)
{
    struct loan_job *j = (struct loan_job *)(void *)job;
    const struct rounds_conf *conf = &j->copy->desk->conf;
    (void)scratch;
    state_object_make(conf->replica, conf->plan->plan, j->loan->f, &j->loan->state, j->loan->object);
    return ERR_OK;
}

static void done_loan(struct job *job)
{
    struct loan_job *j = (struct loan_job *)(void *)job;
    struct desk *desk = j->copy->desk;
    desk_read_end(desk, j->loan->f);
    desk_submit(desk, &j->job, JOBS_STATES, run_leaves, done_leaves);
}

void copy_lend(struct copy *copy, struct state_loan *loan)
{
    struct desk *desk = copy->desk;
    struct loan_job *j = desk_job(desk, &copy->loans);
    if (j == NULL)
        return;
    j->copy = copy;
    j->loan = loan;
    desk_read_begin(desk, loan->f);
    desk_submit(desk, &j->job, JOBS_STATES, run_loan, done_loan);
}
