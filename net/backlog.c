#include "net/backlog.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "common/mem.h"
#include "net/traffic.h"

struct connection {
    bool used, seen; /* seen: a message, since the last check */
    int fd;
    uint64_t then; /* bytes it had brought when a message was last seen */
};

struct backlog {
    struct connection list[BACKLOG_CONNECTIONS_MAX];
};

enum err backlog_new(struct backlog **out)
{
    return mem_new(1, sizeof **out, "links", out);
}

void backlog_free(struct backlog *backlog)
{
    mem_free(backlog);
}

static struct connection *find(struct backlog *backlog, int fd)
{
    for (size_t i = 0; i < BACKLOG_CONNECTIONS_MAX; i++)
        if (backlog->list[i].used && backlog->list[i].fd == fd)
            return &backlog->list[i];
    return NULL;
}

void backlog_open(struct backlog *backlog, int fd)
{
    struct connection *connection = find(backlog, fd); /* the number of one that is gone */
    for (size_t i = 0; i < BACKLOG_CONNECTIONS_MAX && connection == NULL; i++)
        if (!backlog->list[i].used)
            connection = &backlog->list[i];
    if (connection != NULL)
        *connection = (struct connection){.used = true, .fd = fd};
    else
        (void)shutdown(fd, SHUT_RDWR);
}

void backlog_seen(struct backlog *backlog, int fd)
{
    struct connection *connection = find(backlog, fd);
    if (connection != NULL)
        connection->seen = true;
}

size_t backlog_check(struct backlog *backlog)
{
    size_t ended = 0;
    for (size_t i = 0; i < BACKLOG_CONNECTIONS_MAX; i++) {
        struct connection *connection = &backlog->list[i];
        struct traffic_socket socket;
        if (!connection->used)
            continue;
        if (!traffic_socket(connection->fd, &socket)) {
            connection->used = false;
            continue;
        }
        bool another = socket.received < connection->then; /* connection, of the same number */
        if (connection->seen || another)
            connection->then = socket.received;
        connection->seen = false;
        if (socket.received - connection->then <= BACKLOG_BYTES_MAX)
            continue;
        (void)shutdown(connection->fd, SHUT_RDWR);
        connection->used = false;
        ended++;
    }
    return ended;
}
