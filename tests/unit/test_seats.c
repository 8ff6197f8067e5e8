/* SPDX-License-Identifier: Apache-2.0 */
/* seats: whom somebody put out of the run stays out as long as its trainer stands, whoever it is that proposes. */
#include "tests/lib/testlib.h"

#include <string.h>

#include "common/digest.h"
#include "common/mem.h"
#include "net/membership/seats.h"
#include "net/membership/wishes.h"
#include "net/membership/wire_epoch.h"
#include "tests/lib/sample_records.h"

enum { A, B, C, ISLANDS };

static struct chain *chain;
static struct view view;
static struct seats seats;
static struct wishes wishes;
static uint64_t now_ms;

static void take_record(struct record record)
{
    struct view_changes changes;
    struct digest digest = records_digest(&record);
    assert_ok(chain_add(chain, &record, &digest));
    assert_ok(view_update(&view, chain_last(chain), &digest, records_ident(A)->key, &changes));
    seats_begin(&seats, now_ms);
    wishes_fulfil(&wishes, &seats, chain_last(chain));
}

/* We are a, and hear the others. */
static void begin(void)
{
    now_ms = 1000;
    assert_ok(chain_new(&chain));
    assert_ok(view_init(NULL, 0, &view));
    assert_ok(seats_init(&view, chain, NULL, &seats));
    memset(&wishes, 0, sizeof wishes);
    take_record(records_first(ISLANDS, false));
    assert_int_equal(view.self, A);
    for (uint32_t i = B; i < ISLANDS; i++)
        seats.seat[i].up = true;
}

static void end(void)
{
    seats_deinit(&seats);
    view_free(&view);
    chain_free(chain);
}

/* What an island's heartbeat says of its trainer, which is at this step. */
static void trains(uint32_t i, uint64_t step)
{
    struct wire_heartbeat beat = {.taking_part = true, .step = step};
    if (i == A)
        seats_said(&seats, &beat, now_ms);
    else
        seats_heard(&seats, i, &beat, now_ms);
}

static void is_away(uint32_t i)
{
    struct record next = records_next(chain_last(chain));
    next.members[i].role = RECORD_AWAY;
    take_record(next);
}

static void who_was_put_out_stays_out_while_its_trainer_stands(void **state)
{
    (void)state;
    for (uint32_t i = A; i < ISLANDS; i++) {
        begin();
        trains(i, 7);
        is_away(i);
        for (uint32_t k = A; k < ISLANDS; k++)
            assert_int_equal(seats_kept_out(&seats, k), k == i);
        now_ms += 1000;
        trains(i, 8); /* on its way before it stood */
        for (int k = 0; k < 60; k++) {
            now_ms += 1000;
            trains(i, 8);
            assert_true(seats_kept_out(&seats, i));
        }
        trains(i, 9);
        assert_false(seats_kept_out(&seats, i));
        end();
    }
}

/* Somebody else, who knows better or less, let it in. */
static void who_is_in_again_is_not_put_out_for_what_was(void **state)
{
    (void)state;
    for (uint32_t i = A; i < ISLANDS; i++) {
        begin();
        trains(i, 7);
        is_away(i);
        assert_true(seats_kept_out(&seats, i));
        struct record next = records_next(chain_last(chain));
        next.members[i].role = RECORD_OWNER;
        take_record(next);
        trains(i, 7);
        assert_false(seats_kept_out(&seats, i));
        end();
    }
}

static bool revocation_asked(uint32_t i)
{
    return seats.seat[i].off.wished;
}

static void tick(uint64_t ms)
{
    now_ms += ms;
    seats.now_ms = now_ms;
    wishes_tick(&wishes, &seats);
}

static void what_nobody_asks_for_any_more_is_forgotten(void **state)
{
    (void)state;
    begin();
    uint32_t b = view.members[B].as.id, c = view.members[C].as.id;
    uint64_t epoch = view.epoch;
    struct record_member newcomer = {.name = "new", .role = RECORD_OBSERVER, .key = {7}};
    tick(0);
    assert_ok(wishes_add(&wishes, &seats, b, WIRE_WISH_REVOKE, c, epoch + 1)); /* of another epoch */
    assert_false(revocation_asked(C));
    assert_ok(wishes_add(&wishes, &seats, b, WIRE_WISH_REVOKE, c, epoch));
    assert_ok(wishes_enrol(&wishes, &seats, chain_last(chain), &newcomer));
    for (int k = 0; k < 20; k++) {
        tick(1000);
        assert_ok(wishes_add(&wishes, &seats, b, WIRE_WISH_REVOKE, c, epoch));
        assert_true(revocation_asked(C));
    }
    assert_int_equal(seats.seat[C].off.since_ms, 1000);
    assert_int_equal(wishes.enrol_count, 0);
    tick(WISHES_TOLD_MS);
    assert_true(revocation_asked(C));
    tick(1);
    assert_false(revocation_asked(C));
    end();
}

/* Whoever asked has to ask again, and does not where it was cut off meanwhile. */
static void what_was_asked_ends_with_its_epoch(void **state)
{
    (void)state;
    begin();
    uint32_t b = view.members[B].as.id, c = view.members[C].as.id;
    assert_ok(wishes_add(&wishes, &seats, b, WIRE_WISH_REVOKE, c, view.epoch));
    assert_ok(wishes_add(&wishes, &seats, b, WIRE_WISH_STEPS, 0, 77));
    assert_true(revocation_asked(C));
    take_record(records_next(chain_last(chain)));
    assert_false(revocation_asked(C));
    assert_int_equal(wishes.steps, 0);
    end();
}

/* Nobody wished it. */
static void who_was_lost_comes_back_at_once(void **state)
{
    (void)state;
    for (uint32_t i = A; i < ISLANDS; i++) {
        begin();
        trains(i, 7);
        bitset_add(&seats.lost, i);
        is_away(i);
        assert_false(seats_kept_out(&seats, i));
        end();
    }
}

/* Whoever was away when the record was made, be it the member itself, has not seen that it was lost. */
static void who_was_lost_unseen_comes_back_at_once(void **state)
{
    (void)state;
    for (uint32_t i = A; i < ISLANDS; i++) {
        begin();
        trains(i, 7);
        struct record next = records_next(chain_last(chain));
        next.members[i].role = RECORD_AWAY;
        next.members[i].losses++;
        take_record(next);
        assert_false(seats_kept_out(&seats, i));
        end();
    }
}

/* One of two owners whose line is cut stands back, when that has lasted: until then one of them may be gone, which the
 * others need time to miss. */
static void an_owner_stands_back_when_it_has_lasted(void **state)
{
    (void)state;
    const struct bitset nobody = {{0}};
    begin();
    uint64_t begun_ms = now_ms;
    bool apart = false;
    for (; !apart && now_ms < begun_ms + 60000; now_ms += 100) {
        struct wire_heartbeat beat = {.taking_part = true, .silent_count = 1, .silent = {view.members[C].as.id}};
        seats_heard(&seats, B, &beat, now_ms);
        seats_tick(&seats, &nobody, now_ms);
        apart = seats_apart(&seats, B) || seats_apart(&seats, C);
    }
    assert_true(apart);
    assert_false(seats_apart(&seats, B) && seats_apart(&seats, C)); /* the run keeps one of them */
    assert_in_range(now_ms - begun_ms, 3000, 4000);
    struct wire_heartbeat beat = {.taking_part = true};
    seats_heard(&seats, B, &beat, now_ms);
    seats_tick(&seats, &nobody, now_ms + 1000);
    assert_false(seats_apart(&seats, B) || seats_apart(&seats, C));
    end();
}

/* Then the one that stayed is gone: at no moment are both out, or nobody would own anything. */
static void nobody_stands_back_for_one_that_is_just_lost(void **state)
{
    (void)state;
    struct bitset deaf = {{0}};
    begin();
    uint64_t begun_ms = now_ms;
    uint32_t stays = VIEW_NOBODY;
    for (; now_ms < begun_ms + 10000; now_ms += 10) {
        for (uint32_t i = B; i <= C; i++) {
            struct wire_heartbeat beat = {
                .taking_part = true, .silent_count = 1, .silent = {view.members[B + C - i].as.id}};
            seats_heard(&seats, i, &beat, now_ms);
        }
        if (now_ms == begun_ms + 5010) {
            stays = seats_apart(&seats, B) ? C : B;
            assert_true(seats_apart(&seats, B + C - stays));
            bitset_add(&deaf, stays);
        }
        seats_tick(&seats, &deaf, now_ms);
        bool lost = stays != VIEW_NOBODY && seats_silent(&seats, stays);
        assert_int_equal(lost, now_ms >= begun_ms + 5010);
        assert_false(lost && seats_apart(&seats, B + C - stays));
    }
    end();
}

/* It makes no result, and what it would acknowledge it cannot keep: as good as lost, to itself as well. */
static void whose_disk_keeps_nothing_is_as_good_as_lost(void **state)
{
    (void)state;
    static const struct voting_disk disk = {.doubt = VOTE_FRESH, .incarnation = 1};
    for (uint32_t i = A; i < ISLANDS; i++) {
        for (int fails = 1; fails >= 0; fails--) {
            struct wire_heartbeat beat = {.taking_part = true, .disk_fails = fails != 0};
            struct muster_wish *all;
            uint32_t count;
            begin();
            seats.disk = &disk;
            if (i == A)
                seats_said(&seats, &beat, now_ms);
            else
                seats_heard(&seats, i, &beat, now_ms);
            assert_int_equal(seats_voters_heard(&seats), ISLANDS);
            assert_int_equal(seats_voters_able(&seats), ISLANDS - fails);
            assert_ok(wishes_gather(&wishes, &seats, false, &all, &count));
            assert_int_equal(count, ISLANDS);
            for (uint32_t k = A; k < ISLANDS; k++)
                assert_int_equal(all[k].silent, k == i && fails != 0);
            mem_free(all);
            end();
        }
    }
}

/* As the member's heartbeat says it of the only fragment there is. */
static void says(uint32_t i, uint64_t version, const struct digest *hash)
{
    static struct wire_heartbeat beat;
    beat = (struct wire_heartbeat){.fragments_count = 1};
    beat.fragments[0] = (struct wire_fragment){.at.version = version, .at.hash_known = hash != NULL};
    if (hash != NULL)
        beat.fragments[0].at.hash = *hash;
    sync_step(seats.sync, &(struct sync_event){.type = SYNC_EV_HEARTBEAT, .member = i, .beat = &beat}, now_ms);
    for (struct sync_action action; sync_action(seats.sync, &action);)
        ;
}

/* The same number is not the same state: of another one nothing goes on. */
static void who_holds_another_state_of_the_version_has_not_caught_up(void **state)
{
    (void)state;
    static const uint32_t shards[] = {1};
    static uint32_t ids[ISLANDS];
    const struct digest run = digest_of("run", 3), own = digest_of("own", 3);
    struct sync_conf conf = {.fragments_count = 1, .shards_counts = shards};
    begin();
    for (uint32_t i = A; i < ISLANDS; i++) {
        ids[i] = view.members[i].as.id;
        bitset_add(&conf.view.members, i);
        bitset_add(&conf.view.keepers, i);
    }
    conf.chain = chain;
    conf.view.epoch = view.epoch;
    conf.view.self = A;
    conf.view.slots = ISLANDS;
    conf.view.ids = ids;
    conf.view.certifying = 2;
    struct sync *sync;
    assert_ok(sync_new(&conf, &sync));
    sync_restore(sync, 0, 0, &run);
    assert_ok(seats_plan_known(&seats, sync, 1));
    sync_step(sync, &(struct sync_event){.type = SYNC_EV_PEER_UP, .member = B}, now_ms);
    says(B, 0, NULL);
    assert_false(seats_caught_up(&seats, B));
    says(B, 0, &own);
    assert_false(seats_caught_up(&seats, B));
    says(B, 0, &run);
    assert_true(seats_caught_up(&seats, B));
    sync_free(sync);
    end();
}

int main(void)
{
    assert_ok(digest_init());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_was_put_out_stays_out_while_its_trainer_stands),
        cmocka_unit_test(who_is_in_again_is_not_put_out_for_what_was),
        cmocka_unit_test(who_was_lost_comes_back_at_once),
        cmocka_unit_test(who_was_lost_unseen_comes_back_at_once),
        cmocka_unit_test(what_nobody_asks_for_any_more_is_forgotten),
        cmocka_unit_test(what_was_asked_ends_with_its_epoch),
        cmocka_unit_test(an_owner_stands_back_when_it_has_lasted),
        cmocka_unit_test(nobody_stands_back_for_one_that_is_just_lost),
        cmocka_unit_test(whose_disk_keeps_nothing_is_as_good_as_lost),
        cmocka_unit_test(who_holds_another_state_of_the_version_has_not_caught_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
