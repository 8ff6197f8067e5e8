/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a draft rests on and we cannot apply: it is fetched and kept, however far beyond our version, and counts nowhere
 * before a configuration is decided that starts there. tests/sim has the whole of it.
 */
#include "tests/lib/talk.h"

#include "common/digest.h"
#include "net/membership/promise_reports.h"
#include "tests/lib/roster.h"
#include "tests/lib/sample_configs.h"

static const struct owner_rule everyone = {0};
enum { LATER_MS = 3000 };

/* One of three; another can be heard, one cannot; sealed, and nothing of the next version is here. */
static void sealed_at(uint64_t version)
{
    talk_among(3, 2, 1, version, everyone);
    talk_goes_away(1);
    sync_seal(talk_sync);
}

/* Somebody proposes that the next epoch starts there, and says that it has come to it. */
static void draft_starts_at(uint64_t version)
{
    talk_is_at(0, version);
    talk_hear(0);
    sync_want_start(talk_sync, 0, version);
    talk_tick(LATER_MS);
}

static void config_starts_at(uint64_t version)
{
    struct config config = talk_draft();
    configs_start(&config, 0, version);
    talk_begin_epoch(&config);
}

/* Of what we alone hold nothing is certain, whatever is proposed. */
static void a_draft_commits_nothing(void **state)
{
    (void)state;
    for (uint64_t start = 5; start <= 1000; start += 995) {
        talk_among(3, 2, 7, 4, everyone);
        for (uint32_t owner = 0; owner < 3; owner++)
            talk_stored(owner, 5, owner);
        sync_want_start(talk_sync, 0, start);
        for (int t = 0; t < 100; t++) {
            talk_tick(100);
            assert_null(talk_ordered(SYNC_DO_APPLY));
            assert_int_not_equal(sync_state(talk_sync, 0), SYNC_REPAIR);
        }
        assert_int_equal(sync_uncommitted(talk_sync, 0), 3);
        assert_int_equal(sync_reach(talk_sync, 0), 5);
        talk_ends(NULL);
    }
}

static void what_it_starts_from_is_fetched_and_applied_once_it_is_decided(void **state)
{
    (void)state;
    sealed_at(4);
    draft_starts_at(5);
    assert_int_equal(talk_asked_for(0), 0);
    assert_int_equal(sync_reach(talk_sync, 0), 4);
    struct wire_key key = talk_result_key(5, 0);
    assert_int_equal(sync_wants(talk_sync, &key, 0), SYNC_WANT);
    talk_stored(0, 5, 0);
    talk_tick(LATER_MS);
    assert_null(talk_ordered(SYNC_DO_APPLY));
    assert_true(talk_held_in_silence(0, 0));
    assert_int_equal(sync_reach(talk_sync, 0), 5);
    assert_int_equal(sync_own(talk_sync, 0).version, 4);
    config_starts_at(5);
    assert_non_null(talk_ordered(SYNC_DO_APPLY));
    talk_applied(5);
    assert_int_equal(sync_own(talk_sync, 0).version, 5);
    talk_ends(NULL);
}

/* One version after the other, though none of them can be applied yet. */
static void so_is_what_lies_further_on(void **state)
{
    (void)state;
    sealed_at(4);
    draft_starts_at(7);
    for (uint64_t version = 5; version <= 7; version++) {
        struct wire_key key = talk_result_key(version, 0);
        assert_int_equal(talk_asked_for(0), 0);
        assert_int_equal(talk_ordered(SYNC_DO_FETCH)->key.version, version);
        assert_int_equal(sync_wants(talk_sync, &key, 0), SYNC_WANT);
        talk_stored(0, version, 0);
        assert_int_equal(sync_reach(talk_sync, 0), version);
        assert_null(talk_ordered(SYNC_DO_APPLY));
        talk_tick(LATER_MS);
    }
    assert_int_equal(talk_asked_for(0), UINT32_MAX); /* no further than it starts */
    config_starts_at(7);
    for (uint64_t version = 5; version <= 7; version++) {
        assert_non_null(talk_ordered(SYNC_DO_APPLY));
        talk_applied(version);
        talk_stored_of(0, version + 1, 0, SYNC_NOBODY); /* as the ledger has it */
    }
    assert_int_equal(sync_own(talk_sync, 0).version, 7);
    talk_ends(NULL);
}

/* Two hold them all: neither brings all of them. */
static void those_that_hold_it_are_asked_in_turn(void **state)
{
    (void)state;
    uint32_t asked[2] = {0};
    talk_among(3, 2, 1, 4, everyone);
    for (uint32_t i = 0; i < 2; i++) {
        talk_is_at(i, 9);
        talk_hear(i);
    }
    sync_seal(talk_sync);
    sync_want_start(talk_sync, 0, 9);
    for (uint64_t version = 5; version <= 9; version++) {
        talk_tick(LATER_MS);
        const struct sync_action *fetch = talk_ordered(SYNC_DO_FETCH);
        assert_non_null(fetch);
        assert_int_equal(fetch->key.version, version);
        assert_in_range(fetch->member, 0, 1);
        asked[fetch->member] += version > 5;
        talk_stored_of(0, version, 0, fetch->member);
    }
    assert_int_equal(asked[0], 2);
    assert_int_equal(asked[1], 2);
    talk_ends(NULL);
}

static bool keeps_beyond(const struct digest *digest)
{
    const struct version_part *parts;
    struct digest kept;
    uint32_t count = sync_reach_parts(talk_sync, 0, &parts);
    for (uint32_t p = 0; p < count; p++)
        if (sync_reach_held(talk_sync, 0, p, &kept) && digest_equal(&kept, digest))
            return true;
    return false;
}

static void so_is_what_it_carries_beyond_its_start(void **state)
{
    (void)state;
    sealed_at(4);
    draft_starts_at(5);
    talk_stored(0, 5, 0);
    talk_tick(LATER_MS);
    assert_int_equal(talk_asked_for(0), UINT32_MAX);
    struct digest one = talk_result_named('o', 0, 6, 0);
    sync_want_this(talk_sync, 0, 6, 0, roster_id(0), &one);
    talk_tick(1);
    assert_int_equal(talk_asked_for(0), 0);
    assert_false(keeps_beyond(&one));
    talk_happens(
        (struct sync_event){.type = SYNC_EV_STORED, .version = 6, .owner = roster_id(0), .member = 0, .hash = one});
    assert_true(keeps_beyond(&one));
    /* Two of its owner's: the one that is proposed takes the other's place. */
    struct digest other = talk_result_named('p', 0, 6, 0);
    sync_want_this(talk_sync, 0, 6, 0, roster_id(0), &other);
    assert_false(keeps_beyond(&other));
    talk_tick(LATER_MS);
    assert_int_equal(talk_asked_for(0), 0);
    talk_happens(
        (struct sync_event){.type = SYNC_EV_STORED, .version = 6, .owner = roster_id(0), .member = 0, .hash = other});
    assert_true(keeps_beyond(&other));
    talk_ends(NULL);
}

/* To who composes it, all that is needed is here. */
static void an_answer_names_how_far_the_bytes_lead(void **state)
{
    (void)state;
    struct promise_reports *reports;
    const struct holding *rows;
    uint32_t count;
    assert_ok(promise_reports_new(&reports));
    assert_ok(promise_reports_reserve(reports, 1));
    sealed_at(4);
    draft_starts_at(5);
    talk_stored(0, 5, 0);
    sync_want(talk_sync, 0, 6, 0, roster_id(0));
    talk_stored(0, 6, 0);
    promise_reports_own(reports, talk_sync, &rows, &count);
    assert_int_equal(count, 1);
    assert_int_equal(rows[0].version, 4); /* that is what our seal says of what counts */
    assert_int_equal(rows[0].held_count, 1);
    assert_int_equal(rows[0].reach, 5);
    assert_int_equal(rows[0].beyond_count, 1);
    struct digest kept;
    assert_true(sync_reach_held(talk_sync, 0, 0, &kept));
    assert_true(digest_equal(&rows[0].beyond[0].id.digest, &kept));
    sync_want_start(talk_sync, 0, 4); /* another draft, which may carry what this one took for granted */
    promise_reports_own(reports, talk_sync, &rows, &count);
    assert_int_equal(rows[0].reach, 0);
    assert_int_equal(rows[0].held_count, 1);
    promise_reports_free(reports);
    talk_ends(NULL);
}

/* Who is silent, or has none, is followed by the next. */
static void each_who_may_have_it_is_asked_in_turn(void **state)
{
    (void)state;
    talk_among(4, 3, 1, 4, everyone);
    sync_seal(talk_sync);
    talk_stored(0, 5, 0);
    uint64_t asked = 0;
    for (uint32_t i = 0; i < 2; i++) { /* the third is not so far */
        talk_is_at(i, 6);
        talk_hear(i);
    }
    if (sync_own(talk_sync, 0).version > 4 || talk_ordered(SYNC_DO_APPLY) != NULL)
        fail(); /* two of four are not enough, so it is to be kept */
    sync_want_start(talk_sync, 0, 6);
    for (int t = 0; t < 100; t++) {
        talk_tick(100);
        if (talk_asked_for(0) != UINT32_MAX)
            asked |= (uint64_t)1 << talk_asked_for(0);
        if (t == 50) {
            struct wire_key key = talk_result_key(6, 0);
            talk_happens((struct sync_event){.type = SYNC_EV_NOT_AVAILABLE, .member = 0, .key = key});
        }
    }
    assert_int_equal(asked, 3);
    struct wire_key key = talk_result_key(6, 0);
    assert_int_equal(sync_wants(talk_sync, &key, 1), SYNC_WANT);
    assert_int_equal(sync_wants(talk_sync, &key, 2), SYNC_NOT_YET); /* it was not asked */
    talk_ends(NULL);
}

/* Its results are in no ledger any more, so that a state has to do: where as many as commit have said that they came
 * so far, though most of them are gone; not because one says so, and somebody proposes it. */
static void where_nobody_has_it_any_more_a_state_is_taken(void **state)
{
    (void)state;
    for (int others = 0; others < 3; others++) {
        bool fetches = false;
        talk_among(5, 2, 1, 4, everyone);
        for (int k = 0; k < 2; k++) {
            uint32_t member = k == 0 ? 1 : 3;
            if (k < others) {
                talk_is_at(member, 8);
                talk_hear(member);
            }
            talk_goes_away(member);
        }
        sync_seal(talk_sync);
        talk_is_at(0, 8);
        talk_hear(0);
        talk_hear(4);
        for (int t = 0; t < 600 && !fetches; t++) {
            sync_want_start(talk_sync, 0, 8);
            talk_tick(100);
            const struct sync_action *fetch = talk_ordered(SYNC_DO_FETCH);
            if (fetch == NULL)
                continue;
            struct sync_action asked = *fetch;
            fetches = asked.key.kind == WIRE_STATE;
            assert_int_equal(asked.member, 0);
            if (!fetches)
                talk_happens(
                    (struct sync_event){.type = SYNC_EV_NOT_AVAILABLE, .member = asked.member, .key = asked.key});
        }
        assert_int_equal(fetches, others == 2);
        talk_ends(NULL);
    }
}

/* Most disks were in doubt, and all voters have been asked: what one of them showed counts, and is applied, so that the
 * next seal shows it. */
static void what_is_taken_over_from_all_voters_counts(void **state)
{
    (void)state;
    sealed_at(4);
    sync_set_votes(talk_sync, false);
    talk_is_at(0, 6);
    talk_hear(0);
    sync_take_over(talk_sync, 0, 6);
    for (uint64_t version = 5; version <= 6; version++) {
        talk_tick(LATER_MS);
        assert_int_equal(talk_asked_for(0), 0);
        talk_stored(0, version, 0);
        assert_non_null(talk_ordered(SYNC_DO_APPLY));
        talk_applied(version);
    }
    assert_int_equal(sync_own(talk_sync, 0).version, 6);
    assert_int_equal(sync_reach(talk_sync, 0), 6);
    talk_ends(NULL);
}

int main(void)
{
    assert_ok(digest_init());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(a_draft_commits_nothing, talk_ends),
        cmocka_unit_test_teardown(what_it_starts_from_is_fetched_and_applied_once_it_is_decided, talk_ends),
        cmocka_unit_test_teardown(so_is_what_lies_further_on, talk_ends),
        cmocka_unit_test_teardown(those_that_hold_it_are_asked_in_turn, talk_ends),
        cmocka_unit_test_teardown(so_is_what_it_carries_beyond_its_start, talk_ends),
        cmocka_unit_test_teardown(an_answer_names_how_far_the_bytes_lead, talk_ends),
        cmocka_unit_test_teardown(where_nobody_has_it_any_more_a_state_is_taken, talk_ends),
        cmocka_unit_test_teardown(what_is_taken_over_from_all_voters_counts, talk_ends),
        cmocka_unit_test_teardown(each_who_may_have_it_is_asked_in_turn, talk_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
