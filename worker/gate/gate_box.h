/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gate_box: messages to and from one peer, by tag, in pieces: what was asked for, what came before it was asked for,
 * and what is on its way out. Memory that is sent is read by libzmq's thread until the number has arrived; what comes
 * is put where it was asked for by whoever takes it from the socket. One thread.
 */
#ifndef WORKER_GATE_GATE_BOX_H
#define WORKER_GATE_GATE_BOX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"
#include "worker/gate/gate.h"
#include "worker/gate/gate_zmq.h"

enum { GATE_ROUTE_BYTES = 8 };

struct gate_item;
struct gate_early;

struct gate_box {
    const struct gate_zmq *zmq;
    void *socket;
    uint8_t route[GATE_ROUTE_BYTES]; /* of a ROUTER: whose first frame this is */
    size_t route_bytes;              /* 0: the socket has one peer */
    struct gate_item *items;         /* asked for, or on their way out; the oldest first */
    struct gate_early *early;        /* pieces that nobody has asked for yet, the oldest first */
    uint64_t number;                 /* last given */
};

/* Frees it all. What is on its way out is to be there until the socket and its context are closed. */
void gate_box_deinit(struct gate_box *box);

/* One message. The bytes are copied. ERR_CLOSED: nobody is there. */
ERR_MUST_CHECK enum err gate_box_say(struct gate_box *box, enum gate_kind kind, uint32_t tag, uint64_t value,
                                     const void *bytes, size_t count);

/* A number for gate_box_arrived(), or 0: nobody is there, or there is no memory. */
uint64_t gate_box_send(struct gate_box *box, uint32_t tag, const void *bytes, size_t count);
uint64_t gate_box_receive(struct gate_box *box, uint32_t tag, void *bytes, size_t count);
/* 1: it has arrived, or is out, and the number is gone; 0: it has not; -1: there is no such number. */
int gate_box_arrived(struct gate_box *box, uint64_t number);

/* A piece has come; its message is taken over. ERR_PROTO: it is longer than what was asked for. */
ERR_MUST_CHECK enum err gate_box_take(struct gate_box *box, uint32_t tag, zmq_msg_t *piece);

#endif
