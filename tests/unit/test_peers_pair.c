/* SPDX-License-Identifier: Apache-2.0 */
/* peers: the plan on its way to an island that has none, from a played one and from one with all its parts; and two
 * with all their parts, which tell each other how they stand and exchange an object. */
#include "tests/lib/testlib.h"

#include <stdlib.h>
#include <string.h>

#include "common/digest.h"
#include "common/mem.h"
#include "tests/lib/isle.h"
#include "tests/lib/played.h"
#include "tests/lib/shares.h"

enum { A, B };
enum { PLAN_AGAIN_MS = 2000, ANNOUNCE_MS = 3 };

static const struct wire_key plan_key = {.kind = WIRE_PLAN};
static struct isle_run *run;
static struct isle *a;
static struct played *b;
static struct model_plan *plan;

static void begin(const char *name)
{
    run = isle_run_new(name, 2, NULL);
    b = played_open(run, B, 0, NULL);
    a = isle_open(run, A, NULL, 0);
    plan = isle_model_plan(run);
}

static void end(void)
{
    model_plan_free(plan);
    isle_close(a);
    played_close(b);
    isle_run_free(run);
}

static void say_plan_known(const struct digest *id)
{
    played_hello(b)->plan_known = true;
    b->out.hello.plan_id = *id;
    played_say(b, A);
    isle_wait(peers_info(a->peers, B).up);
}

/* Sends text as the plan; what becomes of it. */
static enum err bring_plan(const char *text, size_t bytes, struct model_plan **out)
{
    struct event event;
    played_send(b, A, &plan_key, text, bytes);
    isle_wait(isle_took(a, EVENT_OBJECT, &event));
    assert_int_equal(event.object.key.kind, WIRE_PLAN);
    enum err err = objects_take_plan(a->objects, event.member, &event.object.key, event.object.bytes,
                                     peers_plan_id(a->peers, event.member), out);
    isle_wait(played_heard_of(b, WIRE_DONE, &plan_key));
    assert_int_equal(b->in.done.status, WIRE_RECEIVED);
    return err;
}

static void a_plan_is_asked_for_of_one_who_knows_it(void **state)
{
    (void)state;
    begin("pair-ask");
    played_greet(b, a);
    isle_tick(a);
    a->now_ms += PLAN_AGAIN_MS;
    isle_tick(a);
    say_plan_known(&plan->id);
    isle_wait(isle_took_sync(a, SYNC_EV_PEER_UP, &(struct event){0}));
    played_beat(b);
    played_say(b, A);
    isle_wait(isle_took_sync(a, SYNC_EV_HEARTBEAT, &(struct event){0}));
    assert_int_equal(played_settle(b, A, WIRE_FETCH), 0); /* nobody knew it up to now */
    isle_tick(a);
    assert_int_equal(played_settle(b, A, WIRE_FETCH), 1);
    a->now_ms += PLAN_AGAIN_MS - 1;
    isle_tick(a);
    assert_int_equal(played_settle(b, A, WIRE_FETCH), 0);
    a->now_ms++;
    isle_tick(a);
    isle_wait(played_heard_of(b, WIRE_FETCH, &plan_key)); /* again, but not before its time */
    struct model_plan *got = NULL;
    assert_ok(bring_plan(plan->text, strlen(plan->text), &got));
    assert_false(played_heard_of(b, WIRE_FETCH, &plan_key));
    assert_true(digest_equal(&got->id, &plan->id));
    assert_string_equal(got->text, plan->text);
    model_plan_free(got);
    isle_know_plan(a);
    a->now_ms += 10 * PLAN_AGAIN_MS;
    isle_tick(a);
    isle_wait(played_heard_type(b, WIRE_HELLO) && b->in.hello.plan_known);
    assert_false(played_heard_of(b, WIRE_FETCH, &plan_key));
    end();
}

static void a_plan_that_is_not_the_one_announced_or_none_at_all_is_refused(void **state)
{
    (void)state;
    struct model_plan *got;
    struct digest other = digest_of("x", 1);
    begin("pair-wrong");
    say_plan_known(&other);
    assert_fails(ERR_PROTO, "not the one its digest stands for", bring_plan(plan->text, strlen(plan->text), &got));
    assert_null(got);
    assert_int_equal(bring_plan("no plan", 7, &got), ERR_PROTO);
    assert_null(got);
    assert_false(objects_receiving(a->objects, &plan_key)); /* another may bring it */
    end();
}

static void a_plan_that_is_too_long_or_comes_too_late_is_not_needed(void **state)
{
    (void)state;
    struct model_plan *got;
    struct event event;
    begin("pair-late");
    say_plan_known(&plan->id);
    played_send_chunk(b, A, &plan_key, MODEL_PLAN_TEXT_MAX + 1, 0, plan->text, 100);
    isle_wait(played_heard_of(b, WIRE_DONE, &plan_key));
    assert_int_equal(b->in.done.status, WIRE_NOT_NEEDED);
    /* Whole, but before it is looked at the plan is known from elsewhere. */
    played_send(b, A, &plan_key, plan->text, strlen(plan->text));
    isle_wait(isle_took(a, EVENT_OBJECT, &event));
    isle_know_plan(a);
    assert_fails(
        ERR_STATE, "known already",
        objects_take_plan(a->objects, B, &event.object.key, event.object.bytes, peers_plan_id(a->peers, B), &got));
    assert_null(got);
    played_send_chunk(b, A, &plan_key, strlen(plan->text), 0, plan->text, 100);
    isle_wait(played_heard_of(b, WIRE_DONE, &plan_key) && b->in.done.status == WIRE_NOT_NEEDED);
    end();
}

static void what_a_peer_takes_in_is_remembered_when_the_plan_comes(void **state)
{
    (void)state;
    enum { CHUNK = 64 << 10, BYTES = 8 * CHUNK };
    struct wire_key key = {.kind = WIRE_CONTRIBUTION, .version = 1, .owner = B, .island = A};
    begin("pair-window");
    played_greet(b, a); /* with a window of more than that */
    isle_know_plan(a);
    struct slot *slot = slots_out(a->slots, 0, shares_part(&a->parts, 0, B));
    assert_ok(slots_room(a->slots, slot, 0, shares_mask(&a->parts, 0, B)));
    slot->bytes = BYTES;
    slot->version = 1;
    objects_send(a->objects, &key, B, a->now_ms);
    uint64_t most = 0;
    for (uint64_t have = 0; have < BYTES; have += b->chunk.bytes) {
        isle_wait(played_heard_of(b, WIRE_CHUNK, &key));
        uint64_t now = objects_unacknowledged(a->objects, B);
        most = now > most ? now : most;
        played_say_ack(b, A, &key, have + b->chunk.bytes, false);
    }
    assert_true(most > CHUNK); /* more than goes to one that has not said what it takes in */
    end();
}

/* Not even how much memory a plan takes is a peer's to decide. */
static void without_memory_for_a_plan_it_comes_again_later(void **state)
{
    (void)state;
    begin("pair-memory");
    say_plan_known(&plan->id);
    isle_wait(isle_took_sync(a, SYNC_EV_PEER_UP, &(struct event){0}));
    mem_fail_after(0);
    played_send(b, A, &plan_key, plan->text, strlen(plan->text));
    isle_wait(played_heard_of(b, WIRE_DONE, &plan_key));
    mem_fail_after(-1);
    assert_int_equal(b->in.done.status, WIRE_NOT_YET);
    struct model_plan *got;
    assert_ok(bring_plan(plan->text, strlen(plan->text), &got));
    model_plan_free(got);
    end();
}

/* ---- two with all their parts ---- */

static struct isle *left, *right;

static void begin_pair(const char *name)
{
    run = isle_run_new(name, 2, NULL);
    isle_listen(run, A);
    left = isle_open(run, A, NULL, 0);
    right = isle_open(run, B, NULL, 0);
}

static void end_pair(void)
{
    isle_close(left);
    isle_close(right);
    isle_run_free(run);
}

static bool both_up(void)
{
    return peers_info(left->peers, B).up && peers_info(right->peers, A).up;
}

static void the_plan_travels_from_one_island_to_another(void **state)
{
    (void)state;
    struct event event;
    struct model_plan *got;
    begin_pair("pair-travels");
    isle_know_plan(left);
    isle_wait(both_up() && peers_heard(right->peers)); /* nobody else may know another plan */
    isle_tick(right);
    isle_wait(isle_took(right, EVENT_OBJECT, &event));
    assert_ok(objects_take_plan(right->objects, A, &event.object.key, event.object.bytes,
                                peers_plan_id(right->peers, A), &got));
    assert_true(digest_equal(&got->id, &left->plan->id));
    model_plan_free(got);
    end_pair();
}

static bool heard_version(const struct isle *isle, uint32_t member, uint32_t f, uint64_t version)
{
    return sync_heard(isle->sync, member, f).version == version;
}

static void two_islands_hear_how_the_other_stands_and_exchange_a_contribution(void **state)
{
    (void)state;
    struct digest hash = digest_of("x", 1);
    struct event event;
    begin_pair("pair-exchange");
    left->engine = right->engine = true;
    isle_know_plan(left);
    isle_know_plan(right);
    isle_wait(both_up());
    for (uint32_t f = 0; f < ISLE_FRAGMENTS; f++) {
        sync_restore(left->sync, f, 10 + f, &hash);
        sync_restore(right->sync, f, 10 + f, &hash);
    }
    left->now_ms = right->now_ms += ANNOUNCE_MS;
    peers_announce(left->peers);
    peers_announce(right->peers);
    for (uint32_t f = 0; f < ISLE_FRAGMENTS; f++)
        isle_wait(heard_version(left, B, f, 10 + f) && heard_version(right, A, f, 10 + f));
    assert_true(sync_up(left->sync, B) && sync_up(right->sync, A));
    assert_true(peers_heard(left->peers) && peers_heard(right->peers));
    /* Left contributes to right's shard. */
    struct slot *out = slots_out(left->slots, 1, shares_part(&left->parts, 1, B)), *in = slots_in(right->slots, 1, A);
    assert_ok(slots_room(left->slots, out, 1, shares_mask(&left->parts, 1, B)));
    out->bytes = out->bytes_max;
    out->version = 12;
    memset(out->data, 0x5a, out->bytes);
    isle_step(left, &(struct sync_event){.type = SYNC_EV_TRAINER_UP, .fragment = 1, .version = 11});
    isle_step(left, &(struct sync_event){.type = SYNC_EV_SNAPSHOT, .fragment = 1});
    isle_step(left, &(struct sync_event){.type = SYNC_EV_ENCODED, .fragment = 1});
    isle_wait(isle_took(right, EVENT_OBJECT, &event));
    assert_int_equal(event.object.key.kind, WIRE_CONTRIBUTION);
    assert_int_equal(event.object.key.version, 12);
    assert_int_equal(event.member, A);
    assert_int_equal(event.object.bytes, out->bytes);
    assert_memory_equal(in->data, out->data, out->bytes);
    isle_wait(objects_unacknowledged(left->objects, B) == 0); /* acknowledged with its last byte */
    objects_judged(right->objects, A, &event.object.key, WIRE_RECEIVED);
    isle_wait(objects_sent_bytes(left->objects) == out->bytes);
    left->now_ms += ANNOUNCE_MS;
    isle_wait(sync_heard(right->sync, A, 1).contributed == 12);
    /* What the sockets carried is counted on both sides. */
    isle_wait((link_sample(left->link), peers_info(left->peers, B).sent > out->bytes));
    isle_wait((link_sample(right->link), peers_info(right->peers, A).received > out->bytes));
    end_pair();
}

int main(void)
{
    assert_ok(digest_init());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_plan_is_asked_for_of_one_who_knows_it),
        cmocka_unit_test(a_plan_that_is_not_the_one_announced_or_none_at_all_is_refused),
        cmocka_unit_test(a_plan_that_is_too_long_or_comes_too_late_is_not_needed),
        cmocka_unit_test(what_a_peer_takes_in_is_remembered_when_the_plan_comes),
        cmocka_unit_test(without_memory_for_a_plan_it_comes_again_later),
        cmocka_unit_test(the_plan_travels_from_one_island_to_another),
        cmocka_unit_test(two_islands_hear_how_the_other_stands_and_exchange_a_contribution),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
