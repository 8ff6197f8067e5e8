/* SPDX-License-Identifier: Apache-2.0 */
/* promise_reports: what members answered to our own ballot, each once, as net/membership/next_config takes it; what
 * makes no sense, or is of another ballot, does not count; and what we hold ourselves. */
#include "tests/lib/testlib.h"

#include <string.h>

#include "common/digest.h"
#include "common/mem.h"
#include "net/membership/promise_reports.h"
#include "tests/lib/roster.h"
#include "tests/lib/talk.h"

enum { FRAGMENTS = 3, SELF = 7, OTHER = 8, THIRD = 9 };

static struct promise_reports *reports;
static struct paxos *paxos;

static void drain(uint64_t *saved)
{
    struct paxos_action action;
    while (paxos_action(paxos, &action))
        if (action.type == PAXOS_DO_SAVE && saved != NULL)
            *saved = action.number;
}

static void promise_of(uint32_t from)
{
    struct paxos_message message = {.type = WIRE_PROMISE, .epoch = 1, .ballot = paxos_ballot(paxos), .sealed = true};
    struct paxos_event event = {.type = PAXOS_EV_MESSAGE, .from = from, .good = true, .message = &message};
    assert_ok(paxos_step(paxos, &event, 2));
    drain(NULL);
}

/* We propose in a ballot. */
static int set_up(void **state)
{
    (void)state;
    static const uint32_t voters[] = {SELF, OTHER, THIRD};
    struct paxos_conf conf = {.self = SELF, .seed = 1, .turn_ms = 1000, .again_ms = 400};
    uint64_t saved = 0;
    assert_ok(paxos_new(&conf, &paxos));
    assert_ok(paxos_begin(paxos, 0, voters, 3, true, NULL, 1));
    assert_ok(paxos_step(paxos, &(struct paxos_event){.type = PAXOS_EV_WANT, .flag = true, .good = true}, 1));
    drain(&saved);
    assert_ok(paxos_step(paxos, &(struct paxos_event){.type = PAXOS_EV_SAVED, .number = saved, .good = true}, 1));
    drain(NULL);
    assert_true(paxos_ballot(paxos) != 0);
    assert_ok(promise_reports_new(&reports));
    assert_ok(promise_reports_reserve(reports, FRAGMENTS));
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    promise_reports_free(reports);
    paxos_free(paxos);
    return 0;
}

/* As it comes in: it owns its memory. */
static struct paxos_message promise(bool sealed, uint64_t ballot, const struct holding *rows, uint32_t rows_count)
{
    uint8_t *bytes;
    size_t count;
    struct paxos_message out = {.type = WIRE_PROMISE, .epoch = 1, .ballot = ballot}, in;
    out.sealed = sealed;
    out.incarnation = 5;
    out.rows = rows;
    out.rows_count = rows_count;
    assert_ok(wire_paxos_pack(&out, &bytes, &count));
    assert_ok(wire_paxos_unpack(WIRE_PROMISE, bytes, count, &in));
    mem_free(bytes);
    return in;
}

static const struct part_result two[] = {{.id.owner = 1, .id.epoch = 0, .shards = 3, .id.digest = {{1}}},
                                         {.id.owner = 2, .id.epoch = 0, .shards = 4, .id.digest = {{2}}}};
static const struct holding all[] = {{.fragment = 0, .version = 4, .hash_known = true},
                                     {.fragment = 1, .version = 5, .hash_known = true, .held = two, .held_count = 2},
                                     {.fragment = 2, .version = 6, .hash_known = true}};

static void answer_to(const struct sync *sync, uint32_t id, bool sealed, uint64_t ballot, const struct holding *rows,
                      uint32_t rows_count)
{
    struct paxos_message in = promise(sealed, ballot, rows, rows_count);
    promise_reports_answer(reports, sync, id, &in);
    wire_paxos_deinit(&in);
}

static void answer(uint32_t id, bool sealed, uint64_t ballot, const struct holding *rows, uint32_t rows_count)
{
    answer_to(NULL, id, sealed, ballot, rows, rows_count);
}

static void an_answer_is_what_compose_takes(void **state)
{
    (void)state;
    uint32_t count;
    answer(OTHER, true, paxos_ballot(paxos), all, FRAGMENTS);
    const struct next_config_answer *got = promise_reports_answered(reports, paxos, &count);
    assert_int_equal(count, 1);
    assert_int_equal(got->id, OTHER);
    assert_int_equal(got->incarnation, 5);
    assert_false(got->sealed); /* it says so; net/membership/paxos has not taken the promise in */
    promise_of(OTHER);
    got = promise_reports_answered(reports, paxos, &count);
    assert_true(got->sealed);
    for (uint32_t f = 0; f < FRAGMENTS; f++) {
        assert_int_equal(got->rows[f].version, 4 + f);
        assert_int_equal(got->rows[f].held_count, f == 1 ? 2 : 0);
    }
    for (int k = 0; k < 2; k++) {
        const struct part_result *result = &got->rows[1].held[k];
        assert_true(result->id.fragment == 1 && result->id.version == 6);
        assert_int_equal(result->id.owner, two[k].id.owner);
        assert_int_equal(result->shards, two[k].shards);
        assert_true(digest_equal(&result->id.digest, &two[k].id.digest));
    }
}

static void each_member_counts_once_and_only_in_this_ballot(void **state)
{
    (void)state;
    uint32_t count;
    struct holding later[FRAGMENTS];
    answer(OTHER, true, paxos_ballot(paxos) + 1, all, FRAGMENTS);
    (void)promise_reports_answered(reports, paxos, &count);
    assert_int_equal(count, 0);
    answer(OTHER, true, paxos_ballot(paxos), all, FRAGMENTS);
    memcpy(later, all, sizeof later);
    later[2].version = 60;
    answer(OTHER, true, paxos_ballot(paxos), later, FRAGMENTS);
    answer(THIRD, true, paxos_ballot(paxos), all, 1);
    const struct next_config_answer *got = promise_reports_answered(reports, paxos, &count);
    assert_int_equal(count, 2);
    assert_int_equal(got[0].rows[2].version, 60);
    assert_int_equal(got[1].rows[0].version, 4);
    assert_int_equal(got[1].rows_count, 1); /* a voter's seal is one, whatever it holds */
    promise_reports_clear(reports);
    (void)promise_reports_answered(reports, paxos, &count);
    assert_int_equal(count, 0);
}

static void what_makes_no_sense_is_passed_over(void **state)
{
    (void)state;
    uint32_t count;
    struct holding rows[FRAGMENTS];
    memcpy(rows, all, sizeof rows);
    rows[2].fragment = FRAGMENTS; /* of another plan */
    answer(OTHER, true, paxos_ballot(paxos), rows, FRAGMENTS);
    (void)promise_reports_answered(reports, paxos, &count);
    assert_int_equal(count, 0);
    /* Who does not vote joins with all of it, and knows what it has. */
    answer(OTHER, false, paxos_ballot(paxos), all, FRAGMENTS - 1);
    memcpy(rows, all, sizeof rows);
    rows[0].hash_known = false;
    answer(OTHER, false, paxos_ballot(paxos), rows, FRAGMENTS);
    (void)promise_reports_answered(reports, paxos, &count);
    assert_int_equal(count, 0);
    answer(OTHER, false, paxos_ballot(paxos), all, FRAGMENTS);
    const struct next_config_answer *got = promise_reports_answered(reports, paxos, &count);
    assert_int_equal(count, 1);
    assert_false(got->sealed);
}

/* The caller reads on in it: a configuration that was accepted lies in the same memory, which is the answer's from then
 * on. */
static void an_answer_stays_whole_for_its_caller(void **state)
{
    (void)state;
    uint32_t count;
    struct paxos_message in = promise(true, paxos_ballot(paxos), all, FRAGMENTS);
    mem_fail_after(0); /* it takes none */
    promise_reports_answer(reports, NULL, OTHER, &in);
    mem_fail_after(-1);
    assert_int_equal(in.rows[1].held[1].shards, 4);
    wire_paxos_deinit(&in);
    const struct next_config_answer *got = promise_reports_answered(reports, paxos, &count);
    assert_int_equal(count, 1);
    assert_int_equal(got->rows[1].held[1].shards, 4);
}

static void what_we_hold_is_told_by_fragment_and_owner(void **state)
{
    (void)state;
    static const uint32_t ids[] = {3, 13}, shards[FRAGMENTS] = {64, 64, 64};
    const struct holding *rows;
    uint32_t count;
    struct config_log *config_log;
    struct sync *sync;
    struct config config = roster_config(2);
    assert_ok(config_log_new(&config_log));
    roster_add(config_log, &config);
    struct sync_conf conf = {.config_log = config_log,
                             .fragments_count = FRAGMENTS,
                             .shards_counts = shards,
                             .view = roster_view(config_log, 0, ids, 2)};
    assert_ok(sync_new(&conf, &sync));
    promise_reports_own(reports, NULL, &rows, &count);
    assert_int_equal(count, 0);
    struct digest hash = digest_of("h", 1);
    for (uint32_t f = 0; f < FRAGMENTS; f++)
        sync_restore(sync, f, 3 + f, &hash);
    struct sync_action action;
    for (int k = 1; k >= 0; k--) {
        sync_step(sync,
                  &(struct sync_event){.type = SYNC_EV_STORED,
                                       .fragment = 1,
                                       .member = SYNC_NOBODY,
                                       .owner = ids[k],
                                       .version = 5,
                                       .hash = digest_of(&ids[k], 4)},
                  10);
        while (sync_action(sync, &action)) {
        }
    }
    promise_reports_own(reports, sync, &rows, &count);
    assert_int_equal(count, FRAGMENTS);
    for (uint32_t f = 0; f < FRAGMENTS; f++) {
        assert_int_equal(rows[f].fragment, f);
        assert_int_equal(rows[f].version, 3 + f);
        assert_true(rows[f].hash_known && digest_equal(&rows[f].hash, &hash));
        assert_int_equal(rows[f].held_count, f == 1 ? 2 : 0);
    }
    for (int k = 0; k < 2; k++) { /* in order of owner, whatever came first */
        struct digest digest = digest_of(&ids[k], 4);
        assert_int_equal(rows[1].held[k].id.owner, ids[k]);
        assert_true(digest_equal(&rows[1].held[k].id.digest, &digest));
    }
    assert_true((rows[1].held[0].shards & rows[1].held[1].shards) == 0);
    sync_free(sync);
    config_log_free(config_log);
}

/* The same version is not the same state: with another one nobody joins, and a voter's seal is one all the same. */
static void who_joins_holds_our_state_of_the_version(void **state)
{
    (void)state;
    static const struct owner_rule everyone = {0};
    uint32_t count;
    talk_among(3, 2, 1, 4, everyone);
    for (int k = 0; k < 2; k++) {
        struct holding row = {.version = 4, .hash_known = true, .hash = talk_said[0].at.hash};
        row.hash.byte[0] ^= (uint8_t)(1 - k);
        promise_reports_free(reports);
        assert_ok(promise_reports_new(&reports));
        assert_ok(promise_reports_reserve(reports, 1));
        answer_to(talk_sync, OTHER, false, paxos_ballot(paxos), &row, 1);
        answer_to(talk_sync, THIRD, true, paxos_ballot(paxos), &row, 1);
        (void)promise_reports_answered(reports, paxos, &count);
        assert_int_equal(count, 1 + k);
    }
    talk_ends(NULL);
}

/* ---- a recovery ---- */

/* Voters 0 to 2; the first has come to version 6, and all have answered. We are the last, at 4, and our disk is in
 * doubt. */
static void all_answer_us(void)
{
    static const struct owner_rule everyone = {0};
    struct holding first = {.version = 6, .hash_known = true}, second = {.version = 4, .hash_known = true};
    talk_among(3, 2, 1, 4, everyone);
    sync_set_votes(talk_sync, false);
    sync_seal(talk_sync);
    talk_is_at(0, 6);
    talk_hear(0);
    talk_hear(1);
    promise_reports_free(reports);
    assert_ok(promise_reports_new(&reports));
    assert_ok(promise_reports_reserve(reports, 1));
    answer(roster_id(0), true, paxos_ballot(paxos), &first, 1);
    answer(roster_id(1), true, paxos_ballot(paxos), &second, 1);
}

static bool all_is_here(void)
{
    return promise_reports_here(reports, paxos, config_log_last(talk_config_log), roster_id(2), talk_sync);
}

/* One who went away after its promise may hold what nobody else does. */
static void who_recovers_waits_for_all_answers(void **state)
{
    (void)state;
    struct holding row = {.version = 4, .hash_known = true};
    all_answer_us();
    promise_reports_clear(reports);
    answer(roster_id(1), true, paxos_ballot(paxos), &row, 1);
    assert_false(all_is_here());
    answer(roster_id(0), true, paxos_ballot(paxos), &row, 1);
    assert_true(all_is_here());
    promise_reports_drop(reports, roster_id(0));
    assert_false(all_is_here());
    answer(roster_id(0), true, paxos_ballot(paxos) - 1, &row, 1);
    assert_false(all_is_here());
    talk_ends(NULL);
}

/* What it fetches is kept at first; before it votes again it has applied it, or its seal would not show it. */
static void who_recovers_has_come_to_what_was_shown(void **state)
{
    (void)state;
    const struct holding *rows;
    uint32_t count;
    all_answer_us();
    bool here = all_is_here();
    for (int t = 0; t < 20 && !here; t++) {
        talk_tick(3000);
        uint64_t next = sync_own(talk_sync, 0).version + 1;
        if (talk_ordered(SYNC_DO_FETCH) != NULL)
            talk_stored(0, talk_ordered(SYNC_DO_FETCH)->key.version, 0);
        if (talk_ordered(SYNC_DO_APPLY) != NULL)
            talk_applied(next);
        here = all_is_here();
    }
    assert_true(here);
    promise_reports_own(reports, talk_sync, &rows, &count);
    assert_int_equal(rows[0].version, 6);
    assert_int_equal(rows[0].reach, 0);
    talk_ends(NULL);
}

/* An empty disk, and version 1 is under way: it has a state before it has the results that others hold. */
static void who_recovers_has_a_state_first(void **state)
{
    (void)state;
    static const struct owner_rule everyone = {0};
    static const struct part_result committed = {.id.owner = 1, .shards = 1, .id.digest = {{7}}};
    const struct holding unknown = {.version = 0}, begun = {.hash_known = true},
                         holding = {.held = &committed, .held_count = 1};
    const struct holding *first[] = {&unknown, &begun, &holding};
    for (size_t k = 0; k < sizeof first / sizeof first[0]; k++) {
        talk_empty = true;
        talk_among(3, 2, 1, 0, everyone);
        sync_set_votes(talk_sync, false);
        sync_seal(talk_sync);
        assert_false(sync_known(talk_sync, 0));
        promise_reports_free(reports);
        assert_ok(promise_reports_new(&reports));
        assert_ok(promise_reports_reserve(reports, 1));
        answer(roster_id(0), true, paxos_ballot(paxos), first[k], 1);
        answer(roster_id(1), true, paxos_ballot(paxos), &unknown, 1);
        assert_int_equal(all_is_here(), k == 0);
        talk_ends(NULL);
    }
}

int main(void)
{
    assert_ok(digest_init());
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(an_answer_is_what_compose_takes),         CASE(each_member_counts_once_and_only_in_this_ballot),
        CASE(what_makes_no_sense_is_passed_over),      CASE(who_joins_holds_our_state_of_the_version),
        CASE(an_answer_stays_whole_for_its_caller),    CASE(what_we_hold_is_told_by_fragment_and_owner),
        CASE(who_recovers_has_come_to_what_was_shown), CASE(who_recovers_waits_for_all_answers),
        CASE(who_recovers_has_a_state_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
