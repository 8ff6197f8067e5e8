/*
 * link_parts: what link.c and link_auth.c share. Private to them.
 */
#ifndef NET_LINK_PARTS_H
#define NET_LINK_PARTS_H

#include "net/link.h"

enum { LINK_EVENTS_MAX = 64, LINK_FDS_MAX = 8, LINK_ROUTE_BYTES = 32 };

struct link_dialled {
    void *socket, *monitor;
    bool up;
};

/* Where the ROUTER finds a peer that dialled us. */
struct link_route {
    uint8_t id[LINK_ROUTE_BYTES];
    size_t bytes; /* 0: none */
};

struct link_fd {
    int fd; /* -1: unused */
    bool used;
    uint64_t sent, received; /* at the last sample */
};

struct link_peer {
    uint8_t key[IDENT_KEY_BYTES];
    struct link_dialled dialled[2]; /* control, bulk */
    struct link_route listened[2];
    struct link_fd fds[LINK_FDS_MAX];
    uint64_t sent_before, received_before; /* over connections that are gone */
    uint32_t rtt_us;
};

struct link {
    void *context, *zap, *router;
    struct link_peer *peers;
    uint32_t members_count, self;
    uint64_t run_tag, view_tag;
    unsigned port;
    uint32_t recv_turn;
    zmq_msg_t payload;
    struct link_event events[LINK_EVENTS_MAX];
    size_t events_head, events_count;
};

/* The name under which a listener files a connection of member `self`. `nonce` is new for every process and peer: a
 * reconnect takes over its own place, and no other member can name it. The member's number keeps members apart even if
 * the nonces were equal. Returns the length. */
size_t link_routing_id(uint32_t self, bool bulk, uint64_t nonce, char out[LINK_ROUTE_BYTES]);
void link_tell(struct link *link, enum link_event_type type, uint32_t peer, const char *text);
/* Answers all waiting authentication requests. */
void link_serve_zap(struct link *link);
/* The member whose key this is (as ZAP's user id), or UINT32_MAX. */
uint32_t link_peer_of(const struct link *link, const char *user_id);
/* Remembers that this file descriptor carries traffic of the peer. */
void link_note_fd(struct link *link, uint32_t peer, int fd);

#endif
