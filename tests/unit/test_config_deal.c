/* SPDX-License-Identifier: Apache-2.0 */
/* config_deal: to whom a configuration deals data, and from where on; another dealing than the rule's does not follow.
 */
#include "tests/lib/sample_configs.h"
#include "tests/lib/testlib.h"

#include "net/config/config_deal.h"

static struct config last, next;

/* Members of every role, each with as many units as its id is, and a start somewhere. */
static int begin(void **state)
{
    (void)state;
    last = configs_first(3, true);
    configs_add(&last, CONFIG_CONTRIBUTOR);
    configs_add(&last, CONFIG_OBSERVER);
    configs_add(&last, CONFIG_DRAINING)->draining = true;
    configs_add(&last, CONFIG_AWAY);
    for (uint32_t i = 0; i < last.members_count; i++)
        last.members[i].units = last.members[i].id;
    last.epoch = 3;
    last.deal = (struct config_deal){.horizon = 20, .counted_step = 90, .start = {60, 500}};
    next = configs_next(&last);
    return 0;
}

static int end(void **state)
{
    (void)state;
    config_deinit(&last);
    config_deinit(&next);
    return 0;
}

static void who_takes_part_is_dealt_to(void **state)
{
    (void)state;
    struct deal_share shares[DEAL_MEMBERS_MAX];
    struct deal_list list = config_deal_list(&last, shares);
    static const uint32_t ids[] = {1, 2, 4, 5}; /* member 0 has no units */
    assert_int_equal(list.count, 4);
    for (uint32_t i = 0; i < 4; i++)
        assert_true(shares[i].id == ids[i] && shares[i].units == ids[i]);
    assert_true(list.start.step == 60 && list.start.position == 500 && list.counted_step == 90);
    last.members[5].units = DEAL_UNITS_MAX;
    assert_int_equal(config_deal_list(&last, shares).shares[3].units, 2 * DEAL_MEDIANS);
}

static void a_list_stays_until_it_differs(void **state)
{
    (void)state;
    next.members[0].uplink++;
    next.members[7].units++; /* away */
    config_deal_next(&last, 95, &next);
    assert_true(next.deal.start.step == 60 && next.deal.start.position == 500);
    assert_true(next.deal.counted_step == 95 && next.deal.horizon == 20);
    assert_ok(config_deal_follows(&last, &next));
    next.members[0].units = 7;
    assert_fails(ERR_PROTO, "by the rule from step 116", config_deal_follows(&last, &next));
    config_deal_next(&last, 95, &next);
    assert_true(next.deal.start.step == 116 && next.deal.start.position == 500 + 56 * 12);
    assert_ok(config_deal_follows(&last, &next));
    next.members[5].role = CONFIG_AWAY;
    config_deal_next(&last, 90, &next);
    assert_int_equal(next.deal.start.step, 111);
    assert_ok(config_deal_follows(&last, &next));
}

static void another_dealing_than_by_the_rule_does_not_follow(void **state)
{
    (void)state;
    next.members[1].units = 9;
    config_deal_next(&last, 95, &next);
    assert_ok(config_deal_follows(&last, &next));
    const struct config_deal right = next.deal;
    next.deal.start.step--;
    assert_fails(ERR_PROTO, "deals data from step 115", config_deal_follows(&last, &next));
    next.deal = right;
    next.deal.start.position++;
    assert_fails(ERR_PROTO, "deals data from", config_deal_follows(&last, &next));
    next.deal = right;
    next.deal.horizon++;
    assert_fails(ERR_PROTO, "and the one before for 20", config_deal_follows(&last, &next));
    next.deal = right;
    config_deal_next(&last, 89, &next);
    assert_fails(ERR_PROTO, "and the one before for 20 beyond 90", config_deal_follows(&last, &next));
}

/* No result names a step beyond the greatest length that the run has had. */
static void nothing_is_counted_beyond_the_run(void **state)
{
    (void)state;
    config_deal_next(&last, 1000, &next);
    assert_ok(config_deal_follows(&last, &next));
    config_deal_next(&last, 1001, &next);
    assert_fails(ERR_PROTO, "a result of step 1001 were applied, in a run of 1000", config_deal_follows(&last, &next));
    last.steps_before = 1001; /* it was longer before */
    assert_ok(config_deal_follows(&last, &next));
}

static void what_makes_no_sense_is_refused(void **state)
{
    (void)state;
    assert_ok(config_deal_check(&last));
    last.deal.counted_step = CONFIG_NUMBER_MAX;
    assert_fails(ERR_PROTO, "deals data for 20 steps", config_deal_check(&last));
    last.deal.counted_step = 90;
    last.deal.horizon = (uint64_t)UINT32_MAX + 1;
    assert_fails(ERR_PROTO, "deals data for 4294967296 steps", config_deal_check(&last));
    last.deal.horizon = 20;
    last.members[4].units = DEAL_UNITS_MAX + 1;
    assert_fails(ERR_PROTO, "m4 draws 1048577 units", config_check(&last));
    struct config first = configs_first(1, false);
    first.deal.horizon = 20;
    assert_ok(config_deal_check(&first));
    first.deal.start.step = 1;
    assert_ok(config_deal_check(&first));
    first.deal.start.step = 2;
    assert_fails(ERR_PROTO, "configuration 0 deals data from step 2", config_deal_check(&first));
    config_deinit(&first);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(who_takes_part_is_dealt_to, begin, end),
        cmocka_unit_test_setup_teardown(a_list_stays_until_it_differs, begin, end),
        cmocka_unit_test_setup_teardown(another_dealing_than_by_the_rule_does_not_follow, begin, end),
        cmocka_unit_test_setup_teardown(nothing_is_counted_beyond_the_run, begin, end),
        cmocka_unit_test_setup_teardown(what_makes_no_sense_is_refused, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
