/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cli: running our programs as a person does, and looking at what they say. A helper that fails fails the running test.
 */
#ifndef TESTS_LIB_CLI_H
#define TESTS_LIB_CLI_H

#include <jansson.h>

/* What the last program printed to its standard output. */
extern char cli_out[1 << 18];

/* Where errors go, in a folder from testlib_folder(). Before anything else. */
void cli_init(const char *folder);

/* Path of a program of ours, in the build folder; valid for the process. */
const char *cli_program(const char *name);

/* Runs one; returns as proc_run(). */
int cli_run(const char *program, const char *const *arguments);
#define RUN(program, ...) cli_run(program, (const char *const[]){__VA_ARGS__, NULL})

/* Fails unless `part` stands in the last program's errors, or in its output. */
void assert_says(const char *part);
void assert_prints(const char *part);

/* The last output as JSON; the caller decrefs. */
json_t *cli_parsed(void);

#endif
