/* SPDX-License-Identifier: Apache-2.0 */
/* How long others are waited for that can be heard and do not do what they say (net/sync/sync_patience.h): each rule
 * alone. tests/sim has the whole of it, tests/system/test_liar real daemons. */
#include "tests/lib/talk.h"

#include "common/digest.h"
#include "tests/lib/roster.h"
#include "tests/lib/sample_configs.h"

/* AGAIN: of one that goes on from a version, and has made none yet; FIRST: at the beginning of the run. */
enum { P = 1000, FIRST = 5 * P, AGAIN = 2 * P, RESULT = 3 };

static const struct owner_rule everyone = {0};

/* Three members; we are the first and own everything, or the last and own nothing. */
static void begin(uint32_t self)
{
    talk_patience_ms = P;
    talk_among(3, self, 1, 4, everyone);
}

static void end(void)
{
    talk_patience_ms = 0;
    talk_ends(NULL);
}

/* Member 2 says what it says in every heartbeat. Whether the round of our part has closed. */
static bool closes_within(uint64_t ms)
{
    for (uint64_t at = 0; at < ms; at += 100) {
        talk_tick(100);
        if (talk_ordered(SYNC_DO_REDUCE) != NULL)
            return true;
        talk_hear(2);
        if (talk_ordered(SYNC_DO_REDUCE) != NULL)
            return true;
    }
    return false;
}

static void we_and_one_contribute(void)
{
    talk_we_contribute();
    talk_contributes(1, sync_own(talk_sync, 0).version + 1);
}

/* What has been made of it: the next round begins. */
static void round_is_made(void)
{
    uint64_t version = sync_own(talk_sync, 0).version + 1;
    talk_happens((struct sync_event){.type = SYNC_EV_REDUCED});
    talk_stored(0, version, 0);
    talk_shows(1, 0);
    assert_non_null(talk_ordered(SYNC_DO_APPLY));
    talk_applied(version);
    talk_happens((struct sync_event){.type = SYNC_EV_MIXED});
    talk_is_at(1, version);
    talk_hear(1);
    talk_is_at(2, version);
}

static void whose_contribution_does_not_come_is_not_waited_for_for_ever(void **state)
{
    (void)state;
    begin(0);
    talk_said[2].at.contributed = 5; /* and sends nothing */
    talk_hear(2);
    we_and_one_contribute();
    assert_false(closes_within(AGAIN - 200));
    assert_int_equal(sync_fault(talk_sync, 2), SYNC_FAULT_NONE);
    assert_true(closes_within(400));
    assert_int_equal(sync_fault(talk_sync, 2), SYNC_FAULT_LATE);
    assert_int_equal(sync_fault(talk_sync, 1), SYNC_FAULT_NONE);
    end();
}

/* What the others know of rounds, an owner that has started again does not: its patience ends before theirs with it. */
static void at_the_beginning_alone_patience_is_long(void **state)
{
    (void)state;
    assert_true(AGAIN < RESULT * P);
    talk_patience_ms = P;
    talk_among(3, 0, 1, 0, everyone);
    talk_said[2].at.contributed = 1;
    talk_hear(2);
    we_and_one_contribute();
    assert_false(closes_within(FIRST - 200));
    assert_true(closes_within(400));
    end();
}

/* Where more are missing than are there, it is not for the few to judge. */
static void a_majority_is_waited_for(void **state)
{
    (void)state;
    begin(0);
    talk_we_contribute();
    assert_false(closes_within(20 * FIRST));
    end();
    talk_among(3, 0, 1, 4, everyone); /* and without patience any one is */
    we_and_one_contribute();
    assert_false(closes_within(20 * FIRST));
    end();
}

/* How long the round that we and one more have contributed to goes on waiting, at most 20 patiences. */
static uint64_t waits_ms(void)
{
    uint64_t ms = 0;
    if (talk_ordered(SYNC_DO_REDUCE) != NULL)
        return 0;
    while (ms < 20 * FIRST && !closes_within(100))
        ms += 100;
    return ms;
}

/* Rounds of a second: one that has been late is waited for in one of eight, and again in all when it was in time
 * in one of these. */
static void who_was_late_is_waited_for_now_and_then(void **state)
{
    (void)state;
    begin(0);
    we_and_one_contribute();
    assert_true(closes_within(2 * FIRST));
    round_is_made();
    uint32_t waited = 0;
    for (uint64_t version = 6; version < 40; version++) {
        talk_tick(500);
        we_and_one_contribute();
        bool at_once = talk_ordered(SYNC_DO_REDUCE) != NULL || closes_within(200);
        waited += !at_once;
        assert_true(at_once || closes_within(2 * FIRST));
        round_is_made();
    }
    assert_in_range(waited, 1, 4);
    /* In time in a round that would not have waited it is late still, and no longer from one that would. */
    uint32_t in_time = 0;
    for (; sync_fault(talk_sync, 2) == SYNC_FAULT_LATE && in_time < 64; in_time++) {
        talk_contributes(2, sync_own(talk_sync, 0).version + 1);
        we_and_one_contribute();
        assert_true(talk_ordered(SYNC_DO_REDUCE) != NULL || closes_within(200));
        round_is_made();
    }
    assert_in_range(in_time, 2, 32);
    assert_int_equal(sync_fault(talk_sync, 2), SYNC_FAULT_NONE);
    we_and_one_contribute();
    assert_null(talk_ordered(SYNC_DO_REDUCE));
    end();
}

/* In time again and again, and not once in between: that costs one patience, and then what it usually takes or a little
 * more, whether or not the rounds that wait for it are those in which it is in time. */
static void withholds_every_second_one(uint32_t from)
{
    uint64_t waited_ms = 0, longest_ms = 0;
    begin(0);
    for (uint32_t round = from; round < from + 60; round++) {
        talk_tick(500);
        if (round % 2 == 0)
            talk_contributes(2, sync_own(talk_sync, 0).version + 1);
        we_and_one_contribute();
        uint64_t ms = waits_ms();
        assert_true(round % 2 == 1 || ms == 0);
        longest_ms = round > 1 && ms > longest_ms ? ms : longest_ms;
        waited_ms += round > 1 ? ms : 0;
        round_is_made();
    }
    print_message("waits for %ju ms in 58 rounds of 500 ms, %ju at most\n", (uintmax_t)waited_ms,
                  (uintmax_t)longest_ms);
    assert_true(longest_ms <= 2 * 500); /* usual rounds */
    assert_true(waited_ms <= 58 * 500 / 10);
    end();
}

static void who_withholds_every_second_one_holds_nobody_up(void **state)
{
    (void)state;
    withholds_every_second_one(0);
    withholds_every_second_one(1);
}

/* One that hangs costs a patience once. After that it is worth what it usually takes. */
static void who_hangs_holds_nobody_up_for_long_again(void **state)
{
    (void)state;
    begin(0);
    for (int round = 0; round < 10; round++) { /* 300 ms behind the others, as a slow line is */
        we_and_one_contribute();
        assert_false(closes_within(300));
        talk_contributes(2, sync_own(talk_sync, 0).version + 1);
        assert_true(talk_ordered(SYNC_DO_REDUCE) != NULL || closes_within(200));
        round_is_made();
    }
    uint64_t first = 0, longest = 0, waited = 0;
    for (int round = 0; round < 60; round++) {
        talk_tick(500);
        we_and_one_contribute();
        uint64_t ms = waits_ms();
        longest = first != 0 && ms > longest ? ms : longest;
        waited += ms > 0;
        first = first == 0 ? ms : first;
        round_is_made();
    }
    print_message("waits for %ju ms, then in %ju of 60 rounds for %ju ms at most\n", (uintmax_t)first,
                  (uintmax_t)waited, (uintmax_t)longest);
    assert_true(first >= P);
    assert_in_range(waited, 2, 8);
    assert_true(longest <= 1000);
    end();
}

/* As it usually was, it was there before anybody waited. Rounds of 500 ms; then it is 700 ms behind the others, which
 * is more than it is worth at first. */
static void who_has_become_slower_is_counted_again(void **state)
{
    (void)state;
    begin(0);
    for (int round = 0; round < 10; round++) {
        talk_tick(500);
        talk_contributes(2, sync_own(talk_sync, 0).version + 1);
        we_and_one_contribute();
        assert_true(waits_ms() == 0);
        round_is_made();
    }
    we_and_one_contribute(); /* it hangs for once */
    assert_true(waits_ms() > 0);
    round_is_made();
    uint32_t without = 0;
    for (bool in_time = false; !in_time && without < 200; without += !in_time) {
        talk_tick(500);
        we_and_one_contribute();
        if (talk_ordered(SYNC_DO_REDUCE) == NULL && !closes_within(700)) {
            talk_contributes(2, sync_own(talk_sync, 0).version + 1);
            assert_true(waits_ms() == 0);
            in_time = true;
        }
        round_is_made();
    }
    print_message("counted again after %u rounds without it\n", without);
    assert_in_range(without, 2, 8 + 16 + 32 + 64); /* that wait for it more and more rarely, and longer and longer */
    end();
}

/* What a single member says there is holds us up as long as it may still show it. */
static void a_claim_that_is_not_proved_holds_nobody_up(void **state)
{
    (void)state;
    for (int held = 0; held < 2; held++) {
        begin(0);
        if (held) {
            struct digest other = talk_result_named('b', 0, 5, 0);
            talk_shows_digest(2, 0, &other);
        } else {
            talk_is_at(2, 1000000);
        }
        talk_said[2].at.abstained = UINT64_MAX;
        talk_hear(2);
        we_and_one_contribute();
        assert_false(closes_within(P - 200));
        assert_true(closes_within(600));
        assert_int_equal(sync_fault(talk_sync, 2), SYNC_FAULT_UNPROVEN);
        end();
    }
}

/* As many as commit are believed: then our result was lost, and is not to be made again. */
static void what_as_many_say_as_certify_is_believed(void **state)
{
    (void)state;
    begin(0);
    we_and_one_contribute();
    talk_is_at(1, 6);
    talk_hear(1);
    talk_is_at(2, 6);
    assert_false(closes_within(20 * FIRST));
    assert_int_equal(sync_fault(talk_sync, 2), SYNC_FAULT_NONE);
    end();
}

/* We and member 1 have contributed, and say so; what member 0 makes of it does not come. */
static void begin_without_a_result(void)
{
    begin(2);
    talk_we_contribute();
    talk_said[1].at.contributed = 5;
    talk_hear(1);
    talk_tick(100);
}

/* Everybody has contributed, as it says, and the owner's result does not come. */
static void an_owner_without_results_is_complained_of(void **state)
{
    (void)state;
    begin_without_a_result();
    talk_tick(RESULT * FIRST - 200);
    assert_int_equal(sync_fault(talk_sync, 0), SYNC_FAULT_NONE); /* it may have waited for somebody itself */
    talk_tick(400);
    assert_int_equal(sync_fault(talk_sync, 0), SYNC_FAULT_NO_RESULT);
    assert_true(sync_complains(talk_sync, 0, false) && !sync_complains(talk_sync, 0, true));
    assert_int_equal(sync_fault(talk_sync, 1), SYNC_FAULT_NONE);
    talk_tick(61000); /* after a minute it may show that it does its part */
    assert_int_equal(sync_fault(talk_sync, 0), SYNC_FAULT_NO_RESULT);
    end();
    begin(2); /* one that says it is ahead has nothing to show for it either */
    talk_we_contribute();
    talk_is_at(0, 9);
    talk_hear(0);
    talk_said[1].at.contributed = 5;
    talk_hear(1);
    talk_tick(100);
    talk_tick(RESULT * FIRST);
    assert_int_equal(sync_fault(talk_sync, 0), SYNC_FAULT_NO_RESULT);
    end();
}

/* All may be out because of each other; then nobody is left to do without them. */
static void where_nobody_owns_anything_nobody_is_complained_of(void **state)
{
    (void)state;
    enum { NOBODY, NOBODY_CARRIED, SOMEBODY, CASES }; /* what an owner of before made may be carried */
    for (int owned = NOBODY; owned < CASES; owned++) {
        begin_without_a_result();
        talk_tick(RESULT * FIRST + 200);
        assert_int_equal(sync_fault(talk_sync, 0), SYNC_FAULT_NO_RESULT);
        struct config config = owned == NOBODY_CARRIED ? talk_draft_with_one('a') : talk_draft();
        for (uint32_t i = 0; i < config.members_count && owned != SOMEBODY; i++)
            config.members[i].role = CONFIG_AWAY;
        if (owned != SOMEBODY)
            config.map = shardmap_empty();
        talk_begin_epoch(&config);
        talk_tick(100);
        assert_int_equal(sync_fault(talk_sync, 0), owned == SOMEBODY ? SYNC_FAULT_NO_RESULT : SYNC_FAULT_NONE);
        end();
    }
}

/* However long it was away, or both were: who is back has as long as anybody else. */
static void who_was_away_has_its_time_from_when_it_is_back(void **state)
{
    (void)state;
    begin_without_a_result();
    talk_goes_away(0);
    talk_tick(10 * RESULT * FIRST);
    talk_comes_up(0);
    talk_tick(100);
    assert_int_equal(sync_fault(talk_sync, 0), SYNC_FAULT_NONE);
    talk_tick(RESULT * FIRST - 200);
    assert_int_equal(sync_fault(talk_sync, 0), SYNC_FAULT_NONE);
    talk_tick(200); /* from then on it counts */
    assert_int_equal(sync_fault(talk_sync, 0), SYNC_FAULT_NO_RESULT);
    end();
    begin(0); /* nor does its round close the moment that it is back, without it */
    we_and_one_contribute();
    talk_goes_away(2);
    talk_tick(10 * FIRST);
    talk_comes_up(2);
    assert_null(talk_ordered(SYNC_DO_REDUCE));
    talk_tick(AGAIN - 100);
    assert_null(talk_ordered(SYNC_DO_REDUCE));
    talk_tick(200);
    assert_non_null(talk_ordered(SYNC_DO_REDUCE));
    end();
}

/* Where all are done but one that hangs, no round has anything in it, and none is due. */
static void of_nothing_there_is_no_result(void **state)
{
    (void)state;
    begin(2);
    talk_happens((struct sync_event){.type = SYNC_EV_TRAINER_UP, .version = 4});
    talk_happens((struct sync_event){.type = SYNC_EV_SETTLED});
    talk_said[1].at.abstained = UINT64_MAX;
    talk_hear(1);
    talk_tick(100);
    talk_tick(20 * RESULT * FIRST);
    assert_int_equal(sync_fault(talk_sync, 0), SYNC_FAULT_NONE);
    end();
}

/* Member 1 has contributed to version 5, or not yet: then nobody's result is due. */
static void one_has_contributed(bool has)
{
    talk_said[1].at.contributed = has ? 5 : 4;
    talk_hear(1);
}

/* The owner makes no result; until it is not complained of any more. */
static uint64_t blamed_for(void)
{
    uint64_t ms = 0;
    one_has_contributed(true);
    while (sync_fault(talk_sync, 0) != SYNC_FAULT_NO_RESULT)
        talk_tick(1000);
    one_has_contributed(false);
    for (; sync_fault(talk_sync, 0) == SYNC_FAULT_NO_RESULT; ms += 1000)
        talk_tick(1000);
    return ms;
}

/* One that falls out again and again stays out ever longer; once in a while is not again and again. */
static void blame_grows_and_is_forgotten(void **state)
{
    (void)state;
    begin(2);
    talk_we_contribute();
    uint64_t first = blamed_for(), second = blamed_for();
    assert_in_range(second, 2 * first - 1000, 2 * first + 1000);
    talk_tick(7200000);
    assert_in_range(blamed_for(), first - 1000, first + 1000);
    end();
}

/* The next epoch, to which all go over, in which the run is paused, or goes on; what was contributed is again. */
static void the_run_is(bool paused, uint32_t self)
{
    struct config config = talk_draft();
    configs_start(&config, 0, 4);
    config.paused = paused;
    talk_begin_epoch(&config);
    for (uint32_t i = 0; i < 3; i++)
        if (i != self)
            talk_follows(i);
}

/* Trainers stand still by order. */
static void while_the_run_is_paused_nobody_is_late(void **state)
{
    (void)state;
    static const struct owner_rule two = {.quorum = 2, .grace_ms = 100};
    for (int quorum = 0; quorum < 2; quorum++) {
        talk_patience_ms = P;
        talk_among(3, 0, 1, 4, quorum ? two : everyone);
        talk_we_contribute();
        the_run_is(true, 0);
        talk_contributes(0, 5);
        talk_contributes(1, 5);
        assert_false(closes_within(20 * FIRST));
        assert_int_equal(sync_fault(talk_sync, 2), SYNC_FAULT_NONE);
        the_run_is(false, 0);
        talk_contributes(0, 5);
        talk_contributes(1, 5);
        assert_null(talk_ordered(SYNC_DO_REDUCE)); /* it has all its time still */
        assert_true(closes_within(FIRST + 200));
        end();
    }
}

/* Its owner waits for others. */
static void while_the_run_is_paused_no_result_is_overdue(void **state)
{
    (void)state;
    for (int paused = 0; paused < 2; paused++) {
        begin_without_a_result();
        the_run_is(paused != 0, 2);
        for (uint32_t i = 0; i < 2; i++) {
            talk_said[i].at.contributed = 5;
            talk_hear(i);
        }
        talk_tick(100);
        talk_tick(20 * RESULT * FIRST);
        assert_int_equal(sync_fault(talk_sync, 0), paused ? SYNC_FAULT_NONE : SYNC_FAULT_NO_RESULT);
        end();
    }
}

/* All that a round waits for is here. */
static void a_whole_round_closes_in_a_pause(void **state)
{
    (void)state;
    begin(0);
    talk_we_contribute();
    the_run_is(true, 0);
    for (uint32_t i = 0; i < 2; i++)
        talk_contributes(i, 5);
    assert_null(talk_ordered(SYNC_DO_REDUCE));
    talk_contributes(2, 5);
    assert_non_null(talk_ordered(SYNC_DO_REDUCE));
    end();
}

/* Of a hash that most do not have nobody is kept waiting. */
static void a_minority_disputes_nothing(void **state)
{
    (void)state;
    begin(0);
    talk_said[2].at.hash = talk_hash_named('b', 4);
    talk_said[2].at.abstained = UINT64_MAX;
    talk_hear(2);
    assert_non_null(talk_ordered(SYNC_DO_REPLAY));
    talk_happens((struct sync_event){.type = SYNC_EV_REPLAYED, .version = 4, .hash = talk_hash_named('a', 4)});
    we_and_one_contribute();
    assert_true(talk_ordered(SYNC_DO_REDUCE) != NULL || closes_within(200));
    assert_int_equal(sync_fault(talk_sync, 2), SYNC_FAULT_HASH);
    end();
}

int main(void)
{
    assert_ok(digest_init());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(whose_contribution_does_not_come_is_not_waited_for_for_ever, talk_ends),
        cmocka_unit_test(at_the_beginning_alone_patience_is_long),
        cmocka_unit_test_teardown(a_majority_is_waited_for, talk_ends),
        cmocka_unit_test_teardown(who_was_late_is_waited_for_now_and_then, talk_ends),
        cmocka_unit_test(who_withholds_every_second_one_holds_nobody_up),
        cmocka_unit_test(who_has_become_slower_is_counted_again),
        cmocka_unit_test(who_hangs_holds_nobody_up_for_long_again),
        cmocka_unit_test_teardown(a_claim_that_is_not_proved_holds_nobody_up, talk_ends),
        cmocka_unit_test_teardown(what_as_many_say_as_certify_is_believed, talk_ends),
        cmocka_unit_test_teardown(an_owner_without_results_is_complained_of, talk_ends),
        cmocka_unit_test_teardown(where_nobody_owns_anything_nobody_is_complained_of, talk_ends),
        cmocka_unit_test_teardown(who_was_away_has_its_time_from_when_it_is_back, talk_ends),
        cmocka_unit_test_teardown(of_nothing_there_is_no_result, talk_ends),
        cmocka_unit_test_teardown(blame_grows_and_is_forgotten, talk_ends),
        cmocka_unit_test_teardown(a_minority_disputes_nothing, talk_ends),
        cmocka_unit_test_teardown(while_the_run_is_paused_nobody_is_late, talk_ends),
        cmocka_unit_test_teardown(while_the_run_is_paused_no_result_is_overdue, talk_ends),
        cmocka_unit_test_teardown(a_whole_round_closes_in_a_pause, talk_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
