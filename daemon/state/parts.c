/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/state/parts.h"

_Static_assert((int)PLAN_SHARDS_MAX == (int)SHARDMAP_SLOTS, "a shard has a slot");

uint64_t parts_filled(const struct plan *plan, uint32_t f)
{
    uint64_t filled = 0;
    for (uint32_t s = 0; s < plan->fragments[f].shards_count; s++) {
        struct plan_shard shard = plan_shard(plan, f, s);
        if (shard.end > shard.begin)
            filled |= (uint64_t)1 << s;
    }
    return filled;
}

uint32_t parts_of(const struct parts *parts, uint32_t f, uint64_t version, struct version_part out[VERSION_PARTS_MAX])
{
    uint32_t count = config_log_parts(parts->config_log, f, parts->plan->fragments[f].shards_count, version, out),
             kept = 0;
    uint64_t filled = parts_filled(parts->plan, f);
    for (uint32_t p = 0; p < count; p++)
        if ((out[p].shards & filled) != 0)
            out[kept++] = out[p];
    return kept;
}

uint32_t parts_usual(const struct parts *parts, uint32_t f, struct version_part out[VERSION_PARTS_MAX])
{
    return parts_of(parts, f, config_start(config_log_last(parts->config_log), f) + 2, out);
}

uint32_t parts_find(const struct parts *parts, uint32_t f, uint64_t version, uint64_t epoch, uint32_t owner,
                    struct version_part *out)
{
    struct version_part all[VERSION_PARTS_MAX];
    uint32_t count = parts_of(parts, f, version, all);
    for (uint32_t p = 0; p < count; p++)
        if (all[p].id.owner == owner && all[p].id.epoch == epoch) {
            *out = all[p];
            return p;
        }
    return VERSION_PARTS_MAX;
}

const uint8_t *parts_owner_key(const struct parts *parts, uint64_t epoch, uint32_t owner)
{
    const struct config *config = config_log_at(parts->config_log, epoch);
    const struct config_member *member = config != NULL ? config_member(config, owner) : NULL;
    return member != NULL ? member->key : NULL;
}
