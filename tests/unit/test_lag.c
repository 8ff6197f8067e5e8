/* SPDX-License-Identifier: Apache-2.0 */
/* lag: the longest turn of a loop, lately and ever, and its longest step by name; the clock is the test's. */
#include "tests/lib/testlib.h"

#include "daemon/lag.h"

static const uint64_t ms = 1000000;
static struct lag lag;
static uint64_t now_ns;

static int begin(void **state)
{
    (void)state;
    lag = (struct lag){.turn_ns = 0};
    now_ns = 3 * (uint64_t)LAG_SPAN_MS * ms;
    return 0;
}

static uint64_t turn_of(uint64_t took_ms)
{
    lag_turn(&lag, now_ns);
    now_ns += took_ms * ms;
    return lag_end(&lag, now_ns);
}

static uint64_t lately(void)
{
    return lag_lately_ms(&lag, now_ns / ms);
}

static void the_longest_turn_counts_and_not_the_wait_before_it(void **state)
{
    (void)state;
    assert_int_equal(lately(), 0);
    assert_int_equal(turn_of(7), 7);
    now_ns += 400 * ms; /* it waits */
    assert_int_equal(turn_of(30), 30);
    assert_int_equal(turn_of(2), 2);
    assert_int_equal(lately(), 30);
    assert_int_equal(lag.most_ms, 30);
}

static void a_turn_is_told_for_a_minute_and_kept_as_the_longest_ever(void **state)
{
    (void)state;
    turn_of(900);
    turn_of(20);
    now_ns += 59 * 1000 * ms;
    turn_of(4);
    assert_int_equal(lately(), 900);
    now_ns += 6 * 1000 * ms; /* its span of five seconds ends, too */
    assert_int_equal(lately(), 4);
    turn_of(8);
    assert_int_equal(lately(), 8);
    now_ns += 1000 * 1000 * ms; /* nobody came round, and the ring holds what is long over */
    assert_int_equal(lately(), 0);
    assert_int_equal(lag.most_ms, 900);
}

static void the_longest_step_of_a_turn_is_named(void **state)
{
    (void)state;
    lag_turn(&lag, now_ns);
    assert_null(lag.slowest);
    lag_step(&lag, "one", now_ns += 3 * ms);
    lag_step(&lag, "two", now_ns += 9 * ms);
    lag_step(&lag, "three", now_ns += 8 * ms);
    assert_string_equal(lag.slowest, "two");
    assert_int_equal(lag.slowest_ns, 9 * ms);
    assert_int_equal(lag_end(&lag, now_ns), 20);
    lag_turn(&lag, now_ns += 50 * ms);
    lag_step(&lag, "four", now_ns += ms);
    assert_string_equal(lag.slowest, "four");
    assert_int_equal(lag.slowest_ns, ms);
}

static void what_can_wait_waits_when_a_turn_has_lasted_a_share(void **state)
{
    (void)state;
    lag_turn(&lag, now_ns);
    assert_false(lag_is_up(&lag, now_ns));
    assert_false(lag_is_up(&lag, now_ns + LAG_SHARE_MS * ms - 1));
    assert_true(lag_is_up(&lag, now_ns + LAG_SHARE_MS * ms));
    assert_in_range(LAG_SHARE_MS, 1, LAG_LONG_MS - 1);
    lag_turn(&lag, now_ns + LAG_SHARE_MS * ms);
    assert_false(lag_is_up(&lag, now_ns + LAG_SHARE_MS * ms));
}

#define CASE(name) cmocka_unit_test_setup(name, begin)

int main(void)
{
    const struct CMUnitTest cases[] = {
        CASE(the_longest_turn_counts_and_not_the_wait_before_it),
        CASE(a_turn_is_told_for_a_minute_and_kept_as_the_longest_ever),
        CASE(the_longest_step_of_a_turn_is_named),
        CASE(what_can_wait_waits_when_a_turn_has_lasted_a_share),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
