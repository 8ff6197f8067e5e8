/* SPDX-License-Identifier: Apache-2.0 */
/*
 * far: a cluster (tests/lib/cluster) whose last island lies behind a line (tests/lib/wan).
 */
#ifndef TESTS_LIB_FAR_H
#define TESTS_LIB_FAR_H

#include "tests/lib/cluster.h"
#include "tests/lib/wan.h"

/* As cluster_new(), after wan_enter(); wan_end() comes after cluster_free(). NULL: there is no such line here, for a
 * reason that is in `why`, and nothing is left of it. */
struct cluster *far_cluster_new(const char *name, uint32_t count, const struct cluster_options *options,
                                const struct wan_conf *line, struct wan *wan, char *why, size_t why_bytes);

#endif
