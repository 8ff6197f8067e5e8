/* SPDX-License-Identifier: Apache-2.0 */
/* rows: a heartbeat certifies each version that we come to, once, and not while it is open whether it is right. */
#include "tests/lib/talk.h"

#include <string.h>

#include "common/digest.h"
#include "net/config/certificate.h"
#include "net/sync/sync.h"
#include "tests/lib/roster.h"

enum { VERSION = 4 };
static const struct owner_rule everyone = {0};
static struct ident ident;
static struct certificates *certificates;
static struct rows_said said;
static uint32_t refresh;
static struct wire_heartbeat beat;

static void begin(uint32_t self)
{
    talk_among(3, self, 1, VERSION, everyone);
    struct certificates_conf conf = {.config_log = talk_config_log,
                                     .ident = &ident,
                                     .nonce = config_log_last(talk_config_log)->nonce,
                                     .id = roster_id(self),
                                     .fragments_count = 1};
    assert_ok(certificates_new(&conf, &certificates));
    memset(&said, 0xff, sizeof said);
}

static int end(void **state)
{
    certificates_free(certificates);
    return talk_ends(state);
}

/* Our row in the next heartbeat. */
static const struct wire_fragment *row(void)
{
    beat.fragments_count = beat.held_count = 0;
    rows_fill(talk_sync, certificates, 1, &said, &refresh, &beat);
    assert_int_equal(beat.fragments_count, 1);
    return &beat.fragments[0];
}

static bool certificates_for(uint64_t version)
{
    const struct wire_fragment *now = row();
    const struct certificate_subject subject = {
        .nonce = config_log_last(talk_config_log)->nonce, .version = version, .hash = talk_hash_named('a', version)};
    return now->certified && now->at.version == version && certificate_row_good(ident.key, &subject, now->signature);
}

static void each_version_is_certified(void **state)
{
    (void)state;
    begin(2);
    assert_true(certificates_for(VERSION));
    assert_true(certificates_for(VERSION));
    talk_stored(0, VERSION + 1, 0);
    talk_shows(0, 0);
    assert_non_null(talk_ordered(SYNC_DO_APPLY));
    talk_happens((struct sync_event){.type = SYNC_EV_APPLIED, .hash = talk_hash_named('a', VERSION + 1)});
    assert_true(certificates_for(VERSION + 1));
}

static void nothing_is_while_our_state_is_in_doubt(void **state)
{
    (void)state;
    begin(2);
    talk_said[0].at.hash = talk_hash_named('b', VERSION);
    talk_hear(0);
    assert_non_null(talk_ordered(SYNC_DO_REPLAY));
    assert_false(row()->certified);
    talk_happens(
        (struct sync_event){.type = SYNC_EV_REPLAYED, .version = VERSION, .hash = talk_hash_named('a', VERSION)});
    assert_true(certificates_for(VERSION)); /* our disk confirms it */
    talk_said[1].at.hash = talk_hash_named('b', VERSION);
    talk_hear(1);
    assert_int_equal(sync_state(talk_sync, 0), SYNC_REPAIR);
    assert_false(row()->certified);
}

static void without_a_turn_only_changes_are_told_and_what_finds_no_room_is_left(void **state)
{
    (void)state;
    begin(2);
    beat.held_count = 0;
    beat.fragments_count = WIRE_FRAGMENTS_MAX;
    assert_false(rows_fill(talk_sync, NULL, 1, &said, NULL, &beat));
    assert_int_equal(beat.fragments_count, WIRE_FRAGMENTS_MAX);
    beat.fragments_count = 0;
    assert_true(rows_fill(talk_sync, NULL, 1, &said, NULL, &beat));
    assert_int_equal(beat.fragments_count, 1);
    assert_false(beat.fragments[0].certified);
    beat.fragments_count = 0;
    assert_true(rows_fill(talk_sync, NULL, 1, &said, NULL, &beat));
    assert_int_equal(beat.fragments_count, 0);
}

int main(void)
{
    assert_ok(digest_init());
    assert_ok(ident_generate(&ident));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(each_version_is_certified, end),
        cmocka_unit_test_teardown(nothing_is_while_our_state_is_in_doubt, end),
        cmocka_unit_test_teardown(without_a_turn_only_changes_are_told_and_what_finds_no_room_is_left, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
