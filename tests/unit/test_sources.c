/* SPDX-License-Identifier: Apache-2.0 */
/* The protocol's core on whose state is taken: members that repair have none to give, and where some do not vote the
 * word of those who do leads. */
#include "tests/lib/talk.h"

#include "common/digest.h"
#include "tests/lib/roster.h"
#include "tests/lib/sample_configs.h"

static const struct owner_rule everyone = {0};

/* We are member `self` of so many, at `version`, of whom one alone votes; the others are about to be let in. */
static void with_one_voter(uint32_t count, uint32_t self, uint32_t voter, uint64_t version)
{
    talk_among(count, self, 1, version, everyone);
    struct config config = talk_draft();
    roster_map(&config, &voter, 1);
    for (uint32_t i = 0; i < config.members_count; i++) {
        config.members[i].voter = config.members[i].id == roster_id(voter);
        config.members[i].role = config.members[i].voter ? CONFIG_OWNER : CONFIG_CONTRIBUTOR;
    }
    talk_begin_epoch(&config);
    for (uint32_t i = 0; i < count; i++)
        if (i != self)
            talk_follows(i);
}

static void says(uint32_t member, char name, uint64_t version)
{
    talk_is_at(member, version);
    talk_said[member].at.hash = talk_hash_named(name, version);
    talk_hear(member);
}

/* For a state, again and again, as long as it takes. */
static const struct sync_action *asks_in_the_end(void)
{
    for (int t = 0; t < 20; t++) {
        talk_tick(5000);
        const struct sync_action *fetch = talk_ordered(SYNC_DO_FETCH);
        if (fetch != NULL && fetch->key.kind == WIRE_STATE)
            return fetch;
    }
    return NULL;
}

static void expect_source(const struct sync_action *fetch, uint32_t member, uint64_t version)
{
    assert_non_null(fetch);
    assert_int_equal(fetch->member, member);
    assert_int_equal(fetch->key.kind, WIRE_STATE);
    assert_int_equal(fetch->key.version, version);
}

/* Else each of the two asks the other, who has none to give, for ever: as many as may join at once, one that votes is
 * enough to lead them on. */
static void who_repairs_is_asked_for_nothing(void **state)
{
    (void)state;
    talk_among(3, 2, 7, 4, everyone);
    talk_is_at(0, 30);
    talk_hear(0);
    talk_said[1].at.repairing = true;
    talk_hear(1);
    assert_false(sync_own(talk_sync, 0).repairing);
    talk_happens((struct sync_event){.type = SYNC_EV_LOST, .member = 0});
    expect_source(talk_ordered(SYNC_DO_FETCH), 0, 30);
    assert_true(sync_own(talk_sync, 0).repairing);
    assert_non_null(talk_ordered(SYNC_DO_ANNOUNCE)); /* and so nobody asks us */
    expect_source(asks_in_the_end(), 0, 30);
    talk_said[0].at.repairing = true; /* nobody is left: it waits, and then looks at its own disk */
    talk_hear(0);
    assert_null(asks_in_the_end());
    talk_happens((struct sync_event){.type = SYNC_EV_UNPROVEN, .version = 4});
    talk_said[1].at.repairing = false;
    talk_hear(1);
    expect_source(asks_in_the_end(), 1, 4);
    talk_ends(NULL);
}

/* Nor for what a configuration starts from, where it is the only one that has come so far. */
static void nor_for_a_start(void **state)
{
    (void)state;
    talk_among(3, 2, 1, 4, everyone);
    struct config config = talk_draft();
    configs_start(&config, 0, 9);
    talk_begin_epoch(&config);
    talk_is_at(0, 9);
    talk_said[0].at.repairing = true;
    talk_follows(0);
    talk_hear(0);
    struct wire_key key = talk_result_key(5, 0);
    key.epoch = 0;
    for (int tries = 0; tries < 20; tries++) {
        talk_happens((struct sync_event){.type = SYNC_EV_NOT_AVAILABLE, .member = 0, .key = key});
        talk_tick(2500);
        assert_int_not_equal(sync_state(talk_sync, 0), SYNC_REPAIR);
    }
    talk_said[0].at.repairing = false;
    talk_hear(0);
    for (int tries = 0; tries < 20 && sync_state(talk_sync, 0) != SYNC_REPAIR; tries++) {
        talk_happens((struct sync_event){.type = SYNC_EV_NOT_AVAILABLE, .member = 0, .key = key});
        talk_tick(2500);
    }
    expect_source(talk_ordered(SYNC_DO_FETCH), 0, 9);
    talk_ends(NULL);
}

static void the_word_of_those_who_vote_leads(void **state)
{
    (void)state;
    with_one_voter(3, 2, 0, 0);
    says(1, 'b', 0); /* it has come with values of its own, as we have */
    says(0, 'c', 25);
    talk_happens((struct sync_event){.type = SYNC_EV_LOST, .member = 0});
    for (int i = 0; i < 3; i++)
        expect_source(asks_in_the_end(), 0, 25);
    talk_goes_away(0); /* nobody who votes is there: what the others have will do, if it is proved */
    expect_source(asks_in_the_end(), 1, 0);
    talk_ends(NULL);
}

/* Of several of that version: those who join with the same wrong one are more. */
static void the_hash_of_those_who_vote_is_fetched(void **state)
{
    (void)state;
    with_one_voter(4, 3, 2, 0);
    for (uint32_t i = 0; i < 3; i++)
        says(i, i < 2 ? 'b' : 'c', 0);
    talk_happens((struct sync_event){.type = SYNC_EV_LOST, .member = 2});
    for (int i = 0; i < 3; i++)
        expect_source(asks_in_the_end(), 2, 0);
    talk_ends(NULL);
}

static void initial_values_are_those_of_who_votes(void **state)
{
    (void)state;
    for (uint32_t self = 0; self < 3; self++) {
        with_one_voter(3, self, 0, 0);
        for (uint32_t i = 0; i < 3; i++)
            if (i != self && i > 0) /* the two that join have the same values, and more than half of all */
                says(i, self == 0 ? 'b' : 'a', 0);
        if (self > 0)
            says(0, 'b', 0);
        assert_int_equal(sync_state(talk_sync, 0) == SYNC_REPAIR, self > 0);
        if (self > 0)
            expect_source(talk_ordered(SYNC_DO_FETCH), 0, 0);
        talk_ends(NULL);
    }
}

/* What our disk confirms: two that only contribute make no majority against one that votes, and it makes one against
 * any number of them. */
static void a_vote_outweighs_any_number_without(void **state)
{
    (void)state;
    for (uint32_t self = 0; self < 2; self++) {
        with_one_voter(3, self, 0, 4);
        struct digest ours = talk_hash_named('a', 4);
        for (uint32_t i = 0; i < 3; i++)
            if (i != self)
                says(i, self == 0 || i == 0 ? 'b' : 'a', 4);
        talk_happens((struct sync_event){.type = SYNC_EV_REPLAYED, .version = 4, .hash = ours});
        for (int t = 0; t < 60; t++) {
            talk_tick(1000);
            for (uint32_t i = 0; i < 3; i++)
                if (i != self)
                    talk_hear(i);
        }
        assert_int_equal(sync_state(talk_sync, 0) == SYNC_REPAIR, self == 1);
        talk_ends(NULL);
    }
}

/* One says that it has come further than all, and never answers; the results that a proposed configuration wants are at
 * their owners alone, and each of the others says that it does not have them. However often it was asked before, and
 * though it has just said so of another result, each owner is asked for its own before long. */
static void one_that_is_silent_hides_nobody(void **state)
{
    (void)state;
    enum { LIAR = 3, WANTED = 2, TICKS_BEFORE = 12, TICKS = 6 };
    for (uint32_t before = 0; before < TICKS_BEFORE; before++) {
        bool owner_asked[WANTED] = {false};
        talk_among(5, 4, 0x7, 4, everyone);
        talk_is_at(LIAR, 1000000);
        talk_hear(LIAR);
        for (uint32_t t = 0; t < before; t++)
            talk_tick(2500);
        for (uint32_t t = 0; t < TICKS; t++) {
            uint32_t wanted = t * WANTED / TICKS; /* 0, and then 1; or the other way round */
            wanted = before % 2 == 0 ? wanted : WANTED - 1 - wanted;
            sync_want(talk_sync, 0, 5, talk_result_key(5, wanted).epoch, roster_id(wanted));
            talk_tick(1000);
            for (uint32_t answers = 0; answers < 8; answers++) {
                uint32_t asked = talk_asked_for(wanted);
                owner_asked[wanted] = owner_asked[wanted] || asked == wanted;
                if (asked < LIAR && asked != wanted)
                    talk_happens((struct sync_event){
                        .type = SYNC_EV_NOT_AVAILABLE, .member = asked, .key = talk_result_key(5, wanted)});
                talk_tick(20);
            }
        }
        for (uint32_t owner = 0; owner < WANTED; owner++)
            if (!owner_asked[owner])
                fail_msg("owner %u was not asked for its result, after %u questions", owner, before);
        assert_int_not_equal(sync_state(talk_sync, 0), SYNC_REPAIR);
        talk_ends(NULL);
    }
}

/* The others are on their way. */
static void a_no_asks_for_that_one_alone(void **state)
{
    (void)state;
    talk_among(4, 3, 0x3, 4, everyone);
    for (uint32_t owner = 0; owner < 2; owner++)
        sync_want(talk_sync, 0, 5, talk_result_key(5, owner).epoch, roster_id(owner));
    talk_is_at(2, 6);
    talk_hear(2);
    talk_tick(100);
    assert_int_equal(talk_asked_for(0), 0);
    assert_int_equal(talk_asked_for(1), 1);
    talk_happens((struct sync_event){.type = SYNC_EV_NOT_AVAILABLE, .member = 0, .key = talk_result_key(5, 0)});
    talk_tick(100);
    assert_int_equal(talk_asked_for(0), 1);
    assert_int_equal(talk_asked_for(1), UINT32_MAX);
    talk_tick(2000);
    assert_int_equal(talk_asked_for(1), 2); /* for it, too, one may be silent */
    talk_ends(NULL);
}

/* Nor one that has it later than it was asked for it. */
static void who_did_not_have_it_is_asked_again(void **state)
{
    (void)state;
    enum { LIAR = 1 };
    talk_among(3, 2, 1, 4, everyone);
    talk_is_at(LIAR, 1000000);
    talk_hear(LIAR);
    sync_want(talk_sync, 0, 5, talk_result_key(5, 0).epoch, roster_id(0));
    uint32_t times = 0;
    for (uint32_t t = 0; t < 40; t++) {
        talk_tick(1000);
        times += talk_asked_for(0) == 0;
        if (talk_asked_for(0) == 0)
            talk_happens((struct sync_event){.type = SYNC_EV_NOT_AVAILABLE, .member = 0, .key = talk_result_key(5, 0)});
    }
    assert_in_range(times, 2, 10); /* not all the time, either */
    talk_ends(NULL);
}

/* Results lead to a start that is near, though one says that it is far beyond it, and has a state. */
static void a_start_that_is_near_is_reached_by_results(void **state)
{
    (void)state;
    enum { LIAR = 0, OWNER = 1 };
    talk_among(4, 3, 1u << OWNER, 4, everyone);
    struct config config = talk_draft();
    configs_start(&config, 0, 5);
    talk_begin_epoch(&config);
    talk_is_at(LIAR, 1000000);
    talk_is_at(OWNER, 5);
    for (uint32_t i = 0; i < 3; i++) {
        talk_follows(i);
        talk_hear(i);
    }
    bool asked = false;
    for (int t = 0; t < 4 && !asked; t++) {
        talk_tick(1000);
        asked = talk_asked_for(OWNER) == OWNER;
        assert_int_not_equal(sync_state(talk_sync, 0), SYNC_REPAIR);
    }
    assert_true(asked);
    talk_ends(NULL);
}

/* After a pause of our own the first that is heard is the only one, for a moment. */
static void who_is_heard_first_does_not_lead_alone(void **state)
{
    (void)state;
    enum { LIAR = 0 };
    for (int back = 0; back < 2; back++) {
        talk_among(4, 3, 0xf, 4, everyone);
        for (uint32_t i = 1; i < 3; i++)
            talk_goes_away(i);
        talk_is_at(LIAR, 1000000);
        talk_hear(LIAR);
        talk_applied(5);
        assert_int_not_equal(sync_state(talk_sync, 0), SYNC_REPAIR);
        for (uint32_t i = 1; back && i < 3; i++) {
            talk_comes_up(i);
            talk_is_at(i, 6);
            talk_hear(i);
        }
        talk_tick(100);
        assert_int_equal(sync_state(talk_sync, 0) == SYNC_REPAIR, !back); /* alone it may be right */
        talk_ends(NULL);
    }
}

/* A state of gigabytes takes hours on a slow line, in which islands come and go, and lines are cut. */
static void a_state_on_its_way_outlives_an_epoch_and_a_cut(void **state)
{
    (void)state;
    talk_among(5, 4, 0xf, 4, everyone);
    for (uint32_t i = 0; i < 4; i++)
        says(i, 'a', 30);
    talk_happens((struct sync_event){.type = SYNC_EV_LOST, .member = 0});
    expect_source(talk_ordered(SYNC_DO_FETCH), 0, 30);
    struct config config = talk_draft();
    talk_begin_epoch(&config);
    talk_tick(100);
    assert_null(talk_ordered(SYNC_DO_FETCH));
    sync_state_moves(talk_sync, 0, true);
    talk_goes_away(0);
    for (uint32_t i = 1; i < 4; i++)
        says(i, 'a', 31);
    for (int t = 0; t < 40; t++) {
        talk_tick(1000);
        assert_null(talk_ordered(SYNC_DO_FETCH));
        sync_state_moves(talk_sync, 0, true);
    }
    struct wire_key key;
    assert_true(sync_fetching_state(talk_sync, 0, &key));
    talk_happens((struct sync_event){.type = SYNC_EV_NOT_AVAILABLE, .member = 0, .key = key}); /* it is given up */
    expect_source(asks_in_the_end(), 1, 31);
    talk_ends(NULL);
}

#define CASE(name) cmocka_unit_test_teardown(name, talk_ends)

int main(void)
{
    assert_ok(digest_init());
    const struct CMUnitTest tests[] = {
        CASE(who_repairs_is_asked_for_nothing),       CASE(nor_for_a_start),
        CASE(the_word_of_those_who_vote_leads),       CASE(the_hash_of_those_who_vote_is_fetched),
        CASE(initial_values_are_those_of_who_votes),  CASE(a_vote_outweighs_any_number_without),
        CASE(one_that_is_silent_hides_nobody),        CASE(who_did_not_have_it_is_asked_again),
        CASE(a_no_asks_for_that_one_alone),           CASE(a_start_that_is_near_is_reached_by_results),
        CASE(who_is_heard_first_does_not_lead_alone), CASE(a_state_on_its_way_outlives_an_epoch_and_a_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
