/* SPDX-License-Identifier: Apache-2.0 */
/*
 * impostors: connections that are not what they should be: strangers, whose key nobody knows, and twins, two machines
 * that speak with the key of one island.
 *
 * Plain memory inside peers/; says what it sees in the log, now and then, and is asked for status. It judges nobody: a
 * stranger was not let in, and which of two twins is the right one only their owner knows.
 */
#ifndef DAEMON_PEERS_IMPOSTORS_H
#define DAEMON_PEERS_IMPOSTORS_H

#include <stdint.h>

#include "common/log.h"
#include "net/transport/wire.h"

struct strangers {
    uint64_t count, last_ms;
    char last[WIRE_REASON_BYTES]; /* its key and address */
    struct log_limit said;
};

/* Who came with a token, and cannot be talked to. */
struct newcomers {
    uint64_t last_ms; /* 0: never */
    char last[WIRE_REASON_BYTES];
    struct log_limit said;
};

/* All zero at first. */
void newcomers_note(struct newcomers *newcomers, const char *why, uint64_t now_ms);
void strangers_note(struct strangers *strangers, const char *who, uint64_t now_ms);

/* Of one island. A daemon that is started again has a new session and never the one before; where the one before comes
 * back, and the other again, two are alive. */
struct twins {
    uint64_t session, before;
    uint64_t turned_ms; /* when the one before last came back */
    unsigned turns;     /* how often it did, without a long pause */
    uint64_t seen_ms;   /* when it last was so often that there are two; 0: never */
    struct log_limit said;
};

/* All zero at first. The island greets with this session. */
void twins_note(struct twins *twins, const char *name, uint64_t session, uint64_t now_ms);

#endif
