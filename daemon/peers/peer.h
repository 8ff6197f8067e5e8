/* SPDX-License-Identifier: Apache-2.0 */
/*
 * peer: one other island as heard: its heartbeats by number, its trainer, whether a second machine speaks with its key,
 * and its faults. Private to peers/.
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

/* ---- what it last said of its trainer, and how far the run is by that ---- */

/* All zero at first. */
struct report {
    uint64_t step, tokens;
    uint64_t own_step; /* our trainer's when it said so */
    double loss;       /* as in struct trainer_info */
    uint32_t tokens_per_s, trainer;
    struct report_doubt {
        uint64_t since_ms; /* 0: there is none */
        bool said;         /* in the log */
        bool lasts;        /* it is so, and has been for a minute: for status */
    } too_far, too_fast;   /* it says that it is further than it can be, or than anybody trains */
};

/* As the heartbeat says. */
void report_take(struct report *report, const struct wire_heartbeat *beat, uint64_t own_step);
/* It restarted: what it said is void. */
void report_restart(struct report *report);

/* How far a single island is believed. */
struct report_bounds {
    uint64_t most;    /* run step that rounds can have brought anybody to: who says more is not followed */
    uint64_t line;    /* up to which it is followed, at most `most`: pace.h */
    bool judges;      /* who is behind does not know the rounds yet that brought the others so far */
    double fast_most; /* of the usual pace, by which the line rises; for the log */
};
/* `furthest`, or as much of its step as is followed if that is further. What is not is logged once, under its `name`,
 * when it has lasted. `up`: it can be heard. */
uint64_t report_furthest(struct report *report, const char *name, bool up, const struct report_bounds *bounds,
                         uint64_t furthest, uint64_t now_ms);
/* For status: what it says that is not believed; "": nothing. */
const char *report_doubted(const struct report *report);
/* For status: whether it is followed at the bound alone. That may be true, of an island that is as fast. */
bool report_too_fast(const struct report *report);

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

/* ---- which plan is the run's, for one who does not know it ---- */

/* What a member announces. */
struct plan_said {
    uint32_t id; /* of the member */
    bool voter;
    struct digest plan;
};
/* One who announces the plan that most voters announce; of as many, the one that most members do; of as many, that of
 * the lowest id. `count`, if there is none. */
uint32_t plan_of_most(const struct plan_said *said, uint32_t count);

/* ---- what it does that it should not ---- */

/* The core finds most of it (net/sync/sync.h); beside that, a peer may send messages that are dropped. What it sends
 * too much of is in budget.h. All zero at first. */
struct faults {
    enum sync_fault now;
    struct log_limit said;
    uint64_t dropped_ms; /* when it last sent something that was dropped; 0: never */
};

/* Once a tick: looks at what the core says of the member, which can be heard. True: it is to be told the others as one
 * that is not heard. */
bool faults_look(struct faults *faults, const struct sync *sync, uint32_t member, const char *name, uint64_t now_ms);
/* Something that it sent was dropped. */
void faults_dropped(struct faults *faults, uint64_t now_ms);
/* What the core complains of in it. */
enum sync_fault faults_now(const struct faults *faults);
/* For status; "": nothing. */
const char *faults_text(const struct faults *faults, uint64_t now_ms);

#endif
