/* SPDX-License-Identifier: Apache-2.0 */
/* Real daemons and our own trainer: the data of an island that skips steps goes on with the run's steps, so that
 * weights which change by step are the same for it, and what is counted as drawn is what a restart would count. */
#include "tests/lib/testlib.h"

#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/tensorfile.h"
#include "tests/lib/cluster.h"

enum { STEPS = 600, BATCH = 2, ACCUMULATE = 3, CONTEXT = 32 };

static void stand_still(struct cluster *cluster, uint32_t i, double seconds)
{
    int pid = cluster_trainer_pid(cluster, i);
    assert_true(pid > 0);
    assert_int_equal(kill(pid, SIGSTOP), 0);
    uint64_t until = env_mono_ms() + (uint64_t)(1e3 * seconds);
    while (env_mono_ms() < until)
        usleep(20000);
    assert_int_equal(kill(pid, SIGCONT), 0);
}

static void the_data_of_an_island_that_skips_go_with_the_run(void **state)
{
    (void)state;
    char spec[800], text[PATH_MAX], data[2 * PATH_MAX], path[400];
    snprintf(spec, sizeof spec,
             "[run]\nname = position\nsteps = %d\n[model]\nwidth = 32\nlayers = 2\nheads = 2\ncontext = %d\n[train]\n"
             "batch = %d\naccumulate = %d\n[sync]\ninterval = 10\nlayers_per_fragment = 1\nquorum = 1\ngrace = 100ms\n",
             STEPS, CONTEXT, BATCH, ACCUMULATE);
    assert_non_null(realpath("tests/demo/shakespeare.txt", text));
    snprintf(data, sizeof data, "plays=%s:1@0,0.5@300\ndata = more=%.*s/README.md:0@300,0.5@400", text,
             (int)(strrchr(text, '/') - text), text);
    struct cluster_options options = {.run = spec, .program = "diloco-worker", .data = data};
    struct cluster *cluster = cluster_new("position", 2, &options);
    cluster_start_all(cluster);
    cluster_wait(cluster, 1, cluster_training, 0, "training");
    cluster_wait(cluster, 0, cluster_training, 0, "training");
    stand_still(cluster, 1, 1.5);
    for (uint32_t i = 0; i < 2; i++)
        cluster_wait(cluster, i, cluster_trainer_finished, 0, "the end of training");
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(cluster_end(cluster, i, SIGTERM), 0);
    struct tensorfile *file;
    uint64_t step, position, tokens;
    snprintf(path, sizeof path, "%s/worker/worker-%09d.safetensors", cluster->island[1].state, STEPS);
    assert_ok(tensorfile_open(path, true, &file));
    assert_ok(tensorfile_meta_u64(file, "step", &step));
    assert_ok(tensorfile_meta_u64(file, "position", &position));
    assert_ok(tensorfile_meta_u64(file, "tokens", &tokens));
    tensorfile_close(file);
    print_message("step %llu, position %llu, trained %llu steps\n", (unsigned long long)step,
                  (unsigned long long)position, (unsigned long long)tokens / (BATCH * ACCUMULATE * CONTEXT));
    assert_int_equal(step, STEPS);
    assert_true(tokens < (uint64_t)STEPS * BATCH * ACCUMULATE * CONTEXT); /* it has skipped some */
    assert_int_equal(position, STEPS * BATCH * ACCUMULATE);
    cluster_free(cluster);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_data_of_an_island_that_skips_go_with_the_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
