/* ipc: messages, passed descriptors, and a shared memory that is checked before it is believed. */
#include "tests/lib/testlib.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/ipc.h"

static void messages_and_descriptors_travel(void **state)
{
    (void)state;
    int pair[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, pair), 0);
    struct ipc_message out = {.type = IPC_TAKEN, .fragment = 7};
    struct ipc_message in;
    int fd = 5;
    assert_int_equal(ipc_recv(pair[1], &in, &fd), ERR_AGAIN);
    assert_int_equal(fd, -1);
    int pipe_fds[2];
    assert_int_equal(pipe(pipe_fds), 0);
    assert_ok(ipc_send(pair[0], &out, pipe_fds[0]));
    assert_ok(ipc_recv(pair[1], &in, &fd));
    assert_int_equal(in.type, IPC_TAKEN);
    assert_int_equal(in.fragment, 7);
    assert_int_equal(write(pipe_fds[1], "x", 1), 1);
    char byte;
    assert_int_equal(read(fd, &byte, 1), 1);
    close(fd);
    close(pipe_fds[0]);
    close(pipe_fds[1]);
    assert_int_equal(send(pair[0], "short", 5, 0), 5);
    assert_int_equal(ipc_recv(pair[1], &in, &fd), ERR_PROTO);
    out.type = 99;
    assert_ok(ipc_send(pair[0], &out, -1));
    assert_int_equal(ipc_recv(pair[1], &in, &fd), ERR_PROTO);
    close(pair[0]);
    assert_int_equal(ipc_recv(pair[1], &in, &fd), ERR_CLOSED);
    assert_int_equal(ipc_send(pair[1], &out, -1), ERR_CLOSED);
    close(pair[1]);
}

static void long_socket_paths_are_refused(void **state)
{
    (void)state;
    struct sockaddr_un address;
    char path[200];
    memset(path, 'a', sizeof path - 1);
    path[sizeof path - 1] = '\0';
    assert_fails(ERR_CONF, "choose a shorter folder", ipc_address(path, &address));
    assert_ok(ipc_address("/run/x", &address));
}

static void a_wrong_shared_memory_is_refused(void **state)
{
    (void)state;
    enum { BYTES = 65536 };
    char *memory = aligned_alloc(4096, BYTES);
    memset(memory, 0, BYTES);
    struct ipc_shm *shm = (struct ipc_shm *)(void *)memory;
    *shm = (struct ipc_shm){.magic = IPC_MAGIC,
                            .version = IPC_VERSION,
                            .fragments_count = 1,
                            .tensors_count = 1,
                            .bytes = BYTES,
                            .fragments_offset = 1024,
                            .places_offset = 8192};
    struct ipc_fragment *fragment = ipc_fragment(shm, 0);
    fragment->values_count = 256;
    fragment->area_offset[0] = 16384;
    fragment->area_offset[1] = 32768;
    ipc_places(shm)[0] = (struct ipc_place){.fragment = 0, .offset = 6, .count = 250};
    assert_ok(ipc_shm_check(shm, BYTES));
    assert_ptr_equal(ipc_base(shm, fragment), memory + 16384);
    assert_ptr_equal(ipc_area(shm, fragment), memory + 32768);
    assert_int_equal(ipc_shm_check(shm, BYTES - 1), ERR_PROTO);
#define REFUSED_WITH(field, value)                              \
    do {                                                        \
        uint64_t saved = (field);                               \
        (field) = (value);                                      \
        assert_int_equal(ipc_shm_check(shm, BYTES), ERR_PROTO); \
        (field) = (__typeof__(field))saved;                     \
    } while (0)
    REFUSED_WITH(shm->magic, 1);
    REFUSED_WITH(shm->version, IPC_VERSION + 1);
    REFUSED_WITH(shm->fragments_count, 100000);
    REFUSED_WITH(shm->tensors_count, 100000);
    REFUSED_WITH(shm->fragments_offset, 65536 + 64);
    REFUSED_WITH(fragment->base, 2);
    REFUSED_WITH(fragment->values_count, 9000);
    REFUSED_WITH(fragment->values_count, UINT64_MAX / 4);
    REFUSED_WITH(fragment->area_offset[1], 65536 - 64);
    REFUSED_WITH(fragment->area_offset[0], 16385);
    REFUSED_WITH(ipc_places(shm)[0].fragment, 1);
    REFUSED_WITH(ipc_places(shm)[0].count, 251);
    REFUSED_WITH(ipc_places(shm)[0].offset, UINT64_MAX);
    free(memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_and_descriptors_travel),
        cmocka_unit_test(long_socket_paths_are_refused),
        cmocka_unit_test(a_wrong_shared_memory_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
