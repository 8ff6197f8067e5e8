/* SPDX-License-Identifier: Apache-2.0 */
/*
 * presence: which of the members are there, by the greetings, heartbeats and goodbyes that come and go: who is greeted
 * and told how we stand, when, and who is silent. Private to peers/.
 *
 * A member has greeted when its hello fits our run; it is up as long as its heartbeats come, which the core and
 * membership are told. A hello of another session means that it restarted: what it said before is void. What they say
 * goes to the parts that it is given; it judges no message of another kind. Only the loop's thread.
 */
#ifndef DAEMON_PEERS_PRESENCE_H
#define DAEMON_PEERS_PRESENCE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/bitset.h"
#include "common/err.h"
#include "common/log.h"
#include "common/quota.h"
#include "common/runspec.h"
#include "daemon/dconf.h"
#include "daemon/event.h"
#include "daemon/peers/announced_plans.h"
#include "daemon/peers/announcer.h"
#include "daemon/peers/charges.h"
#include "daemon/peers/furthest_step.h"
#include "daemon/peers/peer.h"
#include "daemon/transfer/objects.h"
#include "net/config/view.h"
#include "net/membership/membership.h"
#include "net/transport/link.h"
#include "net/transport/wire.h"

/* One other island. All zero at first. */
struct peer {
    bool greeted; /* a hello of the present session was accepted */
    uint64_t session, heard_ms, hello_ms, beat_ms;
    uint64_t since_ms; /* its slot is its own */
    uint64_t vain_ms;  /* since when we dial it in vain, though we hear it; 0: we do not */
    struct beats beats;
    struct log_limit refused_said, diverged_said, plan_said, word_said;
    struct duplicate_key duplicate_key;
    struct faults faults;
    struct quota refusals, comings; /* lines in the log: that it refuses something; that it comes and goes */
    bool undialled;                 /* as it says: it dials us in vain */
    bool refused;                   /* it, or we, would not talk: not a matter of time */
    bool unadmitted;                /* refused, since it does not know our key, or has another than we think */
    char note[WIRE_REASON_BYTES];   /* why it is not up, for status; "" if nothing is known */
};

/* All borrowed. */
struct presence_conf {
    const struct dconf *conf;
    const struct runspec *spec;
    const struct view *view;
    const struct transfer_plan *plan; /* all zero until it is known */
    struct link *link;
    struct objects *objects;
    struct membership *membership;
    struct events *events;
    struct charges *charges;
    struct announced_plans *plans;
    struct announcer *announcer;
    struct furthest_step *furthest;
};

/* All zero before presence_init(). */
struct presence {
    struct presence_conf conf;
    struct peer *peers; /* [room], by slot */
    uint32_t room;
    struct bitset up;     /* greeted and heard from lately */
    struct bitset silent; /* not heard for as long as the configuration allows, or of no use */
    uint64_t pause_ms;    /* between heartbeats */
    uint64_t silent_ms;   /* one who is silent so long is not up */
    bool announce;        /* a heartbeat is due to everyone */
    uint64_t announce_ms; /* not before this */
};

/* Begins to dial the members of the view. ERR_NOMEM and others. */
ERR_MUST_CHECK enum err presence_init(struct presence *presence, const struct presence_conf *conf, uint64_t now_ms);
void presence_deinit(struct presence *presence);
/* As if it had been made now. */
void presence_begin(struct presence *presence, uint64_t now_ms);
/* The plan is known from now on: the others learn of it, and those with another one are refused. */
void presence_plan_known(struct presence *presence, uint64_t now_ms);
/* A new epoch, and the view follows it. ERR_NOMEM and others. */
ERR_MUST_CHECK enum err presence_members(struct presence *presence, const struct view_changes *changes,
                                         uint64_t now_ms);

/* ---- what the member in a slot says ---- */

void presence_hello(struct presence *presence, uint32_t slot, const struct wire_hello *hello, uint64_t now_ms);
void presence_heartbeat(struct presence *presence, uint32_t slot, const struct wire_heartbeat *beat, uint64_t now_ms);
void presence_bye(struct presence *presence, uint32_t slot, const char *reason, uint64_t now_ms);
/* Our dialling came to nothing: it answered and would not, or it did not answer. */
void presence_not_through(struct presence *presence, uint32_t slot, bool answered, uint64_t now_ms);
/* True, and it is refused, if there is a reason; NULL: there is none. Logged now and then. */
bool presence_refuse(struct presence *presence, uint32_t slot, const char *reason, uint64_t now_ms);
/* What it was charged. False: that is beyond its budget, so what that is for is dropped. */
bool presence_charged(struct presence *presence, uint32_t slot, enum charge charge, uint64_t now_ms);
/* Charges it so many of a kind; false as of presence_charged(). */
bool presence_charge(struct presence *presence, uint32_t slot, enum budget_kind kind, uint32_t count, uint64_t now_ms);

/* ---- what we say ---- */

/* Greets it now. */
void presence_greet(struct presence *presence, uint32_t slot, uint64_t now_ms);
/* Once a tick, for each other member: greets it and tells it how we stand when that is due, and looks whether it is
 * silent. */
void presence_look(struct presence *presence, uint32_t slot, uint64_t now_ms);
/* Once a turn: the heartbeat to everyone, if `announce` is set and it may go. */
void presence_flush(struct presence *presence, uint64_t now_ms);
/* Microseconds until that may go; 0: none waits. */
uint64_t presence_wait_us(const struct presence *presence, uint64_t now_ms);

/* Every other island, but for the witness, is up and has sent a heartbeat. */
bool presence_all_heard(const struct presence *presence);

#endif
