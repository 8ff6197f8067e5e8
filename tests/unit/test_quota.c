/* SPDX-License-Identifier: Apache-2.0 */
/* quota: so many at once, and then one at a time. */
#include "tests/lib/testlib.h"

#include "common/quota.h"

static const struct quota_rule rule = {.every_ms = 100, .at_once = 5};

static unsigned taken(struct quota *quota, unsigned tries, uint64_t now_ms)
{
    unsigned count = 0;
    for (unsigned i = 0; i < tries; i++)
        count += quota_take(quota, rule, now_ms);
    return count;
}

static void so_many_at_once_and_then_one_at_a_time(void **state)
{
    (void)state;
    struct quota quota = {0};
    assert_int_equal(taken(&quota, 1000, 7000), 5);
    assert_int_equal(taken(&quota, 1000, 7099), 0);
    assert_int_equal(taken(&quota, 1000, 7100), 1);
    assert_int_equal(taken(&quota, 1000, 7350), 2);
    assert_int_equal(taken(&quota, 1000, 60000), 5); /* what was not used is not saved up */
}

static void who_keeps_to_it_is_never_refused(void **state)
{
    (void)state;
    struct quota quota = {0};
    for (uint64_t now_ms = 0; now_ms < 100000; now_ms += 100)
        assert_true(quota_take(&quota, rule, now_ms));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(so_many_at_once_and_then_one_at_a_time),
        cmocka_unit_test(who_keeps_to_it_is_never_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
