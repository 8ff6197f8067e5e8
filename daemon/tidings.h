/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tidings: what the protocol core reports of our own fragments, in words, for the log.
 */
#ifndef DAEMON_TIDINGS_H
#define DAEMON_TIDINGS_H

#include "net/sync/sync.h"

/* `action` is a SYNC_DO_REPORT. `peer`: the name of the member it is about; NULL: ourselves. */
void tidings_tell(const struct sync *sync, const struct sync_action *action, const char *peer);

#endif
