/* SPDX-License-Identifier: Apache-2.0 */
/* xfer: objects arrive whole over a network that loses and delays; what is not lost is not sent twice; windows and
 * memory stay bounded. Bulk keeps its order, as the connection does; control messages come in any order, and twice. */
#include "tests/lib/testlib.h"

#include <stdlib.h>
#include <string.h>

#include "net/transfer/xfer.h"

enum { OBJECTS = 12, OBJECT_MAX = 1500000, QUEUE = 4096 };

struct packet {
    bool used, bulk;
    uint32_t from, to;
    uint64_t at_ms, order;
    struct xfer_message message;
    struct xfer_chunk chunk;
};

struct net {
    struct env_rng rng;
    uint64_t now_ms;
    unsigned loss_percent;
    bool cut; /* everything is lost */
    struct xfer *side[2];
    uint8_t *source[OBJECTS], *target[OBJECTS];
    uint64_t bytes[OBJECTS];
    bool complete[OBJECTS], ended[OBJECTS];
    unsigned not_yet; /* how many offers are still put off */
    unsigned refuse_fragment;
    uint64_t outstanding_max;
    uint64_t bulk_us_per_kib; /* a slow line: one chunk after the other */
    uint64_t bulk_free_us[2], bulk_last_ms[2], bulk_bytes;
    uint64_t order;
    struct packet packets[QUEUE];
};

static struct net *net;

static bool maker(void *user, uint32_t peer, const struct wire_key *key)
{
    (void)user;
    return key->island == peer;
}

static enum xfer_verdict offer(void *user, uint32_t peer, const struct wire_key *key, uint64_t total,
                               struct xfer_offer *answer)
{
    (void)user;
    (void)peer;
    (void)total;
    if (key->fragment == net->refuse_fragment) {
        answer->answer = WIRE_NOT_NEEDED;
        return XFER_ANSWER;
    }
    if (net->not_yet > 0) {
        net->not_yet--;
        answer->answer = WIRE_NOT_YET;
        return XFER_ANSWER;
    }
    if (net->complete[key->fragment]) {
        answer->answer = WIRE_RECEIVED;
        return XFER_ANSWER;
    }
    answer->buffer = net->target[key->fragment];
    answer->bytes_max = OBJECT_MAX;
    return XFER_TAKE;
}

static struct wire_key key_of(uint32_t i)
{
    return (struct wire_key){.kind = 1 + i % 3, .fragment = i, .version = 5};
}

static void setup(uint64_t seed, unsigned loss_percent, uint64_t window)
{
    net = calloc(1, sizeof *net);
    net->rng = env_rng_init(seed, 0);
    net->loss_percent = loss_percent;
    net->refuse_fragment = UINT32_MAX;
    for (uint32_t s = 0; s < 2; s++) {
        struct xfer_conf conf = {
            .peers_count = 2, .outgoing_max = 32, .incoming_max = 32, .offer = offer, .maker = maker};
        assert_ok(xfer_new(&conf, &net->side[s]));
        xfer_set_limit(net->side[s], 1 - s, &(struct xfer_limit){.window = window, .chunk = WIRE_CHUNK_BYTES_MAX});
    }
    for (uint32_t i = 0; i < OBJECTS; i++) {
        net->bytes[i] = 1 + env_rng_below(&net->rng, i % 4 == 0 ? 100 : OBJECT_MAX);
        net->source[i] = malloc(OBJECT_MAX);
        net->target[i] = calloc(1, OBJECT_MAX);
        for (uint64_t k = 0; k < net->bytes[i]; k++)
            net->source[i][k] = (uint8_t)(k * 31 + k / 1000 + i);
    }
}

static void teardown(void)
{
    for (uint32_t i = 0; i < OBJECTS; i++) {
        free(net->source[i]);
        free(net->target[i]);
    }
    xfer_free(net->side[0]);
    xfer_free(net->side[1]);
    free(net);
}

/* When a chunk is through: after those before it. */
static uint64_t bulk_at_ms(const struct packet *packet)
{
    uint64_t *free_us = &net->bulk_free_us[packet->from], *last_ms = &net->bulk_last_ms[packet->from];
    uint64_t now_us = net->now_ms * 1000, at_ms;
    *free_us = (*free_us > now_us ? *free_us : now_us) + net->bulk_us_per_kib * packet->chunk.bytes / 1024;
    at_ms = *free_us / 1000 + 5 + env_rng_below(&net->rng, 30);
    *last_ms = at_ms > *last_ms ? at_ms : *last_ms;
    return *last_ms;
}

static void post(struct packet packet)
{
    net->bulk_bytes += packet.bulk ? packet.chunk.bytes : 0;
    if (net->cut || env_rng_below(&net->rng, 100) < net->loss_percent)
        return;
    int copies = !packet.bulk && env_rng_below(&net->rng, 50) == 0 ? 2 : 1;
    for (size_t k = 0; k < QUEUE && copies > 0; k++) {
        if (net->packets[k].used)
            continue;
        packet.used = true;
        packet.at_ms = packet.bulk ? bulk_at_ms(&packet) : net->now_ms + 5 + env_rng_below(&net->rng, 30);
        packet.order = net->order++;
        net->packets[k] = packet;
        copies--;
    }
}

static void take_chunk(const struct packet *p)
{
    struct wire_chunk chunk = {.key = p->chunk.key,
                               .pass = p->chunk.pass,
                               .total = p->chunk.total,
                               .offset = p->chunk.offset,
                               .data = p->chunk.data,
                               .bytes = p->chunk.bytes};
    uint64_t bytes;
    uint32_t i = chunk.key.fragment;
    if (xfer_chunk_in(net->side[p->to], p->from, &chunk, 0, net->now_ms, &bytes) != XFER_COMPLETE)
        return;
    assert_false(net->complete[i]);
    assert_int_equal(bytes, net->bytes[i]);
    assert_memory_equal(net->source[i], net->target[i], bytes);
    net->complete[i] = true;
    xfer_finish(net->side[p->to], p->from, &chunk.key, WIRE_RECEIVED);
}

static void take_message(const struct packet *p)
{
    const struct xfer_message *m = &p->message;
    struct xfer *side = net->side[p->to];
    switch (m->type) {
    case WIRE_ACK: {
        struct wire_ack ack = {.key = m->key, .have = m->have, .ask = m->ask, .pass = m->pass};
        (void)xfer_ack_in(side, p->from, &ack, net->now_ms);
        break;
    }
    case WIRE_DONE:
        if (xfer_done_in(side, p->from, &m->key, m->status, net->now_ms))
            net->ended[m->key.fragment] = true;
        break;
    default: fail_msg("unexpected message %d", (int)m->type);
    }
}

/* Of those that are through the one that was sent first. */
static struct packet *next_packet(void)
{
    struct packet *next = NULL;
    for (size_t k = 0; k < QUEUE; k++) {
        struct packet *p = &net->packets[k];
        if (p->used && p->at_ms <= net->now_ms && (next == NULL || p->order < next->order))
            next = p;
    }
    return next;
}

static void step(void)
{
    net->now_ms += 5;
    struct packet *next;
    while ((next = next_packet()) != NULL) {
        struct packet p = *next;
        next->used = false;
        if (p.bulk)
            take_chunk(&p);
        else
            take_message(&p);
    }
    for (uint32_t s = 0; s < 2; s++) {
        struct packet p = {.from = s};
        xfer_tick(net->side[s], net->now_ms);
        while (xfer_message(net->side[s], &p.message)) {
            p.to = p.message.peer;
            post(p);
        }
        p.bulk = true;
        for (int n = 0; n < 8 && xfer_next(net->side[s], &(struct bitset){{0}}, &p.chunk); n++) {
            p.to = p.chunk.peer;
            xfer_sent(net->side[s], &p.chunk, net->now_ms);
            uint64_t outstanding = xfer_outstanding(net->side[s], p.to);
            net->outstanding_max = outstanding > net->outstanding_max ? outstanding : net->outstanding_max;
            post(p);
        }
    }
}

static void send_all(void)
{
    for (uint32_t i = 0; i < OBJECTS; i++) {
        struct wire_key key = key_of(i);
        assert_ok(xfer_send(net->side[i % 2], 1 - i % 2, &key, net->source[i], net->bytes[i], i % 3 == 0, net->now_ms));
        assert_ok(xfer_send(net->side[i % 2], 1 - i % 2, &key, net->source[i], net->bytes[i], i % 3 == 0, net->now_ms));
    }
}

static bool all_ended(void)
{
    for (uint32_t i = 0; i < OBJECTS; i++)
        if (!net->ended[i])
            return false;
    return true;
}

static void objects_arrive_whatever_is_lost(void **state)
{
    (void)state;
    for (unsigned seed = 0; seed < 20; seed++) {
        static const uint64_t windows[] = {65536, 200000, 1 << 20};
        uint64_t window = windows[seed % 3];
        setup(seed, seed * 2, window);
        net->not_yet = seed;
        send_all();
        while (net->now_ms < 600000 && !all_ended())
            step();
        if (!all_ended())
            fail_msg("seed %u: not everything arrived", seed);
        for (uint32_t i = 0; i < OBJECTS; i++)
            assert_true(net->complete[i]);
        assert_true(net->outstanding_max <= window);
        teardown();
    }
}

static void a_cut_link_resumes_where_it_was(void **state)
{
    (void)state;
    setup(99, 0, 1 << 20);
    send_all();
    while (net->now_ms < 100)
        step();
    net->cut = true;
    while (net->now_ms < 8000)
        step();
    net->cut = false;
    while (net->now_ms < 60000 && !all_ended())
        step();
    assert_true(all_ended());
    teardown();
}

static void unwanted_and_oversized_objects_end(void **state)
{
    (void)state;
    setup(5, 0, 1 << 20);
    net->refuse_fragment = 3;
    net->bytes[7] = OBJECT_MAX + 1; /* the receiver's limit holds before memory is touched */
    struct wire_key key = key_of(3), big = key_of(7);
    static uint8_t large[OBJECT_MAX + 1];
    assert_ok(xfer_send(net->side[0], 1, &key, net->source[3], net->bytes[3], false, 0));
    assert_ok(xfer_send(net->side[0], 1, &big, large, sizeof large, false, 0));
    while (net->now_ms < 5000 && !(net->ended[3] && net->ended[7]))
        step();
    assert_true(net->ended[3] && net->ended[7]);
    assert_false(net->complete[3] || net->complete[7]);
    teardown();
}

static void results_overtake_and_cancelled_objects_stop(void **state)
{
    (void)state;
    setup(6, 0, 1 << 20);
    struct wire_key contribution = {.kind = WIRE_CONTRIBUTION, .fragment = 1, .version = 5};
    struct wire_key result = {.kind = WIRE_RESULT, .fragment = 2, .version = 5};
    struct wire_key old = {.kind = WIRE_CONTRIBUTION, .fragment = 1, .version = 4};
    struct xfer_chunk chunk;
    assert_ok(xfer_send(net->side[0], 1, &old, net->source[0], 100, false, 0));
    assert_ok(xfer_send(net->side[0], 1, &contribution, net->source[0], 100, false, 0));
    assert_ok(xfer_send(net->side[0], 1, &result, net->source[1], 100, false, 0));
    assert_true(xfer_next(net->side[0], &(struct bitset){{0}}, &chunk));
    assert_int_equal(chunk.key.kind, WIRE_RESULT);
    xfer_sent(net->side[0], &chunk, 0);
    xfer_cancel(net->side[0], WIRE_CONTRIBUTION, 1, 4);
    assert_true(xfer_next(net->side[0], &(struct bitset){{0}}, &chunk));
    assert_true(wire_key_equal(&chunk.key, &contribution));
    assert_false(xfer_next(net->side[0], &(struct bitset){{1 << 1}}, &chunk)); /* a blocked peer is passed over */
    xfer_reset_peer(net->side[0], 1);
    assert_false(xfer_next(net->side[0], &(struct bitset){{0}}, &chunk));
    teardown();
}

/* Object 1 comes in two chunks. */
static struct wire_chunk half_of_one(uint64_t half)
{
    enum { HALF = 100 };
    struct wire_chunk chunk = {.key = key_of(1), .total = 2 * HALF, .offset = half * HALF, .bytes = HALF};
    chunk.data = net->source[1] + chunk.offset;
    net->bytes[1] = chunk.total;
    return chunk;
}

static void a_second_source_takes_over_a_stalled_transfer(void **state)
{
    (void)state;
    setup(7, 0, 1 << 20);
    struct xfer *x = net->side[0];
    uint64_t bytes;
    const struct wire_chunk first = half_of_one(0), second = half_of_one(1);
    assert_int_equal(xfer_chunk_in(x, 0, &first, 0, 0, &bytes), XFER_MORE);
    assert_int_equal(xfer_chunk_in(x, 1, &second, 0, 10, &bytes), XFER_NOTHING); /* too early: the first is alive */
    assert_int_equal(xfer_chunk_in(x, 1, &second, 0, 5000, &bytes), XFER_COMPLETE);
    assert_memory_equal(net->target[1], net->source[1], 200);
    teardown();
}

/* Nor is one who is not heard any more waited for. */
static void who_is_lost_from_sight_holds_nothing_back(void **state)
{
    (void)state;
    setup(7, 0, 1 << 20);
    struct xfer *x = net->side[0];
    uint64_t bytes;
    const struct wire_chunk first = half_of_one(0), second = half_of_one(1);
    assert_int_equal(xfer_chunk_in(x, 0, &first, 0, 10000, &bytes), XFER_MORE);
    xfer_lost_sight(x, 1); /* somebody else */
    assert_true(xfer_receiving(x, &first.key));
    xfer_lost_sight(x, 0);
    assert_false(xfer_receiving(x, &first.key)); /* so it is asked of others */
    assert_int_equal(xfer_chunk_in(x, 1, &second, 0, 10010, &bytes), XFER_COMPLETE);
    assert_memory_equal(net->target[1], net->source[1], 200);
    teardown();
}

/* The length was held against the buffer when the transfer began; another one later is a new offer. */
static void a_length_never_grows_past_its_buffer(void **state)
{
    (void)state;
    setup(8, 0, 1 << 20);
    struct xfer *x = net->side[0];
    struct wire_key key = key_of(1);
    static uint8_t data[4096];
    uint64_t bytes;
    for (uint32_t peer = 0; peer < 2; peer++) {
        free(net->target[1]);
        net->target[1] = malloc(OBJECT_MAX);
        struct wire_chunk honest = {.key = key, .total = 8192, .offset = 0, .data = data, .bytes = sizeof data};
        assert_int_equal(xfer_chunk_in(x, 0, &honest, 0, 10000 * (peer + 1), &bytes), XFER_MORE);
        struct wire_chunk longer = honest;
        longer.total = OBJECT_MAX + (1 << 20);
        assert_int_equal(xfer_chunk_in(x, peer, &longer, 0, 10000 * (peer + 1) + 5000, &bytes), XFER_NOTHING);
        for (longer.offset = 0; longer.offset < longer.total; longer.offset += sizeof data)
            assert_int_equal(xfer_chunk_in(x, peer, &longer, 0, 10000 * (peer + 1) + 5001, &bytes), XFER_NOTHING);
        xfer_reset_peer(x, peer);
        xfer_reset_peer(x, 0);
    }
    teardown();
}

/* A sender that was told to begin earlier than it needed to: only what is new of a chunk is taken, at its place. */
static void of_a_chunk_that_overlaps_the_rest_is_taken(void **state)
{
    (void)state;
    setup(8, 0, 1 << 20);
    struct xfer *x = net->side[0];
    struct wire_key key = key_of(2);
    static const uint64_t begins[] = {0, 100, 70, 60}, ends[] = {100, 150, 180, 170};
    uint8_t data[200];
    uint64_t bytes;
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (uint8_t)(i + 1);
    for (size_t i = 0; i < sizeof begins / sizeof begins[0]; i++) {
        struct wire_chunk part = {.key = key, .total = 200, .offset = begins[i], .data = data + begins[i]};
        part.bytes = ends[i] - begins[i];
        assert_int_not_equal(xfer_chunk_in(x, 0, &part, 0, 10 + i, &bytes), XFER_COMPLETE);
    }
    struct wire_chunk last = {.key = key, .total = 200, .offset = 175, .data = data + 175, .bytes = 25};
    assert_int_equal(xfer_chunk_in(x, 0, &last, 0, 20, &bytes), XFER_COMPLETE);
    assert_int_equal(bytes, 200);
    assert_memory_equal(net->target[2], data, 200);
    xfer_finish(x, 0, &key, WIRE_RECEIVED);
    teardown();
}

/* Two objects that the caller lets into the same memory: the later one stands, the earlier one ends. */
static void a_buffer_serves_one_transfer(void **state)
{
    (void)state;
    setup(9, 0, 1 << 20);
    struct xfer *x = net->side[0];
    struct wire_key old = key_of(2), new = key_of(2);
    static uint8_t zeros[100], ones[100];
    uint64_t bytes;
    memset(ones, 1, sizeof ones);
    new.version++;
    struct wire_chunk late = {.key = old, .total = 200, .offset = 0, .data = zeros, .bytes = 100};
    struct wire_chunk part = {.key = new, .total = 200, .offset = 0, .data = ones, .bytes = 100};
    assert_int_not_equal(xfer_chunk_in(x, 0, &late, 0, 0, &bytes), XFER_COMPLETE);
    assert_int_not_equal(xfer_chunk_in(x, 0, &part, 0, 1, &bytes), XFER_COMPLETE);
    assert_false(xfer_receiving(x, &old));
    part.offset = 100;
    assert_int_equal(xfer_chunk_in(x, 0, &part, 0, 2, &bytes), XFER_COMPLETE);
    /* Complete and not yet finished: a job reads it. Nothing is let in until it is done. */
    assert_int_equal(xfer_chunk_in(x, 0, &late, 0, 3, &bytes), XFER_NOTHING);
    for (int i = 0; i < 200; i++)
        assert_int_equal(net->target[2][i], 1);
    xfer_finish(x, 0, &new, WIRE_RECEIVED);
    teardown();
}

/* A sender may stop in the middle (its memory is needed, it died): the receiver hears of it, or finds another. */
static void an_abandoned_transfer_does_not_stand_in_the_way(void **state)
{
    (void)state;
    setup(10, 0, 1 << 20);
    struct xfer *x = net->side[0];
    struct wire_key key = {.kind = WIRE_RESULT, .fragment = 2, .version = 5, .owner = 1, .island = 1};
    struct xfer_message message;
    uint64_t bytes;
    struct wire_chunk part = {.key = key, .total = 200, .offset = 0, .data = net->source[2], .bytes = 100};
    assert_int_not_equal(xfer_chunk_in(x, 1, &part, 0, 0, &bytes), XFER_COMPLETE);
    assert_true(xfer_receiving(x, &key));
    bool asked = false;
    for (uint64_t now = 0; now < 4000; now += 100)
        xfer_tick(x, now);
    while (xfer_message(x, &message))
        asked |= message.type == WIRE_ACK && message.ask == WIRE_ASK_STILL;
    assert_true(asked);
    /* The other side knows nothing of it, and says so to who asks for more. */
    struct wire_ack ack = {.key = key, .have = 100, .ask = WIRE_ASK_STILL};
    assert_false(xfer_ack_in(net->side[1], 0, &ack, 4000));
    ack.ask = WIRE_ASK_GO_ON;
    assert_false(xfer_ack_in(net->side[1], 0, &ack, 4000));
    ack.ask = WIRE_ASK_NOTHING;
    assert_true(xfer_ack_in(net->side[1], 0, &ack, 4000));
    assert_false(xfer_gone(x, 0, &key)); /* not from that one */
    assert_true(xfer_gone(x, 1, &key));
    assert_false(xfer_receiving(x, &key));
    /* A silent one is given up for asking elsewhere, and another may go on at once. */
    assert_int_not_equal(xfer_chunk_in(x, 1, &part, 0, 10000, &bytes), XFER_COMPLETE);
    for (uint64_t now = 10000; now < 14000; now += 100)
        xfer_tick(x, now);
    assert_false(xfer_receiving(x, &key));
    part.offset = 100;
    part.data = net->source[2] + 100;
    assert_int_equal(xfer_chunk_in(x, 0, &part, 0, 14000, &bytes), XFER_COMPLETE);
    teardown();
}

/* ---- a slow line ---- */

/* Seconds of bytes wait in its queues, and timers run out meanwhile: still nothing goes twice. */
static void a_slow_line_carries_everything_once(void **state)
{
    (void)state;
    setup(12, 0, 4 << 20);
    net->bulk_us_per_kib = 4096; /* 2 Mbit/s */
    uint64_t due = 0;
    for (uint32_t i = 0; i < OBJECTS; i++)
        due += net->bytes[i];
    send_all();
    while (net->now_ms < 600000 && !all_ended())
        step();
    assert_true(all_ended());
    assert_int_equal(net->bulk_bytes, due);
    teardown();
}

/* A break costs what was on its way, and no more. */
static void a_break_costs_what_was_on_its_way(void **state)
{
    (void)state;
    setup(13, 0, 256 << 10);
    net->bulk_us_per_kib = 4096;
    struct wire_key key = key_of(1);
    net->bytes[1] = OBJECT_MAX;
    assert_ok(xfer_send(net->side[0], 1, &key, net->source[1], OBJECT_MAX, false, 0));
    while (net->now_ms < 2000)
        step();
    memset(net->packets, 0, sizeof net->packets);
    while (net->now_ms < 60000 && !net->ended[1])
        step();
    assert_true(net->ended[1]);
    assert_in_range(net->bulk_bytes, OBJECT_MAX + 1, OBJECT_MAX + (256 << 10));
    teardown();
}

/* An object that comes too early costs its first chunks once; from then on it is asked for, not sent. */
static void what_is_not_wanted_yet_costs_no_bytes(void **state)
{
    (void)state;
    for (int ask_first = 0; ask_first < 2; ask_first++) {
        setup(14, 0, 128 << 10);
        struct wire_key key = key_of(1);
        net->not_yet = 40;
        net->bytes[1] = OBJECT_MAX;
        assert_ok(xfer_send(net->side[0], 1, &key, net->source[1], OBJECT_MAX, ask_first, 0));
        while (net->now_ms < 60000 && !net->ended[1])
            step();
        assert_true(net->ended[1] && net->not_yet == 0);
        assert_in_range(net->bulk_bytes, OBJECT_MAX, OBJECT_MAX + (ask_first ? 0 : 256 << 10));
        teardown();
    }
}

/* One gap is complained about once, and an old complaint moves nothing. */
static void an_old_complaint_moves_nothing(void **state)
{
    (void)state;
    setup(15, 0, 1 << 20);
    struct xfer *from = net->side[0], *to = net->side[1];
    struct wire_key key = key_of(1);
    struct xfer_chunk chunk;
    struct xfer_message message;
    struct bitset none = {{0}};
    uint64_t bytes;
    assert_ok(xfer_send(from, 1, &key, net->source[1], OBJECT_MAX, false, 0));
    for (int i = 0; i < 4; i++) {
        assert_true(xfer_next(from, &none, &chunk));
        xfer_sent(from, &chunk, 0);
        struct wire_chunk in = {.key = key, .total = OBJECT_MAX, .offset = chunk.offset, .data = chunk.data};
        in.bytes = chunk.bytes;
        if (i != 1) /* the second one is lost */
            assert_int_not_equal(xfer_chunk_in(to, 0, &in, 0, 0, &bytes), XFER_COMPLETE);
    }
    int complaints = 0;
    struct wire_ack ack = {.key = key};
    while (xfer_message(to, &message)) {
        complaints += message.ask == WIRE_ASK_GO_ON;
        ack = (struct wire_ack){.key = key, .have = message.have, .ask = message.ask, .pass = message.pass};
    }
    assert_true(complaints == 1 && ack.ask == WIRE_ASK_GO_ON && ack.have == WIRE_CHUNK_BYTES_MAX);
    assert_true(xfer_ack_in(from, 1, &ack, 0));
    assert_int_equal(xfer_outstanding(from, 1), 0);
    assert_int_equal(xfer_flow(from, 1).given_up, 3 * WIRE_CHUNK_BYTES_MAX);
    assert_true(xfer_next(from, &none, &chunk) && chunk.offset == WIRE_CHUNK_BYTES_MAX && chunk.pass == 1);
    xfer_sent(from, &chunk, 0);
    assert_true(xfer_ack_in(from, 1, &ack, 0)); /* again, from a connection that repeats itself */
    assert_true(xfer_next(from, &none, &chunk) && chunk.offset == 2 * WIRE_CHUNK_BYTES_MAX);
    teardown();
}

/* Silence is asked into with an empty chunk, behind everything that was sent; after a break at once. */
static void silence_is_asked_into(void **state)
{
    (void)state;
    setup(16, 0, 1 << 20);
    struct xfer *from = net->side[0];
    struct wire_key key = key_of(1);
    struct xfer_chunk chunk;
    struct bitset none = {{0}};
    assert_ok(xfer_send(from, 1, &key, net->source[1], 1000, false, 0));
    assert_true(xfer_next(from, &none, &chunk) && chunk.bytes == 1000);
    xfer_sent(from, &chunk, 0);
    xfer_tick(from, 1499);
    assert_false(xfer_next(from, &none, &chunk));
    xfer_tick(from, 1500);
    assert_true(xfer_next(from, &none, &chunk) && chunk.bytes == 0 && chunk.offset == 1000);
    xfer_sent(from, &chunk, 1500);
    assert_false(xfer_next(from, &none, &chunk));
    xfer_ask(from, 1);
    assert_true(xfer_next(from, &none, &chunk) && chunk.bytes == 0);
    teardown();
}

/* What was lost, put off, or there already is told as sent in vain; what arrived is not. */
static void what_is_sent_in_vain_is_counted(void **state)
{
    (void)state;
    setup(17, 0, 1 << 20);
    struct xfer *from = net->side[0];
    struct xfer_chunk chunk;
    struct bitset none = {{0}};
    struct wire_key key = key_of(1);
    struct wire_ack ack = {.key = key, .have = 300, .ask = WIRE_ASK_GO_ON};
    assert_ok(xfer_send(from, 1, &key, net->source[1], 1000, false, 0));
    assert_true(xfer_next(from, &none, &chunk));
    xfer_sent(from, &chunk, 0);
    (void)xfer_ack_in(from, 1, &ack, 0);
    assert_int_equal(xfer_flow(from, 1).wasted, 700);
    assert_true(xfer_next(from, &none, &chunk) && chunk.bytes == 700);
    xfer_sent(from, &chunk, 0);
    ack = (struct wire_ack){.key = key, .have = 1000};
    (void)xfer_ack_in(from, 1, &ack, 0);
    assert_true(xfer_done_in(from, 1, &key, WIRE_RECEIVED, 0));
    assert_int_equal(xfer_flow(from, 1).wasted, 700);
    for (int k = 0; k < 2; k++) { /* at once: it was there already; or it is not needed */
        assert_ok(xfer_send(from, 1, &key, net->source[1], 1000, false, 0));
        assert_true(xfer_next(from, &none, &chunk));
        xfer_sent(from, &chunk, 0);
        assert_true(xfer_done_in(from, 1, &key, k == 0 ? WIRE_RECEIVED : WIRE_NOT_NEEDED, 0));
        assert_int_equal(xfer_flow(from, 1).wasted, 1700 + 1000 * k);
    }
    assert_int_equal(xfer_outstanding(from, 1), 0);
    teardown();
}

/* Members come while transfers are under way, and leave; their number is another's then. */
static void tables_grow_and_a_number_becomes_anothers(void **state)
{
    (void)state;
    setup(18, 0, 1 << 20);
    struct xfer *from = net->side[0], *to = net->side[1];
    struct xfer_chunk chunk;
    struct xfer_message message;
    struct bitset none = {{0}};
    struct wire_key key = key_of(1), later = key_of(2), third = key_of(4);
    uint64_t bytes;
    assert_ok(xfer_send(from, 1, &key, net->source[1], 1000, false, 0));
    assert_true(xfer_next(from, &none, &chunk));
    xfer_sent(from, &chunk, 0);
    for (uint32_t i = 0; i < 5; i++)
        xfer_finish(from, i % 2, &later, WIRE_NOT_NEEDED); /* messages that wait, 0 1 0 1 0 */
    assert_true(xfer_message(from, &message));
    assert_ok(xfer_grow(from, 900, 200, 100));
    assert_ok(xfer_grow(from, 3, 2, 1)); /* there is more already */
    assert_int_equal(xfer_flow(from, 1).sent, 1000);
    assert_true(xfer_ack_in(from, 1, &(struct wire_ack){.key = key, .have = 1000}, 0));
    for (uint32_t i = 0; i < 150; i++) {
        third.version = 10 + i;
        assert_ok(xfer_send(from, 899, &third, net->source[4], 10, false, 0));
    }
    assert_true(xfer_next(from, &none, &chunk));
    assert_int_equal(chunk.peer, 899);
    xfer_sent(from, &chunk, 0);
    xfer_forget_peer(from, 1);
    assert_int_equal(xfer_flow(from, 1).sent, 0);
    for (int i = 0; i < 2; i++) {
        assert_true(xfer_message(from, &message));
        assert_int_equal(message.peer, 0);
    }
    assert_false(xfer_message(from, &message));
    xfer_forget_peer(from, 899);
    assert_false(xfer_next(from, &none, &chunk));
    assert_int_equal(xfer_outstanding(from, 899), 0);
    /* One that is whole and being looked at: what becomes of it is for nobody. */
    struct wire_chunk in = {
        .key = later, .total = net->bytes[2], .data = net->source[2], .bytes = net->bytes[2] % WIRE_CHUNK_BYTES_MAX};
    in.total = in.bytes;
    assert_int_equal(xfer_chunk_in(to, 0, &in, 0, 0, &bytes), XFER_COMPLETE);
    xfer_forget_peer(to, 0);
    assert_true(xfer_receiving(to, &later));
    xfer_finish(to, 0, &later, WIRE_RECEIVED);
    assert_false(xfer_receiving(to, &later));
    assert_false(xfer_message(to, &message));
    teardown();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(objects_arrive_whatever_is_lost),
        cmocka_unit_test(a_cut_link_resumes_where_it_was),
        cmocka_unit_test(unwanted_and_oversized_objects_end),
        cmocka_unit_test(results_overtake_and_cancelled_objects_stop),
        cmocka_unit_test(a_second_source_takes_over_a_stalled_transfer),
        cmocka_unit_test(who_is_lost_from_sight_holds_nothing_back),
        cmocka_unit_test(a_length_never_grows_past_its_buffer),
        cmocka_unit_test(of_a_chunk_that_overlaps_the_rest_is_taken),
        cmocka_unit_test(a_buffer_serves_one_transfer),
        cmocka_unit_test(an_abandoned_transfer_does_not_stand_in_the_way),
        cmocka_unit_test(a_slow_line_carries_everything_once),
        cmocka_unit_test(a_break_costs_what_was_on_its_way),
        cmocka_unit_test(what_is_not_wanted_yet_costs_no_bytes),
        cmocka_unit_test(an_old_complaint_moves_nothing),
        cmocka_unit_test(silence_is_asked_into),
        cmocka_unit_test(what_is_sent_in_vain_is_counted),
        cmocka_unit_test(tables_grow_and_a_number_becomes_anothers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
