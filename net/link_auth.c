/*
 * Who may connect (ZAP, ZeroMQ RFC 27), and what each connection has carried (TCP_INFO).
 */
#include <netinet/in.h>
#include <linux/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "net/link_parts.h"

/* A request has a routing id, an empty part, then: version, request id, domain, address, identity, mechanism, and for
 * CURVE the client's 32-byte key. */
enum { ZAP_ROUTE, ZAP_EMPTY, ZAP_VERSION, ZAP_REQUEST, ZAP_DOMAIN, ZAP_ADDRESS, ZAP_IDENTITY, ZAP_MECHANISM, ZAP_KEY };
enum { ZAP_PARTS_MAX = 9 };

struct zap_request {
    zmq_msg_t part[ZAP_PARTS_MAX];
    int count;
};

static bool part_is(zmq_msg_t *part, const char *text)
{
    return zmq_msg_size(part) == strlen(text) && memcmp(zmq_msg_data(part), text, strlen(text)) == 0;
}

static bool read_request(struct link *link, struct zap_request *request)
{
    bool more = true;
    request->count = 0;
    while (more && request->count < ZAP_PARTS_MAX) {
        zmq_msg_t *part = &request->part[request->count];
        zmq_msg_init(part);
        if (zmq_msg_recv(part, link->zap, ZMQ_DONTWAIT) < 0) {
            zmq_msg_close(part);
            return false;
        }
        request->count++;
        more = zmq_msg_more(part) != 0;
    }
    return true;
}

static uint32_t member_of_key(const struct link *link, const void *key)
{
    for (uint32_t i = 0; i < link->members_count; i++)
        if (i != link->self && memcmp(link->peers[i].key, key, IDENT_KEY_BYTES) == 0)
            return i;
    return UINT32_MAX;
}

static void tell_stranger(struct link *link, struct zap_request *request)
{
    char key[IDENT_TEXT_BYTES];
    char text[WIRE_REASON_BYTES];
    ident_text(zmq_msg_data(&request->part[ZAP_KEY]), key);
    snprintf(text, sizeof text, "%s from %.*s", key, (int)zmq_msg_size(&request->part[ZAP_ADDRESS]),
             (const char *)zmq_msg_data(&request->part[ZAP_ADDRESS]));
    link_tell(link, LINK_STRANGER, UINT32_MAX, text);
}

static void answer(struct link *link, struct zap_request *request)
{
    char user_id[16] = "";
    const char *status = "400";
    if (request->count == ZAP_PARTS_MAX && part_is(&request->part[ZAP_MECHANISM], "CURVE") &&
        zmq_msg_size(&request->part[ZAP_KEY]) == IDENT_KEY_BYTES) {
        uint32_t member = member_of_key(link, zmq_msg_data(&request->part[ZAP_KEY]));
        if (member < link->members_count) {
            status = "200";
            snprintf(user_id, sizeof user_id, "%u", member);
        } else {
            tell_stranger(link, request);
        }
    }
    zmq_msg_send(&request->part[ZAP_ROUTE], link->zap, ZMQ_SNDMORE);
    zmq_send(link->zap, "", 0, ZMQ_SNDMORE);
    zmq_send(link->zap, "1.0", 3, ZMQ_SNDMORE);
    zmq_msg_send(&request->part[ZAP_REQUEST], link->zap, ZMQ_SNDMORE);
    zmq_send(link->zap, status, 3, ZMQ_SNDMORE);
    zmq_send(link->zap, "", 0, ZMQ_SNDMORE);
    zmq_send(link->zap, user_id, strlen(user_id), ZMQ_SNDMORE);
    zmq_send(link->zap, "", 0, 0);
}

void link_serve_zap(struct link *link)
{
    struct zap_request request;
    while (read_request(link, &request)) {
        if (request.count > ZAP_REQUEST)
            answer(link, &request);
        for (int i = 0; i < request.count; i++)
            zmq_msg_close(&request.part[i]);
    }
}

uint32_t link_peer_of(const struct link *link, const char *user_id)
{
    if (user_id == NULL || user_id[0] == '\0')
        return UINT32_MAX;
    unsigned long member = strtoul(user_id, NULL, 10);
    return member < link->members_count ? (uint32_t)member : UINT32_MAX;
}

/* ---- counters ---- */

static void forget_fd(struct link_peer *peer, struct link_fd *entry)
{
    peer->sent_before += entry->sent;
    peer->received_before += entry->received;
    *entry = (struct link_fd){.fd = -1};
}

/* Reads the counters of one descriptor. It may have been closed and even reused by ZeroMQ's thread since: then it is
 * no TCP socket any more, or one that has carried less than before. */
static void sample_fd(struct link_peer *peer, struct link_fd *entry)
{
    struct tcp_info info;
    socklen_t bytes = sizeof info;
    memset(&info, 0, sizeof info);
    if (getsockopt(entry->fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0 || info.tcpi_bytes_sent < entry->sent ||
        info.tcpi_bytes_received < entry->received) {
        forget_fd(peer, entry);
        return;
    }
    entry->sent = info.tcpi_bytes_sent;
    entry->received = info.tcpi_bytes_received;
    if (info.tcpi_rtt > 0)
        peer->rtt_us = info.tcpi_rtt;
}

void link_note_fd(struct link *link, uint32_t member, int fd)
{
    struct link_peer *peer = &link->peers[member];
    struct link_fd *slot = NULL;
    if (fd < 0)
        return;
    for (size_t i = 0; i < LINK_FDS_MAX; i++) {
        if (peer->fds[i].used && peer->fds[i].fd == fd)
            return;
        if (!peer->fds[i].used && slot == NULL)
            slot = &peer->fds[i];
    }
    if (slot == NULL) {
        slot = &peer->fds[0]; /* the oldest; its connection is long gone */
        forget_fd(peer, slot);
    }
    *slot = (struct link_fd){.fd = fd, .used = true};
}

void link_sample(struct link *link)
{
    for (uint32_t i = 0; i < link->members_count; i++)
        for (size_t k = 0; k < LINK_FDS_MAX; k++)
            if (link->peers[i].fds[k].used)
                sample_fd(&link->peers[i], &link->peers[i].fds[k]);
}

struct link_counters link_counters(const struct link *link, uint32_t peer)
{
    const struct link_peer *p = &link->peers[peer];
    struct link_counters sum = {.sent = p->sent_before, .received = p->received_before, .rtt_us = p->rtt_us};
    for (size_t k = 0; k < LINK_FDS_MAX; k++) {
        sum.sent += p->fds[k].used ? p->fds[k].sent : 0;
        sum.received += p->fds[k].used ? p->fds[k].received : 0;
    }
    return sum;
}
