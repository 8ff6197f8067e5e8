/* SPDX-License-Identifier: Apache-2.0 */
/* event: the queue between the parts and the engine loses nothing, doubles nothing and keeps the order. */
#include "tests/lib/testlib.h"

#include <string.h>

#include "daemon/event.h"
#include "net/config/config_log.h"
#include "tests/lib/aborts.h"
#include "tests/lib/outofmem.h"

static struct events *queue(void)
{
    struct events *events;
    assert_ok(events_new(&events));
    return events;
}

/* An event that says which one it is. */
static void post_number(struct events *events, uint32_t number)
{
    event_post(events, &(struct event){.type = EVENT_FILL, .fragment = number, .member = ~number});
}

static void assert_number(struct events *events, uint32_t number)
{
    struct event event;
    assert_true(event_take(events, &event));
    assert_int_equal(event.type, EVENT_FILL);
    assert_int_equal(event.fragment, number);
    assert_int_equal(event.member, ~number);
}

static void assert_empty(struct events *events)
{
    struct event event;
    assert_false(event_take(events, &event));
}

static void what_a_part_says_arrives_whole(void **state)
{
    (void)state;
    struct events *events = queue();
    struct event out;
    const uint64_t shards = UINT64_MAX - 5;
    const struct wire_key key = {.kind = WIRE_STATE, .fragment = 4, .version = UINT64_MAX, .owner = 5, .island = 6};
    const struct digest hash = digest_of("hash", 4);
    assert_empty(events);
    event_post(events, &(struct event){.type = EVENT_COUNTED, .fragment = 1, .shards = shards});
    event_post(events,
               &(struct event){.type = EVENT_OBJECT, .member = 2, .object = {.key = key, .bytes = (uint64_t)1 << 40}});
    event_post(events, &(struct event){.type = EVENT_JUDGED, .object = {.key = key, .done = WIRE_REFUSED}});
    event_post(events, &(struct event){.type = EVENT_STARTED, .start = {.initial = true, .hash = hash}});
    event_post(events, &(struct event){.type = EVENT_ENCODED, .err = ERR_NONFINITE});
    event_post_sync(
        events, &(struct sync_event){
                    .type = SYNC_EV_NOT_AVAILABLE, .fragment = 7, .owner = 8, .member = 9, .hash = hash, .key = key});
    assert_true(event_take(events, &out));
    assert_true(out.type == EVENT_COUNTED && out.fragment == 1);
    assert_true(out.shards == shards);
    assert_true(event_take(events, &out));
    assert_true(out.type == EVENT_OBJECT && out.member == 2 && out.object.bytes == (uint64_t)1 << 40);
    assert_true(wire_key_equal(&out.object.key, &key));
    assert_true(event_take(events, &out));
    assert_true(out.type == EVENT_JUDGED && out.object.done == WIRE_REFUSED);
    assert_true(wire_key_equal(&out.object.key, &key));
    assert_true(event_take(events, &out));
    assert_true(out.type == EVENT_STARTED && out.start.initial && digest_equal(&out.start.hash, &hash));
    assert_true(event_take(events, &out));
    assert_true(out.type == EVENT_ENCODED && out.err == ERR_NONFINITE);
    assert_true(event_take(events, &out));
    assert_true(out.type == EVENT_SYNC && out.fragment == 7);
    assert_true(out.sync.type == SYNC_EV_NOT_AVAILABLE && out.sync.fragment == 7);
    assert_true(out.sync.owner == 8 && out.sync.member == 9 && digest_equal(&out.sync.hash, &hash));
    assert_true(wire_key_equal(&out.sync.key, &key));
    assert_empty(events);
    events_free(events);
}

/* The ring goes round some hundred times, with anything from none to all of its places in use. */
static void however_often_the_ring_goes_round_all_come_once_and_in_order(void **state)
{
    (void)state;
    enum { ROOM = 64, TURNS = 1000 };
    struct events *events = queue();
    struct env_rng rng = env_rng_init(1, 1);
    uint32_t posted = 0, taken = 0;
    for (int turn = 0; turn < TURNS; turn++) {
        uint64_t more = env_rng_u64(&rng) % (ROOM - (posted - taken) + 1);
        if (turn % 50 == 0)
            more = ROOM - (posted - taken); /* full to the last place */
        while (more-- > 0)
            post_number(events, posted++);
        uint64_t fewer = env_rng_u64(&rng) % (posted - taken + 1);
        if (turn % 50 == 1)
            fewer = posted - taken;
        while (fewer-- > 0)
            assert_number(events, taken++);
    }
    while (taken < posted)
        assert_number(events, taken++);
    assert_empty(events);
    print_message("%u events\n", posted);
    assert_true(posted > 10 * ROOM);
    events_free(events);
}

/* What is handled posts more: that comes after what was there before it. */
static void what_follows_from_an_event_waits_its_turn(void **state)
{
    (void)state;
    struct events *events = queue();
    for (uint32_t i = 0; i < 3; i++)
        post_number(events, i);
    assert_number(events, 0);
    post_number(events, 3);
    assert_number(events, 1);
    post_number(events, 4);
    for (uint32_t i = 2; i <= 4; i++)
        assert_number(events, i);
    assert_empty(events);
    events_free(events);
}

static void a_queue_that_grows_keeps_what_is_in_it(void **state)
{
    (void)state;
    struct events *events = queue();
    uint32_t posted = 0, taken = 0;
    /* From the middle of the ring over its end, so that the oldest does not lie first. */
    while (posted < 40)
        post_number(events, posted++);
    while (taken < 30)
        assert_number(events, taken++);
    while (posted < 90)
        post_number(events, posted++);
    assert_ok(events_reserve(events, 100, 3));
    while (posted < 300)
        post_number(events, posted++);
    assert_ok(events_reserve(events, 0, 0)); /* it does not shrink */
    while (taken < posted)
        assert_number(events, taken++);
    assert_empty(events);
    events_free(events);
}

/* A trainer comes back while every fragment's objects are judged: some events for each fragment and each member. */
static void there_is_room_for_what_one_input_causes_in_the_largest_run(void **state)
{
    (void)state;
    struct events *events = queue();
    uint32_t posted = 0, taken = 0;
    assert_ok(events_reserve(events, WIRE_PLAN_FRAGMENTS_MAX, WIRE_MEMBERS_MAX));
    while (posted < 4 * WIRE_PLAN_FRAGMENTS_MAX + 2 * WIRE_MEMBERS_MAX)
        post_number(events, posted++);
    while (taken < posted)
        assert_number(events, taken++);
    assert_empty(events);
    events_free(events);
}

/* As many owners as there can be hold all parts of all fragments up: a new epoch tells of each. */
static void there_is_room_for_every_part_of_every_fragment(void **state)
{
    (void)state;
    struct events *events = queue();
    uint32_t posted = 0, taken = 0;
    assert_ok(events_reserve(events, 40, 64));
    for (uint32_t f = 0; f < 40; f++) {
        assert_ok(events_more(events, VERSION_PARTS_MAX));
        for (uint32_t p = 0; p < VERSION_PARTS_MAX; p++)
            post_number(events, posted++);
    }
    for (uint32_t k = 0; k < 4 * 40 + 2 * 64; k++) /* and for what else one input causes */
        post_number(events, posted++);
    while (taken < posted)
        assert_number(events, taken++);
    assert_empty(events);
    events_free(events);
}

static void overrun(void *events)
{
    for (uint32_t i = 0; i < 1 << 20; i++)
        post_number(events, i);
}

static void a_queue_that_is_overrun_ends_the_process_rather_than_lose_one(void **state)
{
    (void)state;
    struct events *events = queue();
    assert_aborts(overrun, events);
    events_free(events);
}

static void the_first_reason_to_end_is_kept_and_told_once(void **state)
{
    (void)state;
    struct events *events = queue();
    struct event out;
    char large[5000];
    assert_string_equal(events_fatal(events), "");
    event_post_fatal(events, "the first");
    event_post_fatal(events, "the second");
    assert_string_equal(events_fatal(events), "the first");
    assert_true(event_take(events, &out));
    assert_int_equal(out.type, EVENT_FATAL);
    assert_empty(events);
    event_post_fatal(events, "the third");
    assert_empty(events);
    assert_string_equal(events_fatal(events), "the first");
    events_free(events);
    /* One that is too long is cut. */
    events = queue();
    memset(large, 'x', sizeof large - 1);
    large[sizeof large - 1] = '\0';
    event_post_fatal(events, large);
    size_t bytes = strlen(events_fatal(events));
    assert_true(bytes > 200 && bytes < sizeof large - 1);
    assert_memory_equal(events_fatal(events), large, bytes);
    events_free(events);
}

static enum err make_queue(void *user)
{
    struct events *events = user;
    enum err err = events_new(&events);
    assert_true(err == ERR_OK || events == NULL);
    events_free(events);
    return err;
}

static enum err grow_queue(void *user)
{
    return events_reserve(user, 1000, 10);
}

static void without_memory_there_is_no_queue_or_the_old_one(void **state)
{
    (void)state;
    assert_int_equal(outofmem_walk(make_queue, NULL), 2);
    struct events *events = queue();
    for (uint32_t i = 0; i < 50; i++)
        post_number(events, i);
    assert_int_equal(outofmem_walk(grow_queue, events), 1);
    for (uint32_t i = 50; i < 1000; i++)
        post_number(events, i);
    for (uint32_t i = 0; i < 1000; i++)
        assert_number(events, i);
    events_free(events);
    events_free(NULL);
}

static void every_event_has_a_name_of_its_own(void **state)
{
    (void)state;
    for (int i = 0; i < EVENT_TYPES; i++) {
        assert_non_null(event_name((enum event_type)i));
        assert_string_not_equal(event_name((enum event_type)i), "unknown");
        for (int k = 0; k < i; k++)
            assert_string_not_equal(event_name((enum event_type)i), event_name((enum event_type)k));
    }
    assert_string_equal(event_name(EVENT_TYPES), "unknown");
}

int main(void)
{
    assert_ok(digest_init());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_a_part_says_arrives_whole),
        cmocka_unit_test(however_often_the_ring_goes_round_all_come_once_and_in_order),
        cmocka_unit_test(what_follows_from_an_event_waits_its_turn),
        cmocka_unit_test(a_queue_that_grows_keeps_what_is_in_it),
        cmocka_unit_test(there_is_room_for_every_part_of_every_fragment),
        cmocka_unit_test(there_is_room_for_what_one_input_causes_in_the_largest_run),
        cmocka_unit_test(a_queue_that_is_overrun_ends_the_process_rather_than_lose_one),
        cmocka_unit_test(the_first_reason_to_end_is_kept_and_told_once),
        cmocka_unit_test(without_memory_there_is_no_queue_or_the_old_one),
        cmocka_unit_test(every_event_has_a_name_of_its_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
