/* SPDX-License-Identifier: Apache-2.0 */
/*
 * objects: which objects go out and come in, and the line's share of them: contributions and results from their slots,
 * old results from the ledger, and the plan. It leaves states to state_server and state_transfer.
 *
 * It moves bytes between memory and connections; it knows nothing of greetings and heartbeats: daemon/peers tells it of
 * messages and of members that come and go. Orders come from the engine. Only the loop's thread calls; nothing blocks.
 *
 * Owns: which objects go out and come in; copies of states for others, a state on its way in.
 * Called by: daemon, daemon/peers.
 * Never includes: daemon/peers/, daemon/membership/, daemon/control/, <zmq.h>, <sys/socket.h>, <pthread.h>.
 */
#ifndef DAEMON_TRANSFER_OBJECTS_H
#define DAEMON_TRANSFER_OBJECTS_H

#include "common/bitset.h"
#include "common/runspec.h"
#include "daemon/event.h"
#include "daemon/rounds/rounds.h"
#include "daemon/state/ledger.h"
#include "daemon/state/model_plan.h"
#include "daemon/state/parts.h"
#include "daemon/state/replica.h"
#include "daemon/state/slots.h"
#include "daemon/trainer/trainer.h"
#include "net/config/view.h"
#include "net/config/certificate.h"
#include "net/sync/sync.h"
#include "net/transport/link.h"

struct objects;

/* All borrowed. */
struct objects_conf {
    const struct runspec *spec;
    const struct view *view;
    const struct config_log *config_log;
    struct events *events;
    const struct trainer *trainer;
    struct link *link;
    uint64_t rate_limit; /* bit/s; 0: none */
};
/* ERR_NOMEM. */
ERR_MUST_CHECK enum err objects_new(const struct objects_conf *conf, struct objects **out);
void objects_free(struct objects *objects);

/* The parts that exist once the run's plan is known; all borrowed. Of a witness replica, slots, rounds and certificates
 * are NULL. */
struct transfer_plan {
    const struct model_plan *plan;
    struct replica *replica;
    const struct parts *parts;
    struct ledger *ledger;
    struct slots *slots;
    struct sync *sync;             /* read, and sealed, by nobody but membership */
    const uint32_t *shards_counts; /* per fragment */
    const struct rounds *rounds;
    struct certificates
        *certificates; /* signatures that members sent in heartbeats; states that go out are certified with them */
};
ERR_MUST_CHECK enum err objects_plan_known(struct objects *objects, const struct transfer_plan *plan);

/* A new epoch, and the view follows it: objects on their way in are of parts that exist no more, and the slots of
 * members that left are others' from now on. ERR_NOMEM. */
ERR_MUST_CHECK enum err objects_members(struct objects *objects, const struct view_changes *changes);

/* ---- what peers hears ---- */

/* How many unacknowledged bytes a peer takes in. */
void objects_set_window(struct objects *objects, uint32_t peer, uint64_t window_bytes);
uint64_t objects_window(const struct objects *objects, uint32_t peer);
/* The peer is not heard any more: what it was bringing may come from others at once. */
void objects_lost_sight(struct objects *objects, uint32_t peer);
/* The peer restarted: transfers with it end. */
void objects_reset(struct objects *objects, uint32_t peer);
/* A new bulk connection: bytes on the one before may be lost, and the way may be another one. */
void objects_reconnected(struct objects *objects, uint32_t peer);

/* A message about an object (WIRE_ACK, WIRE_DONE or WIRE_FETCH), or a chunk of one; false: that brought nothing. */
void objects_message_in(struct objects *objects, uint32_t peer, const struct wire_message *message, uint64_t now_ms);
bool objects_chunk_in(struct objects *objects, uint32_t peer, const struct wire_chunk *chunk, uint64_t now_ms);
/* ---- the loop ---- */

/* Sends what may go now. */
void objects_flush(struct objects *objects, uint64_t now_ms);
/* Once a tick. Asks one of those who have it for the run's plan while we have none; another one the next time, since
 * this one's may be of no use. */
void objects_tick(struct objects *objects, const struct bitset *with_plan, uint64_t now_ms);
/* Microseconds until something may be sent that waits for its turn on the line; 0: nothing waits. */
uint64_t objects_wait_us(const struct objects *objects);

/* ---- the core's orders, and what rounds say ---- */

/* Sends our contribution or result to a member, from its slot. */
void objects_send(struct objects *objects, const struct wire_key *key, uint32_t member, uint64_t now_ms);
/* Asks a member for an object. */
void objects_fetch(struct objects *objects, const struct wire_key *key, uint32_t member);
/* Contributions up to `version` are not sent any more. */
void objects_retire(struct objects *objects, uint32_t f, uint64_t version);
/* No result of our shard up to `version` is sent from its slot any more. */
void objects_retire_results(struct objects *objects, uint32_t f, uint64_t version);
/* What became of an object that came in: for its sender. */
void objects_judged(struct objects *objects, uint32_t peer, const struct wire_key *key, enum wire_done done);
/* EVENT_STATE_SERVED: the copy of a state is there, for those who asked for it. */
void objects_state_served(struct objects *objects, const struct served_state *served, enum err err, uint64_t now_ms);
/* EVENT_OBJECT with a plan: parsed, and checked to be the one its sender announced (`plan_id`). ERR_STATE: one is known
 * already; other errors name its fault. */
ERR_MUST_CHECK enum err objects_take_plan(struct objects *objects, uint32_t peer, const struct wire_key *key,
                                          uint64_t bytes, const struct digest *plan_id, struct model_plan **out);

/* ---- looking in ---- */

/* Whether this member sent us leaves that are not of the hash that a majority signed. */
bool objects_lied(const struct objects *objects, uint32_t peer);
/* Whether this object is on its way in and has moved lately; a state: or is asked for. */
bool objects_receiving(const struct objects *objects, const struct wire_key *key);
/* Whether bytes of this state come, from somebody who has proved it. */
bool objects_state_comes(const struct objects *objects, const struct wire_key *key);
/* Of a fragment's state that is fetched: bytes that are here; and when anything of any state came last; 0: never. */
uint64_t objects_state_bytes(const struct objects *objects, uint32_t f);
uint64_t objects_state_moved_ms(const struct objects *objects);

/* Bytes of objects handed to connections; of these, in vain: lost, or not taken. */
uint64_t objects_sent_bytes(const struct objects *objects);
uint64_t objects_wasted_bytes(const struct objects *objects);
uint64_t objects_unacknowledged(const struct objects *objects, uint32_t peer);
/* Of our uplink, as measured while there was something to send, per second; 0: not known. */
uint64_t objects_uplink_bits(const struct objects *objects);

#endif
