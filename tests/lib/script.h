/* SPDX-License-Identifier: Apache-2.0 */
/*
 * script: programs of a few lines of shell, for tests of whoever starts programs, which say when they have come so far.
 *
 * A program is started with a trainer's arguments: its $5 (--data) is where it says so. One folder at a time. A failure
 * fails the running test.
 */
#ifndef TESTS_LIB_SCRIPT_H
#define TESTS_LIB_SCRIPT_H

#include "daemon/dconf.h"

/* Programs go to this folder from now on. */
void script_open(const char *folder);
/* The configuration of an island that starts one of them; the rest is zero. Strings are borrowed. */
struct dconf script_conf(void);
void script_close(void);
/* For --data. Valid for the process. */
char *script_ready_path(void);
/* Waits until a program says that it is ready. */
void script_wait_ready(void);

/* A program; returns its path, valid for the process. */
char *script_make(const char *name, const char *body);

/* Says that it is ready, and sleeps until it is told to end. */
extern const char script_sleeps[];
/* The same, and nobody but SIGKILL ends it. */
extern const char script_stays[];
/* Says that it is ready whenever it is asked (SIGUSR1); told to end it does, with status 1. */
extern const char script_answers[];
/* A process that runs script_answers is alive, and not on its way to its end. */
void script_assert_alive(int pid);

#endif
