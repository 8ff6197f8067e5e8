/* SPDX-License-Identifier: Apache-2.0 */
/*
 * view: this daemon's slots of the members of the newest configuration.
 *
 * A member has an id in the run, for ever, and a slot here, as long as it is on the roster: what a daemon keeps of its
 * members lies in arrays by slot. Ids alone are on the wire, in configurations and on disk; only here are they turned
 * into each other. A slot whose member has left stays taken until the caller has let go of everything that lies there.
 *
 * Owns its members; they do not move, so a pointer to one or to its strings is good until its slot is released. A
 * member's address is the configuration's, or the one that our own configuration file (`[net] reach`) has for that
 * name: it may know a nearer way, or one where the configuration has none. It knows no file, no socket and no clock.
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
#include "net/config/config.h"
#include "net/transport/wire.h"

enum { VIEW_SLOTS_MAX = BITSET_MAX };
#define VIEW_NOBODY UINT32_MAX /* no slot */

/* Where our own configuration has an island reached. */
struct view_way {
    char name[WIRE_NAME_BYTES];
    char address[CONFIG_ADDRESS_BYTES]; /* "host:port" */
    bool first; /* goes before the configuration's address; else it counts only where that has none */
};

struct view_member {
    bool used;
    bool leaving;            /* it is not on the roster any more; until view_release() */
    struct config_member as; /* as the configuration says; but `address`: where we dial it; "" if it dials us */
    char key_text[IDENT_TEXT_BYTES];
};

struct view_place {
    uint32_t id, slot;
};

struct view {
    struct view_member *members; /* [VIEW_SLOTS_MAX] */
    uint32_t count;              /* highest slot in use + 1 */
    uint32_t self;               /* our own slot; VIEW_NOBODY: our key is not on the roster */
    uint64_t epoch;
    uint8_t nonce[CONFIG_NONCE_BYTES]; /* of the run */
    struct digest id;                  /* of the configuration */
    struct digest nonce_id;            /* over the nonce */
    uint32_t founder;                  /* id of the operator that grants; CONFIG_NOBODY */

    struct view_place *places; /* in order of id */
    uint32_t places_count;
    struct view_way *ways; /* that our configuration knows */
    size_t ways_count;
};

/* Nobody yet. `ways`: from our own configuration file, of two for one name the first; copied. ERR_NOMEM: `*view` is
 * empty. */
ERR_MUST_CHECK enum err view_init(const struct view_way *ways, size_t ways_count, struct view *view);
/* An empty one is fine; leaves it empty. */
void view_free(struct view *view);

/* Slots that an update has changed. `changed`: another address, key or name, role or uplink of a member that stays. */
struct view_changes {
    struct bitset added, changed, removed;
};

/* Whether a member's row is that of who has this key: it is the member's, or the one that it would have next, which a
 * configuration that is not known here may have given it. */
bool view_is_own(const struct config_member *member, const uint8_t own_key[IDENT_KEY_BYTES]);
/* Goes over to this configuration, of this digest. Members that stay keep their slots; new ones take the lowest free
 * ones, in order of id; a member that left keeps its slot, `leaving`, until it is released. We are the member with
 * `own_key` (view_is_own()). ERR_STATE: not enough free slots, or a member that is none; the view is as before. */
ERR_MUST_CHECK enum err view_update(struct view *view, const struct config *config, const struct digest *digest,
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

#endif
