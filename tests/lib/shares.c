/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/shares.h"

#include "tests/lib/roster.h"
#include "tests/lib/testlib.h"

struct config shares_config(const uint64_t *weights, uint32_t count)
{
    struct shardmap_owner owners[SHARDMAP_OWNERS_MAX];
    struct config config = roster_config(count);
    for (uint32_t i = 0; i < count; i++)
        owners[i] = (struct shardmap_owner){.id = roster_id(i), .weight = weights[i]};
    config.map = shardmap_empty();
    shardmap_assign(&config.map, owners, count);
    return config;
}

struct config_log *shares_config_log(const uint64_t *weights, uint32_t count)
{
    struct config_log *config_log;
    struct config config = shares_config(weights, count);
    assert_ok(config_log_new(&config_log));
    roster_add(config_log, &config);
    return config_log;
}

uint32_t shares_id(const struct parts *parts, uint32_t member)
{
    const struct config *config = config_log_at(parts->config_log, 0);
    assert_true(config != NULL && member < config->members_count);
    return config->members[member].id;
}

struct bitset shares_owners(const struct parts *parts, uint32_t f)
{
    struct bitset owners = {{0}};
    for (uint32_t i = 0; i < config_log_at(parts->config_log, 0)->members_count; i++)
        if (shares_mask(parts, f, i) != 0)
            bitset_add(&owners, i);
    return owners;
}

uint64_t shares_masks(const struct parts *parts, uint32_t f, const struct bitset *members)
{
    uint64_t shards = 0;
    for (uint32_t i = 0; i < config_log_at(parts->config_log, 0)->members_count; i++)
        shards |= bitset_has(members, i) ? shares_mask(parts, f, i) : 0;
    return shards;
}

uint64_t shares_mask(const struct parts *parts, uint32_t f, uint32_t member)
{
    struct version_part part = {0};
    parts_find(parts, f, 1, 0, shares_id(parts, member), &part);
    return part.shards;
}

uint32_t shares_part(const struct parts *parts, uint32_t f, uint32_t member)
{
    struct version_part part;
    return parts_find(parts, f, 1, 0, shares_id(parts, member), &part);
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
    for (uint32_t f = 0; f < parts->plan->fragments_count; f++) {
        struct version_part all[VERSION_PARTS_MAX];
        uint64_t masks[VERSION_PARTS_MAX];
        uint32_t count = parts_of(parts, f, 1, all);
        for (uint32_t p = 0; p < count; p++)
            masks[p] = all[p].shards;
        TRY(replica_cut(replica, f, masks, count, shares_mask(parts, f, self)));
    }
    return ERR_OK;
}
