/* SPDX-License-Identifier: Apache-2.0 */
/*
 * program: where a program is that somebody names, and running one to its end.
 */
#ifndef COMMON_PROGRAM_H
#define COMMON_PROGRAM_H

#include <stdbool.h>
#include <stddef.h>

#include "common/err.h"

/* Path of a program that this process may execute: a name with a slash as it stands; another one beside the program
 * that runs here, so that a build folder works without installation, then in PATH. ERR_NOTFOUND; mem_free() `*out`. */
ERR_MUST_CHECK enum err program_find(const char *name, char **out);

/* Runs argv[0], as program_find() finds it, to its end, with no signal blocked. Its output, and with
 * `errors` its errors, go into `said`, ended by a zero and cut after `said_bytes`; NULL: where ours go. `*status`: its
 * exit status, or 128 + the signal that ended it. Blocking. ERR_NOTFOUND: there is no such program; ERR_IO: it cannot
 * be started. */
ERR_MUST_CHECK enum err program_run(const char *const *argv, char *said, size_t said_bytes, bool errors, int *status);

/* For a child between fork() and exec(), which may wait for no lock: another thread may have held it when the child was
 * made. Writes `before`, what `error` means in English, `after` and a line's end to standard error, by one write(2),
 * cut after 1 KiB. Async-signal-safe; the texts are there beforehand. */
void child_say(const char *before, int error, const char *after);

#endif
