/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/roster.h"

#include "tests/lib/testlib.h"

#include <stdio.h>

#include "common/mem.h"
#include "tests/lib/sample_records.h"

uint32_t roster_id(uint32_t number)
{
    return 10 * number + 3;
}

uint32_t roster_number(uint32_t id)
{
    return id / 10;
}

struct record roster_record(uint32_t count)
{
    struct record record = {.nonce = "the nonce of it", .steps = 1000, .map = shardmap_empty()};
    for (uint32_t i = 0; i < count; i++)
        roster_join(&record, i, i < SHARDMAP_OWNERS_MAX ? RECORD_OWNER : RECORD_CONTRIBUTOR);
    roster_map_owners(&record);
    return record;
}

struct record roster_next(const struct chain *chain)
{
    struct record record;
    assert_ok(record_copy(chain_last(chain), &record));
    record.epoch++;
    record.previous = *chain_last_digest(chain);
    mem_free(record.carried);
    record.carried = NULL;
    record.carried_count = 0;
    return record;
}

static struct record_member *member(struct record *record, uint32_t number)
{
    for (uint32_t i = 0; i < record->members_count; i++)
        if (record->members[i].id == roster_id(number))
            return &record->members[i];
    fail_msg("member %u is none", number);
    return NULL;
}

void roster_join(struct record *record, uint32_t number, enum record_role role)
{
    struct record_member *one = records_row(record, roster_id(number), role);
    one->uplink = 1000000;
    snprintf(one->name, sizeof one->name, "m%u", number);
}

void roster_role(struct record *record, uint32_t number, enum record_role role, bool voter)
{
    struct record_member *one = member(record, number);
    one->role = (uint8_t)role;
    one->voter = voter;
}

void roster_map(struct record *record, const uint32_t *numbers, uint32_t count)
{
    struct shardmap_owner owners[SHARDMAP_OWNERS_MAX];
    assert_true(count > 0 && count <= SHARDMAP_OWNERS_MAX);
    for (uint32_t i = 0; i < count; i++)
        owners[i] = (struct shardmap_owner){.id = roster_id(numbers[i]), .weight = 1};
    shardmap_assign(&record->map, owners, count);
}

void roster_map_owners(struct record *record)
{
    uint32_t numbers[SHARDMAP_OWNERS_MAX], count = 0;
    for (uint32_t i = 0; i < record->members_count; i++)
        if (record->members[i].role == RECORD_OWNER)
            numbers[count++] = roster_number(record->members[i].id);
    roster_map(record, numbers, count);
}

void roster_carry(struct record *record, uint32_t fragment, uint32_t number, uint64_t epoch, uint64_t shards,
                  const struct digest *digest)
{
    struct part_result carried = {{fragment, roster_id(number), record_start(record, fragment) + 1, epoch, *digest},
                                  shards};
    records_carry_one(record, &carried);
}

void roster_add(struct chain *chain, struct record *record)
{
    struct digest digest = records_digest(record);
    assert_ok(chain_add(chain, record, &digest));
}

struct sync_view roster_view(const struct chain *chain, uint32_t self, const uint32_t *ids, uint32_t slots)
{
    const struct record *record = chain_last(chain);
    struct sync_view view = {.epoch = record->epoch, .self = self, .slots = slots, .ids = ids};
    view.certifying = record_certifying(record);
    for (uint32_t slot = 0; slot < slots; slot++) {
        const struct record_member *one = record_member(record, ids[slot]);
        if (one == NULL)
            continue;
        bitset_add(&view.members, slot);
        if (one->role == RECORD_OWNER || one->role == RECORD_CONTRIBUTOR || one->role == RECORD_DRAINING)
            bitset_add(&view.taking_part, slot);
        if (one->role == RECORD_WITNESS)
            bitset_add(&view.witness, slot);
        else if (one->voter)
            bitset_add(&view.keepers, slot);
    }
    view.votes = bitset_has(&view.keepers, self);
    return view;
}
