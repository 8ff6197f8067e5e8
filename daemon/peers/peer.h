/* SPDX-License-Identifier: Apache-2.0 */
/*
 * peer: one other island as heard: its heartbeats by number, whether a second machine speaks with its key, and what the
 * core complains of in it. Private to peers/.
 *
 * For people: in the log when it begins and ends, and for status. It decides nothing: an island whose results do not
 * come is named to the others with those that are not heard, and a majority of the voters judges. Plain memory, only
 * the loop's thread.
 */
#ifndef DAEMON_PEERS_PEER_H
#define DAEMON_PEERS_PEER_H

#include <stdbool.h>
#include <stdint.h>

#include "common/log.h"
#include "net/sync/sync.h"
#include "net/transport/wire.h"

/* ---- heartbeats by their numbers: which is news, and how long a round trip takes ---- */

/* As many heartbeats may be on their way to be answered, one every few milliseconds. */
enum { BEATS_KEPT = 256 };

/* All zero at first. */
struct beats {
    uint64_t in, in_ms;           /* last one received */
    uint64_t out;                 /* last one sent */
    uint64_t sent_ms[BEATS_KEPT]; /* when it and those before it went, by number */
    uint32_t rtt_ms;              /* 0: not known */
};

/* The other side restarted: what it sent is void. */
void beats_restart(struct beats *beats);
/* The next one goes now: fills in the fields of one member. */
void beats_out(struct beats *beats, struct wire_heartbeat *beat, uint64_t now_ms);
/* One came. False: it was overtaken on its way, so what it says was taken back since. */
bool beats_in(struct beats *beats, const struct wire_heartbeat *beat, uint64_t now_ms);

/* ---- two machines that speak with the key of one island ---- */

/* Which of the two is the right one only their owner knows. A daemon that is started again has a new session and never
 * the one before; where the one before comes back, and the other again, two are alive. */
struct duplicate_key {
    uint64_t session, before;
    uint64_t turned_ms; /* when the one before last came back */
    unsigned turns;     /* how often it did, without a long pause */
    uint64_t seen_ms;   /* when it last was so often that there are two; 0: never */
    struct log_limit said;
};

/* All zero at first. The island greets with this session. */
void duplicate_key_note(struct duplicate_key *duplicate_key, const char *name, uint64_t session, uint64_t now_ms);

/* ---- what it does that it should not ---- */

/* What the core finds (net/sync/sync.h). What it sends of no use, or too much of, is in charges.h; what it says that
 * is not believed in furthest_step.h. All zero at first. */
struct faults {
    enum sync_fault now;
    struct log_limit said;
};

/* Once a tick: looks at what the core says of the member, which can be heard. */
void faults_look(struct faults *faults, const struct sync *sync, uint32_t member, const char *name, uint64_t now_ms);
/* What the core complains of in it. */
enum sync_fault faults_now(const struct faults *faults);
/* That, for status; "": nothing. */
const char *faults_text(const struct faults *faults);

#endif
