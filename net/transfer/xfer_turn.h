/* SPDX-License-Identifier: Apache-2.0 */
/*
 * xfer_turn: whose chunk goes next, of all that is going out. Private to xfer. Pure; no allocation.
 *
 * Results go before contributions, and these before the rest, for which nobody stands still. As long as some of what
 * others stand still for is unacknowledged, the rest may have half a window under way; an eighth while more of that
 * waits; and one byte in 24 is the rest's own.
 */
#ifndef NET_TRANSFER_XFER_TURN_H
#define NET_TRANSFER_XFER_TURN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/bitset.h"
#include "net/transport/wire.h"

/* Silence from the receiver after which a sender asks. */
enum { XFER_ASK_MS = 1500 };

struct outgoing {
    bool used;
    bool ask;  /* a question is to go: how far are you? */
    bool hold; /* no bytes before the receiver has answered a question */
    uint8_t pass;
    uint32_t peer;
    struct wire_key key;
    const uint8_t *data;
    uint64_t total, cursor, acked;
    uint64_t heard_ms;    /* last word from the receiver, or our last question */
    uint64_t answered_ms; /* last word from the receiver, or when the first byte went that it has to answer */
    uint64_t not_before_ms;
    uint64_t order; /* of arrival */
};

/* Of each peer: what others stand still for, and what nobody does. */
enum { XFER_IN_A_HURRY, XFER_IN_NO_HURRY, XFER_FIRSTS };

/* Of one peer, as of now: bytes that may be unacknowledged, those of a chunk, and those that are. */
struct xfer_turn_way {
    uint64_t window, chunk, outstanding;
    struct outgoing *first[XFER_FIRSTS];
};

struct xfer_turn {
    struct xfer_turn_way *ways; /* [peers]; the caller's */
    uint32_t peers_count;
    uint32_t peer; /* whose turn it is to be served first */
    uint64_t owed; /* bytes that may go although nobody stands still for them */
};

/* What may go now, and how many bytes of it (0: a question); NULL: nothing. `ways` are as of now, but for `first`. */
struct outgoing *xfer_turn_next(struct xfer_turn *turn, struct outgoing *outgoing, uint32_t count,
                                const struct bitset *blocked, uint64_t now_ms, uint64_t *bytes);
/* So much of it went. */
void xfer_turn_sent(struct xfer_turn *turn, const struct outgoing *o, uint64_t bytes);

#endif
