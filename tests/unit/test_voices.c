/* SPDX-License-Identifier: Apache-2.0 */
/* The protocol's core on whose word is missing, and on owners that break theirs: which voter's voice may be taken for
 * given when a state is taken over, and who is asked for a second result of one part. */
#include "tests/lib/talk.h"

#include "common/digest.h"
#include "tests/lib/roster.h"

static const struct owner_rule everyone = {0};
enum { VERSION = 4 };

/* ---- whose voice is taken for given ---- */

static bool excused(uint32_t member)
{
    return sync_excused(talk_sync, 0, VERSION, member);
}

static void who_can_speak_is_not_excused(void **state)
{
    (void)state;
    talk_among(2, 0, 3, VERSION, everyone);
    assert_false(excused(0));
    assert_false(excused(1));
    talk_is_at(1, VERSION - 2); /* behind: it comes here by results, or by those who can speak */
    talk_hear(1);
    assert_false(excused(1));
}

static void of_two_one_that_lost_its_disk_is(void **state)
{
    (void)state;
    talk_among(2, 0, 3, VERSION, everyone);
    sync_set_votes(talk_sync, false); /* our disk is in doubt */
    assert_true(excused(0));
    assert_false(excused(1));
    sync_set_votes(talk_sync, true);
    talk_said[1] = (struct wire_fragment){.at.version = 0}; /* it has no state */
    talk_hear(1);
    assert_true(excused(1));
    talk_said[1] = (struct wire_fragment){.at.version = VERSION,
                                          .at.hash = talk_hash_named('b', VERSION),
                                          .at.hash_known = true}; /* it has another one */
    talk_hear(1);
    assert_true(excused(1));
    talk_ends(NULL);
    /* A doubt that its heartbeat tells of. */
    talk_among(2, 0, 3, VERSION, everyone);
    struct wire_heartbeat beat = {.taking_part = true, .in_doubt = true, .fragments_count = 1};
    beat.fragments[0] = talk_said[1];
    talk_happens((struct sync_event){.type = SYNC_EV_HEARTBEAT, .member = 1, .beat = &beat});
    assert_true(excused(1));
}

static void a_disk_that_does_not_lead_to_our_state_excuses_us(void **state)
{
    (void)state;
    talk_among(2, 1, 3, VERSION, everyone);
    talk_said[0].at.hash = talk_hash_named('b', VERSION);
    talk_hear(0);
    assert_non_null(talk_ordered(SYNC_DO_REPLAY));
    assert_false(excused(1));
    talk_happens((struct sync_event){.type = SYNC_EV_UNPROVEN, .version = VERSION});
    assert_true(excused(1));
    talk_ends(NULL);
    /* One that does: we hold what we made, and who says otherwise needs a majority without us. */
    talk_among(2, 1, 3, VERSION, everyone);
    talk_said[0].at.hash = talk_hash_named('b', VERSION);
    talk_hear(0);
    talk_happens(
        (struct sync_event){.type = SYNC_EV_REPLAYED, .version = VERSION, .hash = talk_hash_named('a', VERSION)});
    assert_false(excused(1));
    talk_now_ms += 40000;
    talk_hear(0);
    assert_int_equal(sync_state(talk_sync, 0), SYNC_REPAIR); /* it gives way, as of two one has to */
    assert_true(excused(1));
}

/* Its own state is wrong, and the other has gone on by results that it holds, too: it cannot apply them, and of the
 * next version it has no voice. Of one beyond, nothing shows here that there is one. */
static void who_repairs_is_excused_of_the_version_whose_results_it_holds(void **state)
{
    (void)state;
    talk_among(2, 1, 3, VERSION, everyone);
    talk_said[0].at.hash = talk_hash_named('b', VERSION);
    talk_hear(0);
    talk_happens(
        (struct sync_event){.type = SYNC_EV_REPLAYED, .version = VERSION, .hash = talk_hash_named('a', VERSION)});
    talk_now_ms += 40000;
    talk_hear(0);
    assert_int_equal(sync_state(talk_sync, 0), SYNC_REPAIR);
    talk_is_at(0, VERSION + 1);
    talk_hear(0);
    assert_false(sync_excused(talk_sync, 0, VERSION + 1, 1));
    talk_stored(0, VERSION + 1, 0);
    assert_false(sync_excused(talk_sync, 0, VERSION + 1, 1));
    talk_stored(1, VERSION + 1, 0);
    assert_true(sync_excused(talk_sync, 0, VERSION + 1, 1));
    assert_false(sync_excused(talk_sync, 0, VERSION + 2, 1));
}

/* Where the others that are there can make up a majority, one of them alone is not believed. */
static void nobody_is_excused_while_the_others_are_enough(void **state)
{
    (void)state;
    talk_among(3, 0, 7, VERSION, everyone);
    sync_set_votes(talk_sync, false);
    assert_false(excused(0));
    talk_said[2] = (struct wire_fragment){.at.version = 0};
    talk_hear(2);
    assert_true(excused(0)); /* it has nothing to certify, either */
    talk_is_at(2, VERSION - 1);
    talk_hear(2);
    assert_true(excused(0)); /* it has not come so far */
    talk_is_at(2, VERSION + 1);
    talk_hear(2);
    assert_false(excused(0));
    talk_goes_away(2);
    assert_true(excused(0));
}

static void who_does_not_vote_is_never_excused(void **state)
{
    (void)state;
    static const uint32_t two[] = {0, 1};
    talk_among(3, 0, 7, VERSION, everyone);
    struct config config = talk_draft();
    roster_map(&config, two, 2);
    for (uint32_t i = 0; i < config.members_count; i++)
        if (config.members[i].id == roster_id(2)) {
            config.members[i].role = CONFIG_CONTRIBUTOR;
            config.members[i].voter = false;
        }
    talk_begin_epoch(&config);
    talk_said[2] = (struct wire_fragment){.at.version = 0};
    talk_follows(2);
    talk_hear(2);
    assert_false(excused(2));
}

/* ---- two results of one part ---- */

static struct digest other_result(uint32_t owner)
{
    return talk_result_named('b', owner, VERSION + 1, 0);
}

static void a_second_one_comes(uint32_t from, const struct digest *digest)
{
    talk_happens((struct sync_event){
        .type = SYNC_EV_STORED, .version = VERSION + 1, .owner = roster_id(0), .hash = *digest, .member = from});
}

static void a_second_result_of_a_part_is_fetched(void **state)
{
    (void)state;
    talk_among(4, 3, 1, VERSION, everyone);
    struct wire_key key = talk_result_key(VERSION + 1, 0);
    struct digest other = other_result(0);
    talk_stored(0, VERSION + 1, 0);
    talk_shows(1, 0); /* the same */
    talk_tick(100);
    assert_null(talk_ordered(SYNC_DO_FETCH));
    assert_int_equal(sync_wants(talk_sync, &key, 2), SYNC_HAVE);
    talk_shows_digest(2, 0, &other);
    talk_hear(2);
    talk_tick(100);
    const struct sync_action *fetch = talk_ordered(SYNC_DO_FETCH);
    assert_non_null(fetch);
    assert_int_equal(fetch->member, 2);
    assert_true(wire_key_equal(&fetch->key, &key));
    assert_int_equal(sync_wants(talk_sync, &key, 2), SYNC_WANT);
    assert_int_equal(sync_wants(talk_sync, &key, 1), SYNC_HAVE);
    assert_int_equal(sync_wants(talk_sync, &key, 0), SYNC_HAVE);
    a_second_one_comes(2, &other);
    talk_tick(60000);
    assert_null(talk_ordered(SYNC_DO_FETCH));
    assert_int_equal(sync_wants(talk_sync, &key, 2), SYNC_HAVE);
    /* It is in the ledger, and the one that we hold stays. */
    const struct version_part *parts;
    struct digest held, ours = talk_result_named('a', 0, VERSION + 1, 0);
    bool told;
    sync_parts(talk_sync, 0, &parts);
    assert_true(sync_held(talk_sync, 0, 0, &held, &told));
    assert_true(digest_equal(&held, &ours));
}

/* A request is lost, or who is asked cannot answer: where two results split the voters evenly nothing else would ever
 * come. */
static void a_second_result_is_asked_for_until_it_comes(void **state)
{
    (void)state;
    talk_among(5, 4, 1, VERSION, everyone);
    struct wire_key key = talk_result_key(VERSION + 1, 0);
    struct digest other = other_result(0);
    talk_stored(0, VERSION + 1, 0);
    for (uint32_t i = 1; i < 4; i++) {
        talk_shows_digest(i, 0, &other);
        talk_hear(i);
    }
    for (uint32_t round = 0; round < 2; round++)
        for (uint32_t i = 1; i < 4; i++) {
            talk_tick(round == 0 && i == 1 ? 100 : 2000);
            assert_int_equal(talk_asked_for(0), i);
            assert_int_equal(sync_wants(talk_sync, &key, i), SYNC_WANT);
            talk_tick(1900);
            assert_null(talk_ordered(SYNC_DO_FETCH));
        }
    talk_goes_away(2); /* is not asked */
    talk_tick(2000);
    assert_int_equal(talk_asked_for(0), 1);
    talk_tick(2000);
    assert_int_equal(talk_asked_for(0), 3);
    talk_happens((struct sync_event){.type = SYNC_EV_NOT_AVAILABLE, .member = 3, .key = key});
    talk_tick(2000);
    assert_int_equal(talk_asked_for(0), 1);
    a_second_one_comes(1, &other);
    talk_tick(60000);
    assert_null(talk_ordered(SYNC_DO_FETCH));
}

static void one_of_another_version_or_part_is_no_second_one(void **state)
{
    (void)state;
    talk_among(4, 3, 3, VERSION, everyone);
    struct digest other = other_result(0);
    talk_stored(0, VERSION + 1, 0);
    talk_is_at(2, VERSION + 1);
    talk_shows_digest(2, 0, &other); /* of version + 2 */
    talk_hear(2);
    talk_tick(100);
    assert_true(talk_ordered(SYNC_DO_FETCH) == NULL || talk_asked_for(0) == UINT32_MAX);
    talk_is_at(1, VERSION);
    talk_shows_digest(1, 1, &other); /* of a part that we do not have */
    talk_hear(1);
    talk_tick(100);
    assert_int_equal(talk_asked_for(0), UINT32_MAX);
}

#define CASE(name) cmocka_unit_test_teardown(name, talk_ends)
int main(void)
{
    assert_ok(digest_init());
    const struct CMUnitTest tests[] = {
        CASE(who_can_speak_is_not_excused),
        CASE(of_two_one_that_lost_its_disk_is),
        CASE(a_disk_that_does_not_lead_to_our_state_excuses_us),
        CASE(who_repairs_is_excused_of_the_version_whose_results_it_holds),
        CASE(nobody_is_excused_while_the_others_are_enough),
        CASE(who_does_not_vote_is_never_excused),
        CASE(a_second_result_of_a_part_is_fetched),
        CASE(a_second_result_is_asked_for_until_it_comes),
        CASE(one_of_another_version_or_part_is_no_second_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
