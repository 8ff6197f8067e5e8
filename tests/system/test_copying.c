/* SPDX-License-Identifier: Apache-2.0 */
/* A trainer of several ranks on a device that is late, with a real daemon: whoever of it is killed while a move is
 * under way, all come back by themselves, and no work is counted twice. */
#include "tests/lib/testlib.h"

#include <signal.h>
#include <stdio.h>

#include "tests/lib/cluster.h"
#include "tests/lib/worked.h"

enum { ISLANDS = 2, LIVES = 4 };

static const char spec[] =
    "[run]\nname = copying\nsteps = 1500\n[model]\nlayers = 3\n"
    "[sync]\ninterval = 40\nlayers_per_fragment = 1\noverlap = 8\nmix = 0.25\nlate = merge\npace = lockstep\n";

static uint64_t trained(const struct cluster *cluster, uint32_t i)
{
    const uint64_t *worked = worked_open(cluster->run, cluster->island[i].name);
    assert_non_null(worked);
    return *worked;
}

static void end_well(struct cluster *cluster)
{
    for (uint32_t i = 0; i < ISLANDS; i++)
        cluster_wait(cluster, i, cluster_trainer_finished, 0, "the end of training");
    cluster_assert_one_truth(cluster);
    cluster_assert_one_model(cluster);
    for (uint32_t i = 0; i < ISLANDS; i++) {
        uint64_t counted = (uint64_t)cluster_trainer_number(cluster, i, "tokens_counted");
        assert_true(counted > 0 && counted <= trained(cluster, i));
        assert_false(cluster_log_has(cluster, i, "please report", 0));
        assert_int_equal(cluster_end(cluster, i, SIGTERM), 0);
    }
}

static void who_is_killed_while_a_move_is_under_way_comes_back(void **state)
{
    (void)state;
    static const char *const deaths[ISLANDS][LIVES] = {
        {"COPYING, life 1", "COPYING, life 2", "MIXING, life 3", "life 4"},
        {"COPYING, life 1", "MIXING, life 2", "MIXING, life 3", "life 4"}};
    struct cluster_options options = {.run = spec};
    struct cluster *cluster = cluster_new("copying", ISLANDS, &options);
    for (uint32_t i = 0; i < ISLANDS; i++) {
        char program[800];
        snprintf(program, sizeof program, "tests/system/tool_crew --run run.ini --mark %s --data 'dies=%u'",
                 cluster->island[i].name, i + 1);
        options.program = program;
        cluster_configure(cluster, i, &options);
    }
    cluster_start_all(cluster);
    for (uint32_t i = 0; i < ISLANDS; i++)
        for (int life = 0; life < LIVES; life++)
            if (!cluster_log_has(cluster, i, deaths[i][life], 60))
                fail_msg("island %s: not said: %s", cluster->island[i].name, deaths[i][life]);
    end_well(cluster);
    cluster_free(cluster);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(who_is_killed_while_a_move_is_under_way_comes_back)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
