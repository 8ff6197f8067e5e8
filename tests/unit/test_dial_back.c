/* SPDX-License-Identifier: Apache-2.0 */
/* dial_back, dial_listener: a newcomer is reached where it listens itself, and nowhere else; over loopback. */
#include "tests/lib/testlib.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <zmq.h>

#include "common/digest.h"
#include "net/transport/dial_back.h"
#include "net/transport/dial_listener.h"

enum { SILENT = 20, PATIENCE_S = 20 };

static struct ident bert, carl;
static const uint8_t nonce[WIRE_NONCE_BYTES] = {7};

static struct wire_join question(const struct ident *ident, const char *address, uint64_t number)
{
    struct wire_join join = {.name = "bert", .word = {.number = number, .uplink = 1}};
    snprintf(join.word.address, sizeof join.word.address, "%s", address);
    wire_dial_request_sign(ident, nonce, &join);
    return join;
}

/* ---- a newcomer that listens ---- */

static struct {
    pthread_t thread;
    atomic_bool stop;
    void *context;
    struct dial_listener *listener;
    const struct ident *ident;
    struct wire_join join;
    char address[ADDRESS_BYTES];
    atomic_uint answered;
} newcomer;

static void *serve(void *unused)
{
    (void)unused;
    while (!newcomer.stop) {
        zmq_pollitem_t item = {.socket = dial_listener_socket(newcomer.listener), .events = ZMQ_POLLIN};
        zmq_poll(&item, 1, 20);
        newcomer.answered += dial_listener_serve(newcomer.listener, newcomer.ident, &newcomer.join);
    }
    return NULL;
}

/* Port 0 is the kernel's choice; this one is free by then, which is as good. */
static unsigned free_port(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (const struct sockaddr *)&address, bytes), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &bytes), 0);
    close(fd);
    return ntohs(address.sin_port);
}

/* It answers for this question, by this key. */
static void listen_as(const struct ident *ident, const char *host, uint64_t number)
{
    char listen[ADDRESS_BYTES];
    unsigned port = free_port();
    snprintf(newcomer.address, sizeof newcomer.address, "%s:%u", host, port);
    snprintf(listen, sizeof listen, "*:%u", port);
    newcomer.stop = false;
    newcomer.answered = 0;
    newcomer.ident = ident;
    newcomer.join = question(ident, newcomer.address, number);
    newcomer.context = zmq_ctx_new();
    assert_ok(dial_listener_new(newcomer.context, listen, &newcomer.listener));
    assert_int_equal(pthread_create(&newcomer.thread, NULL, serve, NULL), 0);
}

static void listen_no_more(void)
{
    newcomer.stop = true;
    assert_int_equal(pthread_join(newcomer.thread, NULL), 0);
    dial_listener_free(newcomer.listener);
    zmq_ctx_term(newcomer.context);
}

/* ---- somebody else that listens ---- */

enum other { OTHER_CLOSES, OTHER_ECHOES, OTHER_ZEROS, OTHER_REPLAYS, OTHER_ENDS_EARLY, OTHER_IS_SILENT, OTHERS };

static struct {
    pthread_t thread;
    enum other does;
    int fd;
    uint8_t told[4096]; /* by who dialled */
    size_t told_bytes;
    uint8_t replay[DIAL_ANSWER_BYTES];
} other;

static void *be_other(void *unused)
{
    (void)unused;
    uint8_t zeros[DIAL_ANSWER_BYTES] = {0};
    int fd = accept4(other.fd, NULL, NULL, SOCK_CLOEXEC);
    ssize_t got = 0;
    if (other.does != OTHER_CLOSES)
        got = recv(fd, other.told, DIAL_CHALLENGE_BYTES, MSG_WAITALL);
    if (other.does == OTHER_ECHOES && got > 0) {
        (void)!write(fd, other.told, (size_t)got);
        (void)!write(fd, other.told, (size_t)got);
    }
    if (other.does == OTHER_ZEROS)
        (void)!write(fd, zeros, sizeof zeros);
    if (other.does == OTHER_REPLAYS)
        (void)!write(fd, other.replay, sizeof other.replay);
    if (other.does == OTHER_ENDS_EARLY) {
        (void)!write(fd, other.replay, sizeof other.replay - 1);
        shutdown(fd, SHUT_WR);
    }
    while (got > 0 && other.does != OTHER_ENDS_EARLY) { /* whatever else it is told */
        other.told_bytes += (size_t)got;
        got = recv(fd, other.told + other.told_bytes, sizeof other.told - other.told_bytes, 0);
    }
    close(fd);
    return NULL;
}

static int listen_on(int queue, char address[ADDRESS_BYTES])
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (const struct sockaddr *)&at, bytes), 0);
    assert_int_equal(listen(fd, queue), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &bytes), 0);
    snprintf(address, ADDRESS_BYTES, "127.0.0.1:%u", ntohs(at.sin_port));
    return fd;
}

/* ---- cases ---- */

static void a_challenge_is_signed_by_the_newcomer_alone(void **state)
{
    (void)state;
    uint8_t challenge[DIAL_CHALLENGE_BYTES], again[DIAL_CHALLENGE_BYTES], answer[DIAL_ANSWER_BYTES];
    struct wire_join join = question(&bert, "b:1", 1), later = question(&bert, "b:1", 2);
    dial_challenge(challenge);
    dial_challenge(again);
    assert_true(dial_challenge_good(challenge) && dial_challenge_good(again));
    assert_memory_not_equal(challenge, again, sizeof challenge);
    dial_answer(&bert, &join, challenge, answer);
    assert_true(dial_answered(&join, challenge, answer));
    assert_false(dial_answered(&join, again, answer));
    assert_false(dial_answered(&later, challenge, answer)); /* of the same key, about another question */
    dial_answer(&carl, &join, challenge, answer);
    assert_false(dial_answered(&join, challenge, answer));
    challenge[0] ^= 1;
    assert_false(dial_challenge_good(challenge));
}

static void who_listens_is_reached(void **state)
{
    (void)state;
    static const char *const hosts[] = {"127.0.0.1", "127.9.8.7", "localhost"};
    uint32_t took_ms;
    for (size_t i = 0; i < sizeof hosts / sizeof hosts[0]; i++) {
        listen_as(&bert, hosts[i], 1);
        assert_int_equal(dial_back(&newcomer.join, &took_ms), WIRE_DIAL_REACHED);
        assert_true(took_ms < DIAL_BACK_MS);
        listen_no_more();
        assert_int_equal(newcomer.answered, 1); /* it counts after it has answered */
    }
}

static void who_does_not_listen_is_not_reached(void **state)
{
    (void)state;
    char address[ADDRESS_BYTES];
    uint32_t took_ms;
    snprintf(address, sizeof address, "127.0.0.1:%u", free_port());
    struct wire_join join = question(&bert, address, 1);
    assert_int_equal(dial_back(&join, &took_ms), WIRE_DIAL_REFUSED);
    join = question(&bert, "nowhere.invalid:7600", 1);
    assert_int_equal(dial_back(&join, &took_ms), WIRE_DIAL_NO_NAME);
    /* As a firewall that drops: the kernel answers nobody more while nobody accepts. */
    int fd = listen_on(0, address), knocks[8];
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    at.sin_port = htons((uint16_t)atoi(strrchr(address, ':') + 1));
    for (int i = 0; i < 8; i++) {
        knocks[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        (void)!connect(knocks[i], (const struct sockaddr *)&at, sizeof at);
    }
    join = question(&bert, address, 1);
    assert_int_equal(dial_back(&join, &took_ms), WIRE_DIAL_NO_ANSWER);
    assert_in_range(took_ms, DIAL_BACK_MS, 3 * DIAL_BACK_MS);
    for (int i = 0; i < 8; i++)
        close(knocks[i]);
    close(fd);
    assert_true(dial_in_vain(WIRE_DIAL_REFUSED) && dial_in_vain(WIRE_DIAL_NO_NAME));
    assert_false(dial_in_vain(WIRE_DIAL_REACHED) || dial_in_vain(WIRE_DIAL_UNTESTED));
}

/* It learns a label and a random number, and that is all. */
static void somebody_else_is_not_the_newcomer(void **state)
{
    (void)state;
    char address[ADDRESS_BYTES];
    uint32_t took_ms;
    uint8_t challenge[DIAL_CHALLENGE_BYTES];
    for (int does = 0; does < OTHERS; does++) {
        other.does = (enum other)does;
        other.told_bytes = 0;
        other.fd = listen_on(5, address);
        struct wire_join join = question(&bert, address, 1);
        dial_challenge(challenge);
        dial_answer(&bert, &join, challenge, other.replay); /* to an earlier one */
        assert_int_equal(pthread_create(&other.thread, NULL, be_other, NULL), 0);
        assert_int_equal(dial_back(&join, &took_ms), WIRE_DIAL_SOMEBODY_ELSE);
        assert_int_equal(pthread_join(other.thread, NULL), 0);
        close(other.fd);
        if (does == OTHER_CLOSES || does == OTHER_ENDS_EARLY)
            continue;
        assert_int_equal(other.told_bytes, DIAL_CHALLENGE_BYTES);
        assert_memory_equal(other.told, "diloco dial back", 16);
    }
    listen_as(&carl, "127.0.0.1", 1); /* another newcomer behind the same address */
    struct wire_join join = question(&bert, newcomer.address, 1);
    assert_int_equal(dial_back(&join, &took_ms), WIRE_DIAL_SOMEBODY_ELSE);
    listen_no_more();
}

static int call(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct timeval patience = {.tv_sec = PATIENCE_S};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    at.sin_port = htons((uint16_t)atoi(strrchr(newcomer.address, ':') + 1));
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience), 0);
    assert_int_equal(connect(fd, (const struct sockaddr *)&at, sizeof at), 0);
    return fd;
}

static void a_listener_answers_challenges_and_hangs_up_on_the_rest(void **state)
{
    (void)state;
    uint8_t challenge[DIAL_CHALLENGE_BYTES + 1] = {0}, answer[DIAL_ANSWER_BYTES + 1];
    int silent[SILENT];
    uint32_t took_ms;
    listen_as(&bert, "127.0.0.1", 1);
    for (int i = 0; i < SILENT; i++) {
        silent[i] = call();
        assert_int_equal(write(silent[i], "d", 1), 1);
    }
    dial_challenge(challenge);
    int fd = call();
    for (size_t at = 0; at < DIAL_CHALLENGE_BYTES; at += 16) { /* in pieces */
        assert_int_equal(write(fd, challenge + at, 16), 16);
        usleep(20000);
    }
    assert_int_equal(recv(fd, answer, DIAL_ANSWER_BYTES, MSG_WAITALL), DIAL_ANSWER_BYTES);
    assert_true(dial_answered(&newcomer.join, challenge, answer));
    close(fd);
    fd = call();
    assert_int_equal(write(fd, challenge, sizeof challenge), sizeof challenge); /* one byte more */
    assert_int_equal(recv(fd, answer, sizeof answer, 0), 0);
    close(fd);
    fd = call();
    challenge[3] ^= 1;
    assert_int_equal(write(fd, challenge, DIAL_CHALLENGE_BYTES), DIAL_CHALLENGE_BYTES);
    assert_int_equal(recv(fd, answer, sizeof answer, 0), 0);
    close(fd);
    assert_int_equal(dial_back(&newcomer.join, &took_ms), WIRE_DIAL_REACHED);
    assert_int_equal(newcomer.answered, 2);
    for (int i = 0; i < SILENT; i++)
        close(silent[i]);
    listen_no_more();
}

/* So that nobody has it sign as many as it likes. */
static void a_listener_signs_one_challenge_of_a_connection(void **state)
{
    (void)state;
    enum { OTHERS_BETWEEN = 40 };
    uint8_t challenge[DIAL_CHALLENGE_BYTES], answer[DIAL_ANSWER_BYTES];
    int fds[2], others[OTHERS_BETWEEN];
    listen_as(&bert, "127.0.0.1", 1);
    dial_challenge(challenge);
    for (int i = 0; i < 2; i++) {
        fds[i] = call();
        assert_int_equal(write(fds[i], challenge, sizeof challenge), sizeof challenge);
        assert_int_equal(recv(fds[i], answer, sizeof answer, MSG_WAITALL), sizeof answer);
        assert_true(dial_answered(&newcomer.join, challenge, answer));
    }
    assert_int_equal(write(fds[0], challenge, sizeof challenge), sizeof challenge);
    assert_int_equal(recv(fds[0], answer, sizeof answer, 0), 0);
    for (int i = 0; i < OTHERS_BETWEEN; i++) { /* more than are remembered */
        others[i] = call();
        assert_int_equal(write(others[i], challenge, sizeof challenge), sizeof challenge);
        assert_int_equal(recv(others[i], answer, sizeof answer, MSG_WAITALL), sizeof answer);
    }
    (void)!send(fds[1], challenge, sizeof challenge, MSG_NOSIGNAL);
    assert_true(recv(fds[1], answer, sizeof answer, 0) <= 0);
    for (int i = 0; i < 2; i++)
        close(fds[i]);
    for (int i = 0; i < OTHERS_BETWEEN; i++)
        close(others[i]);
    listen_no_more();
    assert_int_equal(newcomer.answered, 2 + OTHERS_BETWEEN);
}

static void a_port_that_cannot_be_listened_on_is_told(void **state)
{
    (void)state;
    char address[ADDRESS_BYTES];
    struct dial_listener *listener;
    int fd = listen_on(5, address);
    void *context = zmq_ctx_new();
    assert_fails(ERR_CONF, "the port is in use", dial_listener_new(context, address, &listener));
    assert_null(listener);
    close(fd);
    assert_ok(dial_listener_new(context, address, &listener));
    dial_listener_free(listener);
    assert_fails(ERR_CONF, "no such address", dial_listener_new(context, "192.0.2.1:7600", &listener));
    zmq_ctx_term(context);
}

int main(void)
{
    assert_ok(digest_init());
    assert_ok(ident_generate(&bert));
    assert_ok(ident_generate(&carl));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_challenge_is_signed_by_the_newcomer_alone),
        cmocka_unit_test(who_listens_is_reached),
        cmocka_unit_test(who_does_not_listen_is_not_reached),
        cmocka_unit_test(somebody_else_is_not_the_newcomer),
        cmocka_unit_test(a_listener_answers_challenges_and_hangs_up_on_the_rest),
        cmocka_unit_test(a_listener_signs_one_challenge_of_a_connection),
        cmocka_unit_test(a_port_that_cannot_be_listened_on_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
