/* SPDX-License-Identifier: Apache-2.0 */
/*
 * link_core: what link remembers, of all and of each peer. Private to net/transport/link*.c.
 */
#ifndef NET_TRANSPORT_LINK_CORE_H
#define NET_TRANSPORT_LINK_CORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <zmq.h>

#include "net/transport/address.h"
#include "net/transport/backlog.h"
#include "net/transport/caps.h"
#include "net/transport/dialled.h"
#include "net/transport/guests.h"
#include "net/transport/news.h"
#include "net/transport/socket.h"
#include "net/transport/traffic.h"
#include "net/transport/zap.h"

/* Connections to a peer: control and bulk. */
enum { LINK_CONNECTIONS = 2 };

/* Where the ROUTER finds a peer that dialled us. */
struct link_route {
    uint8_t id[SOCKET_ROUTE_BYTES];
    size_t bytes; /* 0: none */
    int fd;       /* ZeroMQ's; may be closed any time */
};

struct link_peer {
    bool used;
    uint8_t key[IDENT_KEY_BYTES];
    char address[ADDRESS_BYTES];
    /* by connection: control, bulk */
    struct dialled dialled[LINK_CONNECTIONS];
    struct link_route listened[LINK_CONNECTIONS];
    uint64_t heard_ms; /* when a message of it, or a connection to it, came last (env_mono_ms()) */
    uint64_t room;     /* bytes that the bulk connection's send buffer was last asked to hold; 0: it is new */
};

enum { LINK_CONGESTION_BYTES = 16 }; /* as the kernel has it */

struct link {
    const struct ident *ident;
    void *context, *router, *router_monitor;
    struct backlog *backlog;
    struct zap *zap;
    struct guests guests;
    struct traffic *traffic;
    struct link_peer *peers; /* by slot */
    uint32_t places;         /* room in `peers` */
    uint32_t used;           /* of these */
    uint64_t run_tag, rate_limit;
    char congestion[LINK_CONGESTION_BYTES]; /* "": as the system has it */
    struct caps caps;
    unsigned port;
    uint32_t recv_turn, recv_burst, monitor_turn;
    uint32_t mute_ms;
    uint64_t ticked_ms; /* link_tick(), last */
    uint64_t handed;    /* bytes */
    zmq_msg_t payload;
    struct news news;
};

#endif
