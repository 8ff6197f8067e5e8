/* SPDX-License-Identifier: Apache-2.0 */
/*
 * complaints: faults that a status shows, each with its remedy. Private to control/.
 */
#ifndef DAEMON_CONTROL_COMPLAINTS_H
#define DAEMON_CONTROL_COMPLAINTS_H

#include <stdint.h>

#include "daemon/control/status_types.h"

/* "away", "alone", ... */
const char *complaint_name(enum complaint_code code);

/* Whom a round of the fragment that does not close waits for: those who take part, or may, and have not contributed;
 * or, if everybody has, the owners of parts that there is no result of; or else those who do not say that they hold
 * results that are here. */
struct bitset complaints_blockers(const struct status *status, uint32_t f);

/* Adds all that there is to complain of, to `status->complaints`, which has room for them. */
void complaints_all(struct status *status);

#endif
