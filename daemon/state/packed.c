/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/state/packed.h"

#include <string.h>

#include "common/mem.h"

enum err packed_new(const struct plan *plan, uint32_t f, uint64_t shards, const char *what, struct packed *out)
{
    struct plan_share share;
    *out = (struct packed){0};
    plan_share(plan, f, shards, &share);
    if (share.values_count > 0)
        TRY(mem_pages_new((size_t)share.values_count, sizeof(float), what, &out->values));
    out->count = (size_t)share.values_count;
    out->shards = shards;
    return ERR_OK;
}

void packed_deinit(struct packed *packed)
{
    mem_pages_free(packed->values, packed->count, sizeof(float));
    *packed = (struct packed){0};
}

void packed_copy(const struct plan *plan, uint32_t f, const struct packed *from, struct packed *to)
{
    size_t from_at = 0, to_at = 0;
    for (uint32_t s = 0; s < plan->fragments[f].shards_count; s++) {
        struct plan_shard shard = plan_shard(plan, f, s);
        size_t count = (size_t)(shard.end - shard.begin);
        bool in_from = (from->shards >> s & 1) != 0, in_to = (to->shards >> s & 1) != 0;
        if (in_from && in_to && count > 0)
            memcpy(to->values + to_at, from->values + from_at, count * sizeof *to->values);
        from_at += in_from ? count : 0;
        to_at += in_to ? count : 0;
    }
}

void packed_move(const struct plan *plan, uint32_t f, struct packed *from, struct packed *to)
{
    if (from->shards != to->shards) {
        packed_copy(plan, f, from, to);
        return;
    }
    float *old = to->values;
    to->values = from->values;
    from->values = old;
}

void packed_clear(const struct plan *plan, uint32_t f, struct packed *packed, uint64_t shards)
{
    uint64_t at = 0;
    for (uint32_t s = 0; packed->values != NULL && s < PLAN_SHARDS_MAX; s++) {
        if ((packed->shards >> s & 1) == 0)
            continue;
        struct plan_shard shard = plan_shard(plan, f, s);
        size_t count = (size_t)(shard.end - shard.begin);
        if ((shards >> s & 1) != 0)
            mem_pages_clear(packed->values + at, count * sizeof(float));
        at += count;
    }
}
