/*
 * parts: which parts make a version of a fragment: who owns which shards of it, by what epoch. The one place where
 * they come from; rounds, transfers and the trainer's tallies ask here, and keep nothing of the answer beyond a version.
 *
 * For the time being the members of the run and their uplinks are the same for ever, and so are the parts: epoch 0,
 * owners by number. Pure.
 */
#ifndef DAEMON_STATE_PARTS_H
#define DAEMON_STATE_PARTS_H

#include <stdint.h>

#include "common/bitset.h"
#include "common/shardmap.h"
#include "net/chain.h"
#include "outer_opt/plan.h"

struct parts {
    const struct plan *plan; /* borrowed */
    struct shardmap map;
};

/* The parts of a version (above 0), in an order that everybody has: index p is one's place in it, good for this version
 * and as long as no epoch begins. Those without values are left out (shards are empty only where tensors are sent
 * whole). Returns how many; 0: it is not known. */
uint32_t parts_of(const struct parts *parts, uint32_t f, uint64_t version, struct chain_part out[CHAIN_PARTS_MAX]);

/* The one of this owner and epoch, and its index; CHAIN_PARTS_MAX: there is none. */
uint32_t parts_find(const struct parts *parts, uint32_t f, uint64_t version, uint64_t epoch, uint32_t owner,
                    struct chain_part *out);
/* The owners of a version's parts. */
struct bitset parts_owners(const struct parts *parts, uint32_t f, uint64_t version);
/* The shards of the parts of these owners. */
uint64_t parts_shards(const struct parts *parts, uint32_t f, uint64_t version, const struct bitset *owners);

#endif
