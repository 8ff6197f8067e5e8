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

struct company {
    struct isle_run *run;
    struct isle *a;
    struct played *b, *c; /* c: NULL with two islands */
};

/* `plan`: the run's plan is known to island a. */
struct company company_begin(const char *name, uint32_t count, bool plan);
void company_end(struct company *company);
/* Says what is in `out` to island a, and waits until it has taken that in. */
void company_say(struct played *played);

#endif
