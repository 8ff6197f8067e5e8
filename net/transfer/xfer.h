/* SPDX-License-Identifier: Apache-2.0 */
/*
 * xfer: moving objects of many chunks between islands: windows, acknowledgements, resumption.
 *
 * Chunks of an object go in order on a connection that keeps order, so that order alone shows a gap, and only lost
 * bytes are sent twice: each time a sender goes back its chunks carry another pass, and a complaint about an earlier
 * pass is an old one. The receiver acknowledges how far it has come without a gap, complains once a pass, and says Done
 * when it wants no more. A sender that hears nothing asks with an empty chunk, which arrives after everything that was
 * sent before it. An object that may not be wanted yet begins with such a question. So a transfer survives a lost
 * connection, memory is bounded by the window, and every message may be lost.
 *
 * Pure: messages and time in, messages out; no socket, no clock. Objects lie in memory the caller keeps alive until the
 * transfer ends or is cancelled. Tables are allocated by xfer_new() and xfer_grow(). One thread calls.
 *
 * Owns: objects in chunks: windows, acknowledgements, resumption; how fast a line is.
 * Called by: daemon/transfer.
 * Never includes: daemon/, common/env.h, common/fsio.h, net/config/, net/sync/, net/membership/, <pthread.h>,
 * <sys/socket.h>, <time.h>, <unistd.h>, <zmq.h>.
 */
#ifndef NET_TRANSFER_XFER_H
#define NET_TRANSFER_XFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"
#include "net/transport/wire.h"

/* What to do with an object that a peer begins to send. */
enum xfer_verdict { XFER_TAKE, XFER_ANSWER };
struct xfer_offer {
    uint8_t *buffer;       /* XFER_TAKE: where it goes; kept alive by the callee until it is finished or taken back */
    uint64_t bytes_max;    /* XFER_TAKE: its size; a larger object is refused */
    enum wire_done answer; /* XFER_ANSWER */
};
typedef enum xfer_verdict xfer_offer_fn(void *user, uint32_t peer, const struct wire_key *key, uint64_t total,
                                        struct xfer_offer *offer);
/* Whether this peer made the object: keys name members by their ids. */
typedef bool xfer_maker_fn(void *user, uint32_t peer, const struct wire_key *key);

struct xfer_conf {
    uint32_t peers_count;
    uint32_t outgoing_max, incoming_max; /* transfers at a time */
    xfer_offer_fn *offer;
    xfer_maker_fn *maker;
    void *user; /* of both */
};

struct xfer;

ERR_MUST_CHECK enum err xfer_new(const struct xfer_conf *conf, struct xfer **out);
void xfer_free(struct xfer *xfer);
/* Room for so many peers and transfers, if there is less; transfers under way go on. ERR_NOMEM: all is as before. */
ERR_MUST_CHECK enum err xfer_grow(struct xfer *xfer, uint32_t peers_count, uint32_t outgoing_max,
                                  uint32_t incoming_max);

/* Of one peer: how many bytes may be unacknowledged, and how large chunks are. At first one largest chunk. */
struct xfer_limit {
    uint64_t window;
    uint64_t chunk; /* 1 to WIRE_CHUNK_BYTES_MAX */
};
void xfer_set_limit(struct xfer *xfer, uint32_t peer, const struct xfer_limit *limit);

/* Bytes since the start, for one peer; those neither delivered nor given up are on their way. */
struct xfer_flow {
    uint64_t sent, delivered;
    uint64_t given_up; /* lost, unwanted, or of a transfer that ended */
    uint64_t wasted;   /* sent in vain: to be sent again, or of an object that was not taken from us */
};
struct xfer_flow xfer_flow(const struct xfer *xfer, uint32_t peer);

/* ---- sending ---- */

/* Begins to send; if the same object is under way to this peer already, that goes on. `ask_first`: the peer may not
 * want it yet; not a byte goes before it has answered. ERR_NOMEM: table full. */
ERR_MUST_CHECK enum err xfer_send(struct xfer *xfer, uint32_t peer, const struct wire_key *key, const uint8_t *data,
                                  uint64_t bytes, bool ask_first, uint64_t now_ms);

struct xfer_chunk {
    uint32_t peer;
    struct wire_key key;
    uint8_t pass;
    uint64_t total, offset;
    const uint8_t *data;
    size_t bytes; /* 0: a question */
};

/* The next chunk that may go; peers in turn, results before contributions before the rest, which goes to nobody as long
 * as a contribution or a result may go to anyone, but for one byte in 24, so that it comes to its end on a line that
 * is never free. Until those have come the rest may have half a window under way over all peers; an eighth while more
 * of those waits for windows: so it takes what they leave of a line, and they find it short of queues. False: nothing
 * may go. The chunk counts as sent only by xfer_sent(). A peer in `blocked` is passed over. */
bool xfer_next(struct xfer *xfer, const struct bitset *blocked, struct xfer_chunk *chunk);
void xfer_sent(struct xfer *xfer, const struct xfer_chunk *chunk, uint64_t now_ms);

/* A connection to the peer was lost and is back: asks how far it is with everything that was begun. */
void xfer_ask(struct xfer *xfer, uint32_t peer);

/* Ends outgoing transfers of a kind and fragment up to a version. */
void xfer_cancel(struct xfer *xfer, uint32_t kind, uint32_t fragment, uint64_t version_max);

/* How many objects of a kind are going out to a peer. */
uint32_t xfer_sending(const struct xfer *xfer, uint32_t peer, uint32_t kind);

/* Ends outgoing transfers of what lies in this memory. */
void xfer_withdraw(struct xfer *xfer, const uint8_t *memory, uint64_t bytes);

/* ---- receiving ---- */

/* Contributions and results on their way in are not wanted any more where they go to: their memory is the caller's
 * again. Those that are whole and not finished yet stay. */
void xfer_drop_incoming(struct xfer *xfer);

/* A buffer serves one transfer: an unfinished one that fills it ends, and the memory is the caller's again. False: what
 * lies there is whole and not finished yet; it stays. */
bool xfer_take_back(struct xfer *xfer, const uint8_t *buffer);

enum xfer_progress { XFER_NOTHING, XFER_MORE, XFER_COMPLETE };

/* Takes a chunk in, `delay_us` after its stamp. XFER_COMPLETE: the object is whole in its buffer, `*bytes` long; the
 * caller checks it and then says xfer_finish(). XFER_NOTHING: it brought no byte that was not here. */
enum xfer_progress xfer_chunk_in(struct xfer *xfer, uint32_t peer, const struct wire_chunk *chunk, uint32_t delay_us,
                                 uint64_t now_ms, uint64_t *bytes);

/* Tells the sender what became of a complete object. */
void xfer_finish(struct xfer *xfer, uint32_t peer, const struct wire_key *key, enum wire_done status);

/* Whether this object is on its way in, from anyone, and has moved lately (or is whole and being looked at). */
bool xfer_receiving(const struct xfer *xfer, const struct wire_key *key);

/* How many bytes of an object on its way in have come without a gap; 0: it is not on its way in. */
uint64_t xfer_have(const struct xfer *xfer, const struct wire_key *key);

/* ---- messages and time ---- */

/* False: nothing of this name is being sent to the peer, and it asks for more: it should be told. */
bool xfer_ack_in(struct xfer *xfer, uint32_t peer, const struct wire_ack *ack, uint64_t now_ms);
/* The peer has stopped sending it: an unfinished transfer from it ends. False: there was none. */
bool xfer_gone(struct xfer *xfer, uint32_t peer, const struct wire_key *key);
/* Returns true if it ended an outgoing transfer of ours. */
bool xfer_done_in(struct xfer *xfer, uint32_t peer, const struct wire_key *key, enum wire_done status, uint64_t now_ms);

/* Looks for transfers that stand still. */
void xfer_tick(struct xfer *xfer, uint64_t now_ms);

/* The peer is not heard any more: what it was bringing goes on from whoever sends it next. If it is heard again before,
 * it goes on itself. */
void xfer_lost_sight(struct xfer *xfer, uint32_t peer);
/* The peer restarted or was lost for good: transfers with it end. */
void xfer_reset_peer(struct xfer *xfer, uint32_t peer);
/* Its number is another's from now on: its counts begin again, too. */
void xfer_forget_peer(struct xfer *xfer, uint32_t peer);

struct xfer_message {
    uint32_t peer;
    enum wire_type type; /* WIRE_ACK or WIRE_DONE */
    struct wire_key key;
    uint64_t have; /* ACK, with the three that follow */
    enum wire_ask ask;
    uint8_t pass;
    uint32_t delay_us;
    enum wire_done status; /* DONE */
};

/* Next control message to send; false: none. */
bool xfer_message(struct xfer *xfer, struct xfer_message *message);

/* Bytes on their way to peers that answer. */
uint64_t xfer_left(const struct xfer *xfer);

/* Bytes not yet acknowledged, to one peer; for status. */
uint64_t xfer_outstanding(const struct xfer *xfer, uint32_t peer);

#endif
