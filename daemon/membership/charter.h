/* SPDX-License-Identifier: Apache-2.0 */
/*
 * charter: which view records rule this island: those on its disk, the one by which it joined, or, where there are
 * none, the first one of a run that it founds; and who that makes of its members.
 *
 * It keeps the chain and the view that follows its newest record. Only the loop's thread.
 */
#ifndef DAEMON_MEMBERSHIP_CHARTER_H
#define DAEMON_MEMBERSHIP_CHARTER_H

#include <stdbool.h>

#include "common/err.h"
#include "common/runspec.h"
#include "daemon/dconf.h"
#include "net/config/chain.h"
#include "net/transport/ident.h"
#include "net/sync/sync.h"
#include "net/config/view.h"

struct charter {
    struct chain *chain;
    struct view view;
    const struct dconf *conf; /* borrowed */
    uint8_t key[IDENT_KEY_BYTES];
    uint32_t ids[VIEW_SLOTS_MAX]; /* by slot, for charter_sync_view() */
};

/* Reads the records, or makes the first one and keeps it. `conf` is borrowed. ERR_CONF: our key is not
 * on the roster, with the remedy; what founding_record() fails with. On failure `*charter` is empty. */
ERR_MUST_CHECK enum err charter_open(const struct dconf *conf, const struct ident *ident, const struct runspec *spec,
                                     struct charter *charter);
/* An empty one is fine. */
void charter_close(struct charter *charter);

/* The next record, decided: chain and view go over to it, and the log says who is lost and who came. The record is
 * taken over. ERR_STATE: we are not on its roster; then all is as before. */
ERR_MUST_CHECK enum err charter_adopt(struct charter *charter, struct record *record, const struct digest *digest,
                                      struct view_changes *changes);

/* Records before this epoch are needed in files of their own no more: before `needed`, the oldest that a restart goes
 * on from, and not of the last 256. */
uint64_t charter_old(const struct charter *charter, uint64_t needed);

/* Who takes part, as the core wants to know it; its ids are borrowed until the next call. `votes`: our disk is not in
 * doubt. */
struct sync_view charter_sync_view(struct charter *charter, bool votes);

/* Whether the member left the run as its people asked (dilococtl leave), as far as the records say: since it last took
 * part it is draining, or away. */
bool charter_drained(const struct charter *charter, uint32_t id);

#endif
