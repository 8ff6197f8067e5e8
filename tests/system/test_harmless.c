/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is no loss of an island, with real daemons: a trainer that hangs, a slow line, a calendar clock that jumps. No
 * epoch begins, everything that was trained counts, and all end with the same anchors.
 */
#include "tests/lib/testlib.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/digest.h"
#include "common/fsio.h"
#include "daemon/ctl/ctl_client.h"
#include "tests/lib/cluster.h"
#include "tests/lib/far.h"
#include "tests/lib/proc.h"
#include "tests/lib/wan.h"

enum { ISLANDS = 3, FRAGMENTS = 3, SOME = 2 * FRAGMENTS, DAY_S = 86400 };

/* A round of each fragment takes 200 ms. */
#define SPEC(steps)                                                     \
    "[run]\nname = harmless\nsteps = " #steps "\n[model]\nlayers = 2\n" \
    "[sync]\ninterval = 10\nlayers_per_fragment = 1\noverlap = 2\nlate = merge\n"
static const char *const away = "[net]\naway = 1s";

static char no_namespaces[200];

static void wait_for_more(struct cluster *cluster, uint32_t i, long long more, const char *what)
{
    long long versions = cluster_status_number(cluster, i, "versions");
    cluster_wait(cluster, i, cluster_versions_reach, versions + more, what);
}

static struct cluster *begin(const char *name, const struct cluster_options *options)
{
    struct cluster *cluster = cluster_new(name, ISLANDS, options);
    cluster_start_all(cluster);
    for (uint32_t i = 0; i < ISLANDS; i++)
        cluster_wait(cluster, i, cluster_versions_reach, SOME, "some versions");
    return cluster;
}

static void assert_no_epoch(struct cluster *cluster)
{
    for (uint32_t i = 0; i < ISLANDS; i++)
        assert_int_equal(cluster_status_number(cluster, i, "epoch"), CLUSTER_EPOCH);
}

/* All was counted, once, and nobody was lost. */
static void end_well(struct cluster *cluster)
{
    long long last = 0;
    for (uint32_t i = 0; i < ISLANDS; i++)
        cluster_wait(cluster, i, cluster_trainer_finished, 0, "the end of training");
    for (uint32_t i = 0; i < ISLANDS; i++) {
        long long own = cluster_status_number(cluster, i, "versions");
        last = own > last ? own : last;
    }
    for (uint32_t i = 0; i < ISLANDS; i++) {
        cluster_wait(cluster, i, cluster_versions_reach, last, "the last version");
        assert_int_equal(cluster_trainer_number(cluster, i, "tokens"),
                         cluster_trainer_number(cluster, i, "tokens_counted"));
    }
    assert_no_epoch(cluster);
    cluster_assert_one_truth(cluster);
    for (uint32_t i = 0; i < ISLANDS; i++) {
        assert_false(cluster_log_has(cluster, i, "please report", 0));
        assert_int_equal(cluster_end(cluster, i, SIGTERM), 0);
    }
    cluster_free(cluster);
}

/* Nobody can tell it from a slow one: rounds wait, for longer than `away`, and nobody is lost. */
static void a_trainer_that_hangs_is_waited_for_for_a_while(void **state)
{
    (void)state;
    enum { HANGS_MS = 1500 };
    /* More than twice what it takes to go on without it: four times `away`, and as much for what comes before. */
    struct cluster_options options = {.run = SPEC(600), .data = "sleep=20", .more = away};
    struct cluster *cluster = begin("hangs", &options);
    int trainer = cluster_trainer_pid(cluster, 1);
    assert_true(trainer > 1);
    assert_int_equal(kill(trainer, SIGSTOP), 0);
    proc_sleep_ms(1000); /* what was contributed before closes */
    long long versions = cluster_status_number(cluster, 0, "versions");
    long long tokens = cluster_trainer_number(cluster, 0, "tokens");
    proc_sleep_ms(HANGS_MS);
    assert_int_equal(cluster_status_number(cluster, 0, "versions"), versions);
    assert_true(cluster_trainer_number(cluster, 0, "tokens") > tokens); /* the others train on */
    wait_for_more(cluster, 0, 1, "a version without the trainer that hangs");
    assert_int_equal(kill(trainer, SIGCONT), 0);
    wait_for_more(cluster, 0, SOME, "versions with the trainer that hung");
    end_well(cluster);
}

/* A result of a fragment takes the line longer than another one is silent until it is lost; heartbeats have a
 * connection of their own. */
static void a_slow_line_is_no_loss(void **state)
{
    (void)state;
    static const char spec[] =
        "[run]\nname = harmless\nsteps = 100\n[model]\nlayers = 2\n"
        "[sync]\ninterval = 50\nlayers_per_fragment = 1\noverlap = 2\nlate = merge\ncodec = int8\nzstd_level = 0\n";
    char why[300];
    struct wan wan;
    const struct wan_conf line = {.rate_bits = 1000000, .queue_ms = 400};
    struct cluster_options options = {.run = spec, .data = "sleep=50 size=300000", .more = "[net]\naway = 2s"};
    if (no_namespaces[0] != '\0')
        skip_because(no_namespaces);
    struct cluster *cluster = far_cluster_new("slowline", ISLANDS, &options, &line, &wan, why, sizeof why);
    if (cluster == NULL)
        fail_msg("%s", why);
    cluster_start_all(cluster);
    for (uint32_t i = 0; i < ISLANDS; i++)
        cluster_wait(cluster, i, cluster_versions_reach, SOME, "some versions over a slow line");
    for (uint32_t i = 0; i < ISLANDS; i++)
        assert_false(cluster_log_has(cluster, i, "has not been heard of", 0));
    end_well(cluster);
    wan_end(&wan);
}

/* The day that the log says when the calendar is so far off. */
static const char *day_of(long skew_s, char day[32])
{
    time_t then = time(NULL) + skew_s;
    struct tm local;
    localtime_r(&then, &local);
    strftime(day, 32, "%Y-%m-%d", &local);
    return day;
}

/* One island's calendar goes a day forward, then back behind where it was. Nothing but invitations asks for it. */
static void a_clock_that_jumps_does_not_matter(void **state)
{
    (void)state;
    char skewed[400], preload[400], jump[32];
    struct cluster_options options = {.run = SPEC(300), .data = "sleep=20", .more = away};
    const char *build = getenv("BUILD"), *sanitizer = getenv("SAN");
    if (sanitizer != NULL && sanitizer[0] != '\0')
        skip_because("a sanitizer's library wants to be the first one");
    struct cluster *cluster = cluster_new("clock", ISLANDS, &options);
    snprintf(skewed, sizeof skewed, "%s/skewed", cluster->folder);
    snprintf(preload, sizeof preload, "%s/tests/skewed.so", build != NULL ? build : "build/gcc");
    assert_ok(fsio_replace(skewed, "0", 1, 0644));
    setenv("SKEWED_CLOCK", skewed, 1);
    setenv("LD_PRELOAD", preload, 1);
    cluster_start(cluster, 0);
    unsetenv("LD_PRELOAD");
    cluster_start(cluster, 1);
    cluster_start(cluster, 2);
    for (uint32_t i = 0; i < ISLANDS; i++)
        cluster_wait(cluster, i, cluster_versions_reach, SOME, "some versions");
    static const long jumps_s[] = {DAY_S, -400 * DAY_S};
    for (size_t k = 0; k < sizeof jumps_s / sizeof jumps_s[0]; k++) {
        int length = snprintf(jump, sizeof jump, "%ld", jumps_s[k]);
        assert_ok(fsio_replace(skewed, jump, (size_t)length, 0644));
        long long versions = cluster_status_number(cluster, 0, "versions");
        for (uint32_t i = 0; i < ISLANDS; i++)
            cluster_wait(cluster, i, cluster_versions_reach, versions + SOME, "versions after the clock jumped");
        assert_true(cluster_log_has(cluster, 0, day_of(jumps_s[k], jump), 0)); /* it did */
        for (uint32_t i = 0; i < ISLANDS; i++)
            assert_true(cluster_degraded(cluster, i, 0));
    }
    end_well(cluster);
}

int main(void)
{
    assert_ok(digest_init());
    if (!wan_enter(no_namespaces, sizeof no_namespaces) && no_namespaces[0] == '\0')
        snprintf(no_namespaces, sizeof no_namespaces, "no network namespaces");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_trainer_that_hangs_is_waited_for_for_a_while),
        cmocka_unit_test(a_slow_line_is_no_loss),
        cmocka_unit_test(a_clock_that_jumps_does_not_matter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
