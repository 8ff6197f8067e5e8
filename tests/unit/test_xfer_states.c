/* SPDX-License-Identifier: Apache-2.0 */
/* xfer: who brings an object: states come from who was asked alone, and yield to what others wait for; whoever made it
 * goes before the rest. */
#include "tests/lib/testlib.h"

#include <string.h>

#include "net/xfer.h"

enum { CHUNK = WIRE_CHUNK_BYTES_MAX, MANY = 16, ID = 40 /* of the member in slot 0 */ };

static struct xfer *x;
static uint8_t bytes_of[4][MANY * CHUNK], target[MANY * CHUNK];

/* Ids are not slots. */
static bool maker(void *user, uint32_t peer, const struct wire_key *key)
{
    (void)user;
    return key->island == ID + peer;
}

static enum xfer_verdict offer(void *user, uint32_t peer, const struct wire_key *key, uint64_t total,
                               struct xfer_offer *answer)
{
    (void)user;
    (void)peer;
    (void)key;
    (void)total;
    answer->buffer = target;
    answer->bytes_max = sizeof target;
    return XFER_TAKE;
}

static int begin(void **state)
{
    (void)state;
    const struct xfer_conf conf = {
        .peers_count = 2, .outgoing_max = 32, .incoming_max = 32, .offer = offer, .maker = maker};
    for (size_t i = 0; i < 4; i++)
        for (size_t k = 0; k < sizeof bytes_of[i]; k++)
            bytes_of[i][k] = (uint8_t)(k * 31 + k / 1000 + i);
    assert_ok(xfer_new(&conf, &x));
    for (uint32_t peer = 0; peer < 2; peer++)
        xfer_set_limit(x, peer, &(struct xfer_limit){.window = 1 << 20, .chunk = CHUNK});
    return 0;
}

static int end(void **state)
{
    (void)state;
    xfer_free(x);
    return 0;
}

/* Leaves are asked of one member, and are under its name: nobody else brings them, or takes their transfer over. */
static void leaves_come_from_who_was_asked_alone(void **state)
{
    (void)state;
    struct wire_key key = {.kind = WIRE_LEAVES, .fragment = 2, .version = 5, .first = 3, .count = 2};
    struct xfer_message message;
    uint64_t bytes;
    struct wire_chunk first = {.key = key, .total = 200, .offset = 0, .data = bytes_of[2], .bytes = 100};
    struct wire_chunk second = {.key = key, .total = 200, .offset = 100, .data = bytes_of[3], .bytes = 100};
    assert_int_equal(xfer_chunk_in(x, 0, &first, 0, 0, &bytes), XFER_NOTHING);
    assert_int_equal(xfer_have(x, &key), 100);
    assert_int_equal(xfer_chunk_in(x, 1, &second, 0, 60000, &bytes), XFER_NOTHING);
    assert_int_equal(xfer_have(x, &key), 100);
    assert_true(xfer_message(x, &message));
    assert_true(message.type == WIRE_DONE && message.peer == 1 && message.status == WIRE_NOT_NEEDED);
    second.data = bytes_of[2] + 100;
    assert_int_equal(xfer_chunk_in(x, 0, &second, 0, 60000, &bytes), XFER_COMPLETE);
    assert_int_equal(xfer_have(x, &key), 0);
    assert_memory_equal(target, bytes_of[2], 200);
}

/* A state waits for what others stand still for, whoever that is for; and where that is on its way it has one chunk at
 * a time on the line. */
static void states_yield_to_rounds(void **state)
{
    (void)state;
    static const struct bitset none;
    const struct wire_key leaves = {.kind = WIRE_LEAVES, .fragment = 1, .version = 5, .count = 16},
                          result = {.kind = WIRE_RESULT, .fragment = 2, .version = 5};
    struct wire_ack ack = {.key = result};
    struct xfer_chunk chunk;
    assert_ok(xfer_send(x, 1, &leaves, bytes_of[0], 16 * CHUNK, false, 0));
    for (int i = 0; i < 2; i++) { /* nothing else to do */
        assert_true(xfer_next(x, &none, &chunk));
        assert_int_equal(chunk.key.kind, WIRE_LEAVES);
        xfer_sent(x, &chunk, 0);
    }
    assert_ok(xfer_send(x, 0, &result, bytes_of[1], 3 * CHUNK, false, 0));
    for (int i = 0; i < 3; i++) { /* to another, and all of it first */
        assert_true(xfer_next(x, &none, &chunk));
        assert_int_equal(chunk.key.kind, WIRE_RESULT);
        xfer_sent(x, &chunk, 0);
    }
    assert_false(xfer_next(x, &none, &chunk));
    assert_true(xfer_ack_in(x, 1, &(struct wire_ack){.key = leaves, .have = 2 * CHUNK}, 10));
    assert_true(xfer_next(x, &none, &chunk)); /* one chunk, and no other before it is there */
    assert_int_equal(chunk.offset, 2 * CHUNK);
    xfer_sent(x, &chunk, 10);
    assert_false(xfer_next(x, &none, &chunk));
    ack.have = 3 * CHUNK;
    assert_true(xfer_ack_in(x, 0, &ack, 20)); /* the result is there */
    assert_true(xfer_next(x, &none, &chunk));
    xfer_sent(x, &chunk, 20);
    /* Who does not answer at all is not waited for. */
    const struct wire_key dead = {.kind = WIRE_RESULT, .fragment = 3, .version = 5};
    assert_ok(xfer_send(x, 0, &dead, bytes_of[2], CHUNK, false, 20));
    assert_true(xfer_next(x, &none, &chunk));
    assert_int_equal(chunk.key.fragment, 3);
    xfer_sent(x, &chunk, 20);
    assert_false(xfer_next(x, &none, &chunk));
    assert_true(xfer_ack_in(x, 1, &(struct wire_ack){.key = leaves, .have = 2 * CHUNK}, 2000));
    assert_true(xfer_next(x, &none, &chunk));
    assert_int_equal(chunk.key.kind, WIRE_LEAVES);
    /* What is not lent any more does not go on. */
    assert_int_equal(xfer_sending(x, 1, WIRE_LEAVES), 1);
    xfer_withdraw(x, bytes_of[3], CHUNK);
    assert_int_equal(xfer_sending(x, 1, WIRE_LEAVES), 1);
    xfer_withdraw(x, bytes_of[0], 16 * CHUNK);
    assert_int_equal(xfer_sending(x, 1, WIRE_LEAVES), 0);
    assert_int_equal(xfer_sending(x, 0, WIRE_RESULT), 2);
}

/* Who made an object is not put off by one who passes it on a byte at a time. */
static void nobody_holds_an_object_back_from_its_maker(void **state)
{
    (void)state;
    struct wire_key key = {.kind = WIRE_RESULT, .fragment = 2, .version = 5, .owner = ID + 1, .island = ID + 1};
    uint64_t bytes;
    struct wire_chunk one = {.key = key, .total = 200, .offset = 0, .data = bytes_of[2], .bytes = 1};
    struct wire_chunk all = {.key = key, .total = 200, .offset = 0, .data = bytes_of[2], .bytes = 200};
    assert_int_equal(xfer_chunk_in(x, 0, &one, 0, 0, &bytes), XFER_NOTHING);
    assert_int_equal(xfer_chunk_in(x, 1, &all, 0, 1, &bytes), XFER_COMPLETE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(leaves_come_from_who_was_asked_alone, begin, end),
        cmocka_unit_test_setup_teardown(states_yield_to_rounds, begin, end),
        cmocka_unit_test_setup_teardown(nobody_holds_an_object_back_from_its_maker, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
