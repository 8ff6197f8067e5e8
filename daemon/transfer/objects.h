/* SPDX-License-Identifier: Apache-2.0 */
/*
 * objects: which objects go out and come in, and the line's share of them: contributions and results from their slots,
 * old results from the ledger, and the plan; states it leaves to lend and catchup. For daemon/peers.
 *
 * It moves bytes between memory and connections that peers greeted; it knows nothing of greetings and heartbeats.
 */
#ifndef DAEMON_TRANSFER_OBJECTS_H
#define DAEMON_TRANSFER_OBJECTS_H

#include "common/runspec.h"
#include "daemon/event.h"
#include "daemon/transfer/transfer_plan.h"
#include "daemon/trainer/trainer.h"
#include "net/transport/link.h"
#include "net/config/vouch.h"
#include "net/transfer/xfer.h"

struct objects;

/* All borrowed. */
struct objects_conf {
    const struct runspec *spec;
    const struct view *view;
    const struct chain *chain;
    struct events *events;
    const struct trainer *trainer;
    struct link *link;
    uint64_t rate_limit; /* bit/s; 0: none */
};
/* ERR_NOMEM. */
ERR_MUST_CHECK enum err objects_new(const struct objects_conf *conf, struct objects **out);
void objects_free(struct objects *objects);
/* `vouches` are borrowed: what states that go out are certified with. */
ERR_MUST_CHECK enum err objects_plan_known(struct objects *objects, const struct transfer_plan *plan,
                                           struct vouches *vouches);

/* A new epoch: what is on its way in is of parts that are none any more. */
void objects_begin_epoch(struct objects *objects);
/* Slots are below `slots` now. ERR_NOMEM. */
ERR_MUST_CHECK enum err objects_members(struct objects *objects, uint32_t slots);

/* How many unacknowledged bytes a peer takes in. */
void objects_set_window(struct objects *objects, uint32_t peer, uint64_t window_bytes);
uint64_t objects_window(const struct objects *objects, uint32_t peer);
/* The peer is not heard any more: what it was bringing may come from others at once. */
void objects_lost_sight(struct objects *objects, uint32_t peer);
/* The peer restarted: transfers with it end. */
void objects_reset(struct objects *objects, uint32_t peer);
/* Its slot is another's from now on. */
void objects_forget(struct objects *objects, uint32_t peer);
/* A new bulk connection: what was on its way on the one before may be lost, and the way may be another one. */
void objects_reconnected(struct objects *objects, uint32_t peer);

/* A message about an object (WIRE_ACK, WIRE_DONE or WIRE_FETCH), or a chunk of one. */
void objects_message_in(struct objects *objects, uint32_t peer, const struct wire_message *message, uint64_t now_ms);
void objects_chunk_in(struct objects *objects, uint32_t peer, const struct wire_chunk *chunk, uint64_t now_ms);
/* Sends what may go now. */
void objects_flush(struct objects *objects, uint64_t now_ms);
/* Asks one of those who have it for the run's plan while we have none; another one the next time, since this one's may
 * be of no use. */
void objects_want_plan(struct objects *objects, const struct bitset *with_plan, uint64_t now_ms);
void objects_tick(struct objects *objects, uint64_t now_ms);
uint64_t objects_wait_us(const struct objects *objects);

/* As in peers.h. */
void objects_send(struct objects *objects, const struct wire_key *key, uint32_t member, uint64_t now_ms);
void objects_fetch(struct objects *objects, const struct wire_key *key, uint32_t member);
void objects_retire(struct objects *objects, uint32_t f, uint64_t version);
void objects_retire_results(struct objects *objects, uint32_t f, uint64_t version);
void objects_judged(struct objects *objects, uint32_t peer, const struct wire_key *key, enum wire_done done);
void objects_lent(struct objects *objects, const struct state_loan *loan, enum err err, uint64_t now_ms);
bool objects_lied(const struct objects *objects, uint32_t peer);
bool objects_receiving(const struct objects *objects, const struct wire_key *key);
/* `plan_id`: the plan that the peer announced. */
ERR_MUST_CHECK enum err objects_take_plan(struct objects *objects, uint32_t peer, const struct wire_key *key,
                                          uint64_t bytes, const struct digest *plan_id, struct model_plan **out);

/* As in peers.h. */
uint64_t objects_state_bytes(const struct objects *objects, uint32_t f);
uint64_t objects_state_moved_ms(const struct objects *objects);

/* Bytes of objects handed to connections; of these, in vain: lost, or not taken. */
uint64_t objects_sent_bytes(const struct objects *objects);
uint64_t objects_wasted_bytes(const struct objects *objects);
uint64_t objects_unacknowledged(const struct objects *objects, uint32_t peer);
uint64_t objects_uplink_bits(const struct objects *objects);

#endif
