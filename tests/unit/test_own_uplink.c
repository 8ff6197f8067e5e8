/* SPDX-License-Identifier: Apache-2.0 */
/* own_uplink: the uplink that an island states, of which its share of the shards follows. */
#include "tests/lib/testlib.h"

#include <string.h>

#include "daemon/peers/own_uplink.h"

#define MBIT UINT64_C(1000000)
static const uint64_t gbit = 1000 * MBIT;

/* Minutes with transfers of which the fastest is measured at `fastest`, and the others slower. How often another uplink
 * was stated. */
static uint32_t carries(struct own_uplink *uplink, uint64_t *now_ms, uint32_t minutes, uint64_t fastest)
{
    uint32_t changes = 0;
    for (uint64_t end_ms = *now_ms + minutes * UINT64_C(60000); *now_ms < end_ms; *now_ms += 1000)
        changes += own_uplink_look(uplink, fastest - *now_ms / 1000 % 7 * (fastest / 10), *now_ms);
    return changes;
}

static void what_is_configured_counts_until_it_is_known_to_be_wrong(void **state)
{
    (void)state;
    uint64_t now_ms = 1000;
    char text[300];
    struct own_uplink uplink = own_uplink_init(gbit, now_ms);
    assert_int_equal(carries(&uplink, &now_ms, 9, 2 * MBIT), 0);
    assert_true(uplink.stated == gbit);
    assert_false(own_uplink_tell(&uplink, text, sizeof text));
    assert_int_equal(carries(&uplink, &now_ms, 2, 2 * MBIT), 1);
    assert_true(uplink.stated == 4 * MBIT);
    assert_true(own_uplink_tell(&uplink, text, sizeof text));
    assert_non_null(strstr(text, "uplink says 1.00 Gbit/s, and no more than 4.00 Mbit/s got through"));
    assert_int_equal(carries(&uplink, &now_ms, 600, 2 * MBIT), 0);
}

/* From a quarter of what is stated up to all of it nothing changes, so that is all that is said. */
static void what_is_told_is_so_whatever_the_line_carries(void **state)
{
    (void)state;
    uint64_t now_ms = 1000;
    char text[300];
    struct own_uplink uplink = own_uplink_init(gbit, now_ms);
    assert_int_equal(carries(&uplink, &now_ms, 11, 2 * MBIT), 1);
    for (uint64_t fastest = MBIT; fastest <= 12 * MBIT; fastest += MBIT / 2) {
        (void)carries(&uplink, &now_ms, 11, fastest);
        assert_true(own_uplink_tell(&uplink, text, sizeof text));
        assert_null(strstr(text, "half"));
        assert_true(uplink.stated >= fastest);
    }
}

/* It was seldom all that the line can carry: a quarter is no reason for anything. */
static void a_line_that_carries_a_quarter_is_believed(void **state)
{
    (void)state;
    uint64_t now_ms = 1000;
    struct own_uplink uplink = own_uplink_init(100 * MBIT, now_ms);
    assert_int_equal(carries(&uplink, &now_ms, 600, 25 * MBIT), 0);
    assert_int_equal(carries(&uplink, &now_ms, 600, 300 * MBIT), 0);
    assert_true(uplink.stated == 100 * MBIT);
}

/* One receiver is slow, or there is little to send: the fastest of some minutes counts. */
static void a_slow_hour_is_not_needed_to_be_forgotten(void **state)
{
    (void)state;
    uint64_t now_ms = 1000;
    struct own_uplink uplink = own_uplink_init(gbit, now_ms);
    for (int i = 0; i < 30; i++) {
        assert_int_equal(carries(&uplink, &now_ms, 4, MBIT), 0);
        assert_int_equal(carries(&uplink, &now_ms, 1, 500 * MBIT), 0);
    }
    assert_int_equal(carries(&uplink, &now_ms, 15, MBIT), 1); /* the line is another one */
    assert_true(uplink.stated == 2 * MBIT);
    char text[300];
    assert_true(own_uplink_tell(&uplink, text, sizeof text));
    assert_int_equal(carries(&uplink, &now_ms, 6, 100 * MBIT), 1);
    assert_false(own_uplink_tell(&uplink, text, sizeof text)); /* others may have been slow */
    assert_in_range(uplink.stated, 100 * MBIT, 200 * MBIT);
    assert_int_equal(carries(&uplink, &now_ms, 11, 600 * MBIT), 1);
    assert_true(uplink.stated == gbit); /* no more than is configured */
}

/* What was measured once and has not changed is no measure. */
static void who_sends_little_is_believed(void **state)
{
    (void)state;
    uint64_t now_ms = 1000;
    struct own_uplink uplink = own_uplink_init(gbit, now_ms);
    for (int i = 0; i < 3600; i++, now_ms += 10000)
        assert_false(own_uplink_look(&uplink, i < 60 ? MBIT + (uint64_t)i : MBIT, now_ms));
    for (int i = 0; i < 3600; i++, now_ms += 10000)
        assert_false(own_uplink_look(&uplink, 0, now_ms));
    assert_true(uplink.stated == gbit);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_configured_counts_until_it_is_known_to_be_wrong),
        cmocka_unit_test(what_is_told_is_so_whatever_the_line_carries),
        cmocka_unit_test(a_line_that_carries_a_quarter_is_believed),
        cmocka_unit_test(a_slow_hour_is_not_needed_to_be_forgotten),
        cmocka_unit_test(who_sends_little_is_believed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
