/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/comm/comm_nccl.h"

#include <sched.h>
#include <stdio.h>

#include "common/env.h"
#include "common/log.h"
#include "common/mem.h"
#include "worker/comm/comm_shm.h"
#include "worker/comm/comm_sum.h"
#include "worker/comm/nccl_watch.h"

static const double PATIENCE_S = 60, FREE_S = 2;
/* NCCL queues from a thread of its own, which is done in some 50 us: to sleep at once would take longer. */
static const double AWAKE_S = 1e-3, NAP_S = 1e-3, STEP_S = .1;

/* Of one rank, for all its communicators. */
struct base {
    struct nccl_api api;
    struct nccl_watch_conf conf;
    struct nccl_watch *watch;
    const struct kern *kern;
    struct kern_dev *dev;
    uint32_t *words; /* on the device: words[i] is i, for copies to the page */
    bool pinned;     /* the page's rows: the device writes there */
    bool hasty;      /* one could not be ended in time: no other one is waited for */
    unsigned users;
};

struct nccl {
    struct comm comm;
    struct base *base;
    struct comm *host; /* ours */
    struct nccl_watched watched;
    int member[GROUP_RANKS_MAX]; /* rank here to rank in the page */
    uint32_t number;             /* of the newest collective */
};

static const struct comm_calls nccl_calls;

static const struct group_page *page_of(const struct nccl *n)
{
    return n->base->conf.page;
}

static struct group_rank *own(const struct nccl *n)
{
    return group_rank(page_of(n), n->base->conf.rank);
}

static struct group_slot *own_slot(const struct nccl *n)
{
    return &own(n)->slot[n->watched.slot];
}

static enum err fail(const struct nccl *n, enum group_op op, enum err err)
{
    return group_fail(page_of(n), n->base->conf.rank, op, err);
}

/* ---- where its device is ---- */

static uint32_t word_of(uint32_t number, enum group_op op)
{
    return number << GROUP_OP_BITS | (uint32_t)op;
}

/* Queued before and behind a collective: what the watcher compares. */
static void tell(const struct nccl *n, enum kern_queue queue, _Atomic uint32_t *word, enum group_op op)
{
    const struct base *base = n->base;
    uint32_t value = word_of(n->number % NCCL_NUMBERS, op);
    if (base->kern->on_host)
        atomic_store(word, value);
    else if (base->pinned)
        base->kern->copy(base->dev, queue, (void *)word, base->words + value, sizeof value);
}

/* ---- calls that may take their time ---- */

static enum err begin(const struct nccl *n, enum group_op op)
{
    if (group_cancelled(page_of(n)))
        return group_closed(page_of(n));
    TRY(fail(n, op, group_page_check(page_of(n))));
    atomic_fetch_add(&own(n)->beat, 1);
    atomic_store(&own(n)->op, op);
    return ERR_OK;
}

static enum err end(const struct nccl *n, enum group_op op, enum err err)
{
    atomic_store(&own(n)->op, GROUP_IDLE);
    return fail(n, op, err);
}

/* How far NCCL is with what it was last asked for; `*failure` is what it says if it fails (NULL: nobody asks). */
static ncclResult_t progress(struct nccl *n, enum err *failure)
{
    struct nccl_watched *w = &n->watched;
    ncclResult_t result = ncclInProgress;
    pthread_mutex_lock(&w->calling);
    if (w->handle != NULL) {
        ncclResult_t asked = w->api->async_error(w->handle, &result);
        result = asked != ncclSuccess ? asked : result;
        if (failure != NULL && result != ncclSuccess && result != ncclInProgress)
            *failure = nccl_failed(w, result);
    }
    pthread_mutex_unlock(&w->calling);
    return result;
}

/* Until NCCL is done with what it was asked for. Who waits here for others sees by itself when it is in vain. */
static enum err settle(struct nccl *n, enum group_op op, ncclResult_t result, enum err failure)
{
    double last = env_mono_s(), waited = 0;
    atomic_store(&own(n)->waits, 1);
    while (result == ncclInProgress && !group_cancelled(page_of(n))) {
        if (waited >= n->base->conf.patience_s)
            nccl_give_up(&n->base->conf, &n->watched, op, n->number, true);
        else if (waited < AWAKE_S)
            sched_yield();
        else
            group_sleep(&page_of(n)->shared->cancelled, 0, NAP_S);
        result = progress(n, &failure);
        double now = env_mono_s(), passed = now - last;
        waited += passed < STEP_S ? passed : STEP_S; /* a rank that is stopped for a while loses no patience */
        last = now;
    }
    atomic_store(&own(n)->waits, 0);
    if (result != ncclSuccess && !group_cancelled(page_of(n)))
        nccl_let_launcher_speak(page_of(n));
    if (!group_cancelled(page_of(n)))
        return failure;
    nccl_abort(&n->watched); /* the watcher may have ended before it was there */
    return group_closed(page_of(n));
}

/* ---- collectives ---- */

struct job {
    enum group_op op;
    enum kern_queue queue;
    const void *from;
    void *to;
    int64_t count;
    enum comm_type type;
    int root; /* of a broadcast */
};

static ncclDataType_t nccl_type(enum comm_type type)
{
    switch (type) {
    case COMM_F32: return ncclFloat32;
    case COMM_BF16: return ncclBfloat16;
    case COMM_I32: return ncclInt32;
    case COMM_F64: return ncclFloat64;
    }
    return ncclFloat32;
}

static ncclResult_t call(const struct nccl *n, const struct job *job, cudaStream_t stream)
{
    const struct nccl_api *api = &n->base->api;
    ncclComm_t handle = n->watched.handle;
    ncclDataType_t type = nccl_type(job->type);
    size_t count = (size_t)job->count;
    switch (job->op) {
    case GROUP_ALL_REDUCE: return api->all_reduce(job->from, job->to, count, type, ncclSum, handle, stream);
    case GROUP_REDUCE_SCATTER: return api->reduce_scatter(job->from, job->to, count, type, ncclSum, handle, stream);
    case GROUP_ALL_GATHER: return api->all_gather(job->from, job->to, count, type, handle, stream);
    case GROUP_BROADCAST: return api->broadcast(job->from, job->to, count, type, job->root, handle, stream);
    default: return ncclInvalidArgument;
    }
}

static enum err check_job(const struct nccl *n, const struct job *job)
{
    if (job->count < 0 || comm_type_bytes(job->type) == 0 || job->root < 0 || job->root >= n->comm.count ||
        job->count > INT64_MAX / 8 / GROUP_RANKS_MAX)
        return err_set(ERR_ARG, "%s of %lld values of type %d from rank %d", group_op_name(job->op),
                       (long long)job->count, (int)job->type, job->root);
    return ERR_OK;
}

static enum err run(struct comm *comm, struct job job)
{
    struct nccl *n = (struct nccl *)comm;
    struct nccl_watched *w = &n->watched;
    ncclResult_t result = ncclInProgress; /* where it was aborted in the meantime; settle() sees it */
    enum err failure = ERR_OK;
    TRY(check_job(n, &job));
    TRY(begin(n, job.op));
    if (job.count == 0)
        return end(n, job.op, ERR_OK);
    atomic_store(&own_slot(n)->called, word_of(++n->number, job.op));
    cudaStream_t stream = n->base->kern->stream(n->base->dev, job.queue);
    tell(n, job.queue, &own_slot(n)->begun, job.op);
    pthread_mutex_lock(&w->calling);
    if (w->handle != NULL) {
        result = call(n, &job, stream);
        if (result != ncclSuccess && result != ncclInProgress)
            failure = nccl_failed(w, result);
    }
    pthread_mutex_unlock(&w->calling);
    enum err err = settle(n, job.op, result, failure);
    if (err == ERR_OK)
        tell(n, job.queue, &own_slot(n)->done, job.op);
    return end(n, job.op, err);
}

static enum err nccl_all_reduce(struct comm *comm, enum kern_queue queue, void *array, int64_t count,
                                enum comm_type type)
{
    return run(comm, (struct job){GROUP_ALL_REDUCE, queue, array, array, count, type, 0});
}

static enum err nccl_reduce_scatter(struct comm *comm, enum kern_queue queue, void *part, const void *array,
                                    int64_t count, enum comm_type type)
{
    return run(comm, (struct job){GROUP_REDUCE_SCATTER, queue, array, part, count, type, 0});
}

static enum err nccl_all_gather(struct comm *comm, enum kern_queue queue, void *array, const void *part, int64_t count,
                                enum comm_type type)
{
    return run(comm, (struct job){GROUP_ALL_GATHER, queue, part, array, count, type, 0});
}

static enum err nccl_broadcast(struct comm *comm, enum kern_queue queue, void *array, int64_t count,
                               enum comm_type type, int root)
{
    return run(comm, (struct job){GROUP_BROADCAST, queue, array, array, count, type, root});
}

static enum err nccl_check(struct comm *comm)
{
    struct nccl *n = (struct nccl *)comm;
    enum err failure = ERR_OK;
    ncclResult_t result = group_cancelled(page_of(n)) ? ncclSuccess : progress(n, &failure);
    if (result != ncclSuccess && result != ncclInProgress)
        nccl_let_launcher_speak(page_of(n));
    if (group_cancelled(page_of(n)))
        return group_closed(page_of(n));
    return fail(n, group_in(page_of(n), n->base->conf.rank), failure);
}

/* ---- of the hosts ---- */

static enum err nccl_barrier(struct comm *comm)
{
    struct comm *host = ((struct nccl *)comm)->host;
    return host->calls->barrier(host);
}

static enum err nccl_host_broadcast(struct comm *comm, void *bytes, size_t count, int *fd, int root)
{
    struct comm *host = ((struct nccl *)comm)->host;
    return host->calls->host_broadcast(host, bytes, count, fd, root);
}

static void nccl_cancel(struct comm *comm)
{
    struct comm *host = ((struct nccl *)comm)->host;
    host->calls->cancel(host);
}

/* ---- making and ending ---- */

static void base_free(struct base *base)
{
    if (base == NULL || base->users > 0)
        return;
    nccl_watch_free(base->watch);
    if (base->pinned) {
        enum err err = base->kern->sync(base->dev); /* words may still be on their way; a fault is told elsewhere */
        (void)err;
        base->kern->unpin(base->dev, base->conf.page->shared);
    }
    base->kern->free(base->dev, base->words);
    mem_free(base);
}

/* Words that a device writes: they are copied there from an array of its own, as a collective's turn comes. */
static enum err let_device_write(struct base *base)
{
    const struct kern *kern = base->kern;
    size_t count = NCCL_NUMBERS << GROUP_OP_BITS, bytes = count * sizeof *base->words;
    uint32_t *host;
    if (kern->on_host)
        return ERR_OK;
    TRY(mem_new(count, sizeof *host, "numbers of collectives", &host));
    for (size_t i = 0; i < count; i++)
        host[i] = (uint32_t)i;
    void *words = NULL;
    enum err err = kern->alloc(base->dev, bytes, "numbers of collectives", &words);
    if (err == ERR_OK) {
        base->words = words;
        kern->copy(base->dev, KERN_MAIN, words, host, bytes);
        err = kern->wait(base->dev, kern->mark(base->dev, KERN_MAIN));
    }
    mem_free(host);
    TRY(err);
    base->pinned = kern->pin(base->dev, base->conf.page->shared, base->conf.page->fixed.stage_offset) == ERR_OK;
    if (!base->pinned)
        log_warn("rank %d: a GPU that hangs in a collective will not be noticed: %s", base->conf.rank, err_text());
    return ERR_OK;
}

static enum err base_new(const struct nccl_api *api, const struct group_seat *seat, const struct kern *kern,
                         struct kern_dev *dev, double patience_s, struct base **out)
{
    struct base *base;
    TRY(mem_new(1, sizeof *base, "NCCL's communicators", &base));
    *base = (struct base){
        .api = *api,
        .conf = {.page = seat->page, .rank = seat->rank, .patience_s = patience_s > 0 ? patience_s : PATIENCE_S},
        .kern = kern,
        .dev = dev};
    enum err err = let_device_write(base);
    if (err == ERR_OK)
        err = nccl_watch_new(&base->conf, &base->watch);
    if (err == ERR_OK)
        *out = base;
    else
        base_free(base);
    return err;
}

/* Takes `host`, also where it fails. */
static enum err make(struct base *base, struct comm *host, struct nccl **out)
{
    struct nccl *n;
    enum err err = mem_new(1, sizeof *n, "a communicator", &n);
    if (err != ERR_OK) {
        host->calls->free(host);
        return err;
    }
    n->comm = (struct comm){.calls = &nccl_calls, .rank = host->rank, .count = host->count};
    n->base = base;
    n->host = host;
    for (int i = 0; i < host->count; i++)
        n->member[i] = comm_shm_member(host, i);
    n->watched = (struct nccl_watched){
        .api = &base->api, .slot = comm_shm_slot(host), .count = host->count, .member = n->member};
    pthread_mutex_init(&n->watched.calling, NULL);
    n->number = atomic_load(&own_slot(n)->called) >> GROUP_OP_BITS;
    base->users++;
    nccl_watch_add(base->watch, &n->watched);
    *out = n;
    return ERR_OK;
}

/* Brings the ranks of `host` together in NCCL. */
static enum err connect(struct nccl *n)
{
    struct nccl_watched *w = &n->watched;
    ncclUniqueId id = {.internal = {0}};
    ncclConfig_t config = {
        .size = NCCL_API_CONFIG_BYTES, .magic = NCCL_API_MAGIC, .version = NCCL_API_OLDEST, .blocking = 0};
    enum err failure = ERR_OK;
    TRY(begin(n, GROUP_CONNECT));
    ncclResult_t result = n->comm.rank == 0 ? w->api->get_unique_id(&id) : ncclSuccess;
    TRY(end(n, GROUP_CONNECT, result != ncclSuccess ? nccl_failed(w, result) : ERR_OK));
    TRY(n->host->calls->host_broadcast(n->host, &id, sizeof id, NULL, 0));
    TRY(begin(n, GROUP_CONNECT));
    uint32_t word = word_of(++n->number, GROUP_CONNECT);
    atomic_store(&own_slot(n)->called, word);
    atomic_store(&own_slot(n)->begun, word & (word_of(NCCL_NUMBERS, GROUP_IDLE) - 1));
    (void)n->base->kern->stream(n->base->dev, KERN_MAIN); /* NCCL takes the thread's current device */
    pthread_mutex_lock(&w->calling);
    result = w->api->init_rank(&w->handle, n->comm.count, id, n->comm.rank, &config);
    if (result != ncclSuccess && result != ncclInProgress)
        failure = nccl_failed(w, result);
    pthread_mutex_unlock(&w->calling);
    enum err err = settle(n, GROUP_CONNECT, result, failure);
    atomic_store(&own_slot(n)->done, atomic_load(&own_slot(n)->begun));
    return end(n, GROUP_CONNECT, err);
}

/* Without an abort, if it can be; others may still be taking what this rank has sent. */
static bool finish(struct nccl *n)
{
    struct nccl_watched *w = &n->watched;
    double until = env_mono_s() + FREE_S;
    ncclResult_t result = ncclInvalidUsage;
    pthread_mutex_lock(&w->calling);
    if (w->handle != NULL && !n->base->hasty)
        result = w->api->finalize(w->handle);
    pthread_mutex_unlock(&w->calling);
    while (result == ncclInProgress && !group_cancelled(page_of(n)) && env_mono_s() < until) {
        group_sleep(&page_of(n)->shared->cancelled, 0, NAP_S);
        result = progress(n, NULL);
    }
    if (result != ncclSuccess || group_cancelled(page_of(n)))
        return false;
    pthread_mutex_lock(&w->calling);
    if (w->handle != NULL)
        w->api->destroy(w->handle);
    w->handle = NULL;
    pthread_mutex_unlock(&w->calling);
    return true;
}

static void nccl_free(struct comm *comm)
{
    struct nccl *n = (struct nccl *)comm;
    if (n == NULL)
        return;
    struct base *base = n->base;
    if (!finish(n))
        base->hasty = true;
    nccl_abort(&n->watched);
    nccl_watch_remove(base->watch, &n->watched);
    n->host->calls->free(n->host);
    pthread_mutex_destroy(&n->watched.calling);
    mem_free(n);
    base->users--;
    base_free(base);
}

static enum err open_on(struct base *base, struct comm *host, struct comm **out)
{
    struct nccl *n;
    TRY(make(base, host, &n));
    enum err err = connect(n);
    if (err != ERR_OK)
        nccl_free(&n->comm);
    else
        *out = &n->comm;
    return err;
}

static enum err nccl_split(struct comm *comm, int color, int key, struct comm **out)
{
    struct nccl *n = (struct nccl *)comm;
    struct comm *host;
    *out = NULL;
    TRY(n->host->calls->split(n->host, color, key, &host));
    return open_on(n->base, host, out);
}

static const struct comm_calls nccl_calls = {
    .all_reduce = nccl_all_reduce,
    .reduce_scatter = nccl_reduce_scatter,
    .all_gather = nccl_all_gather,
    .broadcast = nccl_broadcast,
    .check = nccl_check,
    .barrier = nccl_barrier,
    .host_broadcast = nccl_host_broadcast,
    .split = nccl_split,
    .cancel = nccl_cancel,
    .free = nccl_free,
};

enum err comm_nccl_new(const struct nccl_api *api, struct comm *host, const struct kern *kern, struct kern_dev *dev,
                       double patience_s, struct comm **out)
{
    struct base *base;
    *out = NULL;
    enum err err = base_new(api, comm_shm_seat(host), kern, dev, patience_s, &base);
    if (err != ERR_OK) {
        host->calls->free(host);
        return err;
    }
    base->users++; /* until it is known whether there is one */
    err = open_on(base, host, out);
    base->users--;
    base_free(base);
    return err;
}
