/* SPDX-License-Identifier: Apache-2.0 */
/*
 * strangers: connections that were refused because of whom they are of: nobody with that key is a member, or a newcomer
 * speaks another protocol. Private to peers/.
 *
 * For people: in the log now and then, and for status. Plain memory, only the loop's thread.
 */
#ifndef DAEMON_PEERS_STRANGERS_H
#define DAEMON_PEERS_STRANGERS_H

#include <stdint.h>

#include "common/log.h"
#include "net/transport/wire.h"

/* Connections of one kind. All zero at first. */
struct strangers {
    uint64_t count, last_ms;      /* last_ms 0: never */
    char last[WIRE_REASON_BYTES]; /* what is known of the last one */
    struct log_limit said;
};

/* A connection with a key that nobody knows; `who`: that key, and its address. */
void strangers_unknown(struct strangers *strangers, const char *who, uint64_t now_ms);
/* Somebody came with a token and cannot be talked to; `why`, for people. */
void strangers_newcomer(struct strangers *newcomers, const char *why, uint64_t now_ms);

#endif
