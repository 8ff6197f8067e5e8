/* SPDX-License-Identifier: Apache-2.0 */
/*
 * complain: adds a complaint to a status. Private to control/.
 */
#ifndef DAEMON_CONTROL_COMPLAIN_H
#define DAEMON_CONTROL_COMPLAIN_H

#include <stddef.h>
#include <stdint.h>

#include "daemon/control/status_types.h"

/* So many at most. */
size_t complaints_max(const struct status *status);
/* Adds one, about these members (NULL: none), to `status->complaints`, which has room for it. In the remedy, {here} is
 * what a command of this island begins with. */
void complain(struct status *status, enum complaint_code code, const struct bitset *about, const char *what,
              const char *remedy);
/* Likewise, about one member. */
void complain_of(struct status *status, enum complaint_code code, uint32_t member, const char *what,
                 const char *remedy);

#endif
