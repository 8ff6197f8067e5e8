/* SPDX-License-Identifier: Apache-2.0 */
/*
 * village: the folder of a test whose islands live in homes (tests/lib/homes): where they lie, and a text and a run
 * that are small enough to train at once. When the process ends its daemons are stopped and the folder goes.
 *
 * One a process. A helper that fails fails the running test.
 */
#ifndef TESTS_LIB_VILLAGE_H
#define TESTS_LIB_VILLAGE_H

#include <stdbool.h>

#include "tests/lib/homes.h"

/* Before anything else, homes_init() included, and before cmocka's tests; false: there is no such folder. The name is
 * short, so that paths of sockets are. */
bool village_open(const char *name);
/* All paths are valid for the process. */
const char *village_folder(void);
/* Where an island may be made. */
const char *village_home(const char *name);
/* Write files that are there from then on. */
const char *village_text(void);
const char *village_spec(int interval);

/* The command of a synthetic trainer (tests/system/tool_synth.c) for an island of the run in `spec`; `data`: its
 * options. Valid until the next call. */
const char *village_synth(const char *spec, const char *island, const char *data);

/* HOMES_RUN() of what has to succeed. */
#define GOOD(...)                                 \
    do {                                          \
        if (HOMES_RUN(__VA_ARGS__) != 0)          \
            fail_msg("it fails:\n%s", homes_out); \
    } while (0)

/* All of them stop training, and hold the same anchors then; each within `patience_s`. */
void village_ends_alike(const char *const *all, int count, int patience_s);

/* The last command said so. */
void assert_told(const char *part);

#endif
