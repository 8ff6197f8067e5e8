/* SPDX-License-Identifier: Apache-2.0 */
/* dealing: this island knows the lists of its configurations, and how far its results are, in this order. */
#include "tests/lib/sample_configs.h"
#include "tests/lib/testlib.h"

#include "daemon/dealing.h"

static void add(struct config_log *config_log, struct config *config)
{
    struct digest digest = configs_digest(config);
    assert_ok(config_log_add(config_log, config, &digest));
}

static void the_lists_of_all_configurations_are_known(void **state)
{
    (void)state;
    struct config_log *config_log;
    struct dealing dealing = {.begun = false};
    struct config first = configs_first(3, false), next;
    assert_ok(config_log_new(&config_log));
    for (uint32_t i = 0; i < 3; i++)
        first.members[i].units = 2;
    first.deal.horizon = 20;
    first.deal.start.step = 1;
    assert_ok(config_copy(&first, &next));
    config_deinit(&next);
    next = configs_next(&first);
    add(config_log, &first);
    assert_ok(dealing_follow(&dealing, config_log, 1, 7));
    assert_true(dealing.deal.id == 1 && dealing.deal.count == 1 && dealing.deal.counted == 7);
    assert_int_equal(deal_place(&dealing.deal, 3, 1, 2).position, 2 * 6 + 2 + 1);
    next.members[0].units = 5;
    next.deal.counted_step = 10;
    next.deal.start = (struct deal_start){31, 180};
    add(config_log, &next);
    assert_ok(dealing_follow(&dealing, config_log, 1, 11));
    assert_true(dealing.deal.count == 2 && dealing.deal.counted == 11);
    assert_int_equal(deal_place(&dealing.deal, 30, 0, 2).position, 29 * 6 + 2);
    assert_int_equal(deal_place(&dealing.deal, 31, 0, 2).position, 180 + 5);
    assert_ok(dealing_follow(&dealing, config_log, 1, 3));
    assert_true(dealing.deal.count == 2 && dealing.deal.counted == 11);
    config_log_free(config_log);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_lists_of_all_configurations_are_known)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
