/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an operator orders of the whole run, with real daemons: a pause, and another length.
 */
#include "tests/lib/testlib.h"

#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "common/env.h"
#include "daemon/ctl/ctl_client.h"
#include "tests/lib/cluster.h"
#include "tests/lib/patience.h"
#include "tests/lib/proc.h"

static const char spec[] = "[run]\nname = orders\nsteps = 100000\n[model]\nlayers = 2\n"
                           "[sync]\ninterval = 10\nlayers_per_fragment = 1\noverlap = 2\n";
/* Who is silent or late is told soon, and a trainer that hangs is killed soon. */
static const char soon[] = "[net]\naway = 1s\n[worker]\nhang = 4s";
static const struct cluster_options options = {.run = spec, .data = "sleep=5", .more = soon};

/* STOOD_MS: a standing trainer would be hung by then, a missing one late several times over. */
enum { ISLANDS = 3, A = 0, B, C, SOME = 12, STOP_MS = 3000, STOOD_MS = 12000, DECIDED_S = 30 };

/* ---- orders ---- */

/* Whether its status says that the run is paused, and by this order of a's or b's. */
static bool is_paused(struct cluster *cluster, uint32_t i, const char *by)
{
    json_t *status = cluster_ask(cluster, i, "status");
    const json_t *paused = json_object_get(status, "paused");
    bool is = json_is_object(paused) && strcmp(ctl_text(paused, "by"), by) == 0 && ctl_integer(paused, "order") > 0;
    json_decref(status);
    return is;
}

static long long step_of(struct cluster *cluster, uint32_t i)
{
    return cluster_trainer_number(cluster, i, "step");
}

static void all_reach(struct cluster *cluster, long long more)
{
    long long versions = cluster_status_number(cluster, A, "versions");
    for (uint32_t i = 0; i < cluster->count; i++)
        cluster_wait(cluster, i, cluster_versions_reach, versions + more, "more versions");
}

/* Two islands give orders, c does not. */
static void b_operates(struct cluster *cluster)
{
    cluster_orders(cluster, A, "grant b");
    for (uint32_t i = 0; i < cluster->count; i++)
        assert_true(cluster_log_has(cluster, i, "decided: grant b", DECIDED_S));
}

static struct cluster *all_train(const char *name, const struct cluster_options *conf)
{
    struct cluster *cluster = cluster_new(name, ISLANDS, conf);
    cluster_start_all(cluster);
    for (uint32_t i = 0; i < ISLANDS; i++)
        cluster_wait(cluster, i, cluster_training, 0, "training");
    all_reach(cluster, SOME);
    b_operates(cluster);
    return cluster;
}

static void end_all(struct cluster *cluster)
{
    for (uint32_t i = 0; i < cluster->count; i++)
        assert_int_equal(cluster_end(cluster, i, SIGTERM), 0);
    cluster_free(cluster);
}

/* ---- a pause ---- */

static bool trainer_stopped(struct cluster *cluster, uint32_t i, long long unused)
{
    (void)unused;
    return strcmp(cluster_trainer(cluster, i), "stopped") == 0;
}

/* All say that it is, and their trainers take no more steps. */
static void all_stand_within(struct cluster *cluster, const char *by, uint64_t ms, long long steps[ISLANDS])
{
    struct patience patience = {.last_ms = 0};
    for (uint32_t i = 0; i < ISLANDS; i++)
        while (!is_paused(cluster, i, by)) {
            assert_false(patience_over(&patience, ms));
            proc_sleep_ms(20);
        }
    for (uint32_t i = 0; i < ISLANDS;) {
        steps[i] = step_of(cluster, i);
        proc_sleep_ms(300);
        i += step_of(cluster, i) == steps[i];
        assert_false(patience_over(&patience, ms));
    }
}

/* But of what a small model's contributions were before it: a few of many may differ much. */
static void nobody_complains_of_a_pause(struct cluster *cluster, uint32_t i)
{
    json_t *status = cluster_ask(cluster, i, "status");
    const json_t *complaints = json_object_get(status, "degraded"), *one;
    size_t at;
    json_array_foreach (complaints, at, one) {
        if (strcmp(json_string_value(json_object_get(one, "code")), "outlier") == 0)
            continue;
        json_dumpf(one, stderr, JSON_INDENT(1));
        fail_msg("island %s complains in a pause", cluster->island[i].name);
    }
    json_decref(status);
}

static void nobody_has_moved_nor_complains(struct cluster *cluster, const long long steps[ISLANDS])
{
    for (uint32_t i = 0; i < ISLANDS; i++) {
        assert_int_equal(step_of(cluster, i), steps[i]);
        nobody_complains_of_a_pause(cluster, i);
        assert_string_equal(cluster_trainer(cluster, i), "training");
        assert_false(cluster_log_has(cluster, i, "stood still for", 0)); /* what is said of one that hangs */
    }
}

/* Nor does a trainer that is started in a pause take a step. */
static void one_is_started_anew(struct cluster *cluster, uint32_t i)
{
    cluster_orders(cluster, i, "pause now");
    cluster_wait(cluster, i, trainer_stopped, 0, "its end");
    cluster_orders(cluster, i, "resume");
    proc_sleep_ms(2000); /* where a round was open it begins when that one has closed, after the pause */
    assert_string_not_equal(cluster_trainer(cluster, i), "stopped");
    long long step = step_of(cluster, i);
    proc_sleep_ms(1000);
    assert_int_equal(step_of(cluster, i), step);
}

static void all_stand_still_until_the_run_goes_on(void **state)
{
    (void)state;
    long long steps[ISLANDS], step;
    struct cluster *cluster = all_train("runpaused", &options);
    cluster_refuses(cluster, C, "pause run", "c is no operator; the run's operators: a, b");
    cluster_refuses(cluster, A, "resume run", "the run is not paused");
    cluster_orders(cluster, A, "pause run");
    all_stand_within(cluster, "a", STOP_MS, steps);
    cluster_refuses(cluster, B, "pause run", "the run is paused already");
    cluster_refuses(cluster, C, "pause", "the run is paused, so the trainer stands still");
    int pid = cluster_trainer_pid(cluster, B);
    assert_int_equal(cluster_end(cluster, B, SIGKILL), 128 + SIGKILL);
    cluster_start(cluster, B); /* its trainer lives, and stands */
    cluster_wait(cluster, B, cluster_peers_up, ISLANDS, "the others");
    cluster_wait(cluster, B, cluster_training, 0, "the same trainer, attached again");
    assert_int_equal(cluster_trainer_pid(cluster, B), pid);
    for (uint32_t i = 0; i < ISLANDS; i++)
        assert_true(is_paused(cluster, i, "a"));
    proc_sleep_ms(STOOD_MS);
    nobody_has_moved_nor_complains(cluster, steps);
    one_is_started_anew(cluster, C);
    cluster_orders(cluster, B, "resume run");
    all_reach(cluster, SOME);
    for (uint32_t i = 0; i < ISLANDS; i++) {
        assert_false(is_paused(cluster, i, "a"));
        step = step_of(cluster, i);
        assert_true(step > steps[i]);
        assert_int_equal(cluster_trainer_pid(cluster, i) == pid, i == B);
        assert_false(cluster_log_has(cluster, i, "is late", 0));
    }
    end_all(cluster);
}

/* A trainer that is started, and an island that comes back, take part in the pause. */
static void whoever_begins_in_a_pause_stands_until_it_is_over(void **state)
{
    (void)state;
    struct cluster *cluster = all_train("runbegins", &options);
    assert_int_equal(cluster_end(cluster, C, SIGTERM), 0);
    cluster_orders(cluster, B, "pause run");
    while (!is_paused(cluster, A, "b"))
        proc_sleep_ms(20);
    cluster_start(cluster, C);
    cluster_wait(cluster, C, cluster_training, 0, "its trainer is attached");
    while (!is_paused(cluster, C, "b"))
        proc_sleep_ms(20);
    long long step = step_of(cluster, C);
    proc_sleep_ms(2000);
    assert_in_range(step_of(cluster, C) - step, 0, 1); /* it had not heard of it, at most */
    cluster_orders(cluster, A, "resume run");
    all_reach(cluster, SOME);
    for (uint32_t i = 0; i < ISLANDS; i++)
        cluster_wait(cluster, i, cluster_degraded, 0, "all well");
    end_all(cluster);
}

/* ---- the length ---- */

static bool has_steps(struct cluster *cluster, uint32_t i, long long steps)
{
    json_t *status = cluster_ask(cluster, i, "status");
    bool has = ctl_integer(json_object_get(status, "run"), "steps") == steps;
    json_decref(status);
    return has;
}

static bool no_order_waits(struct cluster *cluster, uint32_t i)
{
    json_t *status = cluster_ask(cluster, i, "status");
    bool none = status != NULL && json_array_size(json_object_get(status, "orders")) == 0;
    json_decref(status);
    return none;
}

/* To a step so near that some are beyond it when it is decided. Where a result names a later one by then, nobody may
 * decide it: then to a later one. Returns it. */
static long long make_shorter(struct cluster *cluster)
{
    for (long long more = 1; more < 5000; more += 20) {
        char request[64];
        long long steps = step_of(cluster, A) + more;
        snprintf(request, sizeof request, "set steps=%lld", steps);
        json_t *answer = cluster_ask(cluster, A, request);
        bool has = false;
        for (int k = 0; answer != NULL && !has && k < 400; k++) {
            proc_sleep_ms(20);
            bool over = no_order_waits(cluster, A);
            has = has_steps(cluster, A, steps);
            if (over && !has)
                break;
        }
        json_decref(answer);
        if (has)
            return steps;
    }
    fail_msg("the run cannot be made shorter");
    return 0;
}

static void set_steps(struct cluster *cluster, uint32_t i, long long steps)
{
    char request[64];
    snprintf(request, sizeof request, "set steps=%lld", steps);
    cluster_orders(cluster, i, request);
    for (uint32_t k = 0; k < ISLANDS; k++)
        cluster_wait(cluster, k, has_steps, steps, "the new length");
}

/* Of an end before this one its trainer is finished, too, until it has heard that the run is longer. */
static bool has_ended_at(struct cluster *cluster, uint32_t i, long long steps)
{
    return cluster_trainer_finished(cluster, i, 0) && step_of(cluster, i) == steps;
}

/* One end. `whole`: no daemon was killed, so that its account of tokens has all. */
static void all_end_alike(struct cluster *cluster, long long steps, bool whole)
{
    long long last = 0;
    for (uint32_t i = 0; i < ISLANDS; i++) {
        cluster_wait(cluster, i, has_ended_at, steps, "the end of training");
        long long versions = cluster_status_number(cluster, i, "versions");
        last = versions > last ? versions : last;
    }
    for (uint32_t i = 0; i < ISLANDS; i++) {
        cluster_wait(cluster, i, cluster_versions_reach, last, "the last version");
        assert_int_equal(step_of(cluster, i), steps);
        if (whole)
            assert_int_equal(cluster_trainer_number(cluster, i, "tokens"),
                             cluster_trainer_number(cluster, i, "tokens_counted"));
        assert_false(cluster_log_has(cluster, i, "DIVERGED", 0));
    }
    cluster_assert_one_truth(cluster);
}

/* Island c takes other steps than the rest, so that they are never at the same one. */
static void a_run_made_shorter_has_one_end_and_goes_on_when_made_longer(void **state)
{
    (void)state;
    static const struct cluster_options slow = {.run = spec, .data = "sleep=17", .more = soon};
    struct cluster *cluster = cluster_new("runlength", ISLANDS, &options);
    cluster_configure(cluster, C, &slow);
    cluster_start_all(cluster);
    for (uint32_t i = 0; i < ISLANDS; i++)
        cluster_wait(cluster, i, cluster_versions_reach, SOME, "some versions");
    b_operates(cluster);
    cluster_refuses(cluster, C, "set steps=200000", "c is no operator; the run's operators: a, b");
    cluster_refuses(cluster, A, "set steps=many", "steps=many: not a number of steps");
    cluster_refuses(cluster, A, "set steps=0", "steps=0: not a number of steps");
    cluster_refuses(cluster, A, "set steps=-4", "not a number of steps");
    cluster_refuses(cluster, A, "set stops=4", "set what?");
    cluster_refuses(cluster, A, "set steps=100000", "ends at step 100000 already");
    cluster_refuses(cluster, A, "set steps=2", "what is counted stays");
    long long steps = make_shorter(cluster);
    all_end_alike(cluster, steps, true);
    set_steps(cluster, B, steps + 100); /* the trainers have ended, and are started again */
    all_end_alike(cluster, steps + 100, true);
    set_steps(cluster, B, steps + 100000);
    for (uint32_t i = 0; i < ISLANDS; i++)
        cluster_wait(cluster, i, cluster_training, 0, "training again");
    all_reach(cluster, SOME);
    set_steps(cluster, A, steps + 200000); /* on the way: nobody is started again */
    all_reach(cluster, SOME);
    end_all(cluster);
}

/* All are killed with the run's end before them: what they keep says how long it is. */
static void the_length_outlives_all_daemons(void **state)
{
    (void)state;
    struct cluster *cluster = all_train("runkilled", &options);
    long long steps = step_of(cluster, A) + 400;
    set_steps(cluster, A, steps);
    for (uint32_t i = 0; i < ISLANDS; i++)
        assert_int_equal(cluster_end(cluster, i, SIGKILL), 128 + SIGKILL);
    cluster_start_all(cluster);
    for (uint32_t i = 0; i < ISLANDS; i++)
        cluster_wait(cluster, i, has_steps, steps, "the length after a restart");
    all_end_alike(cluster, steps, false);
    end_all(cluster);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_stand_still_until_the_run_goes_on),
        cmocka_unit_test(whoever_begins_in_a_pause_stands_until_it_is_over),
        cmocka_unit_test(a_run_made_shorter_has_one_end_and_goes_on_when_made_longer),
        cmocka_unit_test(the_length_outlives_all_daemons),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
