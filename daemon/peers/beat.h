/* SPDX-License-Identifier: Apache-2.0 */
/*
 * beat: what this island says of itself in greetings and heartbeats, and whether another's greeting goes with it.
 * Private to peers/.
 */
#ifndef DAEMON_PEERS_BEAT_H
#define DAEMON_PEERS_BEAT_H

#include "common/bitset.h"
#include "daemon/peers/peers_types.h"
#include "net/config/vouch.h"
#include "net/transport/wire.h"

/* `out` becomes a greeting. `wish`: of owning shards (enum record_wish). */
void beat_hello(const struct peers_conf *conf, const struct transfer_plan *plan, uint8_t wish, bool draining,
                struct wire_message *out);
/* Why the member in that slot, which greets so, cannot be talked to; NULL: it can. In a buffer of
 * the thread, good until the next call. */
const char *beat_misfit(const struct peers_conf *conf, const struct transfer_plan *plan, uint32_t slot,
                        const struct wire_hello *hello);
/* The same of the plan that it has, if it knows one. */
const char *beat_plan_misfit(const struct transfer_plan *plan, bool known, const struct digest *theirs);
/* `out` becomes a heartbeat without rows, and without what is each member's own: sequence and echo. `silent`: slots of
 * those that are not heard. */
void beat_fill(const struct peers_conf *conf, const struct transfer_plan *plan, const struct bitset *silent,
               struct wire_message *out);

/* What members vouch for in heartbeats. ERR_NOMEM. */
ERR_MUST_CHECK enum err beat_vouches_new(const struct peers_conf *conf, uint32_t fragments, struct vouches **out);
/* Notes what the member in that slot does; NULL is fine. */
void beat_vouches_heard(const struct peers_conf *conf, struct vouches *vouches, uint32_t slot,
                        const struct wire_heartbeat *beat);

#endif
