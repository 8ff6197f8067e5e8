/* SPDX-License-Identifier: Apache-2.0 */
/* wire, pace: every message there and back, every limit, damaged bytes refused, chunks; the token bucket. */
#include "tests/lib/testlib.h"

#include <stdlib.h>
#include <string.h>

#include "common/digest.h"
#include "net/transfer/token_bucket.h"
#include "net/transport/wire.h"

static uint8_t raw[WIRE_CONTROL_BYTES_MAX];
static const struct wire_key key = {
    .kind = WIRE_RESULT, .fragment = 4095, .version = 1ull << 40, .epoch = 1ull << 39, .owner = ~0u, .island = ~0u};

static size_t there_and_back(const struct wire_message *message, struct wire_message *back)
{
    size_t bytes;
    assert_ok(wire_pack(message, raw, &bytes));
    memset(back, 0xee, sizeof *back);
    assert_ok(wire_unpack(message->type, raw, bytes, back));
    return bytes;
}

static void greetings_come_back(void **state)
{
    (void)state;
    static struct wire_message m, b;
    m = (struct wire_message){.type = WIRE_HELLO};
    m.hello = (struct wire_hello){.run_id = digest_of("r", 1),
                                  .plan_id = digest_of("p", 1),
                                  .plan_known = true,
                                  .session = ~0ull,
                                  .island = 3,
                                  .name = "paris",
                                  .software = "diloco 1",
                                  .window_kib = 1024,
                                  .word = {.number = 5,
                                           .address = "p.example:7600",
                                           .uplink = 70,
                                           .owner_choice = 4,
                                           .draining = true,
                                           .signature = {1, 2, 3}}};
    there_and_back(&m, &b);
    assert_memory_equal(&m.hello.word, &b.hello.word, sizeof m.hello.word);
    assert_true(digest_equal(&m.hello.plan_id, &b.hello.plan_id) && b.hello.plan_known);
    assert_true(b.hello.session == ~0ull && b.hello.island == 3 && b.hello.window_kib == 1024);
    assert_string_equal(b.hello.name, "paris");
    m.hello.plan_known = false;
    there_and_back(&m, &b);
    assert_false(b.hello.plan_known);
}

static void heartbeats_come_back(void **state)
{
    (void)state;
    static struct wire_message m, b;
    m = (struct wire_message){.type = WIRE_HEARTBEAT};
    m.heartbeat = (struct wire_heartbeat){.sequence = 5,
                                          .echo = 4,
                                          .session = 9,
                                          .echo_delay_ms = 3,
                                          .taking_part = true,
                                          .step = 100,
                                          .tokens = 1ull << 50,
                                          .loss = 0x4004000000000000,
                                          .tokens_per_s = 99,
                                          .trainer = WIRE_TRAINER_TRAINING,
                                          .fragments_count = WIRE_FRAGMENTS_MAX};
    for (uint32_t i = 0; i < WIRE_FRAGMENTS_MAX; i++)
        m.heartbeat.fragments[i] = (struct wire_fragment){.fragment = i,
                                                          .at.version = ~0ull,
                                                          .at.contributed = i + 1,
                                                          .at.abstained = ~0ull,
                                                          .held_first = i * WIRE_HELD_MAX / WIRE_FRAGMENTS_MAX,
                                                          .held_count = WIRE_HELD_MAX / WIRE_FRAGMENTS_MAX,
                                                          .at.hash = digest_of(&i, 4),
                                                          .at.hash_known = i % 2 == 0};
    m.heartbeat.held_count = WIRE_HELD_MAX;
    for (uint32_t i = 0; i < WIRE_HELD_MAX; i++) {
        m.heartbeat.held[i].owner = ~0u - i;
        memcpy(m.heartbeat.held[i].tag, digest_of(&i, 4).byte, WIRE_TAG_BYTES);
    }
    m.heartbeat.epoch = 77;
    m.heartbeat.incarnation = ~0ull;
    m.heartbeat.in_doubt = m.heartbeat.disk_fails = m.heartbeat.unfinished = true;
    m.heartbeat.silent_count = 3;
    for (uint32_t i = 0; i < 3; i++)
        m.heartbeat.silent[i] = ~0u - i;
    size_t bytes = there_and_back(&m, &b);
    print_message("a heartbeat of %d fragments has %zu bytes\n", WIRE_FRAGMENTS_MAX, bytes);
    assert_int_equal(b.heartbeat.fragments_count, WIRE_FRAGMENTS_MAX);
    assert_true(b.heartbeat.fragments[200].at.hash_known && !b.heartbeat.fragments[201].at.hash_known);
    assert_true(digest_equal(&b.heartbeat.fragments[200].at.hash, &m.heartbeat.fragments[200].at.hash));
    assert_true(b.heartbeat.fragments[255].at.abstained == ~0ull);
    assert_int_equal(b.heartbeat.held_count, WIRE_HELD_MAX);
    for (uint32_t i = 0; i < WIRE_FRAGMENTS_MAX; i++) {
        assert_int_equal(b.heartbeat.fragments[i].held_first, m.heartbeat.fragments[i].held_first);
        assert_int_equal(b.heartbeat.fragments[i].held_count, m.heartbeat.fragments[i].held_count);
    }
    assert_memory_equal(b.heartbeat.held, m.heartbeat.held, sizeof m.heartbeat.held);
    assert_true(b.heartbeat.epoch == 77 && b.heartbeat.incarnation == ~0ull && b.heartbeat.in_doubt &&
                b.heartbeat.disk_fails && b.heartbeat.unfinished);
    assert_int_equal(b.heartbeat.silent_count, 3);
    assert_memory_equal(b.heartbeat.silent, m.heartbeat.silent, 3 * sizeof m.heartbeat.silent[0]);
    /* What nobody reads is no zero there. */
    m.heartbeat.in_doubt = m.heartbeat.disk_fails = m.heartbeat.unfinished = m.heartbeat.taking_part = false;
    there_and_back(&m, &b);
    assert_false(b.heartbeat.in_doubt || b.heartbeat.disk_fails || b.heartbeat.unfinished || b.heartbeat.taking_part ||
                 b.heartbeat.undialled);
}

static void words_about_objects_and_goodbyes_come_back(void **state)
{
    (void)state;
    static struct wire_message m, b;
    m = (struct wire_message){.type = WIRE_ACK};
    m.ack.key = key;
    m.ack.have = 77;
    m.ack.ask = WIRE_ASK_GO_ON;
    m.ack.pass = 255;
    m.ack.delay_us = ~0u;
    there_and_back(&m, &b);
    assert_true(wire_key_equal(&b.ack.key, &key) && b.ack.have == 77 && b.ack.ask == WIRE_ASK_GO_ON);
    assert_true(b.ack.pass == 255 && b.ack.delay_us == ~0u);
    m = (struct wire_message){.type = WIRE_DONE};
    m.done.key = key;
    m.done.status = WIRE_NOT_YET;
    there_and_back(&m, &b);
    assert_true(wire_key_equal(&b.done.key, &key) && b.done.status == WIRE_NOT_YET);
    m = (struct wire_message){.type = WIRE_FETCH};
    m.fetch.key = key;
    there_and_back(&m, &b);
    assert_true(wire_key_equal(&b.fetch.key, &key));
    m = (struct wire_message){.type = WIRE_BYE};
    strcpy(m.bye.reason, "another run\x1b[31m");
    there_and_back(&m, &b);
    assert_string_equal(b.bye.reason, "another run?[31m"); /* a peer does not write into our terminal */
    m = (struct wire_message){.type = WIRE_BULK_HELLO};
    assert_int_equal(there_and_back(&m, &b), 0);
}

/* Leaves: a range that has some, and not too many; others have none. */
static void a_range_of_leaves_has_some_and_not_too_many(void **state)
{
    (void)state;
    static struct wire_message m, b;
    const struct wire_key leaves = {
        .kind = WIRE_LEAVES, .fragment = 1, .version = 2, .island = 3, .first = 4, .count = 5};
    struct wire_key bad[] = {leaves, leaves, leaves, leaves, key};
    static const char *const texts[] = {"leaves 4 and 0 on", "leaves 4 and 257 on", "leaves 4294967294 and 2 on",
                                        "owner 1, island 3", "leaves 0 and 1 on"};
    size_t bytes;
    bad[0].count = 0;
    bad[1].count = WIRE_LEAVES_MAX + 1;
    bad[2].first = UINT32_MAX - 1;
    bad[2].count = 2;
    bad[3].owner = 1;
    bad[4].count = 1;
    m = (struct wire_message){.type = WIRE_FETCH};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        m.fetch.key = bad[i];
        assert_ok(wire_pack(&m, raw, &bytes));
        assert_fails(ERR_PROTO, texts[i], wire_unpack(m.type, raw, bytes, &b));
    }
    m.fetch.key = leaves;
    m.fetch.key.count = WIRE_LEAVES_MAX;
    assert_ok(wire_pack(&m, raw, &bytes));
    assert_ok(wire_unpack(m.type, raw, bytes, &b));
    assert_true(wire_key_equal(&b.fetch.key, &m.fetch.key));
    for (int i = 0; i < 3; i++) {
        struct wire_chunk chunk = {.key = leaves, .total = 1000};
        chunk.key.count += i == 1;
        chunk.key.first += i == 2;
        wire_chunk_put(&chunk, raw);
        assert_ok(wire_chunk_get(raw, WIRE_CHUNK_HEADER_BYTES, &chunk));
        assert_int_equal(wire_key_equal(&chunk.key, &leaves), i == 0);
    }
}

static void limits_are_checked_on_the_way_in(void **state)
{
    (void)state;
    static struct wire_message m, b;
    size_t bytes;
#define REFUSED(text)                                                       \
    do {                                                                    \
        assert_ok(wire_pack(&m, raw, &bytes));                              \
        assert_fails(ERR_PROTO, text, wire_unpack(m.type, raw, bytes, &b)); \
    } while (0)
    m = (struct wire_message){.type = WIRE_DONE};
    m.done.key = key;
    m.done.status = 9;
    REFUSED("status 9");
    m.done.status = 1;
    m.done.key.fragment = 4096;
    REFUSED("fragment 4096");
    m.done.key = key;
    m.done.key.kind = 6;
    REFUSED("unknown kind 6");
    /* One name for one object: what its kind leaves no choice in is fixed. */
    m.done.key = key;
    m.done.key.island = 7; /* a result is its owner's */
    REFUSED("owner 4294967295, island 7");
    m.done.key = (struct wire_key){.kind = WIRE_STATE, .owner = 1};
    REFUSED("owner 1, island 0");
    m.done.key = (struct wire_key){.kind = WIRE_STATE, .epoch = 2};
    REFUSED("epoch 2");
    m.done.key = (struct wire_key){.kind = WIRE_PLAN, .version = 3};
    REFUSED("version 3");
    m.done.key = (struct wire_key){.kind = WIRE_PLAN, .island = 2};
    REFUSED("island 2");
    /* What is too much is refused before it takes memory; the most that is allowed passes. */
    enum { ROW_BYTES = 2, ROWS = 30000 };
    static const uint8_t empty_row[ROW_BYTES] = {11 << 3 | 2, 0};
    static uint8_t rows[ROW_BYTES * ROWS];
    for (size_t i = 0; i < ROWS; i++)
        memcpy(rows + ROW_BYTES * i, empty_row, ROW_BYTES);
    assert_fails(ERR_PROTO, "holds too much", wire_unpack(WIRE_HEARTBEAT, rows, sizeof rows, &b));
    m = (struct wire_message){.type = WIRE_HEARTBEAT};
    m.heartbeat.fragments_count = WIRE_FRAGMENTS_MAX;
    for (uint32_t i = 0; i < WIRE_FRAGMENTS_MAX; i++)
        m.heartbeat.fragments[i] = (struct wire_fragment){.fragment = i, .at.version = ~0ull, .at.hash_known = true};
    assert_ok(wire_pack(&m, raw, &bytes));
    assert_ok(wire_unpack(WIRE_HEARTBEAT, raw, bytes, &b));
    m.heartbeat.fragments_count = 2;
    m.heartbeat.fragments[0].fragment = m.heartbeat.fragments[1].fragment = 9;
    REFUSED("fragment 9 twice");
    m = (struct wire_message){.type = WIRE_HELLO};
    m.hello.window_kib = 63;
    REFUSED("window of 63 KiB");
    m = (struct wire_message){.type = WIRE_HEARTBEAT};
    m.heartbeat.trainer = WIRE_TRAINER_STATES;
    REFUSED("trainer state");
    m.heartbeat.trainer = 0;
    m.heartbeat.fragments_count = 1;
    m.heartbeat.fragments[0].fragment = 5000;
    REFUSED("fragment number 5000");
    m.heartbeat.fragments[0].fragment = 1;
    m.heartbeat.fragments[0].held_count = m.heartbeat.held_count = WIRE_HELD_OF_ONE_MAX + 1;
    REFUSED("65 results of fragment 1");
    m.heartbeat.fragments[0].held_count = m.heartbeat.held_count = 0;
    m.heartbeat.silent_count = WIRE_MEMBERS_MAX;
    there_and_back(&m, &b);
    m.heartbeat.silent_count = 0;
    m.heartbeat.fragments_count = WIRE_FRAGMENTS_MAX + 1;
    assert_int_equal(wire_pack(&m, raw, &bytes), ERR_ARG);
    assert_fails(ERR_PROTO, "unknown type 0", wire_unpack(0, raw, 1, &b));
    assert_fails(ERR_PROTO, "unknown type 7", wire_unpack(WIRE_CHUNK, raw, 1, &b));
    assert_fails(ERR_PROTO, "unknown type 8", wire_unpack(WIRE_BULK_HELLO, raw, 1, &b));
    assert_fails(ERR_PROTO, "without its object key", wire_unpack(WIRE_FETCH, raw, 0, &b));
    assert_fails(ERR_PROTO, "run_id of 0 bytes", wire_unpack(WIRE_HELLO, raw, 0, &b));
}

static void any_bytes_are_survived(void **state)
{
    (void)state;
    static struct wire_message b;
    struct env_rng rng = env_rng_init(1, 2);
    static uint8_t junk[600];
    for (int i = 0; i < 200000; i++) {
        size_t bytes = env_rng_below(&rng, sizeof junk);
        for (size_t k = 0; k < bytes; k += 8) {
            uint64_t v = env_rng_u64(&rng);
            memcpy(junk + k, &v, bytes - k < 8 ? bytes - k : 8);
        }
        (void)!wire_unpack((uint32_t)env_rng_below(&rng, 12), junk, bytes, &b);
        struct wire_chunk chunk;
        (void)!wire_chunk_get(junk, bytes, &chunk);
        struct wire_header header;
        (void)!wire_header_get(junk, bytes, &header);
    }
}

static void headers_and_chunks_come_back(void **state)
{
    (void)state;
    struct wire_header in = {.version = 1, .type = WIRE_CHUNK, .run_tag = ~0ull}, out;
    wire_header_put(&in, raw);
    assert_ok(wire_header_get(raw, WIRE_HEADER_BYTES, &out));
    assert_true(out.version == 1 && out.type == WIRE_CHUNK && out.run_tag == ~0ull);
    assert_int_equal(wire_header_get(raw, WIRE_HEADER_BYTES - 1, &out), ERR_PROTO);
    raw[0] ^= 1;
    assert_fails(ERR_PROTO, "not a diloco message", wire_header_get(raw, WIRE_HEADER_BYTES, &out));
    struct wire_chunk chunk = {.key = key, .pass = 200, .stamp_us = 77, .total = 1000, .offset = 100};
    wire_chunk_put(&chunk, raw);
    assert_ok(wire_chunk_get(raw, WIRE_CHUNK_HEADER_BYTES + 900, &chunk));
    assert_true(wire_key_equal(&chunk.key, &key) && chunk.total == 1000 && chunk.offset == 100 && chunk.bytes == 900);
    assert_true(chunk.pass == 200 && chunk.stamp_us == 77);
    assert_ok(wire_chunk_get(raw, WIRE_CHUNK_HEADER_BYTES, &chunk)); /* a question */
    assert_int_equal(chunk.bytes, 0);
    assert_int_equal(wire_chunk_get(raw, WIRE_CHUNK_HEADER_BYTES + 901, &chunk), ERR_PROTO);
    assert_int_equal(wire_chunk_get(raw, 10, &chunk), ERR_PROTO);
    wire_chunk_put(&(struct wire_chunk){.key = key, .total = 1000, .offset = 1001}, raw);
    assert_int_equal(wire_chunk_get(raw, WIRE_CHUNK_HEADER_BYTES, &chunk), ERR_PROTO);
    wire_chunk_put(&(struct wire_chunk){.key = key}, raw);
    assert_int_equal(wire_chunk_get(raw, WIRE_CHUNK_HEADER_BYTES, &chunk), ERR_PROTO); /* of nothing */
}

static void pace_keeps_the_rate(void **state)
{
    (void)state;
    struct token_bucket pace = token_bucket_init(80000000, 100000, 0); /* 10 MB/s */
    uint64_t now = 0, sent = 0;
    while (now < 3000000) {
        uint64_t wait = token_bucket_wait_us(&pace, 65536, now);
        if (wait == 0) {
            token_bucket_spend(&pace, 65536, now);
            token_bucket_spend(&pace, 500, now); /* and what does not wait */
            sent += 66036;
        }
        now += wait;
    }
    assert_in_range(sent, 29900000, 30300000);
    now += 100000000; /* a long rest does not save up more than the burst */
    assert_int_equal(token_bucket_wait_us(&pace, 100000, now), 0);
    token_bucket_spend(&pace, 100000, now);
    assert_in_range(token_bucket_wait_us(&pace, 10000, now), 1000, 1001);
    assert_int_equal(token_bucket_wait_us(&pace, 1u << 30, now + 10000),
                     0);                              /* larger than the burst: when the bucket is full */
    token_bucket_spend(&pace, 10100000, now + 10000); /* and then that debt is paid: a second for 10 MB */
    assert_in_range(token_bucket_wait_us(&pace, 0, now + 10000), 1000000, 1000001);
    assert_in_range(token_bucket_wait_us(&pace, 50000, now + 510000), 505000, 505001);
    struct token_bucket open = token_bucket_init(0, 1, 0);
    token_bucket_spend(&open, 1u << 30, 0);
    assert_int_equal(token_bucket_wait_us(&open, 1u << 30, 0), 0);
}

int main(void)
{
    assert_ok(digest_init());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(greetings_come_back),
        cmocka_unit_test(heartbeats_come_back),
        cmocka_unit_test(words_about_objects_and_goodbyes_come_back),
        cmocka_unit_test(limits_are_checked_on_the_way_in),
        cmocka_unit_test(a_range_of_leaves_has_some_and_not_too_many),
        cmocka_unit_test(any_bytes_are_survived),
        cmocka_unit_test(headers_and_chunks_come_back),
        cmocka_unit_test(pace_keeps_the_rate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
