/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/state/ledger_index.h"

#include <inttypes.h>
#include <string.h>

#include "common/mem.h"

/* At first; both double, and slots are at least two for each entry. */
enum { ENTRIES_MIN = 1024, SLOTS_MIN = 2 * ENTRIES_MIN };

void ledger_index_deinit(struct ledger_index *index)
{
    mem_free(index->entries);
    mem_free(index->slots);
    *index = (struct ledger_index){0};
}

/* ---- looking ---- */

static size_t hash_of(uint32_t fragment, uint64_t version)
{
    uint64_t value = version * 0x9e3779b97f4a7c15u ^ ((uint64_t)fragment << 32);
    value = (value ^ value >> 29) * 0xbf58476d1ce4e5b9u;
    return (size_t)(value ^ value >> 32);
}

/* The slot of a version, or the free one where it would be. */
static uint32_t *slot_of(const struct ledger_index *index, uint32_t fragment, uint64_t version)
{
    for (size_t at = hash_of(fragment, version);; at++) {
        uint32_t *slot = &index->slots[at & (index->slots_room - 1)];
        if (*slot == 0)
            return slot;
        const struct result_id *key = &index->entries[*slot - 1].key;
        if (key->fragment == fragment && key->version == version)
            return slot;
    }
}

struct ledger_entry *ledger_index_first(const struct ledger_index *index, uint32_t fragment, uint64_t version)
{
    if (index->slots_room == 0)
        return NULL;
    uint32_t slot = *slot_of(index, fragment, version);
    return slot != 0 ? &index->entries[slot - 1] : NULL;
}

struct ledger_entry *ledger_index_next(const struct ledger_index *index, const struct ledger_entry *entry)
{
    return entry->next != 0 ? &index->entries[entry->next - 1] : NULL;
}

struct ledger_entry *ledger_index_find(const struct ledger_index *index, const struct result_id *key)
{
    struct ledger_entry *entry = ledger_index_first(index, key->fragment, key->version);
    while (entry != NULL && (entry->commit || !result_id_equal(&entry->key, key)))
        entry = ledger_index_next(index, entry);
    return entry;
}

struct ledger_entry *ledger_index_commit(const struct ledger_index *index, uint32_t fragment, uint64_t version)
{
    struct ledger_entry *entry = ledger_index_first(index, fragment, version);
    while (entry != NULL && !entry->commit)
        entry = ledger_index_next(index, entry);
    return entry;
}

/* ---- changing ---- */

/* Puts an entry at the end of its version's list. */
static void put(struct ledger_index *index, uint32_t i)
{
    struct ledger_entry *entry = &index->entries[i];
    uint32_t *link = slot_of(index, entry->key.fragment, entry->key.version);
    while (*link != 0)
        link = &index->entries[*link - 1].next;
    entry->next = 0;
    *link = i + 1;
}

static void put_all(struct ledger_index *index)
{
    for (size_t i = 0; i < index->slots_room; i++)
        index->slots[i] = 0;
    index->results = 0;
    for (size_t i = 0; i < index->count; i++) {
        index->entries[i].next = 0;
        index->results += !index->entries[i].commit;
    }
    for (size_t i = 0; i < index->count; i++)
        put(index, (uint32_t)i);
}

static enum err grow(struct ledger_index *index)
{
    if (index->count == index->room) {
        size_t room = index->room > 0 ? 2 * index->room : ENTRIES_MIN;
        TRY(mem_grow(&index->entries, index->count, room, sizeof *index->entries, "the ledger's index"));
        index->room = room;
    }
    if (2 * (index->count + 1) > index->slots_room) {
        size_t room = index->slots_room > 0 ? 2 * index->slots_room : SLOTS_MIN;
        uint32_t *slots = NULL;
        TRY(mem_new(room, sizeof *slots, "the ledger's index", &slots));
        mem_free(index->slots);
        index->slots = slots;
        index->slots_room = room;
        put_all(index);
    }
    return ERR_OK;
}

enum err ledger_index_add(struct ledger_index *index, const struct ledger_entry *entry)
{
    size_t results = 0;
    const struct ledger_entry *there = ledger_index_first(index, entry->key.fragment, entry->key.version);
    for (; there != NULL; there = ledger_index_next(index, there))
        results += !there->commit;
    if (!entry->commit && results >= LEDGER_RESULTS_MAX)
        return err_set(ERR_STATE, "the ledger has %d results of fragment %" PRIu32 ", version %" PRIu64 " already",
                       LEDGER_RESULTS_MAX, entry->key.fragment, entry->key.version);
    TRY(grow(index));
    index->entries[index->count] = *entry;
    index->results += !entry->commit;
    put(index, (uint32_t)index->count++);
    return ERR_OK;
}

void ledger_index_drop_from(struct ledger_index *index, uint32_t segment, uint64_t offset)
{
    size_t kept = 0;
    for (size_t i = 0; i < index->count; i++)
        if (index->entries[i].segment != segment || index->entries[i].offset < offset)
            index->entries[kept++] = index->entries[i];
    index->count = kept;
    put_all(index);
}

void ledger_index_drop_segment(struct ledger_index *index, uint32_t segment)
{
    ledger_index_drop_from(index, segment, 0);
}
