/*
 * complaints: what is not as it should be, and what to do about it, from what a status has found. Private to control/.
 */
#ifndef DAEMON_CONTROL_COMPLAINTS_H
#define DAEMON_CONTROL_COMPLAINTS_H

#include <stddef.h>

#include "daemon/control/status_types.h"

/* "away", "alone", ... */
const char *complaint_name(enum complaint_code code);

/* So many at most. */
size_t complaints_max(const struct status *status);
/* Adds all that there is to complain of, to `status->complaints`, which has room for them. */
void complaints_all(struct status *status);

#endif
