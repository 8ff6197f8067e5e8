/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sitting: the membership of three islands, a, b and c, whose time is the test's: each with all its parts on loopback,
 * or played by the test (tests/lib/played.h).
 *
 * One at a time; a helper that fails fails the running test.
 */
#ifndef TESTS_LIB_SITTING_H
#define TESTS_LIB_SITTING_H

#include <stdbool.h>
#include <stdint.h>

#include "tests/lib/isle.h"
#include "tests/lib/played.h"

enum { A, B, C, ISLANDS };
/* An island is silent for so long until it may be lost; and long enough for what does not happen. */
enum { SITTING_AWAY_MS = 3000, SITTING_LONG_MS = 10000 };

extern struct isle_run *sitting_run;
extern struct isle *sitting_isle[ISLANDS];     /* NULL: it is played, or not there */
extern struct played *sitting_played[ISLANDS]; /* likewise */

/* A run of whom nobody is there yet; with all three; with a alone, the others played; with a, b and a witness. */
void sitting_begin(const char *name);
void sitting_begin_all(const char *name);
void sitting_begin_played(const char *name);
void sitting_begin_with_witness(const char *name);
void sitting_end(void);
/* One comes, with this version of every fragment, or goes without a word. */
void sitting_open(uint32_t i, uint64_t version);
void sitting_close(uint32_t i);

/* So much time passes, with all that is said on loopback in it. */
void sitting_pass(uint64_t ms);
/* Until all hear all. */
void sitting_meet(void);
/* Until island i is in this epoch, and no later one, and all others know it. */
void sitting_pass_until_epoch(uint32_t i, uint64_t epoch);

uint64_t sitting_epoch(uint32_t i);
/* What island i has on configuration of member `of`. */
const struct view_member *sitting_member(uint32_t i, uint32_t of);

#endif
