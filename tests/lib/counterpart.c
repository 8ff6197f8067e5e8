/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/counterpart.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "tests/lib/testlib.h"

float tensor[COUNT];
int listener, connection, memfd;
struct ipc_shm *shm;
struct ipc_fragment *fragment;
struct diloco *d;
bool unsealed;
struct ipc_shm make_conf = {.overlap = 1, .mix = 0.25};
struct diloco_device device;
struct diloco_tensor announced = {.size = sizeof announced, .name = "w", .data = tensor, .dims = 1, .shape = {COUNT}};
struct diloco_group group;
int begins = DILOCO_OK;
struct diloco_machine machine;
char trainer_name[] = "trainer   ";
struct ipc_hello greeting;
int (*while_waiting)(int slice);
int slices;
int (*before_moves)(void *user);

void make_shm(void)
{
    memfd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_true(memfd >= 0);
    assert_int_equal(ftruncate(memfd, SHM_BYTES), 0);
    if (!unsealed)
        assert_int_equal(fcntl(memfd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    shm = mmap(NULL, SHM_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0);
    assert_true(shm != MAP_FAILED);
    *shm = (struct ipc_shm){.magic = IPC_MAGIC,
                            .version = IPC_VERSION,
                            .fragments_count = 1,
                            .tensors_count = 1,
                            .bytes = SHM_BYTES,
                            .session = SESSION,
                            .overlap = make_conf.overlap,
                            .late_wait = make_conf.late_wait,
                            .steps = 1000000,
                            .mix = make_conf.mix,
                            .set_aside = make_conf.set_aside,
                            .eager_fresh = make_conf.eager_fresh,
                            .eager_past = make_conf.eager_past,
                            .eager_decay = make_conf.eager_decay,
                            .fragments_offset = 1024,
                            .places_offset = 8192};
    fragment = ipc_fragment(shm, 0);
    fragment->values_count = VALUES;
    fragment->area_offset[0] = 16384;
    fragment->area_offset[1] = 32768;
    fragment->due_step = UINT64_MAX;
    fragment->eager_share = 1;
    ipc_places(shm)[0] = (struct ipc_place){.fragment = 0, .offset = 0, .count = COUNT};
    for (int i = 0; i < COUNT; i++)
        ipc_base(shm, fragment)[i] = (float)i;
}

/* The next message of the trainer, waiting for it; `*fd` as it came along. */
struct ipc_message hear(int *fd)
{
    struct ipc_message message;
    assert_ok(ipc_recv(connection, &message, fd));
    return message;
}

void hear_introduction(uint64_t session)
{
    int fd;
    connection = accept(listener, NULL, NULL);
    assert_true(connection >= 0);
    struct ipc_message message = hear(&fd);
    assert_int_equal(message.type, IPC_HELLO);
    greeting = message.hello;
    assert_int_equal(message.hello.session, session);
    assert_int_equal(fd >= 0, session != 0); /* what it has of a daemon before this one comes along */
    if (fd >= 0)
        close(fd);
    assert_int_equal(hear(&fd).type, IPC_TENSOR);
    assert_int_equal(hear(&fd).type, IPC_REGISTERED);
}

void say_welcome(bool resumed)
{
    struct ipc_message welcome = {.type = IPC_WELCOME};
    welcome.welcome = (struct ipc_welcome){
        .session = SESSION, .bytes = SHM_BYTES, .islands_count = 1, .resumed = resumed, .island = "here"};
    assert_ok(ipc_send(connection, &welcome, resumed ? -1 : memfd));
}

static void *serve_begin(void *unused)
{
    struct ipc_message go = {.type = IPC_GO, .go = {.tokens = 70, .tokens_counted = 50}};
    hear_introduction(0);
    say_welcome(false);
    assert_ok(ipc_send(connection, &go, -1));
    return unused;
}

/* The next message that is no report; fails if there is none. */
void assert_hears(uint32_t type)
{
    struct ipc_message message;
    int fd;
    do
        assert_ok(ipc_recv(connection, &message, &fd));
    while (message.type == IPC_REPORT);
    assert_int_equal(message.type, type);
}

static int interrupted(void *unused)
{
    (void)unused;
    return while_waiting != NULL ? while_waiting(slices++) : 0;
}

const char *listen_here(void)
{
    const char *path = testlib_path(testlib_folder("attach"), "s");
    struct sockaddr_un address;
    listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    assert_ok(ipc_address(path, &address));
    assert_int_equal(bind(listener, (const struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(listener, 4), 0);
    return path;
}

void begin(void)
{
    const char *path = listen_here();
    pthread_t thread;
    make_shm();
    assert_int_equal(pthread_create(&thread, NULL, serve_begin, NULL), 0);
    struct diloco_start start = {.size = sizeof(struct diloco_start)};
    struct diloco_options options = {.size = sizeof(struct diloco_options),
                                     .socket_path = path,
                                     .trainer = trainer_name,
                                     .wait_ms = 2000,
                                     .device = device.size > 0 ? &device : NULL,
                                     .group = group.size > 0 ? &group : NULL,
                                     .machine = machine.size > 0 ? &machine : NULL,
                                     .interrupted = interrupted,
                                     .before_moves = before_moves};
    assert_int_equal(diloco_attach(&options, &d), DILOCO_OK);
    assert_int_equal(diloco_register(d, &announced), DILOCO_OK);
    assert_int_equal(diloco_begin(d, &start), begins);
    pthread_join(thread, NULL);
    if (begins != DILOCO_OK)
        return;
    assert_int_equal(start.steps, 1000000);
    assert_int_equal(start.tokens, 70);
    assert_int_equal(start.tokens_counted, 50);
    for (int i = 0; announced.data == tensor && announced.part.columns == 0 && i < COUNT; i++)
        assert_true(tensor[i] == (float)i); /* the anchor */
}

void end(void)
{
    diloco_detach(d);
    close(connection);
    close(listener);
    close(memfd);
    munmap(shm, SHM_BYTES);
}

void say_end(bool over, const char *why)
{
    struct ipc_message message = {.type = IPC_END, .end = {.over = over}};
    snprintf(message.end.why, sizeof message.end.why, "%s", why);
    assert_ok(ipc_send(connection, &message, -1));
}

int train(float by)
{
    for (int i = 0; i < COUNT; i++)
        tensor[i] += by;
    return diloco_step(d, &(struct diloco_report){.size = sizeof(struct diloco_report), .tokens = 10});
}

void daemon_moves(enum ipc_word from, enum ipc_word to)
{
    assert_true(ipc_move(fragment, IPC_DAEMON, from, to));
}

void bring_anchor(uint64_t version, float value, const struct ipc_range *ranges, uint32_t count)
{
    daemon_moves(ipc_word(fragment) == IPC_FREE ? IPC_FREE : IPC_SNAPSHOT, IPC_FILLING);
    float *area = ipc_area(shm, fragment);
    for (int i = 0; i < COUNT; i++)
        area[i] = value;
    fragment->anchor_version = version;
    fragment->ranges_count = count;
    memcpy(fragment->ranges, ranges, count * sizeof *ranges);
    daemon_moves(IPC_FILLING, IPC_ANCHOR);
}
