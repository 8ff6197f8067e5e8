/* SPDX-License-Identifier: Apache-2.0 */
/* A run of as many members as there can be, each of which goes to the limit of what it may cost: what is kept of them
 * does not grow, and one that stays within its own limits is served as if it were alone. */
#include "tests/lib/testlib.h"

#include <malloc.h>
#include <string.h>

#include "common/mem.h"
#include "daemon/peers/budget.h"
#include "net/membership/membership.h"
#include "net/membership/order_pool.h"
#include "net/membership/refused_orders.h"
#include "net/membership/wire_paxos.h"
#include "tests/lib/roster.h"

/* HONEST stays within its limits; FLOODS go to the end of all that is checked of them, the others send SOME. */
enum { MEMBERS = CONFIG_MEMBERS_MAX, HONEST = 1, FLOODS = 64, SOME = 20, NOW_MS = 1000000 };
/* What docs/PROTOCOL.md says that all of them take here at most. */
enum { BUDGETS_BYTES = 1 << 20, MEMBERSHIP_BYTES = 6 << 20 };

/* ---- budgets ---- */

static struct budget budgets[MEMBERS];
static const struct budget_credit none;

static void one_within_its_budget_is_served_beside_a_thousand_at_their_limits(void **state)
{
    (void)state;
    uint32_t closed = 0, charged = 0;
    memset(budgets, 0, sizeof budgets);
    for (uint32_t i = 0; i < MEMBERS; i++)
        for (enum budget_kind kind = 0; i != HONEST && kind < BUDGET_KINDS; kind++) {
            uint32_t count = kind == BUDGET_CHUNKS || kind == BUDGET_EPOCH_KIB ? 1024 : 1;
            while (budget_take(&budgets[i], &none, kind, count, NOW_MS))
                charged++;
            while (!budget_is_exceeded(&budgets[i], &none, NOW_MS))
                assert_false(budget_take(&budgets[i], &none, kind, count, NOW_MS));
            budgets[i].drops_us = 0; /* of each kind anew */
        }
    for (uint32_t i = 0; i < MEMBERS; i++) {
        if (i != HONEST)
            assert_true(budget_close(&budgets[i], NOW_MS) >= 30000);
        closed += budget_text(&budgets[i], NOW_MS)[0] != '\0';
    }
    assert_int_equal(closed, MEMBERS - 1);
    assert_true(charged > (MEMBERS - 1) * 4000u);
    for (uint64_t ms = NOW_MS; ms < NOW_MS + 60000; ms += 1000) {
        assert_true(budget_take(&budgets[HONEST], &none, BUDGET_HEARTBEATS, 1, ms));
        assert_true(budget_take(&budgets[HONEST], &none, BUDGET_FETCHES, 10, ms));
        assert_true(budget_take(&budgets[HONEST], &none, BUDGET_EPOCH, 10, ms));
        assert_true(budget_take(&budgets[HONEST], &none, BUDGET_ORDERS, 1, ms));
    }
    assert_true(sizeof budgets <= BUDGETS_BYTES);
    print_message("budgets of %d members: %zu KiB\n", MEMBERS, sizeof budgets >> 10);
}

/* ---- signatures and lines of the log ---- */

static struct crowd {
    struct config_log *config_log;
    struct view view;
    struct membership *membership;
    struct voting_disk disk;
    struct ident ours, honest;
    uint32_t told[MEMBERS];
} crowd;

static void send_nowhere(void *user, uint32_t slot, uint32_t type, const uint8_t *bytes, size_t bytes_count)
{
    (void)user, (void)slot, (void)type, (void)bytes, (void)bytes_count;
}

static void save_vote(void *user, const struct paxos_vote *vote, uint64_t number)
{
    (void)user, (void)number;
    crowd.disk.vote = *vote;
}

static enum err no_proof(void *user, uint32_t id, uint8_t **bytes, size_t *bytes_count)
{
    (void)user, (void)id, (void)bytes, (void)bytes_count;
    return ERR_NOTFOUND;
}

static void count_told(void *user, const struct membership_news *news)
{
    (void)user;
    if (news->type == MEMBERSHIP_ORDER_REFUSED)
        crowd.told[news->member]++;
}

/* That the allocator has given out; 0 where it does not say, as a sanitizer's. */
static size_t taken_bytes(void)
{
    struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
}

static void begin(void)
{
    static const struct membership_io host = {
        .send = send_nowhere, .save_vote = save_vote, .load_evidence = no_proof, .tell = count_told};
    struct config config = roster_config(MEMBERS);
    struct view_changes changes;
    struct ident one;
    crowd = (struct crowd){.disk = {.incarnation = 1}};
    for (uint32_t i = 0; i < MEMBERS; i++) {
        assert_ok(ident_generate(&one));
        crowd.ours = i == 0 ? one : crowd.ours;
        crowd.honest = i == HONEST ? one : crowd.honest;
        memcpy(config.members[i].key, one.key, sizeof one.key);
        config.members[i].incarnation = i + 1;
        config.members[i].operates = i == HONEST;
    }
    assert_ok(config_log_new(&crowd.config_log));
    roster_add(crowd.config_log, &config);
    assert_ok(view_init(NULL, 0, &crowd.view));
    assert_ok(view_update(&crowd.view, config_log_last(crowd.config_log), config_log_last_digest(crowd.config_log),
                          crowd.ours.key, &changes));
    assert_ok(membership_new(&(struct membership_conf){.view = &crowd.view,
                                                       .config_log = crowd.config_log,
                                                       .ident = &crowd.ours,
                                                       .disk = &crowd.disk,
                                                       .host = &host,
                                                       .user = &crowd},
                             &crowd.membership));
    assert_ok(membership_begin(crowd.membership, NOW_MS));
    for (uint32_t i = 1; i < MEMBERS; i++)
        membership_up(crowd.membership, i, true, NOW_MS);
}

static void end(void)
{
    membership_free(crowd.membership);
    view_free(&crowd.view);
    config_log_free(crowd.config_log);
}

/* An order of HONEST's, as slot `from` sends it. */
static void say_order(uint32_t from, uint32_t subject, uint64_t number, bool well)
{
    struct order order = {.kind = well ? ORDER_PAUSE : ORDER_REVOKE,
                          .signer = roster_id(HONEST),
                          .subject = well ? 0 : roster_id(subject),
                          .number = number,
                          .epoch = config_log_last(crowd.config_log)->epoch};
    struct paxos_message message = {.type = WIRE_ORDER, .order = &order};
    uint8_t *bytes;
    size_t count;
    if (well)
        order_sign(&crowd.honest, config_log_last(crowd.config_log)->nonce, &order);
    assert_ok(wire_paxos_pack(&message, &bytes, &count));
    assert_ok(membership_message_in(crowd.membership, from, WIRE_ORDER, bytes, count, NOW_MS));
    mem_free(bytes);
}

static void a_thousand_that_flood_cost_so_many_checks_and_lines_and_no_memory(void **state)
{
    (void)state;
    struct membership_pending pending;
    uint32_t at = 0;
    size_t before = taken_bytes();
    begin();
    size_t begun = taken_bytes();
    uint64_t checks = ident_checks(), most = 0;
    for (uint32_t i = HONEST + 1; i < MEMBERS; i++) {
        uint32_t many = i < HONEST + 1 + FLOODS ? ORDER_POOL_CHECKS + 50 : SOME;
        for (uint32_t k = 0; k < many; k++)
            say_order(i, HONEST + 1 + k, 1000 * (uint64_t)i + k, false);
        most += many < ORDER_POOL_CHECKS ? many : ORDER_POOL_CHECKS;
        assert_in_range(crowd.told[i], 1, REFUSED_ORDERS_SAID);
    }
    assert_true(ident_checks() - checks <= most);
    assert_false(membership_pending(crowd.membership, &at, &pending));
    say_order(HONEST, 0, 7, true);
    at = 0;
    assert_true(membership_pending(crowd.membership, &at, &pending));
    assert_int_equal(pending.order->kind, ORDER_PAUSE);
    assert_int_equal(crowd.told[HONEST], 0);
    size_t after = taken_bytes();
    assert_true(after <= begun + 4096);
    assert_true(after <= before + MEMBERSHIP_BYTES);
    print_message("membership of %d members: %zu KiB, after the flood %zu KiB\n", MEMBERS, (begun - before) >> 10,
                  (after - before) >> 10);
    end();
}

int main(void)
{
    assert_ok(digest_init());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_within_its_budget_is_served_beside_a_thousand_at_their_limits),
        cmocka_unit_test(a_thousand_that_flood_cost_so_many_checks_and_lines_and_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
