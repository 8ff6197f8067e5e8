/* SPDX-License-Identifier: Apache-2.0 */
/* peers: states out and in: a head, then leaves, to several and from several; who lies, is gone, or claims too much.
 * One island with all its parts, two others played on real links. Version 0, about which nobody votes. */
#include "tests/lib/testlib.h"

#include <stdlib.h>
#include <string.h>

#include "common/digest.h"
#include "common/log.h"
#include "common/mem.h"
#include "daemon/transfer/state_transfer.h"
#include "daemon/transfer/state_server.h"
#include "daemon/peers/peers.h"
#include "daemon/rules.h"
#include "daemon/state/state_object.h"
#include "daemon/trainer/attachment.h"
#include "net/transfer/piece_picker.h"
#include "tests/lib/isle.h"
#include "tests/lib/overhear.h"
#include "tests/lib/played.h"
#include "tests/lib/played_trainer.h"

enum { A, B, C };
/* LARGE: of 64 leaves, and fragments of one. */
enum { LARGE = 0, SMALL = 1, OTHER = 2, THIRD = 3, LARGE_LEAVES = 2 * 4 * ISLE_LARGE_VALUES / DIGEST_LEAF_BYTES };

static struct isle_run *run;
static struct isle *a;
static struct played *b, *c;

/* ---- what a state is ---- */

struct whole {
    uint8_t *object, *head;
    uint64_t bytes, head_bytes;
    struct store_fragment state;
};

static struct whole whole_of(struct replica *replica, uint32_t f)
{
    const struct certificate none = {.count = 0};
    const struct plan *plan = a->plan->plan;
    struct whole whole = {.bytes = state_object_bytes(replica, f)};
    struct digest *leaves = calloc(state_object_leaves(whole.bytes), sizeof *leaves);
    whole.object = malloc(whole.bytes);
    whole.head_bytes = state_head_bytes(whole.bytes, &none);
    whole.head = malloc(whole.head_bytes);
    assert_ok(replica_hash(replica, f, 0, 0, &whole.state.hash));
    state_object_make(replica, plan, f, &whole.state, whole.object);
    state_object_digest(whole.object, whole.bytes, 0, state_object_leaves(whole.bytes), leaves);
    state_head_make(whole.object, whole.bytes, leaves, &none, whole.head);
    free(leaves);
    return whole;
}

static void free_whole(struct whole *whole)
{
    free(whole->object);
    free(whole->head);
}

static void fill(struct replica *replica, uint32_t f, float with)
{
    for (size_t i = 0; i < a->plan->plan->fragments[f].values_count; i++) {
        replica_anchor(replica, f)[i] = (float)i * with;
        replica_momentum(replica, f)[i] = with - (float)i;
    }
}

static void know_states(void)
{
    for (uint32_t f = 0; f < ISLE_FRAGMENTS; f++) {
        struct digest hash;
        fill(a->replica, f, 0.5f);
        assert_ok(replica_hash(a->replica, f, 0, 0, &hash));
        round_context_begin(a->rounds->context, f, &hash);
        sync_restore(a->sync, f, 0, &hash);
    }
}

static void begin_with(const char *name, bool states)
{
    run = isle_run_new(name, 3, NULL);
    b = played_open(run, B, 0, NULL);
    c = played_open(run, C, 0, NULL);
    a = isle_open(run, A, NULL, 0);
    isle_know_plan(a);
    if (states)
        know_states();
    played_greet(b, a);
    played_greet(c, a);
}

static void begin(const char *name)
{
    begin_with(name, true);
}

/* Time goes by, and the others are heard. */
static void pass(uint64_t ms)
{
    for (uint64_t until_ms = a->now_ms + ms; a->now_ms < until_ms;) {
        struct event event;
        a->now_ms += until_ms - a->now_ms < 1000 ? until_ms - a->now_ms : 1000;
        for (int i = 0; i < 2; i++) {
            (void)played_beat(i == 0 ? b : c);
            played_say(i == 0 ? b : c, A);
            isle_wait(isle_took_sync(a, SYNC_EV_HEARTBEAT, &event));
            while (played_heard(i == 0 ? b : c))
                ; /* or there is no room for what matters */
        }
        isle_tick(a);
    }
}

static void end(void)
{
    isle_close(a);
    played_close(b);
    played_close(c);
    isle_run_free(run);
}

static struct wire_key head_key(uint32_t f, uint32_t island)
{
    return (struct wire_key){.kind = WIRE_STATE, .fragment = f, .island = island};
}

static struct wire_key leaves_key(uint32_t f, uint32_t island, uint32_t first, uint32_t count)
{
    return (struct wire_key){.kind = WIRE_LEAVES, .fragment = f, .island = island, .first = first, .count = count};
}

static void assert_answered(struct played *played, const struct wire_key *key, enum wire_done status)
{
    isle_wait(played_heard_of(played, WIRE_DONE, key));
    assert_int_equal(played->in.done.status, status);
}

/* ---- out ---- */

static bool heard_bytes(struct played *played, const struct wire_key *key)
{
    if (!played_heard_of(played, WIRE_CHUNK, key))
        return false;
    if (played->chunk.bytes == 0)
        played_say_ack(played, A, key, played->chunk.offset, false);
    return played->chunk.bytes > 0;
}

static void assert_hears(struct played *played, const struct wire_key *key, const uint8_t *want, uint64_t bytes)
{
    uint64_t have = 0;
    do {
        isle_wait(heard_bytes(played, key));
        assert_int_equal(played->chunk.offset, have);
        assert_int_equal(played->chunk.total, bytes);
        assert_memory_equal(played->chunk.data, want + have, played->chunk.bytes);
        have += played->chunk.bytes;
        played_say_ack(played, A, key, have, false);
    } while (have < bytes);
    played_say_done(played, A, key, WIRE_RECEIVED);
}

static void assert_fetches(struct played *played, const struct wire_key *key, const uint8_t *want, uint64_t bytes)
{
    played_say_fetch(played, A, key);
    assert_hears(played, key, want, bytes);
}

static void assert_denied(struct played *played, const struct wire_key *key)
{
    played_say_fetch(played, A, key);
    assert_answered(played, key, WIRE_NOT_AVAILABLE);
}

static void a_state_goes_out_as_it_was_when_it_was_asked_for(void **state)
{
    (void)state;
    begin("states-out");
    struct whole whole = whole_of(a->replica, LARGE);
    const uint8_t *body = whole.object + STATE_HEADER_BYTES;
    const struct wire_key head = head_key(LARGE, A), all = leaves_key(LARGE, A, 0, 4),
                          last = leaves_key(LARGE, A, LARGE_LEAVES - 1, 1),
                          beyond = leaves_key(LARGE, A, LARGE_LEAVES, 1),
                          over = leaves_key(LARGE, A, LARGE_LEAVES - 1, 2), theirs = leaves_key(LARGE, B, 0, 1);
    assert_denied(b, &all); /* before it was asked for the head */
    assert_fetches(b, &head, whole.head, whole.head_bytes);
    fill(a->replica, LARGE, 7); /* our own goes on */
    assert_fetches(b, &all, body, 4 * DIGEST_LEAF_BYTES);
    assert_fetches(b, &last, body + (LARGE_LEAVES - 1) * DIGEST_LEAF_BYTES, DIGEST_LEAF_BYTES);
    assert_denied(b, &beyond);
    assert_denied(b, &over);
    assert_denied(b, &theirs);
    assert_denied(c, &all);
    assert_fetches(c, &head, whole.head, whole.head_bytes); /* the same copy serves others */
    assert_fetches(c, &all, body, 4 * DIGEST_LEAF_BYTES);
    free_whole(&whole);
    end();
}

static void few_states_are_kept_for_others_and_no_longer_than_they_read(void **state)
{
    (void)state;
    begin("states-few");
    struct whole large = whole_of(a->replica, LARGE), small = whole_of(a->replica, SMALL),
                 other = whole_of(a->replica, OTHER), last = whole_of(a->replica, THIRD);
    const struct wire_key first = head_key(LARGE, A), second = head_key(SMALL, A), third = head_key(OTHER, A),
                          fourth = head_key(THIRD, A), leaves = leaves_key(LARGE, A, 0, 1);
    assert_fetches(b, &first, large.head, large.head_bytes);
    assert_fetches(b, &second, small.head, small.head_bytes);
    assert_denied(b, &third); /* what is left is for who comes after it */
    assert_fetches(c, &third, other.head, other.head_bytes);
    assert_fetches(c, &first, large.head, large.head_bytes);
    played_say_done(b, A, &first, WIRE_NOT_NEEDED); /* it has all; c reads on */
    assert_denied(b, &fourth);
    assert_denied(b, &leaves);
    assert_fetches(c, &leaves, large.object + STATE_HEADER_BYTES, DIGEST_LEAF_BYTES);
    played_say_done(b, A, &second, WIRE_NOT_NEEDED);
    assert_fetches(b, &fourth, last.head, last.head_bytes);
    /* Who is silent for long is let go; c is not. */
    pass(STATE_SERVER_IDLE_MS - 2000);
    assert_fetches(c, &leaves, large.object + STATE_HEADER_BYTES, DIGEST_LEAF_BYTES);
    pass(4000);
    assert_denied(b, &leaves);
    assert_fetches(b, &second, small.head, small.head_bytes);
    assert_fetches(c, &leaves, large.object + STATE_HEADER_BYTES, DIGEST_LEAF_BYTES);
    free_whole(&large);
    free_whole(&small);
    free_whole(&other);
    free_whole(&last);
    end();
}

/* The next copy uses it, if there is one soon. */
static void memory_of_copies_goes_when_nobody_reads(void **state)
{
    (void)state;
#ifdef __SANITIZE_ADDRESS__
    print_message("skipped: under the address sanitizer large memory is the allocator's, and is not counted\n");
    skip();
#endif
    begin("states-memory");
    struct whole whole = whole_of(a->replica, LARGE);
    const struct wire_key head = head_key(LARGE, A);
    size_t before = mem_pages_bytes();
    assert_fetches(b, &head, whole.head, whole.head_bytes);
    size_t with = mem_pages_bytes();
    assert_true(with >= before + whole.bytes);
    played_say_done(b, A, &head, WIRE_NOT_NEEDED);
    pass(2000);
    assert_fetches(c, &head, whole.head, whole.head_bytes);
    assert_int_equal(mem_pages_bytes(), with);
    played_say_done(c, A, &head, WIRE_NOT_NEEDED);
    pass(STATE_SERVER_IDLE_MS + 2000);
    assert_int_equal(mem_pages_bytes(), before);
    free_whole(&whole);
    end();
}

static void a_reader_that_restarts_is_let_go(void **state)
{
    (void)state;
    begin("states-restart");
    struct whole large = whole_of(a->replica, LARGE), small = whole_of(a->replica, SMALL),
                 other = whole_of(a->replica, OTHER), last = whole_of(a->replica, THIRD);
    const struct wire_key first = head_key(LARGE, A), second = head_key(SMALL, A), third = head_key(OTHER, A),
                          fourth = head_key(THIRD, A), leaves = leaves_key(SMALL, A, 0, 1);
    struct event event;
    assert_fetches(b, &first, large.head, large.head_bytes);
    assert_fetches(b, &third, other.head, other.head_bytes);
    assert_fetches(c, &second, small.head, small.head_bytes);
    assert_denied(b, &fourth);
    b->session++;
    b->sequence = 0;
    played_hello(b);
    played_say(b, A);
    isle_wait(isle_took_sync(a, SYNC_EV_PEER_DOWN, &event));
    assert_fetches(b, &fourth, last.head, last.head_bytes);
    assert_fetches(c, &leaves, small.object + STATE_HEADER_BYTES, small.bytes - STATE_HEADER_BYTES);
    free_whole(&large);
    free_whole(&small);
    free_whole(&other);
    free_whole(&last);
    end();
}

static void one_reader_has_few_ranges_on_their_way(void **state)
{
    (void)state;
    begin("states-ranges");
    struct whole whole = whole_of(a->replica, LARGE);
    const struct wire_key head = head_key(LARGE, A);
    assert_fetches(b, &head, whole.head, whole.head_bytes);
    for (uint32_t i = 0; i < STATE_SERVER_RANGES_MAX; i++) {
        const struct wire_key key = leaves_key(LARGE, A, 4 * i, 4);
        played_say_fetch(b, A, &key);
        isle_wait(objects_unacknowledged(a->objects, B) > 0);
    }
    const struct wire_key more = leaves_key(LARGE, A, 60, 1);
    assert_denied(b, &more);
    free_whole(&whole);
    end();
}

/* What our memory does not hold any more goes to nobody. */
static void a_damaged_state_does_not_go_out(void **state)
{
    (void)state;
    begin("states-damaged");
    const struct wire_key head = head_key(LARGE, A), newer = {.kind = WIRE_STATE, .version = 1, .island = A},
                          nowhere = head_key(ISLE_FRAGMENTS, A), lost = head_key(OTHER, A);
    replica_anchor(a->replica, LARGE)[77] += 1;
    assert_denied(b, &head);
    assert_denied(b, &newer);
    assert_denied(b, &nowhere);
    isle_step(a, &(struct sync_event){.type = SYNC_EV_LOST, .fragment = OTHER, .member = B});
    assert_denied(b, &lost); /* we look for one ourselves */
    end();
}

/* ---- in ---- */

/* How an island that is played serves. */
struct server {
    struct played *played;
    uint32_t leaves, ranges; /* that it was asked for */
    uint32_t lies_from;      /* leaf */
    bool silent;
};

static struct whole theirs; /* what b and c hold */
static struct server servers[2];

/* They say that they hold another version 0, and ours is lost. */
static void lose(uint32_t f, float with)
{
    struct replica *replica;
    struct replica_conf conf = {
        .plan = a->plan->plan, .outer = rules_outer(&run->spec), .choice = rules_codec(&run->spec)};
    assert_ok(replica_new(&conf, &replica));
    fill(replica, f, with);
    theirs = whole_of(replica, f);
    replica_free(replica);
    for (int i = 0; i < 2; i++) {
        struct event event;
        struct wire_heartbeat *beat = played_beat(i == 0 ? b : c);
        beat->fragments[f].at.hash = theirs.state.hash;
        beat->fragments[f].at.hash_known = true;
        played_say(i == 0 ? b : c, A);
        isle_wait(isle_took_sync(a, SYNC_EV_HEARTBEAT, &event));
        sync_step(a->sync, &(struct sync_event){.type = SYNC_EV_PEER_UP, .member = B + (uint32_t)i}, a->now_ms);
        isle_step(a, &event.sync);
        servers[i] = (struct server){.played = i == 0 ? b : c, .lies_from = UINT32_MAX};
    }
    if (sync_state(a->sync, f) != SYNC_REPAIR)
        isle_step(a, &(struct sync_event){.type = SYNC_EV_LOST, .fragment = f, .member = B});
    assert_int_equal(sync_state(a->sync, f), SYNC_REPAIR);
}

static void serve_leaves(struct server *server, const struct wire_key *key)
{
    uint64_t first = (uint64_t)key->first * DIGEST_LEAF_BYTES, bytes = (uint64_t)key->count * DIGEST_LEAF_BYTES,
             there = theirs.bytes - STATE_HEADER_BYTES - first;
    bytes = bytes < there ? bytes : there;
    uint8_t *copy = malloc(bytes);
    memcpy(copy, theirs.object + STATE_HEADER_BYTES + first, bytes);
    if (key->first + key->count > server->lies_from)
        copy[0] ^= 1;
    played_send(server->played, A, key, copy, bytes);
    server->leaves += key->count;
    server->ranges++;
    free(copy);
}

/* Brings what was asked for since the last look. */
static void serve(struct server *server)
{
    while (!server->silent && played_heard_type(server->played, WIRE_FETCH)) {
        const struct wire_key key = server->played->in.fetch.key;
        assert_int_equal(key.island, server->played->self);
        if (key.kind == WIRE_STATE)
            played_send(server->played, A, &key, theirs.head, theirs.head_bytes);
        else
            serve_leaves(server, &key);
    }
}

/* Events are only taken out when there is one: others of the same turn stay. */
static bool served_whole(struct event *event)
{
    serve(&servers[0]);
    serve(&servers[1]);
    return isle_took(a, EVENT_OBJECT, event);
}

static void assert_comes(uint32_t f)
{
    struct event event;
    isle_wait(served_whole(&event));
    assert_int_equal(event.object.key.kind, WIRE_STATE);
    assert_int_equal(event.object.bytes, theirs.bytes);
    assert_memory_equal(slots_state(a->slots, f), theirs.object, theirs.bytes);
    assert_true(objects_receiving(a->objects, &event.object.key)); /* until it is judged */
    slots_free_state(a->slots, f);
    objects_judged(a->objects, event.member, &event.object.key, WIRE_RECEIVED);
    assert_false(objects_receiving(a->objects, &event.object.key));
}

/* Sends its head, until it is asked for leaves. */
static bool asked_for_leaves(struct server *server)
{
    while (server->played->in.type != WIRE_FETCH || server->played->in.fetch.key.kind != WIRE_LEAVES) {
        if (!played_heard_type(server->played, WIRE_FETCH))
            return false;
        if (server->played->in.fetch.key.kind == WIRE_STATE)
            played_send(server->played, A, &server->played->in.fetch.key, theirs.head, theirs.head_bytes);
    }
    return true;
}

static void a_state_comes_from_two_at_once(void **state)
{
    (void)state;
    begin("states-in");
    lose(LARGE, 0.25f);
    /* Neither brings any until both are asked: else one that is quick, where the other's thread waits, brings all. */
    for (int i = 0; i < 2; i++)
        isle_wait(asked_for_leaves(&servers[i]));
    for (int i = 0; i < 2; i++)
        serve_leaves(&servers[i], &servers[i].played->in.fetch.key);
    assert_comes(LARGE);
    assert_int_equal(servers[0].leaves + servers[1].leaves, LARGE_LEAVES);
    assert_in_range(servers[0].leaves, 1, LARGE_LEAVES - 1);
    for (uint32_t i = B; i <= C; i++) { /* nobody need keep it for us */
        const struct wire_key key = head_key(LARGE, i);
        isle_wait(played_heard_of(i == B ? b : c, WIRE_DONE, &key) &&
                  (i == B ? b : c)->in.done.status == WIRE_NOT_NEEDED);
    }
    free_whole(&theirs);
    end();
}

/* One that serves all that was asked for at a time, and hears in order what is said of it. */
static bool serves_and_counts(struct server *server, uint32_t *open, struct event *event)
{
    struct wire_key keys[STATE_SERVER_RANGES_MAX];
    uint32_t count = 0;
    while (played_heard(server->played)) {
        const struct wire_message *in = &server->played->in;
        if (in->type == WIRE_DONE && in->done.key.kind == WIRE_LEAVES)
            --*open;
        if (in->type == WIRE_FETCH && in->fetch.key.kind == WIRE_STATE)
            played_send(server->played, A, &in->fetch.key, theirs.head, theirs.head_bytes);
        if (in->type != WIRE_FETCH || in->fetch.key.kind != WIRE_LEAVES)
            continue;
        assert_true(++*open <= PIECE_PICKER_ASKS); /* or it would be refused as too much at a time */
        keys[count++] = in->fetch.key;
    }
    for (uint32_t i = 0; i < count; i++)
        serve_leaves(server, &keys[i]);
    return isle_took(a, EVENT_OBJECT, event);
}

static void who_asks_for_more_has_said_what_is_here(void **state)
{
    (void)state;
    begin("states-order");
    lose(LARGE, 0.25f);
    struct event event;
    uint32_t open = 0;
    isle_wait(serves_and_counts(&servers[0], &open, &event));
    assert_memory_equal(slots_state(a->slots, LARGE), theirs.object, theirs.bytes);
    assert_int_equal(servers[0].leaves, LARGE_LEAVES);
    slots_free_state(a->slots, LARGE);
    objects_judged(a->objects, event.member, &event.object.key, WIRE_RECEIVED);
    free_whole(&theirs);
    end();
}

static void who_lies_is_named_and_not_asked_again(void **state)
{
    (void)state;
    begin("states-liar");
    lose(LARGE, 0.25f);
    servers[1].lies_from = 0;
    assert_comes(LARGE);
    assert_int_equal(servers[0].leaves, LARGE_LEAVES);
    assert_in_range(servers[1].ranges, 1, 2); /* what it was asked for at once */
    assert_string_equal(peers_info(a->peers, C).fault, "it has sent a state that is not the one a majority signed");
    assert_string_equal(peers_info(a->peers, B).note, "");
    free_whole(&theirs);
    end();
}

static void ranges_of_another_length_are_not_taken(void **state)
{
    (void)state;
    begin("states-length");
    lose(LARGE, 0.25f);
    servers[1].silent = true;
    isle_wait(played_heard_type(c, WIRE_FETCH));
    const struct wire_key head = c->in.fetch.key;
    played_send(c, A, &head, theirs.head, theirs.head_bytes);
    isle_wait((played_heard_type(c, WIRE_FETCH) && c->in.fetch.key.kind == WIRE_LEAVES));
    const struct wire_key key = c->in.fetch.key;
    uint64_t bytes = (uint64_t)key.count * DIGEST_LEAF_BYTES;
    struct wire_key other = key;
    other.first++;
    played_send_chunk(c, A, &other, bytes, 0, theirs.object, 1000); /* not asked for */
    assert_answered(c, &other, WIRE_NOT_NEEDED);
    other = key;
    other.island = B; /* of another, under its name */
    played_send_chunk(c, A, &other, bytes, 0, theirs.object, 1000);
    assert_answered(c, &other, WIRE_NOT_NEEDED);
    played_send_chunk(c, A, &key, (uint64_t)1 << 50, 0, theirs.object, 1000);
    assert_answered(c, &key, WIRE_NOT_NEEDED);
    assert_string_equal(peers_info(a->peers, C).fault, "it has sent a state that is not the one a majority signed");
    assert_comes(LARGE);
    assert_int_equal(servers[0].leaves, LARGE_LEAVES);
    free_whole(&theirs);
    end();
}

static void a_head_that_proves_nothing_is_refused(void **state)
{
    (void)state;
    begin("states-head");
    lose(LARGE, 0.25f);
    servers[1].silent = true;
    isle_wait(played_heard_type(c, WIRE_FETCH));
    const struct wire_key head = c->in.fetch.key;
    uint64_t most = state_head_bytes_max(a->replica, LARGE, 3);
    played_send_chunk(c, A, &head, most + 1, 0, theirs.head, 1000);
    assert_answered(c, &head, WIRE_NOT_NEEDED);
    assert_null(slots_state(a->slots, LARGE));
    theirs.head[theirs.head_bytes - 1] ^= 1;
    played_send(c, A, &head, theirs.head, theirs.head_bytes);
    assert_answered(c, &head, WIRE_REFUSED);
    assert_null(slots_state(a->slots, LARGE));
    theirs.head[theirs.head_bytes - 1] ^= 1;
    played_send(c, A, &head, theirs.head, theirs.head_bytes);
    assert_answered(c, &head, WIRE_NOT_NEEDED); /* whatever it says now */
    assert_comes(LARGE);
    free_whole(&theirs);
    end();
}

/* What was sent is taken in. */
static void await_leaves(uint32_t count)
{
    isle_wait(objects_state_bytes(a->objects, LARGE) >= (uint64_t)count * DIGEST_LEAF_BYTES);
}

/* What came of it stays, and no leaf is asked for twice but those that were on their way. */
static void a_source_that_restarts_midway_costs_little(void **state)
{
    (void)state;
    begin("states-dies");
    lose(LARGE, 0.25f);
    servers[0].silent = true;
    while (servers[1].leaves < LARGE_LEAVES / 2) {
        serve(&servers[1]);
        isle_turn_all();
    }
    uint32_t before = servers[1].leaves;
    servers[1].silent = true;
    await_leaves(before);
    c->session++;
    c->sequence = 0;
    played_hello(c);
    played_say(c, A);
    servers[0].silent = false;
    assert_comes(LARGE);
    assert_in_range(servers[0].leaves, LARGE_LEAVES - before, LARGE_LEAVES - before + LARGE_LEAVES / 4);
    free_whole(&theirs);
    end();
}

/* Until all lines are cut, half of it is here. */
static void cut_midway(const char *name)
{
    begin(name);
    lose(LARGE, 0.25f);
    servers[0].silent = true;
    while (servers[1].leaves < LARGE_LEAVES / 2) {
        serve(&servers[1]);
        isle_turn_all();
    }
    servers[1].silent = true;
    await_leaves(servers[1].leaves);
    for (uint32_t i = B; i <= C; i++)
        isle_step(a, &(struct sync_event){.type = SYNC_EV_PEER_DOWN, .member = i});
}

static void wait_cut(uint64_t ms)
{
    for (uint64_t until_ms = a->now_ms + ms; a->now_ms < until_ms;) {
        a->now_ms += 500;
        isle_tick(a);
        isle_turn_all();
    }
}

/* C, which is back, is asked for the head again. However long the machine takes, not much of the isle's time passes. */
static struct wire_key await_question(void)
{
    struct event event;
    (void)played_beat(c);
    played_say(c, A);
    isle_wait(isle_took_sync(a, SYNC_EV_HEARTBEAT, &event));
    uint64_t until_ms = a->now_ms + 2500;
    isle_wait((played_heard_type(c, WIRE_FETCH) && c->in.fetch.key.kind == WIRE_STATE) ||
              (a->now_ms += a->now_ms < until_ms ? 10 : 0, isle_tick(a), false));
    return c->in.fetch.key;
}

/* A line of an ordinary household is down for some seconds now and then, and a state of gigabytes takes hours. */
static void who_is_cut_off_goes_on_where_it_was(void **state)
{
    (void)state;
    cut_midway("states-cut");
    uint32_t before = servers[1].leaves;
    wait_cut(STATE_SERVER_IDLE_MS - 2000);
    assert_non_null(slots_state(a->slots, LARGE));
    isle_step(a, &(struct sync_event){.type = SYNC_EV_PEER_UP, .member = C});
    const struct wire_key head = await_question();
    played_send(c, A, &head, theirs.head, theirs.head_bytes);
    servers[1].silent = false;
    assert_comes(LARGE);
    assert_in_range(servers[1].leaves, LARGE_LEAVES, LARGE_LEAVES + before - 1); /* what was on its way comes again */
    free_whole(&theirs);
    end();
}

/* What was on its way when the line was cut comes before anything new, and TCP takes its time to try again. */
static void who_is_back_may_take_long_to_answer(void **state)
{
    (void)state;
    cut_midway("states-cut-slow");
    uint32_t before = servers[1].leaves;
    wait_cut(1000);
    for (uint32_t i = B; i <= C; i++)
        isle_step(a, &(struct sync_event){.type = SYNC_EV_PEER_UP, .member = i});
    const struct wire_key head = await_question();
    wait_cut(15000);
    assert_non_null(slots_state(a->slots, LARGE));
    played_send(c, A, &head, theirs.head, theirs.head_bytes);
    servers[1].silent = false;
    assert_comes(LARGE);
    assert_in_range(servers[1].leaves, LARGE_LEAVES, LARGE_LEAVES + before - 1);
    free_whole(&theirs);
    end();
}

static void who_is_cut_off_for_long_begins_anew(void **state)
{
    (void)state;
    struct event event;
    cut_midway("states-cut-long");
    wait_cut(STATE_SERVER_IDLE_MS);
    isle_wait(isle_took_sync(a, SYNC_EV_NOT_AVAILABLE, &event) || (a->now_ms += 100, isle_tick(a), false));
    assert_null(slots_state(a->slots, LARGE));
    free_whole(&theirs);
    end();
}

static void assert_core_is_told(uint32_t f, uint32_t member)
{
    struct event event;
    isle_wait(isle_took_sync(a, SYNC_EV_NOT_AVAILABLE, &event));
    const struct wire_key key = head_key(f, member);
    assert_true(wire_key_equal(&event.sync.key, &key));
    assert_int_equal(event.sync.member, member);
    assert_false(objects_receiving(a->objects, &key));
    assert_null(slots_state(a->slots, f));
    isle_step(a, &event.sync);
}

/* Where nobody else has it, it is asked for again and again. */
static void heads_that_prove_nothing_fill_no_log(void **state)
{
    (void)state;
    begin("states-heads");
    struct event event;
    lose(LARGE, 0.25f);
    theirs.head[theirs.head_bytes - 1] ^= 1;
    struct wire_key first = head_key(LARGE, B), second = head_key(LARGE, C);
    overhear_begin();
    for (int k = 0; k < 2 * LOG_LINES_OF_ONE; k++) {
        isle_wait(played_heard_of(c, WIRE_FETCH, &second));
        played_send(c, A, &second, theirs.head, theirs.head_bytes);
        assert_answered(c, &second, WIRE_REFUSED);
        isle_wait(played_heard_of(b, WIRE_FETCH, &first));
        played_say_done(b, A, &first, WIRE_NOT_AVAILABLE);
        isle_wait(isle_took_sync(a, SYNC_EV_NOT_AVAILABLE, &event));
        isle_step(a, &event.sync);
        a->now_ms += LOG_LINES_OF_ONE_MS / (2 * LOG_LINES_OF_ONE);
        isle_step(a, &(struct sync_event){.type = SYNC_EV_TICK});
    }
    assert_in_range(overhear_count(overhear_end(), "the head of the state of fragment"), LOG_LINES_OF_ONE,
                    LOG_LINES_OF_ONE + 1);
    free_whole(&theirs);
    end();
}

static void what_nobody_has_is_told_to_the_core(void **state)
{
    (void)state;
    begin("states-nobody");
    lose(LARGE, 0.25f);
    struct wire_key first = head_key(LARGE, B), second = head_key(LARGE, C);
    isle_wait(played_heard_of(b, WIRE_FETCH, &first));
    isle_wait(played_heard_of(c, WIRE_FETCH, &second));
    assert_true(objects_receiving(a->objects, &first) &&
                !objects_state_comes(a->objects, &first)); /* asked for alone */
    played_say_done(b, A, &first, WIRE_NOT_AVAILABLE);
    played_say_done(c, A, &second, WIRE_NOT_AVAILABLE);
    assert_core_is_told(LARGE, B);
    /* Midway: the others are waited for a little. */
    a->now_ms += 1000;
    isle_step(a, &(struct sync_event){.type = SYNC_EV_TICK});
    isle_wait(played_heard_type(b, WIRE_FETCH));
    first = b->in.fetch.key;
    played_send(b, A, &first, theirs.head, theirs.head_bytes);
    isle_wait((played_heard_type(b, WIRE_FETCH) && b->in.fetch.key.kind == WIRE_LEAVES));
    const struct wire_key leaves = b->in.fetch.key;
    assert_non_null(slots_state(a->slots, LARGE));
    assert_true(objects_state_comes(a->objects, &first));
    played_say_done(b, A, &leaves, WIRE_NOT_AVAILABLE);
    isle_wait(played_heard_of(b, WIRE_FETCH, &first) || (a->now_ms += 100, isle_tick(a), false));
    played_say_done(b, A, &first, WIRE_NOT_AVAILABLE);
    played_say_done(c, A, &second, WIRE_NOT_AVAILABLE);
    struct event event;
    isle_wait(isle_took_sync(a, SYNC_EV_NOT_AVAILABLE, &event) || (a->now_ms += 100, isle_tick(a), false));
    assert_null(slots_state(a->slots, LARGE));
    free_whole(&theirs);
    end();
}

static void what_was_not_asked_for_is_not_taken(void **state)
{
    (void)state;
    begin("states-unasked");
    const struct wire_key head = head_key(LARGE, B), leaves = leaves_key(LARGE, B, 0, 1),
                          beyond = head_key(ISLE_FRAGMENTS, B);
    const struct wire_key *const keys[] = {&head, &leaves, &beyond};
    static const uint8_t bytes[1000];
    for (int k = 0; k < 3; k++) {
        played_send_chunk(b, A, keys[k], sizeof bytes, 0, bytes, sizeof bytes);
        assert_answered(b, keys[k], WIRE_NOT_NEEDED);
    }
    end();
}

static void no_state_comes_in_while_a_trainers_tensors_are_taken_over(void **state)
{
    (void)state;
    begin_with("states-initial", false);
    struct played_trainer *trainer = played_trainer_open(a);
    played_trainer_publish_initial(trainer);
    assert_true(attachment_initialising(a->trainer->attachment));
    lose(OTHER, 0.25f);
    isle_wait(played_heard_type(b, WIRE_FETCH));
    const struct wire_key key = b->in.fetch.key;
    played_send(b, A, &key, theirs.head, theirs.head_bytes);
    assert_answered(b, &key, WIRE_NOT_YET);
    for (uint32_t f = 0; f < ISLE_FRAGMENTS; f++)
        trainer_started(a->trainer, f, true);
    played_send(b, A, &key, theirs.head, theirs.head_bytes);
    assert_comes(OTHER);
    played_trainer_close(trainer);
    free_whole(&theirs);
    end();
}

int main(void)
{
    assert_ok(digest_init());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_state_goes_out_as_it_was_when_it_was_asked_for),
        cmocka_unit_test(few_states_are_kept_for_others_and_no_longer_than_they_read),
        cmocka_unit_test(memory_of_copies_goes_when_nobody_reads),
        cmocka_unit_test(a_reader_that_restarts_is_let_go),
        cmocka_unit_test(one_reader_has_few_ranges_on_their_way),
        cmocka_unit_test(a_damaged_state_does_not_go_out),
        cmocka_unit_test(a_state_comes_from_two_at_once),
        cmocka_unit_test(who_asks_for_more_has_said_what_is_here),
        cmocka_unit_test(who_lies_is_named_and_not_asked_again),
        cmocka_unit_test(ranges_of_another_length_are_not_taken),
        cmocka_unit_test(a_head_that_proves_nothing_is_refused),
        cmocka_unit_test(heads_that_prove_nothing_fill_no_log),
        cmocka_unit_test(a_source_that_restarts_midway_costs_little),
        cmocka_unit_test(who_is_cut_off_goes_on_where_it_was),
        cmocka_unit_test(who_is_back_may_take_long_to_answer),
        cmocka_unit_test(who_is_cut_off_for_long_begins_anew),
        cmocka_unit_test(what_nobody_has_is_told_to_the_core),
        cmocka_unit_test(what_was_not_asked_for_is_not_taken),
        cmocka_unit_test(no_state_comes_in_while_a_trainers_tensors_are_taken_over),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
