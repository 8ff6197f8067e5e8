/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reduce: our part, as its owner: contributions that come in are checked, their mean is encoded, and the result goes
 * durably into the ledger. The loop's thread calls.
 */
#ifndef DAEMON_ROUNDS_REDUCE_H
#define DAEMON_ROUNDS_REDUCE_H

#include "daemon/rounds/round_context.h"

struct reduce;

/* `round_context` is borrowed for its life. ERR_NOMEM. */
ERR_MUST_CHECK enum err reduce_new(struct round_context *context, struct reduce **out);
void reduce_free(struct reduce *reduce);
/* A contribution of `bytes` lies whole in its slot: looked at, then judged, and the core is told if it is good. */
void reduce_contribution_in(struct reduce *reduce, uint32_t peer, const struct wire_key *key, uint64_t bytes);
/* The mean of the contributions of `have`, which is not kept, into the slot of our own result: SYNC_EV_REDUCED, or
 * SYNC_EV_DROPPED with the member whose contribution cannot be averaged. Now, or when no job stands in the way;
 * SYNC_EV_OVERTAKEN if an epoch begins before that, since what came was for its predecessor. */
void reduce_begin(struct reduce *reduce, uint32_t f, uint64_t version, const struct bitset *have);
/* Writes that slot's result into the ledger: SYNC_EV_STORED. reduce_tick() tries a disk again that refuses. */
void reduce_store(struct reduce *reduce, uint32_t f, uint64_t version);
/* Nobody reads the anchor: the residual of a result that is durable moves; a mean that waits is made. */
void reduce_unread(struct reduce *reduce, uint32_t f);
/* What the disk refused is tried again. */
void reduce_tick(struct reduce *reduce);

#endif
