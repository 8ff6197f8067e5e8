/* SPDX-License-Identifier: Apache-2.0 */
/*
 * aborts: that an assertion of ours ends the process, seen from outside.
 */
#ifndef TESTS_LIB_ABORTS_H
#define TESTS_LIB_ABORTS_H

/* Fails unless `run`, in a child process, which has no threads but its own, is ended by SIGABRT. What it prints is not
 * kept: the assertion's text would look like a failure. */
#define assert_aborts(run, user) aborts_assert((run), (user), __FILE__, __LINE__)
void aborts_assert(void (*run)(void *user), void *user, const char *file, int line);

#endif
