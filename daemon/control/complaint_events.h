/* SPDX-License-Identifier: Apache-2.0 */
/*
 * complaint_events: which complaints are events of their own, and which follow from another one. Private to control/.
 */
#ifndef DAEMON_CONTROL_COMPLAINT_EVENTS_H
#define DAEMON_CONTROL_COMPLAINT_EVENTS_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/control/status_types.h"

/* Fills in `of` of all complaints. */
void complaint_events_find(struct status *status);
/* Whether this one is an event of its own. */
bool complaint_is_event(const struct status *status, uint32_t i);

#endif
