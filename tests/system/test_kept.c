/* SPDX-License-Identifier: Apache-2.0 */
/* A trainer that keeps what no result has counted goes on after a restart of its whole island. */
#include "tests/lib/testlib.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/cluster.h"

static const char spec[] = "[run]\nname = kept\nsteps = 1000\n[model]\nlayers = 2\n"
                           "[sync]\ninterval = 10\nlayers_per_fragment = 1\noverlap = 2\nlate = merge\n";

static bool step_reaches(struct cluster *cluster, uint32_t i, long long step)
{
    return cluster_trainer_number(cluster, i, "step") >= step;
}

/* The other one is away all the while, so no round counts any of it. */
static void what_an_island_has_trained_alone_outlives_its_restart(void **state)
{
    (void)state;
    struct cluster_options options = {.run = spec, .data = "sleep=5 keep=1"};
    struct cluster *cluster = cluster_new("alone", 2, &options);
    cluster_start_all(cluster);
    cluster_wait(cluster, 0, cluster_versions_reach, 4, "some versions");
    assert_int_equal(cluster_end(cluster, 1, SIGTERM), 0);
    long long alone = cluster_trainer_number(cluster, 0, "step");
    cluster_wait(cluster, 0, step_reaches, alone + 60, "training alone for some intervals");
    long long tokens = cluster_trainer_number(cluster, 0, "tokens"); /* steps to which it skipped have none */
    assert_int_equal(cluster_end(cluster, 0, SIGTERM), 0);
    cluster_start(cluster, 0);
    cluster_wait(cluster, 0, cluster_training, 0, "training again");
    assert_true(step_reaches(cluster, 0, alone + 60));
    assert_true(cluster_trainer_number(cluster, 0, "tokens") >= tokens);
    assert_true(cluster_log_has(cluster, 0, "with what it had kept", 0));
    cluster_start(cluster, 1);
    for (uint32_t i = 0; i < 2; i++)
        cluster_wait(cluster, i, cluster_trainer_finished, 0, "the end of training");
    cluster_assert_one_truth(cluster);
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(cluster_end(cluster, i, SIGTERM), 0);
    cluster_free(cluster);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_an_island_has_trained_alone_outlives_its_restart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
