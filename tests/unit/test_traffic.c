/* SPDX-License-Identifier: Apache-2.0 */
/* traffic: bytes of TCP connections on loopback are counted once, and stay counted when a connection is gone or its
 * descriptor means something else. */
#include "tests/lib/testlib.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "net/transport/traffic.h"

/* A connection: `end[0]` dialled `end[1]`. */
static void connect_pair(int end[2])
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(listener >= 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&address, &bytes), 0);
    end[0] = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(end[0], (struct sockaddr *)&address, sizeof address), 0);
    end[1] = accept(listener, NULL, NULL);
    assert_true(end[1] >= 0);
    close(listener);
}

static void move_bytes(const int end[2], size_t bytes)
{
    static char data[1 << 16];
    assert_true(bytes <= sizeof data);
    assert_int_equal(write(end[0], data, bytes), bytes);
    for (size_t got = 0; got < bytes;) {
        ssize_t part = read(end[1], data, bytes - got);
        assert_true(part > 0);
        got += (size_t)part;
    }
}

static void assert_sum(struct traffic *traffic, uint32_t peer, uint64_t sent, uint64_t received)
{
    traffic_sample(traffic);
    struct traffic_sum sum = traffic_of(traffic, peer);
    assert_int_equal(sum.sent, sent);
    assert_int_equal(sum.received, received);
}

static void bytes_of_a_connection_are_counted_once(void **state)
{
    (void)state;
    struct traffic *traffic;
    int end[2];
    connect_pair(end);
    assert_ok(traffic_new(3, &traffic));
    assert_sum(traffic, 1, 0, 0);
    traffic_note(traffic, 1, -1);
    for (int i = 0; i < 3; i++) /* every message says it again */
        traffic_note(traffic, 1, end[0]);
    traffic_note(traffic, 2, end[1]);
    move_bytes(end, 5000);
    assert_sum(traffic, 1, 5000, 0);
    assert_sum(traffic, 2, 0, 5000);
    assert_sum(traffic, 0, 0, 0);
    assert_true(traffic_of(traffic, 1).rtt_us > 0);
    assert_in_range(traffic_of(traffic, 1).rtt_min_us, 1, 1000000);
    assert_int_equal(traffic_of(traffic, 0).rtt_min_us, 0);
    move_bytes(end, 700);
    assert_sum(traffic, 1, 5700, 0);
    traffic_free(traffic);
    close(end[0]);
    close(end[1]);
}

static void what_is_gone_stays_counted(void **state)
{
    (void)state;
    struct traffic *traffic;
    int end[2], again[2];
    connect_pair(end);
    assert_ok(traffic_new(1, &traffic));
    traffic_note(traffic, 0, end[0]);
    move_bytes(end, 5000);
    assert_sum(traffic, 0, 5000, 0);
    close(end[0]);
    close(end[1]);
    int file = open("/dev/null", O_RDONLY); /* the number is taken by something that is no connection */
    assert_sum(traffic, 0, 5000, 0);
    close(file);
    connect_pair(again);
    traffic_note(traffic, 0, again[0]);
    move_bytes(again, 100);
    assert_sum(traffic, 0, 5100, 0);
    traffic_free(traffic);
    close(again[0]);
    close(again[1]);
}

static void many_reconnects_are_counted(void **state)
{
    (void)state;
    enum { CONNECTIONS = 20 };
    struct traffic *traffic;
    int end[CONNECTIONS][2];
    assert_ok(traffic_new(1, &traffic));
    for (int i = 0; i < CONNECTIONS; i++) {
        connect_pair(end[i]);
        traffic_note(traffic, 0, end[i][0]);
        move_bytes(end[i], 10);
        assert_sum(traffic, 0, 10 * (uint64_t)(i + 1), 0);
    }
    for (int i = 0; i < CONNECTIONS; i++) {
        close(end[i][0]);
        close(end[i][1]);
    }
    assert_sum(traffic, 0, 10 * CONNECTIONS, 0);
    traffic_free(traffic);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_of_a_connection_are_counted_once),
        cmocka_unit_test(what_is_gone_stays_counted),
        cmocka_unit_test(many_reconnects_are_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
