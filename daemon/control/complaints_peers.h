/* SPDX-License-Identifier: Apache-2.0 */
/*
 * complaints_peers: what is wrong with the others, or between them and this island. Private to control/complaints*.c.
 */
#ifndef DAEMON_CONTROL_COMPLAINTS_PEERS_H
#define DAEMON_CONTROL_COMPLAINTS_PEERS_H

#include "daemon/control/status_types.h"

void complaints_peers(struct status *status);

#endif
