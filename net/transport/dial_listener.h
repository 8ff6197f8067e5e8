/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dial_listener: a newcomer's port while it asks to be let in: it answers challenges (net/transport/dial_back.h), and
 * nothing else, to whoever connects.
 *
 * It listens where, and as, the daemon will. Whoever sends anything but one challenge is hung up on, before the answer
 * or after it. Sixteen connections are remembered at a time; of more, the oldest is hung up on. One thread; nothing
 * blocks.
 */
#ifndef NET_TRANSPORT_DIAL_LISTENER_H
#define NET_TRANSPORT_DIAL_LISTENER_H

#include <stdint.h>

#include "common/err.h"
#include "net/transport/dial_back.h"

struct dial_listener;

/* Opens "host:port" or "*:port". ERR_CONF: it cannot be listened on, with the address and the reason. */
ERR_MUST_CHECK enum err dial_listener_new(void *context, const char *listen, struct dial_listener **out);
/* Before its context. NULL is fine. */
void dial_listener_free(struct dial_listener *listener);
/* To poll for input; borrowed. */
void *dial_listener_socket(const struct dial_listener *listener);
/* Takes in what has come, and answers it for this JOIN, which is signed by `ident`. Returns how many challenges it
 * answered. */
uint32_t dial_listener_serve(struct dial_listener *listener, const struct ident *ident, const struct wire_join *join);

#endif
