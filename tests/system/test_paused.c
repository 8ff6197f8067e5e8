/* SPDX-License-Identifier: Apache-2.0 */
/*
 * paused: daemons that are stopped for longer than any time limit of a connection, as with a laptop that sleeps or a
 * virtual machine that is moved, go on where they were. Aborts of a library in the middle of a busy run count as ends.
 */
#include "tests/lib/testlib.h"

#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "tests/lib/cluster.h"

static const char spec[] = "[run]\nname = paused\nsteps = 100000\n[model]\nlayers = 2\n"
                           "[sync]\ninterval = 10\nlayers_per_fragment = 1\noverlap = 2\nlate = merge\n";
static const struct cluster_options options = {.run = spec, .data = "sleep=5"};

/* PAUSE: beyond 8 s of unacknowledged bytes. VERSIONS: to go on by, after each. */
enum { ISLANDS = 3, ROUNDS = 2, PAUSE_S = 15, VERSIONS = 12 };

/* With the two of them a majority pauses, so that all three meet old connections afterwards. */
static void daemons_that_were_stopped_go_on_where_they_were(void **state)
{
    (void)state;
    struct cluster *cluster = cluster_new("paused", ISLANDS, &options);
    cluster_start_all(cluster);
    for (uint32_t i = 0; i < ISLANDS; i++)
        cluster_wait(cluster, i, cluster_versions_reach, VERSIONS, "some versions");
    for (uint32_t round = 0; round < ROUNDS; round++) {
        for (uint32_t k = 0; k < ISLANDS - 1; k++)
            assert_int_equal(kill(cluster->island[(round + k) % ISLANDS].pid, SIGSTOP), 0);
        sleep(PAUSE_S);
        for (uint32_t k = 0; k < ISLANDS - 1; k++)
            assert_int_equal(kill(cluster->island[(round + k) % ISLANDS].pid, SIGCONT), 0);
        for (uint32_t i = 0; i < ISLANDS; i++)
            assert_int_equal(cluster_wait_end(cluster, i, 0.5), -1);
        long long versions = cluster_status_number(cluster, 0, "versions");
        for (uint32_t i = 0; i < ISLANDS; i++)
            cluster_wait(cluster, i, cluster_versions_reach, versions + VERSIONS, "more versions");
    }
    for (uint32_t i = 0; i < ISLANDS; i++)
        assert_int_equal(cluster_end(cluster, i, SIGTERM), 0);
    cluster_free(cluster);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(daemons_that_were_stopped_go_on_where_they_were)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
