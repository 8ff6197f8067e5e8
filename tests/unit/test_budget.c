/* SPDX-License-Identifier: Apache-2.0 */
/* budget: so much of a kind at once and then so often; what gathered while we slept, and what was asked for, is free;
 * whoever goes on has its link closed, longer each time. */
#include "tests/lib/testlib.h"

#include <string.h>

#include "daemon/peers/budget.h"

enum { NOW_MS = 1000000, HOUR_MS = 3600000 };

static const struct budget_credit none;

static uint32_t taken(struct budget *budget, const struct budget_credit *credit, enum budget_kind kind, uint32_t tries,
                      uint64_t now_ms)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < tries; i++)
        count += budget_take(budget, credit, kind, 1, now_ms);
    return count;
}

static void so_much_at_once_and_then_so_often(void **state)
{
    (void)state;
    struct budget budget = {.closings = 0};
    assert_int_equal(taken(&budget, &none, BUDGET_HEARTBEATS, 5000, NOW_MS), 4000);
    assert_int_equal(taken(&budget, &none, BUDGET_HEARTBEATS, 5000, NOW_MS + 100), 100);
    assert_int_equal(taken(&budget, &none, BUDGET_GREETINGS, 5000, NOW_MS), 100); /* each kind has its own */
    assert_int_equal(budget_percent(&budget, BUDGET_GREETINGS), 100);
    assert_int_equal(budget_percent(&budget, BUDGET_FETCHES), 0);
    assert_int_equal(taken(&budget, &none, BUDGET_HEARTBEATS, 5000, NOW_MS + 100000), 4000); /* nothing is saved up */
}

static void what_is_spent_already_is_paid_for_by_what_comes_next(void **state)
{
    (void)state;
    struct budget budget = {.closings = 0};
    assert_true(budget_take(&budget, &none, BUDGET_FALSE, 0, NOW_MS));
    budget_spend(&budget, BUDGET_FALSE, 260, NOW_MS);
    assert_false(budget_take(&budget, &none, BUDGET_FALSE, 0, NOW_MS));
    assert_false(budget_take(&budget, &none, BUDGET_FALSE, 0, NOW_MS + 59000));
    assert_true(budget_take(&budget, &none, BUDGET_FALSE, 0, NOW_MS + 60000));
}

/* Two minutes of what an honest member says, all at once. */
static void what_gathered_while_we_slept_is_no_fault(void **state)
{
    (void)state;
    enum { SLEPT_MS = 120000, SAID = 60000 };
    struct budget budget = {.closings = 0};
    struct budget_credit credit = {.until_us = 0};
    budget_credit(&credit, SLEPT_MS, NOW_MS);
    assert_int_equal(taken(&budget, &credit, BUDGET_HEARTBEATS, SAID, NOW_MS), SAID);
    for (uint64_t ms = NOW_MS; ms < NOW_MS + 2 * SLEPT_MS; ms += 10) /* and it goes on as ever */
        assert_true(budget_take(&budget, &credit, BUDGET_HEARTBEATS, 1, ms));
    assert_int_equal(taken(&budget, &credit, BUDGET_HEARTBEATS, SAID, NOW_MS + HOUR_MS), 4000);
}

static void answers_to_what_it_was_asked_are_free(void **state)
{
    (void)state;
    struct budget budget = {.closings = 0};
    for (int i = 0; i < 1000; i++) {
        budget_earn(&budget, BUDGET_ANSWERS, 100);
        assert_int_equal(taken(&budget, &none, BUDGET_ANSWERS, 100, NOW_MS), 100);
    }
    assert_int_equal(taken(&budget, &none, BUDGET_ANSWERS, 10000, NOW_MS), 4000);
    budget_earn(&budget, BUDGET_ANSWERS, 1000000); /* nor is more remembered than may come at once */
    assert_int_equal(taken(&budget, &none, BUDGET_ANSWERS, 10000, NOW_MS), 4000);
}

/* Sends one a time until it is closed: after how many milliseconds; 0: it is not, in a minute. */
static uint64_t floods(struct budget *budget, enum budget_kind kind, uint32_t count, uint32_t per_s, uint64_t from_ms)
{
    for (uint64_t k = 0; k < (uint64_t)60 * per_s; k++) {
        uint64_t now_ms = from_ms + 1000 * k / per_s;
        if (!budget_take(budget, &none, kind, count, now_ms) && budget_is_exceeded(budget, &none, now_ms))
            return now_ms - from_ms;
    }
    return 0;
}

static void a_flood_of_whatever_kind_is_closed_within_seconds(void **state)
{
    (void)state;
    for (unsigned kind = 0; kind < BUDGET_KINDS; kind++) {
        uint32_t count = kind == BUDGET_CHUNKS ? BUDGET_CHUNK : kind == BUDGET_EPOCH_KIB ? 64 : 1;
        struct budget budget = {.closings = 0};
        uint64_t ms = floods(&budget, (enum budget_kind)kind, count, 3000, NOW_MS);
        print_message("3000 %s a second: closed after %llu ms\n", budget_name((enum budget_kind)kind),
                      (unsigned long long)ms);
        assert_in_range(ms, 1, 6000);
    }
}

/* As fast as its sender may say it by itself (docs/PROTOCOL.md). */
static void the_busiest_that_can_be_is_not_closed(void **state)
{
    (void)state;
    static const struct {
        enum budget_kind kind;
        uint32_t per_s;
    } honest[] = {{BUDGET_GREETINGS, 2}, {BUDGET_HEARTBEATS, 333}, {BUDGET_QUESTIONS, 4}, {BUDGET_ORDERS, 22},
                  {BUDGET_EPOCH, 65},    {BUDGET_FETCHES, 100},    {BUDGET_ANSWERS, 100}};
    for (size_t i = 0; i < sizeof honest / sizeof honest[0]; i++) {
        struct budget budget = {.closings = 0};
        assert_int_equal(floods(&budget, honest[i].kind, 1, honest[i].per_s, NOW_MS), 0);
        assert_int_equal(budget.dropped[honest[i].kind], 0);
    }
}

static void a_link_is_closed_for_longer_each_time(void **state)
{
    (void)state;
    struct budget budget = {.closings = 0};
    uint64_t now_ms = NOW_MS, for_ms = 0;
    assert_string_equal(budget_text(&budget, now_ms), "");
    for (uint64_t want_ms = 30000; want_ms <= 30000 << 7; want_ms *= 2) {
        now_ms += floods(&budget, BUDGET_UNUSABLE, 1, 3000, now_ms);
        for_ms = budget_close(&budget, now_ms);
        assert_int_equal(for_ms, want_ms);
        now_ms += for_ms;
        assert_false(budget_is_exceeded(&budget, &none, now_ms)); /* it begins anew */
        assert_true(budget_take(&budget, &none, BUDGET_UNUSABLE, 1, now_ms));
    }
    assert_non_null(strstr(budget_text(&budget, now_ms), "more messages that nobody can use than anybody needs"));
    assert_int_equal(budget_close(&budget, now_ms), for_ms); /* no longer than that */
    now_ms += for_ms + HOUR_MS;
    assert_string_equal(budget_text(&budget, now_ms), "");
    assert_int_equal(budget_close(&budget, now_ms), 30000);
}

/* What was dropped most counts, as it weighs. */
static void the_worst_of_it_is_named(void **state)
{
    (void)state;
    struct budget budget = {.closings = 0};
    (void)taken(&budget, &none, BUDGET_FETCHES, 4100, NOW_MS);
    (void)taken(&budget, &none, BUDGET_SESSIONS, 50, NOW_MS);
    (void)budget_close(&budget, NOW_MS);
    assert_string_equal(budget_text(&budget, NOW_MS),
                        "it sends more greetings of new sessions than anybody needs, 20 too many of late: its link is "
                        "closed for 30 s");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(so_much_at_once_and_then_so_often),
        cmocka_unit_test(what_is_spent_already_is_paid_for_by_what_comes_next),
        cmocka_unit_test(what_gathered_while_we_slept_is_no_fault),
        cmocka_unit_test(answers_to_what_it_was_asked_are_free),
        cmocka_unit_test(a_flood_of_whatever_kind_is_closed_within_seconds),
        cmocka_unit_test(the_busiest_that_can_be_is_not_closed),
        cmocka_unit_test(a_link_is_closed_for_longer_each_time),
        cmocka_unit_test(the_worst_of_it_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
