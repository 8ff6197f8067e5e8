/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who may order, with real daemons: the founder, the only operator, is lost for good, and the others agree on another;
 * and a member that repeats orders which were carried out, or taken back.
 */
#include "tests/lib/testlib.h"

#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "common/digest.h"
#include "daemon/ctl/ctl_client.h"
#include "tests/lib/cluster.h"
#include "tests/lib/proc.h"
#include "tests/lib/rogue.h"

enum { A, B, C, SOME = 9, DECIDED_S = 30, FRAGMENTS = 3 };
static const char spec[] = "[run]\nname = founder\nsteps = 100000\n[model]\nlayers = 2\n"
                           "[sync]\ninterval = 10\nlayers_per_fragment = 1\noverlap = 2\nlate = merge\n";
static const struct cluster_options options = {.run = spec, .data = "sleep=10", .more = "[net]\naway = 1s"};

/* The number of the order that waits here and says so; 0: none does. */
static long long waits(struct cluster *cluster, uint32_t i, const char *text)
{
    long long number = 0;
    json_t *answer = cluster_ask(cluster, i, "orders"), *row;
    size_t k;
    json_array_foreach (json_object_get(answer, "orders"), k, row)
        if (strstr(json_string_value(json_object_get(row, "text")), text) != NULL)
            number = ctl_integer(row, "number");
    json_decref(answer);
    return number;
}

static void assert_decided(struct cluster *cluster, uint32_t first, uint32_t end, const char *words)
{
    for (uint32_t i = first; i < end; i++) {
        if (cluster_log_has(cluster, i, words, DECIDED_S))
            continue;
        cluster_print_logs(cluster);
        fail_msg("island %s does not say \"%s\"", cluster->island[i].name, words);
    }
}

static void go_on(struct cluster *cluster, uint32_t first, uint32_t end)
{
    for (uint32_t i = first; i < end; i++)
        cluster_wait(cluster, i, cluster_versions_reach, cluster_status_number(cluster, i, "versions") + SOME,
                     "more versions");
}

/* ---- the founder is lost ---- */

/* It takes a majority of those that vote, the one that asks among them. */
static void replace_the_founder(struct cluster *cluster)
{
    char approve[40];
    uint32_t majority = cluster->count / 2 + 1;
    cluster_refuses(cluster, B, "set steps=90000", "b is no operator");
    cluster_orders(cluster, B, "founder b");
    for (uint32_t i = C; i < B + majority; i++) {
        for (int k = 0; k < 600 && waits(cluster, i, "founder b") == 0; k++)
            proc_sleep_ms(50);
        assert_int_equal(cluster_log_has(cluster, B, "decided: founder b", 0), 0);
        snprintf(approve, sizeof approve, "approve %lld b", waits(cluster, i, "founder b"));
        cluster_orders(cluster, i, approve);
    }
    assert_decided(cluster, B, cluster->count, "decided: founder b");
}

static void the_founder_is_lost_among(uint32_t islands)
{
    char name[20];
    snprintf(name, sizeof name, "founder-%u", islands);
    struct cluster *cluster = cluster_new(name, islands, &options);
    cluster_start_all(cluster);
    go_on(cluster, A, islands);
    assert_int_equal(cluster_end(cluster, A, SIGKILL), 128 + SIGKILL);
    proc_kill_trainer(cluster->island[A].state);
    go_on(cluster, B, islands);
    replace_the_founder(cluster);
    cluster_orders(cluster, B, "grant c");
    assert_decided(cluster, B, islands, "decided: grant c");
    cluster_orders(cluster, B, "revoke a"); /* of an operator: that is the founder's to order */
    assert_decided(cluster, B, islands, "decided: revoke a");
    go_on(cluster, B, islands);
    cluster_start(cluster, A);
    assert_true(cluster_log_has(cluster, A, "revoked", DECIDED_S)); /* nobody lets it in */
    go_on(cluster, B, islands);
    assert_true(cluster_assert_one_history(cluster, islands) > 0);
    for (uint32_t i = B; i < islands; i++)
        assert_int_equal(cluster_end(cluster, i, SIGTERM), 0);
    cluster_free(cluster);
}

static void of_three_the_others_agree_on_another_founder(void **state)
{
    (void)state;
    the_founder_is_lost_among(3);
}

static void of_five_the_others_agree_on_another_founder(void **state)
{
    (void)state;
    the_founder_is_lost_among(5);
}

/* ---- orders again ---- */

static struct rogue *begin_orders_again(void)
{
    struct cluster *cluster = cluster_new("again", 4, &options);
    cluster_configure_after(cluster, 3, "[net]\n", "uplink = 1kbit\n");
    for (uint32_t i = 0; i < 3; i++)
        cluster_start(cluster, i);
    return rogue_open(cluster, 3, FRAGMENTS);
}

/* Hears until the order of this kind and number (0: of any) is on its tape; what it was. */
static struct rogue_taped overhear(struct rogue *rogue, uint32_t kind, long long number)
{
    for (size_t at = 0, turns = 0; turns < 600; turns++) {
        rogue_pass(rogue, 50);
        for (; at < rogue->taped; at++) {
            struct paxos_message message;
            const struct rogue_taped *taped = &rogue->tape[at];
            if (taped->type != WIRE_ORDER ||
                wire_paxos_unpack(taped->type, taped->payload, taped->bytes, &message) != ERR_OK)
                continue;
            bool is = message.order->kind == kind && (number == 0 || message.order->number == (uint64_t)number);
            wire_paxos_deinit(&message);
            if (is)
                return *taped;
        }
    }
    fail_msg("no order %lld is heard", number);
    return (struct rogue_taped){0};
}

static void says_again(struct rogue *rogue, struct rogue_taped order)
{
    for (int k = 0; k < 10; k++) {
        rogue_say_raw(rogue, CLUSTER_MAX, order.type, order.payload, order.bytes);
        rogue_pass(rogue, 100);
    }
}

static void hears_decided(struct rogue *rogue, const char *words)
{
    for (uint32_t i = 0; i < rogue->self; i++)
        assert_true(rogue_logged(rogue, i, words, DECIDED_S));
}

/* What takes a majority waits, and so can be taken back before anybody has agreed; whoever heard it may say it again.
 */
static void orders_that_are_over_are_of_no_use_again(void **state)
{
    (void)state;
    struct rogue *rogue = begin_orders_again();
    struct cluster *cluster = rogue->cluster;
    char request[40];
    rogue->taping = true;
    cluster_orders(cluster, B, "founder b");
    long long number = waits(cluster, B, "founder b");
    assert_true(number > 0);
    struct rogue_taped founder = overhear(rogue, ORDER_FOUNDER, number);
    snprintf(request, sizeof request, "withdraw %lld", number);
    cluster_orders(cluster, B, request);
    (void)overhear(rogue, ORDER_VOID, number);
    says_again(rogue, founder);
    snprintf(request, sizeof request, "approve %lld b", number);
    for (uint32_t i = 0; i < rogue->self; i++)
        cluster_refuses(cluster, i, request, "waits here");
    cluster_orders(cluster, A, "set steps=90000");
    struct rogue_taped steps = overhear(rogue, ORDER_STEPS, 0);
    hears_decided(rogue, "decided: steps 90000");
    cluster_orders(cluster, A, "set steps=80000");
    hears_decided(rogue, "decided: steps 80000");
    long long epoch = cluster_status_number(cluster, B, "epoch");
    says_again(rogue, steps);
    says_again(rogue, founder);
    rogue_moves(rogue, 2, DECIDED_S, "it says orders again that are over");
    struct config config = rogue_config(rogue);
    assert_int_equal(config.steps, 80000);
    assert_int_equal(config.founder, A);
    assert_int_equal(config.epoch, epoch);
    config_deinit(&config);
    rogue_end(rogue);
}

int main(void)
{
    assert_ok(digest_init());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(of_three_the_others_agree_on_another_founder),
        cmocka_unit_test(of_five_the_others_agree_on_another_founder),
        cmocka_unit_test(orders_that_are_over_are_of_no_use_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
