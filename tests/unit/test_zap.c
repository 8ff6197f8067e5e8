/* SPDX-License-Identifier: Apache-2.0 */
/* zap: who is on the lists is let in by number, everyone else is refused, who has left is not heard any more, and every
 * request has its answer. Requests are made here as ZeroMQ makes them. */
#include "tests/lib/testlib.h"

#include <stdio.h>
#include <string.h>
#include <zmq.h>

#include "net/transport/zap.h"

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
    assert_ok(zap_new(world.context, &world.zap));
    for (uint32_t i = 1; i < MEMBERS; i++)
        assert_ok(zap_admit(world.zap, i, world.key[i])); /* 0 is ourselves */
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
        assert_int_equal(zap_who(world.zap, world.user_id).member, i);
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

static void assert_nobody(const char *id)
{
    struct zap_who who = zap_who(world.zap, id);
    assert_int_equal(who.member, ZAP_NOBODY);
    assert_int_equal(who.guest, ZAP_NOBODY);
}

static void nobody_elses_id_names_a_member(void **state)
{
    (void)state;
    const char *const ids[] = {NULL, "", "1", "m1", "m1.", "m3.1", "m99999999999999999999.1", "m-1.1", "g0.1", "m1.1x"};
    for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++)
        assert_nobody(ids[i]);
}

/* The id that ZeroMQ puts on every message of a connection that proves this key. */
static const char *id_of(const uint8_t *key)
{
    char text[TEXT_BYTES];
    request("CURVE", key, IDENT_KEY_BYTES, 7);
    serve(text);
    read_answer();
    return world.user_id;
}

static void who_is_dismissed_or_has_another_key_is_not_heard_any_more(void **state)
{
    (void)state;
    char old[32], again[32];
    strcpy(old, id_of(world.key[1]));
    assert_ok(zap_admit(world.zap, 1, world.key[1])); /* the same: nothing changes */
    assert_int_equal(zap_who(world.zap, old).member, 1);
    assert_ok(zap_admit(world.zap, 1, world.key[MEMBERS]));
    assert_nobody(old);
    assert_string_equal(id_of(world.key[1]), "");
    assert_string_equal(world.status, "400");
    strcpy(again, id_of(world.key[MEMBERS]));
    assert_int_equal(zap_who(world.zap, again).member, 1);
    zap_dismiss(world.zap, 1);
    assert_nobody(again);
    assert_string_equal(id_of(world.key[MEMBERS]), "");
    assert_ok(zap_admit(world.zap, 1, world.key[MEMBERS])); /* back: what was let in before is not he */
    assert_nobody(again);
    zap_dismiss(world.zap, 1);
    zap_dismiss(world.zap, 1000);
    assert_ok(zap_admit(world.zap, 1, world.key[1]));
}

static void the_next_key_comes_and_goes_beside_the_one_that_is_there(void **state)
{
    (void)state;
    char present[32], next[32];
    strcpy(present, id_of(world.key[1]));
    assert_ok(zap_admit_next(world.zap, 1, world.key[MEMBERS]));
    assert_int_equal(zap_who(world.zap, present).member, 1);
    assert_false(zap_who(world.zap, present).by_next);
    strcpy(next, id_of(world.key[MEMBERS]));
    assert_int_equal(zap_who(world.zap, next).member, 1);
    assert_true(zap_who(world.zap, next).by_next);
    assert_ok(zap_admit_next(world.zap, 1, world.key[MEMBERS])); /* the same: nothing changes */
    assert_int_equal(zap_who(world.zap, next).member, 1);
    assert_ok(zap_admit_next(world.zap, 1, NULL));
    assert_nobody(next);
    assert_int_equal(zap_who(world.zap, present).member, 1);
    assert_ok(zap_admit_next(world.zap, 1, world.key[MEMBERS])); /* back: what was let in before is not */
    assert_nobody(next);
    strcpy(next, id_of(world.key[MEMBERS]));
    assert_ok(zap_admit_next(world.zap, 1, world.key[0])); /* another one */
    assert_nobody(next);
    assert_int_equal(zap_who(world.zap, present).member, 1);
    strcpy(next, id_of(world.key[0]));
    zap_shut(world.zap, 1, true);
    zap_shut(world.zap, 1, false);
    assert_nobody(present);
    assert_nobody(next);
    assert_ok(zap_admit_next(world.zap, 1, NULL));
}

static void a_key_is_one_members(void **state)
{
    (void)state;
    assert_fails(ERR_STATE, "the same key", zap_admit(world.zap, 2, world.key[1]));
    assert_int_equal(zap_who(world.zap, id_of(world.key[2])).member, 2);
    assert_ok(zap_admit(world.zap, 900, world.key[MEMBERS])); /* lists grow */
    assert_int_equal(zap_who(world.zap, id_of(world.key[MEMBERS])).member, 900);
    zap_dismiss(world.zap, 900);
}

static void a_guest_is_no_member_and_a_member_no_guest(void **state)
{
    (void)state;
    uint32_t guest, other;
    char id[32];
    assert_ok(zap_admit_guest(world.zap, world.key[MEMBERS], &guest));
    assert_ok(zap_admit_guest(world.zap, world.key[MEMBERS], &other));
    assert_int_equal(guest, other);
    assert_int_equal(zap_guest(world.zap, world.key[MEMBERS]), guest);
    strcpy(id, id_of(world.key[MEMBERS]));
    assert_int_equal(zap_who(world.zap, id).guest, guest);
    assert_int_equal(zap_who(world.zap, id).member, ZAP_NOBODY);
    assert_ok(zap_admit_guest(world.zap, world.key[1], &other));
    assert_int_equal(zap_who(world.zap, id_of(world.key[1])).member, 1);
    assert_int_equal(zap_who(world.zap, world.user_id).guest, ZAP_NOBODY);
    zap_dismiss_guest(world.zap, other);
    zap_dismiss_guest(world.zap, guest);
    assert_nobody(id);
    assert_string_equal(id_of(world.key[MEMBERS]), "");
    uint8_t key[IDENT_KEY_BYTES] = {0};
    for (key[0] = 1; key[0] <= ZAP_GUESTS_MAX; key[0]++)
        assert_ok(zap_admit_guest(world.zap, key, &guest));
    assert_fails(ERR_STATE, "revoke invitations", zap_admit_guest(world.zap, key, &guest));
    for (uint32_t i = 0; i < ZAP_GUESTS_MAX; i++)
        zap_dismiss_guest(world.zap, i);
}

static void a_context_has_one_guard(void **state)
{
    (void)state;
    struct zap *second;
    assert_fails(ERR_IO, "authentication socket", zap_new(world.context, &second));
    assert_null(second);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_member_is_let_in_by_its_number),
        cmocka_unit_test(a_stranger_is_refused_and_described),
        cmocka_unit_test(what_is_no_curve_request_is_refused_without_a_word),
        cmocka_unit_test(nobody_elses_id_names_a_member),
        cmocka_unit_test(who_is_dismissed_or_has_another_key_is_not_heard_any_more),
        cmocka_unit_test(the_next_key_comes_and_goes_beside_the_one_that_is_there),
        cmocka_unit_test(a_key_is_one_members),
        cmocka_unit_test(a_guest_is_no_member_and_a_member_no_guest),
        cmocka_unit_test(a_context_has_one_guard),
    };
    return cmocka_run_group_tests(tests, open_world, close_world);
}
