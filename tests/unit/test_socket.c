/* SPDX-License-Identifier: Apache-2.0 */
/* socket: what bulk asks of the kernel for its connections, on real ones. */
#include "tests/lib/testlib.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "net/transport/socket.h"

enum { MIB = 1 << 20 };

static int new_socket(void)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    return fd;
}

static int buffer_of(int fd)
{
    int now = 0;
    socklen_t bytes = sizeof now;
    assert_int_equal(getsockopt(fd, SOL_SOCKET, SO_SNDBUF, &now, &bytes), 0);
    return now;
}

/* One that is set grows no more, so it is left alone as long as it grows far enough by itself. */
static void room_is_made_only_where_a_buffer_does_not_grow_so_far(void **state)
{
    (void)state;
    int fd = new_socket(), usual = buffer_of(fd);
    assert_int_equal(socket_make_room(fd, MIB, 2 * MIB), 2 * MIB);
    assert_int_equal(buffer_of(fd), usual);
    /* Whatever net.core.wmem_max is here, what it says is what there is. */
    uint64_t most = socket_make_room(fd, SOCKET_ROOM_MAX, 0);
    assert_int_equal(most, buffer_of(fd));
    assert_true(most > (uint64_t)usual);
    close(fd);
    fd = new_socket(); /* and where it could only be set to less than it grows to, it is not set at all */
    assert_true(socket_make_room(fd, SOCKET_ROOM_MAX, 4 * most) >= 4 * most || geteuid() == 0);
    if (geteuid() != 0)
        assert_int_equal(buffer_of(fd), usual);
    close(fd);
}

static int option_of(void *socket, int option)
{
    int value = -1;
    size_t bytes = sizeof value;
    assert_int_equal(zmq_getsockopt(socket, option, &value, &bytes), 0);
    return value;
}

/* With them the library aborts the process when it was stopped for a while (system/test_paused). */
static void the_kernel_looks_after_dead_lines_and_zeromq_sends_no_heartbeats(void **state)
{
    (void)state;
    void *context = zmq_ctx_new(), *socket = NULL;
    assert_ok(socket_open(context, ZMQ_DEALER, 100, &socket));
    assert_int_equal(option_of(socket, ZMQ_HEARTBEAT_IVL), 0);
    assert_int_equal(option_of(socket, ZMQ_TCP_MAXRT), 8000);
    assert_int_equal(option_of(socket, ZMQ_TCP_KEEPALIVE), 1);
    assert_int_equal(option_of(socket, ZMQ_TCP_KEEPALIVE_IDLE), 4);
    assert_int_equal(option_of(socket, ZMQ_TCP_KEEPALIVE_INTVL), 2);
    assert_int_equal(option_of(socket, ZMQ_TCP_KEEPALIVE_CNT), 2);
    zmq_close(socket);
    zmq_ctx_term(context);
}

static void no_socket_has_no_room(void **state)
{
    (void)state;
    assert_int_equal(socket_make_room(-1, MIB, 0), 0);
    int file = open("/dev/null", O_RDONLY | O_CLOEXEC); /* the number is taken by something else */
    assert_int_equal(socket_make_room(file, MIB, 0), 0);
    assert_int_not_equal(socket_set_congestion(file, "bbr"), 0);
    close(file);
}

static void it_says_whether_bbr_could_be_set(void **state)
{
    (void)state;
    char name[16] = "";
    socklen_t bytes = sizeof name;
    int fd = new_socket(), error = socket_set_congestion(fd, "bbr");
    assert_int_equal(getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &bytes), 0);
    assert_int_equal(strncmp(name, "bbr", sizeof name) == 0, error == 0);
    close(fd);
}

static void a_connection_is_paced(void **state)
{
    (void)state;
    uint64_t rate = 0;
    socklen_t bytes = sizeof rate;
    int fd = new_socket();
    socket_pace(fd, 8000000);
    assert_int_equal(getsockopt(fd, SOL_SOCKET, SO_MAX_PACING_RATE, &rate, &bytes), 0);
    assert_int_equal(rate, 1000000);
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(room_is_made_only_where_a_buffer_does_not_grow_so_far),
        cmocka_unit_test(the_kernel_looks_after_dead_lines_and_zeromq_sends_no_heartbeats),
        cmocka_unit_test(no_socket_has_no_room),
        cmocka_unit_test(it_says_whether_bbr_could_be_set),
        cmocka_unit_test(a_connection_is_paced),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
