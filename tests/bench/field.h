/* SPDX-License-Identifier: Apache-2.0 */
/*
 * field: a row of the quality bench with real daemons and the real trainer on loopback, in place of lab's one process.
 */
#ifndef TESTS_BENCH_FIELD_H
#define TESTS_BENCH_FIELD_H

#include "tests/bench/lab.h"

/* As lab_run(); islands, spec and data alone are looked at. BUILD names the folder of the programs. Called in a process
 * of its own: what goes wrong with daemons ends it. */
ERR_MUST_CHECK enum err field_run(const struct lab_conf *conf, struct lab_result *result);

#endif
