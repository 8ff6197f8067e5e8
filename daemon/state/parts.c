#include "daemon/state/parts.h"

_Static_assert((int)PLAN_SHARDS_MAX == (int)SHARDMAP_SLOTS, "a shard has a slot");

uint32_t parts_of(const struct parts *parts, uint32_t f, uint64_t version, struct chain_part out[CHAIN_PARTS_MAX])
{
    uint32_t shards_count = parts->plan->fragments[f].shards_count, count = 0;
    (void)version; /* all alike while there is one epoch */
    for (uint32_t owner = 0; owner < SHARDMAP_OWNERS_MAX; owner++) {
        struct plan_share share;
        uint64_t shards = 0;
        for (uint32_t s = 0; s < shards_count; s++)
            if (parts->map.owner[shardmap_slot(f, shards_count, s)] == owner)
                shards |= (uint64_t)1 << s;
        plan_share(parts->plan, f, shards, &share);
        if (share.values_count > 0)
            out[count++] = (struct chain_part){.owner = owner, .shards = shards};
    }
    return count;
}

uint32_t parts_find(const struct parts *parts, uint32_t f, uint64_t version, uint64_t epoch, uint32_t owner,
                    struct chain_part *out)
{
    struct chain_part all[CHAIN_PARTS_MAX];
    uint32_t count = parts_of(parts, f, version, all);
    for (uint32_t p = 0; p < count; p++)
        if (all[p].owner == owner && all[p].epoch == epoch) {
            *out = all[p];
            return p;
        }
    return CHAIN_PARTS_MAX;
}

struct bitset parts_owners(const struct parts *parts, uint32_t f, uint64_t version)
{
    struct chain_part all[CHAIN_PARTS_MAX];
    struct bitset owners = {{0}};
    uint32_t count = parts_of(parts, f, version, all);
    for (uint32_t p = 0; p < count; p++)
        bitset_add(&owners, all[p].owner);
    return owners;
}

uint64_t parts_shards(const struct parts *parts, uint32_t f, uint64_t version, const struct bitset *owners)
{
    struct chain_part all[CHAIN_PARTS_MAX];
    uint64_t shards = 0;
    uint32_t count = parts_of(parts, f, version, all);
    for (uint32_t p = 0; p < count; p++)
        if (bitset_has(owners, all[p].owner))
            shards |= all[p].shards;
    return shards;
}
