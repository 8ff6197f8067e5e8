/*
 * reduce: our shard, as its owner: contributions that come in are checked, their mean is encoded, and the result goes
 * durably into the ledger. Private to rounds/; the loop's thread calls.
 */
#ifndef DAEMON_ROUNDS_REDUCE_H
#define DAEMON_ROUNDS_REDUCE_H

#include "daemon/rounds/desk.h"

struct reduce;

ERR_MUST_CHECK enum err reduce_new(struct desk *desk, struct reduce **out);
void reduce_free(struct reduce *reduce);
void reduce_contribution_in(struct reduce *reduce, uint32_t peer, const struct wire_key *key, uint64_t bytes);
void reduce_begin(struct reduce *reduce, uint32_t f, uint64_t version, const struct bitset *have);
void reduce_store(struct reduce *reduce, uint32_t f, uint64_t version);
/* Nobody reads the anchor: the residual of a result that is durable moves. */
void reduce_unread(struct reduce *reduce, uint32_t f);
/* What the disk refused is tried again. */
void reduce_tick(struct reduce *reduce);
uint64_t reduce_outliers(const struct reduce *reduce, uint32_t member);

#endif
