/* SPDX-License-Identifier: Apache-2.0 */
/*
 * process: the trainer's process: started, watched, started again when it fails, ended. Private to trainer/.
 *
 * It knows nothing of what the trainer does; whether it has finished its work it is told. Only the loop's thread
 * calls; nothing blocks.
 *
 *   STOPPED ──resume, or autostart──▶ RUNNING ──pause──▶ LEAVING ──it ended──▶ STOPPED
 *                                    │   ▲
 *                  it ended badly    ▼   │ pause over
 *                                   WAITING             RUNNING ──it said it is done, and ended──▶ FINISHED
 *                                                          └──────it ended with status 0──────────▶ ENDED
 *
 * A program that ends with status 0 means to: to start it again would train the same again, for ever. diloco-worker
 * never means to before it is done: it was told to by somebody else, and is started again.
 */
#ifndef DAEMON_TRAINER_PROCESS_H
#define DAEMON_TRAINER_PROCESS_H

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"
#include "daemon/dconf.h"

enum process_state {
    PROCESS_NONE, /* none is configured */
    PROCESS_STOPPED,
    PROCESS_RUNNING,
    PROCESS_LEAVING,
    PROCESS_WAITING, /* it failed and is started again when the pause is over */
    PROCESS_ENDED,   /* it ended by itself, and well, without having said that it is done */
    PROCESS_FINISHED
};

struct process;

/* `conf` is borrowed. A trainer that an earlier daemon started and that still runs is taken over. */
ERR_MUST_CHECK enum err process_new(const struct dconf *conf, struct process **out);
/* Does not end the trainer. */
void process_free(struct process *process);

/* Starts it if the configuration says so and it does not run. ERR_CONF, ERR_IO as below; ERR_NOMEM. */
ERR_MUST_CHECK enum err process_autostart(struct process *process, uint64_t now_ms);
/* Starts it. ERR_STATE: it runs, or none is configured; ERR_CONF: there is nothing to train on; ERR_IO: it could not be
 * watched, and is ended; ERR_NOMEM: there is no room for another process. */
ERR_MUST_CHECK enum err process_start(struct process *process, uint64_t now_ms);
/* Its end is wanted from now on: no failure, no new start. */
void process_leave(struct process *process);
/* Asks it to end (SIGTERM); it saves first, for which it has [worker] stop from the first time on; then it is killed
 * (SIGKILL). False: none that this daemon started or took over runs. */
bool process_end(struct process *process);
/* Kills it now. */
void process_kill(struct process *process);
/* It has stood still for so long that it must be taken to hang: kills it, which is a failure as others are. */
void process_hung(struct process *process, double seconds);
/* It said that it is done: its end is not a failure. */
void process_finished(struct process *process);
/* The daemon stops: asks it to end, and does not start it again. */
void process_stop(struct process *process);

size_t process_poll(const struct process *process, struct pollfd *items, size_t items_max);
/* Looks whether it has ended. Call it each turn: `now_ms` is the time of all other calls until the next one. */
void process_run(struct process *process, uint64_t now_ms);
void process_tick(struct process *process, uint64_t now_ms);

bool process_running(const struct process *process);
struct process_info {
    enum process_state state;
    int pid;
    bool ending; /* it was asked to end, or killed */
    unsigned failures;
    bool left;        /* STOPPED, since that was asked of a process that ran or was to be started */
    bool ended_badly; /* FINISHED or STOPPED: it had said that it is done, and nobody had asked it to end */
    const char *note; /* how it ended, where that was not as it should be; "" */
    const char *path; /* of somebody else's program that was named without a folder, where it was found; "" */
};
struct process_info process_info(const struct process *process);
const char *process_state_name(enum process_state state);

#endif
