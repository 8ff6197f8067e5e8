/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/libdiloco/attach_link.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/env.h"
#include "common/err.h"
#include "common/mem.h"
#include "worker/libdiloco/attach_group.h"

enum { POLL_MS = 200, REATTACH_INTERVAL_MS = 1000 };
/* Between two turns of a daemon a fragment changes its word three times at most. */
enum { SAY_PER_FRAGMENT = 4 };

/* ---- the socket ---- */

enum err attach_link_init(struct diloco *d, const char *socket_path)
{
    struct sockaddr_un address;
    d->socket = -1;
    TRY(ipc_address(socket_path, &address)); /* no waiting makes it shorter */
    return mem_strdup(socket_path, &d->socket_path);
}

enum err attach_link_reserve(struct diloco *d, uint32_t fragments_count)
{
    d->say_room = SAY_PER_FRAGMENT * fragments_count;
    TRY(mem_new(d->say_room, sizeof *d->say, "what the daemon is told", &d->say));
    TRY(mem_new(fragments_count, sizeof *d->settled, "what the daemon is told", &d->settled));
    d->settled_count = fragments_count;
    return ERR_OK;
}

static void disconnect(struct diloco *d)
{
    if (d->socket >= 0)
        close(d->socket);
    d->socket = -1;
    d->welcomed = d->end_said = false;
    d->announced = 0;
    /* Whoever is there next reads the words themselves; but what is settled is told in no word. */
    d->say_count = 0;
    for (uint32_t f = 0; f < d->settled_count; f++)
        d->settled[f] = false;
}

void attach_link_deinit(struct diloco *d)
{
    disconnect(d);
    mem_free(d->settled);
    mem_free(d->say);
    mem_free(d->socket_path);
}

bool attach_connect(struct diloco *d)
{
    struct sockaddr_un address;
    if (ipc_address(d->socket_path, &address) != ERR_OK)
        return false;
    d->socket = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (d->socket >= 0 && connect(d->socket, (const struct sockaddr *)&address, sizeof address) == 0)
        return true;
    disconnect(d);
    return false;
}

static void wait_socket(const struct diloco *d, short events)
{
    struct pollfd item = {.fd = d->socket, .events = events};
    poll(&item, d->socket >= 0 ? 1 : 0, POLL_MS);
}

void attach_wait(const struct diloco *d)
{
    wait_socket(d, POLLIN);
}

/* Nothing more reaches the daemon, but what it has said last (that it refuses us, and why) may still be unread: the
 * next turn reads up to the end. */
static void cannot_send(struct diloco *d)
{
    shutdown(d->socket, SHUT_WR);
    d->say_count = 0;
}

/* False if the daemon is gone. */
static bool send_message(struct diloco *d, const struct ipc_message *message, int fd)
{
    while (d->socket >= 0) {
        enum err err = ipc_send(d->socket, message, fd);
        if (err == ERR_OK)
            return true;
        if (err != ERR_AGAIN) {
            cannot_send(d);
            return false;
        }
        if (attach_interrupted(d))
            break;
        attach_group_awake(d);
        wait_socket(d, POLLOUT);
    }
    disconnect(d);
    return false;
}

bool attach_send(struct diloco *d, enum ipc_type type)
{
    struct ipc_message message = {.type = type};
    return send_message(d, &message, -1);
}

bool attach_finished(struct diloco *d)
{
    struct ipc_message message = {.type = IPC_FINISHED,
                                  .report = {.step = d->step, .tokens = d->tokens, .trained = d->trained}};
    return send_message(d, &message, -1);
}

/* ---- attaching for the first time: the trainer has nothing else to do ---- */

/* Next message, waiting for it: DILOCO_OK, DILOCO_INTERRUPTED, or DILOCO_UNREACHABLE if the daemon went away. */
static int recv_message(struct diloco *d, struct ipc_message *message, int *fd)
{
    *fd = -1;
    while (d->socket >= 0) {
        enum err err = ipc_recv(d->socket, message, fd);
        if (err == ERR_OK)
            return DILOCO_OK;
        if (err != ERR_AGAIN) {
            disconnect(d);
            break;
        }
        if (attach_interrupted(d))
            return attach_fail(d, DILOCO_INTERRUPTED, "interrupted while waiting for the daemon");
        attach_group_awake(d);
        wait_socket(d, POLLIN);
    }
    return attach_fail(d, DILOCO_UNREACHABLE, "the daemon at %s went away", d->socket_path);
}

static int refused(struct diloco *d, const struct ipc_message *message)
{
    disconnect(d);
    return attach_fail(d, DILOCO_REFUSED, "the daemon refused this trainer: %.*s", IPC_TEXT_BYTES - 1, message->text);
}

int attach_await(struct diloco *d, enum ipc_type type, enum ipc_type other, struct ipc_message *message, int *fd)
{
    for (;;) {
        int result = recv_message(d, message, fd);
        if (result != DILOCO_OK || message->type == type || message->type == other)
            return result;
        if (*fd >= 0)
            close(*fd);
        *fd = -1;
        if (message->type == IPC_LEAVE)
            d->leave = true;
        if (message->type == IPC_REFUSED)
            return refused(d, message);
    }
}

/* What a trainer says first: HELLO, every tensor, REGISTERED; in so many parts. */
static uint32_t introduction_parts(const struct diloco *d)
{
    return d->tensors_count + d->frozen_count + 2;
}

static struct ipc_message introduction(const struct diloco *d, uint32_t index)
{
    struct ipc_message message = {.type = IPC_REGISTERED};
    if (index == 0) {
        message.type = IPC_HELLO;
        message.hello = (struct ipc_hello){.version = IPC_VERSION,
                                           .pid = (uint32_t)getpid(),
                                           .session = d->session,
                                           .step = d->step,
                                           .tokens = d->tokens,
                                           .kept = d->kept && !d->begun,
                                           .without_initial = d->options.without_initial != 0,
                                           .machine = d->machine};
        snprintf(message.hello.trainer, sizeof message.hello.trainer, "%s", d->trainer);
    } else if (index <= d->tensors_count) {
        message.type = IPC_TENSOR;
        message.tensor = d->tensors[index - 1].announced;
    } else if (index <= d->tensors_count + d->frozen_count) {
        message.type = IPC_TENSOR;
        message.tensor = d->frozen[index - 1 - d->tensors_count];
    }
    return message;
}

int attach_announce(struct diloco *d, struct ipc_message *message, int *fd)
{
    *fd = -1;
    for (uint32_t i = 0; i < introduction_parts(d); i++) {
        struct ipc_message part = introduction(d, i);
        if (!send_message(d, &part, i == 0 ? d->memfd : -1))
            break; /* it hung up, and may have said why */
    }
    int result = attach_await(d, IPC_WELCOME, IPC_WELCOME, message, fd);
    d->welcomed = result == DILOCO_OK;
    return result;
}

/* ---- telling ---- */

static void flush(struct diloco *d)
{
    while (d->say_count > 0 && d->socket >= 0) {
        const struct word_said *word = &d->say[d->say_head];
        struct ipc_message message = {.type = word->type, .fragment = word->fragment};
        if (word->type == IPC_SETTLED)
            message.settled.ends = d->ending && !d->done;
        enum err err = ipc_send(d->socket, &message, -1);
        if (err == ERR_AGAIN)
            return;
        if (err != ERR_OK) {
            cannot_send(d);
            return;
        }
        d->say_head = (d->say_head + 1) % d->say_room;
        d->say_count--;
    }
}

void attach_say(struct diloco *d, enum ipc_type type, uint32_t fragment)
{
    if (d->socket < 0 || !d->welcomed)
        return; /* the next daemon reads the words */
    if (d->say_count == d->say_room) {
        disconnect(d); /* it has not listened for long: begin anew with it */
        return;
    }
    d->say[(d->say_head + d->say_count++) % d->say_room] = (struct word_said){type, fragment};
    flush(d);
}

void attach_settle(struct diloco *d, uint32_t fragment)
{
    if (d->settled[fragment])
        return;
    attach_say(d, IPC_SETTLED, fragment);
    d->settled[fragment] = d->welcomed;
}

void attach_report(struct diloco *d, const struct ipc_report *report)
{
    struct ipc_message message = {.type = IPC_REPORT};
    message.report = *report;
    /* A full socket drops a report, not a step. */
    if (d->welcomed && ipc_send(d->socket, &message, -1) == ERR_CLOSED)
        cannot_send(d);
}

/* ---- attaching again, a little with every turn ---- */

bool attach_words_free(const struct diloco *d)
{
    return d->socket < 0 || d->welcomed;
}

static void introduce(struct diloco *d)
{
    while (d->socket >= 0 && d->announced < introduction_parts(d)) {
        struct ipc_message part = introduction(d, d->announced);
        enum err err = ipc_send(d->socket, &part, d->announced == 0 ? d->memfd : -1);
        if (err == ERR_AGAIN)
            return;
        if (err != ERR_OK) {
            cannot_send(d);
            return;
        }
        d->announced++;
    }
}

/* What is ours we are at; nobody else would ever give such a word back. */
static int check_words(struct diloco *d)
{
    for (uint32_t f = 0; f < d->shm->fragments_count; f++) {
        uint32_t word = ipc_word(ipc_fragment(d->shm, f));
        if ((word == IPC_COPYING || word == IPC_MIXING) && d->local[f].moving != (enum ipc_word)word)
            return attach_fail(d, DILOCO_ERROR,
                               "fragment %u: another process wrote %s into the shared memory; end it, and start this "
                               "trainer anew",
                               f, ipc_word_name(word));
    }
    return DILOCO_OK;
}

static int take_in(struct diloco *d, const struct ipc_message *message)
{
    if (message->type == IPC_LEAVE)
        d->leave = true;
    if (message->type == IPC_END) {
        d->end_said = true;
        d->end = message->end;
    }
    if (message->type == IPC_REFUSED)
        return refused(d, message);
    if (message->type != IPC_WELCOME || d->welcomed)
        return DILOCO_OK;
    if (!message->welcome.resumed) {
        disconnect(d);
        return attach_fail(d, DILOCO_REFUSED,
                           "the daemon could not take over the shared memory; start this trainer anew");
    }
    d->welcomed = true;
    return check_words(d);
}

int attach_turn(struct diloco *d)
{
    uint64_t now_ms = env_mono_ms();
    if (d->socket < 0 && now_ms < d->reattach_ms)
        return DILOCO_OK;
    if (d->socket < 0) {
        d->reattach_ms = now_ms + REATTACH_INTERVAL_MS;
        if (!attach_connect(d))
            return DILOCO_OK;
    }
    if (!d->welcomed)
        introduce(d);
    while (d->socket >= 0) {
        struct ipc_message message;
        int fd;
        enum err err = ipc_recv(d->socket, &message, &fd);
        if (fd >= 0)
            close(fd);
        if (err == ERR_AGAIN)
            break;
        if (err != ERR_OK) {
            disconnect(d);
            break;
        }
        int result = take_in(d, &message);
        if (result != DILOCO_OK)
            return result;
    }
    flush(d);
    return DILOCO_OK;
}
