/* SPDX-License-Identifier: Apache-2.0 */
/*
 * squat: a program that takes a port of 127.0.0.1 as soon as its listener gives it up, and has it until it is told to
 * leave. One at a time; for tests.
 */
#ifndef TESTS_LIB_SQUAT_H
#define TESTS_LIB_SQUAT_H

#include <stdbool.h>

/* From now on it waits for the port. */
void squat_begin(unsigned port);
/* Whether it has got it; it waits no more. */
bool squat_got(void);
/* It gives it up. */
void squat_end(void);

#endif
