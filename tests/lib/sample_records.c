/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/sample_records.h"

#include "tests/lib/testlib.h"

#include <stdio.h>
#include <string.h>

#include "common/mem.h"

const struct ident *records_ident(uint32_t id)
{
    static struct ident idents[RECORDS_IDENTS];
    assert_true(id < RECORDS_IDENTS);
    if (idents[id].public_text[0] == '\0')
        assert_ok(ident_generate(&idents[id]));
    return &idents[id];
}

struct record_member *records_row(struct record *record, uint32_t id, enum record_role role)
{
    uint32_t count = record->members_count++;
    if (count == 0)
        assert_ok(mem_new(1, sizeof *record->members, "members", &record->members));
    else
        assert_ok(mem_grow(&record->members, count, count + 1, sizeof *record->members, "members"));
    assert_true(id >= record->next_id);
    struct record_member *member = &record->members[count];
    *member = (struct record_member){.id = id, .role = (uint8_t)role};
    member->voter = role == RECORD_OWNER || role == RECORD_WITNESS;
    record->next_id = id + 1;
    return member;
}

struct record_member *records_add(struct record *record, enum record_role role)
{
    uint32_t id = record->next_id;
    struct record_member *member = records_row(record, id, role);
    member->uplink = 1000000000;
    member->incarnation = id + 1;
    snprintf(member->name, sizeof member->name, "m%u", id);
    snprintf(member->address, sizeof member->address, "m%u.example:%u", id, 7000 + id);
    memcpy(member->key, records_ident(id)->key, IDENT_KEY_BYTES);
    return member;
}

void records_map(struct record *record, const uint32_t *ids, uint32_t count)
{
    record->map = shardmap_empty();
    for (uint32_t i = 0; i < record->members_count; i++) {
        struct record_member *member = &record->members[i];
        bool owner = false;
        for (uint32_t k = 0; k < count; k++)
            owner = owner || ids[k] == member->id;
        if (owner) {
            member->role = RECORD_OWNER;
            member->voter = true;
        } else if (member->role == RECORD_OWNER) {
            member->role = RECORD_CONTRIBUTOR;
            member->voter = false;
        }
    }
    for (uint32_t slot = 0; slot < SHARDMAP_SLOTS && count > 0; slot++)
        record->map.owner[slot] = ids[slot * count / SHARDMAP_SLOTS];
}

struct record records_first(uint32_t owners, bool witness)
{
    struct record record = {.nonce = "the nonce of it", .steps = 1000};
    uint32_t ids[RECORD_OWNERS_MAX];
    for (uint32_t i = 0; i < owners; i++)
        ids[i] = records_add(&record, RECORD_OWNER)->id;
    if (witness)
        records_add(&record, RECORD_WITNESS);
    records_map(&record, ids, owners);
    return record;
}

struct digest records_digest(const struct record *record)
{
    uint8_t *bytes;
    size_t count;
    assert_ok(record_pack(record, &bytes, &count));
    struct digest digest = record_digest(bytes, count);
    mem_free(bytes);
    return digest;
}

struct record records_next(const struct record *record)
{
    struct record next;
    assert_ok(record_copy(record, &next));
    next.epoch++;
    next.previous = records_digest(record);
    return next;
}

void records_start(struct record *record, uint32_t fragment, uint64_t version)
{
    if (record->starts_count == 0)
        assert_ok(mem_new(fragment + 1, sizeof *record->starts, "starts", &record->starts));
    else if (fragment >= record->starts_count)
        assert_ok(mem_grow(&record->starts, record->starts_count, fragment + 1, sizeof *record->starts, "starts"));
    if (fragment >= record->starts_count)
        record->starts_count = fragment + 1;
    record->starts[fragment] = version;
}

void records_carry_one(struct record *record, const struct part_result *carried)
{
    uint32_t count = record->carried_count++, at = 0;
    if (count == 0)
        assert_ok(mem_new(1, sizeof *carried, "carried", &record->carried));
    else
        assert_ok(mem_grow(&record->carried, count, count + 1, sizeof *carried, "carried"));
    while (at < count && result_id_order(&record->carried[at].id, &carried->id) < 0)
        at++;
    memmove(&record->carried[at + 1], &record->carried[at], (count - at) * sizeof *carried);
    record->carried[at] = *carried;
}

void records_carry(struct record *record, uint32_t fragment, uint32_t owner, uint64_t epoch, uint64_t shards)
{
    struct part_result carried = {{fragment, owner, record_start(record, fragment) + 1, epoch, {{0}}}, shards};
    carried.id.digest = digest_of(&carried, sizeof carried);
    records_carry_one(record, &carried);
}

struct record_vote records_vote(uint32_t id, const struct record *record, uint64_t ballot)
{
    struct record_vote vote = {.id = id, .ballot = ballot};
    struct digest digest = records_digest(record);
    record_vote_sign(records_ident(id), record->nonce, record->epoch, ballot, &digest, vote.signature);
    return vote;
}
