/* SPDX-License-Identifier: Apache-2.0 */
/*
 * worked: how many tokens an island's trainers have trained, in all their lives: a number in a file that stays right
 * when the trainer is killed. The synthetic trainer counts, a test reads. No cmocka here.
 */
#ifndef TESTS_LIB_WORKED_H
#define TESTS_LIB_WORKED_H

#include <stdint.h>

/* The number of island `mark` of the run whose spec is at `run`, shared by all who open it, for the life of the
 * process; made with 0 where there is none. NULL: that failed. */
uint64_t *worked_open(const char *run, const char *mark);

#endif
