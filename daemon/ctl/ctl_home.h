/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ctl_home: starting and stopping the daemon of an island in a folder, and its log. No root, no systemd.
 *
 * Nothing is signalled but the processes that hold the folder's locks (daemon/home.h), and, where none does, the
 * trainer that a killed daemon has left (common/pidfile.h), through descriptors of them, so that a number that now
 * means another process does no harm. Blocking; it reports on standard output.
 */
#ifndef DAEMON_CTL_CTL_HOME_H
#define DAEMON_CTL_CTL_HOME_H

#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"
#include "daemon/home.h"

struct ctl_home {
    const struct home *home; /* with a folder; borrowed */
    const char *socket;      /* start: where the daemon answers; borrowed */
    const char *state;       /* stop: the folder in which the daemon notes its trainer; borrowed */
    uint64_t stop_ms;        /* stop: how long a trainer has to save and end before it is killed */
    bool no_wait;            /* start: do not wait for its answer */
    bool json;
};

/* Starts dilocod in the background under a supervisor (daemon/supervisor.h), with their output appended to the log, and
 * waits until it answers; is content with one that runs already, whether that answers soon or not. A supervisor that
 * pauses before the next start is replaced. ERR_STATE: it ended instead; the end of what it has logged
 * was printed to standard error. */
ERR_MUST_CHECK enum err ctl_home_start(const struct ctl_home *ctl);

/* Has the supervisor and the daemon end in order, and its trainer, and waits until they are gone; is content where none
 * runs. Nothing starts the daemon again then.
 * ERR_STATE: one may not be signalled, or does not end. */
ERR_MUST_CHECK enum err ctl_home_stop(const struct ctl_home *ctl);

/* Prints the log; with `follow` the last lines of it and then what comes, until the process is ended; with `trainer`
 * only what the trainer said. ERR_NOTFOUND. */
ERR_MUST_CHECK enum err ctl_home_logs(const struct home *home, bool follow, bool trainer);

#endif
