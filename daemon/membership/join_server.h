/* SPDX-License-Identifier: Apache-2.0 */
/*
 * join_server: the invitations that this island has given out, and the guests that knock with them.
 *
 * An invitation is durable (file `invites`, docs/FORMATS.md) before its token is told, so that a daemon that was killed
 * still knows whom it invited; a redeemed one is durable before the newcomer is proposed. A guest gets its answer when
 * a decided configuration has it on the roster: that configuration as it was decided, or the reason why not. The same
 * key that asks again gets the same answer. The order that admits a guest is this island's, so that only operators
 * invite; it stands while the guest asks, and ten minutes longer. A guest may ask first whether it is reached where it
 * says (dial_server.h); that redeems nothing.
 *
 * Only the loop's thread; it blocks for a write of the table. Times: `now_ms` of env_mono_ms(), `wall_s` in seconds
 * since 1970. Messages of guests are input from strangers that hold a token.
 */
#ifndef DAEMON_MEMBERSHIP_JOIN_SERVER_H
#define DAEMON_MEMBERSHIP_JOIN_SERVER_H

#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"
#include "common/runspec.h"
#include "daemon/membership/dial_server.h"
#include "net/config/config_log.h"
#include "net/transport/ident.h"
#include "net/transport/invite.h"
#include "net/transport/link.h"
#include "net/config/config.h"

/* All borrowed. */
struct join_server_conf {
    const char *folder; /* of the state: for the table, and for configurations */
    const struct runspec *spec;
    const struct ident *ident;
    const struct config_log *config_log;
    struct link *link;
    struct dial_server *dials;
    enum err (*join)(void *user, const struct wire_join *join, bool contributor); /* as membership_admit() */
    void (*shut_out)(void *user, const struct digest *invitation);                /* as membership_shut_out() */
    enum err (*may_invite)(void *user); /* ERR_STATE: the reason why this island lets nobody in */
    /* ERR_STATE: the reason why nobody can come in here now. */
    enum err (*open)(void *user,
                     bool begun); /* `begun`: the guest's token is redeemed, and its key waits for the configuration */
    void *user;
};

struct join_server;
/* Reads the table, and lets the one-time keys connect whose time is not over. A damaged table is logged and put aside
 * as .damaged. ERR_IO, ERR_NOMEM. */
ERR_MUST_CHECK enum err join_server_new(const struct join_server_conf *conf, uint64_t now_ms, uint64_t wall_s,
                                        struct join_server **out);
/* NULL is fine. */
void join_server_free(struct join_server *join_server);

/* ---- requests of people ---- */

struct join_server_ask {
    char addresses[INVITE_ADDRESSES_MAX][WIRE_ADDRESS_BYTES]; /* where to knock */
    uint32_t addresses_count;
    uint64_t seconds;   /* it is good for */
    const char *island; /* the only one that it lets in; "": any */
    enum invite_as as;
    const char *note;
};
/* Makes an invitation; its token into `text` (INVITE_TEXT_BYTES). One for an island takes the place of an earlier one
 * for it that nobody has redeemed. ERR_ARG; ERR_STATE: too many are open, or this island may not invite; ERR_IO: it
 * cannot be kept, and is worth nothing. */
ERR_MUST_CHECK enum err join_server_invite(struct join_server *join_server, const struct join_server_ask *ask,
                                           uint64_t now_ms, uint64_t wall_s, char *text, struct digest *id);
/* Takes one back, by the first digits of its id (at least 4). ERR_NOTFOUND; ERR_ARG: two begin so. */
ERR_MUST_CHECK enum err join_server_revoke(struct join_server *join_server, const char *id_begin);
/* Borrowed. */
const struct invites *join_server_invites(const struct join_server *join_server);

/* ---- turns ---- */

/* Once a turn: guests that have said something. */
void join_server_look(struct join_server *join_server, uint64_t now_ms, uint64_t wall_s);
void join_server_tick(struct join_server *join_server, uint64_t now_ms, uint64_t wall_s);
/* The config log has a new configuration. */
void join_server_begin(struct join_server *join_server);

#endif
