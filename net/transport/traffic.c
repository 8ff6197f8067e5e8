/* SPDX-License-Identifier: Apache-2.0 */
#include "net/transport/traffic.h"

#include <linux/sockios.h>
#include <netinet/in.h>
#include <linux/tcp.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "common/mem.h"

struct traffic_fd {
    bool used;
    int fd;
    uint64_t sent, received; /* at the last sample */
    uint32_t rtt_min_us;
};

/* Two connections each way, and as many that are gone without our having seen it. */
struct traffic_peer {
    struct traffic_fd fds[TRAFFIC_FDS_MAX];
    uint64_t sent_before, received_before; /* over connections that are gone */
    uint32_t rtt_us;
    uint32_t next; /* of `fds`, to make room */
};

struct traffic {
    struct traffic_peer *peers;
    uint32_t peers_count;
};

enum err traffic_new(uint32_t peers_count, struct traffic **out)
{
    enum err err;
    struct traffic *traffic = NULL;
    *out = NULL;
    TRY_OUT(mem_new(1, sizeof *traffic, "links", &traffic));
    traffic->peers_count = peers_count;
    TRY_OUT(mem_new(peers_count, sizeof *traffic->peers, "links", &traffic->peers));
out:
    if (err != ERR_OK)
        traffic_free(traffic);
    else
        *out = traffic;
    return err;
}

void traffic_free(struct traffic *traffic)
{
    if (traffic == NULL)
        return;
    mem_free(traffic->peers);
    mem_free(traffic);
}

enum err traffic_grow(struct traffic *traffic, uint32_t peers_count)
{
    if (peers_count <= traffic->peers_count)
        return ERR_OK;
    TRY(mem_grow(&traffic->peers, traffic->peers_count, peers_count, sizeof *traffic->peers, "links"));
    traffic->peers_count = peers_count;
    return ERR_OK;
}

void traffic_forget(struct traffic *traffic, uint32_t peer)
{
    traffic->peers[peer] = (struct traffic_peer){.rtt_us = 0};
}

size_t traffic_fds(const struct traffic *traffic, uint32_t peer, int fds[TRAFFIC_FDS_MAX])
{
    size_t count = 0;
    for (size_t i = 0; i < TRAFFIC_FDS_MAX; i++)
        if (traffic->peers[peer].fds[i].used)
            fds[count++] = traffic->peers[peer].fds[i].fd;
    return count;
}

static void forget(struct traffic_peer *peer, struct traffic_fd *entry)
{
    peer->sent_before += entry->sent;
    peer->received_before += entry->received;
    *entry = (struct traffic_fd){.used = false};
}

int traffic_note(struct traffic *traffic, uint32_t number, int fd)
{
    struct traffic_peer *peer = &traffic->peers[number];
    struct traffic_fd *slot = NULL;
    int gone = -1;
    if (fd < 0)
        return gone;
    for (size_t i = 0; i < TRAFFIC_FDS_MAX; i++) {
        if (peer->fds[i].used && peer->fds[i].fd == fd)
            return gone;
        if (!peer->fds[i].used && slot == NULL)
            slot = &peer->fds[i];
    }
    if (slot == NULL) {
        slot = &peer->fds[peer->next++ % TRAFFIC_FDS_MAX]; /* the oldest */
        gone = slot->fd;
        forget(peer, slot);
    }
    *slot = (struct traffic_fd){.used = true, .fd = fd};
    return gone;
}

bool traffic_socket(int fd, struct traffic_socket *out)
{
    struct tcp_info info;
    socklen_t bytes = sizeof info;
    memset(&info, 0, sizeof info);
    bool good = fd >= 0 && getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) == 0;
    *out = (struct traffic_socket){0};
    if (good)
        *out = (struct traffic_socket){.sent = info.tcpi_bytes_sent,
                                       .received = info.tcpi_bytes_received,
                                       .unsent = info.tcpi_notsent_bytes,
                                       .retransmits = info.tcpi_total_retrans,
                                       .queue_us =
                                           info.tcpi_rtt > info.tcpi_min_rtt ? info.tcpi_rtt - info.tcpi_min_rtt : 0,
                                       .starved_us = info.tcpi_sndbuf_limited,
                                       .rtt_us = info.tcpi_rtt,
                                       .rtt_min_us = info.tcpi_min_rtt != UINT32_MAX ? info.tcpi_min_rtt : 0};
    return good;
}

/* Reads the counters of one descriptor. It may have been closed and even reused by ZeroMQ's thread since: then it is
 * no TCP socket any more, or one that has carried less than before. */
static void sample(struct traffic_peer *peer, struct traffic_fd *entry)
{
    struct traffic_socket now;
    if (!traffic_socket(entry->fd, &now) || now.sent < entry->sent || now.received < entry->received) {
        forget(peer, entry);
        return;
    }
    entry->sent = now.sent;
    entry->received = now.received;
    entry->rtt_min_us = now.rtt_min_us;
    if (now.rtt_us > 0)
        peer->rtt_us = now.rtt_us;
}

void traffic_sample(struct traffic *traffic)
{
    for (uint32_t i = 0; i < traffic->peers_count; i++)
        for (size_t k = 0; k < TRAFFIC_FDS_MAX; k++)
            if (traffic->peers[i].fds[k].used)
                sample(&traffic->peers[i], &traffic->peers[i].fds[k]);
}

struct traffic_sum traffic_of(const struct traffic *traffic, uint32_t number)
{
    const struct traffic_peer *peer = &traffic->peers[number];
    struct traffic_sum sum = {.sent = peer->sent_before, .received = peer->received_before, .rtt_us = peer->rtt_us};
    for (size_t k = 0; k < TRAFFIC_FDS_MAX; k++) {
        sum.sent += peer->fds[k].used ? peer->fds[k].sent : 0;
        sum.received += peer->fds[k].used ? peer->fds[k].received : 0;
        uint32_t rtt_us = peer->fds[k].used ? peer->fds[k].rtt_min_us : 0;
        if (rtt_us > 0 && (sum.rtt_min_us == 0 || rtt_us < sum.rtt_min_us))
            sum.rtt_min_us = rtt_us;
    }
    return sum;
}

/* ---- connections that bring bytes and no message ---- */

enum { FIRST_ROOM = 64 };

struct connection {
    bool used, seen; /* seen: a message, since the last check */
    bool knocks;     /* it was accepted, and no message of it was seen ever */
    uint64_t serial; /* of those that were opened */
    uint64_t then;   /* bytes that were taken from it when a message was last seen */
};

struct backlog {
    struct connection *list; /* by descriptor */
    size_t room, count, connections_max;
    uint64_t serial; /* last given */
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

static void forget_fd(struct backlog *backlog, size_t fd)
{
    backlog->count -= backlog->list[fd].used;
    backlog->list[fd] = (struct connection){.used = false};
}

/* Whether there is room for one more. A handshake takes a moment, and who is at the door for longest is least likely to
 * be in the middle of one. */
static bool make_way(struct backlog *backlog)
{
    size_t oldest = backlog->room;
    if (backlog->count < backlog->connections_max)
        return true;
    for (size_t fd = 0; fd < backlog->room; fd++) {
        const struct connection *connection = &backlog->list[fd];
        if (connection->used && connection->knocks &&
            (oldest == backlog->room || connection->serial < backlog->list[oldest].serial))
            oldest = fd;
    }
    if (oldest == backlog->room)
        return false;
    (void)shutdown((int)oldest, SHUT_RDWR);
    forget_fd(backlog, oldest);
    return true;
}

void backlog_open(struct backlog *backlog, int fd, bool dialled)
{
    if (fd < 0)
        return;
    bool known = (size_t)fd < backlog->room && backlog->list[fd].used; /* the number of one that is gone */
    if (!known && (!make_room(backlog, fd) || !make_way(backlog))) {
        (void)shutdown(fd, SHUT_RDWR);
        return;
    }
    backlog->count += !known;
    backlog->list[fd] = (struct connection){.used = true, .knocks = !dialled, .serial = ++backlog->serial};
}

void backlog_seen(struct backlog *backlog, int fd)
{
    if (fd < 0 || (size_t)fd >= backlog->room)
        return;
    backlog->list[fd].seen = true;
    backlog->list[fd].knocks = false;
}

void backlog_end(struct backlog *backlog, int fd)
{
    struct traffic_socket socket;
    if (!traffic_socket(fd, &socket))
        return; /* it is something else by now */
    (void)shutdown(fd, SHUT_RDWR);
    if ((size_t)fd < backlog->room)
        forget_fd(backlog, (size_t)fd);
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
            forget_fd(backlog, fd);
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
        forget_fd(backlog, fd);
        ended++;
    }
    return ended;
}
