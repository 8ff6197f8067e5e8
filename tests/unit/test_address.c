/* SPDX-License-Identifier: Apache-2.0 */
/* address: what can be dialled and listened on; every accepted form is dialled by ZeroMQ, and what it would not is
 * refused here. */
#include "tests/lib/testlib.h"

#include <stdio.h>
#include <string.h>
#include <zmq.h>

#include "net/transport/address.h"
#include "net/transport/ident.h"
#include "net/transport/socket.h"

static const char *const good[] = {
    "oslo.example.org:7600",
    "a:1",
    "x.y-z.w_1:65535",
    "192.0.2.7:7600",
    "127.0.0.1:1",
    "[2001:db8::7]:7600",
    "[::1]:7600",
    "[::ffff:192.0.2.7]:9",
    "OSLO:7600",
    "3com.example:80",
    "1a.2b:10",
};
/* Where ZeroMQ takes more than the grammar, it would dial something else than what is written. */
static const char *const bad[] = {
    "",
    ":",
    "a",
    "a:",
    ":7600",
    "*:7600",
    "a:*",
    "a:0",
    "a:65536",
    "a:07600",
    "a:+7",
    "a: 7",
    " a:7",
    "a b:7",
    "a:7 ",
    "http://a:7600",
    "tcp://a:7600",
    "a/b:7",
    "ipc:///tmp/x:7",
    "a;b:7",
    "eth0;a:7",
    "a..b:7",
    ".a:7",
    "a.:7",
    "-a:7",
    "_a:7",
    "a.-b:7",
    "::1:7600",
    "[::1:7600",
    "::1]:7600",
    "[::1]7600",
    "[]:7600",
    "[a]:7",
    "[127.0.0.1]:7",
    "[fe80::1%eth0]:7",
    "256.1.1.1:7",
    "1.2.3:7",
    "1.2.3.4.5:7",
    "0x7f.1:7",
    "17:7",
    "a.7:7",
    "01.2.3.4:7",
    "a:7x",
    "a:99999999999999999999",
    "\xc3\xa5:7",
    "a:7\n",
    "a\x1b:7",
    "%:7",
    "a%b:7",
};
static const char *const listened[] = {"*:7600",      "*:0",       "0.0.0.0:7600", "[::]:7600",
                                       "127.0.0.1:0", "eth0:7600", "eth0.7:7600"};
static const char *const not_listened[] = {"",      "*",     "*:",  "*:65536", "**:7", "*.a:7", "tcp://*:7600",
                                           "a b:7", "[*]:7", "*:-1"};

static void what_is_an_address_is_dialled_and_nothing_else_is_one(void **state)
{
    (void)state;
    struct ident ident;
    void *context = zmq_ctx_new();
    assert_ok(ident_generate(&ident));
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        void *socket = NULL, *monitor = NULL;
        struct socket_dial dial = {.address = good[i],
                                   .server = ident.curve_key,
                                   .key = ident.curve_key,
                                   .secret = ident.curve_secret,
                                   .route = "r",
                                   .route_bytes = 1,
                                   .part_bytes_max = 100};
        print_message("%s\n", good[i]);
        assert_true(address_good(good[i]));
        assert_true(address_listen_good(good[i], 1));
        assert_ok(socket_dial(context, &dial, &socket, &monitor));
        socket_close(&socket, &monitor);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        if (address_good(bad[i]))
            fail_msg("taken: \"%s\"", bad[i]);
    }
    zmq_ctx_term(context);
}

static void one_can_also_listen_on_everything_on_an_interface_and_on_any_port(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof listened / sizeof listened[0]; i++)
        if (!address_listen_good(listened[i], 0))
            fail_msg("refused: \"%s\"", listened[i]);
    for (size_t i = 0; i < sizeof not_listened / sizeof not_listened[0]; i++)
        if (address_listen_good(not_listened[i], 0))
            fail_msg("taken: \"%s\"", not_listened[i]);
    assert_false(address_listen_good("*:0", 1));
    assert_true(address_listen_good("*:1", 1));
}

static void its_parts_have_limits(void **state)
{
    (void)state;
    char text[ADDRESS_BYTES + 8];
    memset(text, 'a', sizeof text);
    snprintf(text + ADDRESS_LABEL_MAX, 8, ".b:7");
    assert_true(address_good(text));
    memset(text, 'a', sizeof text);
    snprintf(text + ADDRESS_LABEL_MAX + 1, 8, ".b:7");
    assert_false(address_good(text));
    for (size_t length = ADDRESS_HOST_MAX; length <= ADDRESS_HOST_MAX + 1; length++) {
        memset(text, 'a', sizeof text);
        for (size_t i = ADDRESS_LABEL_MAX - 1; i < length; i += ADDRESS_LABEL_MAX)
            text[i] = '.';
        text[length - 1] = 'a';
        snprintf(text + length, 4, ":7");
        assert_int_equal(address_good(text), length == ADDRESS_HOST_MAX);
    }
    memset(text, 'a', sizeof text);
    text[sizeof text - 1] = '\0';
    assert_false(address_good(text));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_an_address_is_dialled_and_nothing_else_is_one),
        cmocka_unit_test(one_can_also_listen_on_everything_on_an_interface_and_on_any_port),
        cmocka_unit_test(its_parts_have_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
