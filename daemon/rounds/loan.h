/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loan: copies of states for other islands. Private to rounds/.
 *
 * The anchor is read only while it is copied; the copy's leaves are digested after that, and nobody waits for them.
 */
#ifndef DAEMON_ROUNDS_LOAN_H
#define DAEMON_ROUNDS_LOAN_H

#include "daemon/rounds/desk.h"
#include "daemon/state/state_object.h"

struct loans;

/* Borrowed for its life. ERR_NOMEM. */
ERR_MUST_CHECK enum err loans_new(struct desk *desk, struct loans **out);
void loans_free(struct loans *loans);
/* As rounds_lend(). */
void loans_make(struct loans *loans, struct state_loan *loan);

#endif
