/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/comm/nccl_watch.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "common/env.h"
#include "common/mem.h"

enum { HOST_BITS = 32 - GROUP_OP_BITS, DETAIL_BYTES = 160 };
static const double TICK_S = .05, LAUNCHER_S = .4;

struct nccl_watch {
    struct nccl_watch_conf conf;
    pthread_t thread;
    pthread_mutex_t lock; /* of the list */
    struct nccl_watched *first;
    _Atomic bool stop;
};

static struct group_slot *row(const struct nccl_watch_conf *conf, int rank, const struct nccl_watched *watched)
{
    return &group_rank(conf->page, rank)->slot[watched->slot];
}

/* ---- what is said ---- */

enum err nccl_failed(const struct nccl_watched *watched, ncclResult_t result)
{
    char detail[DETAIL_BYTES] = "";
    const char *last = watched->api->last_error(watched->handle); /* without one, too */
    if (last != NULL && last[0] != '\0')
        snprintf(detail, sizeof detail, " (%.*s)", (int)strcspn(last, "\n"), last);
    return err_set(ERR_STATE, "NCCL: %s%s", watched->api->error_string(result), detail);
}

void nccl_let_launcher_speak(const struct group_page *page)
{
    double begin = env_mono_s(), now = begin;
    for (; !group_cancelled(page) && now - begin < LAUNCHER_S; now = env_mono_s())
        group_sleep(&page->shared->cancelled, 0, LAUNCHER_S - (now - begin));
}

/* By numbers that count modulo 2^bits. */
static bool is_behind(uint32_t word, uint32_t number, int bits)
{
    return (int32_t)(((word >> GROUP_OP_BITS) - number) << (32 - bits)) < 0;
}

void nccl_give_up(const struct nccl_watch_conf *conf, const struct nccl_watched *watched, enum group_op op,
                  uint32_t number, bool on_host)
{
    char why[GROUP_WHY_BYTES] = "";
    const char *own = group_device(conf->page, conf->rank);
    size_t at = 0;
    _Static_assert(NCCL_NUMBERS == 1 << 10, "as is said here");
    for (int i = 0; i < watched->count && at < sizeof why; i++) {
        int rank = watched->member[i];
        const struct group_slot *slot = row(conf, rank, watched);
        bool missing = on_host ? is_behind(atomic_load(&slot->called), number, HOST_BITS)
                               : is_behind(atomic_load(&slot->begun), number, 10);
        if (missing)
            at += (size_t)snprintf(why + at, sizeof why - at, "%s %d (%s)", at == 0 ? "rank" : ",", rank,
                                   group_device(conf->page, rank));
    }
    if (at == 0)
        snprintf(why, sizeof why, "rank %d (%s) has made no step in %s for %g s", conf->rank, own, group_op_name(op),
                 conf->patience_s);
    else if (at < sizeof why)
        snprintf(why + at, sizeof why - at, " has not come in %g s to %s, where rank %d (%s) waits", conf->patience_s,
                 group_op_name(op), conf->rank, own);
    group_cancel(conf->page, ERR_STATE, why);
}

/* ---- the end ---- */

void nccl_abort(struct nccl_watched *watched)
{
    pthread_mutex_lock(&watched->calling);
    ncclComm_t handle = watched->handle;
    watched->handle = NULL;
    if (handle != NULL)
        watched->api->comm_abort(handle);
    pthread_mutex_unlock(&watched->calling);
}

static void *abort_one(void *watched)
{
    nccl_abort(watched);
    return NULL;
}

/* At the same time: one that frees its memory waits for all that the device does, so also for what the others wait for
 * there. */
static void abort_all(struct nccl_watch *watch)
{
    pthread_t thread[GROUP_SLOTS];
    int count = 0;
    pthread_mutex_lock(&watch->lock);
    for (struct nccl_watched *w = watch->first; w != NULL; w = w->next) {
        if (count < GROUP_SLOTS && pthread_create(&thread[count], NULL, abort_one, w) == 0)
            count++;
        else
            nccl_abort(w);
    }
    while (count > 0)
        pthread_join(thread[--count], NULL);
    pthread_mutex_unlock(&watch->lock);
}

/* ---- looking ---- */

static void ask(struct nccl_watch *watch, struct nccl_watched *w, double passed_s)
{
    const struct nccl_watch_conf *conf = &watch->conf;
    ncclResult_t result = ncclSuccess;
    enum err err = ERR_OK;
    if (pthread_mutex_trylock(&w->calling) != 0)
        return; /* its owner is just calling, and is told */
    if (w->handle != NULL && w->api->async_error(w->handle, &result) == ncclSuccess && result != ncclSuccess &&
        result != ncclInProgress) {
        w->wrong_s += passed_s;
        if (w->wrong_s >= LAUNCHER_S)
            err = nccl_failed(w, result);
    }
    pthread_mutex_unlock(&w->calling);
    (void)group_fail(conf->page, conf->rank, group_in(conf->page, conf->rank), err);
}

static void look_for_stuck(struct nccl_watch *watch, struct nccl_watched *w, double passed_s)
{
    const struct nccl_watch_conf *conf = &watch->conf;
    struct group_slot *own = row(conf, conf->rank, w);
    uint32_t begun = atomic_load(&own->begun);
    bool still = begun != atomic_load(&own->done) && begun == w->begun;
    w->still_s = still ? w->still_s + passed_s : 0;
    w->begun = begun;
    if (w->still_s >= conf->patience_s)
        nccl_give_up(conf, w, (enum group_op)(begun & ((1u << GROUP_OP_BITS) - 1)), begun >> GROUP_OP_BITS, false);
}

static void *watch_main(void *user)
{
    struct nccl_watch *watch = user;
    const struct group_page *page = watch->conf.page;
    double last = env_mono_s();
    while (!atomic_load(&watch->stop)) {
        if (group_cancelled(page)) {
            abort_all(watch);
            break; /* whoever makes another one now sees it, and ends it himself */
        }
        group_sleep(&page->shared->cancelled, 0, TICK_S);
        /* Time in which this process itself stood still is nobody's fault. */
        double now = env_mono_s(), passed = now - last;
        last = now;
        passed = passed < 2 * TICK_S ? passed : 2 * TICK_S;
        pthread_mutex_lock(&watch->lock);
        for (struct nccl_watched *w = watch->first; w != NULL; w = w->next) {
            ask(watch, w, passed);
            look_for_stuck(watch, w, passed);
        }
        pthread_mutex_unlock(&watch->lock);
    }
    return NULL;
}

/* ---- its life ---- */

enum err nccl_watch_new(const struct nccl_watch_conf *conf, struct nccl_watch **out)
{
    struct nccl_watch *watch;
    sigset_t all, before;
    TRY(mem_new(1, sizeof *watch, "NCCL's watcher", &watch));
    watch->conf = *conf;
    pthread_mutex_init(&watch->lock, NULL);
    sigfillset(&all); /* signals are for the rank's own thread */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int code = pthread_create(&watch->thread, NULL, watch_main, watch);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (code != 0) {
        pthread_mutex_destroy(&watch->lock);
        mem_free(watch);
        return err_set(ERR_NOMEM, "cannot start NCCL's watcher: %s", strerror(code));
    }
    *out = watch;
    return ERR_OK;
}

void nccl_watch_free(struct nccl_watch *watch)
{
    if (watch == NULL)
        return;
    atomic_store(&watch->stop, true);
    group_wake(&watch->conf.page->shared->cancelled);
    pthread_join(watch->thread, NULL);
    pthread_mutex_destroy(&watch->lock);
    mem_free(watch);
}

void nccl_watch_add(struct nccl_watch *watch, struct nccl_watched *watched)
{
    pthread_mutex_lock(&watch->lock);
    watched->next = watch->first;
    watch->first = watched;
    pthread_mutex_unlock(&watch->lock);
}

void nccl_watch_remove(struct nccl_watch *watch, struct nccl_watched *watched)
{
    pthread_mutex_lock(&watch->lock);
    struct nccl_watched **at = &watch->first;
    while (*at != NULL && *at != watched)
        at = &(*at)->next;
    if (*at != NULL)
        *at = watched->next;
    pthread_mutex_unlock(&watch->lock);
}
