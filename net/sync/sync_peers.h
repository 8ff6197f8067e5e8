/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sync_peers: takes in the peers' heartbeats: which are up, and their holdings and hashes; and catches up with those
 * that are ahead. Private to net/sync/sync*.c.
 *
 * Writes down heartbeats and raises SYNC_EV_LOST where they prove that our state has to be replaced. Called by sync
 * alone. It never changes a fragment's state itself: that is sync_fragment's table.
 */
#ifndef NET_SYNC_SYNC_PEERS_H
#define NET_SYNC_SYNC_PEERS_H

#include <stdint.h>

#include "net/sync/sync_core.h"
#include "net/sync/sync_types.h"

/* It is connected and greeted, perhaps after a restart: what it said before is forgotten, and it gets what of ours is
 * in flight. */
void sync_peers_up(struct sync *sync, uint32_t member);
void sync_peers_down(struct sync *sync, uint32_t member);
void sync_peers_heartbeat_in(struct sync *sync, const struct sync_event *event);
/* A member does not have what we asked it for. */
void sync_peers_not_available(struct sync *sync, const struct sync_event *event);
/* Something of the fragment is wanted that cannot wait: the last question no longer holds up the next. */
void sync_peers_fetch_now(struct sync *sync, uint32_t f);
/* To be called every tick, and whenever a version is here: asks for what others have and we lack, with patience. Only a
 * `tick` takes a state instead of results: after a pause of our own who is heard first may be a liar, and alone. */
void sync_peers_catch_up(struct sync *sync, uint32_t f, bool tick);
/* As sync_version_max(). */
uint64_t sync_peers_version_max(const struct sync *sync, uint32_t f);

#endif
