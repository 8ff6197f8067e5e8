/* SPDX-License-Identifier: Apache-2.0 */
#include "common/shardmap.h"

#include <stdbool.h>

struct shardmap shardmap_empty(void)
{
    struct shardmap map;
    for (int i = 0; i < SHARDMAP_SLOTS; i++)
        map.owner[i] = SHARDMAP_NOBODY;
    return map;
}

/* Largest remainder (Hamilton): the whole parts first, then one each to the largest remainders, of equal ones to the
 * first. */
static void make_quotas(const struct shardmap_owner *owners, uint32_t count, uint32_t *quota)
{
    unsigned __int128 total = 0;
    unsigned __int128 remainder[SHARDMAP_OWNERS_MAX];
    uint32_t given = 0;
    for (uint32_t i = 0; i < count; i++)
        total += owners[i].weight;
    bool equal = total == 0;
    if (equal)
        total = count;
    for (uint32_t i = 0; i < count; i++) {
        unsigned __int128 share = (unsigned __int128)(equal ? 1 : owners[i].weight) * SHARDMAP_SLOTS;
        quota[i] = (uint32_t)(share / total);
        remainder[i] = share % total;
        given += quota[i];
    }
    for (; given < SHARDMAP_SLOTS; given++) {
        uint32_t best = 0;
        for (uint32_t i = 1; i < count; i++)
            best = remainder[i] > remainder[best] ? i : best;
        quota[best]++;
        remainder[best] = 0;
    }
}

static uint32_t index_of(const struct shardmap_owner *owners, uint32_t count, uint32_t id)
{
    uint32_t i = 0;
    while (i < count && owners[i].id != id)
        i++;
    return i;
}

/* Takes away what is more than a quota, from the end, and what belongs to nobody who is there. */
static void free_slots(struct shardmap *map, const struct shardmap_owner *owners, uint32_t count, uint32_t *quota)
{
    for (uint32_t slot = 0; slot < SHARDMAP_SLOTS; slot++) {
        uint32_t i = index_of(owners, count, map->owner[slot]);
        if (i < count && quota[i] > 0)
            quota[i]--; /* from here on: how many it is still to get */
        else
            map->owner[slot] = SHARDMAP_NOBODY;
    }
}

/* Whoever owns the slot before or after and is still to get some; else the first who is. */
static uint32_t next_owner(const struct shardmap *map, uint32_t slot, const struct shardmap_owner *owners,
                           uint32_t count, const uint32_t *wanting)
{
    uint32_t before = slot > 0 ? index_of(owners, count, map->owner[slot - 1]) : count;
    uint32_t after = slot + 1 < SHARDMAP_SLOTS ? index_of(owners, count, map->owner[slot + 1]) : count;
    if (before < count && wanting[before] > 0)
        return before;
    if (after < count && wanting[after] > 0)
        return after;
    uint32_t first = 0;
    while (wanting[first] == 0)
        first++;
    return first;
}

void shardmap_assign(struct shardmap *map, const struct shardmap_owner *owners, uint32_t owners_count)
{
    uint32_t wanting[SHARDMAP_OWNERS_MAX];
    make_quotas(owners, owners_count, wanting);
    free_slots(map, owners, owners_count, wanting);
    for (uint32_t slot = 0; slot < SHARDMAP_SLOTS; slot++) {
        if (map->owner[slot] != SHARDMAP_NOBODY)
            continue;
        uint32_t i = next_owner(map, slot, owners, owners_count, wanting);
        map->owner[slot] = owners[i].id;
        wanting[i]--;
    }
}

struct shardmap shardmap_of(const uint64_t *weights, uint32_t count)
{
    struct shardmap map = shardmap_empty();
    struct shardmap_owner owners[SHARDMAP_OWNERS_MAX];
    for (uint32_t i = 0; i < count; i++)
        owners[i] = (struct shardmap_owner){.id = i, .weight = weights[i]};
    shardmap_assign(&map, owners, count);
    return map;
}

/* The bits of a number below SHARDMAP_SLOTS, turned around: 0, 32, 16, 48, 8 … */
static uint32_t turned_around(uint32_t number)
{
    uint32_t out = 0;
    for (uint32_t bit = 1; bit < SHARDMAP_SLOTS; bit <<= 1) {
        out = out << 1 | ((number & bit) != 0);
    }
    return out;
}

uint32_t shardmap_slot(uint32_t fragment, uint32_t shards_count, uint32_t shard)
{
    uint32_t stride = SHARDMAP_SLOTS / shards_count; /* what is free between two shards */
    return shard * SHARDMAP_SLOTS / shards_count + turned_around(fragment % SHARDMAP_SLOTS) * stride / SHARDMAP_SLOTS;
}
