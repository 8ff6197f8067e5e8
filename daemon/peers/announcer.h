/* SPDX-License-Identifier: Apache-2.0 */
/*
 * announcer: what this island says to the others: its greeting, its heartbeat, and its goodbye. Private to peers/.
 *
 * It composes a message and hands it to the link; to whom, and when, is the caller's to say. A message that cannot go
 * now is dropped: everything here is repeated. It reads the core, the rounds, the trainer and the vote, and writes none
 * of them. Only the loop's thread.
 */
#ifndef DAEMON_PEERS_ANNOUNCER_H
#define DAEMON_PEERS_ANNOUNCER_H

#include <stdbool.h>
#include <stdint.h>

#include "common/bitset.h"
#include "common/err.h"
#include "common/runspec.h"
#include "daemon/dconf.h"
#include "daemon/membership/membership_host.h"
#include "daemon/membership/vote.h"
#include "daemon/peers/peer.h"
#include "daemon/trainer/trainer.h"
#include "daemon/transfer/objects.h"
#include "net/config/view.h"
#include "net/sync/sync.h"
#include "net/transport/link.h"
#include "net/transport/wire.h"

/* All borrowed. */
struct announcer_conf {
    const struct dconf *conf;
    const struct runspec *spec;
    const struct view *view;
    const struct vote *vote;
    struct link *link;
    struct membership_host *host;
    const struct trainer *trainer;
    const struct transfer_plan *plan; /* all zero until it is known */
    const struct bitset *silent;      /* slots of members that are not heard: heartbeats name them */
    uint64_t session;                 /* of this daemon process */
};

/* All zero before announcer_init(). */
struct announcer {
    struct announcer_conf conf;
    struct told {
        struct rows_said *rows; /* [fragments]: what a member was told of them last; NULL: no member, or no plan */
        uint32_t refresh;       /* next fragment to repeat */
    } told[VIEW_SLOTS_MAX];
    uint64_t word;           /* number of our word in the last greeting */
    struct wire_message out; /* large, so not on the stack */
};

void announcer_init(struct announcer *announcer, const struct announcer_conf *conf);
void announcer_deinit(struct announcer *announcer);
/* A member comes to that slot. ERR_NOMEM. */
ERR_MUST_CHECK enum err announcer_reserve(struct announcer *announcer, uint32_t slot);
/* The plan becomes known now, of so many fragments. ERR_NOMEM. */
ERR_MUST_CHECK enum err announcer_plan_known(struct announcer *announcer, uint32_t fragments);
/* It has left: the slot is another's. */
void announcer_forget(struct announcer *announcer, uint32_t slot);
/* Nothing that it was told counts any more: the next heartbeats tell all anew. */
void announcer_anew(struct announcer *announcer, uint32_t slot);

/* Greets the member in that slot. */
void announcer_hello(struct announcer *announcer, uint32_t slot);
/* A heartbeat to it, numbered by its `beats`. `undialled`: we dial it in vain. */
void announcer_heartbeat(struct announcer *announcer, uint32_t slot, struct beats *beats, bool undialled,
                         uint64_t now_ms);
/* The daemon stops. */
void announcer_bye(struct announcer *announcer, uint32_t slot, const char *reason);

#endif
