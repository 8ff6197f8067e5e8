/* SPDX-License-Identifier: Apache-2.0 */
/*
 * company: an island with all its parts and one or two others that a test plays, greeted on the control connections.
 * A helper that fails fails the running test.
 */
#ifndef TESTS_LIB_COMPANY_H
#define TESTS_LIB_COMPANY_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/peers/peers.h"
#include "tests/lib/isle.h"
#include "tests/lib/played.h"

enum { A, B, C };

/* The one of the running test, which may open some or all of it in its own way. */
struct company {
    struct isle_run *run;
    struct isle *a;
    struct played *b, *c; /* NULL: not there */
};
extern struct company company;

/* Of so many islands. `plan`: the run's plan is known to island a. */
void company_begin(const char *name, uint32_t count, bool plan);
/* Closes all that is there. */
void company_end(void);

/* What island a knows of another. */
struct peer_info company_info(uint32_t peer);
/* Says what is in `out` to island a, and waits until it has taken that in. */
void company_say(struct played *played);

#endif
