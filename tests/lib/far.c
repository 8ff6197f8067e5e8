/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/far.h"

#include <stdio.h>

#include "tests/lib/testlib.h"

struct cluster *far_cluster_new(const char *name, uint32_t count, const struct cluster_options *options,
                                const struct wan_conf *line, struct wan *wan, char *why, size_t why_bytes)
{
    struct cluster *cluster = cluster_new(name, count, options);
    uint32_t last = count - 1;
    if (!wan_begin(line, testlib_path(cluster->folder, "line.log"), wan, why, why_bytes)) {
        cluster_free(cluster);
        return NULL;
    }
    for (uint32_t i = 0; i < count; i++)
        snprintf(cluster->island[i].host, sizeof cluster->island[i].host, "%s", wan_host(i == last));
    cluster->island[last].space = wan->far;
    for (uint32_t i = 0; i < count; i++)
        cluster_configure(cluster, i, options);
    return cluster;
}
