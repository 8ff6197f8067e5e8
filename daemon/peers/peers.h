/* SPDX-License-Identifier: Apache-2.0 */
/*
 * peers: the other islands as this daemon sees them: connections, greetings and heartbeats.
 *
 * What they say of objects goes to transfer, what they say of members to membership, both of which it is given; the
 * rest is posted as events, and orders come from the engine. It reads the protocol's core, the trainer and the rounds,
 * and writes none of them. Only the loop's thread calls; nothing blocks. Whatever comes from a peer is input: the
 * connection proves its key, everything else is checked before it is believed.
 *
 * Owns: greetings and heartbeats; which members are up, and their faults.
 * Called by: daemon, daemon/control.
 * Never includes: daemon/control/, <pthread.h>.
 */
#ifndef DAEMON_PEERS_PEERS_H
#define DAEMON_PEERS_PEERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/bitset.h"
#include "common/err.h"
#include "common/runspec.h"
#include "daemon/dconf.h"
#include "daemon/event.h"
#include "daemon/membership/membership_host.h"
#include "daemon/membership/vote.h"
#include "daemon/trainer/trainer.h"
#include "daemon/transfer/objects.h"
#include "net/config/config_log.h"
#include "net/config/view.h"
#include "net/transport/caps.h"
#include "net/transport/link.h"
#include "net/transport/wire.h"

/* All borrowed. */
struct peers_conf {
    const struct dconf *conf;
    const struct runspec *spec;
    const struct view *view; /* follows the newest configuration of the config log */
    const struct config_log *config_log;
    const struct vote *vote;
    struct link *link; /* open, and nobody is dialled yet */
    struct objects *objects;
    struct membership_host *host;
    struct events *events;
    const struct trainer *trainer;
    uint64_t session;  /* random, of this daemon process */
    uint64_t start_ms; /* of the daemon */
};

struct peers;

/* Begins to dial. ERR_NOMEM and others. */
ERR_MUST_CHECK enum err peers_new(const struct peers_conf *conf, struct peers **out);
void peers_free(struct peers *peers);
/* As if it had been made now: nobody has been silent for longer than that. For a daemon that takes nothing in and says
 * nothing before it knows what it holds; no other call of these has come before. */
void peers_begin(struct peers *peers, uint64_t now_ms);
/* Transfer and membership know it already. The others learn of it. ERR_NOMEM. */
ERR_MUST_CHECK enum err peers_plan_known(struct peers *peers, const struct transfer_plan *plan);

/* A new epoch, before the core goes over to it. Members came, changed or went, the view follows them, and so do
 * connections; transfer knows of it already. The slots of those who went may be released after it. ERR_NOMEM and
 * others: the daemon cannot go on. */
ERR_MUST_CHECK enum err peers_members(struct peers *peers, const struct view_changes *changes);

/* Microseconds until an announcement is due; 0: none waits. */
uint64_t peers_wait_us(const struct peers *peers);
/* Once a turn, first: what the connections have to say. */
void peers_look(struct peers *peers, uint64_t now_ms);
/* Takes one message in; false: there is none. A heartbeat that it posts is valid until the next call. */
bool peers_take(struct peers *peers, uint64_t now_ms);
/* Once a turn, last: sends what may go. */
void peers_flush(struct peers *peers, uint64_t now_ms);
/* `uplink_bits`: per second, as measured; 0: not known. */
void peers_tick(struct peers *peers, uint64_t uplink_bits, uint64_t now_ms);

/* A heartbeat to everyone, soon. */
void peers_announce(struct peers *peers);
/* Our word states another key than before, or none any more. */
void peers_say(struct peers *peers);
/* Says to all that this island leaves the run, or that it is back. */
void peers_drain(struct peers *peers, bool draining);
/* The plan of a peer cannot be used here. Logged now and then. */
void peers_plan_refused(struct peers *peers, uint32_t peer, const char *text);
/* The core found that a peer's state differs from ours and that it has to repair. Logged now and then. */
void peers_diverged(struct peers *peers, uint32_t peer, uint32_t f);
/* The daemon stops. */
void peers_bye(struct peers *peers, const char *reason);

/* ---- looking in ---- */

/* Every other island, but for the witness, is up and has sent a heartbeat. */
bool peers_heard(const struct peers *peers);
/* Of the slots: which have not been heard for as long as the configuration allows, or are of no use; borrowed. */
const struct bitset *peers_silent(const struct peers *peers);
/* Which are up, and know the run's plan; and the plan that one of them announced. */
struct bitset peers_with_plan(const struct peers *peers);
const struct digest *peers_plan_id(const struct peers *peers, uint32_t peer);
/* Of these, those with the plan that most voters announce, while none is known here: of them it is asked, and no other
 * is taken. Empty: nobody knows one, or somebody who may know another one has not been heard yet. */
struct bitset peers_plan_holders(struct peers *peers);
/* The highest run step of the islands that can be heard, and of `own_step`; once a tick. A step that no outstanding
 * round can have brought an island to is not believed, nor one that rises weight_max times as fast as most owners
 * train; both are logged once. */
uint64_t peers_furthest(struct peers *peers, uint64_t own_step);
/* Up to which run step a single island is believed, as of the last tick. */
uint64_t peers_step_line(const struct peers *peers);
/* As they say, believed or not: for status, since steps go on where no round closes. */
uint64_t peers_furthest_said(const struct peers *peers, uint64_t own_step);

/* How a member does not do as it should. */
enum peer_fault {
    PEER_FAULT_NONE,
    PEER_FAULT_LATE,  /* its contributions come too late, or not at all */
    PEER_FAULT_STUCK, /* it makes no result */
    PEER_FAULT_FLOOD, /* it sends more than anybody needs, and its link is closed, or was lately */
    PEER_FAULT_FALSE  /* what it says or sends is not so */
};

struct peer_info {
    bool up;           /* greeted and heard from lately */
    bool refused;      /* it, or we, would not talk: not a matter of time */
    bool unadmitted;   /* refused, since it does not know our key, or has another than we think */
    const char *note;  /* why it is not up; "" if nothing is known */
    const char *fault; /* what it does that it should not; "": nothing */
    enum peer_fault fault_kind;
    bool too_fast;             /* for a minute it has said that it trains faster than it is followed */
    uint64_t heard_ms;         /* 0: never */
    uint64_t duplicate_key_ms; /* when two machines last were seen to speak with its key; 0: never */
    uint32_t rtt_ms;
    /* as it last said */
    uint64_t step, tokens;
    uint64_t own_step; /* our trainer's when it did */
    double loss;       /* as in struct trainer_info */
    uint32_t tokens_per_s;
    uint32_t trainer;        /* enum wire_trainer */
    bool unfinished;         /* its trainers have trained, and none has contributed all that it will */
    uint64_t sent, received; /* bytes at the sockets, everything included */
};
struct peer_info peers_info(const struct peers *peers, uint32_t peer);

/* We are leaving the run, or have left it. */
bool peers_draining(const struct peers *peers);
/* Whether every owner that is heard dials this island in vain; or that was found out before, and is not refuted yet. */
bool peers_undialled(const struct peers *peers);
/* Whether most of the others that vote do not know our key, so that this island was probably revoked. */
bool peers_shut_out(const struct peers *peers);

/* Connections that are not what they should be. It judges nobody: a stranger was not let in. */
struct peers_refused {
    uint64_t strangers;   /* with an unknown key */
    uint64_t stranger_ms; /* when the last one came */
    const char *stranger; /* its key and address */
    uint64_t newcomer_ms; /* when one with a token came that cannot be talked to; 0: never */
    const char *newcomer; /* why */
};
struct peers_refused peers_refused(const struct peers *peers);
/* What this machine's settings keep the longest of our lines from (net/transport/caps.h), with what to change; logged
 * once. False, and "": nothing. */
bool peers_capped(struct peers *peers, char text[CAPS_TEXT_BYTES]);

#endif
