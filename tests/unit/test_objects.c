/* SPDX-License-Identifier: Apache-2.0 */
/* peers: objects out of slots and the ledger, and into slots: what is sent, what is not (any more), what is
 * taken in, and what everyone is told. One island with all its parts, another played on a real link. */
#include "tests/lib/testlib.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/digest.h"
#include "common/mem.h"
#include "daemon/peers/peers.h"
#include "tests/lib/isle.h"
#include "tests/lib/made.h"
#include "tests/lib/played.h"
#include "tests/lib/shares.h"

enum { A, B, C };
/* LARGE: of the large fragment's shards, and fragments of the small kind. */
enum { LARGE = 0, SMALL = 1, OTHER = 2, THIRD = 3, FENCE = ISLE_FRAGMENTS - 1 };
enum { CHUNK = 64 << 10, ASK_MS = 1500, LATER_MS = 300, STANDS_MS = 3000, SOME = 2000, MANY = 10 * CHUNK };

static struct isle_run *run;
static struct isle *a;
static struct played *b, *c;
static uint8_t *pattern, *got; /* MANY bytes */
static uint64_t fences;

static struct digest hash_of(uint32_t f)
{
    return digest_of(&f, sizeof f);
}

/* Version 0 of every fragment is there. */
static void know_states(void)
{
    for (uint32_t f = 0; f < ISLE_FRAGMENTS; f++) {
        struct digest hash = hash_of(f);
        round_context_begin(a->rounds->context, f, &hash);
        sync_restore(a->sync, f, 0, &hash);
    }
}

static void begin_with(const char *name, uint32_t count, const struct conf_override *override, uint32_t window_kib)
{
    run = isle_run_new(name, count, NULL);
    b = played_open(run, B, 0, NULL);
    c = count > C ? played_open(run, C, 0, NULL) : NULL;
    a = isle_open(run, A, override, override != NULL);
    isle_know_plan(a);
    know_states();
    played_hello(b)->window_kib = window_kib;
    played_say(b, A);
    isle_wait(peers_info(a->peers, B).up);
    if (c != NULL)
        played_greet(c, a);
}

static void begin(const char *name)
{
    begin_with(name, 2, NULL, 1024);
}

static void end(void)
{
    isle_close(a);
    played_close(b);
    if (c != NULL)
        played_close(c);
    isle_run_free(run);
}

/* ---- names and slots ---- */

static struct wire_key contribution_out(uint32_t f, uint64_t version)
{
    return (struct wire_key){.kind = WIRE_CONTRIBUTION, .fragment = f, .version = version, .owner = B, .island = A};
}

static struct wire_key contribution_in(uint32_t f, uint64_t version)
{
    return (struct wire_key){.kind = WIRE_CONTRIBUTION, .fragment = f, .version = version, .owner = A, .island = B};
}

static struct wire_key result_of(uint32_t f, uint64_t version, uint32_t shard)
{
    return (struct wire_key){.kind = WIRE_RESULT, .fragment = f, .version = version, .owner = shard, .island = shard};
}

static struct wire_key state_of(uint32_t f, uint64_t version, uint32_t island)
{
    return (struct wire_key){.kind = WIRE_STATE, .fragment = f, .version = version, .island = island};
}

/* b says how it stands; the core hears it. */
static void beat_b(void)
{
    struct event event;
    played_say(b, A);
    isle_wait(isle_took_sync(a, SYNC_EV_HEARTBEAT, &event));
    isle_step(a, &event.sync);
}

/* Puts `bytes` of the pattern into a slot, from `from` on. */
static void fill(struct slot *slot, uint32_t f, uint32_t shard, uint64_t version, size_t from, size_t bytes)
{
    assert_ok(slots_room(a->slots, slot, f, shares_mask(&a->parts, f, shard)));
    assert_true(bytes <= slot->bytes_max);
    memcpy(slot->data, pattern + from, bytes);
    slot->bytes = bytes;
    slot->version = version;
}

/* ---- hearing objects ---- */

/* The next bytes of this object; a question is answered. */
static bool heard_bytes(struct played *played, const struct wire_key *key)
{
    if (!played_heard_of(played, WIRE_CHUNK, key))
        return false;
    if (played->chunk.bytes == 0)
        played_say_ack(played, A, key, played->chunk.offset, false);
    return played->chunk.bytes > 0;
}

/* Hears an object from its first byte to its last, in order, and acknowledges it on the way. */
static size_t hear_object(struct played *played, const struct wire_key *key)
{
    size_t have = 0;
    do {
        isle_wait(heard_bytes(played, key));
        assert_int_equal(played->chunk.offset, have);
        assert_true(played->chunk.total <= MANY);
        memcpy(got + have, played->chunk.data, played->chunk.bytes);
        have += played->chunk.bytes;
        played_say_ack(played, A, key, have, false);
    } while (have < played->chunk.total);
    return have;
}

static void assert_hears(struct played *played, const struct wire_key *key, size_t from, size_t bytes)
{
    assert_int_equal(hear_object(played, key), bytes);
    assert_memory_equal(got, pattern + from, bytes);
    played_say_done(played, A, key, WIRE_RECEIVED);
}

static void assert_answered(struct played *played, const struct wire_key *key, enum wire_done status)
{
    isle_wait(played_heard_of(played, WIRE_DONE, key));
    assert_int_equal(played->in.done.status, status);
}

/* Nothing of this object goes out before something that was ordered later. */
static void assert_not_sent(const struct wire_key *key)
{
    struct wire_key fence = contribution_out(FENCE, ++fences);
    fill(slots_out(a->slots, FENCE, shares_part(&a->parts, FENCE, B)), FENCE, B, fences, 0, 100);
    objects_send(a->objects, &fence, B, a->now_ms);
    do {
        isle_wait(played_heard_type(b, WIRE_CHUNK));
        assert_false(wire_key_equal(&b->chunk.key, key));
    } while (!wire_key_equal(&b->chunk.key, &fence));
    played_say_done(b, A, &fence, WIRE_RECEIVED);
    isle_wait(objects_unacknowledged(a->objects, B) == 0);
}

/* Whether it goes on when the receiver asks for more. */
static void assert_gone(const struct wire_key *key)
{
    played_say_ack(b, A, key, 0, true);
    assert_answered(b, key, WIRE_GONE);
}

static void assert_goes_on(const struct wire_key *key)
{
    played_say_ack(b, A, key, 0, true);
    isle_wait(heard_bytes(b, key) && b->chunk.offset == 0);
}

/* ---- out of slots ---- */

static void a_contribution_goes_out_of_its_slot(void **state)
{
    (void)state;
    begin("objects-contribution");
    struct wire_key key = contribution_out(LARGE, 3);
    fill(slots_out(a->slots, LARGE, shares_part(&a->parts, LARGE, B)), LARGE, B, 3, 0, MANY);
    objects_send(a->objects, &key, B, a->now_ms);
    assert_hears(b, &key, 0, MANY);
    isle_wait(objects_unacknowledged(a->objects, B) == 0);
    assert_int_equal(objects_sent_bytes(a->objects), MANY);
    end();
}

static void a_result_goes_out_of_its_slot(void **state)
{
    (void)state;
    begin("objects-result");
    struct wire_key key = result_of(LARGE, 3, A);
    fill(slots_own(a->slots, LARGE), LARGE, A, 3, 0, MANY);
    objects_send(a->objects, &key, B, a->now_ms);
    assert_hears(b, &key, 0, MANY);
    end();
}

static void what_a_job_is_writing_or_is_of_another_version_does_not_go_out(void **state)
{
    (void)state;
    begin("objects-busy");
    struct slot *const slots[] = {slots_out(a->slots, SMALL, shares_part(&a->parts, SMALL, B)),
                                  slots_own(a->slots, SMALL)};
    for (int k = 0; k < 2; k++) {
        struct wire_key key = k == 0 ? contribution_out(SMALL, 3) : result_of(SMALL, 3, A);
        fill(slots[k], SMALL, k == 0 ? B : A, 3, 0, SOME);
        slots[k]->busy = true;
        objects_send(a->objects, &key, B, a->now_ms);
        assert_not_sent(&key);
        slots[k]->busy = false;
        slots[k]->version = 4;
        objects_send(a->objects, &key, B, a->now_ms);
        assert_not_sent(&key);
        slots[k]->version = 3;
        objects_send(a->objects, &key, B, a->now_ms);
        assert_hears(b, &key, 0, SOME);
    }
    end();
}

/* Until all of it was heard; the last bytes are not acknowledged. */
static void hear_to_the_end(const struct wire_key *key)
{
    do {
        isle_wait(heard_bytes(b, key));
        if (b->chunk.offset + b->chunk.bytes < MANY)
            played_say_ack(b, A, key, b->chunk.offset + b->chunk.bytes, false);
    } while (b->chunk.offset + b->chunk.bytes < MANY);
}

static void what_is_lost_is_sent_again_from_there(void **state)
{
    (void)state;
    begin("objects-resume");
    struct wire_key key = contribution_out(LARGE, 1);
    fill(slots_out(a->slots, LARGE, shares_part(&a->parts, LARGE, B)), LARGE, B, 1, 0, MANY);
    objects_send(a->objects, &key, B, a->now_ms);
    hear_to_the_end(&key);
    uint8_t pass = b->chunk.pass;
    played_say_ack(b, A, &key, 3 * CHUNK, true);
    isle_wait(heard_bytes(b, &key));
    assert_int_equal(b->chunk.offset, 3 * CHUNK);
    assert_int_equal(b->chunk.pass, pass + 1);
    played_say_ack(b, A, &key, b->chunk.offset + b->chunk.bytes, false);
    hear_to_the_end(&key);
    (void)played_settle(b, A, WIRE_DONE);
    /* Silence: it asks after a while, behind all that was sent. */
    a->now_ms += ASK_MS - 1;
    isle_tick(a);
    (void)played_settle(b, A, WIRE_DONE);
    assert_false(played_heard_of(b, WIRE_CHUNK, &key));
    a->now_ms += 1;
    isle_tick(a);
    isle_wait(played_heard_of(b, WIRE_CHUNK, &key));
    assert_int_equal(b->chunk.bytes, 0);
    assert_int_equal(b->chunk.offset, MANY);
    end();
}

/* Who has not said that it is there yet is asked, and costs no bytes until it answers. */
static void what_may_not_be_wanted_is_asked_for_first(void **state)
{
    (void)state;
    begin("objects-ask");
    struct wire_key early = contribution_out(SMALL, 2);
    fill(slots_out(a->slots, SMALL, shares_part(&a->parts, SMALL, B)), SMALL, B, 2, 0, SOME);
    objects_send(a->objects, &early, B, a->now_ms);
    isle_wait(played_heard_of(b, WIRE_CHUNK, &early));
    assert_int_equal(b->chunk.bytes, 0);
    played_say_done(b, A, &early, WIRE_NOT_YET);
    (void)played_settle(b, A, WIRE_DONE);
    assert_int_equal(objects_sent_bytes(a->objects), 0);
    a->now_ms += LATER_MS;
    isle_tick(a);
    isle_wait(played_heard_of(b, WIRE_CHUNK, &early));
    assert_int_equal(b->chunk.bytes, 0);
    played_say_ack(b, A, &early, 0, true);
    assert_hears(b, &early, 0, SOME);
    /* By its row it is past that version: the same. */
    struct wire_key held = result_of(OTHER, 1, A);
    played_beat(b)->fragments[OTHER].at.version = 1;
    beat_b();
    fill(slots_own(a->slots, OTHER), OTHER, A, 1, 0, SOME);
    objects_send(a->objects, &held, B, a->now_ms);
    isle_wait(played_heard_of(b, WIRE_CHUNK, &held));
    assert_int_equal(b->chunk.bytes, 0);
    end();
}

/* ---- ending what goes out ---- */

static void a_retired_contribution_is_not_sent_any_more(void **state)
{
    (void)state;
    begin_with("objects-retire", 2, NULL, 64); /* one chunk at a time */
    struct wire_key old = contribution_out(LARGE, 1), next = contribution_out(SMALL, 1);
    fill(slots_out(a->slots, LARGE, shares_part(&a->parts, LARGE, B)), LARGE, B, 1, 0, MANY);
    fill(slots_out(a->slots, SMALL, shares_part(&a->parts, SMALL, B)), SMALL, B, 1, 0, SOME);
    objects_send(a->objects, &old, B, a->now_ms);
    isle_wait(heard_bytes(b, &old));
    objects_send(a->objects, &next, B, a->now_ms);
    objects_retire(a->objects, LARGE, 0); /* an earlier version */
    objects_retire(a->objects, OTHER, 9); /* another fragment */
    objects_retire_results(a->objects, LARGE, 9);
    assert_goes_on(&old);
    objects_retire(a->objects, LARGE, 1);
    assert_gone(&old);
    assert_hears(b, &next, 0, SOME);
    end();
}

/* What a reduction is about to overwrite is served from there no more; a receiver that is half through is told. */
static void a_slot_that_is_written_again_is_not_served_from(void **state)
{
    (void)state;
    begin_with("objects-retire-results", 2, NULL, 64);
    struct wire_key own = result_of(LARGE, 1, A), other = result_of(SMALL, 1, A), theirs = result_of(OTHER, 1, B);
    made_append(a->ledger, OTHER, 1, B, pattern, MANY);
    fill(slots_own(a->slots, LARGE), LARGE, A, 1, 0, MANY);
    fill(slots_own(a->slots, SMALL), SMALL, A, 1, 0, SOME);
    objects_send(a->objects, &own, B, a->now_ms);
    isle_wait(heard_bytes(b, &own));
    objects_send(a->objects, &other, B, a->now_ms);
    played_say_fetch(b, A, &theirs);
    objects_retire_results(a->objects, LARGE, 0);
    objects_retire(a->objects, LARGE, 9);
    assert_goes_on(&own);
    objects_retire_results(a->objects, LARGE, 1);
    memset(slots_own(a->slots, LARGE)->data, 0xee, MANY);
    assert_gone(&own);
    assert_hears(b, &other, 0, SOME);
    isle_wait(heard_bytes(b, &theirs)); /* from the ledger, of another fragment */
    objects_retire_results(a->objects, OTHER, 1);
    assert_gone(&theirs);
    end();
}

static void a_peer_that_restarts_ends_its_transfers_and_no_other_peers(void **state)
{
    (void)state;
    begin_with("objects-restart", 3, NULL, 64);
    struct wire_key out = contribution_out(LARGE, 1), in = contribution_in(LARGE, 1);
    struct wire_key to_c = out, from_c = in;
    to_c.owner = C;
    from_c.island = C;
    struct event event;
    fill(slots_out(a->slots, LARGE, shares_part(&a->parts, LARGE, B)), LARGE, B, 1, 0, MANY);
    fill(slots_out(a->slots, LARGE, shares_part(&a->parts, LARGE, C)), LARGE, C, 1, 0, MANY);
    objects_send(a->objects, &out, B, a->now_ms);
    objects_send(a->objects, &to_c, C, a->now_ms);
    isle_wait(heard_bytes(b, &out));
    played_send_chunk(b, A, &in, MANY, 0, pattern, CHUNK);
    played_send_chunk(c, A, &from_c, MANY, 0, pattern, CHUNK);
    isle_wait(objects_receiving(a->objects, &in) && objects_receiving(a->objects, &from_c));
    b->session++;
    played_hello(b);
    played_say(b, A);
    isle_wait(isle_took_sync(a, SYNC_EV_PEER_DOWN, &event));
    assert_false(objects_receiving(a->objects, &in));
    assert_true(objects_receiving(a->objects, &from_c));
    assert_gone(&out);
    end();
}

/* ---- what peers ask for ---- */

static void old_results_come_from_the_ledger(void **state)
{
    (void)state;
    begin("objects-ledger");
    struct wire_key ours = result_of(SMALL, 2, A), theirs = result_of(SMALL, 2, B), none = result_of(SMALL, 3, A);
    made_append(a->ledger, SMALL, 2, A, pattern, SOME);
    made_append(a->ledger, SMALL, 2, B, pattern + SOME, SOME);
    fill(slots_own(a->slots, SMALL), SMALL, A, 2, 0, SOME);
    played_say_fetch(b, A, &ours);
    assert_hears(b, &ours, 0, SOME);
    played_say_fetch(b, A, &theirs);
    assert_hears(b, &theirs, SOME, SOME);
    played_say_fetch(b, A, &none);
    assert_answered(b, &none, WIRE_NOT_AVAILABLE);
    end();
}

/* It takes nothing in of what it asked for, so nothing of it ends. */
static void one_peer_does_not_take_all_places_that_are_served_from(void **state)
{
    (void)state;
    enum { VERSIONS = 64, HALF = 32, FIRST = 100 };
    int none = 0;
    begin_with("objects-places", 3, NULL, 1024);
    for (uint64_t v = FIRST; v < FIRST + VERSIONS; v++)
        made_append(a->ledger, SMALL, v, A, pattern, SOME);
    for (uint64_t v = FIRST; v < FIRST + VERSIONS; v++) {
        struct wire_key key = result_of(SMALL, v, A);
        played_say_fetch(b, A, &key);
        none += played_settle(b, A, WIRE_DONE) - 1; /* the one that it settles with */
    }
    assert_int_equal(none, VERSIONS - HALF);
    struct wire_key last = result_of(SMALL, FIRST + VERSIONS - 1, A);
    played_say_fetch(c, A, &last);
    assert_hears(c, &last, 0, SOME);
    end();
}

/* The slot's result is in the ledger, or it is nobody's to have; and it is not read while a job writes the next. */
static void a_result_comes_from_the_slot_only_when_it_stands_there(void **state)
{
    (void)state;
    begin("objects-durable");
    struct wire_key key = result_of(SMALL, 2, A);
    struct slot *slot = slots_own(a->slots, SMALL);
    struct result_id there = made_result(SMALL, 2, 0, A, pattern, SOME);
    fill(slot, SMALL, A, 2, 0, SOME);
    played_say_fetch(b, A, &key);
    assert_answered(b, &key, WIRE_NOT_AVAILABLE); /* made, and not durable yet */
    assert_ok(ledger_append(a->ledger, &there, pattern, SOME));
    played_say_fetch(b, A, &key);
    assert_hears(b, &key, 0, SOME);
    memset(slot->data, 0xee, SOME);
    slot->busy = true; /* the next one is being written, and its version is not in place yet */
    played_say_fetch(b, A, &key);
    assert_hears(b, &key, 0, SOME);
    slot->busy = false;
    slot->version = 3;
    played_say_fetch(b, A, &key);
    assert_hears(b, &key, 0, SOME);
    end();
}

/* Whose owner made two, the core has taken this one for what is to be carried, and who asks needs it. */
static void of_two_results_of_a_part_the_one_that_counts_is_given(void **state)
{
    (void)state;
    for (int counts = 0; counts < 2; counts++) {
        begin("objects-two");
        struct wire_key key = result_of(SMALL, 1, B);
        struct result_id two[2];
        for (int k = 0; k < 2; k++)
            two[k] = made_append(a->ledger, SMALL, 1, B, pattern + k * SOME, SOME);
        isle_step(a, &(struct sync_event){.type = SYNC_EV_STORED,
                                          .fragment = SMALL,
                                          .version = 1,
                                          .owner = B,
                                          .hash = two[counts].digest,
                                          .member = SYNC_NOBODY});
        played_say_fetch(b, A, &key);
        assert_hears(b, &key, (size_t)counts * SOME, SOME);
        end();
    }
}

static void what_is_nowhere_is_not_available(void **state)
{
    (void)state;
    begin("objects-nowhere");
    struct wire_key beyond = result_of(ISLE_FRAGMENTS, 1, A), shard = result_of(SMALL, 1, 2),
                    contribution = contribution_in(SMALL, 1), state_key = state_of(ISLE_FRAGMENTS, 0, A);
    const struct wire_key *const keys[] = {&beyond, &shard, &contribution, &state_key};
    for (int k = 0; k < 4; k++) {
        played_say_fetch(b, A, keys[k]);
        assert_answered(b, keys[k], WIRE_NOT_AVAILABLE);
    }
    end();
}

static void what_is_fetched_and_not_there_is_told_to_the_core(void **state)
{
    (void)state;
    begin("objects-told");
    struct event event;
    struct wire_key key = result_of(SMALL, 5, B);
    objects_fetch(a->objects, &key, B);
    isle_wait(played_heard_of(b, WIRE_FETCH, &key));
    played_say_done(b, A, &key, WIRE_NOT_AVAILABLE);
    isle_wait(isle_took_sync(a, SYNC_EV_NOT_AVAILABLE, &event));
    assert_true(wire_key_equal(&event.sync.key, &key));
    assert_int_equal(event.sync.member, B);
    assert_int_equal(event.sync.fragment, SMALL);
    end();
}

/* ---- what peers offer ---- */

static void assert_offer_answered(const struct wire_key *key, uint64_t total, enum wire_done status)
{
    played_send_chunk(b, A, key, total, 0, pattern, total < 1000 ? total : 1000);
    assert_answered(b, key, status);
}

static void assert_taken(const struct wire_key *key, const uint8_t *data, size_t bytes, enum wire_done done)
{
    struct event event;
    played_send(b, A, key, pattern, bytes);
    isle_wait(isle_took(a, EVENT_OBJECT, &event));
    assert_int_equal(event.member, B);
    assert_int_equal(event.object.bytes, bytes);
    assert_true(wire_key_equal(&event.object.key, key));
    assert_memory_equal(data, pattern, bytes);
    objects_judged(a->objects, B, key, done);
    assert_answered(b, key, done);
}

static void contributions_are_taken_in_as_the_core_wants_them(void **state)
{
    (void)state;
    begin("objects-offers");
    struct wire_key key = contribution_in(SMALL, 1), older = contribution_in(SMALL, 0),
                    later = contribution_in(SMALL, 2), beyond = contribution_in(ISLE_FRAGMENTS, 1), alien = key,
                    elsewhere = key;
    struct slot *slot = slots_in(a->slots, SMALL, B);
    alien.island = A;
    elsewhere.owner = B;
    fill(slot, SMALL, A, 7, 0, SOME);
    assert_offer_answered(&older, SOME, WIRE_NOT_NEEDED);
    assert_offer_answered(&later, SOME, WIRE_NOT_YET);
    assert_offer_answered(&beyond, SOME, WIRE_NOT_NEEDED);
    assert_offer_answered(&alien, SOME, WIRE_NOT_NEEDED);
    assert_offer_answered(&elsewhere, SOME, WIRE_NOT_NEEDED);
    assert_offer_answered(&key, slot->bytes_max + 1, WIRE_REFUSED);
    fill(slot, SMALL, A, 7, 0, SOME);
    slot->busy = true; /* a job reads the one before */
    assert_offer_answered(&key, SOME, WIRE_NOT_YET);
    assert_int_equal(slot->version, 7);
    slot->busy = false;
    assert_taken(&key, slot->data, SOME, WIRE_REFUSED);
    assert_int_equal(slot->version, 0); /* what was in it is gone */
    assert_taken(&key, slot->data, SOME, WIRE_NOT_YET);
    assert_taken(&key, slot->data, SOME, WIRE_RECEIVED);
    isle_step(a, &(struct sync_event){.type = SYNC_EV_CONTRIBUTION, .fragment = SMALL, .version = 1, .member = B});
    assert_offer_answered(&key, SOME, WIRE_RECEIVED); /* it is here already */
    end();
}

static void results_are_taken_in_as_the_core_wants_them(void **state)
{
    (void)state;
    begin("objects-more-offers");
    struct wire_key key = result_of(SMALL, 1, B), older = result_of(SMALL, 0, B), later = result_of(SMALL, 2, B);
    assert_offer_answered(&older, SOME, WIRE_RECEIVED);
    assert_offer_answered(&later, SOME, WIRE_NOT_YET);
    struct slot *slot = slots_result(a->slots, SMALL, shares_part(&a->parts, SMALL, B));
    assert_ok(slots_room(a->slots, slot, SMALL, shares_mask(&a->parts, SMALL, B)));
    slot->busy = true;
    assert_offer_answered(&key, SOME, WIRE_NOT_YET);
    slot->busy = false;
    assert_taken(&key, slot->data, SOME, WIRE_RECEIVED);
    isle_step(a, &(struct sync_event){.type = SYNC_EV_STORED, .fragment = SMALL, .version = 1, .owner = B});
    assert_offer_answered(&key, SOME, WIRE_RECEIVED);
    end();
}

static void what_stands_still_is_not_receiving(void **state)
{
    (void)state;
    begin("objects-stands");
    struct wire_key key = contribution_in(LARGE, 1);
    assert_false(objects_receiving(a->objects, &key));
    played_send_chunk(b, A, &key, MANY, 0, pattern, CHUNK);
    isle_wait(objects_receiving(a->objects, &key));
    a->now_ms += STANDS_MS / 2;
    isle_tick(a);
    played_beat(b); /* it is here, and brings nothing */
    played_say(b, A);
    played_settle(b, A, WIRE_HEARTBEAT);
    a->now_ms += STANDS_MS - STANDS_MS / 2 - 1;
    isle_tick(a);
    assert_true(objects_receiving(a->objects, &key));
    a->now_ms += 1;
    isle_tick(a);
    assert_false(objects_receiving(a->objects, &key));
    isle_wait(played_heard_of(b, WIRE_ACK, &key) && b->in.ack.ask == WIRE_ASK_STILL); /* will more come? */
    assert_int_equal(b->in.ack.have, CHUNK);
    /* Nor is what one brings who is not heard any more: it may come from somebody else. */
    played_send_chunk(b, A, &key, MANY, CHUNK, pattern + CHUNK, CHUNK);
    isle_wait(objects_receiving(a->objects, &key));
    a->now_ms += STANDS_MS - 1;
    isle_tick(a);
    assert_false(objects_receiving(a->objects, &key));
    end();
}

int main(void)
{
    assert_ok(digest_init());
    struct env_rng rng = env_rng_init(1, 1);
    pattern = malloc(MANY + 8);
    got = malloc(MANY);
    for (size_t i = 0; i < MANY + 8; i++)
        pattern[i] = (uint8_t)env_rng_u64(&rng);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_contribution_goes_out_of_its_slot),
        cmocka_unit_test(a_result_goes_out_of_its_slot),
        cmocka_unit_test(what_a_job_is_writing_or_is_of_another_version_does_not_go_out),
        cmocka_unit_test(what_is_lost_is_sent_again_from_there),
        cmocka_unit_test(what_may_not_be_wanted_is_asked_for_first),
        cmocka_unit_test(a_retired_contribution_is_not_sent_any_more),
        cmocka_unit_test(a_slot_that_is_written_again_is_not_served_from),
        cmocka_unit_test(a_peer_that_restarts_ends_its_transfers_and_no_other_peers),
        cmocka_unit_test(old_results_come_from_the_ledger),
        cmocka_unit_test(one_peer_does_not_take_all_places_that_are_served_from),
        cmocka_unit_test(a_result_comes_from_the_slot_only_when_it_stands_there),
        cmocka_unit_test(of_two_results_of_a_part_the_one_that_counts_is_given),
        cmocka_unit_test(what_is_nowhere_is_not_available),
        cmocka_unit_test(what_is_fetched_and_not_there_is_told_to_the_core),
        cmocka_unit_test(contributions_are_taken_in_as_the_core_wants_them),
        cmocka_unit_test(results_are_taken_in_as_the_core_wants_them),
        cmocka_unit_test(what_stands_still_is_not_receiving),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    free(pattern);
    free(got);
    return failed;
}
