/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hosted: a daemon's engine in a thread of the test, with a trainer through libdiloco whose steps add one (adder.h).
 *
 * One at a time. What it is asked goes through its control socket, as dilococtl asks it. A helper that fails fails the
 * running test.
 */
#ifndef TESTS_LIB_HOSTED_H
#define TESTS_LIB_HOSTED_H

#include <jansson.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/conf.h"
#include "daemon/dconf.h"
#include "daemon/engine.h"
#include "tests/lib/adder.h"
#include "tests/lib/isle.h"

/* Of the run: interval 5, no overlap, late islands are waited for. */
enum { HOSTED_STEPS = 20, HOSTED_ROUNDS = 4 };

extern struct hosted {
    struct isle_run *run;
    const struct conf_override *overrides; /* of its configuration, where a test has some */
    size_t overrides_count;
    struct dconf conf;
    struct engine *engine;
    pthread_t thread;
    _Atomic int tid;
    bool running;
    int signals[2]; /* where it reads them, where they are written */
    enum err err;
    char text[512], control[300], worker[300];
} hosted;

/* Around each test: a run of one island in a folder of its own; and its end, whatever became of the test. */
int hosted_begin(void **state);
int hosted_finish(void **state);

/* Path of the configuration of an island, with the run spec beside it. */
const char *hosted_conf(uint32_t self);
/* Opened, and not run. */
enum err hosted_open(uint32_t self);
void hosted_close(void);
void hosted_start(uint32_t self);
/* Likewise, and what it has saved is read. */
void hosted_restart(uint32_t self);
/* As a signal descriptor brings it. */
void hosted_signal(int number);
/* Waits until it ends, and closes it. What it ended with is in hosted.text, too. */
enum err hosted_end(void);
/* By SIGTERM, without an error. */
void hosted_stop(void);

/* The answer at its control socket, the caller's; and of `status` a number; and whether a text of it, or of an object
 * in it, is this. */
json_t *hosted_ask(const char *request);
long long hosted_number(const char *key);
bool hosted_says(const char *part, const char *key, const char *word);

#endif
