/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cases: every operation of a table of kernels (kernels/kern_table.h) against double precision: one list for the CPU's
 * variants, the emulated CUDA kernels and a GPU.
 */
#ifndef TESTS_KERN_CASES_H
#define TESTS_KERN_CASES_H

#include "kernels/kern_table.h"
#include "tests/lib/testlib.h"

extern const struct CMUnitTest cases_pass[], cases_loss[], cases_optim[], cases_move[];
extern const size_t cases_pass_count, cases_loss_count, cases_optim_count, cases_move_count;

/* Attention alone, for a table that has more than one way of doing it. */
void attention_holds(void **state);
/* And that it makes no number of what is none. */
void attention_keeps_what_is_not_finite(void **state);

/* The largest of their rows; to be reserved before the first case. */
enum { CASES_ROWS = 2000, CASES_COLUMNS = 4096 };

/* Runs them all on an open device; returns how many failed. */
int cases_run(const char *name, const struct kern *table, struct kern_dev *device);

#endif
