/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Real daemons in trouble: daemons and trainers are killed, hang, are late, leave and come back. Nothing that was saved
 * is lost, and in the end all islands hold the same anchors.
 */
#include "tests/lib/testlib.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/digest.h"
#include "common/env.h"
#include "daemon/ctl/ctl_client.h"
#include "tests/lib/cluster.h"
#include "tests/lib/trouble.h"

static void order(struct cluster *cluster, uint32_t i, const char *request)
{
    json_t *answer;
    assert_ok(ctl_ask(cluster->island[i].control, request, &answer));
    json_decref(answer);
}

static bool alive(int pid)
{
    return pid > 0 && kill(pid, 0) == 0;
}

/* ---- killed ---- */

static void a_killed_daemon_comes_back_to_its_trainer(void **state)
{
    (void)state;
    /* Slow enough that the trainer is not done before the daemon is back and has been looked at. */
    struct cluster *cluster = trouble_begin_with("kill-daemon", 2, "sleep=40");
    cluster_wait(cluster, 1, cluster_versions_reach, 4, "some versions");
    int trainer = cluster_trainer_pid(cluster, 1);
    assert_int_equal(cluster_end(cluster, 1, SIGKILL), 128 + SIGKILL);
    assert_true(alive(trainer));
    double begin_s = env_mono_s();
    cluster_wait(cluster, 0, cluster_degraded, 1, "the other island to notice");
    assert_true(cluster_log_has(cluster, 0, "island b has not been heard of", 3));
    assert_true(env_mono_s() - begin_s < 3.5);
    usleep(700000);
    assert_true(alive(trainer)); /* it trains on */
    cluster_start(cluster, 1);
    assert_true(cluster_log_has(cluster, 1, "still runs; it attaches again by itself", 5));
    assert_true(cluster_log_has(cluster, 1, "is attached again at step", 10));
    cluster_wait(cluster, 1, cluster_training, 0, "training");
    assert_int_equal(cluster_trainer_pid(cluster, 1), trainer);
    cluster_wait(cluster, 0, cluster_degraded, 0, "all to be well again");
    trouble_end_well(cluster);
}

static void a_killed_daemon_is_survived_again_and_again(void **state)
{
    (void)state;
    struct cluster *cluster = trouble_begin("kill-often", 3);
    struct env_rng rng = env_rng_init(5, 5);
    for (int round = 0; round < 6; round++) {
        uint32_t i = (uint32_t)env_rng_below(&rng, 3);
        usleep((useconds_t)env_rng_below(&rng, 400000));
        cluster_end(cluster, i, SIGKILL);
        usleep((useconds_t)env_rng_below(&rng, 300000));
        cluster_start(cluster, i);
    }
    trouble_end_well(cluster);
}

static long long trainer_step(struct cluster *cluster, uint32_t i)
{
    json_t *status = cluster_ask(cluster, i, "status");
    long long step = json_integer_value(json_object_get(json_object_get(status, "trainer"), "step"));
    json_decref(status);
    return step;
}

/* The daemon hangs (here: it is stopped) with its sockets open: the trainer must not find that out by waiting. */
static void a_daemon_that_hangs_does_not_stop_the_trainer(void **state)
{
    (void)state;
    struct cluster_options options = {
        .run = "[run]\nname = hang\nsteps = 3000\n[model]\nlayers = 2\n"
               "[sync]\ninterval = 400\nlayers_per_fragment = 1\noverlap = 2\nlate = merge\n",
        .data = "sleep=2"};
    struct cluster *cluster = cluster_new("hang", 2, &options);
    cluster_start_all(cluster);
    for (uint32_t i = 0; i < 2; i++)
        cluster_wait(cluster, i, cluster_training, 0, "training");
    double first_s = env_mono_s();
    long long first = trainer_step(cluster, 1);
    usleep(1000000);
    double stop_s = env_mono_s();
    long long stop = trainer_step(cluster, 1);
    assert_int_equal(kill(cluster->island[1].pid, SIGSTOP), 0);
    usleep(4000000);
    assert_int_equal(kill(cluster->island[1].pid, SIGCONT), 0);
    double go_s = env_mono_s();
    usleep(200000);
    long long go = trainer_step(cluster, 1);
    double before = (double)(stop - first) / (stop_s - first_s), hung = (double)(go - stop) / (go_s - stop_s);
    print_message("%.0f steps/s before, %.0f while the daemon hung\n", before, hung);
    assert_true(hung > 0.5 * before);
    trouble_end_well(cluster);
}

static void a_killed_trainer_is_started_again(void **state)
{
    (void)state;
    struct cluster *cluster = trouble_begin("kill-trainer", 2);
    cluster_wait(cluster, 1, cluster_versions_reach, 3, "some versions");
    int trainer = cluster_trainer_pid(cluster, 1);
    assert_int_equal(kill(trainer, SIGKILL), 0);
    assert_true(cluster_log_has(cluster, 1, "was killed by signal 9", 5));
    cluster_wait(cluster, 1, cluster_training, 0, "the next trainer");
    assert_int_not_equal(cluster_trainer_pid(cluster, 1), trainer);
    trouble_end_well(cluster);
}

static void everything_killed_at_once_goes_on(void **state)
{
    (void)state;
    struct cluster *cluster = trouble_begin("kill-all", 2);
    cluster_wait(cluster, 0, cluster_versions_reach, 6, "some versions");
    int trainers[2] = {cluster_trainer_pid(cluster, 0), cluster_trainer_pid(cluster, 1)};
    for (uint32_t i = 0; i < 2; i++) {
        cluster_end(cluster, i, SIGKILL);
        kill(trainers[i], SIGKILL);
    }
    cluster_start_all(cluster);
    for (uint32_t i = 0; i < 2; i++)
        assert_true(cluster_log_has(cluster, i, "recovered 3 fragments", 5));
    trouble_end_well(cluster);
}

static void a_stopped_daemon_ends_its_trainer_and_saves(void **state)
{
    (void)state;
    struct cluster *cluster = trouble_begin("stop", 2);
    cluster_wait(cluster, 0, cluster_versions_reach, 4, "some versions");
    int trainer = cluster_trainer_pid(cluster, 0);
    assert_int_equal(cluster_end(cluster, 0, SIGTERM), 0);
    assert_false(alive(trainer));
    assert_true(cluster_log_has(cluster, 1, "island a says goodbye", 3));
    cluster_start(cluster, 0);
    trouble_end_well(cluster);
}

/* ---- coming and going ---- */

static void an_island_that_starts_late_is_waited_for(void **state)
{
    (void)state;
    struct cluster_options options = {.run = trouble_spec, .data = trouble_data};
    struct cluster *cluster = cluster_new("late", 2, &options);
    cluster_start(cluster, 0);
    cluster_wait(cluster, 0, cluster_training, 0, "training alone");
    cluster_wait(cluster, 0, cluster_degraded, 1, "saying that it is alone");
    usleep(1500000);
    assert_int_equal(cluster_status_number(cluster, 0, "versions"), 0); /* no round closes over an island's head */
    cluster_start(cluster, 1);
    trouble_end_well(cluster);
}

static bool trainer_stopped(struct cluster *cluster, uint32_t i, long long unused)
{
    (void)unused;
    return strcmp(cluster_trainer(cluster, i), "stopped") == 0;
}

static void an_island_leaves_and_joins(void **state)
{
    (void)state;
    struct cluster *cluster = trouble_begin("leave", 2);
    cluster_wait(cluster, 1, cluster_versions_reach, 4, "some versions");
    order(cluster, 1, "pause");
    cluster_wait(cluster, 1, trainer_stopped, 0, "having left");
    assert_true(cluster_log_has(cluster, 1, "its last contributions are counted", 1));
    long long then = cluster_status_number(cluster, 0, "versions");
    cluster_wait(cluster, 0, cluster_versions_reach, then + 6, "rounds without the island that left");
    cluster_wait(cluster, 1, cluster_versions_reach, then + 6, "the island that left to follow");
    order(cluster, 1, "resume");
    cluster_wait(cluster, 1, cluster_training, 0, "training again");
    json_t *answer;
    assert_fails(ERR_STATE, "running already", ctl_ask(cluster->island[1].control, "resume", &answer));
    assert_fails(ERR_STATE, "no command", ctl_ask(cluster->island[1].control, "jion", &answer));
    trouble_end_well(cluster);
}

static bool says_it_waits(struct cluster *cluster, uint32_t i, long long unused)
{
    (void)unused;
    json_t *status = cluster_ask(cluster, i, "status");
    char *text = json_dumps(status, JSON_COMPACT);
    bool says = text != NULL && strstr(text, "it waits for b") != NULL && strstr(text, "pause --now") != NULL;
    free(text);
    json_decref(status);
    return says;
}

/* Leaving waits for rounds that need an island that is away: it says so, and can be cut short. */
static void leaving_without_the_others_is_explained_and_can_be_cut_short(void **state)
{
    (void)state;
    struct cluster *cluster = trouble_begin_with("leavealone", 2, "sleep=40");
    cluster_wait(cluster, 0, cluster_versions_reach, 2, "some versions");
    assert_int_equal(cluster_end(cluster, 1, SIGTERM), 0);
    order(cluster, 0, "pause");
    cluster_wait(cluster, 0, says_it_waits, 0, "saying what it waits for");
    order(cluster, 0, "pause now");
    cluster_wait(cluster, 0, trainer_stopped, 0, "having left at once");
    cluster_start(cluster, 1);
    order(cluster, 0, "resume");
    cluster_wait(cluster, 0, cluster_training, 0, "training again");
    trouble_end_well(cluster);
}

static void an_island_without_a_trainer_serves_its_shards(void **state)
{
    (void)state;
    struct cluster_options options = {.run = trouble_spec, .data = trouble_data};
    struct cluster_options listener = {.run = trouble_spec, .data = trouble_data, .more = "autostart = no"};
    struct cluster *cluster = cluster_new("listener", 2, &options);
    /* [worker] is the last section written before the extra lines. */
    cluster_configure(cluster, 1, &listener);
    cluster_start_all(cluster);
    cluster_wait(cluster, 0, cluster_trainer_finished, 0, "the end of training");
    cluster_wait(cluster, 1, cluster_versions_reach, cluster_status_number(cluster, 0, "versions"), "following");
    cluster_assert_one_truth(cluster);
    assert_true(cluster_log_has(cluster, 1, "the model's plan came from island a", 0));
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(cluster_end(cluster, i, SIGTERM), 0);
    cluster_free(cluster);
}

/* Islands may have known each other for long before the first trainer says what the model is. */
static void a_model_that_comes_late_reaches_everyone(void **state)
{
    (void)state;
    struct cluster_options options = {.run = trouble_spec, .data = trouble_data, .more = "autostart = no"};
    struct cluster *cluster = cluster_new("latemodel", 3, &options);
    cluster_start_all(cluster);
    for (uint32_t i = 0; i < 3; i++)
        cluster_wait(cluster, i, cluster_peers_up, 3, "all islands to greet each other");
    order(cluster, 0, "resume");
    cluster_wait(cluster, 0, cluster_versions_reach, 6, "rounds with two islands that only listen");
    for (uint32_t i = 1; i < 3; i++)
        assert_true(cluster_log_has(cluster, i, "the model's plan came from island", 1));
    order(cluster, 1, "resume");
    cluster_wait(cluster, 1, cluster_training, 0, "training");
    for (uint32_t i = 0; i < 2; i++)
        cluster_wait(cluster, i, cluster_trainer_finished, 0, "the end of training");
    for (uint32_t i = 1; i < 3; i++)
        cluster_wait(cluster, i, cluster_versions_reach, cluster_status_number(cluster, 0, "versions"), "following");
    cluster_assert_one_truth(cluster);
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(cluster_end(cluster, i, SIGTERM), 0);
    cluster_free(cluster);
}

int main(int argc, char **argv)
{
    assert_ok(digest_init());
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_killed_daemon_comes_back_to_its_trainer),
        cmocka_unit_test(a_killed_daemon_is_survived_again_and_again),
        cmocka_unit_test(a_daemon_that_hangs_does_not_stop_the_trainer),
        cmocka_unit_test(a_killed_trainer_is_started_again),
        cmocka_unit_test(everything_killed_at_once_goes_on),
        cmocka_unit_test(a_stopped_daemon_ends_its_trainer_and_saves),
        cmocka_unit_test(an_island_that_starts_late_is_waited_for),
        cmocka_unit_test(an_island_leaves_and_joins),
        cmocka_unit_test(leaving_without_the_others_is_explained_and_can_be_cut_short),
        cmocka_unit_test(an_island_without_a_trainer_serves_its_shards),
        cmocka_unit_test(a_model_that_comes_late_reaches_everyone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
