/* SPDX-License-Identifier: Apache-2.0 */
/*
 * doorway: who is let in: the invitations that this island has given out, the guests that knock with them, and what
 * people here have asked to be changed about members.
 *
 * An invitation is durable (file `invites`, docs/FORMATS.md) before its token is told, so that a daemon that was killed
 * still knows whom it invited; a redeemed one is durable before the newcomer is proposed. A guest is answered when a
 * decided record has it on the roster, with that record as it was decided, or with the reason why not; asked again by
 * the same key, the answer is the same. What was asked is told the voters again until a record says it; an order for
 * ten minutes at most, and only as long as a majority of the voters is heard: what a minority asked while it was cut
 * off must not be done when it is back. A guest that has not asked for as long is proposed no more.
 *
 * Only the loop's thread; it blocks for a write of the table. Times: `now_ms` of env_mono_ms(), `wall_s` in seconds
 * since 1970. What guests say is input from strangers that hold a token.
 */
#ifndef DAEMON_MEMBERSHIP_DOORWAY_H
#define DAEMON_MEMBERSHIP_DOORWAY_H

#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"
#include "common/runspec.h"
#include "net/config/chain.h"
#include "net/transport/ident.h"
#include "net/transport/invite.h"
#include "net/transport/link.h"
#include "net/config/record.h"

/* All borrowed. */
struct doorway_conf {
    const char *folder; /* of the state: for the table, and for records */
    const struct runspec *spec;
    const struct ident *ident;
    const struct chain *chain;
    struct link *link;
    /* Tell the voters, as membership_enrol() and membership_wish() do. */
    enum err (*enrol)(void *user, const struct record_member *as);
    enum err (*wish)(void *user, uint32_t kind, uint32_t id, uint64_t number);
    /* ERR_STATE: why nobody can decide now what is asked here; why nobody can come in here. */
    enum err (*decidable)(void *user);
    enum err (*open)(void *user,
                     bool begun); /* `begun`: the guest's token is redeemed, and its key waits for the record */
    void *user;
};

struct doorway;
/* Reads the table, and admits whose time is not over. A damaged table is logged and put aside as .damaged. ERR_IO,
 * ERR_NOMEM. */
ERR_MUST_CHECK enum err doorway_new(const struct doorway_conf *conf, uint64_t now_ms, uint64_t wall_s,
                                    struct doorway **out);
/* NULL is fine. */
void doorway_free(struct doorway *doorway);

/* ---- what people ask ---- */

struct doorway_ask {
    char addresses[INVITE_ADDRESSES_MAX][WIRE_ADDRESS_BYTES]; /* where to knock */
    uint32_t addresses_count;
    uint64_t seconds;   /* it is good for */
    const char *island; /* the only one that it lets in; "": any */
    const char *note;
};
/* Makes an invitation; its token into `text` (INVITE_TEXT_BYTES). One for an island takes the place of an earlier one
 * for it that nobody has redeemed. ERR_ARG; ERR_STATE: too many are open; ERR_IO: it
 * cannot be kept, and is worth nothing. */
ERR_MUST_CHECK enum err doorway_invite(struct doorway *doorway, const struct doorway_ask *ask, uint64_t now_ms,
                                       uint64_t wall_s, char *text, struct digest *id);
/* Takes one back, by the first digits of its id (at least 4). ERR_NOTFOUND; ERR_ARG: two begin so. */
ERR_MUST_CHECK enum err doorway_revoke(struct doorway *doorway, const char *id_begin);
/* Borrowed. */
const struct invites *doorway_invites(const struct doorway *doorway);

/* Evict or revoke a member (enum wire_wish). ERR_ARG: another kind; ERR_STATE: too many orders are open, or nobody
 * could decide it now; what `wish` fails with. */
ERR_MUST_CHECK enum err doorway_order(struct doorway *doorway, uint32_t kind, uint32_t id, uint64_t now_ms);

/* ---- what happens ---- */

/* Once a turn: guests that have said something. */
void doorway_look(struct doorway *doorway, uint64_t now_ms, uint64_t wall_s);
void doorway_tick(struct doorway *doorway, uint64_t now_ms, uint64_t wall_s);
/* The chain has a new record. */
void doorway_begin(struct doorway *doorway);

#endif
