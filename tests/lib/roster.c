/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/roster.h"

#include "tests/lib/testlib.h"

#include <stdio.h>

#include "common/mem.h"
#include "tests/lib/sample_configs.h"

uint32_t roster_id(uint32_t number)
{
    return 10 * number + 3;
}

uint32_t roster_number(uint32_t id)
{
    return id / 10;
}

struct config roster_config(uint32_t count)
{
    struct config config = {.nonce = "the nonce of it", .steps = 1000, .map = shardmap_empty()};
    for (uint32_t i = 0; i < count; i++)
        roster_join(&config, i, i < SHARDMAP_OWNERS_MAX ? CONFIG_OWNER : CONFIG_CONTRIBUTOR);
    roster_map_owners(&config);
    return config;
}

struct config roster_next(const struct config_log *config_log)
{
    struct config config;
    assert_ok(config_copy(config_log_last(config_log), &config));
    config.epoch++;
    config.previous = *config_log_last_digest(config_log);
    mem_free(config.carried);
    config.carried = NULL;
    config.carried_count = config.orders_count = config.words_count = 0;
    return config;
}

static struct config_member *member(struct config *config, uint32_t number)
{
    for (uint32_t i = 0; i < config->members_count; i++)
        if (config->members[i].id == roster_id(number))
            return &config->members[i];
    fail_msg("member %u is none", number);
    return NULL;
}

void roster_join(struct config *config, uint32_t number, enum config_role role)
{
    struct config_member *one = configs_row(config, roster_id(number), role);
    one->uplink = 1000000;
    snprintf(one->name, sizeof one->name, "m%u", number);
}

void roster_role(struct config *config, uint32_t number, enum config_role role, bool voter)
{
    struct config_member *one = member(config, number);
    one->role = (uint8_t)role;
    one->voter = voter;
}

void roster_map(struct config *config, const uint32_t *numbers, uint32_t count)
{
    struct shardmap_owner owners[SHARDMAP_OWNERS_MAX];
    assert_true(count > 0 && count <= SHARDMAP_OWNERS_MAX);
    for (uint32_t i = 0; i < count; i++)
        owners[i] = (struct shardmap_owner){.id = roster_id(numbers[i]), .weight = 1};
    shardmap_assign(&config->map, owners, count);
}

void roster_map_owners(struct config *config)
{
    uint32_t numbers[SHARDMAP_OWNERS_MAX], count = 0;
    for (uint32_t i = 0; i < config->members_count; i++)
        if (config->members[i].role == CONFIG_OWNER)
            numbers[count++] = roster_number(config->members[i].id);
    roster_map(config, numbers, count);
}

void roster_carry(struct config *config, uint32_t fragment, uint32_t number, uint64_t epoch, uint64_t shards,
                  const struct digest *digest)
{
    struct part_result carried = {{fragment, roster_id(number), config_start(config, fragment) + 1, epoch, *digest},
                                  shards};
    configs_carry_one(config, &carried);
}

void roster_add(struct config_log *config_log, struct config *config)
{
    struct digest digest = configs_digest(config);
    assert_ok(config_log_add(config_log, config, &digest));
}

struct sync_view roster_view(const struct config_log *config_log, uint32_t self, const uint32_t *ids, uint32_t slots)
{
    const struct config *config = config_log_last(config_log);
    struct sync_view view = {.epoch = config->epoch, .self = self, .slots = slots, .ids = ids};
    view.commit_quorum = config_commit_quorum(config);
    view.paused = config->paused;
    for (uint32_t slot = 0; slot < slots; slot++) {
        const struct config_member *one = config_member(config, ids[slot]);
        if (one == NULL)
            continue;
        bitset_add(&view.members, slot);
        if (one->role == CONFIG_OWNER || one->role == CONFIG_CONTRIBUTOR || one->role == CONFIG_DRAINING)
            bitset_add(&view.taking_part, slot);
        if (one->role == CONFIG_WITNESS)
            bitset_add(&view.witness, slot);
        else if (one->voter)
            bitset_add(&view.keepers, slot);
    }
    view.votes = bitset_has(&view.keepers, self);
    return view;
}
