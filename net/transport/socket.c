/* SPDX-License-Identifier: Apache-2.0 */
#include "net/transport/socket.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/*
 * Queues are short: what waits in a queue cannot be overtaken, and control has a connection of its own anyway.
 * The kernel notices a peer that vanished without closing: bytes that nobody acknowledges for LINE_DEAD, or on an idle
 * connection probes (RFC 1122, 4.2.3.6; TCP_USER_TIMEOUT, RFC 5482). ZeroMQ's own heartbeats are off: when a process
 * was stopped for longer than their time limit, or its neighbour's line was, version 4.3.4 of the library aborts it
 * (libzmq issue 3937). So is ZMQ_IMMEDIATE: with it the library takes a dialled connection that ends from under us, and
 * aborts where that is between two parts of a message, so that whoever is dialled could end the process.
 */
enum { RECONNECT_MS = 200, RECONNECT_MAX_MS = 5000, LINGER_MS = 200 };
enum { CONNECT_TIMEOUT_MS = 5000, LINE_DEAD_MS = 8000, PROBE_AFTER_S = 4, PROBE_EVERY_S = 2, PROBES = 2 };
enum { ENDPOINT_BYTES = 300 };

/* Of a send buffer one part holds bytes, the other what the kernel needs to hold them. */
enum { BUFFER_PARTS = 2 };

/* Of an event on a monitor: its number, 2 bytes, and its value, 4 bytes. */
enum { MONITOR_EVENT_BYTES = 6 };
enum {
    DIALLED_EVENTS = ZMQ_EVENT_CONNECTED | ZMQ_EVENT_HANDSHAKE_SUCCEEDED | ZMQ_EVENT_DISCONNECTED |
                     ZMQ_EVENT_HANDSHAKE_FAILED_AUTH | ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL |
                     ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL
};

enum err socket_failed(const char *what)
{
    return err_set(ERR_IO, "%s: %s", what, zmq_strerror(zmq_errno()));
}

enum err socket_int(void *socket, int option, int value)
{
    if (zmq_setsockopt(socket, option, &value, sizeof value) != 0)
        return socket_failed("cannot set a socket option");
    return ERR_OK;
}

enum err socket_key(void *socket, int option, const uint8_t *key)
{
    if (zmq_setsockopt(socket, option, key, IDENT_KEY_BYTES) != 0)
        return socket_failed("cannot set a key");
    return ERR_OK;
}

enum err socket_open(void *context, int type, size_t part_bytes_max, void **out)
{
    int64_t max = (int64_t)part_bytes_max + SOCKET_SEALED_BYTES;
    *out = zmq_socket(context, type);
    if (*out == NULL)
        return socket_failed("cannot open a socket");
    TRY(socket_int(*out, ZMQ_LINGER, LINGER_MS));
    TRY(socket_int(*out, ZMQ_SNDHWM, SOCKET_QUEUE_MESSAGES));
    TRY(socket_int(*out, ZMQ_RCVHWM, SOCKET_QUEUE_MESSAGES));
    TRY(socket_int(*out, ZMQ_TCP_MAXRT, LINE_DEAD_MS));
    TRY(socket_int(*out, ZMQ_TCP_KEEPALIVE, 1));
    TRY(socket_int(*out, ZMQ_TCP_KEEPALIVE_IDLE, PROBE_AFTER_S));
    TRY(socket_int(*out, ZMQ_TCP_KEEPALIVE_INTVL, PROBE_EVERY_S));
    TRY(socket_int(*out, ZMQ_TCP_KEEPALIVE_CNT, PROBES));
    TRY(socket_int(*out, ZMQ_HANDSHAKE_IVL, SOCKET_HANDSHAKE_MS));
    TRY(socket_int(*out, ZMQ_IPV6, 1));
    if (zmq_setsockopt(*out, ZMQ_MAXMSGSIZE, &max, sizeof max) != 0)
        return socket_failed("cannot limit messages");
    return ERR_OK;
}

/* A name of its own for each: one that was closed may still be going. */
enum err socket_watch(void *context, void *socket, int events, void **monitor)
{
    static _Atomic uint64_t watches;
    char endpoint[ENDPOINT_BYTES];
    snprintf(endpoint, sizeof endpoint, "inproc://watch-%" PRIu64, ++watches);
    if (zmq_socket_monitor(socket, endpoint, events) != 0)
        return socket_failed("cannot watch a socket");
    *monitor = zmq_socket(context, ZMQ_PAIR);
    if (*monitor == NULL || zmq_connect(*monitor, endpoint) != 0)
        return socket_failed("cannot watch a socket");
    return ERR_OK;
}

size_t socket_route(const uint8_t key[IDENT_KEY_BYTES], bool bulk, uint64_t nonce, char out[SOCKET_ROUTE_BYTES])
{
    char begin[2 * SOCKET_ROUTE_KEY_BYTES + 1];
    for (size_t i = 0; i < SOCKET_ROUTE_KEY_BYTES; i++)
        snprintf(begin + 2 * i, 3, "%02x", key[i]);
    return (size_t)snprintf(out, SOCKET_ROUTE_BYTES, "%c%s%016" PRIx64, bulk ? 'b' : 'c', begin, nonce);
}

enum err socket_dial(void *context, const struct socket_dial *dial, void **out, void **monitor)
{
    char endpoint[ENDPOINT_BYTES];
    snprintf(endpoint, sizeof endpoint, "tcp://%s", dial->address);
    TRY(socket_open(context, ZMQ_DEALER, dial->part_bytes_max, out));
    TRY(socket_key(*out, ZMQ_CURVE_SERVERKEY, dial->server));
    TRY(socket_key(*out, ZMQ_CURVE_PUBLICKEY, dial->key));
    TRY(socket_key(*out, ZMQ_CURVE_SECRETKEY, dial->secret));
    TRY(socket_int(*out, ZMQ_RECONNECT_IVL, RECONNECT_MS));
    TRY(socket_int(*out, ZMQ_RECONNECT_IVL_MAX, RECONNECT_MAX_MS));
    TRY(socket_int(*out, ZMQ_CONNECT_TIMEOUT, CONNECT_TIMEOUT_MS));
    if (zmq_setsockopt(*out, ZMQ_ROUTING_ID, dial->route, dial->route_bytes) != 0)
        return socket_failed("cannot set the routing id");
    TRY(socket_watch(context, *out, DIALLED_EVENTS, monitor));
    if (zmq_connect(*out, endpoint) != 0)
        return err_set(ERR_CONF, "%s: cannot dial it: %s; expected host:port", dial->address,
                       zmq_strerror(zmq_errno()));
    return ERR_OK;
}

bool socket_event(void *monitor, uint16_t *event, uint32_t *value)
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

void socket_close(void **socket, void **monitor)
{
    if (*socket != NULL)
        zmq_socket_monitor(*socket, NULL, 0);
    if (*monitor != NULL)
        zmq_close(*monitor);
    if (*socket != NULL)
        zmq_close(*socket);
    *socket = *monitor = NULL;
}

/* Bytes that a send buffer may be asked to hold: found out with a socket that is never connected, since the setting is
 * not to be read in every namespace. */
static uint64_t most_to_set(void)
{
    static _Atomic uint64_t most;
    int asked = INT_MAX / 2, got = 0, fd = most == 0 ? socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0) : -1;
    socklen_t bytes = sizeof got;
    if (fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &asked, sizeof asked) == 0 &&
        getsockopt(fd, SOL_SOCKET, SO_SNDBUF, &got, &bytes) == 0)
        most = (uint64_t)got / 2;
    if (fd >= 0)
        close(fd);
    return most;
}

int socket_set_congestion(int fd, const char *name)
{
    return setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, (socklen_t)strlen(name)) == 0 ? 0 : errno;
}

/* The kernel doubles what it is asked for, and stops at net.core.wmem_max unless we administer the network. */
uint64_t socket_make_room(int fd, uint64_t bytes, uint64_t grows_to)
{
    uint64_t wanted = BUFFER_PARTS * (bytes < SOCKET_ROOM_MAX ? bytes : SOCKET_ROOM_MAX);
    int half = (int)(wanted / 2), now = 0;
    socklen_t now_bytes = sizeof now;
    if (wanted <= grows_to)
        return grows_to;
    if (setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &half, sizeof half) != 0 && 2 * (uint64_t)most_to_set() > grows_to)
        (void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &half, sizeof half);
    if (getsockopt(fd, SOL_SOCKET, SO_SNDBUF, &now, &now_bytes) != 0)
        return 0;
    return (uint64_t)now > grows_to ? (uint64_t)now : grows_to;
}

void socket_pace(int fd, uint64_t bits_per_s)
{
    uint64_t bytes = bits_per_s > 0 ? bits_per_s / 8 : UINT64_MAX;
    (void)setsockopt(fd, SOL_SOCKET, SO_MAX_PACING_RATE, &bytes, sizeof bytes);
}

enum err socket_send(void *socket, const struct socket_part *parts, int parts_count, const struct socket_part *head,
                     const struct socket_part *body)
{
    zmq_msg_t payload;
    bool sent = true;
    if (zmq_msg_init_size(&payload, head->bytes + body->bytes) != 0)
        return err_set(ERR_NOMEM, "out of memory for a message");
    if (head->bytes > 0)
        memcpy(zmq_msg_data(&payload), head->data, head->bytes);
    if (body->bytes > 0)
        memcpy((char *)zmq_msg_data(&payload) + head->bytes, body->data, body->bytes);
    /* Once the first part is taken the others are: ZeroMQ queues messages whole. */
    for (int i = 0; i < parts_count && sent; i++)
        sent = zmq_send(socket, parts[i].data, parts[i].bytes, ZMQ_DONTWAIT | ZMQ_SNDMORE) >= 0;
    sent = sent && zmq_msg_send(&payload, socket, ZMQ_DONTWAIT) >= 0;
    if (sent)
        return ERR_OK;
    int error = zmq_errno();
    zmq_msg_close(&payload);
    errno = error;
    return socket_failed("cannot send");
}
