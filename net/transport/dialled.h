/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dialled: one connection that we dial, and dial on: control or bulk, to a peer whose address is known.
 *
 * ZeroMQ dials again by itself after a connection was lost, but never after it was refused. Who refuses us now may
 * admit us soon, so here a refused one is dialled anew. Where a handshake just ends ZeroMQ dials several times a
 * second, for ever: at an address where somebody else listens that is too much, so here it pauses. For link alone,
 * whose thread calls; the caller owns the struct. Nothing blocks.
 */
#ifndef NET_TRANSPORT_DIALLED_H
#define NET_TRANSPORT_DIALLED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"
#include "net/transport/ident.h"

/* Times are of env_mono_ms(). */
struct dialled {
    void *socket, *monitor; /* NULL: we do not dial, or pause */
    bool up;
    uint64_t begun_ms; /* the present handshake */
    uint64_t again_ms; /* it was refused, or ended: when to dial anew; 0: neither */
    bool unwanted;     /* and said that it does not admit us */
    uint64_t ended_ms; /* when a handshake last ended without a word */
    uint32_t ended;    /* how many did in a row */
    bool by_next;      /* as who has the key that this peer would have next */
    int fd;            /* ZeroMQ's; may be closed any time */
};

enum dialled_news {
    DIALLED_NOTHING,
    DIALLED_CONNECTED, /* `fd` is known */
    DIALLED_UP,
    DIALLED_LOST,
    DIALLED_FAILED,       /* to come up again after it was lost, or in the middle of a handshake */
    DIALLED_NOT_ADMITTED, /* it said so; or handshake after handshake ends: it has another key than we think */
    DIALLED_NO_ANSWER,    /* it takes connections, and says nothing */
};

/* Begins to dial `address`, with our keys, whoever has `peer_key`. ERR_CONF: the address is malformed; it is closed
 * then. */
ERR_MUST_CHECK enum err dialled_open(struct dialled *dialled, void *context, const struct ident *ident,
                                     const uint8_t peer_key[IDENT_KEY_BYTES], const char *address, bool bulk,
                                     size_t part_bytes_max);
void dialled_close(struct dialled *dialled);
/* Whether it is one that is dialled: it is up, or to be. */
bool dialled_is(const struct dialled *dialled);
/* What its monitor has to tell next. */
enum dialled_news dialled_next(struct dialled *dialled);
/* After a handshake that just ended, where so many keys are tried in turn: it is to be opened anew at `again_ms`, which
 * is twice as far off after each round of the keys. */
void dialled_pause(struct dialled *dialled, uint32_t keys);

#endif
