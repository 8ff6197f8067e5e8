/* SPDX-License-Identifier: Apache-2.0 */
/* The protocol's core when an epoch begins, each rule alone: what is made anew, what goes on, and who makes results and
 * is waited for. tests/sim has the whole of it. */
#include "tests/lib/talk.h"

#include "common/digest.h"
#include "tests/lib/roster.h"
#include "tests/lib/sample_configs.h"

static const struct owner_rule everyone = {0};

/* ---- contributions when an epoch begins ---- */

static void a_contribution_is_encoded_anew_for_the_new_owners(void **state)
{
    (void)state;
    talk_among(4, 3, 3, 4, everyone);
    talk_we_contribute();
    assert_non_null(talk_sent_to(0));
    assert_int_equal(talk_sent_to(0)->key.epoch, 0);
    assert_non_null(talk_sent_to(1));
    struct config config = talk_draft();
    configs_start(&config, 0, 4);
    roster_map(&config, (uint32_t[]){1, 2}, 2);
    talk_begin_epoch(&config);
    assert_non_null(talk_ordered(SYNC_DO_RETIRE));
    assert_int_equal(talk_ordered(SYNC_DO_RETIRE)->version, 5);
    assert_non_null(talk_ordered(SYNC_DO_ENCODE));
    assert_int_equal(talk_ordered(SYNC_DO_ENCODE)->version, 5);
    assert_int_equal(sync_own(talk_sync, 0).contributed, 4); /* of these nobody has it */
    assert_int_equal(sync_state(talk_sync, 0), SYNC_ENCODING);
    talk_happens((struct sync_event){.type = SYNC_EV_ENCODED});
    assert_null(talk_sent_to(0));
    for (uint32_t owner = 1; owner < 3; owner++) {
        assert_non_null(talk_sent_to(owner));
        assert_int_equal(talk_sent_to(owner)->key.epoch, 1);
        assert_int_equal(talk_sent_to(owner)->key.owner, roster_id(owner));
        assert_int_equal(talk_sent_to(owner)->key.island, roster_id(3));
    }
    assert_int_equal(sync_own(talk_sync, 0).contributed, 5);
    talk_ends(NULL);
}

/* Not to whose result is carried. */
static void nothing_is_sent_for_a_carried_result(void **state)
{
    (void)state;
    talk_among(4, 3, 3, 4, everyone);
    talk_we_contribute();
    struct config config = talk_draft_with_one('a');
    talk_begin_epoch(&config);
    talk_happens((struct sync_event){.type = SYNC_EV_ENCODED});
    assert_null(talk_sent_to(0));
    assert_non_null(talk_sent_to(1));
    talk_ends(NULL);
}

static void an_epoch_that_begins_while_we_encode_encodes_once_more(void **state)
{
    (void)state;
    talk_among(3, 2, 3, 4, everyone);
    talk_happens((struct sync_event){.type = SYNC_EV_TRAINER_UP, .version = 4});
    talk_happens((struct sync_event){.type = SYNC_EV_SNAPSHOT});
    talk_epoch_later();
    assert_null(talk_ordered(SYNC_DO_ENCODE)); /* one at a time */
    talk_happens((struct sync_event){.type = SYNC_EV_ENCODED});
    assert_null(talk_ordered(SYNC_DO_SEND));
    assert_non_null(talk_ordered(SYNC_DO_ENCODE));
    talk_happens((struct sync_event){.type = SYNC_EV_ENCODED});
    assert_non_null(talk_sent_to(0));
    assert_null(talk_ordered(SYNC_DO_ENCODE));
    /* It is over if the snapshot was refused. */
    talk_ends(NULL);
    talk_among(3, 2, 3, 4, everyone);
    talk_happens((struct sync_event){.type = SYNC_EV_TRAINER_UP, .version = 4});
    talk_happens((struct sync_event){.type = SYNC_EV_SNAPSHOT});
    talk_epoch_later();
    talk_happens((struct sync_event){.type = SYNC_EV_REFUSED});
    talk_happens((struct sync_event){.type = SYNC_EV_SNAPSHOT});
    talk_happens((struct sync_event){.type = SYNC_EV_ENCODED});
    assert_non_null(talk_sent_to(0));
    talk_ends(NULL);
}

static void an_owner_takes_contributions_of_its_epoch(void **state)
{
    (void)state;
    talk_among(3, 0, 1, 4, everyone);
    talk_contributes(1, 5);
    assert_true(bitset_has(&sync_owner(talk_sync, 0)->have, 1));
    talk_epoch_later();
    assert_true(bitset_empty(&sync_owner(talk_sync, 0)->have)); /* it was for other shards */
    struct wire_key key = talk_contribution_key(5, 0, 1);
    assert_int_equal(sync_wants(talk_sync, &key, 1), SYNC_WANT);
    assert_int_equal(sync_wants(talk_sync, &key, 2), SYNC_NOT_NEEDED); /* it is not its own */
    key.epoch = 0;
    assert_int_equal(sync_wants(talk_sync, &key, 1), SYNC_NOT_NEEDED);
    talk_happens((struct sync_event){.type = SYNC_EV_CONTRIBUTION, .member = 1, .version = 5, .epoch = 0});
    talk_happens((struct sync_event){.type = SYNC_EV_CONTRIBUTION, .member = 1, .version = 5, .epoch = 2});
    talk_happens((struct sync_event){.type = SYNC_EV_CONTRIBUTION_REFUSED, .member = 2, .version = 5, .epoch = 0});
    assert_true(bitset_empty(&sync_owner(talk_sync, 0)->have));
    assert_true(bitset_empty(&sync_owner(talk_sync, 0)->refused));
    key.epoch = 2;
    assert_int_equal(sync_wants(talk_sync, &key, 1), SYNC_NOT_YET);
    talk_ends(NULL);
}

/* An owner whose result of a round is on its disk when the seal comes, and is not carried, makes that round anew: a
 * contribution to it that arrives before the owner has learned of the epoch is not refused as one to a round that is
 * over. */
static void a_contribution_of_the_next_epoch_waits_for_it(void **state)
{
    (void)state;
    talk_among(3, 0, 1, 4, (struct owner_rule){.quorum = 1});
    talk_contributes(1, 5);
    talk_happens((struct sync_event){.type = SYNC_EV_REDUCED});
    talk_stored(0, 5, 0);
    assert_int_equal(sync_owner(talk_sync, 0)->round, 6);
    struct wire_key key = talk_contribution_key(5, 0, 1);
    assert_int_equal(sync_wants(talk_sync, &key, 1), SYNC_NOT_NEEDED);
    key.epoch = 1;
    assert_int_equal(sync_wants(talk_sync, &key, 1), SYNC_NOT_YET);
    talk_epoch_later();
    assert_int_equal(sync_owner(talk_sync, 0)->round, 5);
    assert_int_equal(sync_wants(talk_sync, &key, 1), SYNC_WANT);
    talk_ends(NULL);
}

/* ---- an epoch that begins while something else goes on ---- */

static void what_is_being_applied_stands_in_every_epoch(void **state)
{
    (void)state;
    talk_among(3, 2, 1, 4, everyone);
    talk_we_contribute();
    talk_stored(0, 5, 0);
    talk_shows(0, 0);
    assert_int_equal(sync_state(talk_sync, 0), SYNC_APPLYING);
    struct config config = talk_draft();
    configs_start(&config, 0, 5);
    talk_begin_epoch(&config);
    assert_null(talk_ordered(SYNC_DO_ENCODE));
    assert_null(talk_ordered(SYNC_DO_APPLY)); /* once is enough */
    assert_int_equal(sync_state(talk_sync, 0), SYNC_APPLYING);
    talk_applied(5);
    assert_int_equal(sync_own(talk_sync, 0).version, 5);
    assert_int_equal(sync_state(talk_sync, 0), SYNC_MIXING);
    /* Likewise while the trainer takes the anchor in. */
    config = talk_draft();
    talk_begin_epoch(&config);
    assert_null(talk_ordered(SYNC_DO_ENCODE));
    assert_int_equal(sync_state(talk_sync, 0), SYNC_MIXING);
    talk_happens((struct sync_event){.type = SYNC_EV_MIXED});
    assert_int_equal(sync_state(talk_sync, 0), SYNC_IDLE);
    talk_ends(NULL);
}

/* It takes the state, and what belongs to it in the new epoch. */
static void a_repair_goes_on_in_the_new_epoch(void **state)
{
    (void)state;
    talk_among(3, 2, 3, 4, everyone);
    talk_happens((struct sync_event){.type = SYNC_EV_LOST, .member = 0});
    assert_int_equal(sync_state(talk_sync, 0), SYNC_REPAIR);
    struct config config = talk_draft();
    configs_start(&config, 0, 9);
    roster_map(&config, (uint32_t[]){0}, 1);
    talk_begin_epoch(&config);
    assert_null(talk_ordered(SYNC_DO_ENCODE));
    assert_int_equal(sync_state(talk_sync, 0), SYNC_REPAIR);
    const struct version_part *parts;
    assert_int_equal(sync_parts(talk_sync, 0, &parts), 2); /* of version 5 */
    talk_happens((struct sync_event){.type = SYNC_EV_INSTALLED, .version = 9, .hash = talk_hash_named('a', 9)});
    assert_int_equal(sync_state(talk_sync, 0), SYNC_LISTENING);
    assert_int_equal(sync_parts(talk_sync, 0, &parts), 1);
    assert_int_equal(parts[0].id.epoch, 1);
    talk_ends(NULL);
}

/* ---- who makes a result, and who is waited for ---- */

/* One member says that it is far ahead, and what it shows then is below what we have acknowledged. */
static void nobody_goes_back_behind_its_own_version(void **state)
{
    (void)state;
    talk_among(2, 0, 1, 16, everyone);
    talk_is_at(1, 1000000);
    talk_hear(1);
    for (int tries = 0; tries < 20 && sync_state(talk_sync, 0) != SYNC_REPAIR; tries++)
        talk_tick(2500);
    assert_int_equal(sync_state(talk_sync, 0), SYNC_REPAIR);
    talk_is_at(1, 3);
    talk_hear(1);
    talk_tick(60000);
    assert_null(talk_ordered(SYNC_DO_FETCH));
    assert_non_null(talk_ordered(SYNC_DO_REPAIR));
    talk_happens((struct sync_event){.type = SYNC_EV_INSTALLED, .version = 16, .hash = talk_hash_named('a', 16)});
    assert_int_equal(sync_own(talk_sync, 0).version, 16);
    talk_ends(NULL);
}

/* The only one that has what the epoch starts from, and no results that lead there, gives its state. */
static void a_start_that_one_member_has_is_taken_from_it(void **state)
{
    (void)state;
    talk_among(3, 2, 1, 4, everyone);
    struct config config = talk_draft();
    configs_start(&config, 0, 9);
    talk_begin_epoch(&config);
    talk_is_at(0, 9);
    talk_follows(0);
    talk_hear(0);
    for (int tries = 0; tries < 20 && talk_ordered(SYNC_DO_FETCH) == NULL; tries++)
        talk_tick(2500);
    assert_non_null(talk_ordered(SYNC_DO_FETCH));
    struct wire_key key = talk_ordered(SYNC_DO_FETCH)->key;
    talk_happens((struct sync_event){.type = SYNC_EV_NOT_AVAILABLE, .member = 0, .key = key});
    talk_tick(2500);
    const struct sync_action *fetch = talk_ordered(SYNC_DO_FETCH);
    assert_true(fetch != NULL && fetch->key.kind == WIRE_STATE && fetch->key.version == 9 && fetch->member == 0);
    talk_ends(NULL);
}

static void an_owner_behind_its_own_fragment_does_not_close(void **state)
{
    (void)state;
    talk_among(3, 0, 1, 4, everyone);
    talk_contributes(1, 5);
    talk_contributes(2, 5);
    talk_happens((struct sync_event){.type = SYNC_EV_REDUCED});
    talk_stored(0, 5, 0);
    assert_int_equal(sync_owner(talk_sync, 0)->round, 6);
    talk_contributes(1, 6);
    talk_contributes(2, 6);
    talk_tick(10000);
    assert_null(talk_ordered(SYNC_DO_REDUCE)); /* version 5 is not committed: it may be made anew */
    talk_shows(1, 0);
    assert_non_null(talk_ordered(SYNC_DO_APPLY));
    talk_applied(5);
    talk_tick(100);
    assert_non_null(talk_ordered(SYNC_DO_REDUCE));
    talk_ends(NULL);
}

/* Nobody makes results of a part that is somebody else's, or while its disk is in doubt. */
static void who_does_not_vote_makes_no_result(void **state)
{
    (void)state;
    for (int doubt = 0; doubt < 2; doubt++) {
        talk_among(3, 0, 1, 4, everyone);
        struct sync_view view =
            roster_view(talk_config_log, 0, (uint32_t[]){roster_id(0), roster_id(1), roster_id(2)}, 3);
        view.votes = !doubt;
        assert_ok(sync_begin_epoch(talk_sync, &view, talk_now_ms));
        struct sync_action action;
        while (sync_action(talk_sync, &action))
            continue;
        talk_hear(1);
        talk_hear(2);
        talk_contributes(1, 5);
        talk_contributes(2, 5);
        assert_int_equal(talk_ordered(SYNC_DO_REDUCE) != NULL, !doubt);
        talk_stored(0, 5, 1);
        assert_int_equal(talk_held_and_told(0, 0), !doubt); /* nor is its word given */
        talk_shows(1, 0);
        assert_int_equal(talk_ordered(SYNC_DO_APPLY) != NULL, !doubt);
        talk_shows(2, 0);
        assert_int_equal(sync_state(talk_sync, 0), SYNC_APPLYING);
        talk_ends(NULL);
    }
}

static void who_does_not_take_part_is_not_waited_for(void **state)
{
    (void)state;
    talk_among(4, 0, 1, 4, everyone);
    talk_contributes(1, 5);
    talk_contributes(2, 5);
    talk_tick(60000);
    assert_null(talk_ordered(SYNC_DO_REDUCE)); /* without member 3 */
    struct config config = talk_draft();
    configs_start(&config, 0, 4);
    roster_role(&config, 3, CONFIG_AWAY, true);
    talk_begin_epoch(&config);
    talk_contributes(1, 5);
    assert_null(talk_ordered(SYNC_DO_REDUCE));
    talk_contributes(2, 5);
    assert_non_null(talk_ordered(SYNC_DO_REDUCE));
    talk_ends(NULL);
}

/* One that votes and is away has an epoch to itself; one that only contributes pauses, and may never come back. */
static void who_only_contributes_and_is_away_is_not_waited_for(void **state)
{
    (void)state;
    talk_among(3, 0, 1, 4, everyone);
    struct config config = talk_draft();
    configs_start(&config, 0, 4);
    roster_role(&config, 2, CONFIG_CONTRIBUTOR, false);
    talk_begin_epoch(&config);
    talk_contributes(1, 5);
    assert_null(talk_ordered(SYNC_DO_REDUCE)); /* without member 2, which is there */
    talk_goes_away(2);
    talk_tick(10);
    assert_non_null(talk_ordered(SYNC_DO_REDUCE));
    talk_ends(NULL);
}

/* Nor is one that can't hear us, or that hears too few voters to know which version counts. */
static void who_only_contributes_and_is_cut_off_is_not_waited_for(void **state)
{
    (void)state;
    for (uint32_t deaf_to = 0; deaf_to < 2; deaf_to++) {
        talk_among(3, 0, 1, 4, everyone);
        struct config config = talk_draft();
        configs_start(&config, 0, 4);
        roster_role(&config, 2, CONFIG_CONTRIBUTOR, false);
        talk_begin_epoch(&config); /* two vote, so what counts is held by both */
        talk_contributes(1, 5);
        talk_hear(2);
        assert_null(talk_ordered(SYNC_DO_REDUCE));
        talk_does_not_hear(2, deaf_to);
        assert_non_null(talk_ordered(SYNC_DO_REDUCE));
        talk_ends(NULL);
    }
}

/* What it sends counts all the same. */
static void who_does_not_take_part_may_contribute(void **state)
{
    (void)state;
    talk_among(3, 0, 1, 4, everyone);
    struct config config = talk_draft();
    configs_start(&config, 0, 4);
    roster_role(&config, 2, CONFIG_AWAY, true);
    talk_begin_epoch(&config);
    talk_contributes(2, 5);
    assert_true(bitset_has(&sync_owner(talk_sync, 0)->have, 2));
    assert_null(talk_ordered(SYNC_DO_REDUCE)); /* member 1 is missing */
    talk_contributes(1, 5);
    assert_true(bitset_has(&sync_owner(talk_sync, 0)->have, 2));
    assert_non_null(talk_ordered(SYNC_DO_REDUCE));
    talk_ends(NULL);
}

int main(void)
{
    assert_ok(digest_init());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(a_contribution_is_encoded_anew_for_the_new_owners, talk_ends),
        cmocka_unit_test_teardown(nothing_is_sent_for_a_carried_result, talk_ends),
        cmocka_unit_test_teardown(an_epoch_that_begins_while_we_encode_encodes_once_more, talk_ends),
        cmocka_unit_test_teardown(an_owner_takes_contributions_of_its_epoch, talk_ends),
        cmocka_unit_test_teardown(a_contribution_of_the_next_epoch_waits_for_it, talk_ends),
        cmocka_unit_test_teardown(what_is_being_applied_stands_in_every_epoch, talk_ends),
        cmocka_unit_test_teardown(a_repair_goes_on_in_the_new_epoch, talk_ends),
        cmocka_unit_test_teardown(nobody_goes_back_behind_its_own_version, talk_ends),
        cmocka_unit_test_teardown(a_start_that_one_member_has_is_taken_from_it, talk_ends),
        cmocka_unit_test_teardown(an_owner_behind_its_own_fragment_does_not_close, talk_ends),
        cmocka_unit_test_teardown(who_does_not_vote_makes_no_result, talk_ends),
        cmocka_unit_test_teardown(who_does_not_take_part_is_not_waited_for, talk_ends),
        cmocka_unit_test_teardown(who_only_contributes_and_is_away_is_not_waited_for, talk_ends),
        cmocka_unit_test_teardown(who_only_contributes_and_is_cut_off_is_not_waited_for, talk_ends),
        cmocka_unit_test_teardown(who_does_not_take_part_may_contribute, talk_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
