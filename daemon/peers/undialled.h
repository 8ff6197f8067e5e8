/* SPDX-License-Identifier: Apache-2.0 */
/*
 * undialled: whether the owners dial this island in vain, by what they say. Private to peers/.
 *
 * Those that are not heard know nothing of it; where there are none, it stays as it was. What was found out when the
 * island joined, or before it was stopped, holds until an owner gets through, or has had time to say that it does not.
 * No single island's word is enough where there are others, or it could own everything by it.
 * Plain memory, all zero at first; only the loop's thread. It logs what changes.
 */
#ifndef DAEMON_PEERS_UNDIALLED_H
#define DAEMON_PEERS_UNDIALLED_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/dconf.h"
#include "net/config/view.h"

/* How long an owner dials in vain before it says so: several attempts, and the time that a restarted one takes to
 * listen. */
enum { UNDIALLED_MS = 15000 };

struct undialled {
    bool is;
    bool foretold;      /* no owner has had time to say so yet */
    uint64_t owners_ms; /* foretold: since when one is heard; 0: none is */
};

/* As the configuration has it of this island, if it listens. */
void undialled_begin(struct undialled *undialled, const struct dconf *conf, const struct view *view);

/* The owners that are heard. */
struct undialled_said {
    uint32_t owners, in_vain; /* of them: say that they dial us in vain */
    uint32_t voices;          /* of all that are heard: say so */
    uint32_t islands;         /* others on the roster that train */
    bool through;             /* one has come through */
    const char *who;          /* the name of one */
};
/* Whether it has changed. */
bool undialled_look(struct undialled *undialled, const struct undialled_said *said, uint64_t now_ms);

#endif
