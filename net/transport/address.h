/* SPDX-License-Identifier: Apache-2.0 */
/*
 * address: the one grammar of the addresses at which islands are dialled, and at which they listen; and by which of
 * them this machine may be reached, as far as it can tell by itself.
 *
 *   address   host ":" port                 oslo.example.org:7600, 192.0.2.7:7600, [2001:db8::7]:7600
 *   host      a DNS name (RFC 1123, 2.1: labels of letters, digits, '-', and '_', which begin with a letter or digit;
 *             the last one is no number), or an IPv4 address of four numbers, or an IPv6 address in brackets
 *   port      1 to 65535, decimal, without leading zeros
 *
 * Everywhere an address comes in it is held against this: command lines, configuration, invitations, greetings,
 * configurations. Whatever it takes ZeroMQ takes too, and dials as the host that is written there. The grammar is pure.
 * Any thread.
 */
#ifndef NET_TRANSPORT_ADDRESS_H
#define NET_TRANSPORT_ADDRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"

/* ADDRESS_BYTES: room for one, with its zero. */
enum { ADDRESS_BYTES = 256, ADDRESS_HOST_MAX = 253, ADDRESS_LABEL_MAX = 63 };

/* Can be dialled, as far as it can be told without asking a resolver. */
bool address_good(const char *text);

/* Can be listened on: an address as above, but a host may also be "*" (every interface) or an interface's name, and
 * with `port_min` 0 the port may be 0, which leaves the choice to the kernel. */
bool address_listen_good(const char *text, uint32_t port_min);

/* ---- this machine ----
 *
 * A guess: behind address translation nobody outside reaches what it finds; there a person has to say it. It asks the
 * kernel and the resolver, on which it may block, and sends nothing; and whether an address can be listened on, it
 * tries. */

/* Into `addresses`, at most `max`: "host:port" of interfaces that are up, IPv4 before IPv6, loopback last; returns how
 * many. */
uint32_t here_addresses(unsigned port, char (*addresses)[ADDRESS_BYTES], uint32_t max);

/* The address from which we would talk to `there` ("host:port"), with this port, into `address`; "" if it cannot be
 * found out. */
void here_towards(const char *there, unsigned port, char address[ADDRESS_BYTES]);

/* Whether link_new() could listen there just now ("host:port" or "*:port"): listens as that does, and gives it up again
 * before it returns. ERR_CONF: it could not, with the address and the reason. */
ERR_MUST_CHECK enum err here_try(const char *listen);
/* Binds a ZeroMQ socket there. ERR_CONF: it cannot be, with the address and the reason. */
ERR_MUST_CHECK enum err here_listen(void *socket, const char *listen);

#endif
