/* SPDX-License-Identifier: Apache-2.0 */
#include "net/config/chain.h"

#include <inttypes.h>
#include <string.h>

#include "common/mem.h"

enum { ROOM_FIRST = 8 };

struct link_of {
    struct record record;
    struct digest digest;
};

struct chain {
    struct link_of *links; /* by epoch, without a gap */
    uint32_t count, room;
};

enum err chain_new(struct chain **out)
{
    return mem_new(1, sizeof **out, "the chain of records", out);
}

void chain_free(struct chain *chain)
{
    if (chain == NULL)
        return;
    for (uint32_t i = 0; i < chain->count; i++)
        record_deinit(&chain->links[i].record);
    mem_free(chain->links);
    mem_free(chain);
}

static enum err make_room(struct chain *chain)
{
    uint32_t room = chain->room > 0 ? 2 * chain->room : ROOM_FIRST;
    if (chain->count < chain->room)
        return ERR_OK;
    if (chain->links == NULL)
        TRY(mem_new(room, sizeof *chain->links, "the chain of records", &chain->links));
    else
        TRY(mem_grow(&chain->links, chain->room, room, sizeof *chain->links, "the chain of records"));
    chain->room = room;
    return ERR_OK;
}

enum err chain_add(struct chain *chain, struct record *record, const struct digest *digest)
{
    if (chain->count > 0)
        TRY(record_follows(chain_last(chain), chain_last_digest(chain), record));
    TRY(make_room(chain));
    chain->links[chain->count++] = (struct link_of){.record = *record, .digest = *digest};
    memset(record, 0, sizeof *record);
    return ERR_OK;
}

void chain_forget(struct chain *chain, uint64_t epoch)
{
    uint32_t gone = 0;
    while (gone + 1 < chain->count && chain->links[gone].record.epoch < epoch)
        record_deinit(&chain->links[gone++].record);
    if (gone == 0)
        return;
    chain->count -= gone;
    memmove(chain->links, chain->links + gone, chain->count * sizeof *chain->links);
}

const struct record *chain_last(const struct chain *chain)
{
    return chain->count > 0 ? &chain->links[chain->count - 1].record : NULL;
}

const struct digest *chain_last_digest(const struct chain *chain)
{
    return chain->count > 0 ? &chain->links[chain->count - 1].digest : NULL;
}

const struct record *chain_at(const struct chain *chain, uint64_t epoch)
{
    if (chain->count == 0 || epoch < chain->links[0].record.epoch ||
        epoch - chain->links[0].record.epoch >= chain->count)
        return NULL;
    return &chain->links[epoch - chain->links[0].record.epoch].record;
}

/* The record to which a version belongs; NULL: it is before those that are known. */
static const struct record *record_of(const struct chain *chain, uint32_t fragment, uint64_t version)
{
    for (uint32_t i = chain->count; i-- > 0;)
        if (record_start(&chain->links[i].record, fragment) < version)
            return &chain->links[i].record;
    bool beginning = version == 0 && chain->count > 0 && record_start(&chain->links[0].record, fragment) == 0;
    return beginning ? &chain->links[0].record : NULL;
}

bool chain_epoch(const struct chain *chain, uint32_t fragment, uint64_t version, uint64_t *epoch)
{
    const struct record *record = record_of(chain, fragment, version);
    if (record == NULL)
        return false;
    *epoch = record->epoch;
    return true;
}

/* Puts the results that a record carries into its first version. Returns the shards that are left. */
static uint64_t take_carried(const struct record *record, uint32_t fragment, uint64_t shards, struct chain_part *parts,
                             uint32_t *count)
{
    uint32_t carried_count;
    const struct part_result *carried = record_carried(record, fragment, &carried_count);
    for (uint32_t i = 0; i < carried_count; i++) {
        uint64_t these = carried[i].shards & shards; /* a record does not know how many a fragment has */
        if (these == 0)
            continue;
        parts[(*count)++] = (struct chain_part){.id = carried[i].id, .shards = these, .carried = true};
        shards &= ~these;
    }
    return shards;
}

/* The place of the owner's part that makes `result`, behind the first `from`, in order of owner; made if it is not
 * there yet. */
static struct chain_part *part_of(struct chain_part *parts, uint32_t from, uint32_t *count,
                                  const struct result_id *result)
{
    uint32_t at = from;
    while (at < *count && parts[at].id.owner < result->owner)
        at++;
    if (at < *count && parts[at].id.owner == result->owner)
        return &parts[at];
    memmove(parts + at + 1, parts + at, (*count - at) * sizeof *parts);
    parts[at] = (struct chain_part){.id = *result};
    ++*count;
    return &parts[at];
}

uint32_t chain_parts(const struct chain *chain, uint32_t fragment, uint32_t shards_count, uint64_t version,
                     struct chain_part parts[CHAIN_PARTS_MAX])
{
    const struct record *record = record_of(chain, fragment, version);
    uint32_t carried = 0;
    if (record == NULL || version == 0 || shards_count == 0 || shards_count > SHARDMAP_SLOTS)
        return 0;
    uint64_t left = UINT64_MAX >> (SHARDMAP_SLOTS - shards_count);
    if (version == record_start(record, fragment) + 1)
        left = take_carried(record, fragment, left, parts, &carried);
    uint32_t count = carried;
    for (uint32_t shard = 0; shard < shards_count; shard++) {
        struct result_id made = {.fragment = fragment,
                                 .owner = record->map.owner[shardmap_slot(fragment, shards_count, shard)],
                                 .version = version,
                                 .epoch = record->epoch};
        if ((left >> shard & 1) == 0)
            continue;
        if (made.owner == SHARDMAP_NOBODY && carried == 0)
            return 0;
        part_of(parts, carried, &count, &made)->shards |= (uint64_t)1 << shard;
    }
    return count;
}
