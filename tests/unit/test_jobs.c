/* SPDX-License-Identifier: Apache-2.0 */
/* jobs: work goes to threads and comes back to the loop once, in one piece, and with what went wrong. */
#include "tests/lib/testlib.h"

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "common/env.h"
#include "common/mem.h"
#include "daemon/jobs.h"
#include "tests/lib/outofmem.h"

enum { DEADLINE_S = 10 };

static struct jobs *threads(int count)
{
    struct jobs *jobs;
    assert_ok(jobs_new(&(struct jobs_conf){.threads = count, .zstd_level = 1}, &jobs));
    return jobs;
}

static bool readable(const struct jobs *jobs, int wait_ms)
{
    struct pollfd fd = {.fd = jobs_fd(jobs), .events = POLLIN};
    return poll(&fd, 1, wait_ms) == 1 && (fd.revents & POLLIN) != 0;
}

static void take_next(struct jobs *jobs)
{
    assert_true(readable(jobs, DEADLINE_S * 1000));
    assert_true(jobs_take_back(jobs));
}

/* ---- a job that says where it ran and when it was done ---- */

struct note {
    struct job job;
    pthread_t ran_on, done_on;
    int runs, dones;
    int place; /* in the order of done() */
    enum err fails;
};

static int places; /* the loop's */

static enum err run_note(struct job *job, struct jobs_scratch *scratch)
{
    struct note *note = (struct note *)(void *)job;
    (void)scratch;
    note->ran_on = pthread_self();
    note->runs++;
    return note->fails != ERR_OK ? err_set(note->fails, "job %d went wrong", note->place) : ERR_OK;
}

static void done_note(struct job *job)
{
    struct note *note = (struct note *)(void *)job;
    note->done_on = pthread_self();
    note->dones++;
    note->place = places++;
}

static void submit_note(struct jobs *jobs, struct note *note)
{
    note->job.run = run_note;
    note->job.done = done_note;
    jobs_submit(jobs, &note->job);
}

/* ---- a job that runs until it is let go ---- */

struct gate {
    struct job job;
    sem_t begun, go;
    bool let_go;
    atomic_bool ended;
};

static enum err run_gate(struct job *job, struct jobs_scratch *scratch)
{
    struct gate *gate = (struct gate *)(void *)job;
    (void)scratch;
    sem_post(&gate->begun);
    gate->let_go = testlib_sem_wait(&gate->go, DEADLINE_S);
    atomic_store(&gate->ended, true);
    return ERR_OK;
}

static void done_gate(struct job *job)
{
    assert_true(((struct gate *)(void *)job)->let_go);
}

static void submit_gate(struct jobs *jobs, struct gate *gate)
{
    *gate = (struct gate){.job = {.work = gate->job.work, .run = run_gate, .done = done_gate}};
    sem_init(&gate->begun, 0, 0);
    sem_init(&gate->go, 0, 0);
    jobs_submit(jobs, &gate->job);
}

static void deinit_gate(struct gate *gate)
{
    sem_destroy(&gate->begun);
    sem_destroy(&gate->go);
}

/* ---- cases ---- */

static void a_job_runs_elsewhere_and_is_done_in_the_loop(void **state)
{
    (void)state;
    struct jobs *jobs = threads(1);
    struct note note = {.runs = 0};
    assert_false(readable(jobs, 0));
    assert_false(jobs_take_back(jobs));
    assert_int_equal(jobs_pending(jobs), 0);
    submit_note(jobs, &note);
    assert_int_equal(jobs_pending(jobs), 1);
    assert_true(readable(jobs, DEADLINE_S * 1000));
    assert_int_equal(note.dones, 0); /* not before it is taken back */
    assert_int_equal(jobs_pending(jobs), 1);
    assert_true(jobs_take_back(jobs));
    assert_int_equal(note.runs, 1);
    assert_int_equal(note.dones, 1);
    assert_false(pthread_equal(note.ran_on, pthread_self()));
    assert_true(pthread_equal(note.done_on, pthread_self()));
    assert_int_equal(jobs_pending(jobs), 0);
    assert_false(readable(jobs, 0));
    assert_false(jobs_take_back(jobs));
    jobs_free(jobs);
}

/* Three are finished and one is not: the descriptor stays readable until the last of the three is taken. */
static void finished_jobs_are_taken_back_one_at_a_time(void **state)
{
    (void)state;
    enum { FINISHED = 3 };
    struct jobs *jobs = threads(1);
    struct note notes[FINISHED] = {{.runs = 0}};
    struct gate gate = {.job.work = JOBS_ENCODE};
    for (int i = 0; i < FINISHED; i++)
        submit_note(jobs, &notes[i]);
    submit_gate(jobs, &gate);
    assert_true(
        testlib_sem_wait(&gate.begun, DEADLINE_S)); /* the only thread is at the fourth, so the others are finished */
    places = 0;
    for (int i = 0; i < FINISHED; i++) {
        assert_true(readable(jobs, 0));
        assert_int_equal(jobs_pending(jobs), FINISHED + 1 - i);
        assert_true(jobs_take_back(jobs));
        for (int k = 0; k < FINISHED; k++)
            assert_int_equal(notes[k].dones, k <= i);
        assert_int_equal(notes[i].place, i); /* in the order they were submitted */
    }
    assert_false(readable(jobs, 0));
    assert_false(jobs_take_back(jobs));
    assert_int_equal(jobs_pending(jobs), 1);
    sem_post(&gate.go);
    take_next(jobs);
    assert_int_equal(jobs_pending(jobs), 0);
    jobs_free(jobs);
    deinit_gate(&gate);
}

/* A trainer may stand still for it. */
static void an_anchor_for_the_trainer_overtakes_what_waits(void **state)
{
    (void)state;
    struct jobs *jobs = threads(1);
    struct gate gate = {.job.work = JOBS_ENCODE};
    struct note plain = {.job.work = JOBS_HASH}, give = {.job.work = JOBS_PUBLISH}, again = give;
    places = 0;
    submit_gate(jobs, &gate);
    assert_true(testlib_sem_wait(&gate.begun, DEADLINE_S));
    submit_note(jobs, &plain);
    submit_note(jobs, &give);
    submit_note(jobs, &again);
    sem_post(&gate.go);
    for (int i = 0; i < 4; i++)
        take_next(jobs);
    assert_int_equal(give.place, 0);
    assert_int_equal(again.place, 1);
    assert_int_equal(plain.place, 2);
    deinit_gate(&gate);
    jobs_free(jobs);
}

/* The disk may take its time. */
static void what_saves_keeps_nothing_else_waiting(void **state)
{
    (void)state;
    struct jobs *jobs = threads(1);
    struct gate gate = {.job.work = JOBS_SAVE};
    struct note other = {.job.work = JOBS_APPLY}, next = {.job.work = JOBS_SAVE}, vote = {.job.work = JOBS_VOTE};
    struct gate line = {.job.work = JOBS_DIAL}; /* nor may a line */
    places = 0;
    submit_gate(jobs, &gate);
    assert_true(testlib_sem_wait(&gate.begun, DEADLINE_S));
    submit_gate(jobs, &line);
    assert_true(testlib_sem_wait(&line.begun, DEADLINE_S));
    submit_note(jobs, &next);
    submit_note(jobs, &other);
    submit_note(jobs, &vote);
    take_next(jobs);
    take_next(jobs);
    assert_int_equal(other.dones, 1);
    assert_int_equal(vote.dones, 1);
    assert_int_equal(next.runs, 0); /* one at a time */
    sem_post(&gate.go);
    sem_post(&line.go);
    take_next(jobs);
    take_next(jobs);
    take_next(jobs);
    assert_int_equal(next.dones, 1);
    assert_false(pthread_equal(next.ran_on, other.ran_on));
    deinit_gate(&line);
    deinit_gate(&gate);
    jobs_free(jobs);
}

static void what_went_wrong_comes_back_with_its_text(void **state)
{
    (void)state;
    struct jobs *jobs = threads(1);
    struct note bad = {.fails = ERR_NOSPACE, .place = 7}, good = {.runs = 0};
    (void)!err_set(ERR_ARG, "the loop's own");
    submit_note(jobs, &bad);
    submit_note(jobs, &good);
    take_next(jobs);
    take_next(jobs);
    assert_int_equal(bad.job.err, ERR_NOSPACE);
    assert_string_equal(bad.job.text, "job 7 went wrong");
    assert_int_equal(good.job.err, ERR_OK);
    assert_string_equal(good.job.text, "");
    assert_string_equal(err_text(), "the loop's own");
    jobs_free(jobs);
}

/* A signal that a job thread took would never reach the descriptor the loop reads signals from. */
static enum err run_signals(struct job *job, struct jobs_scratch *scratch)
{
    sigset_t blocked;
    (void)job, (void)scratch;
    pthread_sigmask(SIG_SETMASK, NULL, &blocked);
    return sigismember(&blocked, SIGTERM) == 1 && sigismember(&blocked, SIGCHLD) == 1
               ? ERR_OK
               : err_set(ERR_STATE, "a job thread takes signals");
}

static void done_nothing(struct job *job)
{
    (void)job;
}

static void signals_are_left_to_the_loop(void **state)
{
    (void)state;
    sigset_t before, after;
    pthread_sigmask(SIG_SETMASK, NULL, &before);
    struct jobs *jobs = threads(2);
    pthread_sigmask(SIG_SETMASK, NULL, &after);
    assert_int_equal(sigismember(&after, SIGTERM), sigismember(&before, SIGTERM));
    struct job job = {.run = run_signals, .done = done_nothing};
    jobs_submit(jobs, &job);
    take_next(jobs);
    assert_ok(job.err);
    jobs_free(jobs);
}

/* ---- processor time ---- */

enum { BUSY_MS = 5 };

static enum err run_busy(struct job *job, struct jobs_scratch *scratch)
{
    (void)job;
    (void)scratch;
    for (uint64_t begin_ns = env_thread_cpu_ns(); env_thread_cpu_ns() - begin_ns < BUSY_MS * 1000000u;)
        ;
    return ERR_OK;
}

static void processor_time_is_booked_under_what_it_was_for(void **state)
{
    (void)state;
    struct jobs *jobs = threads(1);
    uint64_t ns[JOBS_WORKS];
    struct job job[] = {{.work = JOBS_HASH, .run = run_busy, .done = done_nothing},
                        {.work = JOBS_PUBLISH, .run = run_busy, .done = done_nothing},
                        {.work = JOBS_HASH, .run = run_busy, .done = done_nothing}};
    for (int i = 0; i < 3; i++)
        jobs_submit(jobs, &job[i]);
    for (int i = 0; i < 3; i++)
        take_next(jobs);
    jobs_cpu(jobs, ns);
    for (int work = 0; work < JOBS_WORKS; work++) {
        unsigned times = work == JOBS_HASH ? 2 : work == JOBS_PUBLISH ? 1 : 0;
        assert_true(ns[work] >= times * BUSY_MS * 1000000u && (ns[work] == 0) == (times == 0));
        assert_true(jobs_work_name((enum jobs_work)work)[0] != '\0');
    }
    jobs_free(jobs);
}

/* ---- how many, and how far they stand back ---- */

struct polite {
    struct job job;
    int nice;
};

static enum err run_polite(struct job *job, struct jobs_scratch *scratch)
{
    (void)scratch;
    ((struct polite *)(void *)job)->nice = getpriority(PRIO_PROCESS, (id_t)gettid());
    return ERR_OK;
}

static void job_threads_stand_back_and_the_loop_does_not(void **state)
{
    (void)state;
    int before = getpriority(PRIO_PROCESS, 0);
    struct polite polite = {.job = {.run = run_polite, .done = done_nothing}};
    struct jobs *jobs;
    assert_ok(jobs_new(&(struct jobs_conf){.threads = 1, .nice = 3}, &jobs));
    jobs_submit(jobs, &polite.job);
    take_next(jobs);
    assert_int_equal(polite.nice, before + 3 < 19 ? before + 3 : 19);
    assert_int_equal(getpriority(PRIO_PROCESS, 0), before);
    jobs_free(jobs);
}

/* ---- scratch ---- */

struct meeting {
    struct job job;
    sem_t *here, *there; /* ours, and the other job's */
    float mark;
    struct jobs_scratch scratch;
};

/* Two of these end only if they run at the same time. */
static enum err run_meeting(struct job *job, struct jobs_scratch *scratch)
{
    struct meeting *meeting = (struct meeting *)(void *)job;
    meeting->scratch = *scratch;
    for (size_t i = 0; i < scratch->values_count; i++)
        scratch->values[i] = meeting->mark;
    sem_post(meeting->here);
    if (!testlib_sem_wait(meeting->there, DEADLINE_S))
        return err_set(ERR_STATE, "the other job does not run");
    for (size_t i = 0; i < scratch->values_count; i++)
        if (scratch->values[i] != meeting->mark)
            return err_set(ERR_STATE, "another job writes to this one's scratch");
    return ERR_OK;
}

static void assert_two_at_a_time(struct jobs *jobs, size_t values_count)
{
    sem_t sems[2];
    sem_init(&sems[0], 0, 0);
    sem_init(&sems[1], 0, 0);
    struct meeting one = {
        .job = {.run = run_meeting, .done = done_nothing}, .here = &sems[0], .there = &sems[1], .mark = 1};
    struct meeting two = {
        .job = {.run = run_meeting, .done = done_nothing}, .here = &sems[1], .there = &sems[0], .mark = 2};
    jobs_submit(jobs, &one.job);
    jobs_submit(jobs, &two.job);
    take_next(jobs);
    take_next(jobs);
    if (one.job.err != ERR_OK || two.job.err != ERR_OK)
        fail_msg("%s%s", one.job.text, two.job.text);
    assert_true(one.scratch.values_count >= values_count && two.scratch.values_count >= values_count);
    assert_ptr_not_equal(one.scratch.codec, two.scratch.codec);
    if (values_count > 0)
        assert_ptr_not_equal(one.scratch.values, two.scratch.values);
    sem_destroy(&sems[0]);
    sem_destroy(&sems[1]);
}

static void every_thread_has_scratch_of_its_own(void **state)
{
    (void)state;
    struct jobs *jobs = threads(2);
    assert_two_at_a_time(jobs, 0);
    assert_ok(jobs_set_scratch(jobs, &(struct jobs_room){.values = 1000, .factor_values = 0}));
    assert_two_at_a_time(jobs, 1000);
    assert_ok(jobs_set_scratch(jobs, &(struct jobs_room){.values = 5000, .factor_values = 300}));
    assert_two_at_a_time(jobs, 5000);
    assert_ok(jobs_set_scratch(jobs, &(struct jobs_room){.values = 10, .factor_values = 0}));
    assert_two_at_a_time(jobs, 10);
    jobs_free(jobs);
}

static void without_memory_for_scratch_none_is_promised(void **state)
{
    (void)state;
    struct jobs *jobs = threads(2);
    assert_ok(jobs_set_scratch(jobs, &(struct jobs_room){.values = 100, .factor_values = 0}));
    for (long n = 0; n < 4; n++) { /* two threads, factors and values each */
        mem_fail_after(n);
        enum err err =
            jobs_set_scratch(jobs, &(struct jobs_room){.values = 1000 * (size_t)(n + 1), .factor_values = 64});
        mem_fail_after(-1);
        assert_int_equal(err, ERR_NOMEM);
        assert_two_at_a_time(jobs, 0); /* each writes to as many as it is told it has */
    }
    assert_ok(jobs_set_scratch(jobs, &(struct jobs_room){.values = 5000, .factor_values = 64}));
    assert_two_at_a_time(jobs, 5000);
    jobs_free(jobs);
}

/* ---- the end ---- */

struct end {
    struct gate *gate;
    pid_t loop;
    atomic_bool near;
};

/* Whether the loop's thread stands still: it does so only inside jobs_free(), which waits for the job that runs. */
static bool loop_waits(pid_t loop)
{
    char path[64], text[256] = "";
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", (int)loop);
    FILE *file = fopen(path, "r");
    if (file == NULL)
        return true;
    size_t bytes = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[bytes] = '\0';
    const char *after_name = strrchr(text, ')');
    return after_name != NULL && after_name[1] == ' ' && after_name[2] == 'S';
}

static void *let_go_when_the_end_waits(void *argument)
{
    struct end *end = argument;
    time_t begin = time(NULL);
    while ((!atomic_load(&end->near) || !loop_waits(end->loop)) && time(NULL) < begin + DEADLINE_S)
        sched_yield();
    sem_post(&end->gate->go);
    return NULL;
}

static void the_end_waits_for_what_runs_and_drops_what_was_not_begun(void **state)
{
    (void)state;
    enum { QUEUED = 5 };
    struct jobs *jobs = threads(1);
    struct note finished = {.runs = 0}, notes[QUEUED] = {{.runs = 0}};
    struct gate gate = {.job.work = JOBS_ENCODE};
    struct end end = {.gate = &gate, .loop = (pid_t)syscall(SYS_gettid)};
    pthread_t helper;
    submit_note(jobs, &finished);
    submit_gate(jobs, &gate);
    for (int i = 0; i < QUEUED; i++)
        submit_note(jobs, &notes[i]);
    assert_true(testlib_sem_wait(&gate.begun, DEADLINE_S));
    assert_int_equal(pthread_create(&helper, NULL, let_go_when_the_end_waits, &end), 0);
    atomic_store(&end.near, true);
    jobs_free(jobs);
    assert_true(atomic_load(&gate.ended));
    assert_true(gate.let_go);
    assert_int_equal(pthread_join(helper, NULL), 0);
    for (int i = 0; i < QUEUED; i++)
        assert_int_equal(notes[i].runs + notes[i].dones, 0);
    assert_int_equal(finished.runs, 1);
    assert_int_equal(finished.dones, 0); /* the loop did not take it back */
    deinit_gate(&gate);
    jobs_free(NULL);
}

static enum err make_threads(void *user)
{
    struct jobs *jobs;
    (void)user;
    enum err err = jobs_new(&(struct jobs_conf){.threads = 3, .zstd_level = 1}, &jobs);
    assert_true(err == ERR_OK || jobs == NULL);
    jobs_free(jobs);
    return err;
}

/* The number the next descriptor gets: it grows where one is left open. */
static int next_descriptor(void)
{
    int fd = dup(STDOUT_FILENO);
    assert_true(fd >= 0);
    close(fd);
    return fd;
}

static void without_memory_there_are_no_threads(void **state)
{
    (void)state;
    int before = next_descriptor();
    size_t failed = outofmem_walk(make_threads, NULL);
    print_message("%zu allocations failed in turn\n", failed);
    assert_true(failed > 3 * 2);
    assert_int_equal(next_descriptor(), before);
}

/* ---- pools ---- */

struct dedup {
    struct job job;
    char before[24];
    uint64_t turns;
    char after[24];
};

static void a_pool_gives_zeroed_jobs_and_uses_them_again(void **state)
{
    (void)state;
    enum { MANY = 20 };
    struct job_pool pool = {.job_bytes = sizeof(struct dedup)};
    struct dedup *jobs[MANY];
    static const struct dedup zero;
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < MANY; i++) {
            jobs[i] = job_pool_take(&pool);
            assert_non_null(jobs[i]);
            struct dedup seen = *jobs[i];
            seen.job.next = seen.job.made = NULL; /* jobs.c's */
            assert_memory_equal(&seen, &zero, sizeof seen);
            for (int k = 0; k < i; k++)
                assert_ptr_not_equal(jobs[i], jobs[k]);
        }
        for (int i = 0; i < MANY; i++) {
            struct job *made = jobs[i]->job.made;
            memset(jobs[i], 0xa5, sizeof *jobs[i]);
            jobs[i]->job.made = made;
        }
        if (round == 1) { /* none is allocated for what was given back */
            mem_fail_after(0);
            for (int i = 0; i < MANY; i++)
                job_pool_give(&pool, jobs[i]);
            for (int i = 0; i < MANY; i++)
                jobs[i] = job_pool_take(&pool);
            mem_fail_after(-1);
            for (int i = 0; i < MANY; i++)
                assert_non_null(jobs[i]);
        }
        for (int i = round; i < MANY; i++) /* some are never given back, and freed all the same */
            job_pool_give(&pool, jobs[i]);
    }
    job_pool_deinit(&pool);
    assert_null(pool.free);
    job_pool_deinit(&pool);
}

static void a_pool_without_memory_says_so_and_goes_on(void **state)
{
    (void)state;
    struct job_pool pool = {.job_bytes = sizeof(struct dedup)};
    struct dedup *first = job_pool_take(&pool);
    assert_non_null(first);
    mem_fail_after(0);
    assert_null(job_pool_take(&pool));
    mem_fail_after(-1);
    assert_non_null(strstr(err_text(), "out of memory"));
    struct dedup *second = job_pool_take(&pool);
    assert_non_null(second);
    assert_ptr_not_equal(first, second);
    job_pool_deinit(&pool);
}

/* ---- many of them ---- */

struct mill {
    struct jobs *jobs;
    struct job_pool pool;
    uint64_t submitted, done;
    uint64_t sum;
};

static struct mill mill;

static enum err run_counted(struct job *job, struct jobs_scratch *scratch)
{
    struct dedup *counted = (struct dedup *)(void *)job;
    scratch->values[0] += 1;
    counted->turns++;
    return ERR_OK;
}

static void submit_counted(void);

static void done_counted(struct job *job)
{
    struct dedup *counted = (struct dedup *)(void *)job;
    assert_int_equal(counted->turns, 1);
    mill.done++;
    mill.sum += counted->turns;
    job_pool_give(&mill.pool, counted);
    submit_counted(); /* what is done leads to what comes next */
}

static void submit_counted(void)
{
    enum { ALL = 3000 };
    struct dedup *counted = mill.submitted < ALL ? job_pool_take(&mill.pool) : NULL;
    if (counted == NULL)
        return;
    counted->job.run = run_counted;
    counted->job.done = done_counted;
    mill.submitted++;
    jobs_submit(mill.jobs, &counted->job);
}

static void of_many_jobs_each_is_done_once(void **state)
{
    (void)state;
    mill = (struct mill){.jobs = threads(4), .pool = {.job_bytes = sizeof(struct dedup)}};
    assert_ok(jobs_set_scratch(mill.jobs, &(struct jobs_room){.values = 16, .factor_values = 0}));
    for (int i = 0; i < 50; i++)
        submit_counted();
    while (jobs_pending(mill.jobs) > 0) {
        assert_int_equal(jobs_pending(mill.jobs), mill.submitted - mill.done);
        take_next(mill.jobs);
    }
    assert_int_equal(mill.submitted, 3000);
    assert_int_equal(mill.done, 3000);
    assert_int_equal(mill.sum, 3000);
    assert_false(readable(mill.jobs, 0));
    jobs_free(mill.jobs);
    job_pool_deinit(&mill.pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_job_runs_elsewhere_and_is_done_in_the_loop),
        cmocka_unit_test(finished_jobs_are_taken_back_one_at_a_time),
        cmocka_unit_test(an_anchor_for_the_trainer_overtakes_what_waits),
        cmocka_unit_test(what_saves_keeps_nothing_else_waiting),
        cmocka_unit_test(what_went_wrong_comes_back_with_its_text),
        cmocka_unit_test(signals_are_left_to_the_loop),
        cmocka_unit_test(processor_time_is_booked_under_what_it_was_for),
        cmocka_unit_test(job_threads_stand_back_and_the_loop_does_not),
        cmocka_unit_test(every_thread_has_scratch_of_its_own),
        cmocka_unit_test(without_memory_for_scratch_none_is_promised),
        cmocka_unit_test(the_end_waits_for_what_runs_and_drops_what_was_not_begun),
        cmocka_unit_test(without_memory_there_are_no_threads),
        cmocka_unit_test(a_pool_gives_zeroed_jobs_and_uses_them_again),
        cmocka_unit_test(a_pool_without_memory_says_so_and_goes_on),
        cmocka_unit_test(of_many_jobs_each_is_done_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
