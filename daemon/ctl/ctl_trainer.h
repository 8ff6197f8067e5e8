/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ctl_trainer: waiting until this island's trainer is in a state that was asked for, and saying on standard output how
 * it comes there and what keeps it. Blocking.
 */
#ifndef DAEMON_CTL_CTL_TRAINER_H
#define DAEMON_CTL_CTL_TRAINER_H

#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"

struct ctl_trainer {
    const char *socket;        /* where the daemon answers */
    const char *const *wanted; /* states of `status`, up to NULL: one of them is waited for */
    uint64_t end_ms;           /* env_mono_ms() at which it gives up; 0: never */
    bool json;                 /* say nothing on the way */
};

/* ERR_AGAIN: the time is over, with the state it is in and what it waits for; ERR_STATE: it ended instead. */
ERR_MUST_CHECK enum err ctl_trainer_wait(const struct ctl_trainer *wait);

#endif
