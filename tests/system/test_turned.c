/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An island whose program trains the other way, so that its contributions are as large as the others' and point against
 * them: every island names it after five rounds, also after a restart, and from then on it weighs nothing.
 */
#include "tests/lib/testlib.h"

#include <signal.h>
#include <string.h>

#include "common/digest.h"
#include "tests/lib/accounts.h"
#include "tests/lib/cluster.h"
#include "tests/lib/proc.h"

enum { FRAGMENTS = 3, ROUNDS = 16, TURNED_ROUNDS = 5 };
static const char spec[] = "[run]\nname = turned\nsteps = 80\n[model]\nlayers = 2\n"
                           "[sync]\ninterval = 5\nlayers_per_fragment = 1\noverlap = 0\nmix = 0\nlate = wait\n";
static const char *const says = "have pointed away from the others' in 5 rounds running, and weigh nothing";

static bool names(struct cluster *cluster, uint32_t by, long long whom)
{
    char words[160];
    bool named = false;
    json_t *answer = cluster_ask(cluster, by, "status"), *row;
    size_t k;
    snprintf(words, sizeof words, "island %s %s", cluster->island[whom].name, says);
    json_array_foreach (json_object_get(answer, "degraded"), k, row)
        named = named || strstr(json_string_value(json_object_get(row, "what")), words) != NULL;
    json_decref(answer);
    return named;
}

/* Of the results that its ledgers have. */
static void assert_weighs_nothing(struct cluster *cluster, uint32_t liar)
{
    struct accounts *accounts = accounts_open(cluster);
    for (uint32_t f = 0; f < FRAGMENTS; f++) {
        struct shard_account account = accounts_of(accounts, f, 0);
        assert_true(account.results >= ROUNDS);
        for (uint32_t i = 0; i < cluster->count; i++)
            assert_true(i == liar || account.weightless[i] == 0);
        assert_in_range(account.first_weightless[liar], TURNED_ROUNDS, TURNED_ROUNDS + 2);
        assert_int_equal(account.weightless[liar], account.results - account.first_weightless[liar] + 1);
    }
    accounts_close(accounts);
}

static void a_liar_among(uint32_t islands)
{
    char name[16];
    const uint32_t liar = islands - 1;
    struct cluster_options options = {.run = spec, .data = "sleep=20 drift=1"};
    struct cluster_options lies = {.run = spec, .data = "sleep=20 drift=1 turn=1"};
    snprintf(name, sizeof name, "turned-%u", islands);
    struct cluster *cluster = cluster_new(name, islands, &options);
    cluster_configure(cluster, liar, &lies);
    cluster_start_all(cluster);
    for (uint32_t i = 0; i < islands; i++)
        cluster_wait(cluster, i, names, liar, "the name of who trains the other way");
    assert_int_equal(cluster_end(cluster, 0, SIGKILL), 128 + SIGKILL);
    cluster_start(cluster, 0);
    cluster_wait(cluster, 0, names, liar, "the same after a restart");
    for (uint32_t i = 0; i < islands; i++) {
        cluster_wait(cluster, i, cluster_trainer_finished, 0, "the end of training");
        assert_true(
            cluster_log_has(cluster, i, "have pointed away from the others' in 5 rounds running; they weigh", 1));
    }
    cluster_assert_one_truth(cluster);
    for (uint32_t i = 0; i < islands; i++)
        assert_int_equal(cluster_end(cluster, i, SIGTERM), 0);
    assert_weighs_nothing(cluster, liar);
    cluster_free(cluster);
}

static void one_of_three_that_trains_the_other_way_weighs_nothing(void **state)
{
    (void)state;
    a_liar_among(3);
}

static void one_of_five_that_trains_the_other_way_weighs_nothing(void **state)
{
    (void)state;
    a_liar_among(5);
}

int main(void)
{
    assert_ok(digest_init());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_of_three_that_trains_the_other_way_weighs_nothing),
        cmocka_unit_test(one_of_five_that_trains_the_other_way_weighs_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
