/* SPDX-License-Identifier: Apache-2.0 */
/*
 * here: by which addresses this machine may be reached, as far as it can tell by itself.
 *
 * A guess: behind address translation nobody outside reaches what it finds; there a person has to say it. It asks the
 * kernel and the resolver, and sends nothing; and whether an address can be listened on, it tries. Any thread; may
 * block on the resolver.
 */
#ifndef NET_TRANSPORT_HERE_H
#define NET_TRANSPORT_HERE_H

#include <stddef.h>
#include <stdint.h>

#include "common/err.h"
#include "net/transport/wire.h"

/* Into `addresses`, at most `max`: "host:port" of interfaces that are up, IPv4 before IPv6, loopback last; returns how
 * many. */
uint32_t here_addresses(unsigned port, char (*addresses)[WIRE_ADDRESS_BYTES], uint32_t max);

/* The address from which we would talk to `there` ("host:port"), with this port, into `address`; "" if it cannot be
 * found out. */
void here_towards(const char *there, unsigned port, char address[WIRE_ADDRESS_BYTES]);

/* Whether link_new() could listen there just now ("host:port" or "*:port"): listens as that does, and gives it up again
 * before it returns. ERR_CONF: it could not, with the address and the reason. */
ERR_MUST_CHECK enum err here_try(const char *listen);

#endif
