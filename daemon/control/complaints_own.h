/* SPDX-License-Identifier: Apache-2.0 */
/*
 * complaints_own: what is wrong with this island itself, which its people can mend. Private to control/complaints*.c.
 */
#ifndef DAEMON_CONTROL_COMPLAINTS_OWN_H
#define DAEMON_CONTROL_COMPLAINTS_OWN_H

#include "daemon/control/status_types.h"

void complaints_own(struct status *status);

#endif
