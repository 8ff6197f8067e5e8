/* SPDX-License-Identifier: Apache-2.0 */
/*
 * guests: one-time keys that are admitted for a while to say one thing, and what they said last. Private to
 * net/transport/.
 *
 * A guest is no member. One connection of each is known at a time, the one that spoke last. What it says waits here,
 * one message a guest, until it is taken. The link's thread calls.
 */
#ifndef NET_TRANSPORT_GUESTS_H
#define NET_TRANSPORT_GUESTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"
#include "common/quota.h"
#include "net/transport/ident.h"
#include "net/transport/socket.h"
#include "net/transport/wire_join.h"
#include "net/transport/zap.h"

struct guest {
    bool used;
    uint8_t key[IDENT_KEY_BYTES]; /* one-time, of its connections */
    uint64_t until_ms;
    uint64_t serial; /* of its connection; 0: none is known */
    uint8_t route[SOCKET_ROUTE_BYTES];
    size_t route_bytes;
    int fd; /* ZeroMQ's; may be closed any time */
    bool waiting;
    struct quota heard; /* how often */
    enum wire_type type;
    size_t bytes;
    uint8_t said[WIRE_JOIN_BYTES_MAX];
};

struct guests {
    struct guest *list; /* [ZAP_GUESTS_MAX], by zap's numbers; NULL: there was none yet */
    uint32_t count;
    uint64_t serial; /* last given */
    uint32_t turn;
};

void guests_free(struct guests *guests);
/* Admits, or moves the end of one that is admitted. ERR_STATE: there are as many as can be; ERR_NOMEM. */
ERR_MUST_CHECK enum err guests_admit(struct guests *guests, struct zap *zap, const uint8_t key[IDENT_KEY_BYTES],
                                     uint64_t until_ms);
/* The descriptor of its connection, which is to be ended; -1. */
int guests_dismiss(struct guests *guests, struct zap *zap, uint32_t number);
/* One whose time is over; ZAP_NOBODY. */
uint32_t guests_over(const struct guests *guests, uint64_t now_ms);
/* A guest's message came on this route. Returns the descriptor of another connection of it, which is to be ended; -1.
 * `bytes` is at most WIRE_JOIN_BYTES_MAX. */
int guests_said(struct guests *guests, uint32_t number, const void *route, size_t route_bytes, int fd,
                enum wire_type type, const void *message, size_t bytes);
/* The next one that waits, in turn; NULL. Borrowed until the next call of anything here. */
const struct guest *guests_next(struct guests *guests, uint64_t now_ms);
/* By the connection; NULL: it is gone. Borrowed likewise. */
const struct guest *guests_of(const struct guests *guests, uint64_t serial);

#endif
