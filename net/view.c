#include "net/view.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common/bytes.h"
#include "common/mem.h"
#include "net/wire.h"

static int by_name(const void *left, const void *right)
{
    const struct view_member *a = left;
    const struct view_member *b = right;
    return strcmp(a->name, b->name);
}

/* Of each member in order: the name with its zero byte, with `keys` the key's 32 bytes, the uplink as u64. Addresses
 * may differ from island to island. */
static struct digest digest_members(const struct view *view, bool keys, bool uplinks)
{
    struct digest_state state;
    digest_begin(&state);
    for (uint32_t i = 0; i < view->count; i++) {
        const struct view_member *member = &view->members[i];
        uint8_t uplink[sizeof member->uplink];
        struct bytes_writer writer = bytes_writer_init(uplink, sizeof uplink);
        bytes_put_u64(&writer, uplinks ? member->uplink : 0);
        digest_add(&state, member->name, strlen(member->name) + 1);
        if (keys)
            digest_add(&state, member->key, sizeof member->key);
        digest_add(&state, uplink, sizeof uplink);
    }
    return digest_end(&state);
}

static enum err add_member(struct view *view, const struct view_entry *entry)
{
    struct view_member *member = &view->members[view->count];
    *member = (struct view_member){.name = entry->name, .address = entry->address, .uplink = entry->uplink};
    enum err err = ident_parse(entry->key_text, member->key);
    if (err != ERR_OK)
        return err_prefix(err, "island %s", entry->name);
    ident_text(member->key, member->key_text);
    for (uint32_t i = 0; i < view->count; i++) {
        const struct view_member *other = &view->members[i];
        if (strcmp(other->name, member->name) == 0)
            return err_set(ERR_CONF, "two islands are called %s; each needs a name of its own", member->name);
        if (memcmp(other->key, member->key, sizeof member->key) == 0)
            return err_set(ERR_CONF, "islands %s and %s have the same public key; each needs its own", other->name,
                           member->name);
    }
    view->count++;
    return ERR_OK;
}

static enum err find_self(struct view *view, const char *self)
{
    for (view->self = 0; view->self < view->count; view->self++)
        if (strcmp(view->members[view->self].name, self) == 0)
            return ERR_OK;
    return err_set(ERR_ARG, "island %s is not among the members", self);
}

enum err view_new(const struct view_entry *entries, size_t entries_count, const char *self, struct view *view)
{
    enum err err;
    *view = (struct view){0};
    if (entries_count > WIRE_MEMBERS_MAX)
        return err_set(ERR_CONF, "%zu islands; at most %d are possible", entries_count, WIRE_MEMBERS_MAX);
    TRY_OUT(mem_new(entries_count, sizeof *view->members, "the membership", &view->members));
    for (size_t i = 0; i < entries_count; i++)
        TRY_OUT(add_member(view, &entries[i]));
    qsort(view->members, view->count, sizeof *view->members, by_name);
    TRY_OUT(find_self(view, self));
    view->id = digest_members(view, true, true);
    view->shares = digest_members(view, false, view->count > 1); /* one alone has everything, whatever its uplink */
out:
    if (err != ERR_OK)
        view_free(view);
    return err;
}

void view_free(struct view *view)
{
    mem_free(view->members);
    *view = (struct view){0};
}
