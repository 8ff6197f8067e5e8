#include "tests/lib/roster.h"

#include "tests/lib/testlib.h"

#include <stdio.h>
#include <string.h>

#include "common/mem.h"

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

static struct digest digest_of_record(const struct record *record)
{
    uint8_t *bytes;
    size_t count;
    assert_ok(record_pack(record, &bytes, &count));
    struct digest digest = record_digest(bytes, count);
    mem_free(bytes);
    return digest;
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
    uint32_t count = record->members_count++;
    if (count == 0)
        assert_ok(mem_new(1, sizeof *record->members, "members", &record->members));
    else
        assert_ok(mem_grow(&record->members, count, count + 1, sizeof *record->members, "members"));
    assert_true(roster_id(number) >= record->next_id);
    struct record_member *one = &record->members[count];
    *one = (struct record_member){.id = roster_id(number), .uplink = 1000000, .role = (uint8_t)role};
    one->voter = role == RECORD_OWNER || role == RECORD_WITNESS;
    snprintf(one->name, sizeof one->name, "m%u", number);
    record->next_id = one->id + 1;
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

void roster_start(struct record *record, uint32_t fragment, uint64_t version)
{
    if (record->starts_count == 0)
        assert_ok(mem_new(fragment + 1, sizeof *record->starts, "starts", &record->starts));
    else if (fragment >= record->starts_count)
        assert_ok(mem_grow(&record->starts, record->starts_count, fragment + 1, sizeof *record->starts, "starts"));
    if (fragment >= record->starts_count)
        record->starts_count = fragment + 1;
    record->starts[fragment] = version;
}

static bool before(const struct record_carried *left, const struct record_carried *right)
{
    if (left->fragment != right->fragment)
        return left->fragment < right->fragment;
    return left->owner != right->owner ? left->owner < right->owner : left->epoch < right->epoch;
}

void roster_carry(struct record *record, uint32_t fragment, uint32_t number, uint64_t epoch, uint64_t shards,
                  const struct digest *digest)
{
    uint32_t count = record->carried_count++, at = 0;
    struct record_carried carried = {fragment, roster_id(number), record_start(record, fragment) + 1, epoch, shards,
                                     *digest};
    if (count == 0)
        assert_ok(mem_new(1, sizeof carried, "carried", &record->carried));
    else
        assert_ok(mem_grow(&record->carried, count, count + 1, sizeof carried, "carried"));
    while (at < count && before(&record->carried[at], &carried))
        at++;
    memmove(&record->carried[at + 1], &record->carried[at], (count - at) * sizeof carried);
    record->carried[at] = carried;
}

void roster_add(struct chain *chain, struct record *record)
{
    struct digest digest = digest_of_record(record);
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
