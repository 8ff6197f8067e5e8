/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trouble: the run that system/test_trouble, test_refused and test_damaged give trouble to: small tensors for some
 * seconds, and the end that all of them come to. For system tests; fails the test where a daemon does not do its part.
 */
#ifndef TESTS_LIB_TROUBLE_H
#define TESTS_LIB_TROUBLE_H

#include <stdint.h>

#include "tests/lib/cluster.h"

extern const char trouble_spec[]; /* the run spec's text */
extern const char trouble_data[]; /* what its trainers are told: 15 ms a step */

/* So many islands that train already; `with`: what their trainers are told. The caller ends it. */
struct cluster *trouble_begin_with(const char *name, uint32_t islands, const char *with);
struct cluster *trouble_begin(const char *name, uint32_t islands);

/* All finish, hold one anchor and one model, asked for no report, and end with status 0. Frees the cluster. */
void trouble_end_well(struct cluster *cluster);

#endif
