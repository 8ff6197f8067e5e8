/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/testlib.h"

#include "tests/lib/trouble.h"

#include <signal.h>

const char trouble_spec[] = "[run]\nname = trouble\nsteps = 300\n[model]\nlayers = 2\n"
                            "[sync]\ninterval = 10\nlayers_per_fragment = 1\noverlap = 2\nlate = merge\n";
const char trouble_data[] = "sleep=15";

struct cluster *trouble_begin_with(const char *name, uint32_t islands, const char *with)
{
    struct cluster_options options = {.run = trouble_spec, .data = with};
    struct cluster *cluster = cluster_new(name, islands, &options);
    cluster_start_all(cluster);
    for (uint32_t i = 0; i < islands; i++)
        cluster_wait(cluster, i, cluster_training, 0, "training");
    return cluster;
}

struct cluster *trouble_begin(const char *name, uint32_t islands)
{
    return trouble_begin_with(name, islands, trouble_data);
}

void trouble_end_well(struct cluster *cluster)
{
    long long last = 0;
    for (uint32_t i = 0; i < cluster->count; i++)
        cluster_wait(cluster, i, cluster_trainer_finished, 0, "the end of training");
    for (uint32_t i = 0; i < cluster->count; i++) {
        long long own = cluster_status_number(cluster, i, "versions");
        last = own > last ? own : last;
    }
    for (uint32_t i = 0; i < cluster->count; i++)
        cluster_wait(cluster, i, cluster_versions_reach, last, "the last version");
    cluster_assert_one_truth(cluster);
    cluster_assert_one_model(cluster);
    for (uint32_t i = 0; i < cluster->count; i++) {
        assert_false(cluster_log_has(cluster, i, "please report", 0));
        assert_int_equal(cluster_end(cluster, i, SIGTERM), 0);
    }
    cluster_free(cluster);
}
