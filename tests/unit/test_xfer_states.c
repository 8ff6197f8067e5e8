/* SPDX-License-Identifier: Apache-2.0 */
/* xfer: who brings an object: states come from who was asked alone, and yield to what others wait for; whoever made it
 * goes before the rest. */
#include "tests/lib/testlib.h"

#include <string.h>

#include "net/transfer/xfer.h"

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
    assert_int_equal(xfer_chunk_in(x, 0, &first, 0, 0, &bytes), XFER_MORE);
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

static const struct bitset nobody;

static struct wire_key leaves_of(uint32_t fragment)
{
    return (struct wire_key){.kind = WIRE_LEAVES, .fragment = fragment, .version = 5, .count = MANY};
}

static struct wire_key result_of(uint32_t fragment)
{
    return (struct wire_key){.kind = WIRE_RESULT, .fragment = fragment, .version = 5};
}

/* How many chunks of this kind go now, before anything else may. */
static int go(uint32_t kind, uint64_t now_ms)
{
    struct xfer_chunk chunk;
    int count = 0;
    for (; xfer_next(x, &nobody, &chunk) && chunk.key.kind == kind; count++)
        xfer_sent(x, &chunk, now_ms);
    return count;
}

static void come(uint32_t peer, const struct wire_key *key, uint64_t chunks, uint64_t now_ms)
{
    assert_true(xfer_ack_in(x, peer, &(struct wire_ack){.key = *key, .have = chunks * CHUNK}, now_ms));
}

/* A state waits for what others stand still for, whoever that is for; and while that is on its way it has a part of a
 * window under way, by which it takes what is left of the line. */
static void states_yield_to_rounds(void **state)
{
    (void)state;
    const struct wire_key leaves = leaves_of(1), result = result_of(2), dead = result_of(3);
    assert_ok(xfer_send(x, 1, &leaves, bytes_of[0], MANY * CHUNK, false, 0));
    for (int i = 0; i < 2; i++) { /* nothing else to do */
        struct xfer_chunk chunk;
        assert_true(xfer_next(x, &nobody, &chunk));
        assert_int_equal(chunk.key.kind, WIRE_LEAVES);
        xfer_sent(x, &chunk, 0);
    }
    xfer_set_limit(x, 0, &(struct xfer_limit){.window = 3 * CHUNK, .chunk = CHUNK});
    assert_ok(xfer_send(x, 0, &result, bytes_of[1], 6 * CHUNK, false, 0));
    assert_int_equal(go(WIRE_RESULT, 0), 3); /* to another, and as much of it as may go first */
    assert_int_equal(go(WIRE_LEAVES, 0), 0); /* a window is 16 chunks: two are under way */
    come(1, &leaves, 1, 10);
    assert_int_equal(go(WIRE_LEAVES, 10), 1);
    come(0, &result, 3, 20);
    assert_int_equal(go(WIRE_RESULT, 20), 3); /* the rest of it */
    assert_int_equal(go(WIRE_LEAVES, 20), 6); /* behind it: eight, or half a window */
    come(0, &result, 6, 30);
    assert_true(xfer_done_in(x, 0, &result, WIRE_RECEIVED, 30)); /* the result is there */
    assert_int_equal(go(WIRE_LEAVES, 30), 7);                    /* all */
    /* Who does not answer at all is not waited for, though it is asked. */
    come(1, &leaves, 8, 40);
    assert_true(xfer_ack_in(x, 1, &(struct wire_ack){.key = leaves, .have = 8 * CHUNK, .ask = WIRE_ASK_GO_ON}, 40));
    assert_ok(xfer_send(x, 0, &dead, bytes_of[2], 3 * CHUNK, false, 40));
    assert_int_equal(go(WIRE_RESULT, 40), 3);
    assert_int_equal(go(WIRE_LEAVES, 40), 8);
}

/* A short window is no reason to wait for what another has under way. */
static void who_has_a_short_window_gets_its_turn(void **state)
{
    (void)state;
    const struct wire_key long_one = leaves_of(1), short_one = leaves_of(2), result = result_of(3);
    xfer_set_limit(x, 0, &(struct xfer_limit){.window = 3 * CHUNK, .chunk = CHUNK});
    assert_ok(xfer_send(x, 1, &long_one, bytes_of[0], 4 * CHUNK, false, 0));
    assert_int_equal(go(WIRE_LEAVES, 0), 4);
    assert_ok(xfer_send(x, 1, &result, bytes_of[1], 2 * CHUNK, false, 0));
    assert_int_equal(go(WIRE_RESULT, 0), 2);
    assert_ok(xfer_send(x, 0, &short_one, bytes_of[2], MANY * CHUNK, false, 0));
    assert_int_equal(go(WIRE_LEAVES, 0), 3);
}

/* One that answers is waited for; one that is only asked, and does not, is not. */
static void who_is_silent_holds_no_state_back(void **state)
{
    (void)state;
    const struct wire_key leaves = leaves_of(1), dead = result_of(3);
    struct xfer_chunk chunk;
    xfer_set_limit(x, 0, &(struct xfer_limit){.window = CHUNK, .chunk = CHUNK});
    assert_ok(xfer_send(x, 0, &dead, bytes_of[2], 3 * CHUNK, false, 0));
    assert_int_equal(go(WIRE_RESULT, 0), 1);
    assert_ok(xfer_send(x, 1, &leaves, bytes_of[0], MANY * CHUNK, false, 0));
    assert_int_equal(go(WIRE_LEAVES, 0), 2); /* an eighth of the window */
    for (uint64_t now_ms = 100; now_ms < 2500; now_ms += 100)
        xfer_tick(x, now_ms);
    assert_true(xfer_next(x, &nobody, &chunk)); /* the question */
    assert_true(chunk.bytes == 0 && chunk.key.kind == WIRE_RESULT);
    xfer_sent(x, &chunk, 2500);
    come(1, &leaves, 2, 2500);
    assert_true(xfer_next(x, &nobody, &chunk));
    while (chunk.bytes == 0) { /* of both */
        xfer_sent(x, &chunk, 2500);
        assert_true(xfer_next(x, &nobody, &chunk));
    }
    assert_int_equal(go(WIRE_LEAVES, 2500), MANY - 2);
    /* A state that is no longer served does not go on. */
    assert_int_equal(xfer_sending(x, 1, WIRE_LEAVES), 1);
    xfer_withdraw(x, bytes_of[3], CHUNK);
    assert_int_equal(xfer_sending(x, 1, WIRE_LEAVES), 1);
    xfer_withdraw(x, bytes_of[0], MANY * CHUNK);
    assert_int_equal(xfer_sending(x, 1, WIRE_LEAVES), 0);
    assert_int_equal(xfer_sending(x, 0, WIRE_RESULT), 1);
}

/* Results without end to the same peer fill the line: the state comes to its end, and they lose little. */
static void states_come_to_an_end_on_a_line_that_is_never_free(void **state)
{
    (void)state;
    enum { WINDOW = 4, TURNS = 2000 };
    const struct wire_key leaves = leaves_of(1);
    uint64_t states = 0, results = 0, version = 1, result_acked = 0;
    xfer_set_limit(x, 1, &(struct xfer_limit){.window = WINDOW * CHUNK, .chunk = CHUNK});
    assert_ok(xfer_send(x, 1, &leaves, bytes_of[0], MANY * CHUNK, false, 0));
    struct wire_key result = result_of(2);
    for (uint64_t turn = 0; turn < TURNS && states < MANY; turn++) { /* one chunk arrives in each */
        struct xfer_chunk chunk;
        if (xfer_sending(x, 1, WIRE_RESULT) == 0) {
            result.version = version++;
            result_acked = 0;
            assert_ok(xfer_send(x, 1, &result, bytes_of[1], MANY * CHUNK, false, turn));
        }
        while (xfer_next(x, &nobody, &chunk)) {
            xfer_sent(x, &chunk, turn);
            bool of_state = chunk.key.kind == WIRE_LEAVES;
            states += of_state;
            results += !of_state;
            if (of_state)
                come(1, &leaves, states, turn);
            else
                come(1, &result, ++result_acked, turn);
            if (!of_state && result_acked == MANY) {
                assert_true(xfer_done_in(x, 1, &result, WIRE_RECEIVED, turn));
                break;
            }
        }
    }
    assert_int_equal(states, MANY);
    assert_in_range(results, 20 * (MANY - 1), 30 * MANY); /* less than 5 in 100 is the state's */
}

/* Who made an object is not put off by one who passes it on a byte at a time. */
static void nobody_holds_an_object_back_from_its_maker(void **state)
{
    (void)state;
    struct wire_key key = {.kind = WIRE_RESULT, .fragment = 2, .version = 5, .owner = ID + 1, .island = ID + 1};
    uint64_t bytes;
    struct wire_chunk one = {.key = key, .total = 200, .offset = 0, .data = bytes_of[2], .bytes = 1};
    struct wire_chunk all = {.key = key, .total = 200, .offset = 0, .data = bytes_of[2], .bytes = 200};
    assert_int_equal(xfer_chunk_in(x, 0, &one, 0, 0, &bytes), XFER_MORE);
    assert_int_equal(xfer_chunk_in(x, 1, &all, 0, 1, &bytes), XFER_COMPLETE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(leaves_come_from_who_was_asked_alone, begin, end),
        cmocka_unit_test_setup_teardown(states_yield_to_rounds, begin, end),
        cmocka_unit_test_setup_teardown(who_has_a_short_window_gets_its_turn, begin, end),
        cmocka_unit_test_setup_teardown(who_is_silent_holds_no_state_back, begin, end),
        cmocka_unit_test_setup_teardown(states_come_to_an_end_on_a_line_that_is_never_free, begin, end),
        cmocka_unit_test_setup_teardown(nobody_holds_an_object_back_from_its_maker, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
