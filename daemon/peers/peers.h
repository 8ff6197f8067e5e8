/* SPDX-License-Identifier: Apache-2.0 */
/*
 * peers: the other islands as this daemon sees them: connections, greetings, heartbeats, and objects out and in.
 *
 * What they say is posted as events; orders come from the engine. It reads the protocol's core, the trainer and the
 * rounds, and writes none of them. Only the loop's thread calls; nothing blocks. Whatever comes from a peer is input:
 * its key is proven by the connection, everything else is checked before it is believed.
 */
#ifndef DAEMON_PEERS_PEERS_H
#define DAEMON_PEERS_PEERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <zmq.h>

#include "common/err.h"
#include "daemon/peers/peers_types.h"
#include "net/transport/caps.h"
#include "net/transport/wire.h"

struct peers;

/* Opens the sockets and begins to dial. ERR_CONF: the address is malformed or in use. */
ERR_MUST_CHECK enum err peers_new(const struct peers_conf *conf, struct peers **out);
void peers_free(struct peers *peers);
/* As if it had been made now: nobody has been silent for longer than that. For a daemon that takes nothing in and says
 * nothing before it knows what it holds; no other call of these has come before. ERR_NOMEM and others. */
ERR_MUST_CHECK enum err peers_begin(struct peers *peers, uint64_t now_ms);
/* The others learn of it. */
ERR_MUST_CHECK enum err peers_plan_known(struct peers *peers, const struct transfer_plan *plan);

/* A new epoch, before the core goes over to it. Members came, changed or went, and the view follows them: connections
 * follow, and what is on its way in is of parts that are none any more. The slots of those who went may be
 * released after it. ERR_NOMEM and others: the daemon cannot go on. */
ERR_MUST_CHECK enum err peers_members(struct peers *peers, const struct view_changes *changes);
/* The core has gone over to the newest record, and the next one may be decided. */
ERR_MUST_CHECK enum err peers_begin_epoch(struct peers *peers);
/* Borrowed. */
struct membership_host *peers_membership_host(const struct peers *peers);
struct membership *peers_membership(const struct peers *peers);
/* Borrowed: invitations, and who leaves. */
struct gate *peers_gate(struct peers *peers);

/* Writes at most `items_max` items to poll; returns how many there are. */
size_t peers_poll(const struct peers *peers, zmq_pollitem_t *items, size_t items_max);
/* Microseconds until something may be sent that waits for its turn on the line; 0: nothing waits. */
uint64_t peers_wait_us(const struct peers *peers);
/* Once a turn, first: what the connections have to say. */
void peers_look(struct peers *peers, uint64_t now_ms);
/* Takes one message in; false: there is none. A heartbeat that it posts is valid until the next call. */
bool peers_take(struct peers *peers, uint64_t now_ms);
/* Once a turn, last: sends what may go. */
void peers_flush(struct peers *peers, uint64_t now_ms);
void peers_tick(struct peers *peers, uint64_t now_ms);

/* ---- the core's orders, and what rounds say ---- */

/* Sends our contribution or result to a member, from its slot. */
void peers_send(struct peers *peers, const struct wire_key *key, uint32_t member);
/* Asks a member for an object. */
void peers_fetch(struct peers *peers, const struct wire_key *key, uint32_t member);
/* Contributions up to `version` are not sent any more. */
void peers_retire(struct peers *peers, uint32_t f, uint64_t version);
/* No result of our shard up to `version` is sent from its slot any more. */
void peers_retire_results(struct peers *peers, uint32_t f, uint64_t version);
/* A heartbeat to everyone, soon. */
void peers_announce(struct peers *peers);
/* What became of an object that came in: for its sender. */
void peers_judged(struct peers *peers, uint32_t peer, const struct wire_key *key, enum wire_done done);
/* EVENT_LENT: the copy of a state is there, for those who asked for it. */
void peers_lent(struct peers *peers, const struct state_loan *loan, enum err err);
/* EVENT_OBJECT with a plan: parsed, and checked to be the one its sender announced. ERR_STATE: one is known already;
 * other failures say what is wrong with it. */
ERR_MUST_CHECK enum err peers_take_plan(struct peers *peers, uint32_t peer, const struct wire_key *key, uint64_t bytes,
                                        struct model_plan **out);
/* The plan of a peer cannot be used here. Logged now and then. */
void peers_plan_refused(struct peers *peers, uint32_t peer, const char *text);
/* The core found that a peer's state differs from ours and that it has to repair. Logged now and then. */
void peers_diverged(struct peers *peers, uint32_t peer, uint32_t f);
/* The daemon stops. */
void peers_bye(struct peers *peers, const char *reason);

/* ---- looking in ---- */

/* Every other island, but for the witness, is up and has sent a heartbeat. */
bool peers_heard(const struct peers *peers);
/* Whether this object is on its way in and has moved lately. */
bool peers_receiving(const struct peers *peers, const struct wire_key *key);
/* Of a fragment's state that is fetched: bytes that are here; and when anything of any state came last; 0: never. */
uint64_t peers_state_bytes(const struct peers *peers, uint32_t f);
uint64_t peers_state_moved_ms(const struct peers *peers);
/* The highest run step of the islands that can be heard, and of `own_step`. A step that no outstanding round can have
 * brought an island to is not believed, and logged once. */
uint64_t peers_furthest(struct peers *peers, uint64_t own_step);
/* As they say, believed or not: for status, since steps go on where no round closes. */
uint64_t peers_furthest_said(const struct peers *peers, uint64_t own_step);
/* Of our uplink, as measured while there was something to send, per second; 0: not known. */
uint64_t peers_uplink_bits(const struct peers *peers);

/* How a member does not do as it should. */
enum peer_fault {
    PEER_FAULT_NONE,
    PEER_FAULT_LATE,  /* its contributions come too late, or not at all */
    PEER_FAULT_STUCK, /* it makes no result */
    PEER_FAULT_FALSE  /* what it says or sends is not so */
};

struct peer_info {
    bool up;           /* greeted and heard from lately */
    bool refused;      /* it, or we, would not talk: not a matter of time */
    bool unadmitted;   /* refused, since it does not know our key, or has another than we think */
    const char *note;  /* why it is not up; "" if nothing is known */
    const char *fault; /* what it does that it should not; "": nothing */
    enum peer_fault fault_kind;
    uint64_t heard_ms; /* 0: never */
    uint64_t twins_ms; /* when two machines last were seen to speak with its key; 0: never */
    uint32_t rtt_ms;
    /* as it last said */
    uint64_t step, tokens;
    uint64_t own_step; /* our trainer's when it did */
    double loss;       /* as in struct trainer_info */
    uint32_t tokens_per_s;
    uint32_t trainer; /* enum wire_trainer */
    /* bytes */
    uint64_t sent, received; /* at the sockets, everything included */
    uint64_t unacknowledged; /* of objects */
};
struct peer_info peers_info(const struct peers *peers, uint32_t peer);

/* Whether every owner that is heard dials this island in vain. */
bool peers_undialled(const struct peers *peers);
/* Whether most of the others that vote do not know our key, so that this island was probably revoked. */
bool peers_shut_out(const struct peers *peers);

struct peers_totals {
    uint64_t objects_sent_bytes, objects_wasted_bytes; /* wasted: of those sent, lost or not taken */
    uint64_t strangers;                                /* connections with an unknown key that were refused */
    uint64_t stranger_ms;                              /* when the last one came */
    const char *stranger;                              /* its key and address */
    uint64_t newcomer_ms; /* when one with a token came that cannot be talked to; 0: never */
    const char *newcomer; /* why */
};
struct peers_totals peers_totals(const struct peers *peers);
/* Reads the kernel's counters of all connections; often enough (a second) not to miss a short one. */
void peers_sample(struct peers *peers);
/* What this machine's settings keep the longest of our lines from (net/transport/caps.h), with what to change; logged
 * once. False, and "": nothing. */
bool peers_capped(struct peers *peers, char text[CAPS_TEXT_BYTES]);

#endif
