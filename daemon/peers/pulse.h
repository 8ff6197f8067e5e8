/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pulse: heartbeats to and from one island by their numbers: which is news, and how long a round trip takes. Private to
 * peers/.
 */
#ifndef DAEMON_PEERS_PULSE_H
#define DAEMON_PEERS_PULSE_H

#include <stdbool.h>
#include <stdint.h>

#include "net/transport/wire.h"

/* As many heartbeats may be on their way to be answered, one every few milliseconds. */
enum { PULSE_KEPT = 256 };

/* All zero at first. */
struct pulse {
    uint64_t in, in_ms;           /* last one received */
    uint64_t out;                 /* last one sent */
    uint64_t sent_ms[PULSE_KEPT]; /* when it and those before it went, by number */
    uint32_t rtt_ms;              /* 0: not known */
};

/* The other side restarted: what it sent is void. */
void pulse_restart(struct pulse *pulse);
/* The next one goes now: fills in what is each member's own. */
void pulse_out(struct pulse *pulse, struct wire_heartbeat *beat, uint64_t now_ms);
/* One came. False: it was overtaken on its way, so what it says was taken back since. */
bool pulse_in(struct pulse *pulse, const struct wire_heartbeat *beat, uint64_t now_ms);

#endif
