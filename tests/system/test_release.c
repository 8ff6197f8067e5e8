/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A member whose daemon is of the release before: both sides refuse each other by name, with both versions and what to
 * do, and nothing else happens. The others go on without it, and with the right release it comes back as after any
 * loss.
 */
#include "tests/lib/testlib.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/digest.h"
#include "net/transport/wire.h"
#include "tests/lib/cluster.h"
#include "tests/lib/proc.h"

enum { ISLANDS = 3, OLDER = 2, SOME = 9, TOLD_S = 30 };
static const char spec[] = "[run]\nname = release\nsteps = 100000\n[model]\nlayers = 2\n"
                           "[sync]\ninterval = 10\nlayers_per_fragment = 1\noverlap = 2\n";
static const struct cluster_options options = {.run = spec, .data = "sleep=5", .more = "[net]\naway = 1s"};

static void start_older(struct cluster *cluster)
{
    const char *build = getenv("BUILD");
    char preload[400];
    snprintf(preload, sizeof preload, "%s/tests/older_wire.so", build != NULL ? build : "build/gcc");
    setenv("LD_PRELOAD", preload, 1);
    cluster_start(cluster, OLDER);
    unsetenv("LD_PRELOAD");
}

static void assert_refuses(struct cluster *cluster, uint32_t by, const char *whom, int theirs)
{
    char words[160];
    snprintf(words, sizeof words, "island %s is refused: it speaks protocol version %d, we speak %d; install the same",
             whom, theirs, WIRE_VERSION);
    if (!cluster_log_has(cluster, by, words, TOLD_S)) {
        cluster_print_logs(cluster);
        fail_msg("island %s does not say \"%s\"", cluster->island[by].name, words);
    }
}

/* In its status, which then names its code, too. */
static bool says_refused(struct cluster *cluster, uint32_t by, long long unused)
{
    (void)unused;
    bool says = false;
    json_t *status = cluster_ask(cluster, by, "status"), *item;
    size_t k;
    json_array_foreach (json_object_get(status, "degraded"), k, item)
        says = says || (strcmp(json_string_value(json_object_get(item, "code")), "refused") == 0 &&
                        strstr(json_string_value(json_object_get(item, "what")), "protocol version") != NULL);
    json_decref(status);
    return says;
}

static void others_go_on(struct cluster *cluster)
{
    for (uint32_t i = 0; i < OLDER; i++)
        cluster_wait(cluster, i, cluster_versions_reach, cluster_status_number(cluster, i, "versions") + SOME,
                     "rounds without the one that is refused");
}

static void one_of_the_release_before_is_refused_by_name_on_both_sides(void **state)
{
    (void)state;
    const char *sanitizer = getenv("SAN");
    if (sanitizer != NULL && sanitizer[0] != '\0')
        skip_because("a sanitizer's library wants to be the first one");
    struct cluster *cluster = cluster_new("release", ISLANDS, &options);
    cluster_start_all(cluster);
    for (uint32_t i = 0; i < ISLANDS; i++)
        cluster_wait(cluster, i, cluster_versions_reach, SOME, "some versions");
    assert_int_equal(cluster_end(cluster, OLDER, SIGTERM), 0);
    start_older(cluster);
    for (uint32_t i = 0; i < OLDER; i++) {
        assert_refuses(cluster, i, "c", WIRE_VERSION - 1);
        assert_refuses(cluster, OLDER, cluster->island[i].name, WIRE_VERSION + 1);
    }
    for (uint32_t i = 0; i < ISLANDS; i++)
        cluster_wait(cluster, i, says_refused, 0, "its complaint of another release");
    long long versions = cluster_status_number(cluster, OLDER, "versions");
    others_go_on(cluster);
    others_go_on(cluster);
    assert_int_equal(cluster_status_number(cluster, OLDER, "versions"), versions);
    for (uint32_t i = 0; i < ISLANDS; i++)
        assert_int_equal(cluster_wait_end(cluster, i, 0), -1);
    assert_int_equal(cluster_end(cluster, OLDER, SIGTERM), 0);
    cluster_start(cluster, OLDER);
    cluster_wait(cluster, OLDER, cluster_versions_reach, cluster_status_number(cluster, 0, "versions") + SOME,
                 "rounds with all");
    for (uint32_t i = 0; i < OLDER; i++)
        assert_true(cluster_log_has(cluster, i, "island c takes part again", TOLD_S));
    for (uint32_t i = 0; i < ISLANDS; i++)
        cluster_wait(cluster, i, cluster_degraded, 0, "all well");
    assert_true(cluster_assert_one_history(cluster, ISLANDS) > 0);
    for (uint32_t i = 0; i < ISLANDS; i++)
        assert_int_equal(cluster_end(cluster, i, SIGTERM), 0);
    cluster_free(cluster);
}

int main(void)
{
    assert_ok(digest_init());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_of_the_release_before_is_refused_by_name_on_both_sides),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
