/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nccl_watch: the thread of a rank that ends NCCL's waiting.
 *
 * A collective of NCCL's waits on the device, and the host for the device, where it looks at nothing: so somebody else
 * has to look. Every 50 ms, and at once when the group is cancelled, the watcher
 *   - aborts all communicators of its rank when the group (group_page.h) is cancelled: what waits on the device ends,
 *     and so does the host's wait for it. Whoever waited must then ask whether it counts: comm.h, check();
 *   - asks NCCL whether anything went wrong, and cancels the group with its text;
 *   - compares what the device has begun with what is done there (group_slot's words, which the device writes): a
 *     collective under way for `patience_s` cancels the group, naming those whose devices have not begun it.
 * It calls nothing of kernels/, whose tables belong to one thread.
 *
 * Owns its thread; the page and the communicators are borrowed. Calls about one communicator are made under its mutex,
 * by the rank's thread and by the watcher; one that hangs inside NCCL keeps it, and is the launcher's to kill.
 */
#ifndef WORKER_COMM_NCCL_WATCH_H
#define WORKER_COMM_NCCL_WATCH_H

#include <pthread.h>
#include <stdint.h>

#include "worker/comm/group_page.h"
#include "worker/comm/nccl_api.h"

struct nccl_watch;

/* A communicator of NCCL's. */
struct nccl_watched {
    const struct nccl_api *api; /* to `member`: the owner's, fixed before nccl_watch_add() */
    uint32_t slot;              /* in the ranks' rows of the page */
    int count;
    const int *member;       /* member[count]: ranks in the page; borrowed */
    pthread_mutex_t calling; /* held by whoever calls NCCL with `handle` */
    ncclComm_t handle;       /* NULL: there is none yet, or none any more */
    uint32_t begun;          /* from here on the watcher's: what was under way at the last look, for how long */
    double still_s;
    double wrong_s; /* since NCCL says that something is wrong */
    struct nccl_watched *next;
};

struct nccl_watch_conf {
    const struct group_page *page;
    int rank; /* its own, in the page */
    double patience_s;
};

/* Starts the thread. */
ERR_MUST_CHECK enum err nccl_watch_new(const struct nccl_watch_conf *conf, struct nccl_watch **out);
/* Ends it; no communicator is left in it. NULL is fine. */
void nccl_watch_free(struct nccl_watch *watch);

/* `handle` may still be NULL. */
void nccl_watch_add(struct nccl_watch *watch, struct nccl_watched *watched);
/* When this returns the watcher does not know it any more. */
void nccl_watch_remove(struct nccl_watch *watch, struct nccl_watched *watched);

/* Ends what it waits for; afterwards it has no handle. Any thread, more than once. */
void nccl_abort(struct nccl_watched *watched);

/* What NCCL says of a failure of `watched` (whose mutex is held), as this thread's error; ERR_STATE. */
ERR_MUST_CHECK enum err nccl_failed(const struct nccl_watched *watched, ncclResult_t result);
/* Gives the launcher time to tell of a rank that is gone, which says more than what NCCL says of it elsewhere. */
void nccl_let_launcher_speak(const struct group_page *page);

/* Cancels the group: its patience has passed in `op` in vain. Those are named whose word (`called` with `on_host`, else
 * `begun`) is of a collective before number `number`. */
void nccl_give_up(const struct nccl_watch_conf *conf, const struct nccl_watched *watched, enum group_op op,
                  uint32_t number, bool on_host);

/* Numbers of collectives in words that a device has written are modulo this. */
enum { NCCL_NUMBERS = 1024 };

#endif
