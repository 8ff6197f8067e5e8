/* SPDX-License-Identifier: Apache-2.0 */
/*
 * link: encrypted connections between islands: one port, and per peer two connections, control and bulk.
 *
 * ZeroMQ with CURVE. An island listens on one ROUTER and dials every peer whose address it knows with two DEALERs; so
 * one of a pair needs an address for both to talk. Only keys of the membership are admitted (zap); a stranger's
 * message never reaches us. Whatever arrives carries the peer's slot (net/config/view.h), proven by its key. What a
 * message says is not its business: it judges headers, never payloads. Members come and go while it runs; memory is in
 * proportion to the highest slot. Beside them there are guests, who hold an invitation: they may say who they are, and
 * get an answer.
 *
 * All sockets belong to the thread that calls. Nothing blocks: sends and receives answer ERR_AGAIN.
 *
 * Owns: keys, connections and messages as bytes.
 * Called by: daemon, daemon/control, daemon/ctl, daemon/membership, daemon/peers, daemon/rounds, daemon/state,
 * daemon/trainer, daemon/transfer, net/config, net/membership, net/sync, net/transfer.
 * Never includes: daemon/, net/transfer/, net/config/, net/sync/, net/membership/, <pthread.h>.
 */
#ifndef NET_TRANSPORT_LINK_H
#define NET_TRANSPORT_LINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <zmq.h>

#include "common/err.h"
#include "net/transport/caps.h"
#include "net/transport/ident.h"
#include "net/transport/traffic.h"
#include "net/transport/wire.h"

enum { LINK_SLOTS_MAX = 1024 };

struct link_member {
    const char *name;              /* borrowed for the call; NULL in link_conf: nobody has this slot */
    uint8_t key[IDENT_KEY_BYTES];  /* its public key */
    uint8_t next[IDENT_KEY_BYTES]; /* that it would have next, and may have already; zeros: none */
    const char *address;           /* "host:port"; NULL or "": it dials us */
};

struct link_conf {
    const struct ident *ident;  /* copied */
    const struct ident *before; /* the key that we had before, with which we dial who does not admit that; NULL: none */
    const char *listen;         /* "host:port" or "*:port"; NULL or "": outbound only */
    const struct link_member *members; /* by slot, as with link_set(); none is fine */
    uint32_t members_count, self;      /* self: a slot that is passed over, being ours */
    uint64_t run_tag;                  /* wire_run_tag() */
    uint64_t rate_limit;               /* bits per second of a bulk connection at most; 0: no limit */
    const char *congestion;            /* control of bulk connections; NULL or "": as the system has it */
    int io_threads;
    uint32_t mute_ms; /* a peer with an open connection that says nothing for so long is dialled anew; 0: 15 s */
};

struct link;

/* Opens, binds, begins to dial. ERR_CONF: the address is malformed or in use, or the kernel has no such congestion
 * control (where it lacks bbr, its own is used, and link_caps() says so), with what to do. */
ERR_MUST_CHECK enum err link_new(const struct link_conf *conf, struct link **out);
void link_free(struct link *link);

/* Adds the member of a slot, changes it, or with NULL removes it. Another address is dialled, another key is the one
 * that is admitted from now on, beside the next one; where it turns out not to have the one it is dialled by the other;
 * the same again changes nothing. A member that is removed, or had another key, is not heard any more, whatever is on
 * its way, and its connections are closed; nothing more is told of it. Likewise those by a next key that is another
 * now, or none: by its present key the member goes on. ERR_CONF: the address is malformed (the member is admitted, and
 * may dial us); ERR_STATE: another member has this key. */
ERR_MUST_CHECK enum err link_set(struct link *link, uint32_t slot, const struct link_member *member);

/* We have another key from now on: all connections end, and begin anew with it. A guest that was told of the one before
 * finds us no more. With the key that we have they stay, and `before`, as in link_conf, is what changes. What fails is
 * tried again by link_tick(). */
void link_rekey(struct link *link, const struct ident *ident, const struct ident *before);
/* The key of our connections. */
const uint8_t *link_key(const struct link *link);

/* Ends the connections of a member and has none with it for so many milliseconds: it is not dialled, and refused where
 * it dials us. It stays a member, as nothing else is told of it meanwhile. */
void link_shut(struct link *link, uint32_t slot, uint64_t for_ms);

/* Port that was bound (with port 0 in `listen`, the one the system chose); 0 if none. */
unsigned link_port(const struct link *link);
/* Why nobody can dial us, with the remedy, once that has lasted for 3 s: the port could not be bound again after
 * link_rekey(), and link_tick() tries on; "": it is bound, or was never to be. Borrowed until the next link_tick(). */
const char *link_deaf(const struct link *link);

/* Writes at most `items_max` items to poll for input; returns how many there are. */
size_t link_poll_items(const struct link *link, zmq_pollitem_t *items, size_t items_max);

struct link_message {
    uint32_t peer;
    struct wire_header header;
    const uint8_t *payload; /* valid until the next link_recv() */
    size_t bytes;
};

/* The next message of a peer, if there is one: ERR_OK or ERR_AGAIN. Messages that are not of this protocol or run are
 * dropped here and told as events. */
ERR_MUST_CHECK enum err link_recv(struct link *link, struct link_message *message);

/* Sends header, `head` and `body` (either may be empty). ERR_AGAIN: the connection's queue is full; ERR_CLOSED: no
 * connection just now. */
ERR_MUST_CHECK enum err link_send(struct link *link, uint32_t peer, enum wire_type type, const void *head,
                                  size_t head_bytes, const void *body, size_t body_bytes);

/* Packs a control message and sends it. ERR_ARG: it cannot be packed; otherwise as link_send(). */
ERR_MUST_CHECK enum err link_say(struct link *link, uint32_t peer, const struct wire_message *message);

/* ---- guests ---- */

/* Connections that prove this one-time key are let in until `until_ms` (env_mono_ms()); once more moves the end. They
 * are no member's: a JOIN or DIAL_REQUEST of at most WIRE_JOIN_BYTES_MAX is all that is heard from them, and anything
 * else ends the connection. ERR_STATE: there are as many guests as can be. */
ERR_MUST_CHECK enum err link_admit(struct link *link, const uint8_t key[IDENT_KEY_BYTES], uint64_t until_ms);
/* Its connection ends, even if an answer is still on its way: keep a guest that was answered till its time is over. */
void link_unadmit(struct link *link, const uint8_t key[IDENT_KEY_BYTES]);

struct link_guest {
    uint64_t connection;    /* for link_guest_send() */
    const uint8_t *key;     /* the one-time key it proved */
    enum wire_type type;    /* JOIN or DIAL_REQUEST */
    const uint8_t *payload; /* with `key` valid until the next call of anything but link_guest_send() */
    size_t bytes;
};
/* The next guest that has said something since; false: none. They are heard in link_recv(). */
bool link_guest_recv(struct link *link, struct link_guest *guest);
/* Answers it: JOINED, REFUSAL or DIAL_RESPONSE. ERR_CLOSED: it is gone. */
ERR_MUST_CHECK enum err link_guest_send(struct link *link, uint64_t connection, enum wire_type type, const void *bytes,
                                        size_t bytes_count);

/* ---- looking in ---- */

/* Bytes handed to all connections, with what the layers below add to them: an estimate of what goes onto the line. */
uint64_t link_handed_bytes(const struct link *link);

/* The bulk connection that link_send() uses, as the kernel sees it; zeros where that is not known. */
struct traffic_socket link_bulk_socket(const struct link *link, uint32_t peer);

/* So many bytes of bulk may be on their way to a peer: the kernel is asked for room where it gives less by itself. */
void link_make_room(struct link *link, uint32_t peer, uint64_t bytes);
/* What the kernel lets connections carry, as it was when the link was opened. */
const struct caps *link_caps(const struct link *link);

/* How many messages of a member were of no use since this was last asked: of another version or run, of a type that has
 * no place there, or none at all. They were dropped; link_event() tells of the first of many. */
uint64_t link_take_unusable(struct link *link, uint32_t peer);
/* How many messages were handed to the connections of a member so far. */
uint64_t link_messages_out(const struct link *link, uint32_t peer);

/* Whether there is a connection to send on. */
bool link_up(const struct link *link, uint32_t peer, bool bulk);

/* Whether it dials us, and has come through. */
bool link_is_dialled(const struct link *link, uint32_t peer);
/* Whether we dial it, and it has not come up: nobody is behind its address, or something in between keeps us out. */
bool link_undialled(const struct link *link, uint32_t peer);

enum link_event_type {
    LINK_CONNECTED,    /* peer, bulk: a dialled connection is through; if it is control, greet the peer */
    LINK_DISCONNECTED, /* peer, bulk: a dialled connection broke */
    LINK_STRANGER,     /* text: an unknown key knocked and was refused */
    LINK_NOT_ADMITTED, /* peer: it does not know our key, or is not the one we think */
    LINK_NO_ANSWER,    /* peer: it takes connections, and says nothing */
    LINK_MISMATCH,     /* peer (UINT32_MAX: a newcomer with a token), text: another protocol version or run */
    LINK_MALFORMED,    /* peer (UINT32_MAX: not known whose), text: bytes that are no message */
};

struct link_event {
    enum link_event_type type;
    uint32_t peer;
    bool bulk;                    /* which of its two connections */
    char text[WIRE_REASON_BYTES]; /* for people */
};

/* Next event; false: none. */
bool link_event(struct link *link, struct link_event *event);

struct link_counters {
    uint64_t sent, received; /* bytes at the sockets, everything included */
    uint32_t rtt_us;         /* as TCP measures it; 0: unknown */
    uint32_t rtt_min_us;     /* the shortest of the last minutes; 0: unknown */
};

/* Several times a second: ends connections that bring bytes and no message (net/transport/traffic.h), guests whose time
 * is over, and dials again where we were refused, or handshakes end. */
void link_tick(struct link *link);

/* Reads the kernel's counters; call often enough (a second) not to miss a short connection. */
void link_sample(struct link *link);
struct link_counters link_counters(const struct link *link, uint32_t peer);

#endif
