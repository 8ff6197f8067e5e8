/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ctl_wait: waits until the daemon has done a request: until its trainer is in a state, with progress and obstacles on
 * standard output, or until an anchor is saved. Blocking.
 */
#ifndef DAEMON_CTL_CTL_WAIT_H
#define DAEMON_CTL_CTL_WAIT_H

#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"

struct ctl_wait {
    const char *socket;        /* where the daemon answers */
    const char *const *wanted; /* states of `status`, up to NULL: one of them is waited for */
    uint64_t end_ms;           /* env_mono_ms() at which it gives up; 0: never */
    bool json;                 /* say nothing on the way */
};

/* ERR_AGAIN: the time is over, with the state it is in and what it waits for; ERR_STATE: it ended instead. */
ERR_MUST_CHECK enum err ctl_wait_trainer(const struct ctl_wait *wait);

enum { CTL_WAIT_PATH_BYTES = 400 };

/* Until the daemon has written the anchor that it was asked to save. `saved`: the file's path. ERR_IO: it could not be
 * written, and why. */
ERR_MUST_CHECK enum err ctl_wait_saved(const char *socket, char saved[CTL_WAIT_PATH_BYTES]);

#endif
