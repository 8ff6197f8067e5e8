#include "tests/lib/shares.h"

#include "tests/lib/testlib.h"

uint64_t shares_mask(const struct parts *parts, uint32_t f, uint32_t member)
{
    struct chain_part part = {0};
    parts_find(parts, f, 1, 0, member, &part);
    return part.shards;
}

uint32_t shares_part(const struct parts *parts, uint32_t f, uint32_t member)
{
    struct chain_part part;
    return parts_find(parts, f, 1, 0, member, &part);
}

struct plan_shard shares_run(const struct parts *parts, uint32_t f, uint32_t member)
{
    struct plan_share share;
    plan_share(parts->plan, f, shares_mask(parts, f, member), &share);
    assert_true(share.runs_count <= 1);
    return share.runs_count > 0 ? share.run[0] : (struct plan_shard){0};
}

uint32_t shares_first(const struct parts *parts, uint32_t f, uint32_t member)
{
    uint64_t shards = shares_mask(parts, f, member);
    uint32_t first = 0;
    while (first < parts->plan->fragments[f].shards_count && (shards >> first & 1) == 0)
        first++;
    return first;
}

enum err shares_cut(const struct parts *parts, struct replica *replica, uint32_t self)
{
    TRY(replica_members(replica, SHARDMAP_OWNERS_MAX));
    for (uint32_t f = 0; f < parts->plan->fragments_count; f++) {
        struct chain_part all[CHAIN_PARTS_MAX];
        uint64_t masks[CHAIN_PARTS_MAX];
        uint32_t count = parts_of(parts, f, 1, all);
        for (uint32_t p = 0; p < count; p++)
            masks[p] = all[p].shards;
        TRY(replica_cut(replica, f, masks, count, shares_mask(parts, f, self)));
    }
    return ERR_OK;
}
