/* SPDX-License-Identifier: Apache-2.0 */
/*
 * complaints: faults that a status shows, each with its remedy. Private to control/.
 */
#ifndef DAEMON_CONTROL_COMPLAINTS_H
#define DAEMON_CONTROL_COMPLAINTS_H

#include <stddef.h>
#include <stdint.h>

#include "daemon/control/status_types.h"

/* "away", "alone", ... */
const char *complaint_name(enum complaint_code code);

/* Whom a round of the fragment that does not close waits for: those who take part, or may, and have not contributed;
 * or, if everybody has, the owners of parts that there is no result of; or else those who do not say that they hold
 * results that are here. */
struct bitset complaints_blockers(const struct status *status, uint32_t f);

/* So many at most. */
size_t complaints_max(const struct status *status);
/* Adds one, about these members (NULL: none), to `status->complaints`, which has room for it. In the remedy, {here} is
 * what a command of this island begins with. */
void complain(struct status *status, enum complaint_code code, const struct bitset *about, const char *what,
              const char *remedy);
/* About one member. */
void complain_of(struct status *status, enum complaint_code code, uint32_t member, const char *what,
                 const char *remedy);
/* Adds all that there is to complain of, to `status->complaints`, which has room for them. */
void complaints_all(struct status *status);

#endif
