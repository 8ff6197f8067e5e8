/* SPDX-License-Identifier: Apache-2.0 */
#include "net/config/view.h"

#include <inttypes.h>
#include <string.h>

#include "common/mem.h"

/* ---- life ---- */

/* Texts that do not fit were refused before: what is cut here is our own. */
static void put_text(char *to, size_t to_bytes, const char *text)
{
    size_t bytes = strnlen(text, to_bytes - 1);
    memcpy(to, text, bytes);
    memset(to + bytes, 0, to_bytes - bytes);
}

enum err view_init(const struct view_way *ways, size_t ways_count, struct view *view)
{
    enum err err;
    *view = (struct view){.self = VIEW_NOBODY};
    TRY_OUT(mem_new(VIEW_SLOTS_MAX, sizeof *view->members, "the membership", &view->members));
    TRY_OUT(mem_new(VIEW_SLOTS_MAX, sizeof *view->places, "the membership", &view->places));
    TRY_OUT(mem_new(ways_count, sizeof *view->ways, "the membership", &view->ways));
    for (size_t i = 0; i < ways_count; i++)
        view->ways[view->ways_count++] = ways[i];
out:
    if (err != ERR_OK)
        view_free(view);
    return err;
}

void view_free(struct view *view)
{
    mem_free(view->members);
    mem_free(view->places);
    mem_free(view->ways);
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
        if (view->members[i].used && !view->members[i].leaving && strcmp(view->members[i].as.name, name) == 0)
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

/* Where to dial it, by our own configuration file or by the run's configuration. */
static const char *address_of(const struct view *view, const struct config_member *from)
{
    for (size_t i = 0; i < view->ways_count; i++)
        if (strcmp(view->ways[i].name, from->name) == 0 && (view->ways[i].first || from->address[0] == '\0'))
            return view->ways[i].address;
    return from->address;
}

static struct view_member member_of(const struct view *view, const struct config_member *from)
{
    struct view_member member = {.used = true, .as = *from};
    put_text(member.as.address, sizeof member.as.address, address_of(view, from));
    ident_text(member.as.key, member.key_text);
    return member;
}

static bool same(const struct config_member *left, const struct config_member *right)
{
    return strcmp(left->name, right->name) == 0 && strcmp(left->address, right->address) == 0 &&
           memcmp(left->key, right->key, sizeof left->key) == 0 &&
           memcmp(left->next_key, right->next_key, sizeof left->next_key) == 0 && left->uplink == right->uplink &&
           left->role == right->role && left->owner_choice == right->owner_choice && left->voter == right->voter &&
           left->incarnation == right->incarnation;
}

/* Before anything changes: ids in order, keys that are keys, and room for all of them. */
static enum err check_update(const struct view *view, const struct config *config)
{
    uint32_t needed = 0, there = 0;
    for (uint32_t i = 0; i < config->members_count; i++) {
        const struct config_member *from = &config->members[i];
        uint8_t curve[IDENT_KEY_BYTES];
        if (i > 0 && from->id <= config->members[i - 1].id)
            return err_set(ERR_STATE, "a configuration whose members are not in order of id");
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

/* Who is not in the configuration leaves. */
static void drop_leavers(struct view *view, const struct config *config, struct view_changes *changes)
{
    uint32_t kept = 0, next = 0;
    for (uint32_t k = 0; k < view->places_count; k++) {
        struct view_place place = view->places[k];
        while (next < config->members_count && config->members[next].id < place.id)
            next++;
        if (next < config->members_count && config->members[next].id == place.id) {
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

static void take_member(struct view *view, const struct config_member *from, struct view_changes *changes)
{
    struct view_member member = member_of(view, from);
    uint32_t slot = view_slot(view, from->id);
    if (slot == VIEW_NOBODY) {
        slot = free_slot(view);
        add_place(view, from->id, slot);
        bitset_add(&changes->added, slot);
        if (slot >= view->count)
            view->count = slot + 1;
    } else if (!same(&view->members[slot].as, &member.as)) {
        bitset_add(&changes->changed, slot);
    }
    view->members[slot] = member;
}

bool view_is_own(const struct config_member *member, const uint8_t own_key[IDENT_KEY_BYTES])
{
    return memcmp(member->key, own_key, IDENT_KEY_BYTES) == 0 ||
           (config_has_next(member) && memcmp(member->next_key, own_key, IDENT_KEY_BYTES) == 0);
}

enum err view_update(struct view *view, const struct config *config, const struct digest *digest,
                     const uint8_t own_key[IDENT_KEY_BYTES], struct view_changes *changes)
{
    *changes = (struct view_changes){.added = {{0}}};
    TRY(check_update(view, config));
    drop_leavers(view, config, changes);
    for (uint32_t i = 0; i < config->members_count; i++)
        take_member(view, &config->members[i], changes);
    view->self = VIEW_NOBODY;
    for (uint32_t k = 0; k < view->places_count; k++)
        if (view_is_own(&view->members[view->places[k].slot].as, own_key))
            view->self = view->places[k].slot;
    view->epoch = config->epoch;
    view->founder = config->founder;
    view->id = *digest;
    if (memcmp(view->nonce, config->nonce, sizeof view->nonce) != 0) /* once: jobs read it */
        memcpy(view->nonce, config->nonce, sizeof view->nonce);
    return ERR_OK;
}

bool view_is_witness(const struct view *view)
{
    return view->self != VIEW_NOBODY && view->members[view->self].as.role == CONFIG_WITNESS;
}

uint32_t view_islands(const struct view *view, uint32_t end)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < end; i++)
        count += !view->members[i].used || view->members[i].as.role != CONFIG_WITNESS;
    return count;
}
