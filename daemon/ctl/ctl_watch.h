/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ctl_watch: an island, live, until somebody has seen enough: on a terminal as a screen (ctl_view, ctl_screen), else,
 * and where that can show none, as plain text, a block at a time. Blocking.
 */
#ifndef DAEMON_CTL_CTL_WATCH_H
#define DAEMON_CTL_CTL_WATCH_H

#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"

struct ctl_watch {
    const char *socket; /* borrowed */
    uint64_t interval_ms;
    bool json; /* one object a line */
};

/* Returns when somebody ends it. A daemon that has gone may come back; only one that never answered is a failure:
 * ERR_CLOSED. ERR_ARG: an interval of nothing; ERR_IO: it cannot be written. */
ERR_MUST_CHECK enum err ctl_watch(const struct ctl_watch *watch);

#endif
