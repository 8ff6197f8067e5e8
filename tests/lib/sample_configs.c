/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/sample_configs.h"

#include "net/config/config_proof.h"
#include "tests/lib/testlib.h"

#include <stdio.h>
#include <string.h>

#include "common/mem.h"

const struct ident *configs_ident(uint32_t id)
{
    static struct ident idents[CONFIGS_IDENTS];
    assert_true(id < CONFIGS_IDENTS);
    if (idents[id].public_text[0] == '\0')
        assert_ok(ident_generate(&idents[id]));
    return &idents[id];
}

struct config_member *configs_row(struct config *config, uint32_t id, enum config_role role)
{
    uint32_t count = config->members_count++;
    if (count == 0)
        assert_ok(mem_new(1, sizeof *config->members, "members", &config->members));
    else
        assert_ok(mem_grow(&config->members, count, count + 1, sizeof *config->members, "members"));
    assert_true(id >= config->next_id);
    struct config_member *member = &config->members[count];
    *member = (struct config_member){.id = id, .role = (uint8_t)role};
    member->voter = role == CONFIG_OWNER || role == CONFIG_WITNESS;
    config->next_id = id + 1;
    return member;
}

struct config_member *configs_add(struct config *config, enum config_role role)
{
    uint32_t id = config->next_id;
    struct config_member *member = configs_row(config, id, role);
    member->uplink = 1000000000;
    member->incarnation = id + 1;
    snprintf(member->name, sizeof member->name, "m%u", id);
    snprintf(member->address, sizeof member->address, "m%u.example:%u", id, 7000 + id);
    memcpy(member->key, configs_ident(id)->key, IDENT_KEY_BYTES);
    return member;
}

void configs_map(struct config *config, const uint32_t *ids, uint32_t count)
{
    config->map = shardmap_empty();
    for (uint32_t i = 0; i < config->members_count; i++) {
        struct config_member *member = &config->members[i];
        bool owner = false;
        for (uint32_t k = 0; k < count; k++)
            owner = owner || ids[k] == member->id;
        if (owner) {
            member->role = CONFIG_OWNER;
            member->voter = true;
        } else if (member->role == CONFIG_OWNER) {
            member->role = CONFIG_CONTRIBUTOR;
            member->voter = false;
        }
    }
    for (uint32_t slot = 0; slot < SHARDMAP_SLOTS && count > 0; slot++)
        config->map.owner[slot] = ids[slot * count / SHARDMAP_SLOTS];
}

struct config configs_first(uint32_t owners, bool witness)
{
    struct config config = {.nonce = "the nonce of it", .steps = 1000};
    uint32_t ids[CONFIG_OWNERS_MAX] = {0};
    for (uint32_t i = 0; i < owners; i++)
        ids[i] = configs_add(&config, CONFIG_OWNER)->id;
    if (witness)
        configs_add(&config, CONFIG_WITNESS);
    configs_map(&config, ids, owners);
    if (owners > 0)
        config.members[0].operates = true; /* the founder */
    return config;
}

struct digest configs_digest(const struct config *config)
{
    uint8_t *bytes;
    size_t count;
    assert_ok(config_pack(config, &bytes, &count));
    struct digest digest = config_digest(bytes, count);
    mem_free(bytes);
    return digest;
}

struct config configs_next(const struct config *config)
{
    struct config next;
    assert_ok(config_copy(config, &next));
    next.epoch++;
    next.previous = configs_digest(config);
    next.orders_count = next.words_count = 0;
    return next;
}

void configs_start(struct config *config, uint32_t fragment, uint64_t version)
{
    if (config->starts_count == 0)
        assert_ok(mem_new(fragment + 1, sizeof *config->starts, "starts", &config->starts));
    else if (fragment >= config->starts_count)
        assert_ok(mem_grow(&config->starts, config->starts_count, fragment + 1, sizeof *config->starts, "starts"));
    if (fragment >= config->starts_count)
        config->starts_count = fragment + 1;
    config->starts[fragment] = version;
}

void configs_carry_one(struct config *config, const struct part_result *carried)
{
    uint32_t count = config->carried_count++, at = 0;
    if (count == 0)
        assert_ok(mem_new(1, sizeof *carried, "carried", &config->carried));
    else
        assert_ok(mem_grow(&config->carried, count, count + 1, sizeof *carried, "carried"));
    while (at < count && result_id_order(&config->carried[at].id, &carried->id) < 0)
        at++;
    memmove(&config->carried[at + 1], &config->carried[at], (count - at) * sizeof *carried);
    config->carried[at] = *carried;
}

void configs_carry(struct config *config, uint32_t fragment, uint32_t owner, uint64_t epoch, uint64_t shards)
{
    struct part_result carried = {{fragment, owner, config_start(config, fragment) + 1, epoch, {{0}}}, shards};
    carried.id.digest = digest_of(&carried, sizeof carried);
    configs_carry_one(config, &carried);
}

struct config_vote configs_vote(uint32_t id, const struct config *config, uint64_t ballot)
{
    struct config_vote vote = {.id = id, .ballot = ballot};
    struct digest digest = configs_digest(config);
    config_vote_sign(configs_ident(id), config->nonce, config->epoch, ballot, &digest, vote.signature);
    return vote;
}
