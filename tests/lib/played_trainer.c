/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/played_trainer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "daemon/trainer/attachment.h"
#include "tests/lib/testlib.h"

struct played_trainer *played_trainer_open(struct isle *isle)
{
    char path[300];
    struct sockaddr_un address;
    struct played_trainer *trainer = calloc(1, sizeof *trainer);
    struct model_plan *plan = isle_model_plan(isle->run);
    struct ipc_message message = {.type = IPC_HELLO, .hello = {.version = IPC_VERSION, .trainer = "played"}};
    struct event event;
    assert_non_null(trainer);
    trainer->isle = isle;
    trainer->socket = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    snprintf(path, sizeof path, "%s/worker.sock", isle->conf.run_folder);
    assert_ok(ipc_address(path, &address));
    assert_int_equal(connect(trainer->socket, (const struct sockaddr *)&address, sizeof address), 0);
    played_trainer_say(trainer, &message);
    for (uint32_t i = 0; i < plan->tensors_count; i++)
        played_trainer_say(trainer, &(struct ipc_message){.type = IPC_TENSOR, .tensor = plan->tensors[i]});
    played_trainer_say(trainer, &(struct ipc_message){.type = IPC_REGISTERED});
    isle_wait(isle_took(isle, EVENT_REGISTERED, &event));
    model_plan_free(plan);
    return trainer;
}

void played_trainer_say(struct played_trainer *trainer, const struct ipc_message *message)
{
    assert_ok(ipc_send(trainer->socket, message, -1));
    isle_turn(trainer->isle); /* reads it before the buffer is full */
}

/* The next message of a type; it is there already. */
static struct ipc_message hear(struct played_trainer *trainer, enum ipc_type type, int *fd)
{
    struct ipc_message message;
    do
        assert_ok(ipc_recv(trainer->socket, &message, fd));
    while (message.type != type);
    return message;
}

void played_trainer_publish_initial(struct played_trainer *trainer)
{
    int fd;
    attachment_accept(trainer->isle->trainer->attachment, "");
    isle_tick(trainer->isle);
    struct ipc_message welcome = hear(trainer, IPC_WELCOME, &fd);
    assert_true(welcome.welcome.need_initial != 0);
    trainer->shm_bytes = welcome.welcome.bytes;
    trainer->shm = mmap(NULL, trainer->shm_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_true(trainer->shm != MAP_FAILED);
    close(fd);
    played_trainer_say(trainer, &(struct ipc_message){.type = IPC_INITIAL});
}

/* The engine's part, without the jobs. */
static void start_fragments(struct isle *isle)
{
    struct event event;
    for (uint32_t f = 0; f < ISLE_FRAGMENTS; f++) {
        assert_true(isle_took(isle, EVENT_START, &event) && event.start.initial);
        struct digest hash = digest_of(&f, sizeof f);
        trainer_started(isle->trainer, event.fragment, true);
        round_context_begin(isle->rounds->context, event.fragment, &hash);
        sync_restore(isle->sync, event.fragment, 0, &hash);
    }
    isle_tick(isle);
    for (uint32_t f = 0; f < ISLE_FRAGMENTS; f++) {
        assert_true(isle_took(isle, EVENT_START, &event) && !event.start.initial);
        trainer_started(isle->trainer, event.fragment, false);
    }
    while (isle_took_sync(isle, SYNC_EV_TRAINER_UP, &event))
        isle_step(isle, &event.sync);
    isle_tick(isle);
    assert_true(isle_took(isle, EVENT_READY, &event));
    attachment_go(isle->trainer->attachment, 0);
}

void played_trainer_start(struct played_trainer *trainer)
{
    int fd;
    bool engine = trainer->isle->engine;
    trainer->isle->engine = false; /* what it would step is stepped here */
    played_trainer_publish_initial(trainer);
    start_fragments(trainer->isle);
    hear(trainer, IPC_GO, &fd);
    trainer->isle->engine = engine;
}

void played_trainer_close(struct played_trainer *trainer)
{
    if (trainer->shm != NULL)
        munmap(trainer->shm, trainer->shm_bytes);
    close(trainer->socket);
    free(trainer);
}
