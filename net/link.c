#include "net/link.h"

#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "common/env.h"
#include "common/mem.h"
#include "net/backlog.h"
#include "net/zap.h"

/*
 * Queues are short: what waits in a queue cannot be overtaken, and control has a connection of its own anyway.
 * Heartbeats notice a peer that vanished without closing; the application's own come on top.
 */
enum { QUEUE_MESSAGES = 64, RECONNECT_MS = 200, RECONNECT_MAX_MS = 5000, LINGER_MS = 200 };
enum { ZMTP_HEARTBEAT_MS = 2000, ZMTP_TIMEOUT_MS = 8000, CONNECT_TIMEOUT_MS = 5000, HANDSHAKE_MS = 10000 };
enum { DROPPED_PER_TURN = 64 }; /* a connection that brings nothing but nonsense does not hold up the others */
/* A part of a message grows under CURVE (RFC 26: command name, nonce, box) and ZMTP by so much; the socket's own limit
 * is on what comes in encrypted. On the line comes a header with each segment: Ethernet, IPv4, TCP with time stamps;
 * and a bare acknowledgement goes back for every second one that comes in. */
enum { SEALED_BYTES = 48, SEGMENT_BYTES = 1448, SEGMENT_HEADER_BYTES = 66, SEGMENTS_ACKED = 2 };
enum { MESSAGE_BYTES_MAX = WIRE_CHUNK_HEADER_BYTES + WIRE_CHUNK_BYTES_MAX + SEALED_BYTES };

/* Of an event on a monitor: its number, 2 bytes, and its value, 4 bytes. */
enum { MONITOR_EVENT_BYTES = 6 };
enum {
    DIALLED_EVENTS = ZMQ_EVENT_CONNECTED | ZMQ_EVENT_HANDSHAKE_SUCCEEDED | ZMQ_EVENT_DISCONNECTED |
                     ZMQ_EVENT_HANDSHAKE_FAILED_AUTH | ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL |
                     ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL
};
enum { EVENTS_MAX = 64 };
enum { CONNECTIONS = 2, MESSAGE_PARTS = 2 }; /* to a peer: control and bulk; of a message: header and payload */

struct dialled {
    void *socket, *monitor;
    bool up;
    uint64_t begun_ms; /* the present handshake */
    int fd;            /* ZeroMQ's; may be closed any time */
};

/* Where the ROUTER finds a peer that dialled us. */
struct route {
    uint8_t id[LINK_ROUTE_BYTES];
    size_t bytes; /* 0: none */
    int fd;       /* as above */
};

/* Both by connection: control, bulk. */
struct peer {
    struct dialled dialled[CONNECTIONS];
    struct route listened[CONNECTIONS];
};

struct link {
    void *context, *router, *router_monitor;
    struct backlog *backlog;
    struct zap *zap;
    struct traffic *traffic;
    struct peer *peers;
    uint32_t members_count, self;
    uint64_t run_tag, view_tag;
    unsigned port;
    uint32_t recv_turn;
    uint64_t handed; /* bytes */
    zmq_msg_t payload;
    struct link_event events[EVENTS_MAX]; /* ring */
    size_t events_head, events_count;
};

/* ---- set-up ---- */

static enum err zmq_failed(const char *what)
{
    return err_set(ERR_IO, "%s: %s", what, zmq_strerror(zmq_errno()));
}

static enum err set_int(void *socket, int option, int value)
{
    if (zmq_setsockopt(socket, option, &value, sizeof value) != 0)
        return zmq_failed("cannot set a socket option");
    return ERR_OK;
}

static enum err set_common(void *socket)
{
    int64_t max = MESSAGE_BYTES_MAX;
    TRY(set_int(socket, ZMQ_LINGER, LINGER_MS));
    TRY(set_int(socket, ZMQ_SNDHWM, QUEUE_MESSAGES));
    TRY(set_int(socket, ZMQ_RCVHWM, QUEUE_MESSAGES));
    TRY(set_int(socket, ZMQ_HEARTBEAT_IVL, ZMTP_HEARTBEAT_MS));
    TRY(set_int(socket, ZMQ_HEARTBEAT_TIMEOUT, ZMTP_TIMEOUT_MS));
    TRY(set_int(socket, ZMQ_HANDSHAKE_IVL, HANDSHAKE_MS));
    TRY(set_int(socket, ZMQ_IPV6, 1));
    if (zmq_setsockopt(socket, ZMQ_MAXMSGSIZE, &max, sizeof max) != 0)
        return zmq_failed("cannot limit messages");
    return ERR_OK;
}

static enum err set_key(void *socket, int option, const uint8_t *key)
{
    if (zmq_setsockopt(socket, option, key, IDENT_KEY_BYTES) != 0)
        return zmq_failed("cannot set a key");
    return ERR_OK;
}

static enum err open_socket(struct link *link, int type, void **out)
{
    *out = zmq_socket(link->context, type);
    if (*out == NULL)
        return zmq_failed("cannot open a socket");
    return set_common(*out);
}

static enum err watch(struct link *link, void *socket, int events, const char *name, void **monitor)
{
    char endpoint[64];
    snprintf(endpoint, sizeof endpoint, "inproc://watch-%s", name);
    if (zmq_socket_monitor(socket, endpoint, events) != 0)
        return zmq_failed("cannot watch a socket");
    *monitor = zmq_socket(link->context, ZMQ_PAIR);
    if (*monitor == NULL || zmq_connect(*monitor, endpoint) != 0)
        return zmq_failed("cannot watch a socket");
    return ERR_OK;
}

static enum err listen_on(struct link *link, const struct link_conf *conf)
{
    char endpoint[300];
    size_t bytes = sizeof endpoint;
    TRY(set_int(link->router, ZMQ_CURVE_SERVER, 1));
    TRY(set_key(link->router, ZMQ_CURVE_SECRETKEY, conf->ident->curve_secret));
    TRY(set_int(link->router, ZMQ_ROUTER_MANDATORY, 1));
    TRY(set_int(link->router, ZMQ_ROUTER_HANDOVER, 1));
    TRY(zap_guard(link->zap, link->router));
    TRY(watch(link, link->router, ZMQ_EVENT_ACCEPTED, "router", &link->router_monitor));
    if (conf->listen == NULL || conf->listen[0] == '\0')
        return ERR_OK;
    snprintf(endpoint, sizeof endpoint, "tcp://%s", conf->listen);
    if (zmq_bind(link->router, endpoint) != 0) {
        if (zmq_errno() == EADDRINUSE)
            return err_set(ERR_CONF,
                           "listen = %s: the port is in use; stop the other program (ss -ltnp shows it) or choose "
                           "another port",
                           conf->listen);
        return err_set(ERR_CONF, "listen = %s: cannot listen there: %s; expected host:port, as in 0.0.0.0:7600",
                       conf->listen, zmq_strerror(zmq_errno()));
    }
    if (zmq_getsockopt(link->router, ZMQ_LAST_ENDPOINT, endpoint, &bytes) == 0 && strrchr(endpoint, ':') != NULL) {
        unsigned port = 0;
        sscanf(strrchr(endpoint, ':') + 1, "%u", &port);
        link->port = port;
    }
    return ERR_OK;
}

size_t link_routing_id(uint32_t self, bool bulk, uint64_t nonce, char out[LINK_ROUTE_BYTES])
{
    return (size_t)snprintf(out, LINK_ROUTE_BYTES, "%c%08" PRIx32 "%016" PRIx64, bulk ? 'b' : 'c', self, nonce);
}

/* One of the two connections to a peer whose address is known. */
static enum err dial(struct link *link, const struct link_conf *conf, uint32_t peer, bool bulk)
{
    struct dialled *d = &link->peers[peer].dialled[bulk];
    char id[LINK_ROUTE_BYTES], name[32], endpoint[300];
    uint8_t server[IDENT_KEY_BYTES];
    size_t id_bytes = link_routing_id(link->self, bulk, env_random_u64(), id);
    snprintf(name, sizeof name, "%u-%c", peer, bulk ? 'b' : 'c');
    snprintf(endpoint, sizeof endpoint, "tcp://%s", conf->members[peer].address);
    TRY(ident_curve(conf->members[peer].key, server));
    TRY(open_socket(link, ZMQ_DEALER, &d->socket));
    TRY(set_key(d->socket, ZMQ_CURVE_SERVERKEY, server));
    TRY(set_key(d->socket, ZMQ_CURVE_PUBLICKEY, conf->ident->curve_key));
    TRY(set_key(d->socket, ZMQ_CURVE_SECRETKEY, conf->ident->curve_secret));
    TRY(set_int(d->socket, ZMQ_IMMEDIATE, 1));
    TRY(set_int(d->socket, ZMQ_RECONNECT_IVL, RECONNECT_MS));
    TRY(set_int(d->socket, ZMQ_RECONNECT_IVL_MAX, RECONNECT_MAX_MS));
    TRY(set_int(d->socket, ZMQ_CONNECT_TIMEOUT, CONNECT_TIMEOUT_MS));
    if (zmq_setsockopt(d->socket, ZMQ_ROUTING_ID, id, id_bytes) != 0)
        return zmq_failed("cannot set the routing id");
    TRY(watch(link, d->socket, DIALLED_EVENTS, name, &d->monitor));
    if (zmq_connect(d->socket, endpoint) != 0)
        return err_set(ERR_CONF, "[peer %s] address = %s: cannot dial it: %s; expected host:port",
                       conf->members[peer].name, conf->members[peer].address, zmq_strerror(zmq_errno()));
    return ERR_OK;
}

static enum err open_all(struct link *link, const struct link_conf *conf)
{
    link->context = zmq_ctx_new();
    if (link->context == NULL)
        return zmq_failed("cannot start ZeroMQ");
    zmq_ctx_set(link->context, ZMQ_IO_THREADS, conf->io_threads);
    if (!zmq_has("curve"))
        return err_set(ERR_STATE, "this ZeroMQ was built without CURVE; install one with libsodium");
    TRY(zap_new(link->context, link->members_count, &link->zap));
    for (uint32_t i = 0; i < conf->members_count; i++) {
        uint8_t curve_key[IDENT_KEY_BYTES];
        if (i == conf->self)
            continue;
        TRY(ident_curve(conf->members[i].key, curve_key));
        zap_admit(link->zap, i, curve_key);
    }
    TRY(open_socket(link, ZMQ_ROUTER, &link->router));
    TRY(listen_on(link, conf));
    for (uint32_t i = 0; i < conf->members_count; i++) {
        bool known = conf->members[i].address != NULL && conf->members[i].address[0] != '\0';
        if (i == conf->self || !known)
            continue;
        TRY(dial(link, conf, i, false));
        TRY(dial(link, conf, i, true));
    }
    return ERR_OK;
}

enum err link_new(const struct link_conf *conf, struct link **out)
{
    enum err err;
    struct link *link = NULL;
    *out = NULL;
    TRY_OUT(mem_new(1, sizeof *link, "links", &link));
    link->members_count = conf->members_count;
    link->self = conf->self;
    link->run_tag = conf->run_tag;
    link->view_tag = conf->view_tag;
    zmq_msg_init(&link->payload);
    TRY_OUT(mem_new(conf->members_count, sizeof *link->peers, "links", &link->peers));
    for (uint32_t i = 0; i < conf->members_count; i++)
        for (int bulk = 0; bulk < CONNECTIONS; bulk++)
            link->peers[i].dialled[bulk].fd = link->peers[i].listened[bulk].fd = -1;
    TRY_OUT(traffic_new(conf->members_count, &link->traffic));
    TRY_OUT(backlog_new(&link->backlog));
    TRY_OUT(open_all(link, conf));
out:
    if (err != ERR_OK)
        link_free(link);
    else
        *out = link;
    return err;
}

static void close_socket(void *socket)
{
    if (socket != NULL)
        zmq_close(socket);
}

void link_free(struct link *link)
{
    if (link == NULL)
        return;
    for (uint32_t i = 0; link->peers != NULL && i < link->members_count; i++) {
        for (int bulk = 0; bulk < CONNECTIONS; bulk++) {
            struct dialled *d = &link->peers[i].dialled[bulk];
            if (d->socket != NULL)
                zmq_socket_monitor(d->socket, NULL, 0);
            close_socket(d->monitor);
            close_socket(d->socket);
        }
    }
    if (link->router != NULL)
        zmq_socket_monitor(link->router, NULL, 0);
    close_socket(link->router_monitor);
    close_socket(link->router);
    zap_free(link->zap);
    zmq_msg_close(&link->payload);
    if (link->context != NULL)
        zmq_ctx_term(link->context);
    traffic_free(link->traffic);
    backlog_free(link->backlog);
    mem_free(link->peers);
    mem_free(link);
}

unsigned link_port(const struct link *link)
{
    return link->port;
}

size_t link_poll_items(const struct link *link, zmq_pollitem_t *items, size_t items_max)
{
    void *sockets[3 + 4 * WIRE_MEMBERS_MAX];
    size_t count = 0;
    sockets[count++] = zap_socket(link->zap);
    sockets[count++] = link->router;
    sockets[count++] = link->router_monitor;
    for (uint32_t i = 0; i < link->members_count; i++) {
        for (int bulk = 0; bulk < CONNECTIONS; bulk++) {
            if (link->peers[i].dialled[bulk].socket == NULL)
                continue;
            sockets[count++] = link->peers[i].dialled[bulk].socket;
            sockets[count++] = link->peers[i].dialled[bulk].monitor;
        }
    }
    count = count < items_max ? count : items_max;
    for (size_t i = 0; i < count; i++)
        items[i] = (zmq_pollitem_t){.socket = sockets[i], .events = ZMQ_POLLIN};
    return count;
}

/* ---- events ---- */

static void put_event(struct link *link, const struct link_event *event)
{
    if (link->events_count == EVENTS_MAX)
        return; /* a flood of strangers must not cost more than this */
    link->events[(link->events_head + link->events_count++) % EVENTS_MAX] = *event;
}

static void tell(struct link *link, enum link_event_type type, uint32_t peer, const char *text)
{
    struct link_event event = {.type = type, .peer = peer};
    snprintf(event.text, sizeof event.text, "%s", text);
    put_event(link, &event);
}

/* Lets those in who may connect, and tells of the others. */
static void serve_zap(struct link *link)
{
    char text[WIRE_REASON_BYTES];
    enum zap_outcome outcome;
    while ((outcome = zap_serve(link->zap, text, sizeof text)) != ZAP_NOTHING)
        if (outcome == ZAP_STRANGER)
            tell(link, LINK_STRANGER, UINT32_MAX, text);
}

/* Where the kernel has it and lets us: it keeps a lossy line full, where others take every loss for a queue. */
static void prefer_bbr(bool bulk, int fd)
{
    static const char name[] = "bbr";
    if (bulk && fd >= 0)
        (void)setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, sizeof name - 1);
}

/* The next event of a monitor (NULL: none is there); false: there is none. */
static bool next_event(void *monitor, uint16_t *event, uint32_t *value)
{
    zmq_msg_t part;
    zmq_msg_init(&part);
    *event = 0;
    *value = 0;
    bool got = monitor != NULL && zmq_msg_recv(&part, monitor, ZMQ_DONTWAIT) >= 0;
    if (got && zmq_msg_size(&part) >= MONITOR_EVENT_BYTES) {
        memcpy(event, zmq_msg_data(&part), sizeof *event);
        memcpy(value, (const char *)zmq_msg_data(&part) + sizeof *event, sizeof *value);
    }
    if (got && zmq_msg_more(&part)) /* the address; it came with the first part */
        (void)zmq_msg_recv(&part, monitor, ZMQ_DONTWAIT);
    zmq_msg_close(&part);
    return got;
}

/* CURVE tells a client nothing: a server that does not admit us, or has another key, just ends the handshake. One that
 * hangs does not even do that: the kernel takes the connection, and we end it. ZeroMQ has no word for it, and `error`
 * may be an older one. */
static bool is_unanswered(const struct dialled *d, uint16_t event, int error)
{
    bool closed = error == EPIPE || error == ECONNRESET;
    return event == ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL &&
           (!closed || env_mono_ms() >= d->begun_ms + HANDSHAKE_MS - HANDSHAKE_MS / 10);
}

static void read_monitor(struct link *link, uint32_t peer, bool bulk)
{
    struct dialled *d = &link->peers[peer].dialled[bulk];
    uint16_t event;
    uint32_t value;
    while (next_event(d->monitor, &event, &value)) {
        switch (event) {
        case ZMQ_EVENT_CONNECTED:
            d->fd = (int)value;
            d->begun_ms = env_mono_ms();
            backlog_open(link->backlog, d->fd);
            traffic_note(link->traffic, peer, d->fd);
            prefer_bbr(bulk, d->fd);
            break;
        case ZMQ_EVENT_HANDSHAKE_SUCCEEDED:
            d->up = true;
            put_event(link, &(struct link_event){.type = LINK_CONNECTED, .peer = peer, .bulk = bulk});
            if (bulk)
                (void)!link_send(link, peer, WIRE_BULK_HELLO, NULL, 0, NULL, 0);
            break;
        case ZMQ_EVENT_DISCONNECTED:
            if (d->up)
                put_event(link, &(struct link_event){.type = LINK_DISCONNECTED, .peer = peer, .bulk = bulk});
            d->up = false;
            break;
        default:
            d->up = false;
            tell(link, is_unanswered(d, event, (int)value) ? LINK_NO_ANSWER : LINK_NOT_ADMITTED, peer, "");
        }
    }
}

static void read_router_monitor(struct link *link)
{
    uint16_t event;
    uint32_t value;
    while (next_event(link->router_monitor, &event, &value))
        if (event == ZMQ_EVENT_ACCEPTED)
            backlog_open(link->backlog, (int)value);
}

bool link_event(struct link *link, struct link_event *event)
{
    serve_zap(link);
    read_router_monitor(link);
    for (uint32_t i = 0; i < link->members_count; i++) {
        read_monitor(link, i, false);
        read_monitor(link, i, true);
    }
    if (link->events_count == 0)
        return false;
    *event = link->events[link->events_head];
    link->events_head = (link->events_head + 1) % EVENTS_MAX;
    link->events_count--;
    return true;
}

/* ---- what goes onto the line ---- */

static uint64_t sealed_bytes(size_t payload_bytes)
{
    return WIRE_HEADER_BYTES + payload_bytes + (uint64_t)MESSAGE_PARTS * SEALED_BYTES;
}

static void count_sent(struct link *link, size_t payload_bytes)
{
    uint64_t bytes = sealed_bytes(payload_bytes);
    link->handed += bytes + (bytes / SEGMENT_BYTES + 1) * SEGMENT_HEADER_BYTES;
}

static void count_received(struct link *link, size_t payload_bytes)
{
    link->handed += sealed_bytes(payload_bytes) * SEGMENT_HEADER_BYTES / (SEGMENTS_ACKED * SEGMENT_BYTES);
}

uint64_t link_handed_bytes(const struct link *link)
{
    return link->handed;
}

/* ---- receiving ---- */

/* Judges a message by the ladder: version, run, view, type. The length was limited by the socket. */
static bool acceptable(struct link *link, uint32_t peer, const struct wire_header *header, bool bulk)
{
    if (header->version != WIRE_VERSION) {
        char text[96];
        snprintf(text, sizeof text, "it speaks protocol version %" PRIu32 ", we speak %d; install the same release",
                 header->version, WIRE_VERSION);
        tell(link, LINK_MISMATCH, peer, text);
        return false;
    }
    if (header->run_tag != link->run_tag) {
        tell(link, LINK_MISMATCH, peer, "it has another run spec; give every island the same file");
        return false;
    }
    if (header->view_tag != link->view_tag) {
        tell(link, LINK_MISMATCH, peer,
             "it has another list of members, keys or uplinks; compare `dilococtl peers` on both islands");
        return false;
    }
    bool bulk_type = header->type == WIRE_CHUNK || header->type == WIRE_BULK_HELLO;
    if (header->type < WIRE_HELLO || header->type > WIRE_BULK_HELLO || bulk_type != bulk) {
        tell(link, LINK_MALFORMED, peer, "a message of a type that has no place on that connection");
        return false;
    }
    return true;
}

/* Reads the parts after a possible routing id: header, payload, nothing more. False: dropped. */
static bool read_parts(struct link *link, void *socket, zmq_msg_t *part, uint32_t peer, struct link_message *message)
{
    uint8_t header[WIRE_HEADER_BYTES];
    size_t header_bytes = zmq_msg_size(part);
    bool good = header_bytes == sizeof header && zmq_msg_more(part);
    if (good)
        memcpy(header, zmq_msg_data(part), sizeof header);
    bool more = zmq_msg_more(part) != 0;
    int parts = 1;
    while (more) {
        zmq_msg_t *to = parts == 1 ? &link->payload : part;
        if (zmq_msg_recv(to, socket, ZMQ_DONTWAIT) < 0)
            return false;
        more = zmq_msg_more(to) != 0;
        parts++;
    }
    if (!good || parts != MESSAGE_PARTS || wire_header_get(header, sizeof header, &message->header) != ERR_OK) {
        tell(link, LINK_MALFORMED, peer, "bytes that are no diloco message");
        return false;
    }
    message->peer = peer;
    message->payload = zmq_msg_data(&link->payload);
    message->bytes = zmq_msg_size(&link->payload);
    count_received(link, message->bytes);
    return true;
}

static enum err recv_dialled(struct link *link, uint32_t peer, bool bulk, struct link_message *message)
{
    struct dialled *d = &link->peers[peer].dialled[bulk];
    zmq_msg_t part;
    enum err err = ERR_AGAIN;
    zmq_msg_init(&part);
    for (int i = 0; i < DROPPED_PER_TURN && err == ERR_AGAIN && d->socket != NULL; i++) {
        if (zmq_msg_recv(&part, d->socket, ZMQ_DONTWAIT) < 0)
            break;
        int fd = zmq_msg_get(&part, ZMQ_SRCFD);
        traffic_note(link->traffic, peer, fd);
        backlog_seen(link->backlog, fd);
        if (read_parts(link, d->socket, &part, peer, message) && acceptable(link, peer, &message->header, bulk))
            err = ERR_OK;
    }
    zmq_msg_close(&part);
    return err;
}

static enum err recv_listened(struct link *link, struct link_message *message)
{
    zmq_msg_t part;
    enum err err = ERR_AGAIN;
    zmq_msg_init(&part);
    for (int i = 0; i < DROPPED_PER_TURN && err == ERR_AGAIN; i++) {
        if (zmq_msg_recv(&part, link->router, ZMQ_DONTWAIT) < 0)
            break;
        struct route route = {.bytes = zmq_msg_size(&part)};
        if (route.bytes > sizeof route.id)
            route.bytes = 0;
        memcpy(route.id, zmq_msg_data(&part), route.bytes);
        uint32_t peer = UINT32_MAX;
        if (zmq_msg_more(&part) && zmq_msg_recv(&part, link->router, ZMQ_DONTWAIT) >= 0)
            peer = zap_member(link->zap, zmq_msg_gets(&part, "User-Id"));
        bool bulk = route.bytes > 0 && route.id[0] == 'b';
        bool known = peer < link->members_count && route.bytes > 0;
        route.fd = zmq_msg_get(&part, ZMQ_SRCFD);
        backlog_seen(link->backlog, route.fd);
        if (known)
            traffic_note(link->traffic, peer, route.fd);
        if (known && route.fd != link->peers[peer].listened[bulk].fd)
            prefer_bbr(bulk, route.fd);
        if (!read_parts(link, link->router, &part, peer, message) || !known)
            continue;
        link->peers[peer].listened[bulk] = route;
        if (acceptable(link, peer, &message->header, bulk))
            err = ERR_OK;
    }
    zmq_msg_close(&part);
    return err;
}

enum err link_recv(struct link *link, struct link_message *message)
{
    serve_zap(link);
    /* Every connection in turn, so that one that never stops does not silence the others. */
    uint32_t places = CONNECTIONS * link->members_count + 1;
    for (uint32_t k = 0; k < places; k++) {
        uint32_t place = (link->recv_turn + k) % places;
        enum err err = place == places - 1 ? recv_listened(link, message)
                                           : recv_dialled(link, place / CONNECTIONS, place % CONNECTIONS == 1, message);
        if (err == ERR_OK) {
            link->recv_turn = place + 1;
            return ERR_OK;
        }
    }
    return ERR_AGAIN;
}

/* ---- sending ---- */

bool link_up(const struct link *link, uint32_t peer, bool bulk)
{
    return link->peers[peer].dialled[bulk].up || link->peers[peer].listened[bulk].bytes > 0;
}

struct traffic_socket link_bulk_socket(const struct link *link, uint32_t peer)
{
    const struct peer *p = &link->peers[peer];
    struct traffic_socket socket;
    (void)traffic_socket(p->dialled[1].up ? p->dialled[1].fd : p->listened[1].fd, &socket);
    return socket;
}

static bool is_bulk(enum wire_type type)
{
    return type == WIRE_CHUNK || type == WIRE_BULK_HELLO;
}

static enum err send_failed(struct link *link, uint32_t peer, bool bulk, bool dialled)
{
    if (zmq_errno() == EAGAIN && !dialled)
        return err_set(ERR_AGAIN, "the queue is full");
    if (zmq_errno() == EAGAIN) /* with ZMQ_IMMEDIATE this is also what a broken connection says */
        return link->peers[peer].dialled[bulk].up ? err_set(ERR_AGAIN, "the queue is full")
                                                  : err_set(ERR_CLOSED, "no connection");
    if (zmq_errno() == EHOSTUNREACH) {
        link->peers[peer].listened[bulk].bytes = 0;
        return err_set(ERR_CLOSED, "no connection");
    }
    return zmq_failed("cannot send to a peer");
}

enum err link_send(struct link *link, uint32_t peer, enum wire_type type, const void *head, size_t head_bytes,
                   const void *body, size_t body_bytes)
{
    bool bulk = is_bulk(type);
    struct dialled *d = &link->peers[peer].dialled[bulk];
    const struct route *route = &link->peers[peer].listened[bulk];
    bool dialled = d->socket != NULL && d->up;
    if (!dialled && route->bytes == 0)
        return err_set(ERR_CLOSED, "no connection");
    void *socket = dialled ? d->socket : link->router;
    struct wire_header fields = {
        .version = WIRE_VERSION, .type = type, .run_tag = link->run_tag, .view_tag = link->view_tag};
    uint8_t header[WIRE_HEADER_BYTES];
    wire_header_put(&fields, header);
    zmq_msg_t payload;
    if (zmq_msg_init_size(&payload, head_bytes + body_bytes) != 0)
        return err_set(ERR_NOMEM, "out of memory for a message");
    if (head_bytes > 0)
        memcpy(zmq_msg_data(&payload), head, head_bytes);
    if (body_bytes > 0)
        memcpy((char *)zmq_msg_data(&payload) + head_bytes, body, body_bytes);
    /* Once the first part is taken the others are: ZeroMQ queues messages whole. */
    bool sent = dialled || zmq_send(socket, route->id, route->bytes, ZMQ_DONTWAIT | ZMQ_SNDMORE) >= 0;
    sent = sent && zmq_send(socket, header, sizeof header, ZMQ_DONTWAIT | ZMQ_SNDMORE) >= 0;
    sent = sent && zmq_msg_send(&payload, socket, ZMQ_DONTWAIT) >= 0;
    if (sent) {
        count_sent(link, head_bytes + body_bytes);
        return ERR_OK;
    }
    enum err err = send_failed(link, peer, bulk, dialled);
    zmq_msg_close(&payload);
    return err;
}

enum err link_say(struct link *link, uint32_t peer, const struct wire_message *message)
{
    uint8_t payload[WIRE_CONTROL_BYTES_MAX];
    size_t bytes;
    TRY(wire_pack(message, payload, &bytes));
    return link_send(link, peer, message->type, payload, bytes, NULL, 0);
}

/* ---- counters ---- */

void link_tick(struct link *link)
{
    for (size_t ended = backlog_check(link->backlog); ended > 0; ended--)
        tell(link, LINK_MALFORMED, UINT32_MAX, "a message without end; its connection was closed");
}

void link_sample(struct link *link)
{
    traffic_sample(link->traffic);
}

struct link_counters link_counters(const struct link *link, uint32_t peer)
{
    struct traffic_sum sum = traffic_of(link->traffic, peer);
    return (struct link_counters){.sent = sum.sent, .received = sum.received, .rtt_us = sum.rtt_us};
}
