/* SPDX-License-Identifier: Apache-2.0 */
/*
 * supervisor: a small process that starts the daemon of a folder again when it dies (dilocod --supervise).
 *
 * `dilococtl start` leaves it behind, as the daemon's parent; it holds the lock on supervisor.pid, and no socket, key
 * or memory of the run. It starts the daemon again after a death by a signal and after a failure (status 1), and pauses
 * before that for 1, 2, 4 ... 60 s, from 1 s on again once a daemon has run for five minutes. It ends with a daemon
 *
 *     that was asked to end         status 0, or SIGTERM or SIGINT before it could listen to them
 *     that cannot start again       status 2: usage or configuration, or its state was removed below it
 *     whose folder is gone          supervisor.pid is not there any more, or is another
 *     whose start somebody awaits   standard input is a pipe whose other end is open: who waits there says what failed
 *
 * SIGTERM and SIGINT make it pass a SIGTERM on to the daemon, wait until that is gone, and end: so once it is gone, no
 * daemon of its own runs or will. Killed, it leaves the daemon as it is. Each restart is logged to standard error.
 */
#ifndef DAEMON_SUPERVISOR_H
#define DAEMON_SUPERVISOR_H

#include <stdint.h>

#include "common/err.h"
#include "daemon/home.h"

enum { SUPERVISED_WHY_BYTES = 96 };

/* What a daemon hears of its supervisor when it is started. */
struct supervised {
    int by;                         /* process of its supervisor; 0: it has none */
    uint32_t again;                 /* so many times it was started again within an hour, this one among them */
    int64_t at_s;                   /* when that was, in seconds since 1970 */
    char why[SUPERVISED_WHY_BYTES]; /* what the one before died of: "was killed by signal 11 (Segmentation fault)" */
};

/* Runs until the daemon is not to be started again; `*status` is its exit status, 128 + signal if one killed it.
 * Blocking; no other thread or child may be. ERR_STATE: the folder has a supervisor; ERR_CONF, ERR_IO, ERR_NOTFOUND. */
ERR_MUST_CHECK enum err supervisor_run(const struct home *home, int *status);

/* In the daemon: takes it out of the environment, so that no child of ours reads it. Before any thread is made. */
void supervised_take(struct supervised *out);

#endif
