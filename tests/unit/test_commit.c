/* SPDX-License-Identifier: Apache-2.0 */
/* The protocol's core and committed results, each rule alone: what counts when, what a seal forbids, and which results
 * an epoch brings along. tests/sim has the whole of it. */
#include "tests/lib/talk.h"

#include "common/digest.h"
#include "tests/lib/roster.h"
#include "tests/lib/sample_configs.h"

static const struct owner_rule everyone = {0};

/* ---- what counts ---- */

static void nothing_is_applied_before_it_is_committed(void **state)
{
    (void)state;
    talk_among(3, 2, 1, 4, everyone);
    talk_stored(0, 5, 0);
    assert_null(talk_ordered(SYNC_DO_APPLY)); /* who made it has not said that it is on its disk */
    assert_int_equal(sync_uncommitted(talk_sync, 0), 1);
    talk_tick(60000);
    assert_null(talk_ordered(SYNC_DO_APPLY));
    talk_shows(0, 0);
    assert_non_null(talk_ordered(SYNC_DO_APPLY));
    assert_int_equal(talk_ordered(SYNC_DO_APPLY)->version, 5);
    talk_ends(NULL);
    /* Of five voters, two are not enough. */
    talk_among(5, 2, 3, 4, everyone);
    talk_stored(0, 5, 0);
    talk_stored(1, 5, 1);
    talk_shows(0, 0);
    talk_shows(1, 1);
    assert_null(talk_ordered(SYNC_DO_APPLY));
    talk_shows(3, 0);
    assert_null(talk_ordered(SYNC_DO_APPLY)); /* of one part, not of the other */
    talk_shows(0, 1);
    assert_non_null(talk_ordered(SYNC_DO_APPLY));
    talk_ends(NULL);
}

/* Who trains only is as good as nobody, whatever it holds; so is a voter who keeps digests. */
static void only_full_voters_commit(void **state)
{
    (void)state;
    talk_among(4, 3, 1, 4, everyone);
    struct config config = talk_draft();
    configs_start(&config, 0, 4);
    roster_role(&config, 1, CONFIG_CONTRIBUTOR, false);
    roster_role(&config, 3, CONFIG_CONTRIBUTOR, false); /* ourselves */
    talk_begin_epoch(&config);
    for (uint32_t i = 0; i < 3; i++)
        talk_follows(i);
    talk_stored(0, 5, 0);
    talk_shows(1, 0);
    assert_null(talk_ordered(SYNC_DO_APPLY));
    talk_shows(0, 0);
    assert_null(talk_ordered(SYNC_DO_APPLY)); /* our own copy does not count */
    talk_shows(2, 0);
    assert_non_null(talk_ordered(SYNC_DO_APPLY));
    talk_ends(NULL);
}

static void two_results_of_one_owner_do_not_certify_each_other(void **state)
{
    (void)state;
    struct digest other = talk_result_named('b', 0, 5, 0);
    talk_among(3, 2, 1, 4, everyone);
    talk_stored(0, 5, 0);
    talk_shows_digest(0, 0, &other);
    talk_hear(0);
    talk_shows_digest(1, 0, &other);
    talk_hear(1);
    assert_null(talk_ordered(SYNC_DO_APPLY));
    talk_shows(1, 0);
    assert_non_null(talk_ordered(SYNC_DO_APPLY));
    talk_ends(NULL);
}

/* A voter that is a version ahead has the results of ours; unless it is an epoch ahead, too, and has made that version
 * of others than those we know. */
static void who_is_an_epoch_ahead_confirms_nothing(void **state)
{
    (void)state;
    for (uint64_t epoch = 0; epoch < 2; epoch++) {
        talk_among(3, 2, 1, 4, everyone);
        talk_stored(0, 5, 0);
        talk_is_at(1, 5);
        talk_epoch_of[1] = epoch;
        talk_hear(1);
        assert_int_equal(talk_ordered(SYNC_DO_APPLY) != NULL, epoch == 0);
        talk_ends(NULL);
    }
}

/* What was said in another epoch is of other parts. */
static void what_is_held_counts_in_its_epoch_alone(void **state)
{
    (void)state;
    for (uint64_t epoch = 0; epoch < 3; epoch++) {
        talk_among(3, 2, 1, 4, everyone);
        talk_epoch_later();
        talk_stored(0, 5, 0);
        struct digest digest = talk_result_named('a', 0, 5, 1);
        talk_epoch_of[0] = epoch;
        talk_shows_digest(0, 0, &digest);
        talk_said[0].at.contributed = 5;
        talk_hear(0);
        assert_int_equal(talk_ordered(SYNC_DO_APPLY) != NULL, epoch == 1);
        assert_int_equal(sync_heard(talk_sync, 0, 0).contributed, epoch == 1 ? 5 : 0);
        assert_int_equal(sync_heard(talk_sync, 0, 0).version, 4);
        talk_ends(NULL);
    }
    /* Nor does what was said before the epoch began. */
    talk_among(3, 2, 1, 4, everyone);
    talk_shows(0, 0);
    talk_epoch_later();
    struct digest digest = talk_result_named('a', 0, 5, 0);
    talk_happens((struct sync_event){
        .type = SYNC_EV_STORED, .version = 5, .epoch = 1, .owner = roster_id(0), .hash = digest, .member = 0});
    assert_null(talk_ordered(SYNC_DO_APPLY));
    talk_ends(NULL);
}

/* A version at the start of the epoch, or before it, is what the configuration takes for granted. */
static void a_version_before_the_start_needs_no_word(void **state)
{
    (void)state;
    talk_among(3, 2, 3, 4, everyone);
    struct config config = talk_draft();
    configs_start(&config, 0, 6);
    talk_begin_epoch(&config);
    for (uint64_t version = 5; version < 8; version++) {
        uint64_t epoch = version > 6;
        talk_stored_of(0, version, epoch, 0);
        assert_null(talk_ordered(SYNC_DO_APPLY));
        talk_stored_of(1, version, epoch, 1);
        assert_int_equal(talk_ordered(SYNC_DO_APPLY) != NULL, version <= 6);
        if (version <= 6)
            talk_applied(version);
    }
    talk_ends(NULL);
}

/* ---- the seal ---- */

static void after_the_seal_nothing_is_acknowledged(void **state)
{
    (void)state;
    talk_among(3, 2, 3, 4, everyone);
    talk_stored(0, 5, 0);
    assert_true(talk_held_and_told(0, 0));
    sync_seal(talk_sync);
    talk_stored(1, 5, 1);
    assert_true(talk_held_and_told(0, 0));
    assert_true(talk_held_in_silence(1, 0));
    talk_shows(0, 0);
    talk_shows(0, 1);
    assert_null(talk_ordered(SYNC_DO_APPLY)); /* not by our word */
    talk_shows(1, 1);
    assert_non_null(talk_ordered(SYNC_DO_APPLY)); /* but by others' */
    talk_applied(5);
    talk_stored(0, 6, 0);
    assert_true(talk_held_in_silence(0, 0));
    talk_ends(NULL);
}

/* Who is sealed stores only what counts already, or what a configuration is to carry. */
static void after_the_seal_results_are_not_taken_in(void **state)
{
    (void)state;
    talk_among(3, 2, 3, 4, everyone);
    struct wire_key first = talk_result_key(5, 0), second = talk_result_key(5, 1);
    sync_seal(talk_sync);
    assert_int_equal(sync_wants(talk_sync, &first, 0), SYNC_NOT_YET);
    sync_want(talk_sync, 0, 5, 0, roster_id(0));
    assert_int_equal(sync_wants(talk_sync, &first, 0), SYNC_WANT);
    assert_int_equal(sync_wants(talk_sync, &second, 1), SYNC_NOT_YET);
    sync_want(talk_sync, 0, 6, 0, roster_id(1));
    sync_want(talk_sync, 0, 5, 1, roster_id(1));
    sync_want(talk_sync, 0, 5, 0, roster_id(2));
    assert_int_equal(sync_wants(talk_sync, &second, 1), SYNC_NOT_YET);
    talk_is_at(0, 5);
    talk_hear(0);
    assert_int_equal(sync_wants(talk_sync, &second, 1), SYNC_WANT);
    talk_ends(NULL);
    talk_among(3, 2, 3, 4, everyone); /* nor does a seal keep off what the epoch itself starts from */
    struct config config = talk_draft();
    configs_start(&config, 0, 6);
    talk_begin_epoch(&config);
    sync_seal(talk_sync);
    assert_int_equal(sync_wants(talk_sync, &first, 0), SYNC_WANT);
    talk_ends(NULL);
}

/* Voters that have applied the version know all its results committed: of them our word may be given. But a seal is not
 * loosened by the word of one, who may lie: so many have to say so that commit. */
static void what_counts_already_is_acknowledged_after_the_seal(void **state)
{
    (void)state;
    for (int heard_first = 0; heard_first < 2; heard_first++) {
        talk_among(3, 2, 1, 4, everyone);
        sync_seal(talk_sync);
        talk_is_at(0, 1000000);
        talk_hear(0);
        if (!heard_first)
            talk_stored(0, 5, 0);
        talk_is_at(1, 6);
        assert_true(heard_first || talk_held_in_silence(0, 0));
        assert_null(talk_ordered(SYNC_DO_APPLY));
        talk_hear(1);
        if (heard_first)
            talk_stored(0, 5, 0);
        assert_true(talk_held_and_told(0, 0));
        assert_non_null(talk_ordered(SYNC_DO_APPLY));
        talk_applied(5);
        talk_stored(0, 6, 0);
        assert_non_null(talk_ordered(SYNC_DO_APPLY));
        talk_ends(NULL);
    }
    talk_among(3, 2, 1, 4, everyone);
    sync_seal(talk_sync);
    talk_is_at(0, 5);
    talk_epoch_of[0] = 1; /* it made that version of what we do not know */
    talk_hear(0);
    talk_stored(0, 5, 0);
    assert_true(talk_held_in_silence(0, 0));
    talk_ends(NULL);
}

/* Whoever has it need not say so: it may have come after its seal. */
static void what_a_configuration_carries_is_asked_of_everyone(void **state)
{
    (void)state;
    talk_among(4, 3, 1, 4, everyone);
    sync_seal(talk_sync);
    talk_tick(10000);
    assert_int_equal(talk_asked_for(0), UINT32_MAX);
    sync_want(talk_sync, 0, 5, 0, roster_id(0));
    uint64_t asked = 0;
    for (int t = 0; t < 100; t++) {
        talk_tick(100);
        if (talk_asked_for(0) != UINT32_MAX)
            asked |= (uint64_t)1 << talk_asked_for(0);
    }
    assert_int_equal(asked, 7);
    talk_stored(0, 5, 1);
    talk_tick(10000);
    assert_int_equal(talk_asked_for(0), UINT32_MAX);
    talk_ends(NULL);
}

/* What a job makes while the seal comes is named by nobody: it is not stored, and not sent. */
/* An owner made two results of its part, and the configuration is to carry the one that we do not hold. */
static void the_other_result_of_a_part_is_taken_where_a_configuration_wants_it(void **state)
{
    (void)state;
    talk_among(3, 2, 3, 4, everyone);
    struct digest other = talk_result_named('o', 0, 5, 0), none = talk_result_named('n', 0, 5, 0), digest;
    struct wire_key key = talk_result_key(5, 0);
    bool told;
    talk_stored(0, 5, 0);
    sync_seal(talk_sync);
    sync_want_this(talk_sync, 0, 5, 0, roster_id(0), &none);
    sync_want_this(talk_sync, 0, 5, 0, roster_id(0), &other);
    talk_tick(10);
    talk_tick(5000);
    assert_int_not_equal(talk_asked_for(0), UINT32_MAX);
    assert_int_equal(sync_wants(talk_sync, &key, 0), SYNC_WANT);
    struct sync_event stored = {
        .type = SYNC_EV_STORED, .version = 5, .owner = roster_id(0), .hash = none, .member = SYNC_NOBODY};
    talk_happens(stored);
    assert_true(talk_held_and_told(0, 0)); /* still the first one */
    stored.hash = other;
    talk_happens(stored);
    assert_true(talk_held_in_silence(0, 0));
    assert_true(sync_held(talk_sync, 0, 0, &digest, &told) && digest_equal(&digest, &other));
    assert_int_equal(sync_wants(talk_sync, &key, 0), SYNC_HAVE);
    talk_ends(NULL);
}

static void a_result_that_the_seal_overtakes_is_not_published(void **state)
{
    (void)state;
    for (int storing = 0; storing < 2; storing++) {
        talk_among(3, 0, 1, 4, (struct owner_rule){.quorum = 1});
        talk_contributes(1, 5);
        assert_non_null(talk_ordered(SYNC_DO_REDUCE));
        if (storing)
            talk_happens((struct sync_event){.type = SYNC_EV_REDUCED});
        sync_seal(talk_sync);
        if (storing)
            talk_stored(0, 5, 0);
        else
            talk_happens((struct sync_event){.type = SYNC_EV_REDUCED});
        assert_null(talk_ordered(SYNC_DO_STORE));
        assert_null(talk_ordered(SYNC_DO_SEND));
        assert_false(talk_held_and_told(0, 0));
        talk_contributes(2, 5);
        talk_tick(10000);
        assert_null(talk_ordered(SYNC_DO_REDUCE)); /* sealed */
        /* The configuration does not know it: the round is made anew. */
        talk_epoch_later();
        assert_false(talk_held_in_silence(0, 1) || talk_held_and_told(0, 1));
        talk_contributes(1, 5);
        assert_non_null(talk_ordered(SYNC_DO_REDUCE));
        talk_ends(NULL);
    }
}

/* ---- results when an epoch begins ---- */

static void a_carried_result_counts_and_others_are_dropped(void **state)
{
    (void)state;
    talk_among(4, 3, 3, 4, everyone);
    sync_seal(talk_sync);
    talk_stored(0, 5, 0); /* after the seal */
    talk_stored(1, 5, 1);
    struct config config = talk_draft_with_one('a');
    talk_begin_epoch(&config);
    assert_true(talk_held_and_told(0, 0));
    assert_false(talk_held_and_told(1, 0) || talk_held_in_silence(1, 0));
    assert_int_equal(sync_uncommitted(talk_sync, 0), 0);
    struct wire_key old = talk_result_key(5, 1), new = old;
    old.epoch = 0;
    assert_int_equal(sync_wants(talk_sync, &old, 1), SYNC_NOT_NEEDED);
    assert_int_equal(sync_wants(talk_sync, &new, 1), SYNC_WANT);
    new.epoch = 2;
    assert_int_equal(sync_wants(talk_sync, &new, 1), SYNC_NOT_YET); /* that epoch may keep it */
    talk_stored_of(1, 5, 0, 1);
    assert_false(talk_held_and_told(1, 0));
    talk_stored(1, 5, 1);
    assert_int_equal(sync_uncommitted(talk_sync, 0), 1);
    talk_follows(0);
    talk_shows(0, 1);
    assert_null(talk_ordered(SYNC_DO_APPLY));
    talk_follows(1);
    talk_shows(1, 1);
    assert_non_null(talk_ordered(SYNC_DO_APPLY)); /* the carried one needs nobody's word */
    talk_ends(NULL);
}

/* Another result of that owner than the one that the configuration names, whenever it comes. */
static void a_result_that_is_not_the_carried_one_does_not_count(void **state)
{
    (void)state;
    talk_among(3, 2, 1, 4, everyone);
    talk_stored(0, 5, 0);
    struct config config = talk_draft_with_one('b');
    talk_begin_epoch(&config);
    assert_null(talk_ordered(SYNC_DO_APPLY));
    assert_false(talk_held_and_told(0, 0) || talk_held_in_silence(0, 0));
    talk_stored_of(0, 5, 0, 0);
    assert_null(talk_ordered(SYNC_DO_APPLY));
    assert_false(talk_held_and_told(0, 0) || talk_held_in_silence(0, 0));
    struct digest digest = talk_result_named('b', 0, 5, 0);
    talk_happens((struct sync_event){
        .type = SYNC_EV_STORED, .version = 5, .epoch = 0, .owner = roster_id(0), .hash = digest, .member = 0});
    assert_non_null(talk_ordered(SYNC_DO_APPLY));
    talk_ends(NULL);
}

/* An owner whose result is carried, and who owns more in the new epoch: what others show of the carried one is not a
 * result of its new part that it has lost. */
static void a_carried_result_of_ours_is_not_a_lost_one(void **state)
{
    (void)state;
    talk_among(3, 0, 3, 4, everyone);
    talk_stored(0, 5, 0);
    struct config config = talk_draft_with_one('a');
    roster_role(&config, 1, CONFIG_AWAY, true);
    roster_map(&config, (uint32_t[]){0}, 1);
    talk_begin_epoch(&config);
    talk_follows(2);
    struct digest digest = talk_result_named('a', 0, 5, 0);
    talk_shows_digest(2, 0, &digest);
    talk_hear(2);
    talk_contributes(2, 5);
    assert_non_null(talk_ordered(SYNC_DO_REDUCE)); /* member 1 does not take part any more */
    talk_happens((struct sync_event){.type = SYNC_EV_REDUCED});
    assert_non_null(talk_ordered(SYNC_DO_STORE));
    /* Nor is it a reason to ask for it. */
    for (int t = 0; t < 50; t++) {
        talk_tick(100);
        assert_int_equal(talk_asked_for(0), UINT32_MAX);
    }
    talk_ends(NULL);
}

int main(void)
{
    assert_ok(digest_init());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(nothing_is_applied_before_it_is_committed, talk_ends),
        cmocka_unit_test_teardown(only_full_voters_commit, talk_ends),
        cmocka_unit_test_teardown(two_results_of_one_owner_do_not_certify_each_other, talk_ends),
        cmocka_unit_test_teardown(who_is_an_epoch_ahead_confirms_nothing, talk_ends),
        cmocka_unit_test_teardown(what_is_held_counts_in_its_epoch_alone, talk_ends),
        cmocka_unit_test_teardown(a_version_before_the_start_needs_no_word, talk_ends),
        cmocka_unit_test_teardown(after_the_seal_nothing_is_acknowledged, talk_ends),
        cmocka_unit_test_teardown(after_the_seal_results_are_not_taken_in, talk_ends),
        cmocka_unit_test_teardown(what_counts_already_is_acknowledged_after_the_seal, talk_ends),
        cmocka_unit_test_teardown(what_a_configuration_carries_is_asked_of_everyone, talk_ends),
        cmocka_unit_test_teardown(the_other_result_of_a_part_is_taken_where_a_configuration_wants_it, talk_ends),
        cmocka_unit_test_teardown(a_result_that_the_seal_overtakes_is_not_published, talk_ends),
        cmocka_unit_test_teardown(a_carried_result_counts_and_others_are_dropped, talk_ends),
        cmocka_unit_test_teardown(a_result_that_is_not_the_carried_one_does_not_count, talk_ends),
        cmocka_unit_test_teardown(a_carried_result_of_ours_is_not_a_lost_one, talk_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
