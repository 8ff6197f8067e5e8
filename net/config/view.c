/* SPDX-License-Identifier: Apache-2.0 */
#include "net/config/view.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/bytes.h"
#include "common/mem.h"

struct view_known {
    char name[WIRE_NAME_BYTES];
    char address[RECORD_ADDRESS_BYTES];
};

/* ---- life ---- */

/* Texts that do not fit were refused before: what is cut here is our own. */
static void put_text(char *to, size_t to_bytes, const char *text)
{
    size_t bytes = strnlen(text, to_bytes - 1);
    memcpy(to, text, bytes);
    memset(to + bytes, 0, to_bytes - bytes);
}

enum err view_init(const struct view_entry *entries, size_t entries_count, struct view *view)
{
    enum err err;
    *view = (struct view){.self = VIEW_NOBODY};
    TRY_OUT(mem_new(VIEW_SLOTS_MAX, sizeof *view->members, "the membership", &view->members));
    TRY_OUT(mem_new(VIEW_SLOTS_MAX, sizeof *view->places, "the membership", &view->places));
    TRY_OUT(mem_new(entries_count, sizeof *view->known, "the membership", &view->known));
    for (size_t i = 0; i < entries_count; i++) {
        if (entries[i].address == NULL || entries[i].address[0] == '\0')
            continue;
        struct view_known *known = &view->known[view->known_count++];
        put_text(known->name, sizeof known->name, entries[i].name);
        put_text(known->address, sizeof known->address, entries[i].address);
    }
out:
    if (err != ERR_OK)
        view_free(view);
    return err;
}

void view_free(struct view *view)
{
    mem_free(view->members);
    mem_free(view->places);
    mem_free(view->known);
    *view = (struct view){0};
}

/* ---- slots ---- */

/* Where the id stands in the places, or would. */
static uint32_t place_of(const struct view *view, uint32_t id)
{
    uint32_t low = 0, high = view->places_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (view->places[middle].id < id)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

uint32_t view_slot(const struct view *view, uint32_t id)
{
    uint32_t k = place_of(view, id);
    return k < view->places_count && view->places[k].id == id ? view->places[k].slot : VIEW_NOBODY;
}

uint32_t view_slot_named(const struct view *view, const char *name)
{
    for (uint32_t i = 0; i < view->count; i++)
        if (view->members[i].used && !view->members[i].leaving && strcmp(view->members[i].name, name) == 0)
            return i;
    return VIEW_NOBODY;
}

static uint32_t free_slot(const struct view *view)
{
    uint32_t slot = 0;
    while (slot < VIEW_SLOTS_MAX && view->members[slot].used)
        slot++;
    return slot;
}

void view_release(struct view *view, uint32_t slot)
{
    if (slot >= VIEW_SLOTS_MAX || !view->members[slot].leaving)
        return;
    view->members[slot] = (struct view_member){.used = false};
    while (view->count > 0 && !view->members[view->count - 1].used)
        view->count--;
}

/* Our own configuration may know a nearer way than the one the run was told. */
static const char *address_of(const struct view *view, const struct record_member *from)
{
    for (size_t i = 0; i < view->known_count; i++)
        if (strcmp(view->known[i].name, from->name) == 0)
            return view->known[i].address;
    return from->address;
}

static struct view_member member_of(const struct view *view, const struct record_member *from)
{
    struct view_member member = {.used = true,
                                 .voter = from->voter,
                                 .role = from->role,
                                 .owner_wish = from->owner_wish,
                                 .id = from->id,
                                 .uplink = from->uplink,
                                 .incarnation = from->incarnation};
    put_text(member.name, sizeof member.name, from->name);
    put_text(member.address, sizeof member.address, address_of(view, from));
    memcpy(member.key, from->key, sizeof member.key);
    ident_text(member.key, member.key_text);
    return member;
}

static bool same(const struct view_member *left, const struct view_member *right)
{
    return strcmp(left->name, right->name) == 0 && strcmp(left->address, right->address) == 0 &&
           memcmp(left->key, right->key, sizeof left->key) == 0 && left->uplink == right->uplink &&
           left->role == right->role && left->owner_wish == right->owner_wish && left->voter == right->voter &&
           left->incarnation == right->incarnation;
}

/* Before anything changes: ids in order, keys that are keys, and room for all of them. */
static enum err check_update(const struct view *view, const struct record *record)
{
    uint32_t needed = 0, there = 0;
    for (uint32_t i = 0; i < record->members_count; i++) {
        const struct record_member *from = &record->members[i];
        uint8_t curve[IDENT_KEY_BYTES];
        if (i > 0 && from->id <= record->members[i - 1].id)
            return err_set(ERR_STATE, "a record whose members are not in order of id");
        if (ident_curve(from->key, curve) != ERR_OK)
            return err_set(ERR_STATE, "island %s has a public key that is none", from->name);
        needed += view_slot(view, from->id) == VIEW_NOBODY;
    }
    for (uint32_t slot = 0; slot < VIEW_SLOTS_MAX; slot++)
        there += !view->members[slot].used;
    if (needed > there)
        return err_set(ERR_STATE, "%" PRIu32 " new islands, and %" PRIu32 " of %d places are free", needed, there,
                       VIEW_SLOTS_MAX);
    return ERR_OK;
}

/* Who is not in the record leaves. */
static void drop_leavers(struct view *view, const struct record *record, struct view_changes *changes)
{
    uint32_t kept = 0, next = 0;
    for (uint32_t k = 0; k < view->places_count; k++) {
        struct view_place place = view->places[k];
        while (next < record->members_count && record->members[next].id < place.id)
            next++;
        if (next < record->members_count && record->members[next].id == place.id) {
            view->places[kept++] = place;
        } else {
            view->members[place.slot].leaving = true;
            bitset_add(&changes->removed, place.slot);
        }
    }
    view->places_count = kept;
}

static void add_place(struct view *view, uint32_t id, uint32_t slot)
{
    uint32_t k = place_of(view, id);
    memmove(&view->places[k + 1], &view->places[k], (view->places_count - k) * sizeof *view->places);
    view->places[k] = (struct view_place){.id = id, .slot = slot};
    view->places_count++;
}

static void take_member(struct view *view, const struct record_member *from, struct view_changes *changes)
{
    struct view_member member = member_of(view, from);
    uint32_t slot = view_slot(view, from->id);
    if (slot == VIEW_NOBODY) {
        slot = free_slot(view);
        add_place(view, from->id, slot);
        bitset_add(&changes->added, slot);
        if (slot >= view->count)
            view->count = slot + 1;
    } else if (!same(&view->members[slot], &member)) {
        bitset_add(&changes->changed, slot);
    }
    view->members[slot] = member;
}

enum err view_update(struct view *view, const struct record *record, const struct digest *digest,
                     const uint8_t own_key[IDENT_KEY_BYTES], struct view_changes *changes)
{
    *changes = (struct view_changes){.added = {{0}}};
    TRY(check_update(view, record));
    drop_leavers(view, record, changes);
    for (uint32_t i = 0; i < record->members_count; i++)
        take_member(view, &record->members[i], changes);
    view->self = VIEW_NOBODY;
    for (uint32_t k = 0; k < view->places_count; k++)
        if (memcmp(view->members[view->places[k].slot].key, own_key, IDENT_KEY_BYTES) == 0)
            view->self = view->places[k].slot;
    view->epoch = record->epoch;
    view->id = *digest;
    if (memcmp(view->nonce, record->nonce, sizeof view->nonce) != 0) /* once: jobs read it */
        memcpy(view->nonce, record->nonce, sizeof view->nonce);
    return ERR_OK;
}

bool view_is_witness(const struct view *view)
{
    return view->self != VIEW_NOBODY && view->members[view->self].role == RECORD_WITNESS;
}

uint32_t view_islands(const struct view *view, uint32_t end)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < end; i++)
        count += !view->members[i].used || view->members[i].role != RECORD_WITNESS;
    return count;
}

/* ---- hand-written members ---- */

static int by_name(const void *left, const void *right)
{
    const struct record_member *a = left;
    const struct record_member *b = right;
    return strcmp(a->name, b->name);
}

static enum err add_member(struct record *record, const struct view_entry *entry)
{
    struct record_member *member = &record->members[record->members_count];
    *member = (struct record_member){.uplink = entry->uplink, .role = RECORD_OWNER, .voter = true};
    if (entry->witness)
        member->role = RECORD_WITNESS;
    if (strlen(entry->name) >= sizeof member->name)
        return err_set(ERR_CONF, "island %s: a name has at most %d bytes", entry->name, WIRE_NAME_BYTES - 1);
    if (strlen(entry->address) >= RECORD_ADDRESS_BYTES)
        return err_set(ERR_CONF, "island %s: an address has at most %d bytes", entry->name, RECORD_ADDRESS_BYTES - 1);
    put_text(member->name, sizeof member->name, entry->name);
    enum err err = ident_parse(entry->key_text, member->key);
    if (err != ERR_OK)
        return err_prefix(err, "island %s", entry->name);
    for (uint32_t i = 0; i < record->members_count; i++) {
        const struct record_member *other = &record->members[i];
        if (strcmp(other->name, member->name) == 0)
            return err_set(ERR_CONF, "two islands are called %s; each needs a name of its own", member->name);
        if (ident_compare(other->key, member->key) == 0)
            return err_set(ERR_CONF, "islands %s and %s have the same public key; each needs its own", other->name,
                           member->name);
    }
    record->members_count++;
    return ERR_OK;
}

/* A witness makes an even number of voters odd, so that one more may be lost; beside an odd one it is of no use. */
static enum err seat_witness(struct record *record, uint32_t owners)
{
    const char *first = NULL;
    for (uint32_t i = 0; i < record->members_count; i++) {
        struct record_member *member = &record->members[i];
        if (member->role != RECORD_WITNESS)
            continue;
        if (first != NULL)
            return err_set(ERR_CONF, "islands %s and %s are both witnesses; a run has at most one", first,
                           member->name);
        first = member->name;
        member->voter = owners % 2 == 0;
    }
    if (first != NULL && owners == 0)
        return err_set(ERR_CONF, "witness %s is alone: a run needs an island that trains", first);
    return ERR_OK;
}

/* Ids are places in the order of names. */
static enum err give_ids(struct record *record)
{
    struct shardmap_owner owners[RECORD_OWNERS_MAX];
    uint32_t count = 0;
    qsort(record->members, record->members_count, sizeof *record->members, by_name);
    for (uint32_t i = 0; i < record->members_count; i++) {
        struct record_member *member = &record->members[i];
        member->id = i;
        if (member->role == RECORD_OWNER)
            owners[count++] = (struct shardmap_owner){.id = i, .weight = member->uplink};
    }
    record->next_id = record->members_count;
    record->map = shardmap_empty();
    if (count > 0)
        shardmap_assign(&record->map, owners, count);
    return seat_witness(record, count);
}

static void make_nonce(struct record *record, const struct digest *run_id)
{
    struct digest_state state;
    digest_begin(&state);
    digest_add(&state, run_id->byte, sizeof run_id->byte);
    for (uint32_t i = 0; i < record->members_count; i++) {
        const struct record_member *member = &record->members[i];
        digest_add(&state, member->name, strlen(member->name) + 1);
        digest_add(&state, member->key, sizeof member->key);
        if (member->role == RECORD_WITNESS) /* who does not know it as one is of another run */
            digest_add(&state, &(uint8_t){1}, 1);
    }
    struct digest digest = digest_end(&state);
    memcpy(record->nonce, digest.byte, sizeof record->nonce);
}

enum err view_record0(const struct view_entry *entries, size_t entries_count, const struct digest *run_id,
                      uint64_t steps, struct record *record)
{
    enum err err;
    *record = (struct record){.steps = steps};
    if (entries_count > RECORD_OWNERS_MAX)
        return err_set(ERR_CONF, "%zu islands; at most %d are possible in configurations: invite the others",
                       entries_count, RECORD_OWNERS_MAX);
    TRY_OUT(mem_new(entries_count, sizeof *record->members, "the membership", &record->members));
    for (size_t i = 0; i < entries_count; i++)
        TRY_OUT(add_member(record, &entries[i]));
    TRY_OUT(give_ids(record));
    make_nonce(record, run_id);
out:
    if (err != ERR_OK) {
        mem_free(record->members);
        *record = (struct record){0};
    }
    return err;
}

/* Of each member in order: the name with its zero byte, the key's 32 bytes, the uplink as u64. Addresses may differ
 * from island to island. */
static struct digest digest_members(const struct view *view)
{
    struct digest_state state;
    digest_begin(&state);
    for (uint32_t i = 0; i < view->count; i++) {
        const struct view_member *member = &view->members[i];
        uint8_t uplink[sizeof member->uplink];
        struct bytes_writer writer = bytes_writer_init(uplink, sizeof uplink);
        bytes_put_u64(&writer, member->uplink);
        digest_add(&state, member->name, strlen(member->name) + 1);
        digest_add(&state, member->key, sizeof member->key);
        digest_add(&state, uplink, sizeof uplink);
    }
    return digest_end(&state);
}

enum err view_new(const struct view_entry *entries, size_t entries_count, const struct digest *run_id, const char *self,
                  struct view *view)
{
    enum err err;
    struct record record;
    struct view_changes changes;
    static const uint8_t nobody[IDENT_KEY_BYTES];
    *view = (struct view){0};
    TRY(view_record0(entries, entries_count, run_id, 0, &record));
    TRY_OUT(view_init(entries, entries_count, view));
    TRY_OUT(view_update(view, &record, &(struct digest){{0}}, nobody, &changes));
    view->self = view_slot_named(view, self);
    if (view->self == VIEW_NOBODY) {
        err = err_set(ERR_ARG, "island %s is not among the members", self);
        goto out;
    }
    view->id = digest_members(view);
    view->nonce_id = digest_of(view->nonce, sizeof view->nonce);
out:
    mem_free(record.members);
    if (err != ERR_OK)
        view_free(view);
    return err;
}
