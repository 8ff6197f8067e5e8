/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A run outlives its islands: real daemons, of which one is lost, comes back, is cut off, or all at once. Whoever is
 * left goes on with the next epoch, nothing that was trained and kept is lost, and in the end all hold the same
 * anchors.
 */
#include "tests/lib/testlib.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/digest.h"
#include "common/env.h"
#include "common/fsio.h"
#include "common/mem.h"
#include "tests/lib/cluster.h"
#include "tests/lib/far.h"
#include "tests/lib/proc.h"
#include "tests/lib/wan.h"

enum { ISLANDS = 3 };
/* Every fragment may have one more version on its way, which closes without anybody who is lost after it. */
enum { FRAGMENTS = 3, NEW_ROUND = FRAGMENTS + 1 };
/* What is promised of `away`, and the rest of a round, on a busy machine. */
static const double moves_again_s = 5;
static const char *const away = "[net]\naway = 1s";

/* A round of each fragment takes 200 ms. */
#define SPEC(steps)                                                     \
    "[run]\nname = outlives\nsteps = " #steps "\n[model]\nlayers = 2\n" \
    "[sync]\ninterval = 10\nlayers_per_fragment = 1\noverlap = 2\nlate = merge\n"
static const char data[] = "sleep=20 keep=1";

static char no_namespaces[200];

static struct cluster *begin(const char *name, const char *spec)
{
    struct cluster_options options = {.run = spec, .data = data, .more = away};
    struct cluster *cluster = cluster_new(name, ISLANDS, &options);
    cluster_start_all(cluster);
    for (uint32_t i = 0; i < ISLANDS; i++)
        cluster_wait(cluster, i, cluster_versions_reach, NEW_ROUND, "some versions");
    return cluster;
}

/* How often the island has said so. */
static int times_said(struct cluster *cluster, uint32_t i, const char *words)
{
    char *text;
    size_t bytes;
    int times = 0;
    assert_ok(fsio_read(cluster->island[i].log, 1u << 30, &text, &bytes));
    for (const char *at = text; (at = strstr(at, words)) != NULL; at++)
        times++;
    mem_free(text);
    return times;
}

static int epochs(struct cluster *cluster, uint32_t i)
{
    return times_said(cluster, i, " has begun, with ");
}

static bool says_so_often(struct cluster *cluster, uint32_t i, const char *words, int times)
{
    for (int k = 0; k < 600 && times_said(cluster, i, words) < times; k++)
        proc_sleep_ms(50);
    return times_said(cluster, i, words) == times;
}

/* As when the machine burns: daemon and trainer end at once, without a word. */
static void burn(struct cluster *cluster, uint32_t i)
{
    assert_int_equal(cluster_end(cluster, i, SIGKILL), 128 + SIGKILL);
    proc_kill_trainer(cluster->island[i].state);
}

static void assert_moves_again(struct cluster *cluster, uint32_t i, double since_s)
{
    long long then = cluster_status_number(cluster, i, "versions");
    cluster_wait(cluster, i, cluster_versions_reach, then + NEW_ROUND, "a round without the island that is lost");
    double took_s = env_mono_s() - since_s;
    print_message("island %s moves again after %.1f s\n", cluster->island[i].name, took_s);
    assert_true(took_s < moves_again_s);
}

static void end_well(struct cluster *cluster)
{
    long long last = 0;
    for (uint32_t i = 0; i < ISLANDS; i++)
        cluster_wait(cluster, i, cluster_trainer_finished, 0, "the end of training");
    for (uint32_t i = 0; i < ISLANDS; i++) {
        long long own = cluster_status_number(cluster, i, "versions");
        last = own > last ? own : last;
    }
    for (uint32_t i = 0; i < ISLANDS; i++)
        cluster_wait(cluster, i, cluster_versions_reach, last, "the last version");
    cluster_assert_one_truth(cluster);
    cluster_assert_one_model(cluster);
    for (uint32_t i = 0; i < ISLANDS; i++) {
        assert_false(cluster_log_has(cluster, i, "please report", 0));
        assert_false(cluster_log_has(cluster, i, "DIVERGED", 0));
        assert_int_equal(cluster_end(cluster, i, SIGTERM), 0);
    }
    cluster_free(cluster);
}

static bool has_reached_epoch(struct cluster *cluster, uint32_t i, long long epoch)
{
    return cluster_status_number(cluster, i, "epoch") >= epoch;
}

/* The island is lost, which costs one epoch, and comes back, which costs one or two; in the end all are in the last. */
static void lose_and_find(struct cluster *cluster, uint32_t lost, int before)
{
    uint32_t witness = (lost + 1) % ISLANDS;
    char is_lost[64], is_back[64];
    snprintf(is_lost, sizeof is_lost, "island %s is lost", cluster->island[lost].name);
    snprintf(is_back, sizeof is_back, "island %s takes part again", cluster->island[lost].name);
    int epochs_before = epochs(cluster, witness);
    double since_s = env_mono_s();
    burn(cluster, lost);
    assert_moves_again(cluster, witness, since_s);
    assert_true(says_so_often(cluster, witness, is_lost, before + 1));
    assert_int_equal(epochs(cluster, witness), epochs_before + 1);
    cluster_start(cluster, lost);
    assert_true(says_so_often(cluster, witness, is_back, before + 1));
    assert_in_range(epochs(cluster, witness), epochs_before + 2, epochs_before + 3);
    cluster_wait(cluster, witness, cluster_degraded, 0, "all to be well again");
    long long epoch = cluster_status_number(cluster, witness, "epoch");
    for (uint32_t i = 0; i < ISLANDS; i++)
        cluster_wait(cluster, i, has_reached_epoch, epoch, "the last epoch");
}

/* The first one proposes; the last one does not. */
static void an_island_is_lost_and_comes_back(void **state)
{
    (void)state;
    struct cluster *cluster = begin("lost", SPEC(1000)); /* it goes on after both are back, on a busy machine too */
    lose_and_find(cluster, 2, 0);
    lose_and_find(cluster, 0, 0);
    end_well(cluster);
}

/* Two of three are lost, one of them while it proposes the epoch without the other: the third has sealed, and goes on
 * as soon as it is a majority with anyone. */
static void the_proposer_dies_between_seal_and_decision(void **state)
{
    (void)state;
    struct cluster *cluster = begin("proposer", SPEC(400));
    int sealed = times_said(cluster, 0, "epoch message 9, ");
    burn(cluster, 2);
    for (int k = 0; k < 4000 && times_said(cluster, 0, "epoch message 9, ") == sealed; k++)
        proc_sleep_ms(2);
    burn(cluster, 0);
    assert_true(cluster_log_has(cluster, 1, "island c has not been heard of", 5));
    cluster_start(cluster, 2);
    cluster_wait(cluster, 2, cluster_training, 0, "training again");
    assert_moves_again(cluster, 1, env_mono_s());
    cluster_start(cluster, 0);
    end_well(cluster);
}

/* As every machine that was without power: no mark of this boot is there, so every disk is in doubt. */
static void power_is_lost_everywhere(void **state)
{
    (void)state;
    struct cluster *cluster = begin("power", SPEC(250));
    char mark[300];
    for (uint32_t i = 0; i < ISLANDS; i++) {
        burn(cluster, i);
        snprintf(mark, sizeof mark, "%s/vote.mark", cluster->island[i].sockets);
        assert_int_equal(unlink(mark), 0);
    }
    double since_s = env_mono_s();
    cluster_start_all(cluster);
    for (uint32_t i = 0; i < ISLANDS; i++) {
        assert_true(cluster_log_has(cluster, i, "this disk is in doubt: this machine was started again", 5));
        assert_true(says_so_often(cluster, i, "this island votes: its disk is not in doubt", 1));
    }
    print_message("all vote again after %.1f s\n", env_mono_s() - since_s);
    assert_true(epochs(cluster, 0) <= 2);
    end_well(cluster);
}

/* The last of the three is on the other side of a line that is cut: it trains on, and all of that counts. */
static void what_a_minority_trained_counts(void **state)
{
    (void)state;
    char why[300];
    struct wan wan;
    const struct wan_conf line = {.rate_bits = 100000000, .queue_ms = 50};
    struct cluster_options options = {.run = SPEC(450), .data = data, .more = away};
    if (no_namespaces[0] != '\0')
        skip_because(no_namespaces);
    struct cluster *cluster = far_cluster_new("minority", ISLANDS, &options, &line, &wan, why, sizeof why);
    if (cluster == NULL)
        fail_msg("%s", why);
    cluster_start_all(cluster);
    for (uint32_t i = 0; i < ISLANDS; i++)
        cluster_wait(cluster, i, cluster_versions_reach, NEW_ROUND, "some versions");
    int before = epochs(cluster, 0);
    double since_s = env_mono_s();
    assert_true(wan_cut(&wan, true));
    assert_moves_again(cluster, 0, since_s);
    long long stands = cluster_status_number(cluster, 2, "versions");
    assert_true(cluster_log_has(cluster, 2, "has not been heard of", 3));
    proc_sleep_ms(2000);
    assert_int_equal(cluster_status_number(cluster, 2, "versions"), stands);
    assert_true(wan_cut(&wan, false));
    assert_true(says_so_often(cluster, 0, "island c takes part again", 1));
    assert_in_range(epochs(cluster, 0), before + 2, before + 3);
    for (uint32_t i = 0; i < ISLANDS; i++)
        cluster_wait(cluster, i, cluster_trainer_finished, 0, "the end of training");
    for (uint32_t i = 0; i < ISLANDS; i++)
        assert_int_equal(cluster_trainer_number(cluster, i, "tokens"),
                         cluster_trainer_number(cluster, i, "tokens_counted"));
    end_well(cluster);
    wan_end(&wan);
}

/* While the last one is away the others come further than results are asked for. Then the first one is lost for good,
 * and the second one has forgotten what that one signed: it cannot prove a state, and its ledger leads on. */
static void who_was_away_goes_by_results_where_nobody_can_prove_a_state(void **state)
{
    (void)state;
    struct cluster *cluster = begin("results", SPEC(20000));
    burn(cluster, 2);
    long long then = cluster_status_number(cluster, 1, "versions");
    cluster_wait(cluster, 1, cluster_versions_reach, then + FRAGMENTS * 20, "more versions than results are asked for");
    burn(cluster, 0);
    burn(cluster, 1);
    cluster_start(cluster, 1);
    cluster_start(cluster, 2);
    double since_s = env_mono_s();
    assert_true(cluster_log_has(cluster, 2, "too far behind for results; fetching island b's state", 20));
    cluster_wait(cluster, 2, cluster_versions_reach, then + FRAGMENTS * 20, "what the other one has");
    print_message("it has come as far after %.1f s\n", env_mono_s() - since_s);
    assert_true(cluster_log_has(cluster, 2, "now holds what our ledger leads to", 0)); /* and no state */
    cluster_wait(cluster, 2, cluster_versions_reach, cluster_status_number(cluster, 1, "versions") + NEW_ROUND,
                 "a round of the two that are left");
    for (uint32_t i = 1; i < ISLANDS; i++)
        assert_int_equal(cluster_end(cluster, i, SIGTERM), 0);
    cluster_free(cluster);
}

int main(void)
{
    assert_ok(digest_init());
    if (!wan_enter(no_namespaces, sizeof no_namespaces) && no_namespaces[0] == '\0')
        snprintf(no_namespaces, sizeof no_namespaces, "no network namespaces");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_island_is_lost_and_comes_back),
        cmocka_unit_test(the_proposer_dies_between_seal_and_decision),
        cmocka_unit_test(power_is_lost_everywhere),
        cmocka_unit_test(what_a_minority_trained_counts),
        cmocka_unit_test(who_was_away_goes_by_results_where_nobody_can_prove_a_state),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
