/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What distributed training must be equal to, with real daemons and the real trainer. codec fp32, mix 0, overlap 0,
 * late = wait, 50 steps; equal means a relative difference of all parameters of at most 1e-6:
 *   - one island is plain training;
 *   - two islands on the same data and seed are one island;
 *   - interval 1 with plain SGD inside is data-parallel training on the summed batch;
 *   - several fragments with all offsets 0 are DiLoCo with one fragment;
 *   - an island that is stopped and started on its way is one that was not.
 */
#include "tests/lib/testlib.h"

#include <math.h>
#include <signal.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/digest.h"
#include "common/fsio.h"
#include "common/mem.h"
#include "common/tensorfile.h"
#include "tests/lib/cluster.h"

static const double tolerance = 1e-6;
static const char head[] = "[run]\nname = equal\nsteps = 50\n"
                           "[model]\nwidth = 32\nlayers = 4\nheads = 4\nkv_heads = 2\ncontext = 32\n";
static const char exact[] = "[sync]\ncodec = fp32\nerror_feedback = no\nmix = 0\noverlap = 0\nlate = wait\n";

static const char *corpus;

static bool step_reaches(struct cluster *cluster, uint32_t i, long long step)
{
    return cluster_trainer_number(cluster, i, "step") >= step;
}

/* Stops the first island and starts it again, when it has come to each of these steps. */
static void stop_and_start(struct cluster *cluster, const int *steps, int count)
{
    for (int k = 0; k < count; k++) {
        char text[64];
        cluster_wait(cluster, 0, step_reaches, steps[k], "a step on the way");
        assert_int_equal(cluster_end(cluster, 0, SIGTERM), 0);
        snprintf(text, sizeof text, "stopped at step %d", steps[k] / 100); /* whatever its last two digits are */
        assert_true(cluster_log_has(cluster, 0, text, 0));
        cluster_start(cluster, 0);
        assert_true(cluster_log_has(cluster, 0, "with what it had kept", 10));
    }
}

/* In place of more configuration lines: each island draws a part of its own. */
static const char apart[] = "apart";

static const char *anchor_after_stops(const char *name, uint32_t islands, const char *train, const char *sync,
                                      const char *more, const int *stops, int stops_count)
{
    char spec[2048];
    snprintf(spec, sizeof spec, "%s[train]\nbatch = 4\nlr = 1e-3\nwarmup = 5\n%s%s%s", head, train, exact, sync);
    struct cluster_options options = {
        .run = spec, .program = "diloco-worker", .data = corpus, .more = more == apart ? NULL : more};
    if (stops != NULL)
        options.run = sync; /* the whole of it */
    struct cluster *cluster = cluster_new(name, islands, &options);
    for (uint32_t i = 0; more == apart && i < islands; i++) { /* plain training has no reserve, and waits for nothing */
        char stream[40];
        snprintf(stream, sizeof stream, "stream = %u/%u\n", i, islands);
        cluster_configure_after(cluster, i, "[worker]\n", stream);
    }
    cluster_start_all(cluster);
    stop_and_start(cluster, stops, stops_count);
    for (uint32_t i = 0; i < islands; i++)
        cluster_wait(cluster, i, cluster_trainer_finished, 0, "the end of training");
    for (uint32_t i = 0; i < islands; i++)
        assert_true(cluster_log_has(cluster, i, "the anchor is in", 10));
    cluster_assert_one_truth(cluster);
    const char *path = testlib_path(cluster->island[0].state, "anchor.safetensors");
    for (uint32_t i = 0; i < islands; i++)
        assert_int_equal(cluster_end(cluster, i, SIGTERM), 0);
    cluster_free(cluster);
    return path;
}

static const char *anchor_of(const char *name, uint32_t islands, const char *train, const char *sync, const char *more)
{
    return anchor_after_stops(name, islands, train, sync, more, NULL, 0);
}

static const char *plain_training(const char *name, const char *train)
{
    const char *folder = testlib_folder(name);
    const char *run = testlib_file(folder, "run.ini", "%s[train]\nbatch = 4\nlr = 1e-3\nwarmup = 5\n%s", head, train);
    char command[2048];
    snprintf(command, sizeof command,
             "%s/diloco-worker train --run %s --data %s --out %s/w --threads 1 --eval-batches 0 2>%s/log",
             getenv("BUILD"), run, corpus, folder, folder);
    assert_int_equal(system(command), 0);
    return testlib_path(folder, "w/worker-000000050.safetensors");
}

static void assert_equal_params(const char *left, const char *right, const char *what)
{
    struct tensorfile *a, *b;
    double difference = 0, norm = 0, moved = 0;
    assert_ok(tensorfile_open(left, true, &a));
    assert_ok(tensorfile_open(right, true, &b));
    size_t compared = 0;
    for (size_t i = 0; i < tensorfile_count(a); i++) {
        struct tensorfile_tensor tensor = tensorfile_at(a, i);
        uint64_t count = 1;
        const float *x, *y;
        if (strncmp(tensor.name, "adamw.", 6) == 0)
            continue;
        for (uint32_t d = 0; d < tensor.dims; d++)
            count *= tensor.shape[d];
        assert_ok(tensorfile_values(a, tensor.name, count, &x));
        assert_ok(tensorfile_values(b, tensor.name, count, &y));
        for (uint64_t k = 0; k < count; k++) {
            double d = (double)x[k] - (double)y[k];
            difference += d * d;
            norm += (double)y[k] * (double)y[k];
            moved += strstr(tensor.name, "norm") != NULL ? fabs((double)x[k] - 1) : 0;
        }
        compared++;
    }
    assert_int_equal(compared, 38);
    assert_true(moved > 0); /* it did train */
    print_message("%s: relative difference %.3g\n", what, sqrt(difference / norm));
    assert_true(sqrt(difference / norm) <= tolerance);
    tensorfile_close(a);
    tensorfile_close(b);
}

static void one_island_is_plain_training(void **state)
{
    (void)state;
    const char *plain = plain_training("plain", "");
    const char *one = anchor_of("one", 1, "", "interval = 10\n[outer]\noptimizer = average\n", NULL);
    assert_equal_params(plain, one, "plain training and one island");
}

static void two_islands_on_the_same_data_are_one(void **state)
{
    (void)state;
    const char *sync = "interval = 10\n[outer]\noptimizer = average\n";
    const char *one = anchor_of("single", 1, "", sync, NULL);
    const char *two = anchor_of("double", 2, "", sync, "stream = 0/1");
    assert_equal_params(one, two, "one island and two on the same data");
}

static void interval_one_with_sgd_is_data_parallel(void **state)
{
    (void)state;
    const char *whole = plain_training("dataparallel", "optimizer = sgd\nclip = 0\naccumulate = 2\n");
    const char *two =
        anchor_of("everystep", 2, "optimizer = sgd\nclip = 0\n", "interval = 1\n[outer]\noptimizer = average\n", apart);
    assert_equal_params(whole, two, "data-parallel SGD and interval 1");
}

static void offsets_zero_are_one_fragment(void **state)
{
    (void)state;
    const char *outer[] = {"[outer]\noptimizer = average\n", "[outer]\noptimizer = nesterov\nlr = 0.7\n"};
    for (int k = 0; k < 2; k++) {
        char many[256], single[256];
        snprintf(many, sizeof many, "interval = 10\nlayers_per_fragment = 1\noffsets = zero\n%s", outer[k]);
        snprintf(single, sizeof single, "interval = 10\npattern = balanced\nfragments = 1\n%s", outer[k]);
        const char *a = anchor_of(k == 0 ? "many0" : "many1", 2, "", many, NULL);
        const char *b = anchor_of(k == 0 ? "single0" : "single1", 2, "", single, NULL);
        assert_equal_params(a, b, k == 0 ? "five fragments and one, average" : "five fragments and one, Nesterov");
    }
}

static void an_island_stopped_on_its_way_is_one_that_was_not(void **state)
{
    (void)state;
    static const int stops[] = {123, 234, 301};
    static const char spec[] =
        "[run]\nname = stopped\nsteps = 600\n"
        "[model]\nwidth = 32\nlayers = 4\nheads = 4\nkv_heads = 2\ncontext = 32\n[train]\nbatch = 4\nlr = 1e-3\n"
        "[sync]\ncodec = fp32\nmix = 0.5\noverlap = 2\nlate = wait\ninterval = 10\nlayers_per_fragment = 1\n";
    const char *whole = anchor_after_stops("whole", 1, "", spec, NULL, stops, 0);
    const char *stopped = anchor_after_stops("stopped", 1, "", spec, NULL, stops, 3);
    assert_equal_params(whole, stopped, "an island that was stopped and one that was not");
}

int main(void)
{
    assert_ok(digest_init());
    const char *san = getenv("SAN");
    if (san != NULL && strstr(san, "thread") != NULL) {
        puts("the trainer uses OpenMP, whose runtime the thread sanitizer cannot see into");
        return 77;
    }
    /* Text that is there wherever this can be built. */
    const char *folder = testlib_folder("corpus");
    char command[512];
    char cwd[PATH_MAX];
    assert_non_null(realpath(".", cwd));
    snprintf(command, sizeof command, "cat common/*.c outer_opt/*.c net/*/*.c > %s/corpus", folder);
    assert_int_equal(system(command), 0);
    char absolute[PATH_MAX + 300];
    snprintf(absolute, sizeof absolute, "%s/%s/corpus", cwd, folder);
    corpus = absolute;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_island_is_plain_training),
        cmocka_unit_test(two_islands_on_the_same_data_are_one),
        cmocka_unit_test(interval_one_with_sgd_is_data_parallel),
        cmocka_unit_test(offsets_zero_are_one_fragment),
        cmocka_unit_test(an_island_stopped_on_its_way_is_one_that_was_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
