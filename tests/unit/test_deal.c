/* SPDX-License-Identifier: Apache-2.0 */
/* deal: where lists start, how far one draws by them, and that units, positions and reserves are each one's own. What
 * becomes of that among islands that come and go tests/sim/test_dealing shows. */
#include "tests/lib/testlib.h"

#include <string.h>

#include "common/deal.h"

enum { HORIZON = 20 };

static const struct deal_share three[] = {{2, 3}, {5, 1}, {9, 4}}, two[] = {{2, 3}, {9, 4}};

static struct deal deal_with(uint32_t id, const struct deal_list *lists, uint32_t count)
{
    struct deal deal = deal_of(id, HORIZON);
    for (uint32_t i = 0; i < count; i++)
        assert_ok(deal_add(&deal, &lists[i]));
    return deal;
}

static void a_list_starts_beyond_all_that_anybody_draws(void **state)
{
    (void)state;
    struct deal_list list = {.start = {1, 0}, .shares = three, .count = 3};
    struct deal_start next = deal_start_next(&list, 100, HORIZON);
    assert_int_equal(next.step, 121);
    assert_int_equal(next.position, 120 * 8);
    list.start = next;
    next = deal_start_next(&list, 90, HORIZON); /* before that */
    assert_int_equal(next.step, 121);
    assert_int_equal(next.position, 120 * 8);
    list.shares = two;
    list.count = 2;
    next = deal_start_next(&list, 110, HORIZON);
    assert_int_equal(next.step, 131);
    assert_int_equal(next.position, 120 * 8 + 10 * 7);
    list.count = 0; /* nobody draws */
    assert_int_equal(deal_start_next(&list, 300, HORIZON).position, 120 * 8);
}

static void units_are_limited(void **state)
{
    (void)state;
    struct deal_share shares[] = {{0, 0}, {1, 4}, {2, UINT32_MAX}, {3, 2}, {4, 0}};
    deal_limit(shares, 5);
    assert_int_equal(shares[2].units, 4 * DEAL_MEDIANS);
    assert_int_equal(shares[1].units, 4);
    assert_int_equal(shares[0].units, 0);
    assert_int_equal(deal_units(shares, 5), 4 * DEAL_MEDIANS + 6);
    struct deal_share alone[] = {{7, UINT32_MAX}};
    deal_limit(alone, 1);
    assert_int_equal(alone[0].units, DEAL_UNITS_MAX);
    deal_limit(alone, 0);
    assert_true(deal_same(three, 3, three, 3));
    assert_false(deal_same(three, 3, two, 2));
    assert_false(deal_same(three, 2, two, 2));
}

static bool two_are_enough(void *user, const struct deal_claim *claims, uint32_t count)
{
    (void)user;
    (void)claims;
    return count >= 2;
}

static void a_claim_that_others_would_share_counts_for_nothing(void **state)
{
    (void)state;
    struct deal_claim claims[] = {{1000000, 4}, {90, 1}, {100, 2}};
    deal_sort(claims, 3);
    assert_int_equal(claims[2].id, 4);
    assert_int_equal(deal_counted_step(0, claims, 3, two_are_enough, NULL), 100);
    assert_int_equal(deal_counted_step(200, claims, 3, two_are_enough, NULL), 200);       /* it never falls */
    assert_int_equal(deal_counted_step(0, claims + 1, 2, two_are_enough, NULL), 1000000); /* it may be so */
    assert_int_equal(deal_counted_step(0, claims, 1, two_are_enough, NULL), 90);
    deal_sort(claims, 0);
    assert_int_equal(deal_counted_step(7, claims, 0, two_are_enough, NULL), 7);
}

/* Steps and positions of lists that follow each other: every position is one unit of one member at one step. */
static void a_position_is_one_units(void **state)
{
    (void)state;
    const struct deal_list lists[] = {{{1, 0}, 0, three, 3}, {{31, 240}, 10, two, 2}, {{51, 380}, 30, three, 3}};
    uint8_t seen[1000] = {0};
    for (uint32_t id = 0; id < 12; id++) {
        struct deal deal = deal_with(id, lists, 3);
        assert_int_equal(deal_last_step(&deal), 50);
        deal_counted(&deal, 40);
        deal_counted(&deal, 20);
        assert_int_equal(deal_last_step(&deal), 60);
        for (uint64_t step = 1; step <= 60; step++)
            for (uint32_t unit = 0; unit < 5; unit++) {
                struct deal_place place = deal_place(&deal, step, unit, 5);
                if (place.dealt)
                    assert_int_equal(seen[place.position]++, 0);
            }
    }
    for (uint32_t i = 0; i < sizeof seen; i++)
        assert_int_equal(seen[i], i < 380 + 10 * 8);
}

static void beyond_the_horizon_one_draws_from_a_reserve(void **state)
{
    (void)state;
    const struct deal_list lists[] = {{{11, 80}, 5, three, 3}, {{31, 240}, 10, two, 2}};
    struct deal deal = deal_with(9, lists, 2), other = deal_with(5, lists, 2);
    assert_true(deal_place(&deal, 30, 0, 4).dealt);
    assert_int_equal(deal_place(&deal, 30, 2, 4).position, 80 + 19 * 8 + 6);
    assert_false(deal_place(&deal, 31, 0, 4).dealt); /* 10 + 20 */
    deal_counted(&deal, 11);
    assert_true(deal_place(&deal, 31, 0, 4).dealt);
    assert_false(deal_place(&deal, 32, 0, 4).dealt);
    assert_false(deal_place(&deal, 10, 0, 4).dealt); /* before the first list that is known */
    assert_int_equal(deal_place(&deal, 10, 0, 4).position, 80);
    assert_int_equal(deal_place(&deal, 10, 0, 4).id, 9);
    deal_counted(&other, 11);
    assert_false(deal_place(&other, 31, 0, 1).dealt); /* not in that list */
    assert_true(deal_place(&other, 30, 0, 1).dealt);
    assert_false(deal_place(&other, 30, 1, 2).dealt); /* more than is dealt to it */
    assert_int_equal(deal_place(&other, 30, 1, 2).turn, 61);
    deal = deal_with(0, NULL, 0);
    assert_false(deal_place(&deal, 1, 0, 1).dealt);
}

static void a_list_that_never_is_in_force_gives_way(void **state)
{
    (void)state;
    const struct deal_list lists[] = {
        {{1, 0}, 0, three, 3}, {{31, 240}, 10, two, 2}, {{31, 240}, 10, two, 2}, {{31, 240}, 8, three, 3}};
    struct deal five = deal_with(5, lists, 4), nine = deal_with(9, lists, 4);
    assert_int_equal(five.count, 2);
    deal_counted(&five, 30);
    deal_counted(&nine, 30);
    assert_true(deal_place(&five, 31, 0, 1).dealt);
    assert_int_equal(deal_place(&nine, 32, 0, 1).position, 240 + 8 + 4);
    assert_true(deal_place(&five, 30, 0, 1).dealt);
}

static void the_oldest_of_many_is_forgotten(void **state)
{
    (void)state;
    struct deal deal = deal_of(9, HORIZON);
    for (uint32_t k = 0; k < DEAL_LISTS + 2; k++) {
        struct deal_list list = {{1 + 10 * k, 80 * k}, 0, three, 3};
        assert_ok(deal_add(&deal, &list));
    }
    deal_counted(&deal, 1000);
    assert_false(deal_place(&deal, 20, 0, 1).dealt);
    assert_int_equal(deal_place(&deal, 20, 0, 1).position, 160);
    assert_true(deal_place(&deal, 21, 0, 1).dealt);
}

static void what_makes_no_list_is_refused(void **state)
{
    (void)state;
    static const struct deal_share unordered[] = {{5, 1}, {5, 1}};
    const struct deal_list first = {{31, 0}, 0, three, 3}, early = {{30, 0}, 0, two, 2},
                           odd = {{41, 0}, 0, unordered, 2}, many = {{41, 0}, 0, three, DEAL_MEMBERS_MAX + 1};
    struct deal deal = deal_with(2, &first, 1);
    assert_fails(ERR_ARG, "starts before", deal_add(&deal, &early));
    assert_fails(ERR_ARG, "not in order", deal_add(&deal, &odd));
    assert_fails(ERR_ARG, "1025 members", deal_add(&deal, &many));
    assert_int_equal(deal.count, 1); /* as it was */
}

/* Of a pass every window is somebody's at most, whatever ids there are. */
static void a_window_is_one_positions_or_one_ids(void **state)
{
    (void)state;
    enum { WINDOWS = 64 << 10, DEALT = WINDOWS - WINDOWS / DEAL_RESERVE };
    static uint16_t owner[WINDOWS];
    for (uint64_t position = 0; position < DEALT; position++) {
        struct deal_window window = deal_window(&(struct deal_place){.dealt = true, .position = position}, WINDOWS);
        assert_int_equal(window.pass, 0);
        assert_int_equal(owner[window.index], 0);
        owner[window.index] = UINT16_MAX;
    }
    assert_int_equal(deal_window(&(struct deal_place){.dealt = true, .position = DEALT}, WINDOWS).pass, 1);
    for (uint32_t id = 0; id < 240; id++) {
        uint32_t own = 0;
        for (uint64_t turn = 0; turn < 200; turn++) {
            struct deal_place place = {.position = 5 * (uint64_t)DEALT + 7, .turn = turn, .id = id};
            struct deal_window window = deal_window(&place, WINDOWS);
            assert_int_equal(window.pass, 5);
            assert_true(owner[window.index] == 0 || owner[window.index] == id + 1);
            own += owner[window.index] == 0;
            owner[window.index] = (uint16_t)(id + 1);
            assert_false(window.shared);
        }
        assert_int_equal(own, id < 8 ? 200 : id < 24 ? 64 : id < 56 ? 16 : id < 120 ? 4 : 1); /* of 200 turns */
    }
}

/* Draws `steps` of them from `first` on, all of one's own: each in one's own piece, none twice. */
static void draw_own(const struct deal *deal, uint64_t first, uint64_t steps)
{
    enum { WINDOWS = 8 << 10, UNITS = 7, PASSES = 64 };
    static uint8_t seen[PASSES][WINDOWS];
    memset(seen, 0, sizeof seen);
    for (uint64_t step = first; step < first + steps; step++)
        for (uint32_t unit = 0; unit < UNITS; unit++) {
            struct deal_place place = deal_place(deal, step, unit, UNITS);
            assert_false(place.dealt);
            struct deal_window window = deal_window(&place, WINDOWS), first_turn;
            first_turn = deal_window(&(struct deal_place){.id = place.id}, WINDOWS);
            assert_true(window.index >= WINDOWS - WINDOWS / DEAL_RESERVE && window.pass < PASSES);
            assert_int_equal(window.index / 8, first_turn.index / 8); /* the piece of id 9 is of 8 windows */
            assert_int_equal(seen[window.pass][window.index]++, 0);
        }
}

/* Whoever has been through its piece of a pass goes on with that of the next. */
static void of_ones_own_none_is_drawn_again_and_again(void **state)
{
    (void)state;
    const struct deal_list lists[] = {{{31, 0}, 0, three, 3}, {{61, 0}, 40, two, 2}}, none = {{31, 0}, 100, three, 1};
    struct deal deal = deal_with(9, lists, 2);
    draw_own(&deal, 11, 20); /* its list is still to begin */
    assert_int_equal(deal_place(&deal, 12, 0, 7).since, 2 * 7);
    draw_own(&deal, 61, 40); /* far ahead */
    assert_int_equal(deal_place(&deal, 61, 3, 7).since, 3);
    deal = deal_with(9, &none, 1); /* not in the list */
    draw_own(&deal, 31, 40);
    deal = deal_with(9, NULL, 0);
    draw_own(&deal, 1, 20);
}

static void of_a_short_pass_none_is_missed(void **state)
{
    (void)state;
    for (uint64_t windows = 1; windows < 100; windows++)
        for (uint32_t id = 0; id < 70; id += 3)
            for (uint64_t turn = 0; turn < 20; turn++) {
                struct deal_place place = {.position = turn, .turn = turn, .id = id};
                struct deal_window window = deal_window(&place, windows);
                assert_true(window.index < windows);
                assert_true(window.shared || window.index >= windows - windows / DEAL_RESERVE);
            }
    assert_true(deal_window(&(struct deal_place){.id = 24}, 1 << 10).shared);
    assert_false(deal_window(&(struct deal_place){.id = 23}, 1 << 10).shared);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_list_starts_beyond_all_that_anybody_draws),
        cmocka_unit_test(units_are_limited),
        cmocka_unit_test(a_claim_that_others_would_share_counts_for_nothing),
        cmocka_unit_test(a_position_is_one_units),
        cmocka_unit_test(beyond_the_horizon_one_draws_from_a_reserve),
        cmocka_unit_test(a_list_that_never_is_in_force_gives_way),
        cmocka_unit_test(the_oldest_of_many_is_forgotten),
        cmocka_unit_test(what_makes_no_list_is_refused),
        cmocka_unit_test(a_window_is_one_positions_or_one_ids),
        cmocka_unit_test(of_ones_own_none_is_drawn_again_and_again),
        cmocka_unit_test(of_a_short_pass_none_is_missed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
