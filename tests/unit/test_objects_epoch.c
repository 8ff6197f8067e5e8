/* SPDX-License-Identifier: Apache-2.0 */
/* peers: objects that are not what they were: a state that is changing, and what a new epoch leaves of what is on its
 * way out and in. One island with all its parts, another played on a real link; the configurations are the test's. */
#include "tests/lib/testlib.h"

#include <stdio.h>
#include <string.h>

#include "common/digest.h"
#include "daemon/peers/peers.h"
#include "tests/lib/isle.h"
#include "tests/lib/played.h"
#include "tests/lib/sample_configs.h"
#include "tests/lib/shares.h"

enum { A, B, C };
/* LARGE: of the large fragment's shards, and fragments of the small kind. */
enum { LARGE = 0, SMALL = 1, OTHER = 2, THIRD = 3 };
enum { CHUNK = 64 << 10, SOME = 500, MANY = 4 * CHUNK };

static struct isle_run *run;
static struct isle *a;
static struct played *b, *c;
static uint8_t pattern[MANY];

static struct digest hash_of(uint32_t f)
{
    return digest_of(&f, sizeof f);
}

static void begin(const char *name, uint32_t count)
{
    run = isle_run_new(name, count, NULL);
    b = played_open(run, B, 0, NULL);
    c = count > C ? played_open(run, C, 0, NULL) : NULL;
    a = isle_open(run, A, NULL, 0);
    isle_know_plan(a);
    for (uint32_t f = 0; f < ISLE_FRAGMENTS; f++) {
        struct digest hash = hash_of(f);
        round_context_begin(a->rounds->context, f, &hash);
        sync_restore(a->sync, f, 0, &hash);
    }
    played_greet(b, a);
    if (c != NULL)
        played_greet(c, a);
}

static void end(void)
{
    isle_close(a);
    played_close(b);
    if (c != NULL)
        played_close(c);
    isle_run_free(run);
}

/* b says how it stands; the core hears it. */
static void beat_b(void)
{
    struct event event;
    played_say(b, A);
    isle_wait(isle_took_sync(a, SYNC_EV_HEARTBEAT, &event));
    isle_step(a, &event.sync);
}

static void assert_answered(const struct wire_key *key, enum wire_done status)
{
    isle_wait(played_heard_of(b, WIRE_DONE, key));
    assert_int_equal(b->in.done.status, status);
}

static struct wire_key contribution(uint32_t f, uint32_t owner, uint32_t island, uint64_t epoch)
{
    return (struct wire_key){
        .kind = WIRE_CONTRIBUTION, .fragment = f, .version = 1, .owner = owner, .island = island, .epoch = epoch};
}

static struct wire_key result(uint32_t f, uint32_t owner, uint64_t epoch)
{
    return (struct wire_key){
        .kind = WIRE_RESULT, .fragment = f, .version = 1, .owner = owner, .island = owner, .epoch = epoch};
}

/* ---- a state that is changing ---- */

/* All results of version 1 are here, and b has them, too, so they count: the version is being applied. */
static void apply(uint32_t f)
{
    struct digest hash = hash_of(f);
    struct wire_heartbeat *beat = played_beat(b);
    for (uint32_t owner = A; owner <= B; owner++) {
        isle_step(
            a, &(struct sync_event){.type = SYNC_EV_STORED, .fragment = f, .version = 1, .owner = owner, .hash = hash});
        played_holds(beat, f, owner, &hash);
    }
    beat_b();
    assert_int_equal(sync_state(a->sync, f), SYNC_APPLYING);
}

static void a_state_that_is_changing_or_of_another_version_is_not_to_be_had(void **state)
{
    (void)state;
    begin("objects-unsteady", 2);
    struct wire_key small = {.kind = WIRE_STATE, .fragment = SMALL}, other = {.kind = WIRE_STATE, .fragment = OTHER},
                    newer = {.kind = WIRE_STATE, .fragment = THIRD, .version = 1};
    apply(SMALL);
    isle_step(a, &(struct sync_event){.type = SYNC_EV_LOST, .fragment = OTHER, .member = B});
    assert_int_equal(sync_state(a->sync, OTHER), SYNC_REPAIR);
    const struct wire_key *const keys[] = {&small, &other, &newer};
    for (int k = 0; k < 3; k++) {
        played_say_fetch(b, A, keys[k]);
        assert_answered(keys[k], WIRE_NOT_AVAILABLE);
    }
    end();
}

/* ---- a new epoch ---- */

/* Configuration 1: b and a are its owners, and c, if there is one, is away; or all stay what they are. */
static void next_epoch(bool without_c)
{
    struct config config = isle_next_config(a);
    if (without_c)
        isle_set_owners(&config, (const uint32_t[]){A, B}, 2, CONFIG_AWAY);
    isle_adopt(a, &config);
}

static void offer(const struct wire_key *key, enum wire_done status)
{
    played_send_chunk(b, A, key, SOME, 0, pattern, SOME);
    assert_answered(key, status);
}

/* The parts are others, and so are the bytes that may come for them. */
static void what_is_of_an_older_epoch_is_not_needed_and_of_a_newer_one_not_yet(void **state)
{
    (void)state;
    struct event event;
    begin("objects-epochs", 3);
    struct wire_key now = contribution(SMALL, A, B, 0), early = contribution(OTHER, A, B, 1),
                    early_result = result(OTHER, B, 1);
    offer(&early, WIRE_NOT_YET);
    offer(&early_result, WIRE_NOT_YET);
    next_epoch(true);
    offer(&now, WIRE_NOT_NEEDED);
    played_send(b, A, &early, pattern, SOME);
    isle_wait(isle_took(a, EVENT_OBJECT, &event));
    assert_true(wire_key_equal(&event.object.key, &early));
    /* Of a result of the epoch before nothing is left, for the configuration does not carry it. */
    struct wire_key old_result = result(THIRD, B, 0);
    offer(&old_result, WIRE_NOT_NEEDED);
    end();
}

static void what_was_on_its_way_in_is_dropped_and_its_slot_free(void **state)
{
    (void)state;
    struct event event;
    begin("objects-dropped", 2);
    struct wire_key old = contribution(LARGE, A, B, 0), next = contribution(LARGE, A, B, 1);
    played_send_chunk(b, A, &old, MANY, 0, pattern, CHUNK);
    isle_wait(objects_receiving(a->objects, &old));
    next_epoch(false);
    assert_false(objects_receiving(a->objects, &old));
    memset(slots_in(a->slots, LARGE, B)->data, 0xee, CHUNK);
    played_send_chunk(b, A, &old, MANY, CHUNK, pattern + CHUNK, CHUNK); /* it had gone before b knew */
    assert_answered(&old, WIRE_NOT_NEEDED);
    assert_int_equal(slots_in(a->slots, LARGE, B)->data[0], 0xee);
    played_send(b, A, &next, pattern, MANY);
    isle_wait(isle_took(a, EVENT_OBJECT, &event));
    assert_true(wire_key_equal(&event.object.key, &next));
    assert_memory_equal(slots_in(a->slots, LARGE, B)->data, pattern, MANY);
    end();
}

static void fill(struct slot *slot, uint32_t f, uint32_t owner, uint64_t epoch)
{
    struct version_part part;
    assert_true(parts_find(&a->parts, f, 1, epoch, owner, &part) < VERSION_PARTS_MAX);
    assert_ok(slots_room(a->slots, slot, f, part.shards));
    assert_true(slot->bytes_max >= SOME);
    memcpy(slot->data, pattern, SOME);
    slot->bytes = SOME;
    slot->version = 1;
    slot->epoch = epoch;
}

static void a_slot_of_the_epoch_before_is_not_sent_from(void **state)
{
    (void)state;
    begin("objects-old-slots", 2);
    uint32_t p = shares_part(&a->parts, SMALL, B);
    fill(slots_out(a->slots, SMALL, p), SMALL, B, 0);
    fill(slots_own(a->slots, OTHER), OTHER, A, 0);
    next_epoch(false);
    struct wire_key out = contribution(SMALL, B, A, 1), own = result(OTHER, A, 1), fence = contribution(THIRD, B, A, 1);
    objects_send(a->objects, &out, B, a->now_ms);
    objects_send(a->objects, &own, B, a->now_ms);
    fill(slots_out(a->slots, THIRD, p), THIRD, B, 1); /* this one was encoded anew */
    objects_send(a->objects, &fence, B, a->now_ms);
    isle_wait(played_heard_type(b, WIRE_CHUNK));
    assert_true(wire_key_equal(&b->chunk.key, &fence)); /* and nothing before it */
    end();
}

/* Configuration 1: a and b are its owners, c is away, and its result of the epoch before is carried: our part of
 * version 1 is what is left of what we own, and that of version 2 all of it. b begins to send for version 1. */
static struct wire_key begin_carried(const char *name, size_t bytes)
{
    begin(name, 3);
    struct config config = isle_next_config(a);
    isle_set_owners(&config, (const uint32_t[]){A, B}, 2, CONFIG_AWAY);
    configs_carry(&config, LARGE, C, 0, shares_mask(&a->parts, LARGE, C));
    isle_adopt(a, &config);
    struct wire_key first = contribution(LARGE, A, B, 1);
    for (size_t at = 0; at < bytes; at += CHUNK)
        played_send_chunk(b, A, &first, MANY, at, pattern + at, CHUNK);
    isle_wait(objects_receiving(a->objects, &first));
    return first;
}

/* Another has our result of version 1, so that we collect for the next one. Its key. */
static struct wire_key close_first(const struct wire_key *first)
{
    struct digest hash = hash_of(LARGE);
    struct wire_key next = *first;
    isle_step(a, &(struct sync_event){.type = SYNC_EV_STORED,
                                      .fragment = LARGE,
                                      .version = 1,
                                      .epoch = 1,
                                      .owner = A,
                                      .hash = hash,
                                      .member = B});
    next.version = 2;
    return next;
}

static void a_slot_that_grows_is_not_written_by_what_filled_it_before(void **state)
{
    (void)state;
    struct event event;
    struct wire_key first = begin_carried("objects-grows", CHUNK);
    const struct slot *slot = slots_in(a->slots, LARGE, B);
    size_t before = slot->bytes_max;
    struct wire_key next = close_first(&first);
    played_send_chunk(b, A, &next, MANY, 0, pattern, CHUNK);
    isle_wait(objects_receiving(a->objects, &next));
    assert_true(slot->bytes_max > before);
    assert_false(objects_receiving(a->objects, &first));
    played_send_chunk(b, A, &first, MANY, CHUNK, pattern + CHUNK, CHUNK);
    assert_answered(&first, WIRE_NOT_NEEDED);
    for (size_t at = CHUNK; at < MANY; at += CHUNK)
        played_send_chunk(b, A, &next, MANY, at, pattern + at, CHUNK);
    isle_wait(isle_took(a, EVENT_OBJECT, &event));
    assert_true(wire_key_equal(&event.object.key, &next));
    assert_memory_equal(slot->data, pattern, MANY);
    end();
}

/* Nobody has begun to read it, so the slot itself does not tell. */
static void a_slot_does_not_grow_before_what_is_whole_in_it_was_judged(void **state)
{
    (void)state;
    struct event event;
    struct wire_key first = begin_carried("objects-whole", MANY);
    const struct slot *slot = slots_in(a->slots, LARGE, B);
    isle_wait(isle_took(a, EVENT_OBJECT, &event));
    const uint8_t *data = slot->data;
    struct wire_key next = close_first(&first);
    offer(&next, WIRE_NOT_YET);
    assert_ptr_equal(slot->data, data);
    assert_memory_equal(slot->data, pattern, MANY);
    objects_judged(a->objects, B, &first, WIRE_RECEIVED);
    played_send(b, A, &next, pattern, SOME);
    isle_wait(isle_took(a, EVENT_OBJECT, &event));
    assert_true(wire_key_equal(&event.object.key, &next));
    end();
}

static void join_as(struct config *config, uint32_t at, const char *name)
{
    struct ident ident;
    struct config_member *member = &config->members[at];
    assert_ok(ident_generate(&ident));
    *member = (struct config_member){.id = config->next_id++, .role = CONFIG_OBSERVER};
    snprintf(member->name, sizeof member->name, "%s", name);
    memcpy(member->key, ident.key, sizeof member->key);
}

static void assert_new(uint32_t slot)
{
    struct peer_info info = peers_info(a->peers, slot);
    assert_false(info.up || info.refused);
    assert_int_equal(info.heard_ms, 0);
    assert_int_equal(info.step, 0);
}

/* Another member has the slot: nothing of the one before is its. */
static void who_takes_a_slot_begins_anew(void **state)
{
    (void)state;
    begin("objects-slot", 3);
    struct wire_key in = contribution(LARGE, A, C, 0);
    played_send_chunk(c, A, &in, MANY, 0, pattern, CHUNK);
    isle_wait(objects_receiving(a->objects, &in));
    played_beat(c)->step = 77;
    played_say(c, A);
    isle_wait(peers_info(a->peers, C).step == 77);
    struct config config = isle_next_config(a);
    isle_set_owners(&config, (const uint32_t[]){A, B}, 2, CONFIG_AWAY);
    join_as(&config, C, "d"); /* while the slot of c is its own still */
    isle_adopt(a, &config);
    assert_false(objects_receiving(a->objects, &in));
    assert_int_equal(view_slot_named(&a->configs.view, "c"), VIEW_NOBODY);
    assert_int_equal(view_slot_named(&a->configs.view, "d"), C + 1);
    assert_new(C + 1);
    struct config next = isle_next_config(a);
    join_as(&next, C, "e");
    isle_adopt(a, &next);
    assert_int_equal(view_slot_named(&a->configs.view, "e"), C);
    assert_new(C);
    isle_tick(a);
    end();
}

/* Else what is measured of our uplink would come to nonsense, and what status shows would fall. */
static void what_was_sent_to_one_that_leaves_stays_counted(void **state)
{
    (void)state;
    begin("objects-leaves", 3);
    uint32_t p = shares_part(&a->parts, SMALL, C);
    fill(slots_out(a->slots, SMALL, p), SMALL, C, 0);
    struct wire_key out = contribution(SMALL, C, A, 0);
    objects_send(a->objects, &out, C, a->now_ms);
    isle_wait(played_heard_type(c, WIRE_CHUNK));
    uint64_t sent = objects_sent_bytes(a->objects);
    assert_int_equal(sent, SOME);
    struct config config = isle_next_config(a);
    isle_set_owners(&config, (const uint32_t[]){A, B}, 2, CONFIG_AWAY);
    join_as(&config, C, "d");
    isle_adopt(a, &config);
    assert_int_equal(objects_sent_bytes(a->objects), sent);
    end();
}

int main(void)
{
    assert_ok(digest_init());
    struct env_rng rng = env_rng_init(1, 1);
    for (size_t i = 0; i < sizeof pattern; i++)
        pattern[i] = (uint8_t)env_rng_u64(&rng);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_state_that_is_changing_or_of_another_version_is_not_to_be_had),
        cmocka_unit_test(what_is_of_an_older_epoch_is_not_needed_and_of_a_newer_one_not_yet),
        cmocka_unit_test(what_was_on_its_way_in_is_dropped_and_its_slot_free),
        cmocka_unit_test(a_slot_of_the_epoch_before_is_not_sent_from),
        cmocka_unit_test(a_slot_that_grows_is_not_written_by_what_filled_it_before),
        cmocka_unit_test(a_slot_does_not_grow_before_what_is_whole_in_it_was_judged),
        cmocka_unit_test(who_takes_a_slot_begins_anew),
        cmocka_unit_test(what_was_sent_to_one_that_leaves_stays_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
