/* SPDX-License-Identifier: Apache-2.0 */
/*
 * install: puts a state in the place of the one in memory: a peer's, or the one that our own checkpoint and ledger lead
 * to; or makes the latter beside it, for the core to compare. The loop's thread calls.
 */
#ifndef DAEMON_ROUNDS_INSTALL_H
#define DAEMON_ROUNDS_INSTALL_H

#include "daemon/rounds/round_context.h"
#include "daemon/rounds/keep.h"

struct install;

/* Both are borrowed for its life. ERR_NOMEM. */
ERR_MUST_CHECK enum err install_new(struct round_context *context, struct keep *keep, struct install **out);
void install_free(struct install *install);
/* A state lies whole in its memory: taken over now, or when nobody reads the anchor. `excused`: its head was proved
 * without our signature (sync_excused()), and so is all of it. */
void install_state_in(struct install *install, uint32_t peer, const struct wire_key *key, uint64_t bytes, bool excused);
/* EVENT_ON_DISK: the state that was taken over is durable, and the core hears of it, if it is about such. */
void install_on_disk(struct install *install, uint32_t f);
/* Where checkpoint and ledger lead, beside the state in memory: SYNC_EV_REPLAYED or SYNC_EV_UNPROVEN. */
void install_replay(struct install *install, uint32_t f, uint64_t version);
/* The same, put in the place of the state in memory: SYNC_EV_INSTALLED or SYNC_EV_UNPROVEN. */
void install_repair(struct install *install, uint32_t f, uint64_t version);
void install_unread(struct install *install, uint32_t f);
/* A state has come and waits for readers. */
bool install_waits(const struct install *install, uint32_t f);

#endif
