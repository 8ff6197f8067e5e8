/* SPDX-License-Identifier: Apache-2.0 */
/* sync_core: the ring of actions holds all that one event can order, in order, and loses none in silence. */
#include "tests/lib/testlib.h"

#include "net/sync/sync_core.h"
#include "tests/lib/aborts.h"

enum { MEMBERS = 3, FRAGMENTS = 2 };
/* As said above grow_ring(). */
enum { ROOM = FRAGMENTS * (MEMBERS + VERSION_PARTS_MAX + 5) + 1 };

static const uint32_t ids[MEMBERS + 2] = {13, 3, 23, 43, 33};

static struct sync_view view_of(uint32_t members)
{
    struct sync_view view = {.self = 1, .slots = members, .ids = ids, .commit_quorum = 2, .votes = true};
    view.members = view.taking_part = view.keepers = bitset_first(members);
    return view;
}

static struct sync *sync_of_three(void)
{
    static const uint32_t shards_counts[FRAGMENTS] = {8, 8};
    struct sync_conf conf = {.fragments_count = FRAGMENTS, .shards_counts = shards_counts, .view = view_of(MEMBERS)};
    struct sync *sync;
    assert_ok(sync_core_new(&conf, &sync));
    return sync;
}

static void assert_takes(struct sync *sync, uint64_t version)
{
    struct sync_action action;
    assert_true(sync_core_take(sync, &action));
    assert_int_equal(action.type, SYNC_DO_APPLY);
    assert_int_equal(action.version, version);
}

static void the_ring_holds_what_one_event_can_order(void **state)
{
    (void)state;
    struct sync_action action;
    struct sync *sync = sync_of_three();
    uint64_t put = 0, taken = 0;
    for (int turn = 0; turn < 5; turn++) { /* it wraps at another place each time */
        while (put - taken < ROOM)
            sync_core_put_version(sync, SYNC_DO_APPLY, 1, put++);
        for (int k = 0; k < 2 * turn + 1; k++)
            assert_takes(sync, taken++);
    }
    while (taken < put)
        assert_takes(sync, taken++);
    assert_false(sync_core_take(sync, &action));
    sync_core_free(sync);
}

static void put_one_too_many(void *sync)
{
    for (uint64_t i = 0; i <= ROOM; i++)
        sync_core_put_version(sync, SYNC_DO_APPLY, 1, i);
}

/* An action that was dropped would be a round that never ends. */
static void a_ring_that_is_overrun_ends_the_process(void **state)
{
    (void)state;
    struct sync *sync = sync_of_three();
    assert_aborts(put_one_too_many, sync);
    sync_core_free(sync);
}

/* Slots stay, and what was said in them; a slot that gets another member begins anew. */
static void members_come_and_go(void **state)
{
    (void)state;
    struct sync *sync = sync_of_three();
    sync->peers[2].up = true;
    sync->peers[2].fragments[1] = (struct wire_standing){.version = 7, .contributed = 8, .abstained = 3, .said = true};
    sync->peers[2].reports[1].count = 1;
    struct sync_view view = view_of(MEMBERS + 2);
    bitset_remove(&view.members, 0);
    bitset_remove(&view.keepers, 4);
    assert_ok(sync_core_set_view(sync, &view));
    assert_int_equal(sync_core_slot(sync, 43), 3);
    assert_int_equal(sync_core_slot(sync, 13), SYNC_NOBODY);
    assert_false(sync_core_other(sync, 0));
    assert_false(sync_core_other(sync, 1));
    assert_true(sync_core_other(sync, 4));
    assert_null(sync->peers[0].fragments);
    assert_null(sync->peers[4].reports);
    assert_true(sync->peers[2].up);
    assert_int_equal(sync->peers[2].fragments[1].version, 7);
    assert_int_equal(sync->peers[2].fragments[1].contributed, 7); /* it was to other owners */
    assert_int_equal(sync->peers[2].fragments[1].abstained, 3);
    assert_int_equal(sync->peers[2].reports[1].count, 0);
    for (uint64_t i = 0; i < (uint64_t)ROOM + 2 * FRAGMENTS; i++)
        sync_core_put_version(sync, SYNC_DO_APPLY, 1, i);
    for (uint64_t i = 0; i < (uint64_t)ROOM + 2 * FRAGMENTS; i++)
        assert_takes(sync, i);
    static const uint32_t others[MEMBERS] = {13, 3, 53};
    view = view_of(MEMBERS);
    view.ids = others;
    assert_ok(sync_core_set_view(sync, &view));
    assert_false(sync->peers[2].up);
    assert_int_equal(sync->peers[2].fragments[1].version, 0);
    view.self = MEMBERS;
    assert_fails(ERR_ARG, "1 to 1024", sync_core_set_view(sync, &view));
    sync_core_free(sync);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_ring_holds_what_one_event_can_order),
        cmocka_unit_test(a_ring_that_is_overrun_ends_the_process),
        cmocka_unit_test(members_come_and_go),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
