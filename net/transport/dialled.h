/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dialled: one connection that we dial, and dial on: control or bulk, to a peer whose address is known. Private to
 * link.
 *
 * ZeroMQ dials again by itself after a connection was lost, but never after it was refused. Who refuses us now may
 * admit us soon, so here a refused one is dialled anew.
 */
#ifndef NET_TRANSPORT_DIALLED_H
#define NET_TRANSPORT_DIALLED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"
#include "net/transport/ident.h"

struct dialled {
    void *socket, *monitor; /* NULL: we do not dial */
    bool up;
    uint64_t begun_ms; /* the present handshake */
    uint64_t since_ms; /* since when it is not up; of use while it is not */
    uint64_t again_ms; /* it was refused: when to dial anew; 0: it was not */
    uint64_t ended_ms; /* when a handshake last ended without a word */
    uint32_t ended;    /* how many did in a row */
    int fd;            /* ZeroMQ's; may be closed any time */
};

/* Begins to dial. ERR_CONF: the address is malformed; it is closed then. */
ERR_MUST_CHECK enum err dialled_open(struct dialled *dialled, void *context, const struct ident *ident,
                                     const uint8_t peer_key[IDENT_KEY_BYTES], const char *address, bool bulk,
                                     size_t part_bytes_max);
void dialled_close(struct dialled *dialled);

enum dialled_news {
    DIALLED_NOTHING,
    DIALLED_CONNECTED, /* `fd` is known */
    DIALLED_UP,
    DIALLED_LOST,
    DIALLED_FAILED,       /* to come up again after it was lost, or in the middle of a handshake */
    DIALLED_NOT_ADMITTED, /* it said so; or handshake after handshake ends: it has another key than we think */
    DIALLED_NO_ANSWER,    /* it takes connections, and says nothing */
};
/* What its monitor has to tell next. */
enum dialled_news dialled_next(struct dialled *dialled);

#endif
