/* SPDX-License-Identifier: Apache-2.0 */
/*
 * complaints_core: how a complaint comes into a status, and what complaints of several kinds ask. Private to
 * control/complaints*.c:
 *
 *     complaints         rounds; all in their order, and which of them are one event
 *     complaints_own     of this island: its trainer, its disk, its part in the run
 *     complaints_peers   of the others: who is away, who decides, who does not do what it should
 *     complaints_core    adding one
 *
 * Each floor calls only those below it.
 */
#ifndef DAEMON_CONTROL_COMPLAINTS_CORE_H
#define DAEMON_CONTROL_COMPLAINTS_CORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/control/status_types.h"

/* "away", "alone", ... */
const char *complaint_name(enum complaint_code code);

/* So many at most. */
size_t complaints_max(const struct status *status);

/* Adds one, about these members (NULL: none). In the remedy, {here} is what a command of this island begins with. */
void complain(struct status *status, enum complaint_code code, const struct bitset *about, const char *what,
              const char *remedy);
void complain_of(struct status *status, enum complaint_code code, uint32_t member, const char *what,
                 const char *remedy);
/* Appends " a, b". */
void complain_name(const struct status *status, const struct bitset *members, char *text, size_t text_bytes);

/* The run spec says that late islands are waited for. */
bool complaints_wait(const struct status *status);
/* The trainer has contributions to make before it may end: it is its turn. */
bool complaints_owes(const struct status *status);
/* This island has left the run as its people asked. */
bool complaints_drained(const struct status *status);

#endif
