/* SPDX-License-Identifier: Apache-2.0 */
/*
 * said: when a log says something, by its own stamps: what happened in a daemon to the millisecond, whoever looked.
 * Times are seconds since 1970. No cmocka here.
 */
#ifndef TESTS_LIB_SAID_H
#define TESTS_LIB_SAID_H

double said_now_s(void);

/* The first line at or after `since_s` that holds both words (`more` may be NULL); -1: there is none. */
double said_first(const char *log, double since_s, const char *words, const char *more);
/* The same, waiting until there is one, or for `seconds`. */
double said_wait(const char *log, double since_s, const char *words, const char *more, double seconds);

#endif
