/* SPDX-License-Identifier: Apache-2.0 */
/*
 * complains: whether a status complains of something, and in which words. They fail the running test where it is not
 * so.
 */
#ifndef TESTS_LIB_COMPLAINS_H
#define TESTS_LIB_COMPLAINS_H

#include "daemon/control/status.h"

/* The first of this code, borrowed from the status; NULL: none. */
const struct complaint *complaint_of(const struct status *status, enum complaint_code code);
/* It has one that says `what` and what to do. */
void assert_complains(const struct status *status, enum complaint_code code, const char *what);
void assert_silent(const struct status *status, enum complaint_code code);

#endif
