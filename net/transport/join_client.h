/* SPDX-License-Identifier: Apache-2.0 */
/*
 * join_client: the guest's side of an invitation: knocks with the token's one-time key, says who it is, waits for the
 * answer.
 *
 * For a command line program: it blocks, and has a ZeroMQ context of its own. The token's addresses are tried in turn,
 * round after round, until one answers or the time is over. That whoever answers is the inviter is proven by the
 * connection; what it answers is the caller's to check against the run that the token names. Before it asks to be let
 * in, it asks to be dialled at its address (net/transport/dial_back.h), where it listens meanwhile.
 */
#ifndef NET_TRANSPORT_JOIN_CLIENT_H
#define NET_TRANSPORT_JOIN_CLIENT_H

#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"
#include "net/transport/ident.h"
#include "net/transport/invite.h"
#include "net/transport/wire_join.h"

/* All borrowed. */
struct join_client_conf {
    const struct invite *invite;
    const struct ident *ident; /* our own key, which is admitted */
    const char *name;
    const char *address; /* "host:port" where we listen; "": we dial the others */
    const char *listen;  /* "host:port" or "*:port" to listen on, so that `address` is dialled; NULL or "": it is not */
    uint64_t uplink;     /* bit/s */
    uint8_t owner_choice; /* enum config_owner_choice */
    bool witness;
    uint32_t timeout_ms; /* until someone takes the question */
    uint32_t decide_ms;  /* in all, where someone does: the run has to decide it, which takes what that takes */
    uint32_t *answered;  /* if not NULL: becomes the number of the address at which there was an answer */
    /* If not NULL: called once, when there is no answer after a few seconds, with the cause of the wait. */
    void (*late)(void *user, const char *what);
    /* Where there is `listen`: called once, with what came of dialling `address`, the inviter's report first; none: it
     * did not answer in time. Returns the owner choice that is stated instead of the one above. */
    uint8_t (*dialled)(void *user, const struct wire_dial_report *reports, uint32_t reports_count);
    void *user;
};

/* Blocks until there is an answer. ERR_ARG: a name or an address that is none. ERR_CONF: `listen`
 * cannot be listened on, with the reason. ERR_STATE: refused, with the reason; or
 * past its time, by our own clock, before anyone was asked. ERR_CLOSED: nobody answered in time; names what each
 * address answered, and the remedy; asked again later with the same key, the answer is the same. ERR_PROTO: an answer
 * that is none. wire_joined_deinit() it; on failure it is empty. */
ERR_MUST_CHECK enum err admit_ask(const struct join_client_conf *conf, struct wire_joined *joined);

#endif
