/* SPDX-License-Identifier: Apache-2.0 */
/* ctl_client: asking a daemon that is played and does as it likes, and looking into what it answered. */
#include "tests/lib/testlib.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/env.h"
#include "common/ipc.h"
#include "daemon/ctl/ctl_client.h"

/* ---- a played daemon: one request, one answer, in pieces ---- */

static struct {
    int listener;
    const char *path, *answer;
    size_t answer_bytes, piece_bytes; /* of the answer; sent so many at a time */
    bool endless;                     /* and then on and on, without an end of line */
    char request[64];
} played;

static void read_request(int fd)
{
    size_t have = 0;
    memset(played.request, 0, sizeof played.request);
    while (have + 1 < sizeof played.request && memchr(played.request, '\n', have) == NULL) {
        ssize_t got = recv(fd, played.request + have, sizeof played.request - 1 - have, 0);
        if (got <= 0)
            return;
        have += (size_t)got;
    }
}

static bool send_all(int fd, const char *data, size_t bytes)
{
    for (size_t at = 0; at < bytes;) {
        ssize_t put = send(fd, data + at, bytes - at, MSG_NOSIGNAL);
        if (put <= 0)
            return false;
        at += (size_t)put;
    }
    return true;
}

static void *serve(void *unused)
{
    static char nothing[1 << 16];
    int fd = accept(played.listener, NULL, NULL);
    read_request(fd);
    for (size_t at = 0; at < played.answer_bytes; at += played.piece_bytes) {
        size_t left = played.answer_bytes - at;
        if (!send_all(fd, played.answer + at, left < played.piece_bytes ? left : played.piece_bytes))
            break;
    }
    memset(nothing, ' ', sizeof nothing);
    while (played.endless && send_all(fd, nothing, sizeof nothing)) {
    }
    close(fd);
    return unused;
}

static enum err ask(const char *answer, size_t piece_bytes, json_t **json)
{
    pthread_t thread;
    played.answer = answer;
    played.answer_bytes = strlen(answer);
    played.piece_bytes = piece_bytes;
    assert_int_equal(pthread_create(&thread, NULL, serve, NULL), 0);
    enum err err = ctl_ask(played.path, "status", json);
    pthread_join(thread, NULL);
    assert_string_equal(played.request, "status\n");
    return err;
}

static int begin(void **state)
{
    (void)state;
    struct sockaddr_un address;
    played.path = testlib_path(testlib_folder("ctl"), "control.sock");
    played.endless = false;
    played.listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_ok(ipc_address(played.path, &address));
    assert_int_equal(bind(played.listener, (const struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(played.listener, 4), 0);
    return 0;
}

static int end(void **state)
{
    (void)state;
    close(played.listener);
    return 0;
}

static void an_answer_in_any_pieces_is_one_answer(void **state)
{
    (void)state;
    static const size_t pieces[] = {1, 2, 7, 1000};
    for (size_t i = 0; i < sizeof pieces / sizeof pieces[0]; i++) {
        json_t *json;
        assert_ok(ask("{\"island\":\"a\",\"step\":12,\"loss\":1.5,\"list\":[1,2,3]}\n", pieces[i], &json));
        assert_string_equal(ctl_text(json, "island"), "a");
        assert_int_equal(ctl_integer(json, "step"), 12);
        assert_true(ctl_number(json, "loss") == 1.5 && ctl_number(json, "step") == 12);
        assert_int_equal(json_array_size(json_object_get(json, "list")), 3);
        json_decref(json);
    }
}

static void no_answer_or_half_of_one_is_a_daemon_that_has_gone(void **state)
{
    (void)state;
    json_t *json;
    assert_fails(ERR_CLOSED, "does not answer", ask("", 1, &json));
    assert_null(json);
    assert_fails(ERR_CLOSED, "does not answer", ask("{\"island\":\"a\"", 5, &json));
    assert_null(json);
}

/* As one that is stopped: it listens, and nobody takes the question. */
static void who_cannot_wait_does_not(void **state)
{
    (void)state;
    json_t *json;
    double since_s = env_mono_s();
    assert_fails(ERR_CLOSED, "does not answer", ctl_ask_within(played.path, "peers", 1, &json));
    assert_null(json);
    assert_true(env_mono_s() - since_s >= 0.9);
}

static void an_answer_without_an_end_is_not_read_for_ever(void **state)
{
    (void)state;
    json_t *json;
    played.endless = true;
    assert_fails(ERR_PROTO, "longer than", ask("", 1, &json));
    assert_null(json);
}

static void what_is_no_json_is_said_to_be_none(void **state)
{
    (void)state;
    static const char *const answers[] = {"hello\n", "\n", "{\"island\":}\n", "{\"a\":1} {\"b\":2}\n",
                                          "{\"a\":\"\xff\"}\n"};
    for (size_t i = 0; i < sizeof answers / sizeof answers[0]; i++) {
        json_t *json;
        assert_fails(ERR_PROTO, "no JSON", ask(answers[i], 1000, &json));
        assert_null(json);
    }
}

static void an_error_in_the_answer_becomes_one(void **state)
{
    (void)state;
    json_t *json;
    assert_fails(ERR_STATE, "no trainer is running",
                 ask("{\"error\":\"no trainer is running\",\"code\":\"state\"}\n", 1000, &json));
    assert_null(json);
}

static void without_a_daemon_it_is_said_where_one_was_looked_for(void **state)
{
    (void)state;
    json_t *json;
    char path[200];
    assert_fails(ERR_CLOSED, "no daemon answers at no/such.sock", ctl_ask("no/such.sock", "status", &json));
    assert_null(json);
    memset(path, 'a', sizeof path - 1);
    path[sizeof path - 1] = '\0';
    assert_fails(ERR_CONF, "a shorter folder", ctl_ask(path, "status", &json));
    assert_null(json);
}

static void what_is_not_there_is_empty_or_nothing(void **state)
{
    (void)state;
    json_t *json = json_pack("{s:s, s:i, s:n}", "text", "t", "number", 3, "null");
    assert_string_equal(ctl_text(json, "none"), "");
    assert_string_equal(ctl_text(json, "number"), "");
    assert_string_equal(ctl_text(json, "null"), "");
    assert_string_equal(ctl_text(NULL, "text"), "");
    assert_int_equal(ctl_integer(json, "none"), 0);
    assert_int_equal(ctl_integer(json, "text"), 0);
    assert_true(ctl_number(json, "null") == 0);
    json_decref(json);
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(an_answer_in_any_pieces_is_one_answer, begin, end),
        cmocka_unit_test_setup_teardown(no_answer_or_half_of_one_is_a_daemon_that_has_gone, begin, end),
        cmocka_unit_test_setup_teardown(who_cannot_wait_does_not, begin, end),
        cmocka_unit_test_setup_teardown(an_answer_without_an_end_is_not_read_for_ever, begin, end),
        cmocka_unit_test_setup_teardown(what_is_no_json_is_said_to_be_none, begin, end),
        cmocka_unit_test_setup_teardown(an_error_in_the_answer_becomes_one, begin, end),
        cmocka_unit_test(without_a_daemon_it_is_said_where_one_was_looked_for),
        cmocka_unit_test(what_is_not_there_is_empty_or_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
