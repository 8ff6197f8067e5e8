/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/jobs.h"

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "common/env.h"
#include "common/mem.h"

struct queue {
    struct job *first, **last;
};

/* Jobs with a thread of their own. */
struct lane {
    struct queue queue;
    pthread_cond_t came;
};
enum { LANES = 3 };

struct thread {
    pthread_t id;
    bool started;
    struct lane *lane; /* NULL: it takes what comes */
    struct jobs *jobs;
    struct jobs_scratch scratch;
};

/* A job's work that is shared out. On the stack of the thread that runs the job. */
struct share {
    struct share *next;
    job_piece *run;
    void *user;
    enum jobs_work work;
    size_t count, begun, ended;
    enum err err;
    size_t err_at; /* the piece that failed */
    char text[320];
};

struct jobs {
    pthread_mutex_t lock;
    pthread_cond_t work, ended; /* ended: pieces */
    struct queue urgent, waiting, finished;
    struct lane lanes[LANES];
    struct share *shares; /* with pieces that were not begun */
    bool stop;
    size_t pending;       /* the loop's */
    enum jobs_work taken; /* likewise */
    uint64_t cpu_ns[JOBS_WORKS];
    int fd;
    struct thread *threads; /* and behind them those of the lanes */
    int threads_count;
    int nice;
};

static void queue_init(struct queue *queue)
{
    queue->first = NULL;
    queue->last = &queue->first;
}

static void queue_put(struct queue *queue, struct job *job)
{
    job->next = NULL;
    *queue->last = job;
    queue->last = &job->next;
}

static struct job *queue_get(struct queue *queue)
{
    struct job *job = queue->first;
    if (job == NULL)
        return NULL;
    queue->first = job->next;
    if (queue->first == NULL)
        queue->last = &queue->first;
    return job;
}

const char *jobs_work_name(enum jobs_work work)
{
    static const char *const names[JOBS_WORKS] = {"encode", "check",   "reduce", "store", "receive", "apply",
                                                  "hash",   "publish", "states", "save",  "vote",    "dial"};
    return names[work];
}

/* ---- pieces; with the lock held, but while one runs ---- */

static void note_piece(struct share *share, size_t at, enum err err)
{
    if (err != ERR_OK && (share->err == ERR_OK || at < share->err_at)) {
        share->err = err;
        share->err_at = at;
        snprintf(share->text, sizeof share->text, "%s", err_text());
    }
    share->ended++;
}

/* What waits for the disk, or for another machine, so that nothing else waits behind it; else NULL. */
static struct lane *lane_of(struct jobs *jobs, enum jobs_work work)
{
    switch (work) {
    case JOBS_SAVE: return &jobs->lanes[0];
    case JOBS_VOTE: return &jobs->lanes[1];
    case JOBS_DIAL: return &jobs->lanes[2];
    default: return NULL;
    }
}

/* The next piece of a share that has one; it leaves the list with its last one. */
static void run_piece(struct jobs *jobs, struct share *share, struct jobs_scratch *scratch)
{
    size_t at = share->begun++;
    if (share->begun == share->count) {
        struct share **link = &jobs->shares;
        while (*link != share)
            link = &(*link)->next;
        *link = share->next;
    }
    pthread_mutex_unlock(&jobs->lock);
    enum err err = share->run(share->user, at, scratch);
    pthread_mutex_lock(&jobs->lock);
    note_piece(share, at, err);
    if (share->ended == share->count)
        pthread_cond_broadcast(&jobs->ended);
}

/* For a job of another thread: first come, first served. */
static void help(struct jobs *jobs, struct jobs_scratch *scratch)
{
    enum jobs_work work = jobs->shares->work;
    uint64_t begin_ns = env_thread_cpu_ns();
    run_piece(jobs, jobs->shares, scratch);
    jobs->cpu_ns[work] += env_thread_cpu_ns() - begin_ns;
}

enum err jobs_share(struct jobs_scratch *scratch, size_t count, job_piece *run, void *user)
{
    struct jobs *jobs = scratch != NULL ? scratch->jobs : NULL;
    if (jobs == NULL) {
        for (size_t i = 0; i < count; i++)
            TRY(run(user, i, scratch));
        return ERR_OK;
    }
    struct share share = {.run = run, .user = user, .work = scratch->work, .count = count};
    if (count == 0)
        return ERR_OK;
    pthread_mutex_lock(&jobs->lock);
    struct share **last = &jobs->shares;
    while (*last != NULL)
        last = &(*last)->next;
    *last = &share;
    if (count > 1)
        pthread_cond_broadcast(&jobs->work);
    while (share.begun < share.count)
        run_piece(jobs, &share, scratch);
    while (share.ended < share.count)
        pthread_cond_wait(&jobs->ended, &jobs->lock);
    pthread_mutex_unlock(&jobs->lock);
    return share.err != ERR_OK ? err_set(share.err, "%s", share.text) : ERR_OK;
}

/* ---- threads ---- */

/* With the lock, which is not held while it runs. */
static void run_job(struct thread *thread, struct job *job)
{
    struct jobs *jobs = thread->jobs;
    pthread_mutex_unlock(&jobs->lock);
    uint64_t begin_ns = env_thread_cpu_ns();
    thread->scratch.work = job->work;
    job->err = job->run(job, thread->lane != NULL ? NULL : &thread->scratch);
    uint64_t took_ns = env_thread_cpu_ns() - begin_ns;
    if (job->err != ERR_OK)
        snprintf(job->text, sizeof job->text, "%s", err_text());
    pthread_mutex_lock(&jobs->lock);
    jobs->cpu_ns[job->work] += took_ns;
    queue_put(&jobs->finished, job);
    uint64_t one = 1;
    ssize_t ignored = write(jobs->fd, &one, sizeof one); /* cannot fail before 2^64 - 1 jobs */
    (void)ignored;
}

/* The thread's next job, or NULL if it is to look again. With the lock. */
static struct job *next_job(struct thread *thread)
{
    struct jobs *jobs = thread->jobs;
    struct job *job = queue_get(thread->lane != NULL ? &thread->lane->queue : &jobs->urgent);
    if (thread->lane != NULL) {
        if (job == NULL)
            pthread_cond_wait(&thread->lane->came, &jobs->lock);
        return job;
    }
    if (job == NULL && jobs->shares != NULL) {
        help(jobs, &thread->scratch);
        return NULL;
    }
    if (job == NULL)
        job = queue_get(&jobs->waiting);
    if (job == NULL)
        pthread_cond_wait(&jobs->work, &jobs->lock);
    return job;
}

static void *thread_main(void *argument)
{
    struct thread *thread = argument;
    struct jobs *jobs = thread->jobs;
    /* On Linux a thread's own. Who may not is heard by nobody: all it costs is that trainers lose more. */
    if (jobs->nice > 0)
        (void)!nice(jobs->nice);
    pthread_mutex_lock(&jobs->lock);
    while (!jobs->stop) {
        struct job *job = next_job(thread);
        if (job != NULL)
            run_job(thread, job);
    }
    pthread_mutex_unlock(&jobs->lock);
    return NULL;
}

static enum err start_threads(struct jobs *jobs, const struct jobs_conf *conf)
{
    /* Signals are the loop's: it reads them from a descriptor. */
    sigset_t all, before;
    enum err err = ERR_OK;
    sigfillset(&all);
    TRY(mem_new((size_t)conf->threads + LANES, sizeof *jobs->threads, "job threads", &jobs->threads));
    jobs->threads_count = conf->threads;
    jobs->nice = conf->nice;
    pthread_sigmask(SIG_SETMASK, &all, &before);
    for (int i = 0; i < conf->threads + LANES && err == ERR_OK; i++) {
        struct thread *thread = &jobs->threads[i];
        thread->jobs = thread->scratch.jobs = jobs;
        thread->lane = i < conf->threads ? NULL : &jobs->lanes[i - conf->threads];
        if (thread->lane == NULL)
            err = codec_new(conf->zstd_level, &thread->scratch.codec);
        if (err == ERR_OK && pthread_create(&thread->id, NULL, thread_main, thread) != 0)
            err = err_set(ERR_NOMEM, "cannot start a job thread");
        thread->started = err == ERR_OK;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return err;
}

enum err jobs_new(const struct jobs_conf *conf, struct jobs **out)
{
    enum err err;
    struct jobs *jobs = NULL;
    *out = NULL;
    TRY(mem_new(1, sizeof *jobs, "jobs", &jobs));
    pthread_mutex_init(&jobs->lock, NULL);
    pthread_cond_init(&jobs->work, NULL);
    pthread_cond_init(&jobs->ended, NULL);
    queue_init(&jobs->urgent);
    queue_init(&jobs->waiting);
    queue_init(&jobs->finished);
    for (int i = 0; i < LANES; i++) {
        queue_init(&jobs->lanes[i].queue);
        pthread_cond_init(&jobs->lanes[i].came, NULL);
    }
    jobs->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK | EFD_SEMAPHORE);
    err = jobs->fd >= 0 ? start_threads(jobs, conf) : err_set_errno(ERR_IO, "cannot make an event descriptor");
    if (err != ERR_OK)
        jobs_free(jobs);
    else
        *out = jobs;
    return err;
}

void jobs_free(struct jobs *jobs)
{
    if (jobs == NULL)
        return;
    pthread_mutex_lock(&jobs->lock);
    jobs->stop = true;
    pthread_cond_broadcast(&jobs->work);
    for (int i = 0; i < LANES; i++)
        pthread_cond_broadcast(&jobs->lanes[i].came);
    pthread_mutex_unlock(&jobs->lock);
    for (int i = 0; jobs->threads != NULL && i < jobs->threads_count + LANES; i++) {
        if (jobs->threads[i].started)
            pthread_join(jobs->threads[i].id, NULL);
        codec_free(jobs->threads[i].scratch.codec);
        mem_free(jobs->threads[i].scratch.values);
    }
    if (jobs->fd >= 0)
        close(jobs->fd);
    pthread_cond_destroy(&jobs->work);
    for (int i = 0; i < LANES; i++)
        pthread_cond_destroy(&jobs->lanes[i].came);
    pthread_cond_destroy(&jobs->ended);
    pthread_mutex_destroy(&jobs->lock);
    mem_free(jobs->threads);
    mem_free(jobs);
}

enum err jobs_set_scratch(struct jobs *jobs, const struct jobs_room *room)
{
    for (int i = 0; i < jobs->threads_count; i++) {
        struct jobs_scratch *scratch = &jobs->threads[i].scratch;
        TRY(codec_reserve(scratch->codec, room->factor_values, room->segment_values));
        if (scratch->values_count >= room->values)
            continue;
        mem_free(scratch->values);
        scratch->values = NULL;
        scratch->values_count = 0;
        TRY(mem_new_unset(room->values, sizeof *scratch->values, "a job thread's scratch", &scratch->values));
        scratch->values_count = room->values;
    }
    return ERR_OK;
}

void jobs_submit(struct jobs *jobs, struct job *job)
{
    struct lane *lane = lane_of(jobs, job->work);
    jobs->pending++;
    pthread_mutex_lock(&jobs->lock);
    if (lane != NULL) /* a trainer may stand still for what is urgent */
        queue_put(&lane->queue, job);
    else
        queue_put(job->work == JOBS_PUBLISH ? &jobs->urgent : &jobs->waiting, job);
    pthread_cond_signal(lane != NULL ? &lane->came : &jobs->work);
    pthread_mutex_unlock(&jobs->lock);
}

int jobs_fd(const struct jobs *jobs)
{
    return jobs->fd;
}

void jobs_cpu(struct jobs *jobs, uint64_t ns[JOBS_WORKS])
{
    pthread_mutex_lock(&jobs->lock);
    memcpy(ns, jobs->cpu_ns, sizeof jobs->cpu_ns);
    pthread_mutex_unlock(&jobs->lock);
}

size_t jobs_pending(const struct jobs *jobs)
{
    return jobs->pending;
}

enum jobs_work jobs_taken(const struct jobs *jobs)
{
    return jobs->taken;
}

bool jobs_take_back(struct jobs *jobs)
{
    uint64_t one;
    if (read(jobs->fd, &one, sizeof one) != sizeof one)
        return false;
    pthread_mutex_lock(&jobs->lock);
    struct job *job = queue_get(&jobs->finished);
    pthread_mutex_unlock(&jobs->lock);
    if (job == NULL)
        return false;
    jobs->pending--;
    jobs->taken = job->work;
    job->done(job);
    return true;
}

/* ---- pools ---- */

void *job_pool_take(struct job_pool *pool)
{
    struct job *job = pool->free;
    if (job == NULL) {
        if (mem_new(1, pool->job_bytes, "a job", &job) != ERR_OK)
            return NULL;
        job->made = pool->made;
        pool->made = job;
        return job;
    }
    struct job *made = job->made;
    pool->free = job->next;
    memset(job, 0, pool->job_bytes);
    job->made = made;
    return job;
}

void job_pool_give(struct job_pool *pool, void *job)
{
    struct job *given = job;
    given->next = pool->free;
    pool->free = given;
}

void job_pool_deinit(struct job_pool *pool)
{
    while (pool->made != NULL) {
        struct job *job = pool->made;
        pool->made = job->made;
        mem_free(job);
    }
    pool->free = NULL;
}
