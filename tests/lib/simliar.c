/* SPDX-License-Identifier: Apache-2.0 */
/* A member with a good key that lies, until the world heals. */
#include "tests/lib/simworld.h"

#include <stdlib.h>
#include <string.h>

#include "common/mem.h"
#include "net/config/owners.h"
#include "net/membership/evidence.h"
#include "net/transport/wire_object.h"

/* In rough worlds it says things in heartbeats now and then only, so that lie and truth follow each other. In a steady
 * one it begins when there have been some rounds, and everybody votes. */
enum { FAR_AHEAD = 1000000, DRAFT_AHEAD = 1000, SPELL_MS = 700, DRAFT_MS = 4000, ORDER_MS = 1000 };

bool sim_is_liar(uint32_t i)
{
    return (sim->lie != SIM_HONEST && i == sim->liar) || (sim->second_lie != SIM_HONEST && i == sim->second);
}

bool sim_lies(uint32_t i, enum sim_lie lie)
{
    bool spell = lie > SIM_LIE_HELD || (sim->now_ms / SPELL_MS * 2654435761u + sim->seed) % 7 < 2;
    spell = sim->steady ? sim->lying : spell;
    bool its = (sim->lie == lie && i == sim->liar) || (sim->second_lie == lie && i == sim->second);
    return !sim->healing && lie != SIM_HONEST && its && spell;
}

uint32_t sim_lie_result(uint32_t to, uint32_t number)
{
    return to % 2 == 0 || sim_result(number)->owner != sim->liar ? number : sim_twin(number);
}

/* It holds a result of every part of the next version; none of them exists. */
static void hold_all(uint32_t i, struct wire_fragment *rows, struct wire_held *held, uint32_t *held_count)
{
    *held_count = 0;
    for (uint32_t f = 0; f < sim->fragments; f++) {
        const struct version_part *parts;
        uint32_t count = sync_parts(sim->island[i].sync, f, &parts);
        rows[f].held_first = *held_count;
        rows[f].held_count = count;
        for (uint32_t p = 0; p < count; p++) {
            struct wire_held *one = &held[(*held_count)++];
            one->owner = parts[p].id.owner;
            for (size_t b = 0; b < sizeof one->tag; b++)
                one->tag[b] = (uint8_t)sim_below(256);
        }
    }
}

/* To half of them it holds the other result of its part. */
static void hold_duplicate_key(uint32_t i, uint32_t to, const struct wire_fragment *rows, struct wire_held *held)
{
    const struct sim_island *island = &sim->island[i];
    for (uint32_t f = 0; f < sim->fragments; f++) {
        uint32_t own = sim_find(&island->disk, f, island->version[f] + 1, island->epoch, i);
        if (own == 0 || sim_lie_result(to, own) == own)
            continue;
        struct digest digest = sim_digest(sim_lie_result(to, own));
        for (uint32_t k = rows[f].held_first; k < rows[f].held_first + rows[f].held_count; k++)
            if (held[k].owner == sim_id(i))
                memcpy(held[k].tag, digest.byte, sizeof held[k].tag);
    }
}

void sim_lie_beat(uint32_t i, uint32_t to, struct wire_fragment *rows, struct wire_held *held, uint32_t *held_count)
{
    for (uint32_t f = 0; f < sim->fragments; f++) {
        bool ahead = sim_lies(i, SIM_LIE_VERSION) || sim_lies(i, SIM_LIE_DRAFT);
        if (ahead)
            rows[f].at.version += FAR_AHEAD;
        if (ahead && sim_chance(50))
            rows[f].at.contributed = rows[f].at.version + 1;
        if (sim_lies(i, SIM_LIE_HASH))
            rows[f].at.hash.byte[0] ^= 0x55;
    }
    if (sim_lies(i, SIM_LIE_HELD) && sim_chance(50))
        hold_all(i, rows, held, held_count);
    if (sim_lies(i, SIM_LIE_TWO_ACKS))
        hold_duplicate_key(i, to, rows, held);
}

/* Whom it would be rid of: all whom it already is, and the first other one that owns. */
static bool is_unwanted(uint32_t i, uint32_t k)
{
    bool before = false;
    for (uint32_t j = 0; j < k; j++) {
        const struct config_member *member = j != i ? config_member(sim_newest(), sim_id(j)) : NULL;
        before |= member != NULL && member->role == CONFIG_OWNER;
    }
    const struct config_member *member = config_member(sim_newest(), sim_id(k));
    return k != i && member != NULL && (member->role == CONFIG_AWAY || (member->role == CONFIG_OWNER && !before));
}

void sim_lie_silent(uint32_t i, uint32_t *ids, uint32_t *count)
{
    if (!sim_lies(i, SIM_LIE_NAMES) && !sim_lies(i, SIM_LIE_HIDES))
        return;
    *count = 0;
    for (uint32_t k = 0; k < sim->n; k++)
        if (is_unwanted(i, k))
            ids[(*count)++] = sim_id(k);
}

bool sim_lie_hides(uint32_t i, uint32_t to)
{
    return sim_lies(i, SIM_LIE_HIDES) && is_unwanted(i, to);
}

/* Of the next configuration, for one island: it starts far beyond it, and the liar owns all of it alone. */
static void draft_for(uint32_t i, uint32_t to, uint64_t *starts, struct config_member *alone, struct config *draft)
{
    struct ident ident = sim_ident(i);
    *alone = (struct config_member){.id = sim_id(i), .role = CONFIG_OWNER, .voter = true, .name = "liar", .uplink = 1};
    memcpy(alone->key, ident.key, sizeof alone->key);
    *draft = (struct config){.epoch = sim->island[to].epoch + 1,
                             .founder = CONFIG_NOBODY,
                             .next_id = sim_id(i) + 1,
                             .members = alone,
                             .members_count = 1,
                             .starts = starts,
                             .starts_count = sim->fragments};
    for (uint32_t f = 0; f < sim->fragments; f++)
        starts[f] = sim->island[to].version[f] + DRAFT_AHEAD;
    for (uint32_t slot = 0; slot < SHARDMAP_SLOTS; slot++)
        draft->map.owner[slot] = sim_id(i);
}

void sim_lie_draft(uint32_t i)
{
    uint64_t starts[SIM_F_MAX], counter = 1 + sim->now_ms / DRAFT_MS;
    if (!sim_lies(i, SIM_LIE_DRAFT) || sim->now_ms % DRAFT_MS >= SIM_STEP_MS)
        return;
    for (uint32_t to = 0; to < sim->n; to++) {
        struct config_member alone;
        struct config draft;
        struct paxos_message message = {.type = WIRE_PREPARE, .ballot = counter << 32 | sim_id(i)};
        uint8_t *bytes, *letter;
        size_t bytes_count, letter_bytes;
        if (to == i || !sim_knows(i, to))
            continue;
        draft_for(i, to, starts, &alone, &draft);
        assert_ok(config_check(&draft));
        assert_ok(config_pack(&draft, &bytes, &bytes_count));
        message.epoch = draft.epoch;
        message.bytes = bytes;
        message.bytes_count = bytes_count;
        assert_ok(wire_paxos_pack(&message, &letter, &letter_bytes));
        sim_send_letter(i, to, message.type, letter, letter_bytes);
        mem_free(letter);
        mem_free(bytes);
    }
}

/* Of each kind, signed by itself, or in the name of somebody who may. */
void sim_lie_order(uint32_t i)
{
    struct ident ident = sim_ident(i);
    if (!sim_lies(i, SIM_LIE_ORDER) || sim->now_ms % ORDER_MS >= SIM_STEP_MS)
        return;
    for (uint32_t to = 0; to < sim->n; to++) {
        struct order order = {.kind = ORDER_EVICT + (uint32_t)sim_below(ORDER_KINDS - ORDER_EVICT),
                              .number = 1 + sim->now_ms / ORDER_MS,
                              .epoch = sim->island[to].epoch};
        uint8_t *letter;
        size_t bytes;
        if (to == i || !sim_knows(i, to))
            continue;
        order.signer = sim_chance(50) ? sim_id(i) : sim_id(to);
        if (order_about_member(order.kind))
            order.subject = sim_chance(50) ? sim_id(i) : sim_id((uint32_t)sim_below(sim->n));
        order.value = order.kind == ORDER_STEPS ? 7 : 0;
        if (order.kind == ORDER_REKEY)
            memcpy(order.key, ident.key, sizeof order.key);
        order_sign(&ident, sim_newest()->nonce, &order);
        if (sim_chance(50)) /* as if many agreed */
            for (uint32_t k = 0; k < sim->n; k++)
                (void)order_add_approval(&order, &(struct order_approval){.id = sim_id(k)});
        struct paxos_message message = {.type = WIRE_ORDER, .order = &order};
        assert_ok(wire_paxos_pack(&message, &letter, &bytes));
        sim_send_letter(i, to, message.type, letter, bytes);
        mem_free(letter);
    }
}

/* What may be said of it is said by others: signed by a majority, ordered, or by itself. */
static bool is_endorsed(const struct config *config, uint32_t id)
{
    const struct config_member *member = config_member(config, id);
    if (member->draining || member->contributor)
        return true;
    for (uint32_t k = 0; k < config->orders_count; k++)
        if (config->orders[k].subject == id)
            return true;
    for (uint32_t k = 0; k < config->endorsements_count; k++)
        if (config->endorsements[k].member == id)
            return true;
    return false;
}

/* A voter but the liar of whom nothing is endorsed, while the liar owns; NULL: there is none. */
static struct config_member *victim_of(uint32_t i, struct config *config)
{
    const struct config_member *self = config_member(config, sim_id(i));
    struct config_member *victim = NULL;
    for (uint32_t k = 0, first = (uint32_t)sim_below(config->members_count); k < config->members_count; k++) {
        struct config_member *member = &config->members[(first + k) % config->members_count];
        if (member->voter && member->id != sim_id(i) && !is_endorsed(config, member->id))
            victim = member;
    }
    return self != NULL && self->role == CONFIG_OWNER ? victim : NULL;
}

/* It takes a vote and its shards, or the voter's disk, says that it was lost again and again, or takes a
 * slot. */
static bool take_from(uint32_t i, struct config *config)
{
    struct config_member *victim = victim_of(i, config);
    uint32_t way = (uint32_t)sim_below(4);
    if (victim == NULL)
        return false;
    if (way == 1)
        victim->incarnation++;
    else if (way == 2)
        victim->losses = CONFIG_LOSSES_MAX;
    else if (way == 3)
        config->map.owner[sim_below(SHARDMAP_SLOTS)] = sim_id(i);
    else if (victim->role != CONFIG_WITNESS) {
        victim->voter = sim_chance(50);
        victim->role = CONFIG_AWAY;
        config->map = sim_newest()->map;
        owners_share_out(config);
    } else {
        victim->voter = false;
    }
    return true;
}

static void say_more(uint32_t i, struct config *config)
{
    if (sim_chance(40) && take_from(i, config))
        return;
    struct config_member *member = &config->members[sim_below(config->members_count)];
    switch (sim_below(6)) {
    case 0: config->steps++; break;
    case 1: config->paused = !config->paused; break;
    case 2: member->contributor = !member->contributor; break;
    case 3: member->uplink++; break;
    case 4: config->next_id++; break;
    default:
        for (uint32_t k = 0; k < config->members_count; k++)
            if (config->members[k].id == sim_id(i))
                config->members[k].operates = true;
        config->founder = sim_id(i);
        break;
    }
}

/* Of what the liar has proposed in this world. */
static struct digest altered_digests[SIM_ALTERED_MAX];

bool sim_is_lie(const struct digest *digest)
{
    for (uint32_t k = 0; k < sim->altered_count && k < SIM_ALTERED_MAX; k++)
        if (digest_equal(&altered_digests[k], digest))
            return true;
    return false;
}

void sim_lie_config(uint32_t i, const struct paxos_message *message, uint8_t **bytes, size_t *bytes_count)
{
    struct config config;
    struct paxos_message altered = *message;
    uint8_t *packed;
    assert_ok(config_unpack(message->bytes, message->bytes_count, &config));
    say_more(i, &config);
    assert_ok(config_pack(&config, &packed, &altered.bytes_count));
    altered.bytes = packed;
    struct digest digest = config_digest(packed, altered.bytes_count);
    if (!digest_equal(&digest, &message->digest))
        altered_digests[sim->altered_count++ % SIM_ALTERED_MAX] = digest;
    assert_ok(wire_paxos_pack(&altered, bytes, bytes_count));
    mem_free(packed);
    config_deinit(&config);
}

static int by_owner(const void *left, const void *right)
{
    return result_id_order(&((const struct part_result *)left)->id, &((const struct part_result *)right)->id);
}

/* A result of every part, none of which there is. */
static uint32_t made_up(uint32_t i, uint32_t f, struct part_result *results)
{
    const struct version_part *parts;
    uint32_t count = sync_parts(sim->island[i].sync, f, &parts);
    for (uint32_t p = 0; p < count; p++) {
        results[p] = (struct part_result){.id = parts[p].id, .shards = parts[p].shards};
        memset(results[p].id.digest.byte, (int)(p + 1), DIGEST_BYTES - sizeof p); /* its number is 0 */
    }
    qsort(results, count, sizeof *results, by_owner);
    return count;
}

/* Of a fragment it is one version further, or a million, or has results that there are not, of the next version or of
 * the one after that; another way in each ballot. */
void sim_lie_promise(uint32_t i, struct paxos_message *out)
{
    static struct holding rows[SIM_F_MAX];
    static struct part_result results[SIM_F_MAX][VERSION_PARTS_MAX];
    memcpy(rows, out->rows, out->rows_count * sizeof rows[0]);
    out->rows = rows;
    for (uint32_t k = 0; k < out->rows_count; k++) {
        uint64_t way = ((out->ballot >> 32) + sim->seed + k) % 4;
        uint32_t count = way >= 2 ? made_up(i, rows[k].fragment, results[k]) : 0;
        rows[k].version += way == 0 ? 1 : way == 1 ? FAR_AHEAD : 0;
        rows[k].held = results[k];
        rows[k].held_count = way == 2 ? count : 0;
        rows[k].reach = way == 3 ? rows[k].version + 1 : 0;
        rows[k].beyond = results[k];
        rows[k].beyond_count = way == 3 ? count : 0;
    }
}

/* ---- and is found out ---- */

/* Of each island that made two results of one part: the first evidence that anybody had of it. */
static uint8_t *evidence[SIM_N_MAX];
static size_t evidence_all_bytes[SIM_N_MAX];

enum err sim_save_evidence(uint32_t i, uint32_t k, const uint8_t *bytes, size_t bytes_count)
{
    sim->island[i].disk.evidence |= (uint64_t)1 << k;
    mem_free(evidence[k]);
    assert_ok(mem_new(bytes_count, 1, "a proof", &evidence[k]));
    memcpy(evidence[k], bytes, bytes_count);
    evidence_all_bytes[k] = bytes_count;
    return ERR_OK;
}

enum err sim_load_evidence(uint32_t i, uint32_t k, uint8_t **bytes, size_t *bytes_count)
{
    if (k == sim->n || (sim->island[i].disk.evidence >> k & 1) == 0)
        return err_set(ERR_NOTFOUND, "no evidence about island %u", k);
    assert_ok(mem_new(evidence_all_bytes[k], 1, "a proof", bytes));
    memcpy(*bytes, evidence[k], evidence_all_bytes[k]);
    *bytes_count = evidence_all_bytes[k];
    return ERR_OK;
}

enum { FRAME_BYTES = 128, OBJECT_BYTES = 1024 };

/* A result as an object, which says nothing but what it is. */
static void make_object(uint32_t number, uint8_t object[OBJECT_BYTES], size_t *bytes)
{
    const struct sim_result *result = sim_result(number);
    struct ident owner = sim_ident_in(result->owner, result->epoch);
    struct wire_contributor contributor = {.id = sim_id(result->owner), .tokens = number, .factor = WIRE_FACTOR_ONE};
    uint8_t contributors[WIRE_CONTRIBUTOR_BYTES];
    struct wire_object what = {.shards = result->shards,
                               .key = {.kind = WIRE_RESULT,
                                       .fragment = result->fragment,
                                       .version = result->version,
                                       .epoch = result->epoch,
                                       .owner = sim_id(result->owner),
                                       .island = sim_id(result->owner)}};
    struct wire_meta meta = {.contributors_count = 1, .contributors = contributors};
    memset(object, 0, OBJECT_BYTES);
    memcpy(what.nonce, sim_newest()->nonce, sizeof what.nonce);
    wire_contributor_put(contributors, 0, &contributor);
    assert_ok(wire_object_seal(&what, &meta, &owner, object, FRAME_BYTES, bytes, &what.digest));
}

void sim_prove(uint32_t i, uint32_t number)
{
    const struct sim_result *result = sim_result(number);
    uint8_t first[OBJECT_BYTES], second[OBJECT_BYTES], *proof;
    size_t first_bytes, second_bytes, evidence_bytes;
    make_object(number, first, &first_bytes);
    make_object(result->twin, second, &second_bytes);
    assert_ok(evidence_make(first, first_bytes, second, second_bytes, &proof, &evidence_bytes));
    assert_ok(sim_save_evidence(i, result->owner, proof, evidence_bytes));
    mem_free(proof);
    membership_equivocation(sim->island[i].voice.membership, sim_id(result->owner), result->fragment, result->version);
}
