/* SPDX-License-Identifier: Apache-2.0 */
/* Who is lost, and who stands back, by whom members say that they do not hear. */
#include "tests/lib/testlib.h"

#include <string.h>

#include "common/env.h"
#include "net/membership/hearing.h"

enum { N = 6 };

static struct hearing member[BITSET_MAX];
static struct bitset silent[BITSET_MAX];

/* `owners` who all hear each other, and then `candidates`; all owners vote. */
static void begin(uint32_t owners, uint32_t candidates)
{
    memset(member, 0, sizeof member);
    memset(silent, 0, sizeof silent);
    for (uint32_t i = 0; i < owners + candidates; i++)
        member[i] = (struct hearing){.used = true,
                                     .voter = i < owners,
                                     .owner = i < owners,
                                     .candidate = i >= owners,
                                     .id = 10 + i,
                                     .silent = &silent[i]};
}

/* i does not hear k. */
static void deaf(uint32_t i, uint32_t k)
{
    bitset_add(&silent[i], k);
}

static void cut(uint32_t a, uint32_t b)
{
    deaf(a, b);
    deaf(b, a);
}

static uint64_t lost(uint32_t count)
{
    struct bitset set = hearing_lost(member, count);
    return bitset_word(&set);
}

static uint64_t partitioned(uint32_t count)
{
    struct bitset set = hearing_partitioned(member, count);
    return bitset_word(&set);
}

static void whom_a_majority_does_not_hear_is_lost(void **state)
{
    (void)state;
    begin(3, 1);
    assert_int_equal(lost(4), 0);
    deaf(0, 2);
    deaf(3, 2); /* it has no vote */
    deaf(2, 2); /* nor has who is meant */
    assert_int_equal(lost(4), 0);
    deaf(1, 2);
    assert_int_equal(lost(4), 1 << 2);
    member[0].silent = NULL; /* what it said is out of date */
    assert_int_equal(lost(4), 0);
    member[0].silent = &silent[0];
    member[0].used = false;
    assert_int_equal(lost(4), 0); /* one of two is no majority */
}

static void of_two_who_do_not_hear_each_other_one_stands_back(void **state)
{
    (void)state;
    begin(3, 0);
    assert_int_equal(partitioned(3), 0);
    cut(0, 1);
    assert_int_equal(partitioned(3), 1 << 1); /* the higher id */
    begin(3, 0);
    deaf(0, 1); /* one way is enough */
    assert_int_equal(partitioned(3), 1 << 1);
    begin(3, 0);
    deaf(1, 0);
    assert_int_equal(partitioned(3), 1 << 1);
}

static void who_is_cut_off_from_most_stands_back_first(void **state)
{
    (void)state;
    begin(5, 0);
    cut(0, 3);
    cut(0, 4);

    assert_int_equal(partitioned(5), 1 << 0);
    cut(1, 2); /* another pair */
    assert_int_equal(partitioned(5), 1 << 0 | 1 << 2);
}

/* What members say has its effect: who stands back owns nothing, and all others own. */
static uint64_t settle(uint32_t count)
{
    uint64_t back = partitioned(count);
    for (uint32_t i = 0; i < count; i++) {
        member[i].owner = (back >> i & 1) == 0;
        member[i].candidate = !member[i].owner;
    }
    return back;
}

/* Who lies says that it does not hear others, or is silent to them, one step after the other: how many honest ones
 * stand back by that at once. */
static uint32_t put_back(uint32_t count, uint32_t from, uint32_t liars)
{
    uint32_t most = 0;
    uint64_t honest = ~((((uint64_t)1 << liars) - 1) << from);
    for (uint32_t seed = 0; seed < 500; seed++) {
        struct env_rng rng = env_rng_init(seed, 2);
        begin(count, 0);
        for (int step = 0; step < 60; step++) {
            uint32_t liar = from + (uint32_t)env_rng_below(&rng, liars);
            uint32_t other = (uint32_t)env_rng_below(&rng, count);
            if (other >= from && other < from + liars)
                continue;
            bool says = env_rng_below(&rng, 2) != 0, hides = env_rng_below(&rng, 2) != 0;
            bitset_remove(&silent[liar], other);
            bitset_remove(&silent[other], liar);
            if (says)
                deaf(liar, other);
            if (hides)
                deaf(other, liar);
            uint32_t back = (uint32_t)__builtin_popcountll(settle(count) & honest);
            most = back > most ? back : most;
        }
    }
    print_message("%u to %u of %u lie: %u honest stand back at most\n", from, from + liars - 1, count, most);
    return most;
}

static void who_lies_puts_one_back_at_most(void **state)
{
    (void)state;
    assert_int_equal(put_back(3, 0, 1), 1);
    assert_int_equal(put_back(5, 0, 1), 1);
    assert_int_equal(put_back(3, 2, 1), 0); /* none that was there before it */
    assert_int_equal(put_back(5, 4, 1), 0);
    assert_int_equal(put_back(5, 0, 2), 2);
}

/* Those that vote and own nothing may have nothing yet. */
static void the_last_that_owns_stays(void **state)
{
    (void)state;
    begin(3, 0);
    member[1].owner = member[2].owner = false;
    member[1].candidate = member[2].candidate = true;
    cut(0, 1);
    cut(0, 2);
    member[1].voter = member[2].voter = true;
    member[3] = (struct hearing){.used = true, .voter = true, .id = 13, .silent = &silent[3]}; /* the witness */
    assert_int_equal(partitioned(4), 1 << 1 | 1 << 2);
    member[1].owner = true;
    assert_int_equal(partitioned(4), 1 << 0);
}

/* Two sites of which one island alone hears both: of the four others, two stay. */
static void those_who_stay_all_hear_each_other(void **state)
{
    (void)state;
    begin(5, 0);
    cut(0, 3);
    cut(0, 4);
    cut(1, 3);
    cut(1, 4);
    assert_int_equal(partitioned(5), 1 << 3 | 1 << 4);
    for (uint32_t round = 0; round < 2000; round++) {
        begin(N, 0);
        struct env_rng rng = env_rng_init(round, 1);
        for (uint32_t i = 0; i < N; i++)
            for (uint32_t k = 0; k < N; k++)
                if (i != k && env_rng_below(&rng, 5) == 0)
                    deaf(i, k);
        uint64_t back = partitioned(N) | lost(N);
        for (uint32_t i = 0; i < N; i++)
            for (uint32_t k = 0; k < N; k++)
                assert_true((back >> i & 1) || (back >> k & 1) || !bitset_has(&silent[i], k));
    }
}

static void who_is_lost_puts_nobody_back(void **state)
{
    (void)state;
    begin(3, 0);
    cut(0, 2);
    cut(1, 2);
    assert_int_equal(lost(3), 1 << 2);
    assert_int_equal(partitioned(3), 0);
    member[2].owner = member[2].voter = false;
    member[2].candidate = true; /* it may as well be dead */
    assert_int_equal(partitioned(3), 0);
}

static void who_owns_nothing_stays_back_until_all_owners_hear_it(void **state)
{
    (void)state;
    begin(3, 2);
    deaf(2, 3);
    assert_int_equal(partitioned(5), 1 << 3);
    begin(3, 2);
    cut(3, 4); /* two who come: one at a time */
    assert_int_equal(partitioned(5), 1 << 4);
    member[3].candidate = false; /* it would not own anything, so it is in nobody's way */
    assert_int_equal(partitioned(5), 0);
    /* An owner that hears all others does not stand back for one that would come. */
    begin(3, 1);
    member[3].id = 1;
    cut(0, 3);
    assert_int_equal(partitioned(4), 1 << 3);
}

/* Both of two owners left at once: the one that votes holds what was committed, and the other cannot get it. */
static void where_nobody_owns_a_voter_comes_first(void **state)
{
    (void)state;
    begin(0, 2);
    member[2] = (struct hearing){.used = true, .voter = true, .id = 12, .silent = &silent[2]}; /* the witness */
    member[1].voter = true;
    cut(0, 1);
    assert_int_equal(partitioned(3), 1 << 0);
    member[0].voter = true;
    assert_int_equal(partitioned(3), 1 << 1);
}

/* Or it would let in whom that one does not hear. */
static void who_does_not_hear_an_owner_lets_nobody_in(void **state)
{
    (void)state;
    begin(3, 1);
    assert_true(hearing_all_owners(member, 4));
    member[3].silent = NULL;
    assert_true(hearing_all_owners(member, 4)); /* it is none */
    member[2].silent = NULL;
    assert_false(hearing_all_owners(member, 4));
    deaf(0, 2);
    deaf(1, 2); /* it is lost */
    assert_true(hearing_all_owners(member, 4));
}

/* A minority can decide nothing: it would only seal itself. */
static void a_minority_puts_nobody_back(void **state)
{
    (void)state;
    begin(4, 0);
    cut(0, 1);
    member[2].silent = NULL;
    assert_int_equal(partitioned(4), 1 << 1);
    member[3].silent = NULL;
    assert_int_equal(partitioned(4), 0);
}

/* Who makes no result of its shards, and can be heard: not if nobody else were left. */
static void who_is_lost_yields_where_others_can_go_on(void **state)
{
    (void)state;
    begin(3, 1);
    deaf(1, 0);
    assert_false(hearing_yields(member, 4, 0)); /* one alone */
    deaf(2, 0);
    assert_true(hearing_yields(member, 4, 0));
    assert_false(hearing_yields(member, 4, 1)); /* nobody means it */
    for (uint32_t i = 1; i < 4; i++)
        member[i].owner = member[i].candidate = false; /* witnesses; those who drain */
    assert_false(hearing_yields(member, 4, 0));
    begin(3, 0);
    deaf(1, 0);
    deaf(2, 0);
    deaf(0, 1);
    deaf(2, 1);
    deaf(0, 2);
    assert_true(hearing_yields(member, 3, 0)); /* C alone can't be lost */
    deaf(1, 2);
    assert_false(hearing_yields(member, 3, 0)); /* everybody blames everybody */
    begin(3, 0);
    deaf(1, 0);
    deaf(2, 0);
    member[2].silent = NULL; /* has no say */
    assert_false(hearing_yields(member, 3, 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whom_a_majority_does_not_hear_is_lost),
        cmocka_unit_test(of_two_who_do_not_hear_each_other_one_stands_back),
        cmocka_unit_test(who_lies_puts_one_back_at_most),
        cmocka_unit_test(the_last_that_owns_stays),
        cmocka_unit_test(who_is_cut_off_from_most_stands_back_first),
        cmocka_unit_test(those_who_stay_all_hear_each_other),
        cmocka_unit_test(who_is_lost_puts_nobody_back),
        cmocka_unit_test(who_owns_nothing_stays_back_until_all_owners_hear_it),
        cmocka_unit_test(where_nobody_owns_a_voter_comes_first),
        cmocka_unit_test(who_does_not_hear_an_owner_lets_nobody_in),
        cmocka_unit_test(a_minority_puts_nobody_back),
        cmocka_unit_test(who_is_lost_yields_where_others_can_go_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
