/* SPDX-License-Identifier: Apache-2.0 */
/* The protocol's core beside a witness, and as one: nothing is asked of it, sent to it or believed of it but that it is
 * there, and it wants nothing. */
#include "tests/lib/talk.h"

#include "common/digest.h"
#include "tests/lib/roster.h"

static const struct owner_rule everyone = {0};
enum { VERSION = 4, LATER_MS = 5000 };

/* Two islands and a witness, of whom we are `self`; the islands own everything. */
static void among_three(uint32_t self)
{
    talk_witness = true;
    talk_among(3, self, 3, VERSION, everyone);
}

static bool fetched(void)
{
    return talk_ordered(SYNC_DO_FETCH) != NULL;
}

static void what_a_witness_says_of_fragments_is_not_believed(void **state)
{
    (void)state;
    among_three(0);
    talk_said[2] = (struct wire_fragment){.at.version = VERSION + 30,
                                          .at.contributed = 99,
                                          .at.hash = talk_hash_named('b', VERSION + 30),
                                          .at.hash_known = true};
    talk_hear(2);
    talk_tick(LATER_MS);
    assert_false(fetched());
    assert_false(sync_heard(talk_sync, 2, 0).said);
    assert_int_equal(sync_version_max(talk_sync, 0), VERSION);
    talk_said[2] = (struct wire_fragment){/* nor that it has another state */
                                          .at.version = VERSION,
                                          .at.hash = talk_hash_named('b', VERSION),
                                          .at.hash_known = true};
    talk_hear(2);
    assert_null(talk_ordered(SYNC_DO_REPLAY));
}

/* A result that is here counts when the other island has it, too: the witness has no copies. */
static void what_a_witness_holds_commits_nothing(void **state)
{
    (void)state;
    among_three(0);
    talk_stored(0, VERSION + 1, 0);
    talk_stored(1, VERSION + 1, 1);
    talk_shows(2, 0);
    talk_shows(2, 1);
    assert_null(talk_ordered(SYNC_DO_APPLY));
    assert_int_equal(sync_uncommitted(talk_sync, 0), 2);
    talk_shows(1, 1);
    struct digest first = talk_result_named('a', 0, VERSION + 1, 0);
    talk_shows_digest(1, 0, &first);
    talk_hear(1);
    assert_int_equal(sync_uncommitted(talk_sync, 0), 0);
}

static void nothing_is_sent_to_a_witness(void **state)
{
    (void)state;
    among_three(0);
    talk_takes_part[1] = false;
    talk_hear(1);
    talk_we_contribute();
    talk_happens((struct sync_event){.type = SYNC_EV_REDUCED});
    talk_stored(0, VERSION + 1, 0);
    assert_non_null(talk_sent_to(1));
    assert_null(talk_sent_to(2));
}

static void nothing_is_asked_of_a_witness(void **state)
{
    (void)state;
    among_three(0);
    talk_goes_away(1);
    sync_want(talk_sync, 0, VERSION + 1, 0, roster_id(1)); /* as a draft wants it, of whoever is up */
    talk_tick(LATER_MS);
    talk_tick(LATER_MS);
    assert_int_equal(talk_asked_for(1), UINT32_MAX);
    talk_comes_up(1);
    talk_is_at(1, VERSION);
    talk_hear(1);
    int asked = 0; /* again and again, of all who may have it in turn */
    for (int k = 0; k < 6; k++) {
        talk_tick(LATER_MS);
        assert_int_not_equal(talk_asked_for(1), 2);
        asked += talk_asked_for(1) == 1;
    }
    assert_true(asked > 1);
}

/* No round waits for it, whatever it says of a trainer. */
static void nobody_waits_for_a_witness(void **state)
{
    (void)state;
    among_three(0);
    talk_takes_part[1] = false;
    talk_takes_part[2] = true;
    talk_hear(1);
    talk_hear(2);
    talk_we_contribute();
    assert_non_null(talk_ordered(SYNC_DO_REDUCE));
}

/* Three islands that differ: two of them are most, and the witness is nobody in this. */
static void a_witness_is_no_party_in_a_dispute(void **state)
{
    (void)state;
    talk_witness = true;
    talk_among(4, 0, 7, VERSION, everyone);
    talk_said[1].at.hash = talk_said[2].at.hash = talk_hash_named('b', VERSION);
    talk_hear(1);
    assert_non_null(talk_ordered(SYNC_DO_REPLAY));
    talk_happens((struct sync_event){.type = SYNC_EV_REPLAYED,
                                     .version = VERSION,
                                     .hash = talk_hash_named('a', VERSION)}); /* our disk confirms us */
    talk_hear(2);
    assert_non_null(talk_reported(SYNC_REPORT_DIVERGED));
}

/* ---- as the witness ---- */

static void a_witness_wants_nothing(void **state)
{
    (void)state;
    among_three(2);
    assert_true(sync_is_witness(talk_sync));
    talk_is_at(0, VERSION + 1);
    talk_is_at(1, VERSION + 40);
    talk_hear(0);
    talk_hear(1);
    for (int k = 0; k < 5; k++) {
        talk_tick(LATER_MS);
        assert_false(fetched());
    }
    sync_want_start(talk_sync, 0, VERSION + 40);
    talk_tick(LATER_MS);
    assert_false(fetched());
    assert_false(sync_known(talk_sync, 0));
    struct wire_key result = talk_result_key(1, 0), contribution = talk_contribution_key(1, 2, 0);
    struct wire_key held = {.kind = WIRE_STATE, .version = VERSION + 40, .island = roster_id(1)};
    assert_int_equal(sync_wants(talk_sync, &result, 0), SYNC_NOT_NEEDED);
    assert_int_equal(sync_wants(talk_sync, &contribution, 0), SYNC_NOT_NEEDED);
    assert_int_equal(sync_wants(talk_sync, &held, 1), SYNC_NOT_NEEDED);
}

/* It has no version of its own: how far the run is, the islands that vote say. */
static void to_a_witness_the_run_is_where_the_voters_are(void **state)
{
    (void)state;
    among_three(2);
    assert_int_equal(sync_version_max(talk_sync, 0), VERSION);
    talk_is_at(1, VERSION + 3);
    talk_hear(1);
    assert_int_equal(sync_version_max(talk_sync, 0), VERSION + 3);
    talk_goes_away(1);
    assert_int_equal(sync_version_max(talk_sync, 0), VERSION);
}

#define CASE(name) cmocka_unit_test_teardown(name, talk_ends)

int main(void)
{
    assert_ok(digest_init());
    const struct CMUnitTest tests[] = {
        CASE(what_a_witness_says_of_fragments_is_not_believed),
        CASE(what_a_witness_holds_commits_nothing),
        CASE(nothing_is_sent_to_a_witness),
        CASE(nothing_is_asked_of_a_witness),
        CASE(nobody_waits_for_a_witness),
        CASE(a_witness_is_no_party_in_a_dispute),
        CASE(a_witness_wants_nothing),
        CASE(to_a_witness_the_run_is_where_the_voters_are),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
