/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ground: the folder that a daemon stands on: whether it is still there, and the mark of the last vote beside it.
 *
 * A removed folder takes everything that is written to it and shows it to nobody, and its daemon would keep its port.
 * The loop's thread calls; it posts nothing and ends nothing.
 */
#ifndef DAEMON_GROUND_H
#define DAEMON_GROUND_H

#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"
#include "daemon/dconf.h"
#include "daemon/state/ledger.h"
#include "daemon/membership/vote.h"

/* Opens the last vote of the island with this public key, with its mark where home_mark() says; logs a doubt, and a
 * mark that a copy of the folder would bring back. As vote_open(). */
ERR_MUST_CHECK enum err ground_open_vote(const struct dconf *conf, const char *public_key, struct ledger *ledger,
                                         struct vote **out);

struct ground {
    uint64_t look_ms, gone_ms; /* when it is looked next; since when it is gone, 0: it is there */
};
/* The disk is known to hold less than it did: people are told, and it has no vote (vote_lost()). */
ERR_MUST_CHECK enum err ground_lost(struct vote *vote, const char *why);
/* Whether the state folder, or the ledger in it, has been gone for so long (5 s) that the daemon is to end: somebody
 * who moves it may bring it back meanwhile. Looks once in a second. */
bool ground_is_gone(struct ground *ground, struct ledger *ledger, uint64_t now_ms);
/* What happened and what to do, for people. */
void ground_text(const struct dconf *conf, char *text, size_t text_bytes);

#endif
