/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/rounds/loan.h"

#include <inttypes.h>

#include "common/mem.h"

/* Leaves that a job digests at a time, so that rounds never wait for more than some milliseconds behind it. */
enum { LEAVES_AT_A_TIME = 128 };

struct loan_job {
    struct job job;
    struct loans *loans;
    struct state_loan *loan;
    size_t done; /* leaves */
};

struct loans {
    struct desk *desk;
    struct job_pool jobs;
};

enum err loans_new(struct desk *desk, struct loans **out)
{
    TRY(mem_new(1, sizeof **out, "rounds", out));
    **out = (struct loans){.desk = desk, .jobs.job_bytes = sizeof(struct loan_job)};
    return ERR_OK;
}

void loans_free(struct loans *loans)
{
    if (loans == NULL)
        return;
    job_pool_deinit(&loans->jobs);
    mem_free(loans);
}

static enum err run_leaves(struct job *job, struct jobs_scratch *scratch)
{
    struct loan_job *j = (struct loan_job *)(void *)job;
    const struct rounds_conf *conf = &j->loans->desk->conf;
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
    struct desk *desk = j->loans->desk;
    if (j->done < state_object_leaves(j->loan->bytes)) {
        desk_submit(desk, &j->job, JOBS_STATES, run_leaves, done_leaves);
        return;
    }
    if (job->err != ERR_OK)
        log_error("the state of fragment %" PRIu32 " cannot be given to others: %s", j->loan->f, job->text);
    event_post(desk->conf.events,
               &(struct event){.type = EVENT_LENT, .fragment = j->loan->f, .lend = {.loan = j->loan, .err = job->err}});
    job_pool_give(&j->loans->jobs, j);
}

static enum err run_copy(struct job *job, struct jobs_scratch *scratch)
{
    struct loan_job *j = (struct loan_job *)(void *)job;
    const struct rounds_conf *conf = &j->loans->desk->conf;
    (void)scratch;
    state_object_make(conf->replica, conf->plan->plan, j->loan->f, &j->loan->state, j->loan->object);
    return ERR_OK;
}

static void done_copy(struct job *job)
{
    struct loan_job *j = (struct loan_job *)(void *)job;
    struct desk *desk = j->loans->desk;
    desk_read_end(desk, j->loan->f);
    desk_submit(desk, &j->job, JOBS_STATES, run_leaves, done_leaves);
}

void loans_make(struct loans *loans, struct state_loan *loan)
{
    struct desk *desk = loans->desk;
    struct loan_job *j = desk_job(desk, &loans->jobs);
    if (j == NULL)
        return;
    j->loans = loans;
    j->loan = loan;
    desk_read_begin(desk, loan->f);
    desk_submit(desk, &j->job, JOBS_STATES, run_copy, done_copy);
}
