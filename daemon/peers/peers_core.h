/* SPDX-License-Identifier: Apache-2.0 */
/*
 * peers_core: what peers remembers, of all and of each. Private to daemon/peers/peers*.c.
 *
 * peers.c writes it; peers_look.c, which answers questions, only notes what it has said to people.
 */
#ifndef DAEMON_PEERS_PEERS_CORE_H
#define DAEMON_PEERS_PEERS_CORE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/bitset.h"
#include "common/digest.h"
#include "common/log.h"
#include "daemon/peers/faults.h"
#include "daemon/membership/gate.h"
#include "daemon/peers/impostors.h"
#include "daemon/peers/peers_types.h"
#include "daemon/peers/pulse.h"
#include "daemon/peers/report.h"
#include "net/sync/rows.h"
#include "net/transport/wire.h"

struct peer {
    bool greeted; /* a hello of the present session was accepted */
    bool up;      /* greeted and heard from lately */
    uint64_t session, heard_ms, hello_ms, beat_ms;
    uint64_t since_ms; /* its slot is its own */
    struct pulse pulse;
    bool plan_known;
    struct digest plan_id;
    struct report report;
    struct rows_said *said; /* [fragments]: what we last told it */
    uint32_t refresh;       /* next fragment to repeat */
    struct log_limit refused_said, malformed_said, diverged_said, plan_said;
    struct twins twins;
    struct faults faults;
    bool undialled;               /* as it says: it dials us in vain */
    bool refused;                 /* it, or we, would not talk: not a matter of time */
    bool unadmitted;              /* refused, since it does not know our key, or has another than we think */
    char note[WIRE_REASON_BYTES]; /* why it is not up, for status; "" if nothing is known */
};

struct peers {
    struct peers_conf conf;
    struct transfer_plan plan; /* .plan NULL: not known yet */
    uint64_t now_ms;
    struct link *link;
    struct objects *objects;
    struct membership_host *membership_host;
    struct gate gate;
    struct vouches *vouches; /* NULL: the plan is not known yet, or we are the witness */
    struct peer *peers;      /* [room], by slot */
    uint32_t room;
    struct bitset silent; /* not heard for as long as the configuration allows */
    uint64_t pause_ms;    /* between heartbeats */
    uint64_t silent_ms;   /* one who is silent so long is not up */
    bool announce;
    uint64_t announce_ms;
    struct strangers strangers;
    struct newcomers newcomers;
    struct log_limit anyone_said;
    bool capped_said;            /* what caps a line, in the log */
    struct wire_message in, out; /* taken in, and being said; large, so not on the stack */
};

static inline uint32_t self_of(const struct peers *peers)
{
    return peers->conf.view->self;
}

static inline uint32_t members_of(const struct peers *peers)
{
    return peers->conf.view->count;
}

static inline uint32_t fragments_of(const struct peers *peers)
{
    return peers->plan.plan != NULL ? peers->plan.plan->plan->fragments_count : 0;
}

static inline const char *name_of(const struct peers *peers, uint32_t peer)
{
    return peers->conf.view->members[peer].name;
}

/* Whether a slot is another member's. */
static inline bool is_other(const struct peers *peers, uint32_t i)
{
    return i != self_of(peers) && peers->conf.view->members[i].used;
}

#endif
