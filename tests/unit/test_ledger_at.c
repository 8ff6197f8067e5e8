/* SPDX-License-Identifier: Apache-2.0 */
/* ledger: how far it reaches: further with every record, and less far when something of it is lost. */
#include "tests/lib/testlib.h"

#include <unistd.h>

#include "common/digest.h"
#include "daemon/state/ledger.h"
#include "tests/lib/ledgers.h"
#include "tests/lib/made.h"

enum { OBJECT_BYTES = 1000, RECORD_BYTES = 48 + OBJECT_BYTES };

static void append(struct ledger *ledger, uint32_t fragment, uint64_t version, uint32_t owner)
{
    uint8_t object[OBJECT_BYTES] = {(uint8_t)version};
    struct result_id key = made_result(fragment, version, 0, owner, object, OBJECT_BYTES);
    assert_ok(ledger_append(ledger, &key, object, sizeof object));
}

static void every_record_reaches_further(void **state)
{
    (void)state;
    const char *folder = testlib_folder("ledger-at");
    struct ledger *ledger = ledgers_open(folder);
    struct ledger_reach reach = {200, 0};
    uint64_t at = ledger_at(ledger);
    assert_true(at > 0);
    for (uint64_t v = 1; v <= 200; v++) { /* over some segments */
        struct ledger_commit commit = {.fragment = 0, .version = v, .parts_count = 1};
        append(ledger, 0, v, 0);
        assert_true(ledger_at(ledger) > at);
        at = ledger_at(ledger);
        append(ledger, 0, v, 0); /* is there */
        assert_int_equal(ledger_at(ledger), at);
        assert_ok(ledger_append_commit(ledger, &commit, false));
        assert_ok(ledger_sync(ledger));
        assert_true(ledger_at(ledger) > at);
        at = ledger_at(ledger);
    }
    assert_true(ledger_stats(ledger).segments > 2);
    assert_ok(ledger_sync(ledger));
    assert_int_equal(ledger_at(ledger), at);
    ledger_prune(ledger, &reach, 1, 0); /* what is let go of was not lost */
    assert_int_equal(ledger_at(ledger), at);
    for (int again = 0; again < 2; again++) {
        ledger_close(ledger);
        ledger = ledgers_open(folder);
        assert_int_equal(ledger_at(ledger), at);
    }
    append(ledger, 0, 201, 0);
    assert_true(ledger_at(ledger) > at);
    ledger_close(ledger);
}

static uint64_t reaches(const char *folder)
{
    struct ledger *ledger = ledgers_open(folder);
    uint64_t at = ledger_at(ledger);
    ledger_close(ledger);
    return at;
}

/* Restored from a copy, emptied, or damaged: it has forgotten what it held. */
static void a_folder_that_has_lost_something_reaches_less_far(void **state)
{
    (void)state;
    const char *folder = testlib_folder("ledger-less");
    struct ledger *ledger = ledgers_open(folder);
    for (uint64_t v = 1; v <= 100; v++)
        append(ledger, 0, v, 0);
    uint64_t at = ledger_at(ledger);
    assert_int_equal(ledger_stats(ledger).segments, 2);
    ledger_close(ledger);
    off_t last = testlib_file_bytes(ledgers_segment(folder, 2));
    assert_int_equal(truncate(ledgers_segment(folder, 2), last - RECORD_BYTES), 0);
    uint64_t less = reaches(folder);
    assert_true(less < at);
    assert_int_equal(unlink(ledgers_segment(folder, 2)), 0);
    assert_true(reaches(folder) < less);
    less = reaches(folder);
    testlib_damage(ledgers_segment(folder, 1), 1); /* put aside: the next file has a higher number, and nothing in it */
    assert_true(reaches(folder) < less);
    /* The one that is begun then is a ledger like any. */
    ledger = ledgers_open(folder);
    append(ledger, 0, 1, 0);
    at = ledger_at(ledger);
    assert_true(at > 0);
    ledger_close(ledger);
    assert_int_equal(reaches(folder), at);
    assert_int_equal(unlink(ledgers_segment(folder, 2)), 0);
    assert_true(reaches(folder) < at);
}

/* One of several whose head is damaged is put aside, and the others stay: that is a loss, too. */
static void a_segment_that_is_put_aside_was_a_loss(void **state)
{
    (void)state;
    const char *folder = testlib_folder("ledger-aside");
    struct ledger *ledger = ledgers_open(folder);
    for (uint64_t v = 1; v <= 100; v++)
        append(ledger, 0, v, 0);
    uint64_t at = ledger_at(ledger);
    ledger_close(ledger);
    testlib_damage(ledgers_segment(folder, 1), 1);
    ledger = ledgers_open(folder);
    assert_true(ledger_at(ledger) < at);
    append(ledger, 0, 101, 0);
    assert_true(ledger_at(ledger) > at);
    ledger_close(ledger);
}

int main(void)
{
    assert_ok(digest_init());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_record_reaches_further),
        cmocka_unit_test(a_folder_that_has_lost_something_reaches_less_far),
        cmocka_unit_test(a_segment_that_is_put_aside_was_a_loss),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
