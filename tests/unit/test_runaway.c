/* SPDX-License-Identifier: Apache-2.0 */
/* runaway: an anchor that grows without bound is told at once, one that trains never. */
#include "tests/lib/testlib.h"

#include <math.h>

#include "outer_opt/runaway.h"

/* Versions until it is told, from version 1 on; 0: not within 1,000. */
static uint64_t told_after(double first, double growth, uint64_t grows_from)
{
    struct runaway runaway = {0};
    double norm = first;
    for (uint64_t version = 1; version <= 1000; version++) {
        norm *= version > grows_from ? growth : 1;
        if (runaway_note(&runaway, version, norm) > 0)
            return version - grows_from;
    }
    return 0;
}

static void growth_without_bound_is_told(void **state)
{
    (void)state;
    assert_int_equal(told_after(1, 3, 50), 1);
    assert_int_equal(told_after(1e-20, 2.01, 500), 1);
    assert_in_range(told_after(1, 1.5, 50), 1, 5);
    assert_in_range(told_after(1, 1.2, 100), 1, 9);
    assert_in_range(told_after(1, 1.1, 100), 1, 17);
    struct runaway runaway = {0};
    assert_true(runaway_note(&runaway, 1, 1) == 0);
    assert_true(runaway_note(&runaway, 2, INFINITY) == runaway_most);
    assert_true(runaway_note(&runaway, 3, NAN) == runaway_most);
    assert_true(runaway_note(&runaway, 4, 1) == 0);
}

static void training_is_not(void **state)
{
    (void)state;
    assert_int_equal(told_after(1, 1.05, 0), 0);
    assert_int_equal(told_after(1, 0.5, 100), 0);
    assert_int_equal(told_after(0, 1, 0), 0);
    /* From nothing, or from small values, in proportion to the versions, to their square. */
    for (int power = 1; power <= 2; power++) {
        struct runaway runaway = {0};
        for (uint64_t version = 0; version <= 500; version++)
            assert_true(runaway_note(&runaway, version, 1e-3 + pow((double)version, power)) == 0);
    }
}

static void it_stays_told_until_the_anchor_is_back(void **state)
{
    (void)state;
    struct runaway runaway = {0};
    uint64_t version = 0;
    while (version < 40)
        assert_true(runaway_note(&runaway, ++version, 5) == 0);
    assert_true(runaway_note(&runaway, ++version, 50) == 10);
    while (version < 100)
        assert_true(runaway_note(&runaway, ++version, 60) == 12);
    assert_true(runaway_note(&runaway, ++version, 9) == 0);
    assert_true(runaway_note(&runaway, ++version, 9) == 0);
    /* Another state takes its place: of that nothing is known. */
    assert_true(runaway_note(&runaway, version + 2, 500) == 0);
    assert_true(runaway_note(&runaway, version + 3, 500) == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(growth_without_bound_is_told),
        cmocka_unit_test(training_is_not),
        cmocka_unit_test(it_stays_told_until_the_anchor_is_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
