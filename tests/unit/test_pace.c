/* SPDX-License-Identifier: Apache-2.0 */
/* pace: how fast islands train, whose pace is the measure, and how far a single one is believed to be by that. */
#include "tests/lib/testlib.h"

#include "daemon/peers/pace.h"

static void a_pace_is_that_of_the_last_window(void **state)
{
    (void)state;
    struct pace pace = {0};
    pace_note(&pace, 5, 1000);
    assert_true(pace_now(&pace, 1000) == 0); /* what it took before it was heard says nothing */
    pace_note(&pace, 7, 1900);
    assert_true(pace_now(&pace, 1900) == 0);
    pace_note(&pace, 8, 2500);
    assert_true(pace_now(&pace, 2500) == 3 / 1500.0);
    pace_note(&pace, 25, 11000);
    assert_true(pace_now(&pace, 11000) == 20 / 10000.0);
    pace_note(&pace, 925, 11100);
    assert_true(pace_now(&pace, 11100) == 20 / 10000.0);
    pace_note(&pace, 925, 21000);
    assert_true(pace_now(&pace, 21000) == 900 / 10000.0);
}

static void who_takes_no_step_slows_down(void **state)
{
    (void)state;
    struct pace pace = {0};
    pace_note(&pace, 1, 1000);
    pace_note(&pace, 2, 61000); /* a step a minute */
    assert_true(pace_now(&pace, 61000) == 1 / 60000.0);
    assert_true(pace_now(&pace, 121000) == 1 / 60000.0); /* the next one is under way */
    assert_true(pace_now(&pace, 181000) == 1 / 120000.0);
    assert_true(pace_now(&pace, 300999) > 0);
    assert_true(pace_now(&pace, 301000) == PACE_STILL);
    pace_note(&pace, 3, 181000);
    assert_true(pace_now(&pace, 181000) == 1 / 120000.0);
    pace_note(&pace, 0, 182000); /* another trainer */
    assert_true(pace_now(&pace, 182000) == 0);
    assert_true(pace_now(&pace, 192000) == 0);
}

/* Its daemon has started again, and says nothing of its steps before the first report: then all of them. */
static void what_a_trainer_took_before_its_daemon_began_says_nothing(void **state)
{
    (void)state;
    struct pace pace = {0};
    for (uint64_t i = 0; i <= 20; i++)
        pace_note(&pace, 25000 + 10 * i, 1000 + 1000 * i);
    assert_true(pace_now(&pace, 21000) == 10 / 1000.0);
    for (uint64_t i = 0; i < 12; i++)
        pace_note(&pace, 0, 22000 + 1000 * i);
    for (uint64_t i = 0; i <= 20; i++) {
        pace_note(&pace, 25400 + 10 * i, 34000 + 1000 * i);
        assert_true(pace_now(&pace, 34000 + 1000 * i) == (i == 0 ? 0 : 10 / 1000.0));
    }
}

/* A quick one is seen to stand still after a while; reports come now and then only. */
static void who_hangs_has_no_pace(void **state)
{
    (void)state;
    struct pace pace = {0};
    for (uint64_t i = 0; i <= 20; i++)
        pace_note(&pace, 100 * (1 + i), 1000 + 1000 * i);
    assert_true(pace_now(&pace, 21000) == 0.1);
    pace_note(&pace, 2100, 40999);
    assert_true(pace_now(&pace, 40999) > 0);
    pace_note(&pace, 2100, 41000);
    assert_true(pace_now(&pace, 41000) == PACE_STILL);
    pace_note(&pace, 2200, 42000); /* it goes on */
    assert_true(pace_now(&pace, 42000) > 0);
}

static void most_owners_are_the_measure_and_no_number_of_others(void **state)
{
    (void)state;
    assert_true(pace_usual(NULL, 0) == 0);
    assert_true(pace_usual((struct pace_said[]){{3, false}}, 1) == 3);
    assert_true(pace_usual((struct pace_said[]){{9, false}, {3, true}}, 2) == 3); /* one owner alone: of all */
    assert_true(pace_usual((struct pace_said[]){{9, true}, {3, true}}, 2) == 3);
    assert_true(pace_usual((struct pace_said[]){{9, true}, {9, false}, {9, false}, {9, false}, {3, true}}, 5) == 3);
    assert_true(pace_usual((struct pace_said[]){{5, true}, {1e9, true}, {4, true}}, 3) == 5);
    assert_true(pace_usual((struct pace_said[]){{5, true}, {1e9, true}, {4, true}, {1e9, true}}, 4) == 5);
    /* One that stands still is no measure; nor does it make one of those who are no owners. */
    assert_true(pace_usual((struct pace_said[]){{PACE_STILL, true}, {3, true}, {9, false}, {9, false}}, 4) == 3);
    assert_true(pace_usual((struct pace_said[]){{PACE_STILL, true}, {PACE_STILL, true}, {9, false}}, 3) == 0);
    assert_true(pace_usual((struct pace_said[]){{PACE_STILL, true}, {5, true}, {4, true}, {1e9, true}}, 4) == 5);
    assert_true(pace_usual((struct pace_said[]){{PACE_STILL, true}, {9, false}, {3, false}, {8, false}}, 4) == 8);
    assert_true(pace_usual((struct pace_said[]){{0, true}, {1e9, true}}, 2) == 0); /* it is not known yet */
}

static void the_line_rises_by_the_pace_between_what_is_sure_and_what_can_be(void **state)
{
    (void)state;
    struct step_line line = {0};
    assert_int_equal(step_line_move(&line, 100, 250, 0.5, 1000), 100); /* at first nothing beyond what is sure */
    assert_int_equal(step_line_move(&line, 100, 250, 0.5, 1100), 150);
    assert_int_equal(step_line_move(&line, 160, 310, 0.5, 1101), 160);
    assert_int_equal(step_line_move(&line, 160, 310, 0.001, 2101), 161);
    assert_int_equal(step_line_move(&line, 160, 310, 0.5, 9000), 310);
    assert_int_equal(step_line_move(&line, 160, 310, 0, 99000), 310);
    assert_int_equal(step_line_move(&line, 20, 170, 0, 99001), 170); /* who was ahead is away */
}

/* Whatever is said at once, and is sure to others who heard of it by that: no faster than the pace. */
static void two_that_follow_one_another_go_no_faster(void **state)
{
    (void)state;
    struct step_line one = {0}, other = {0};
    uint64_t sure = 0;
    for (uint64_t ms = 1000; ms <= 101000; ms += 500) {
        uint64_t led = step_line_move(&one, sure, sure + 300, 0.04, ms);
        uint64_t followed = step_line_move(&other, led, led + 300, 0.04, ms);
        sure = followed > sure ? followed : sure;
    }
    assert_in_range(sure, 3990, 4001);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_pace_is_that_of_the_last_window),
        cmocka_unit_test(who_takes_no_step_slows_down),
        cmocka_unit_test(what_a_trainer_took_before_its_daemon_began_says_nothing),
        cmocka_unit_test(who_hangs_has_no_pace),
        cmocka_unit_test(most_owners_are_the_measure_and_no_number_of_others),
        cmocka_unit_test(the_line_rises_by_the_pace_between_what_is_sure_and_what_can_be),
        cmocka_unit_test(two_that_follow_one_another_go_no_faster),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
