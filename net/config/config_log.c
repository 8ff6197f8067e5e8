/* SPDX-License-Identifier: Apache-2.0 */
#include "net/config/config_log.h"

#include <inttypes.h>
#include <string.h>

#include "common/mem.h"

enum { ROOM_FIRST = 8 };

struct link_of {
    struct config config;
    struct digest digest;
};

struct config_log {
    struct link_of *links; /* by epoch, without a gap */
    uint32_t count, room;
};

enum err config_log_new(struct config_log **out)
{
    return mem_new(1, sizeof **out, "the config log", out);
}

void config_log_free(struct config_log *config_log)
{
    if (config_log == NULL)
        return;
    for (uint32_t i = 0; i < config_log->count; i++)
        config_deinit(&config_log->links[i].config);
    mem_free(config_log->links);
    mem_free(config_log);
}

static enum err make_room(struct config_log *config_log)
{
    uint32_t room = config_log->room > 0 ? 2 * config_log->room : ROOM_FIRST;
    if (config_log->count < config_log->room)
        return ERR_OK;
    if (config_log->links == NULL)
        TRY(mem_new(room, sizeof *config_log->links, "the config log", &config_log->links));
    else
        TRY(mem_grow(&config_log->links, config_log->room, room, sizeof *config_log->links, "the config log"));
    config_log->room = room;
    return ERR_OK;
}

enum err config_log_add(struct config_log *config_log, struct config *config, const struct digest *digest)
{
    if (config_log->count > 0)
        TRY(config_follows(config_log_last(config_log), config_log_last_digest(config_log), config));
    TRY(make_room(config_log));
    config_log->links[config_log->count++] = (struct link_of){.config = *config, .digest = *digest};
    memset(config, 0, sizeof *config);
    return ERR_OK;
}

void config_log_forget(struct config_log *config_log, uint64_t epoch)
{
    uint32_t gone = 0;
    while (gone + 1 < config_log->count && config_log->links[gone].config.epoch < epoch)
        config_deinit(&config_log->links[gone++].config);
    if (gone == 0)
        return;
    config_log->count -= gone;
    memmove(config_log->links, config_log->links + gone, config_log->count * sizeof *config_log->links);
}

const struct config *config_log_last(const struct config_log *config_log)
{
    return config_log->count > 0 ? &config_log->links[config_log->count - 1].config : NULL;
}

const struct digest *config_log_last_digest(const struct config_log *config_log)
{
    return config_log->count > 0 ? &config_log->links[config_log->count - 1].digest : NULL;
}

const struct config *config_log_at(const struct config_log *config_log, uint64_t epoch)
{
    if (config_log->count == 0 || epoch < config_log->links[0].config.epoch ||
        epoch - config_log->links[0].config.epoch >= config_log->count)
        return NULL;
    return &config_log->links[epoch - config_log->links[0].config.epoch].config;
}

/* The configuration to which a version belongs; NULL: it is before those that are known. */
static const struct config *config_of(const struct config_log *config_log, uint32_t fragment, uint64_t version)
{
    for (uint32_t i = config_log->count; i-- > 0;)
        if (config_start(&config_log->links[i].config, fragment) < version)
            return &config_log->links[i].config;
    bool beginning = version == 0 && config_log->count > 0 && config_start(&config_log->links[0].config, fragment) == 0;
    return beginning ? &config_log->links[0].config : NULL;
}

bool config_log_epoch(const struct config_log *config_log, uint32_t fragment, uint64_t version, uint64_t *epoch)
{
    const struct config *config = config_of(config_log, fragment, version);
    if (config == NULL)
        return false;
    *epoch = config->epoch;
    return true;
}

/* Puts the results that a configuration carries into its first version. Returns the shards that are left. */
static uint64_t take_carried(const struct config *config, uint32_t fragment, uint64_t shards,
                             struct version_part *parts, uint32_t *count)
{
    uint32_t carried_count;
    const struct part_result *carried = config_carried(config, fragment, &carried_count);
    for (uint32_t i = 0; i < carried_count; i++) {
        uint64_t these = carried[i].shards & shards; /* a configuration does not know how many a fragment has */
        if (these == 0)
            continue;
        parts[(*count)++] = (struct version_part){.id = carried[i].id, .shards = these, .carried = true};
        shards &= ~these;
    }
    return shards;
}

/* The place of the owner's part that makes `result`, behind the first `from`, in order of owner; made if it is not
 * there yet. */
static struct version_part *part_of(struct version_part *parts, uint32_t from, uint32_t *count,
                                    const struct result_id *result)
{
    uint32_t at = from;
    while (at < *count && parts[at].id.owner < result->owner)
        at++;
    if (at < *count && parts[at].id.owner == result->owner)
        return &parts[at];
    memmove(parts + at + 1, parts + at, (*count - at) * sizeof *parts);
    parts[at] = (struct version_part){.id = *result};
    ++*count;
    return &parts[at];
}

uint32_t config_log_parts(const struct config_log *config_log, uint32_t fragment, uint32_t shards_count,
                          uint64_t version, struct version_part parts[VERSION_PARTS_MAX])
{
    const struct config *config = config_of(config_log, fragment, version);
    uint32_t carried = 0;
    if (config == NULL || version == 0 || shards_count == 0 || shards_count > SHARDMAP_SLOTS)
        return 0;
    uint64_t left = UINT64_MAX >> (SHARDMAP_SLOTS - shards_count);
    if (version == config_start(config, fragment) + 1)
        left = take_carried(config, fragment, left, parts, &carried);
    uint32_t count = carried;
    for (uint32_t shard = 0; shard < shards_count; shard++) {
        struct result_id made = {.fragment = fragment,
                                 .owner = config->map.owner[shardmap_slot(fragment, shards_count, shard)],
                                 .version = version,
                                 .epoch = config->epoch};
        if ((left >> shard & 1) == 0)
            continue;
        if (made.owner == SHARDMAP_NOBODY && carried == 0)
            return 0;
        part_of(parts, carried, &count, &made)->shards |= (uint64_t)1 << shard;
    }
    return count;
}
