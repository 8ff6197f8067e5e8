/* SPDX-License-Identifier: Apache-2.0 */
/*
 * quality: what each algorithm costs in loss, at equal tokens. quality_rows.c is the list of runs, quality.c runs those
 * that are not done yet, quality_report.c makes table, picture and the file of results.
 */
#ifndef TESTS_BENCH_QUALITY_H
#define TESTS_BENCH_QUALITY_H

#include <jansson.h>
#include <stddef.h>

#include "tests/bench/lab.h"

enum { QUALITY_SETS_MAX = 12 };

struct quality_row {
    const char *name;     /* unique */
    const char *group;    /* rows compared with one another */
    const char *against;  /* row of the same algorithm with fp32 exchange; NULL: none */
    const char *parallel; /* data-parallel row at the same tokens; NULL: none */
    uint32_t islands;
    uint64_t steps;
    struct lab_conf lab;                /* flags alone */
    bool no_feedback;                   /* also where a run spec would refuse it */
    const char *sets[QUALITY_SETS_MAX]; /* section.key=value */
};

extern const struct quality_row quality_rows[];
extern const size_t quality_rows_count;
/* What all rows have in common, as a run spec. */
extern const char quality_base[];

/* Where the result of a row and seed is, whether it is there or not. */
void quality_path(const struct quality_row *row, uint64_t seed, char *path, size_t path_bytes);

/* Reads what is there, prints the table and writes picture and results; false if a file cannot be written. */
bool quality_report(uint64_t seeds, const char *data, const char *out);

#endif
