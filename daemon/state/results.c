#include "daemon/state/results.h"

enum err result_open(struct ledger *ledger, uint32_t f, uint64_t version, uint32_t shard, struct result *out)
{
    *out = (struct result){.frame = NULL};
    TRY(ledger_map(ledger, f, version, shard, &out->map));
    enum err err =
        wire_object_open(WIRE_RESULT, out->map.object, out->map.bytes, &out->meta, &out->frame, &out->frame_bytes);
    if (err != ERR_OK)
        result_close(out);
    return err;
}

void result_close(struct result *result)
{
    ledger_unmap(&result->map);
}

bool result_counts(const struct wire_meta *meta, uint32_t member)
{
    for (uint32_t i = 0; i < meta->contributors_count; i++)
        if (meta->contributors[i].island == member)
            return true;
    return false;
}

struct bitset results_counting(struct ledger *ledger, uint32_t f, uint64_t version, const struct bitset *shards,
                               uint32_t member)
{
    struct bitset counting = {{0}};
    for (uint32_t s = 0; s < WIRE_MEMBERS_MAX; s++) {
        struct result result;
        if (!bitset_has(shards, s))
            continue;
        if (result_open(ledger, f, version, s, &result) != ERR_OK) {
            bitset_add(&counting, s);
            continue;
        }
        if (result_counts(&result.meta, member))
            bitset_add(&counting, s);
        result_close(&result);
    }
    return counting;
}

struct bitset results_held(struct ledger *ledger, uint32_t f, uint64_t version, uint32_t shards_count)
{
    struct bitset held = {{0}};
    for (uint32_t s = 0; s < shards_count; s++)
        if (ledger_has(ledger, f, version, s))
            bitset_add(&held, s);
    return held;
}
