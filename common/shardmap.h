/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shardmap: which island owns which shard.
 *
 * Every fragment is cut into the same shards for ever, at most SHARDMAP_SLOTS (outer_opt/plan.h). A map gives each slot
 * an owner, and shards lie on slots, so one map is for all fragments: a member that comes or goes changes owners, and
 * no border. Pure integer arithmetic, so everyone who starts from the same map and weights gets the same one.
 */
#ifndef COMMON_SHARDMAP_H
#define COMMON_SHARDMAP_H

#include <stdint.h>

enum { SHARDMAP_SLOTS = 64, SHARDMAP_OWNERS_MAX = 64 };
/* A slot that has no owner yet, or whose owner has left. */
#define SHARDMAP_NOBODY UINT32_MAX

/* All SHARDMAP_NOBODY at first: shardmap_empty(). */
struct shardmap {
    uint32_t owner[SHARDMAP_SLOTS];
};

struct shardmap shardmap_empty(void);

/* Whom slots can be given to: members by their ids, at most SHARDMAP_OWNERS_MAX, each once, with a weight (its uplink,
 * in any unit). */
struct shardmap_owner {
    uint32_t id;
    uint64_t weight;
};

/* Gives every slot to one of `owners` (at least one): as many to each as its weight is of all weights, by largest
 * remainder, equal ones where all weights are zero. Everyone keeps what it had as far as that goes, so as few slots as
 * can be change hands; a free one goes to who owns the slots beside it where possible, so that what one owns stays in
 * few runs. */
void shardmap_assign(struct shardmap *map, const struct shardmap_owner *owners, uint32_t owners_count);

/* A first map, among owners 0 to `count` - 1 with these weights. */
struct shardmap shardmap_of(const uint64_t *weights, uint32_t count);

/* The slot of shard `shard` of the `shards_count` that fragment `fragment` has (1 to SHARDMAP_SLOTS). Fragments of few
 * shards begin at different slots, so that no owner has all of them. */
uint32_t shardmap_slot(uint32_t fragment, uint32_t shards_count, uint32_t shard);

#endif
