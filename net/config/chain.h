/* SPDX-License-Identifier: Apache-2.0 */
/*
 * chain: the view records that this island knows, in order, and what follows from them: which epoch a version belongs
 * to, and which parts make it.
 *
 * A part is what one owner makes of one fragment's version: its shards travel as one object. Records older than anyone
 * asks results of may be forgotten from the front. Pure; owns its records.
 *
 * Owns: who takes part in an epoch: records, their order, the slots of members; certificates of states.
 * Called by: daemon, daemon/control, daemon/ctl, daemon/membership, daemon/peers, daemon/rounds, daemon/state,
 * daemon/trainer, daemon/transfer, net/membership, net/sync.
 * Never includes: common/env.h, common/fsio.h, net/sync/, net/membership/, net/transfer/, <pthread.h>,
 * <sys/socket.h>, <time.h>, <unistd.h>, <zmq.h>.
 */
#ifndef NET_CONFIG_CHAIN_H
#define NET_CONFIG_CHAIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/digest.h"
#include "common/err.h"
#include "net/config/record.h"

struct chain_part {
    struct result_id id; /* of its result; the digest only of a carried one, else zeros */
    uint64_t shards;     /* mask */
    bool carried;        /* the record names its result */
};

struct chain;

ERR_MUST_CHECK enum err chain_new(struct chain **out);
/* NULL is fine. */
void chain_free(struct chain *chain);

/* Puts a record at the end: the first one whatever its epoch, each other one only if it follows the last
 * (record_follows()): ERR_PROTO, and the record stays the caller's. It is taken over otherwise, and emptied. That it
 * makes sense by itself (record_check()) and who decided it (record_proved()) is the caller's to check. */
ERR_MUST_CHECK enum err chain_add(struct chain *chain, struct record *record, const struct digest *digest);
/* Forgets the records before `epoch`; the last one stays. */
void chain_forget(struct chain *chain, uint64_t epoch);

/* The newest; NULL: there is none. Borrowed until the next chain_add() or chain_forget(). */
const struct record *chain_last(const struct chain *chain);
const struct digest *chain_last_digest(const struct chain *chain);
/* NULL: not known, or forgotten. */
const struct record *chain_at(const struct chain *chain, uint64_t epoch);

/* The epoch to which a version of a fragment belongs: the last one whose start is below it. False: it is before the
 * records that are known. Version 0 belongs to the first one known, where that starts from it. */
bool chain_epoch(const struct chain *chain, uint32_t fragment, uint64_t version, uint64_t *epoch);

/* The parts of a version (above 0): carried ones first, in order of owner, then epoch; then those that the version's
 * own epoch makes, in order of owner. They are disjoint and cover all shards. `shards_count`: the fragment's. Returns
 * how many; 0: not known here, or nobody owns anything and nothing is carried. Beside carried ones, what nobody owns is
 * a part of SHARDMAP_NOBODY: the carried ones have to be shown when the next record is decided, or it never is. */
enum { CHAIN_PARTS_MAX = SHARDMAP_SLOTS };
uint32_t chain_parts(const struct chain *chain, uint32_t fragment, uint32_t shards_count, uint64_t version,
                     struct chain_part parts[CHAIN_PARTS_MAX]);

#endif
