/* SPDX-License-Identifier: Apache-2.0 */
/* The protocol's core among a few members whose words the test chooses: what is believed, what is waited for, what is
 * asked of whom. tests/sim has the whole of it; here is each rule alone. */
#include "tests/lib/talk.h"

#include <string.h>

#include "common/digest.h"
#include "tests/lib/roster.h"
#include "tests/lib/sample_configs.h"

/* ---- a result that exists is not made again ---- */

/* Our disk is older than what we had published; who has it takes no part any more, so the round does not wait for it.
 */
static void a_result_that_somebody_shows_is_not_made_again(void **state)
{
    (void)state;
    for (int by_version = 0; by_version < 2; by_version++) {
        talk_among(3, 0, 1, 4, (struct owner_rule){0});
        talk_takes_part[2] = false;
        if (by_version)
            talk_is_at(2, 5);
        talk_hear(2);
        if (!by_version)
            talk_shows(2, 0);
        talk_contributes(1, 5);
        assert_null(talk_ordered(SYNC_DO_REDUCE));
        talk_tick(100);
        assert_null(talk_ordered(SYNC_DO_REDUCE));
        talk_tick(10000);
        assert_null(talk_ordered(SYNC_DO_REDUCE));
        assert_int_equal(talk_asked_for(0), 2);
        talk_goes_away(2); /* with it the result, but it will be back */
        talk_tick(10000);
        assert_null(talk_ordered(SYNC_DO_REDUCE));
        talk_ends(NULL);
    }
}

/* It is seen only while the new one is being made. */
static void a_result_that_turns_up_stops_the_one_being_made(void **state)
{
    (void)state;
    talk_among(3, 0, 1, 4, (struct owner_rule){.quorum = 1, .grace_ms = 0});
    talk_contributes(1, 5);
    assert_non_null(talk_ordered(SYNC_DO_REDUCE));
    talk_shows(2, 0);
    talk_happens((struct sync_event){.type = SYNC_EV_REDUCED});
    assert_null(talk_ordered(SYNC_DO_STORE));
    talk_tick(100);
    talk_tick(10000);
    assert_int_equal(talk_asked_for(0), 2);
    talk_stored(0, 5, 2);
    assert_int_equal(sync_owner(talk_sync, 0)->round, 6);
    talk_ends(NULL);
}

/* A mean that came too late is not stored, and one that was stored too late is not sent. */
static void a_reduction_that_is_over_is_not_published(void **state)
{
    (void)state;
    for (int storing = 0; storing < 2; storing++) {
        talk_among(3, 0, 1, 4, (struct owner_rule){.quorum = 1, .grace_ms = 0});
        talk_contributes(1, 5);
        if (storing)
            talk_happens((struct sync_event){.type = SYNC_EV_REDUCED});
        talk_stored(0, 5, 2);
        assert_null(talk_ordered(SYNC_DO_SEND)); /* it is not the one that our own job is at */
        assert_int_equal(sync_owner(talk_sync, 0)->round, 6);
        if (storing)
            talk_stored(0, 5, 0);
        else
            talk_happens((struct sync_event){.type = SYNC_EV_REDUCED});
        assert_null(talk_ordered(SYNC_DO_STORE));
        assert_null(talk_ordered(SYNC_DO_SEND));
        assert_int_equal(sync_owner(talk_sync, 0)->round, 6);
        assert_int_equal(sync_owner(talk_sync, 0)->state, OWNER_COLLECTING);
        talk_ends(NULL);
    }
}

/* ---- who is waited for ---- */

static void being_away_is_no_abstention(void **state)
{
    (void)state;
    talk_among(3, 0, 1, 4, (struct owner_rule){0});
    talk_goes_away(2);
    talk_contributes(1, 5);
    assert_null(talk_ordered(SYNC_DO_REDUCE));
    talk_tick(60000);
    assert_null(talk_ordered(SYNC_DO_REDUCE));
    talk_ends(NULL);
}

static void one_that_was_not_heard_is_waited_for(void **state)
{
    (void)state;
    talk_among(3, 0, 1, 4, (struct owner_rule){0});
    talk_takes_part[2] = false;
    talk_hear(2);
    talk_comes_up(2); /* again: what it said before is void */
    talk_contributes(1, 5);
    talk_tick(60000);
    assert_null(talk_ordered(SYNC_DO_REDUCE));
    talk_hear(2);
    assert_non_null(talk_ordered(SYNC_DO_REDUCE));
    talk_ends(NULL);
}

/* Its trainer is gone, but what it had sent before is on its way. */
static void what_was_contributed_is_waited_for(void **state)
{
    (void)state;
    talk_among(3, 0, 1, 4, (struct owner_rule){0});
    talk_said[2].at.contributed = 5;
    talk_takes_part[2] = false;
    talk_hear(2);
    talk_contributes(1, 5);
    talk_tick(60000);
    assert_null(talk_ordered(SYNC_DO_REDUCE));
    talk_contributes(2, 5);
    assert_non_null(talk_ordered(SYNC_DO_REDUCE));
    talk_ends(NULL);
}

static void a_contribution_to_another_round_is_passed_over(void **state)
{
    (void)state;
    talk_among(2, 0, 1, 4, (struct owner_rule){0});
    struct wire_key key = talk_contribution_key(4, 0, 1);
    assert_int_equal(sync_wants(talk_sync, &key, 1), SYNC_NOT_NEEDED);
    talk_contributes(1, 4);
    assert_null(talk_ordered(SYNC_DO_REDUCE));
    assert_true(bitset_empty(&sync_owner(talk_sync, 0)->have));
    key.version = 6;
    assert_int_equal(sync_wants(talk_sync, &key, 1), SYNC_NOT_YET);
    talk_contributes(1, 6);
    assert_true(bitset_empty(&sync_owner(talk_sync, 0)->have));
    talk_ends(NULL);
}

static void another_base_is_told(void **state)
{
    (void)state;
    struct digest ours = talk_hash_named('a', 4), other = talk_hash_named('b', 4);
    talk_among(2, 0, 1, 4, (struct owner_rule){0});
    assert_true(sync_base_agrees(talk_sync, 0, 5, &ours));
    assert_false(sync_base_agrees(talk_sync, 0, 5, &other));
    assert_true(sync_base_agrees(talk_sync, 0, 6, &other)); /* not known yet */
    talk_ends(NULL);
}

/* ---- fetching results ---- */

static void a_silent_holder_is_not_asked_for_ever(void **state)
{
    (void)state;
    uint64_t asked = 0;
    talk_among(4, 3, 7, 4, (struct owner_rule){0});
    for (uint32_t i = 0; i < 3; i++) {
        talk_is_at(i, 5);
        talk_hear(i);
    }
    for (int k = 0; k < 6; k++) {
        for (int t = 0; t < 25; t++) {
            talk_tick(100);
            if (talk_asked_for(1) == UINT32_MAX)
                continue;
            assert_true(asked != 0 || talk_asked_for(1) == 1); /* its owner first */
            asked |= (uint64_t)1 << talk_asked_for(1);
        }
    }
    assert_int_equal(asked, 7);
    talk_ends(NULL);
}

/* Who was asked is gone: the next holder is asked when that is known, not when patience with the answer ends. */
static void who_is_gone_is_not_waited_for(void **state)
{
    (void)state;
    talk_among(4, 3, 7, 4, (struct owner_rule){0});
    for (uint32_t i = 0; i < 3; i++) {
        talk_is_at(i, 5);
        talk_hear(i);
    }
    for (int t = 0; t < 10 && talk_asked_for(1) == UINT32_MAX; t++)
        talk_tick(100);
    assert_int_equal(talk_asked_for(1), 1);
    talk_tick(100);
    assert_int_equal(talk_asked_for(1), UINT32_MAX);
    talk_goes_away(1);
    talk_tick(100);
    assert_true(talk_asked_for(1) == 0 || talk_asked_for(1) == 2);
    talk_ends(NULL);
}

/* Rounds stand still for it, whatever was asked for before. */
static void what_a_draft_rests_on_is_asked_for_at_once(void **state)
{
    (void)state;
    talk_among(4, 3, 7, 4, (struct owner_rule){0});
    sync_want(talk_sync, 0, 5, 0, roster_id(1));
    talk_tick(1); /* it is not on its way */
    assert_true(talk_asked_for(1) != UINT32_MAX);
    talk_ends(NULL);
    talk_among(4, 3, 7, 4, (struct owner_rule){0});
    talk_shows(0, 0);
    for (int t = 0; t < 10 && talk_asked_for(0) == UINT32_MAX; t++)
        talk_tick(100);
    assert_int_equal(talk_asked_for(0), 0);
    sync_want(talk_sync, 0, 5, 0, roster_id(1));
    talk_tick(1);
    assert_true(talk_asked_for(1) != UINT32_MAX);
    sync_want(talk_sync, 0, 5, 0, roster_id(1)); /* said again, as drafts are */
    talk_tick(1);
    assert_int_equal(talk_asked_for(1), UINT32_MAX);
    sync_want_start(talk_sync, 0, 5);
    talk_is_at(2, 5);
    talk_hear(2);
    talk_tick(1);
    assert_true(talk_asked_for(2) != UINT32_MAX);
    talk_ends(NULL);
}

static void a_result_comes_from_its_owner(void **state)
{
    (void)state;
    talk_among(4, 3, 7, 4, (struct owner_rule){0});
    struct wire_key key = talk_result_key(5, 1);
    assert_int_equal(sync_wants(talk_sync, &key, 1), SYNC_WANT);
    assert_int_equal(sync_wants(talk_sync, &key, 0), SYNC_NOT_NEEDED);
    /* Another one says that it holds it: nobody but the owner is asked while that is there, and has none. */
    talk_shows(0, 1);
    for (int t = 0; t < 100; t++) {
        talk_tick(100);
        assert_int_equal(talk_asked_for(1), UINT32_MAX);
    }
    assert_int_equal(sync_wants(talk_sync, &key, 0), SYNC_NOT_NEEDED);
    /* While the owner is away, whoever was asked may bring it, and nobody else. */
    talk_goes_away(1);
    talk_tick(2000);
    assert_int_equal(talk_asked_for(1), 0);
    assert_int_equal(sync_wants(talk_sync, &key, 0), SYNC_WANT);
    assert_int_equal(sync_wants(talk_sync, &key, 2), SYNC_NOT_NEEDED);
    talk_ends(NULL);
}

/* An owner whose disk is in doubt is there, and does not say what it has: what exists for certain is asked of others.
 */
static void what_somebody_has_applied_is_asked_of_him(void **state)
{
    (void)state;
    talk_among(4, 3, 7, 4, (struct owner_rule){0});
    talk_shows(0, 1);
    talk_tick(100);
    talk_tick(10000);
    assert_int_equal(talk_asked_for(1), UINT32_MAX); /* perhaps it is on its way */
    talk_is_at(0, 5);
    talk_hear(0);
    talk_tick(10000);
    assert_int_equal(talk_asked_for(1), 0);
    talk_ends(NULL);
}

/* ---- what one member says ---- */

static void one_word_does_not_replace_a_state(void **state)
{
    (void)state;
    talk_among(4, 3, 7, 4, (struct owner_rule){0});
    talk_is_at(0, 4 + 17);
    talk_hear(0);
    for (int t = 0; t < 200; t++) {
        talk_tick(100);
        assert_int_not_equal(sync_state(talk_sync, 0), SYNC_REPAIR);
    }
    assert_true(sync_version_max(talk_sync, 0) <= 5);
    /* Nor does it lead the state that is fetched further than the others are. */
    talk_is_at(1, 4 + 17);
    talk_hear(1);
    talk_is_at(0, (uint64_t)1 << 60);
    talk_hear(0);
    talk_tick(10000);
    assert_int_equal(sync_state(talk_sync, 0), SYNC_REPAIR);
    assert_non_null(talk_ordered(SYNC_DO_FETCH));
    assert_int_equal(talk_ordered(SYNC_DO_FETCH)->member, 1);
    assert_int_equal(talk_ordered(SYNC_DO_FETCH)->key.version, 21);
    talk_ends(NULL);
}

static void not_available_is_believed_of_who_was_asked(void **state)
{
    (void)state;
    talk_among(4, 3, 1, 4, (struct owner_rule){0});
    for (uint32_t i = 0; i < 3; i++)
        talk_is_at(i, 6);
    talk_hear(0);
    talk_hear(1);
    talk_hear(2);
    struct sync_event event = {.type = SYNC_EV_NOT_AVAILABLE, .member = 2, .key = talk_result_key(5, 0)};
    talk_happens(event);
    assert_int_not_equal(sync_state(talk_sync, 0), SYNC_REPAIR); /* it was not asked */
    talk_tick(100); /* what two rounds back was made from is on its way no more */
    assert_int_equal(talk_asked_for(0), 0);
    event.member = 0;
    talk_happens(event);
    assert_int_not_equal(sync_state(talk_sync, 0), SYNC_REPAIR); /* the others may have it */
    talk_tick(100);
    assert_int_not_equal(talk_asked_for(0), UINT32_MAX);
    assert_int_not_equal(talk_asked_for(0), 0);
    event.member = talk_asked_for(0);
    talk_happens(event);
    talk_tick(100);
    event.member = talk_asked_for(0);
    assert_int_not_equal(event.member, UINT32_MAX);
    talk_happens(event);
    talk_tick(100);
    assert_int_equal(sync_state(talk_sync, 0), SYNC_REPAIR); /* nobody has it: a state has to do */
    const struct sync_action *fetch = talk_ordered(SYNC_DO_FETCH);
    assert_non_null(fetch);
    assert_int_equal(fetch->key.kind, WIRE_STATE);
    uint32_t source = fetch->member;
    event = (struct sync_event){.type = SYNC_EV_NOT_AVAILABLE, .member = (source + 1) % 3, .key = fetch->key};
    talk_happens(event);
    talk_tick(1000);
    assert_null(talk_ordered(SYNC_DO_FETCH)); /* whoever said so was not asked */
    event.member = source;
    talk_happens(event);
    talk_tick(1000);
    assert_non_null(talk_ordered(SYNC_DO_FETCH));
    talk_ends(NULL);
}

/* One of two results is here, and whoever is asked for the other sends what is of no use, or nothing, for ever. */
static void who_asks_for_a_result_in_vain_takes_a_state(void **state)
{
    (void)state;
    talk_among(4, 3, 3, 4, (struct owner_rule){0});
    talk_stored(1, 5, 1);
    for (uint32_t i = 0; i < 3; i++)
        talk_is_at(i, 4 + 17);
    int asked = 0;
    for (int t = 0; t < 600 && sync_state(talk_sync, 0) != SYNC_REPAIR; t++) {
        for (uint32_t i = 0; i < 3; i++)
            talk_hear(i);
        talk_tick(100);
        asked += talk_asked_for(0) != UINT32_MAX;
    }
    assert_int_equal(sync_state(talk_sync, 0), SYNC_REPAIR);
    assert_int_equal(asked, 8); /* one that takes its time does not cost what is here */
    assert_int_equal(talk_ordered(SYNC_DO_FETCH)->key.kind, WIRE_STATE);
    talk_ends(NULL);
}

/* ---- what was refused ---- */

static void turned_down(uint32_t member, const struct wire_key *key)
{
    talk_happens((struct sync_event){.type = SYNC_EV_TURNED_DOWN, .member = member, .key = *key});
}

/* Ticks until our contribution goes to somebody again; how long that took. */
static uint64_t offered_again_after(uint32_t member)
{
    for (uint64_t waited_ms = 100; waited_ms <= 200000; waited_ms += 100) {
        talk_tick(100);
        const struct sync_action *send = talk_ordered(SYNC_DO_SEND);
        if (send == NULL)
            continue;
        assert_int_equal(send->member, member);
        assert_int_equal(send->key.kind, WIRE_CONTRIBUTION);
        assert_int_equal(send->key.owner, roster_id(member));
        return waited_ms;
    }
    return UINT64_MAX;
}

static void what_was_refused_is_offered_again(void **state)
{
    (void)state;
    uint64_t last_ms = 0;
    talk_among(4, 3, 7, 4, (struct owner_rule){0});
    struct wire_key key = talk_contribution_key(5, 1, 3);
    talk_we_contribute();
    assert_int_equal(offered_again_after(1), UINT64_MAX); /* it was not refused */
    for (int k = 0; k < 8; k++) {
        turned_down(1, &key);
        uint64_t waited_ms = offered_again_after(1);
        assert_in_range(waited_ms, last_ms, 61000); /* less and less often */
        last_ms = waited_ms;
    }
    assert_in_range(last_ms, 30000, 61000);
    /* Its owner has mended itself: at once. */
    turned_down(1, &key);
    talk_said[1].at.hash = talk_hash_named('b', 4);
    talk_hear(1);
    talk_said[1].at.hash = talk_hash_named('a', 4);
    talk_hear(1);
    assert_in_range(offered_again_after(1), 0, 200);
    talk_ends(NULL);
}

static void a_refusal_of_something_else_means_nothing(void **state)
{
    (void)state;
    talk_among(4, 3, 7, 4, (struct owner_rule){0});
    struct wire_key others[] = {talk_contribution_key(4, 1, 3), talk_contribution_key(5, 2, 3),
                                talk_contribution_key(5, 1, 0), talk_result_key(5, 1),
                                talk_contribution_key(5, 1, 3), talk_contribution_key(5, 1, 3)};
    others[4].fragment = 1;
    others[5].epoch = 1;
    turned_down(
        1, &(struct wire_key){.kind = WIRE_CONTRIBUTION, .version = 5, .owner = roster_id(1), .island = roster_id(3)});
    assert_int_equal(offered_again_after(1), UINT64_MAX); /* nothing of ours is on its way */
    talk_we_contribute();
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        turned_down(1, &others[i]);
    assert_int_equal(offered_again_after(1), UINT64_MAX);
    talk_ends(NULL);
}

/* Whose contribution an owner refused, and took, before it found that its own state was wrong. */
static void an_owner_that_has_repaired_forgets_whom_it_refused(void **state)
{
    (void)state;
    struct digest good = talk_hash_named('a', 4), wrong = talk_hash_named('b', 4);
    talk_among(3, 0, 1, 4, (struct owner_rule){0});
    sync_restore(talk_sync, 0, 4, &wrong);
    talk_we_contribute();
    talk_happens((struct sync_event){.type = SYNC_EV_CONTRIBUTION_REFUSED, .member = 1, .version = 5});
    assert_true(bitset_has(&sync_owner(talk_sync, 0)->refused, 1));
    talk_happens((struct sync_event){.type = SYNC_EV_LOST, .member = 1});
    assert_int_equal(sync_state(talk_sync, 0), SYNC_REPAIR);
    talk_happens((struct sync_event){.type = SYNC_EV_INSTALLED, .version = 4, .hash = good});
    assert_true(bitset_empty(&sync_owner(talk_sync, 0)->refused));
    assert_true(bitset_empty(&sync_owner(talk_sync, 0)->have)); /* our own was made from the wrong state */
    talk_contributes(2, 5);
    talk_tick(60000);
    assert_null(talk_ordered(SYNC_DO_REDUCE)); /* member 1 is to come again, and so are we */
    talk_ends(NULL);
}

/* ---- whose state is right ---- */

static void says_other(uint32_t member, char name)
{
    talk_said[member].at.hash = talk_hash_named(name, talk_said[member].at.version);
    talk_hear(member);
}

static void our_disk_says(const struct digest *hash)
{
    enum sync_event_type type = hash != NULL ? SYNC_EV_REPLAYED : SYNC_EV_UNPROVEN;
    talk_happens((struct sync_event){
        .type = type, .version = sync_own(talk_sync, 0).version, .hash = hash ? *hash : (struct digest){{0}}});
}

/* Island 0 of two was damaged: not the lower number is right, but what our disk confirms. */
static void nobody_is_believed_before_our_own_disk(void **state)
{
    (void)state;
    struct digest ours = talk_hash_named('a', 4);
    talk_among(2, 1, 3, 4, (struct owner_rule){0});
    talk_we_contribute();
    says_other(0, 'b');
    assert_non_null(talk_ordered(SYNC_DO_REPLAY));
    assert_int_equal(talk_ordered(SYNC_DO_REPLAY)->version, 4);
    assert_true(sync_in_doubt(talk_sync, 0));
    talk_happens((struct sync_event){.type = SYNC_EV_CONTRIBUTION_REFUSED, .member = 0, .version = 5});
    talk_tick(1000);
    assert_null(talk_ordered(SYNC_DO_REDUCE)); /* not without the other, who may be right */
    says_other(0, 'b');
    assert_null(talk_ordered(SYNC_DO_REPLAY)); /* once is enough */
    our_disk_says(&ours);
    assert_null(talk_ordered(SYNC_DO_REDUCE)); /* the other asks its own disk */
    assert_false(sync_in_doubt(talk_sync, 0));
    talk_now_ms += 20000;
    says_other(0, 'b');
    assert_int_equal(sync_state(talk_sync, 0), SYNC_CONTRIBUTED);
    assert_non_null(talk_reported(SYNC_REPORT_PEER_DIVERGED));
    says_other(0, 'a'); /* it has mended itself */
    assert_non_null(talk_ordered(SYNC_DO_REDUCE));
    assert_int_equal(sync_state(talk_sync, 0), SYNC_CONTRIBUTED);
    talk_ends(NULL);
}

/* Both disks confirm what they hold: that cannot be, but two that go different ways for ever would be worse. Nobody
 * closes a round before the smaller side has had time to give way, or they would part again at the next version. */
static void of_two_confirmed_states_one_is_taken_in_the_end(void **state)
{
    (void)state;
    struct digest ours = talk_hash_named('a', 4);
    for (uint32_t self = 0; self < 2; self++) {
        talk_among(2, self, 3, 4, (struct owner_rule){0});
        talk_we_contribute();
        says_other(1 - self, 'b');
        talk_happens((struct sync_event){.type = SYNC_EV_CONTRIBUTION_REFUSED, .member = 1 - self, .version = 5});
        our_disk_says(&ours);
        talk_now_ms += 29000;
        says_other(1 - self, 'b');
        assert_int_not_equal(sync_state(talk_sync, 0), SYNC_REPAIR);
        talk_tick(11000);
        assert_null(talk_ordered(SYNC_DO_REDUCE));
        says_other(1 - self, 'b');
        assert_int_equal(sync_state(talk_sync, 0) == SYNC_REPAIR, self == 1);
        if (self == 0) {
            talk_tick(20000);
            assert_non_null(talk_ordered(SYNC_DO_REDUCE));
        }
        talk_ends(NULL);
    }
}

static void who_was_damaged_mends_itself_from_its_own_disk(void **state)
{
    (void)state;
    struct digest right = talk_hash_named('b', 4);
    talk_among(2, 0, 3, 4, (struct owner_rule){0});
    says_other(1, 'b');
    our_disk_says(&right);
    assert_non_null(talk_reported(SYNC_REPORT_DAMAGED));
    assert_non_null(talk_ordered(SYNC_DO_REPAIR));
    assert_null(talk_ordered(SYNC_DO_FETCH));
    assert_int_equal(sync_state(talk_sync, 0), SYNC_REPAIR);
    talk_tick(60000);
    assert_null(talk_ordered(SYNC_DO_FETCH));
    talk_happens((struct sync_event){.type = SYNC_EV_INSTALLED, .version = 4, .hash = right});
    assert_int_equal(sync_state(talk_sync, 0), SYNC_LISTENING);
    says_other(1, 'b');
    assert_null(talk_ordered(SYNC_DO_REPLAY));
    talk_ends(NULL);
}

static void a_disk_that_fails_at_mending_is_no_end(void **state)
{
    (void)state;
    struct digest right = talk_hash_named('b', 4);
    talk_among(2, 0, 3, 4, (struct owner_rule){0});
    says_other(1, 'b');
    our_disk_says(&right);
    our_disk_says(NULL);
    talk_tick(100);
    assert_non_null(talk_ordered(SYNC_DO_FETCH));
    assert_int_equal(talk_ordered(SYNC_DO_FETCH)->member, 1);
    talk_ends(NULL);
}

/* Nobody has a state to give: all repair theirs, or are gone. */
static void repairing_ends_though_nobody_can_be_asked(void **state)
{
    (void)state;
    struct digest ours = talk_hash_named('a', 4);
    for (int gone = 0; gone < 2; gone++) {
        talk_among(2, 0, 3, 4, (struct owner_rule){0});
        says_other(1, 'b');
        our_disk_says(NULL);
        talk_tick(31000);
        says_other(1, 'b');
        assert_int_equal(sync_state(talk_sync, 0), SYNC_REPAIR);
        assert_non_null(talk_ordered(SYNC_DO_FETCH));
        talk_said[1].at.repairing = true;
        if (gone)
            talk_goes_away(1);
        else
            talk_hear(1);
        bool mends = false;
        for (int t = 0; t < 300 && !mends; t++) {
            talk_tick(100);
            assert_null(talk_ordered(SYNC_DO_FETCH));
            mends = talk_ordered(SYNC_DO_REPAIR) != NULL;
            assert_false(mends && t < 99); /* it may come back yet */
        }
        assert_true(mends);
        our_disk_says(NULL); /* it does not lead there: once more, later */
        talk_tick(100);
        assert_null(talk_ordered(SYNC_DO_REPAIR));
        for (int t = 0; t < 10; t++)
            talk_tick(1100);
        assert_non_null(talk_ordered(SYNC_DO_REPAIR));
        talk_happens((struct sync_event){.type = SYNC_EV_INSTALLED, .version = 4, .hash = ours});
        assert_int_equal(sync_state(talk_sync, 0), SYNC_LISTENING);
        talk_ends(NULL);
    }
}

static uint32_t last_asked; /* of those below */

/* The next request for a state; NULL: our disk is to mend ours, or none comes. */
static const struct sync_action *next_request(void)
{
    for (int t = 0; t < 3000; t++) {
        talk_tick(100);
        const struct sync_action *fetch = talk_ordered(SYNC_DO_FETCH);
        if (talk_ordered(SYNC_DO_REPAIR) != NULL)
            return NULL;
        if (fetch != NULL && fetch->key.kind == WIRE_STATE)
            return fetch;
    }
    return NULL;
}

static bool asks_and_is_refused(void)
{
    const struct sync_action *fetch = next_request();
    if (fetch == NULL)
        return false;
    struct sync_event refused = {.type = SYNC_EV_NOT_AVAILABLE, .member = fetch->member, .key = fetch->key};
    last_asked = fetch->member;
    sync_state_moves(talk_sync, 0, false); /* as the daemon says while it asks for one */
    talk_happens(refused);
    return true;
}

/* One of two others is ahead, and the one that is away says nothing: it may prove it by what it has heard of that one,
 * or lie. It is tried for a while, and our own state stands in between. */
static void a_state_that_nobody_proves_is_tried_for_a_while(void **state)
{
    (void)state;
    /* Nor is it tried longer where a configuration starts further on; results are, in between. */
    for (int started = 0; started < 2; started++) {
        talk_among(3, 2, 3, 4, (struct owner_rule){0});
        struct config config = talk_draft();
        configs_start(&config, 0, started == 1 ? 4 + 6 : 4);
        talk_begin_epoch(&config);
        talk_follows(0);
        talk_goes_away(1);
        talk_is_at(0, 4 + 17);
        talk_hear(0);
        assert_true(asks_and_is_refused());
        uint64_t began_ms = talk_now_ms, last_ms = talk_now_ms;
        for (int k = 0; k < 100 && asks_and_is_refused(); k++)
            last_ms = talk_now_ms;
        assert_in_range(last_ms - began_ms, 14000, 16000);
        assert_non_null(talk_ordered(SYNC_DO_REPAIR));
        talk_happens((struct sync_event){.type = SYNC_EV_INSTALLED, .version = 4, .hash = talk_hash_named('a', 4)});
        assert_int_equal(sync_state(talk_sync, 0), SYNC_LISTENING);
        assert_true(asks_and_is_refused());
        assert_in_range(talk_now_ms - began_ms, started == 1 ? 30000 : 58000, 63000);
        talk_ends(NULL);
    }
}

/* How many results are asked for until a state is, or our own disk is to mend ours; nobody has them. */
static uint32_t results_asked(void)
{
    uint32_t count = 0;
    for (int t = 0; t < 3000 && sync_state(talk_sync, 0) != SYNC_REPAIR; t++) {
        talk_tick(100);
        const struct sync_action *fetch = talk_ordered(SYNC_DO_FETCH);
        if (fetch == NULL || fetch->key.kind != WIRE_RESULT)
            continue;
        struct sync_event refused = {.type = SYNC_EV_NOT_AVAILABLE, .member = fetch->member, .key = fetch->key};
        talk_happens(refused);
        count++;
    }
    return count;
}

/* All refuse for a quarter of a minute; then it is left. */
static void assert_left_after_a_while(uint64_t began_ms)
{
    uint64_t last_ms = began_ms;
    for (int k = 0; k < 400 && asks_and_is_refused(); k++)
        last_ms = talk_now_ms;
    assert_in_range(last_ms - began_ms, 14000, 16000);
    assert_non_null(talk_ordered(SYNC_DO_REPAIR));
    talk_happens((struct sync_event){.type = SYNC_EV_INSTALLED, .version = 4, .hash = talk_hash_named('a', 4)});
    assert_int_equal(sync_state(talk_sync, 0), SYNC_LISTENING);
}

/* Both others have come there, and neither can prove it: one has lost its disk since, the other forgotten what that one
 * signed. What results they have is asked for once more, and then the state, for as long. */
static void a_state_whose_proof_is_lost_is_left_for_results(void **state)
{
    (void)state;
    talk_among(3, 2, 3, 4, (struct owner_rule){0});
    for (uint32_t i = 0; i < 2; i++) {
        talk_is_at(i, 4 + 6);
        talk_hear(i);
    }
    for (int time = 0; time < 2; time++) {
        assert_true(results_asked() > 0);
        assert_true(asks_and_is_refused());
        assert_left_after_a_while(talk_now_ms);
    }
}

/* Further ahead than one waits for results: a state is asked for at once, and while none can be proved, the results,
 * for a ledger may go back so far; where it does not, the state again. */
static void who_is_far_behind_goes_by_results_where_no_state_is_proved(void **state)
{
    (void)state;
    talk_among(3, 2, 3, 4, (struct owner_rule){0});
    for (uint32_t i = 0; i < 2; i++) {
        talk_is_at(i, 4 + 17);
        talk_hear(i);
    }
    assert_int_equal(results_asked(), 0);
    for (int time = 0; time < 2; time++) {
        assert_true(asks_and_is_refused());
        assert_left_after_a_while(talk_now_ms);
        assert_in_range(results_asked(), 1, 16);
    }
}

/* The results lead on, and the next ones are asked for as well, with no state between them. */
static void who_goes_by_results_goes_on_by_them(void **state)
{
    (void)state;
    talk_among(3, 2, 3, 4, (struct owner_rule){0});
    for (uint32_t i = 0; i < 2; i++) {
        talk_is_at(i, 4 + 29);
        talk_hear(i);
    }
    assert_true(asks_and_is_refused());
    assert_left_after_a_while(talk_now_ms);
    uint64_t version = 4;
    for (int t = 0; t < 300 && version < 4 + 6; t++) {
        talk_tick(100);
        for (uint32_t owner = 0; owner < 2; owner++)
            if (talk_asked_for(owner) != UINT32_MAX)
                talk_stored(owner, version + 1, owner);
        if (talk_ordered(SYNC_DO_APPLY) != NULL)
            talk_applied(++version);
        assert_int_not_equal(sync_state(talk_sync, 0), SYNC_REPAIR);
    }
    assert_int_equal(version, 4 + 6);
}

/* For a minute: a state may be proved again by then, and is far nearer to where the others are. */
static void who_goes_by_results_asks_for_a_state_again_after_a_minute(void **state)
{
    (void)state;
    talk_among(3, 2, 3, 4, (struct owner_rule){0});
    for (uint32_t i = 0; i < 2; i++) {
        talk_is_at(i, 4 + 1000);
        talk_hear(i);
    }
    assert_true(asks_and_is_refused());
    assert_left_after_a_while(talk_now_ms);
    uint64_t version = 4, began_ms = talk_now_ms, told_ms = talk_now_ms;
    while (sync_state(talk_sync, 0) != SYNC_REPAIR && talk_now_ms < began_ms + 120000) {
        talk_tick(100);
        for (uint32_t owner = 0; talk_now_ms >= told_ms + 1000 && owner < 2; owner++)
            if (talk_asked_for(owner) != UINT32_MAX)
                talk_stored(owner, version + 1, owner);
        if (talk_ordered(SYNC_DO_APPLY) == NULL)
            continue;
        talk_applied(++version);
        told_ms = talk_now_ms;
    }
    assert_int_equal(sync_state(talk_sync, 0), SYNC_REPAIR);
    assert_in_range(talk_now_ms - began_ms, 58000, 64000);
    assert_true(version > 4 + 10);
}

/* ---- after a state ---- */

/* We are at version 4, and take the state of version 50 that two others had when we asked for it. */
static void takes_a_state(void)
{
    talk_among(3, 2, 3, 4, (struct owner_rule){0});
    for (uint32_t i = 0; i < 2; i++) {
        talk_is_at(i, 50);
        talk_hear(i);
    }
    assert_int_equal(results_asked(), 0);
    assert_int_equal(sync_state(talk_sync, 0), SYNC_REPAIR);
}

static void the_others_are_at(uint64_t version)
{
    for (uint32_t i = 0; i < 2; i++) {
        talk_is_at(i, version);
        talk_hear(i);
    }
}

static void the_state_is_here(void)
{
    talk_happens((struct sync_event){.type = SYNC_EV_INSTALLED, .version = 50, .hash = talk_hash_named('a', 50)});
    talk_listed();
}

/* A tick is long where rounds are short: who would wait for it is left behind for good. */
static void who_is_behind_asks_for_the_next_results_at_once(void **state)
{
    (void)state;
    takes_a_state();
    the_others_are_at(54);
    the_state_is_here();
    for (uint64_t version = 50; version < 53; version++) {
        assert_int_equal(talk_asked_for(0), 0);
        assert_int_equal(talk_asked_for(1), 1);
        talk_stored(0, version + 1, 0);
        talk_stored(1, version + 1, 1);
        assert_non_null(talk_ordered(SYNC_DO_APPLY));
        talk_applied(version + 1);
    }
    assert_int_equal(talk_asked_for(0), UINT32_MAX); /* the last one is on its way by itself */
}

/* An epoch may start many versions further on, all results of which are here: nobody is to send them once more. */
static void what_the_ledger_has_is_asked_of_nobody(void **state)
{
    (void)state;
    takes_a_state();
    the_others_are_at(54);
    talk_happens((struct sync_event){.type = SYNC_EV_INSTALLED, .version = 50, .hash = talk_hash_named('a', 50)});
    for (uint64_t version = 50; version < 53; version++) {
        assert_null(talk_ordered(SYNC_DO_FETCH));
        talk_stored(0, version + 1, SYNC_NOBODY);
        assert_null(talk_ordered(SYNC_DO_FETCH));
        talk_stored(1, version + 1, SYNC_NOBODY);
        assert_non_null(talk_ordered(SYNC_DO_APPLY));
        talk_listed();
        assert_null(talk_ordered(SYNC_DO_FETCH));
        talk_happens((struct sync_event){.type = SYNC_EV_APPLIED, .hash = talk_hash_named('a', version + 1)});
    }
    talk_ends(NULL);
    /* What it lacks is, as soon as that is known. */
    takes_a_state();
    the_others_are_at(54);
    talk_happens((struct sync_event){.type = SYNC_EV_INSTALLED, .version = 50, .hash = talk_hash_named('a', 50)});
    talk_stored(0, 51, SYNC_NOBODY);
    talk_listed();
    assert_int_equal(talk_asked_for(0), UINT32_MAX);
    assert_int_equal(talk_asked_for(1), 1);
}

/* The others go on while it comes: if that takes them more versions than one waits for results, another state would be
 * as old when it is here, and so on. */
static void from_a_state_results_lead_on_however_far(void **state)
{
    (void)state;
    takes_a_state();
    talk_now_ms += 100000;
    the_others_are_at(250);
    the_state_is_here();
    uint64_t version = 50;
    for (uint64_t tick = 0; version < 250 && tick < 20000; tick++) {
        /* Each version takes longer than results of one are usually asked for. */
        assert_int_not_equal(sync_state(talk_sync, 0), SYNC_REPAIR);
        if (tick % 300 == 299) {
            talk_stored(0, version + 1, 0);
            talk_stored(1, version + 1, 1);
            talk_applied(++version);
        }
        if (version == 60)
            return;
        talk_tick(100);
    }
    fail();
}

/* Nobody has them any more: then a state, at once. */
static void from_a_state_another_one_is_taken_where_results_are_gone(void **state)
{
    (void)state;
    takes_a_state();
    the_others_are_at(250);
    the_state_is_here();
    uint64_t began_ms = talk_now_ms;
    for (uint32_t owner = 0; owner < 2; owner++)
        for (uint32_t i = 0; i < 2; i++)
            talk_happens(
                (struct sync_event){.type = SYNC_EV_NOT_AVAILABLE, .member = i, .key = talk_result_key(51, owner)});
    (void)results_asked();
    assert_int_equal(sync_state(talk_sync, 0), SYNC_REPAIR);
    assert_true(talk_now_ms - began_ms < 3000);
}

/* Who says that it has them, and brings none, does not keep us from a state for longer than the last one took. */
static void from_a_state_another_one_is_taken_where_no_result_comes(void **state)
{
    (void)state;
    static const uint64_t took_ms[] = {10, 90000}, waited_ms[] = {60000, 90000};
    for (int k = 0; k < 2; k++) {
        takes_a_state();
        talk_now_ms += took_ms[k];
        the_others_are_at(250);
        the_state_is_here();
        uint64_t began_ms = talk_now_ms;
        while (sync_state(talk_sync, 0) != SYNC_REPAIR && talk_now_ms < began_ms + 200000)
            talk_tick(100);
        assert_in_range(talk_now_ms - began_ms, waited_ms[k] - 1000, waited_ms[k] + 4000);
        talk_ends(NULL);
    }
}

/* While our snapshot is encoded it turns out that our state is wrong, and whose state is to be had is taken off the
 * roster before the snapshot is: whoever has its slot then, or nobody, is not asked for it. */
static void whose_state_was_wanted_may_leave_the_roster(void **state)
{
    (void)state;
    for (int asked = 0; asked < 2; asked++) {
        talk_among(3, 2, 3, 4, (struct owner_rule){0});
        if (asked == 0) {
            talk_happens((struct sync_event){.type = SYNC_EV_TRAINER_UP, .version = sync_own(talk_sync, 0).version});
            talk_happens((struct sync_event){.type = SYNC_EV_SNAPSHOT});
            assert_int_equal(sync_state(talk_sync, 0), SYNC_ENCODING);
        }
        talk_happens((struct sync_event){.type = SYNC_EV_LOST, .member = 1});
        struct config config = talk_draft();
        config.members[1] = config.members[2];
        config.members_count = 2;
        roster_map_owners(&config);
        talk_begin_epoch(&config);
        if (asked == 0)
            talk_happens((struct sync_event){.type = SYNC_EV_ENCODED});
        assert_int_equal(sync_state(talk_sync, 0), SYNC_REPAIR);
        talk_is_at(0, 5);
        talk_follows(0);
        const struct sync_action *fetch = next_request();
        assert_non_null(fetch);
        assert_int_equal(fetch->member, 0);
        talk_ends(NULL);
    }
}

/* They said that they were further, and take it back when we have begun to ask. None of them can prove even what we
 * have: who could may have begun to ask, too. */
static void a_state_that_is_ours_again_is_not_asked_for_without_end(void **state)
{
    (void)state;
    talk_among(3, 2, 3, 4, (struct owner_rule){0});
    for (uint32_t i = 0; i < 2; i++) {
        talk_is_at(i, 4 + 17);
        talk_hear(i);
    }
    assert_true(asks_and_is_refused());
    uint64_t began_ms = talk_now_ms;
    for (uint32_t i = 0; i < 2; i++) {
        talk_is_at(i, 4);
        talk_hear(i);
    }
    assert_left_after_a_while(began_ms);
}

/* What was on its way for a while was no refusal: when it fails, it is asked for anew. */
static void a_state_that_came_half_way_is_asked_for_anew(void **state)
{
    (void)state;
    talk_among(3, 2, 3, 4, (struct owner_rule){0});
    for (uint32_t i = 0; i < 2; i++) {
        talk_is_at(i, 4 + 17);
        talk_hear(i);
    }
    assert_true(asks_and_is_refused());
    const struct sync_action *fetch = next_request();
    assert_non_null(fetch);
    struct sync_event ends = {.type = SYNC_EV_NOT_AVAILABLE, .member = fetch->member, .key = fetch->key};
    for (int t = 0; t < 40; t++) {
        sync_state_moves(talk_sync, 0, true);
        talk_tick(1000);
    }
    talk_happens(ends);
    assert_left_after_a_while(talk_now_ms);
}

/* We have no state. What most have come to only one still has, who cannot prove it; what that one and another have
 * promised starts further on, where the other one is. */
static void who_is_further_is_asked_where_the_others_refuse(void **state)
{
    (void)state;
    talk_empty = true;
    talk_among(3, 2, 1, 4, (struct owner_rule){0});
    talk_is_at(0, 5);
    talk_hear(0);
    sync_take_over(talk_sync, 0, 5);
    bool asked[2] = {false, false};
    for (int k = 0; k < 4; k++) {
        assert_true(asks_and_is_refused());
        asked[last_asked] = true;
    }
    assert_true(asked[0] && asked[1]);
}

/* Where our disk cannot tell: a state that so many hold as have to certify it, us among them where the others that
 * can be heard are too few. Of two such islands the one with the higher id at once, the other one after a while, so
 * that not both take each other's. */
static void where_disks_cannot_tell_what_can_be_committed_is_right(void **state)
{
    (void)state;
    talk_among(4, 3, 15, 4, (struct owner_rule){0});
    says_other(0, 'b');
    our_disk_says(NULL);
    says_other(0, 'b');
    says_other(1, 'b');
    assert_int_not_equal(sync_state(talk_sync, 0), SYNC_REPAIR); /* two of four, and another one has ours */
    says_other(2, 'b');
    assert_int_equal(sync_state(talk_sync, 0), SYNC_REPAIR);
    assert_non_null(talk_reported(SYNC_REPORT_DIVERGED));
    talk_ends(NULL);
    talk_among(4, 3, 15, 4, (struct owner_rule){0});
    talk_goes_away(2);
    says_other(0, 'b');
    our_disk_says(NULL);
    says_other(0, 'b');
    assert_int_not_equal(sync_state(talk_sync, 0), SYNC_REPAIR); /* with our voice it is two */
    says_other(1, 'b');
    assert_int_equal(sync_state(talk_sync, 0), SYNC_REPAIR);
    talk_ends(NULL);
    for (uint32_t self = 0; self < 2; self++) {
        talk_among(2, self, 3, 4, (struct owner_rule){0});
        says_other(1 - self, 'b');
        our_disk_says(NULL);
        says_other(1 - self, 'b');
        assert_int_equal(sync_state(talk_sync, 0) == SYNC_REPAIR, self == 1);
        talk_now_ms += 30000;
        says_other(1 - self, 'b');
        assert_int_equal(sync_state(talk_sync, 0), SYNC_REPAIR);
        talk_ends(NULL);
    }
}

/* What our disk confirms gives way at once to most of all members alone. */
static void a_confirmed_state_gives_way_to_most_of_all(void **state)
{
    (void)state;
    struct digest ours = talk_hash_named('a', 4);
    talk_among(4, 3, 15, 4, (struct owner_rule){0});
    for (uint32_t i = 0; i < 3; i++) {
        says_other(i, 'b');
        if (i == 0)
            our_disk_says(&ours);
        says_other(i, 'b');
        assert_int_equal(sync_state(talk_sync, 0) == SYNC_REPAIR, i == 2);
    }
    talk_ends(NULL);
}

/* A state of a version that is over, or an answer to nothing. */
static void an_answer_too_late_means_nothing(void **state)
{
    (void)state;
    struct digest other = talk_hash_named('c', 4);
    talk_among(2, 1, 1, 4, (struct owner_rule){0});
    our_disk_says(&other);
    assert_int_not_equal(sync_state(talk_sync, 0), SYNC_REPAIR);
    says_other(0, 'b');
    talk_stored(0, 5, 0);
    talk_said[0].at.hash = talk_hash_named('a', 4);
    talk_shows(0, 0);
    talk_happens((struct sync_event){.type = SYNC_EV_APPLIED, .hash = talk_hash_named('a', 5)});
    talk_happens((struct sync_event){.type = SYNC_EV_REPLAYED, .version = 4, .hash = other});
    assert_int_not_equal(sync_state(talk_sync, 0), SYNC_REPAIR);
    talk_ends(NULL);
}

int main(void)
{
    assert_ok(digest_init());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(a_result_that_somebody_shows_is_not_made_again, talk_ends),
        cmocka_unit_test_teardown(a_result_that_turns_up_stops_the_one_being_made, talk_ends),
        cmocka_unit_test_teardown(a_reduction_that_is_over_is_not_published, talk_ends),
        cmocka_unit_test_teardown(being_away_is_no_abstention, talk_ends),
        cmocka_unit_test_teardown(one_that_was_not_heard_is_waited_for, talk_ends),
        cmocka_unit_test_teardown(what_was_contributed_is_waited_for, talk_ends),
        cmocka_unit_test_teardown(a_contribution_to_another_round_is_passed_over, talk_ends),
        cmocka_unit_test_teardown(another_base_is_told, talk_ends),
        cmocka_unit_test_teardown(a_silent_holder_is_not_asked_for_ever, talk_ends),
        cmocka_unit_test_teardown(who_is_gone_is_not_waited_for, talk_ends),
        cmocka_unit_test_teardown(what_a_draft_rests_on_is_asked_for_at_once, talk_ends),
        cmocka_unit_test_teardown(a_result_comes_from_its_owner, talk_ends),
        cmocka_unit_test_teardown(what_somebody_has_applied_is_asked_of_him, talk_ends),
        cmocka_unit_test_teardown(one_word_does_not_replace_a_state, talk_ends),
        cmocka_unit_test_teardown(not_available_is_believed_of_who_was_asked, talk_ends),
        cmocka_unit_test_teardown(who_asks_for_a_result_in_vain_takes_a_state, talk_ends),
        cmocka_unit_test_teardown(what_was_refused_is_offered_again, talk_ends),
        cmocka_unit_test_teardown(a_refusal_of_something_else_means_nothing, talk_ends),
        cmocka_unit_test_teardown(an_owner_that_has_repaired_forgets_whom_it_refused, talk_ends),
        cmocka_unit_test_teardown(nobody_is_believed_before_our_own_disk, talk_ends),
        cmocka_unit_test_teardown(of_two_confirmed_states_one_is_taken_in_the_end, talk_ends),
        cmocka_unit_test_teardown(who_was_damaged_mends_itself_from_its_own_disk, talk_ends),
        cmocka_unit_test_teardown(a_disk_that_fails_at_mending_is_no_end, talk_ends),
        cmocka_unit_test_teardown(repairing_ends_though_nobody_can_be_asked, talk_ends),
        cmocka_unit_test_teardown(a_state_that_nobody_proves_is_tried_for_a_while, talk_ends),
        cmocka_unit_test_teardown(a_state_whose_proof_is_lost_is_left_for_results, talk_ends),
        cmocka_unit_test_teardown(who_is_far_behind_goes_by_results_where_no_state_is_proved, talk_ends),
        cmocka_unit_test_teardown(whose_state_was_wanted_may_leave_the_roster, talk_ends),
        cmocka_unit_test_teardown(who_goes_by_results_goes_on_by_them, talk_ends),
        cmocka_unit_test_teardown(who_goes_by_results_asks_for_a_state_again_after_a_minute, talk_ends),
        cmocka_unit_test_teardown(who_is_behind_asks_for_the_next_results_at_once, talk_ends),
        cmocka_unit_test_teardown(what_the_ledger_has_is_asked_of_nobody, talk_ends),
        cmocka_unit_test_teardown(from_a_state_results_lead_on_however_far, talk_ends),
        cmocka_unit_test_teardown(from_a_state_another_one_is_taken_where_results_are_gone, talk_ends),
        cmocka_unit_test_teardown(from_a_state_another_one_is_taken_where_no_result_comes, talk_ends),
        cmocka_unit_test_teardown(a_state_that_is_ours_again_is_not_asked_for_without_end, talk_ends),
        cmocka_unit_test_teardown(a_state_that_came_half_way_is_asked_for_anew, talk_ends),
        cmocka_unit_test_teardown(who_is_further_is_asked_where_the_others_refuse, talk_ends),
        cmocka_unit_test_teardown(where_disks_cannot_tell_what_can_be_committed_is_right, talk_ends),
        cmocka_unit_test_teardown(a_confirmed_state_gives_way_to_most_of_all, talk_ends),
        cmocka_unit_test_teardown(an_answer_too_late_means_nothing, talk_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
