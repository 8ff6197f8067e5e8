/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ctl_reset: an island forgets its run: moves the run's files aside, so that it can begin or join another. Key and
 * dilocod.conf stay. Blocking; reports on standard output.
 */
#ifndef DAEMON_CTL_CTL_RESET_H
#define DAEMON_CTL_CTL_RESET_H

#include <stdbool.h>

#include "common/err.h"
#include "daemon/home.h"

/* `socket`: where its daemon would answer. ERR_STATE: the daemon runs; ERR_NOTFOUND: there is nothing to move. */
ERR_MUST_CHECK enum err ctl_reset(const struct home *home, const char *socket, bool json);

#endif
