/* SPDX-License-Identifier: Apache-2.0 */
/* devices: what people write as a list of devices, and what is none. */
#include "tests/lib/testlib.h"

#include "common/devices.h"

static int number[DEVICES_MAX], count;

static void numbers_and_stretches_are_read_in_their_order(void **state)
{
    (void)state;
    static const int want[] = {0, 1, 2, 3, 6};
    assert_ok(devices_parse("--devices", "0-3,6", number, &count));
    assert_int_equal(count, 5);
    assert_memory_equal(number, want, sizeof want);
    assert_ok(devices_parse("--devices", "7", number, &count));
    assert_true(count == 1 && number[0] == 7);
    assert_ok(devices_parse("--devices", "5,2-2", number, &count));
    assert_true(count == 2 && number[0] == 5 && number[1] == 2);
    assert_ok(devices_parse("--devices", "1-64", number, &count));
    assert_true(count == 64 && number[63] == 64);
}

static void what_is_no_list_is_refused_with_the_place_it_stands_at(void **state)
{
    (void)state;
    static const char *const wrong[] = {"x",     "0-x", "0-",   "-1",          "0,,1",         "0,",
                                        ",0",    "3-1", "0 1",  " 0",          "0, 1",         "0.5",
                                        "0-1-2", "+1",  "0-+2", "99999999999", "0-99999999999"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_int_equal(devices_parse("--devices", wrong[i], number, &count), ERR_ARG);
    assert_fails(ERR_ARG, "here: 0-x: expected numbers and stretches of them, as in 0-3,6",
                 devices_parse("here:", "0-x", number, &count));
    assert_fails(ERR_ARG, "--devices 0-2,1: device 1 is there twice",
                 devices_parse("--devices", "0-2,1", number, &count));
    assert_fails(ERR_ARG, "more than 64 devices", devices_parse("--devices", "0-64", number, &count));
    assert_fails(ERR_ARG, "more than 64 devices", devices_parse("--devices", "0-999999999", number, &count));
    assert_fails(ERR_ARG, "--devices is empty", devices_parse("--devices", "", number, &count));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_and_stretches_are_read_in_their_order),
        cmocka_unit_test(what_is_no_list_is_refused_with_the_place_it_stands_at),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
