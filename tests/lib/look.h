/* SPDX-License-Identifier: Apache-2.0 */
/*
 * look: one island with all its parts, a, whose peers b and c and whose trainer are played, and the status that was
 * last taken of it. For tests of what a status says. One at a time; a failure fails the running test.
 */
#ifndef TESTS_LIB_LOOK_H
#define TESTS_LIB_LOOK_H

#include "common/ipc.h"
#include "daemon/control/progress.h"
#include "daemon/control/status.h"
#include "tests/lib/isle.h"
#include "tests/lib/played.h"
#include "tests/lib/played_trainer.h"

enum { LOOK_A, LOOK_B, LOOK_C };

struct look {
    struct isle_run *run;
    struct isle *a;
    struct played *b, *c;           /* NULL: the run has fewer members */
    struct played_trainer *trainer; /* NULL: none has attached yet */
    struct progress *progress;      /* what keeps account of time; NULL: nobody does. look_end() frees it */
    struct status status;           /* as last taken */
    bool witness;                   /* the last member of the runs that begin from now on is one */
};
extern struct look look;

/* A run of so many members, of which b and c are there; a is the test's to open. `sync`: as isle_run_new() has it. */
void look_begin_run(const char *name, uint32_t count, const char *sync);
/* The same, and a is there, and knows its plan. */
void look_begin(const char *name, uint32_t count, const char *sync);
/* What look_begin() does after look_begin_run(). */
void look_open(void);
void look_end(void);

/* What a status is taken of. */
struct status_conf look_conf(void);
/* Takes one of that, or of what the test makes of it; borrowed, until the next. */
const struct status *look_take(void);
const struct status *look_take_of(const struct status_conf *conf);

/* a's trainer, which attaches and starts if it has not, reports; and what most tests need of that. */
void look_report(const struct ipc_report *report);
void look_train(uint64_t step);
/* Our contribution to the next version of a fragment is on its way. */
void look_contribute(uint32_t f);

#endif
