/* SPDX-License-Identifier: Apache-2.0 */
/*
 * socket: ZeroMQ sockets for connections between islands: options, CURVE keys, and a monitor's events. For link and
 * join_client.
 *
 * Sockets belong to the thread that calls. Nothing blocks.
 */
#ifndef NET_TRANSPORT_SOCKET_H
#define NET_TRANSPORT_SOCKET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <zmq.h>

#include "common/err.h"
#include "net/transport/ident.h"

/* SOCKET_SEALED: by how much a part of a message grows under CURVE (RFC 26: command name, nonce, box) and ZMTP; the
 * socket's limit is on what comes in encrypted. SOCKET_HANDSHAKE: how long one may take. */
enum { SOCKET_ROUTE_BYTES = 32, SOCKET_ROUTE_KEY_BYTES = 7 };
enum { SOCKET_SEALED_BYTES = 48, SOCKET_HANDSHAKE_MS = 10000, SOCKET_QUEUE_MESSAGES = 64 };

/* ERR_IO with ZeroMQ's own text. */
enum err socket_failed(const char *what);

ERR_MUST_CHECK enum err socket_int(void *socket, int option, int value);
ERR_MUST_CHECK enum err socket_key(void *socket, int option, const uint8_t *key);

/* One with our common options. `part_bytes_max`: of a part of what it receives. On failure `*out` is to be closed, if
 * it is not NULL. */
ERR_MUST_CHECK enum err socket_open(void *context, int type, size_t part_bytes_max, void **out);

/* The name under which a listener files a connection of the island of this public key: control, or bulk. `nonce` is new
 * for every process and peer: a reconnect takes over its own place, and no other member can name it. The key's first
 * bytes keep members apart even if the nonces were equal. Returns the length. */
size_t socket_route(const uint8_t key[IDENT_KEY_BYTES], bool bulk, uint64_t nonce, char out[SOCKET_ROUTE_BYTES]);

struct socket_dial {
    const char *address;         /* "host:port" */
    const uint8_t *server;       /* the listener's CURVE key */
    const uint8_t *key, *secret; /* our own */
    const void *route;           /* the routing id under which the listener knows us */
    size_t route_bytes;
    size_t part_bytes_max;
};
/* A DEALER that dials, and its monitor. ERR_CONF: the address is none. On failure both are to be closed as well. */
ERR_MUST_CHECK enum err socket_dial(void *context, const struct socket_dial *dial, void **out, void **monitor);

/* Tells of these events (ZMQ_EVENT_*) on `*monitor`. */
ERR_MUST_CHECK enum err socket_watch(void *context, void *socket, int events, void **monitor);
/* The next event of a monitor (NULL: none is there); false: there is none. */
bool socket_event(void *monitor, uint16_t *event, uint32_t *value);

struct socket_part {
    const void *data;
    size_t bytes;
};
/* Sends these parts, and `head` and `body` (either may be empty) as the last one. ERR_IO: it did not go; zmq_errno()
 * says why. */
ERR_MUST_CHECK enum err socket_send(void *socket, const struct socket_part *parts, int parts_count,
                                    const struct socket_part *head, const struct socket_part *body);

/* A congestion control by the kernel's name, where it has it and lets us. 0, or errno why not: ENOENT, EPERM. */
int socket_set_congestion(int fd, const char *name);
/* Room in a send buffer for `bytes` that are on their way, of which the kernel lets it grow to `grows_to` by itself
 * (the last value of tcp_wmem). Where that is enough, or is more than we may set, it stays so: one that is set grows no
 * more. Returns what the buffer may hold now, as the kernel counts; 0: it is no socket (any more). */
enum { SOCKET_ROOM_MAX = 64 << 20 };
uint64_t socket_make_room(int fd, uint64_t bytes, uint64_t grows_to);
/* No faster than this, bits per second, however much is handed over at once; 0: as fast as it goes. */
void socket_pace(int fd, uint64_t bits_per_s);

/* Closes both and empties them; each may be NULL. */
void socket_close(void **socket, void **monitor);

#endif
