/* SPDX-License-Identifier: Apache-2.0 */
/*
 * view: this daemon's slots of the members of the newest view record, and record 0 where it is written by hand.
 *
 * A member has an id in the run, for ever, and a slot here, as long as it is on the roster: what a daemon keeps of its
 * members lies in arrays by slot. Ids alone are on the wire, in records and on disk; only here are they turned into
 * each other. A slot whose member has left stays taken until the caller has let go of everything that lies there.
 *
 * Owns its members; they do not move, so a pointer to one or to its strings is good until its slot is released. Where a
 * member listens is what the record says, or what our own configuration says of that name: it may know a nearer
 * way. It knows no file, no socket and no clock.
 */
#ifndef NET_CONFIG_VIEW_H
#define NET_CONFIG_VIEW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/bitset.h"
#include "common/digest.h"
#include "common/err.h"
#include "net/transport/ident.h"
#include "net/config/record.h"
#include "net/transport/wire.h"

enum { VIEW_SLOTS_MAX = BITSET_MAX };
#define VIEW_NOBODY UINT32_MAX /* no slot */

/* What a configuration says of an island, ourselves included. */
struct view_entry {
    const char *name;
    const char *address;  /* "host:port"; "" if it dials us */
    const char *key_text; /* its public key */
    uint64_t uplink;      /* bit/s */
    bool witness;         /* it votes, and has neither a trainer nor shards */
};

struct view_member {
    bool used;
    bool leaving; /* it is not on the roster any more; until view_release() */
    bool voter;
    uint8_t role;       /* enum record_role */
    uint8_t owner_wish; /* enum record_wish */
    uint32_t id;
    char name[WIRE_NAME_BYTES];
    char address[RECORD_ADDRESS_BYTES]; /* "host:port"; "" if it dials us */
    uint8_t key[IDENT_KEY_BYTES];
    char key_text[IDENT_TEXT_BYTES];
    uint64_t uplink; /* bit/s */
    uint64_t incarnation;
};

struct view_place {
    uint32_t id, slot;
};

struct view {
    struct view_member *members; /* [VIEW_SLOTS_MAX] */
    uint32_t count;              /* highest slot in use + 1 */
    uint32_t self;               /* our own slot; VIEW_NOBODY: our key is not on the roster */
    uint64_t epoch;
    uint8_t nonce[RECORD_NONCE_BYTES]; /* of the run */
    struct digest id;                  /* of the record; of view_new(): over names, keys and uplinks */
    struct digest nonce_id;            /* over the nonce */

    struct view_place *places; /* in order of id */
    uint32_t places_count;
    struct view_known *known; /* addresses that our configuration knows */
    size_t known_count;
};

/* Nobody yet. `entries`: what our own configuration knows; copied. ERR_NOMEM: `*view` is empty. */
ERR_MUST_CHECK enum err view_init(const struct view_entry *entries, size_t entries_count, struct view *view);
/* An empty one is fine; leaves it empty. */
void view_free(struct view *view);

/* Slots that an update has changed. `changed`: another address, key or name, role or uplink of a member that stays. */
struct view_changes {
    struct bitset added, changed, removed;
};

/* Goes over to this record, of this digest. Members that stay keep their slots; new ones take the lowest free ones, in
 * order of id; who left keeps its slot, `leaving`, until it is released. We are who has `own_key`. ERR_STATE: not
 * enough free slots, or a member that is none; the view is as before. */
ERR_MUST_CHECK enum err view_update(struct view *view, const struct record *record, const struct digest *digest,
                                    const uint8_t own_key[IDENT_KEY_BYTES], struct view_changes *changes);
/* The caller has let go of a slot whose member left: it may be given anew. A slot that is not leaving stays. */
void view_release(struct view *view, uint32_t slot);

/* The slot of a member on the roster; VIEW_NOBODY. */
uint32_t view_slot(const struct view *view, uint32_t id);
/* Likewise by name: for what people type. */
uint32_t view_slot_named(const struct view *view, const char *name);

/* Whether we are the witness of the run. */
bool view_is_witness(const struct view *view);
/* How many slots are below `end` that are not the witness's: of islands that train. */
uint32_t view_islands(const struct view *view, uint32_t end);

/* ---- hand-written members ---- */

/* Record 0 of these islands, the same on every island that writes the same, whatever the order and the addresses: ids
 * from 0 in order of name, all owners and voters, slots shared out by uplink, and a nonce that follows from run spec,
 * names and keys. A witness owns nothing, and votes where the owners are even in number, which makes it odd. No
 * addresses: they may differ from island to island. ERR_CONF names the islands: more than RECORD_OWNERS_MAX, two of one
 * name or one key, a key that is none; two witnesses, or nobody else. record_deinit() it; on failure it is empty. */
ERR_MUST_CHECK enum err view_record0(const struct view_entry *entries, size_t entries_count,
                                     const struct digest *run_id, uint64_t steps, struct record *record);

/* The membership of these islands and no others, by their record 0; `self` is the name of our own. Failures as of
 * view_record0(); ERR_ARG: none is called `self`. On failure `*view` is empty. */
ERR_MUST_CHECK enum err view_new(const struct view_entry *entries, size_t entries_count, const struct digest *run_id,
                                 const char *self, struct view *view);

#endif
