/* SPDX-License-Identifier: Apache-2.0 */
#include "net/transport/backlog.h"

#include <stdbool.h>
#include <linux/sockios.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "common/mem.h"
#include "net/transport/traffic.h"

enum { FIRST_ROOM = 64 };

struct connection {
    bool used, seen; /* seen: a message, since the last check */
    uint64_t then;   /* bytes that were taken from it when a message was last seen */
};

struct backlog {
    struct connection *list; /* by descriptor */
    size_t room, count, connections_max;
};

enum err backlog_new(size_t connections_max, struct backlog **out)
{
    TRY(mem_new(1, sizeof **out, "links", out));
    (*out)->connections_max = connections_max;
    return ERR_OK;
}

void backlog_free(struct backlog *backlog)
{
    if (backlog == NULL)
        return;
    mem_free(backlog->list);
    mem_free(backlog);
}

void backlog_allow(struct backlog *backlog, size_t connections_max)
{
    backlog->connections_max = connections_max;
}

static bool make_room(struct backlog *backlog, int fd)
{
    size_t room = backlog->room > 0 ? backlog->room : FIRST_ROOM;
    while (room <= (size_t)fd)
        room *= 2;
    if (room > BACKLOG_FDS_MAX)
        return false;
    if (room > backlog->room) {
        if (mem_grow(&backlog->list, backlog->room, room, sizeof *backlog->list, "links") != ERR_OK)
            return false;
        backlog->room = room;
    }
    return true;
}

void backlog_open(struct backlog *backlog, int fd)
{
    if (fd < 0)
        return;
    bool known = (size_t)fd < backlog->room && backlog->list[fd].used; /* the number of one that is gone */
    if (!known && (backlog->count >= backlog->connections_max || !make_room(backlog, fd))) {
        (void)shutdown(fd, SHUT_RDWR);
        return;
    }
    backlog->count += !known;
    backlog->list[fd] = (struct connection){.used = true};
}

void backlog_seen(struct backlog *backlog, int fd)
{
    if (fd >= 0 && (size_t)fd < backlog->room)
        backlog->list[fd].seen = true;
}

static void forget(struct backlog *backlog, size_t fd)
{
    backlog->count -= backlog->list[fd].used;
    backlog->list[fd] = (struct connection){.used = false};
}

void backlog_end(struct backlog *backlog, int fd)
{
    struct traffic_socket socket;
    if (!traffic_socket(fd, &socket))
        return; /* it is something else by now */
    (void)shutdown(fd, SHUT_RDWR);
    if ((size_t)fd < backlog->room)
        forget(backlog, (size_t)fd);
}

/* What ZeroMQ has taken in of it. The kernel's buffer is bounded, and on a fast line larger than what is allowed here.
 */
static uint64_t taken_of(int fd, const struct traffic_socket *socket)
{
    int waiting = 0;
    bool known = ioctl(fd, SIOCINQ, &waiting) == 0 && waiting > 0;
    return known && (uint64_t)waiting < socket->received ? socket->received - (uint64_t)waiting : socket->received;
}

size_t backlog_check(struct backlog *backlog)
{
    size_t ended = 0;
    for (size_t fd = 0; fd < backlog->room; fd++) {
        struct connection *connection = &backlog->list[fd];
        struct traffic_socket socket;
        if (!connection->used)
            continue;
        if (!traffic_socket((int)fd, &socket)) {
            forget(backlog, fd);
            continue;
        }
        uint64_t taken = taken_of((int)fd, &socket);
        bool another = taken < connection->then; /* connection, of the same number */
        if (connection->seen || another)
            connection->then = taken;
        connection->seen = false;
        if (taken - connection->then <= BACKLOG_BYTES_MAX)
            continue;
        (void)shutdown((int)fd, SHUT_RDWR);
        forget(backlog, fd);
        ended++;
    }
    return ended;
}
