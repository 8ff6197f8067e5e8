/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gate_link: a rank's end of the connection. Whoever waits here beats, and calls `idle` several times a second, which
 * may say things. Any failure is the end of the connection: gate_link_why() says which. One thread.
 */
#ifndef WORKER_GATE_GATE_LINK_H
#define WORKER_GATE_GATE_LINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"
#include "worker/gate/gate.h"

struct gate_link;

struct gate_link_conf {
    const char *address;  /* "tcp://HOST:PORT" */
    const char *key_path; /* of the site's key */
    const char *build, *name;
    uint64_t group; /* as in struct gate_hello */
    uint32_t rank, count;
    int wait_ms;              /* for a gateway that is not there yet, or has another trainer */
    bool (*idle)(void *user); /* true: the caller wants an end of waiting */
    void *user;
};

/* Returns when all ranks of the group are there. ERR_CONF: address or key; ERR_NOTFOUND: no libzmq, no key; ERR_CLOSED:
 * nobody there, or not with this key; ERR_STATE: it refuses us; ERR_AGAIN: `idle` wanted an end; ERR_NOMEM. */
ERR_MUST_CHECK enum err gate_link_open(const struct gate_link_conf *conf, struct gate_link **out);
/* With a last word, for which it waits GATE_LINGER_MS at most. NULL is fine. */
void gate_link_close(struct gate_link *link);

/* What comes next for all; of as many bytes. False: the connection is at an end. */
bool gate_link_hear(struct gate_link *link, void *bytes, size_t count);
/* Returns when all ranks have come here. */
bool gate_link_meet(struct gate_link *link);
bool gate_link_call(struct gate_link *link, uint32_t call, const void *bytes, size_t count);
void gate_link_ask(struct gate_link *link, enum gate_asked what, uint64_t value);

/* As those of struct diloco_group, to and from the gateway. */
uint64_t gate_link_send(struct gate_link *link, uint32_t tag, const void *bytes, size_t count);
uint64_t gate_link_receive(struct gate_link *link, uint32_t tag, void *bytes, size_t count);
int gate_link_arrived(struct gate_link *link, uint64_t number, bool wait);

/* Never NULL. */
const char *gate_link_why(const struct gate_link *link);

#endif
