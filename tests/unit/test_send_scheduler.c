/* SPDX-License-Identifier: Apache-2.0 */
/* send_scheduler: how much goes to a peer, when, and in chunks of what size; over a real connection on loopback, whose
 * far end is played. */
#include "tests/lib/testlib.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/digest.h"
#include "common/env.h"
#include "daemon/transfer/send_scheduler.h"
#include "net/transfer/congestion_window.h"

enum { A, B, MEMBERS };
enum { OBJECT = 2 << 20, TRANSFERS = 4, WINDOW = 1 << 20 };

static struct ident idents[MEMBERS];
static char addresses[MEMBERS][32];
static struct link *links[MEMBERS];
static struct xfer *xfer;
static struct send_scheduler *scheduler;
static uint8_t *object;
static const struct wire_key key = {.kind = WIRE_CONTRIBUTION, .version = 1, .owner = B};

static bool nobody_made(void *user, uint32_t peer, const struct wire_key *wanted)
{
    (void)user;
    (void)peer;
    (void)wanted;
    return false;
}

static enum xfer_verdict none_wanted(void *user, uint32_t peer, const struct wire_key *wanted, uint64_t total,
                                     struct xfer_offer *offer)
{
    (void)user;
    (void)peer;
    (void)wanted;
    (void)total;
    offer->answer = WIRE_NOT_NEEDED;
    return XFER_ANSWER;
}

static void open_link(uint32_t self)
{
    static const char *const names[] = {"a", "b"};
    struct link_member members[MEMBERS];
    for (uint32_t i = 0; i < MEMBERS; i++) {
        members[i] = (struct link_member){.name = names[i], .address = i != self ? addresses[i] : NULL};
        memcpy(members[i].key, idents[i].key, sizeof members[i].key);
    }
    struct link_conf conf = {.ident = &idents[self],
                             .listen = "127.0.0.1:*",
                             .members = members,
                             .members_count = MEMBERS,
                             .self = self,
                             .io_threads = 1};
    assert_ok(link_new(&conf, &links[self]));
    snprintf(addresses[self], sizeof addresses[self], "127.0.0.1:%u", link_port(links[self]));
}

static struct xfer *new_xfer(void)
{
    struct xfer_conf conf = {.peers_count = MEMBERS,
                             .outgoing_max = TRANSFERS,
                             .incoming_max = TRANSFERS,
                             .offer = none_wanted,
                             .maker = nobody_made};
    struct xfer *made;
    assert_ok(xfer_new(&conf, &made));
    return made;
}

static void begin(uint64_t rate_limit)
{
    addresses[B][0] = '\0';
    open_link(A);
    open_link(B); /* it dials us */
    struct wire_message hello = {.type = WIRE_FETCH, .fetch = {.key = key}};
    for (int i = 0; i < 5000 && !(link_up(links[A], B, true) && link_up(links[A], B, false)); i++) {
        struct link_event event;
        struct link_message message;
        (void)!link_say(links[B], A, &hello);
        while (link_event(links[A], &event) || link_event(links[B], &event)) {
        }
        (void)!link_recv(links[A], &message);
        usleep(1000);
    }
    assert_true(link_up(links[A], B, true) && link_up(links[A], B, false));
    struct send_scheduler_conf conf = {.link = links[A], .members_count = MEMBERS, .rate_limit = rate_limit};
    assert_ok(send_scheduler_new(&conf, &scheduler));
    xfer = new_xfer();
    send_scheduler_carry(scheduler, xfer);
    send_scheduler_set_window(scheduler, B, WINDOW);
}

static void end(void)
{
    send_scheduler_free(scheduler);
    xfer_free(xfer);
    link_free(links[A]);
    link_free(links[B]);
}

/* The next chunk that came in at the far end; false: none within a moment. */
static bool hear(struct wire_chunk *chunk)
{
    for (int i = 0; i < 50; i++) {
        struct link_message message;
        struct link_event event;
        send_scheduler_flush(scheduler, env_mono_ms());
        while (link_event(links[A], &event) || link_event(links[B], &event)) {
        }
        while (link_recv(links[B], &message) == ERR_OK) {
            if (message.header.type != WIRE_CHUNK)
                continue;
            assert_ok(wire_chunk_get(message.payload, message.bytes, chunk));
            return true;
        }
        usleep(200);
    }
    return false;
}

static void must_hear(struct wire_chunk *chunk)
{
    for (int i = 0; i < 1000; i++)
        if (hear(chunk))
            return;
    fail_msg("nothing came");
}

static void acknowledge(const struct wire_chunk *chunk)
{
    struct wire_ack ack = {.key = chunk->key, .have = chunk->offset + chunk->bytes, .pass = chunk->pass};
    ack.delay_us = send_scheduler_clock_us() - chunk->stamp_us;
    send_scheduler_note_delay(scheduler, B, ack.delay_us);
    assert_true(xfer_ack_in(xfer, B, &ack, env_mono_ms()));
}

static void begin_object(void)
{
    assert_ok(xfer_send(xfer, B, &key, object, OBJECT, false, env_mono_ms()));
}

static void little_goes_before_anything_is_known(void **state)
{
    (void)state;
    struct wire_chunk chunk;
    begin(0);
    begin_object();
    uint64_t bytes = 0;
    while (hear(&chunk))
        bytes += chunk.bytes;
    assert_int_equal(bytes, CONGESTION_WINDOW_MIN);
    assert_int_equal(send_scheduler_sent_bytes(scheduler), bytes);
    assert_true((int32_t)(send_scheduler_clock_us() - chunk.stamp_us) >= 0);
    end();
}

static void what_a_line_takes_goes_and_no_more_than_the_peer_takes_in(void **state)
{
    (void)state;
    enum { SMALL_WINDOW = 128 << 10 };
    static const uint64_t windows[] = {SMALL_WINDOW, WINDOW};
    for (int k = 0; k < 2; k++) {
        struct wire_chunk chunk = {.bytes = 0};
        uint64_t most = 0;
        begin(0);
        send_scheduler_set_window(scheduler, B, windows[k]);
        begin_object();
        while (chunk.offset + chunk.bytes < OBJECT) {
            must_hear(&chunk);
            assert_memory_equal(chunk.data, object + chunk.offset, chunk.bytes);
            uint64_t outstanding = xfer_outstanding(xfer, B);
            most = outstanding > most ? outstanding : most;
            acknowledge(&chunk);
        }
        assert_in_range(most, SMALL_WINDOW / 2, windows[k]);
        assert_int_equal(send_scheduler_sent_bytes(scheduler), OBJECT);
        assert_int_equal(send_scheduler_wasted_bytes(scheduler), 0);
        assert_int_equal(send_scheduler_wait_us(scheduler), 0);
        end();
    }
}

/* The line carries a burst, and then no more than the rate, of all that is handed to it. */
static void a_rate_limit_is_on_everything(void **state)
{
    (void)state;
    enum { RATE = 400000, BURST = RATE / 50, CHUNK = RATE / 40, SAID = 20, SAID_BYTES = 150, PART = OBJECT / 8 };
    struct wire_message message = {.type = WIRE_FETCH, .fetch = {.key = key}};
    struct wire_chunk chunk = {.bytes = 0};
    uint64_t said = 0;
    begin(8 * RATE);
    double begin_s = env_mono_s();
    begin_object();
    while (chunk.offset + chunk.bytes < PART) {
        must_hear(&chunk);
        acknowledge(&chunk);
        for (int i = 0; i < SAID; i++) /* what is said does not wait, and counts */
            said += link_say(links[A], B, &message) == ERR_OK ? SAID_BYTES : 0;
        double sent = (double)(send_scheduler_sent_bytes(scheduler) + said);
        assert_true(sent <= BURST + CHUNK + SAID * SAID_BYTES + (env_mono_s() - begin_s) * RATE);
    }
    assert_true(said > 0);
    end();
}

static void a_new_connection_is_asked_what_has_come(void **state)
{
    (void)state;
    struct wire_chunk chunk;
    begin(0);
    begin_object();
    must_hear(&chunk);
    while (hear(&chunk)) {
    }
    send_scheduler_reconnected(scheduler, B);
    must_hear(&chunk);
    assert_int_equal(chunk.bytes, 0);
    assert_int_equal(chunk.offset, CONGESTION_WINDOW_MIN);
    struct wire_ack ack = {.key = key, .have = 0, .ask = WIRE_ASK_GO_ON, .pass = chunk.pass};
    assert_true(xfer_ack_in(xfer, B, &ack, env_mono_ms()));
    must_hear(&chunk);
    assert_int_equal(chunk.offset, 0);
    assert_int_equal(send_scheduler_wasted_bytes(scheduler), CONGESTION_WINDOW_MIN);
    end();
}

/* When the plan comes there are other transfers: what those before had sent still counts, and takes no place. */
static void other_transfers_go_on_counting(void **state)
{
    (void)state;
    struct wire_chunk chunk;
    begin(0);
    begin_object();
    while (hear(&chunk)) {
    }
    struct xfer *before = xfer;
    xfer = new_xfer();
    send_scheduler_carry(scheduler, xfer);
    xfer_free(before);
    assert_int_equal(send_scheduler_sent_bytes(scheduler), CONGESTION_WINDOW_MIN);
    assert_int_equal(send_scheduler_wasted_bytes(scheduler), CONGESTION_WINDOW_MIN);
    begin_object();
    must_hear(&chunk);
    acknowledge(&chunk);
    while (hear(&chunk)) {
    }
    assert_true(send_scheduler_sent_bytes(scheduler) >= 2 * CONGESTION_WINDOW_MIN + CONGESTION_CHUNK_MIN);
    end();
}

/* What was sent to a member stays told when it is gone; its place is a new one's. */
static void members_come_and_go(void **state)
{
    (void)state;
    struct wire_chunk chunk;
    begin(0);
    begin_object();
    must_hear(&chunk);
    uint64_t before = send_scheduler_sent_bytes(scheduler);
    assert_ok(xfer_grow(xfer, 500, TRANSFERS, TRANSFERS));
    assert_ok(send_scheduler_grow(scheduler, 500));
    assert_int_equal(send_scheduler_sent_bytes(scheduler), before);
    send_scheduler_set_window(scheduler, 499, WINDOW);
    assert_true(xfer_outstanding(xfer, B) > 0);
    send_scheduler_forget(scheduler, B);
    assert_int_equal(xfer_outstanding(xfer, B), 0);
    assert_int_equal(send_scheduler_sent_bytes(scheduler), before);
    assert_int_equal(send_scheduler_wasted_bytes(scheduler), before);
    begin_object(); /* from its begin, as to somebody nobody knows; what was on its way may come before */
    do
        must_hear(&chunk);
    while (chunk.offset != 0);
    assert_true(send_scheduler_sent_bytes(scheduler) > before);
    end();
}

int main(void)
{
    assert_ok(digest_init());
    object = malloc(OBJECT);
    for (size_t i = 0; i < OBJECT; i++)
        object[i] = (uint8_t)(i * 31 + i / 1000);
    for (int i = 0; i < MEMBERS; i++)
        assert_ok(ident_generate(&idents[i]));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(little_goes_before_anything_is_known),
        cmocka_unit_test(what_a_line_takes_goes_and_no_more_than_the_peer_takes_in),
        cmocka_unit_test(a_rate_limit_is_on_everything),
        cmocka_unit_test(a_new_connection_is_asked_what_has_come),
        cmocka_unit_test(other_transfers_go_on_counting),
        cmocka_unit_test(members_come_and_go),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    free(object);
    return failed;
}
