/* zap: who is on the list is let in by number, everyone else is refused, and every request has its answer. Requests are
 * made here as ZeroMQ makes them. */
#include "tests/lib/testlib.h"

#include <stdio.h>
#include <string.h>
#include <zmq.h>

#include "net/zap.h"

enum { MEMBERS = 3, PARTS_MAX = 12, TEXT_BYTES = 256 };

static struct {
    void *context, *client;
    struct zap *zap;
    uint8_t key[MEMBERS + 1][IDENT_KEY_BYTES]; /* the last one's is a stranger's */
    char status[8], user_id[32], request_id[32];
} world;

static int open_world(void **state)
{
    (void)state;
    for (int i = 0; i <= MEMBERS; i++)
        memset(world.key[i], 'a' + i, IDENT_KEY_BYTES);
    world.context = zmq_ctx_new();
    assert_ok(zap_new(world.context, MEMBERS, &world.zap));
    for (uint32_t i = 1; i < MEMBERS; i++)
        zap_admit(world.zap, i, world.key[i]); /* 0 is ourselves */
    world.client = zmq_socket(world.context, ZMQ_REQ);
    assert_int_equal(zmq_connect(world.client, "inproc://zeromq.zap.01"), 0);
    return 0;
}

static int close_world(void **state)
{
    (void)state;
    int linger = 0;
    zmq_setsockopt(world.client, ZMQ_LINGER, &linger, sizeof linger);
    zmq_close(world.client);
    zap_free(world.zap);
    zmq_ctx_term(world.context);
    return 0;
}

/* Sends a request of `count` parts: version, request id, domain, address, identity, mechanism, credentials. */
static void request(const char *mechanism, const uint8_t *key, size_t key_bytes, int count)
{
    const struct {
        const void *data;
        size_t bytes;
    } parts[PARTS_MAX] = {{"1.0", 3},       {"r7", 2}, {"diloco", 6},
                          {"192.0.2.9", 9}, {"i", 1},  {mechanism, strlen(mechanism)},
                          {key, key_bytes}, {"x", 1},  {"y", 1}};
    for (int i = 0; i < count; i++)
        assert_true(zmq_send(world.client, parts[i].data, parts[i].bytes, i + 1 < count ? ZMQ_SNDMORE : 0) >= 0);
}

/* The answer's parts: version, request id, status, text, user id, metadata. */
static void read_answer(void)
{
    char text[32];
    char *const into[] = {text, world.request_id, world.status, text, world.user_id, text};
    const size_t room[] = {sizeof text, sizeof world.request_id, sizeof world.status,
                           sizeof text, sizeof world.user_id,    sizeof text};
    int more = 1;
    size_t more_bytes = sizeof more;
    for (size_t i = 0; i < sizeof into / sizeof into[0]; i++) {
        assert_int_equal(more, 1);
        int bytes = zmq_recv(world.client, into[i], room[i] - 1, 0);
        assert_in_range(bytes, 0, room[i] - 1);
        into[i][bytes] = '\0';
        if (i == 0)
            assert_string_equal(text, "1.0");
        assert_int_equal(zmq_getsockopt(world.client, ZMQ_RCVMORE, &more, &more_bytes), 0);
    }
    assert_int_equal(more, 0);
    assert_string_equal(world.request_id, "r7");
}

static enum zap_outcome serve(char *text)
{
    enum zap_outcome outcome = ZAP_NOTHING;
    for (int i = 0; i < 1000 && outcome == ZAP_NOTHING; i++) {
        zmq_pollitem_t item = {.socket = zap_socket(world.zap), .events = ZMQ_POLLIN};
        zmq_poll(&item, 1, 10);
        outcome = zap_serve(world.zap, text, TEXT_BYTES);
    }
    return outcome;
}

static void a_member_is_let_in_by_its_number(void **state)
{
    (void)state;
    char text[TEXT_BYTES];
    for (uint32_t i = 1; i < MEMBERS; i++) {
        request("CURVE", world.key[i], IDENT_KEY_BYTES, 7);
        assert_int_equal(serve(text), ZAP_ADMITTED);
        assert_string_equal(text, "");
        read_answer();
        assert_string_equal(world.status, "200");
        assert_int_equal(zap_member(world.zap, world.user_id), i);
        assert_int_equal(zap_serve(world.zap, text, sizeof text), ZAP_NOTHING);
    }
}

static void a_stranger_is_refused_and_described(void **state)
{
    (void)state;
    const uint8_t *const keys[] = {world.key[MEMBERS], world.key[0], (const uint8_t[IDENT_KEY_BYTES]){0}};
    for (size_t i = 0; i < 3; i++) { /* ourselves and a key of zeros are strangers, too */
        char text[TEXT_BYTES], key[IDENT_TEXT_BYTES];
        ident_text(keys[i], key);
        request("CURVE", keys[i], IDENT_KEY_BYTES, 7);
        assert_int_equal(serve(text), ZAP_STRANGER);
        assert_non_null(strstr(text, key));
        assert_non_null(strstr(text, "from 192.0.2.9"));
        read_answer();
        assert_string_equal(world.status, "400");
        assert_string_equal(world.user_id, "");
    }
}

static void what_is_no_curve_request_is_refused_without_a_word(void **state)
{
    (void)state;
    const struct {
        const char *mechanism;
        size_t key_bytes;
        int count;
    } rows[] = {{"NULL", IDENT_KEY_BYTES, 7},      {"CURVE", IDENT_KEY_BYTES - 1, 7}, {"CURVE", 0, 7},
                {"CURVE", IDENT_KEY_BYTES, 6},     {"CURVE", IDENT_KEY_BYTES, 2},     {"CURVE", IDENT_KEY_BYTES, 8},
                {"CURVESEVEN", IDENT_KEY_BYTES, 9}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char text[TEXT_BYTES];
        request(rows[i].mechanism, world.key[1], rows[i].key_bytes, rows[i].count);
        assert_int_equal(serve(text), ZAP_UNUSABLE);
        assert_string_equal(text, "");
        read_answer();
        assert_string_equal(world.status, "400");
        assert_string_equal(world.user_id, "");
        assert_int_equal(zap_serve(world.zap, text, sizeof text), ZAP_NOTHING); /* nothing of it is left */
    }
}

static void nobody_elses_id_names_a_member(void **state)
{
    (void)state;
    const char *const ids[] = {NULL, "", "3", "99999999999999999999", "-1"};
    for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++)
        assert_int_equal(zap_member(world.zap, ids[i]), UINT32_MAX);
}

static void a_context_has_one_guard(void **state)
{
    (void)state;
    struct zap *second;
    assert_fails(ERR_IO, "authentication socket", zap_new(world.context, MEMBERS, &second));
    assert_null(second);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_member_is_let_in_by_its_number),
        cmocka_unit_test(a_stranger_is_refused_and_described),
        cmocka_unit_test(what_is_no_curve_request_is_refused_without_a_word),
        cmocka_unit_test(nobody_elses_id_names_a_member),
        cmocka_unit_test(a_context_has_one_guard),
    };
    return cmocka_run_group_tests(tests, open_world, close_world);
}
