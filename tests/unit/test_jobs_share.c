/* SPDX-License-Identifier: Apache-2.0 */
/* jobs: the work of one job, shared out to all threads in pieces: each runs once, and the job ends after all of them.
 */
#include "tests/lib/testlib.h"

#include <poll.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <time.h>

#include "common/env.h"
#include "daemon/jobs.h"

enum { DEADLINE_S = 10, BUSY_MS = 5 };

static struct jobs *threads(int count)
{
    struct jobs *jobs;
    assert_ok(jobs_new(&(struct jobs_conf){.threads = count, .zstd_level = 1}, &jobs));
    return jobs;
}

static void take_next(struct jobs *jobs)
{
    struct pollfd fd = {.fd = jobs_fd(jobs), .events = POLLIN};
    assert_int_equal(poll(&fd, 1, DEADLINE_S * 1000), 1);
    assert_true(jobs_take_back(jobs));
}

static void done_nothing(struct job *job)
{
    (void)job;
}

enum { PIECES = 500, SLOW_NS = 2000000 };

struct shared_out {
    struct job job;
    size_t count, fails_from; /* the pieces from here on go wrong */
    sem_t *here, *there;      /* the first two pieces end only if they run at the same time; NULL: they do not wait */
    _Atomic int runs[PIECES];
    _Atomic size_t ended;
    _Atomic int strays; /* pieces without scratch of their thread */
    bool alone;         /* the caller is no job's thread */
};

static enum err run_shared_piece(void *user, size_t i, struct jobs_scratch *scratch)
{
    struct shared_out *s = user;
    s->runs[i]++;
    if (!s->alone && (scratch == NULL || scratch->codec == NULL))
        s->strays++;
    if (s->here != NULL && i < 2) {
        sem_post(i == 0 ? s->here : s->there);
        if (!testlib_sem_wait(i == 0 ? s->there : s->here, DEADLINE_S))
            return err_set(ERR_STATE, "piece %zu was alone", i);
    }
    if (i + 2 == s->count) /* so that the last one is not the last to end */
        nanosleep(&(struct timespec){.tv_nsec = SLOW_NS}, NULL);
    s->ended++;
    return i >= s->fails_from ? err_set(ERR_PROTO, "piece %zu went wrong", i) : ERR_OK;
}

static enum err run_shared_out(struct job *job, struct jobs_scratch *scratch)
{
    struct shared_out *s = (struct shared_out *)(void *)job;
    enum err err = jobs_share(scratch, s->count, run_shared_piece, s);
    return s->ended == s->count ? err : err_set(ERR_STATE, "%zu of %zu pieces have ended", s->ended, s->count);
}

static void assert_each_ran_once(const struct shared_out *s)
{
    for (size_t i = 0; i < PIECES; i++)
        assert_int_equal(s->runs[i], i < s->count);
    assert_int_equal(s->strays, 0);
}

static void pieces_run_on_several_threads_and_each_once(void **state)
{
    (void)state;
    sem_t here, there;
    sem_init(&here, 0, 0);
    sem_init(&there, 0, 0);
    for (int count = 1; count <= 4; count++) {
        struct jobs *jobs = threads(count);
        struct shared_out s = {
            .job = {.run = run_shared_out, .done = done_nothing}, .count = PIECES, .fails_from = PIECES};
        s.here = count > 1 ? &here : NULL;
        s.there = &there;
        jobs_submit(jobs, &s.job);
        take_next(jobs);
        assert_int_equal(s.job.err, ERR_OK);
        assert_each_ran_once(&s);
        jobs_free(jobs);
    }
    struct shared_out none = {.alone = true, .fails_from = PIECES},
                      few = {.count = 7, .alone = true, .fails_from = PIECES};
    assert_ok(jobs_share(NULL, 0, run_shared_piece, &none));
    assert_ok(jobs_share(NULL, 7, run_shared_piece, &few));
    assert_each_ran_once(&none);
    assert_each_ran_once(&few);
    sem_destroy(&here);
    sem_destroy(&there);
}

/* Whichever thread met it first. */
static void of_pieces_that_fail_the_first_one_is_told(void **state)
{
    (void)state;
    struct jobs *jobs = threads(3);
    for (int k = 0; k < 50; k++) {
        struct shared_out s = {.job = {.run = run_shared_out, .done = done_nothing}, .count = PIECES, .fails_from = 3};
        jobs_submit(jobs, &s.job);
        take_next(jobs);
        assert_int_equal(s.job.err, ERR_PROTO);
        assert_string_equal(s.job.text, "piece 3 went wrong");
        assert_each_ran_once(&s);
    }
    jobs_free(jobs);
}

static enum err run_busy_piece(void *user, size_t i, struct jobs_scratch *scratch)
{
    (void)user;
    (void)i;
    (void)scratch;
    for (uint64_t begin_ns = env_thread_cpu_ns(); env_thread_cpu_ns() - begin_ns < BUSY_MS * 1000000u;)
        ;
    return ERR_OK;
}

static enum err run_busy_pieces(struct job *job, struct jobs_scratch *scratch)
{
    return jobs_share(scratch, 4, run_busy_piece, job);
}

/* Whoever ran them. */
static void pieces_are_booked_under_the_jobs_work(void **state)
{
    (void)state;
    struct jobs *jobs = threads(3);
    struct job job = {.work = JOBS_HASH, .run = run_busy_pieces, .done = done_nothing};
    uint64_t ns[JOBS_WORKS];
    jobs_submit(jobs, &job);
    take_next(jobs);
    jobs_cpu(jobs, ns);
    for (int work = 0; work < JOBS_WORKS; work++)
        assert_true(work == JOBS_HASH ? ns[work] >= 4 * BUSY_MS * 1000000u : ns[work] == 0);
    jobs_free(jobs);
}

/* A job that has begun ends, with all of its pieces. */
static void the_end_waits_for_pieces(void **state)
{
    (void)state;
    for (int k = 0; k < 50; k++) {
        struct jobs *jobs = threads(3);
        struct shared_out s = {
            .job = {.run = run_shared_out, .done = done_nothing}, .count = PIECES, .fails_from = PIECES};
        jobs_submit(jobs, &s.job);
        for (int turns = 0; turns < k; turns++)
            sched_yield();
        jobs_free(jobs);
        for (size_t i = 0; i < PIECES; i++)
            assert_int_equal(s.runs[i], s.runs[0]);
    }
}

/* Several at a time, and jobs that share nothing out between them. */
static void many_jobs_share_out_their_work(void **state)
{
    (void)state;
    enum { MANY = 40 };
    static struct shared_out many[MANY];
    struct jobs *jobs = threads(4);
    for (int k = 0; k < MANY; k++) {
        many[k] = (struct shared_out){.job = {.run = run_shared_out, .done = done_nothing}, .fails_from = PIECES};
        many[k].count = k % 3 == 0 ? 1 : PIECES;
        jobs_submit(jobs, &many[k].job);
    }
    for (int k = 0; k < MANY; k++)
        take_next(jobs);
    for (int k = 0; k < MANY; k++)
        assert_each_ran_once(&many[k]);
    jobs_free(jobs);
}

/* A trainer stands still for its anchor; a share of many pieces does not keep it waiting. */
struct queued {
    struct job job;
    sem_t begun, submitted, given;
    atomic_bool stood_in_line;
};

static enum err run_queued_piece(void *user, size_t i, struct jobs_scratch *scratch)
{
    struct queued *q = user;
    sem_t *first = i < 2 ? &q->submitted : &q->given;
    (void)scratch;
    if (i < 2)
        sem_post(&q->begun);
    if (!testlib_sem_wait(first, DEADLINE_S))
        q->stood_in_line = true;
    sem_post(first);
    return ERR_OK;
}

static enum err run_queued(struct job *job, struct jobs_scratch *scratch)
{
    return jobs_share(scratch, 9, run_queued_piece, job);
}

struct giving {
    struct job job;
    struct queued *before;
};

static enum err run_giving(struct job *job, struct jobs_scratch *scratch)
{
    (void)scratch;
    sem_post(&((struct giving *)(void *)job)->before->given);
    return ERR_OK;
}

static void an_anchor_for_the_trainer_comes_before_pieces(void **state)
{
    (void)state;
    struct jobs *jobs = threads(2);
    struct queued q = {.job = {.work = JOBS_HASH, .run = run_queued, .done = done_nothing}};
    struct giving give = {.job = {.work = JOBS_PUBLISH, .run = run_giving, .done = done_nothing}, .before = &q};
    sem_init(&q.begun, 0, 0);
    sem_init(&q.submitted, 0, 0);
    sem_init(&q.given, 0, 0);
    jobs_submit(jobs, &q.job);
    assert_true(testlib_sem_wait(&q.begun, DEADLINE_S) && testlib_sem_wait(&q.begun, DEADLINE_S));
    jobs_submit(jobs, &give.job);
    sem_post(&q.submitted);
    take_next(jobs);
    take_next(jobs);
    assert_false(q.stood_in_line);
    jobs_free(jobs);
    sem_destroy(&q.begun);
    sem_destroy(&q.submitted);
    sem_destroy(&q.given);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_run_on_several_threads_and_each_once),
        cmocka_unit_test(of_pieces_that_fail_the_first_one_is_told),
        cmocka_unit_test(pieces_are_booked_under_the_jobs_work),
        cmocka_unit_test(the_end_waits_for_pieces),
        cmocka_unit_test(many_jobs_share_out_their_work),
        cmocka_unit_test(an_anchor_for_the_trainer_comes_before_pieces),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
