/* SPDX-License-Identifier: Apache-2.0 */
/*
 * contribution_complaints: complaints of what other islands contribute: how fast, how much, and which of it counts.
 * Private to control/.
 */
#ifndef DAEMON_CONTROL_CONTRIBUTION_COMPLAINTS_H
#define DAEMON_CONTROL_CONTRIBUTION_COMPLAINTS_H

#include "daemon/control/status_types.h"

/* Adds all that there are to `status->complaints`, which has room for them. */
void contribution_complaints(struct status *status);

#endif
