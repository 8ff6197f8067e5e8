/* sync_core: the ring of actions holds all that one event can order, in order, and loses none in silence. */
#include "tests/lib/testlib.h"

#include "net/sync_core.h"
#include "tests/lib/aborts.h"

enum { MEMBERS = 3, FRAGMENTS = 2 };
/* As drawn above ring_room(). */
enum { ROOM = FRAGMENTS * (MEMBERS + 5) + 1 };

static struct sync *sync_of_three(void)
{
    const struct bitset shards[FRAGMENTS] = {bitset_first(MEMBERS), bitset_first(MEMBERS)};
    struct sync_conf conf = {.self = 1, .members_count = MEMBERS, .fragments_count = FRAGMENTS, .shards = shards};
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_ring_holds_what_one_event_can_order),
        cmocka_unit_test(a_ring_that_is_overrun_ends_the_process),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
