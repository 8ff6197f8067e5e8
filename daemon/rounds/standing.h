/* SPDX-License-Identifier: Apache-2.0 */
/*
 * standing: how each member's contributions have stood in the results that this island applied: how often they were
 * outliers, or were of far more tokens than others' and than they weigh, of all and of the last eight that judged them;
 * and where they are turned away, by what the anchors count (daemon/state/dedup.h). Private to rounds/.
 *
 * It follows from results alone, so it is the same whoever made them, and a restart finds the last ones in the ledger.
 * Only the loop's thread calls.
 */
#ifndef DAEMON_ROUNDS_STANDING_H
#define DAEMON_ROUNDS_STANDING_H

#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"
#include "common/bitset.h"
#include "common/log.h"
#include "daemon/state/dedup.h"
#include "net/config/view.h"
#include "net/transport/wire_object.h"
#include "outer_opt/plan.h"

enum { STANDING_CLAIMS = 3 };

struct standing_member {
    uint64_t outliers;
    uint64_t judged; /* results that judged it */
    uint8_t lately;  /* a bit for each of the last results that judged it, the newest lowest: 1 for an outlier */
    uint8_t claims;  /* likewise: 1 where it claims far more tokens than most others, and than it weighs */
    struct log_limit said, said_turned, said_claims;
};

/* Empty when zeroed. */
struct standing {
    struct standing_member *members;
    uint32_t count;
    const struct plan *plan; /* NULL: of no use for who is turned away */
    /* Of each fragment: members that it has counted lately, and those that are turned away in most of the values that
     * did. */
    struct bitset *counted, *turned;
    struct bitset away; /* members whose contributions weigh nothing if all contribute */
};

/* `plan` is borrowed. ERR_NOMEM. */
ERR_MUST_CHECK enum err standing_init(struct standing *standing, const struct plan *plan);
void standing_deinit(struct standing *standing);
/* For members 0 to `count` - 1, who are never taken away. ERR_NOMEM. */
ERR_MUST_CHECK enum err standing_members(struct standing *standing, uint32_t count);
/* The slot is another member's from now on. */
void standing_forget(struct standing *standing, uint32_t member);
/* Whom a result of fragment `f`, version `version`, counts, and how. `tell`: it is news, and goes to the log. */
void standing_note(struct standing *standing, const struct view *view, const struct wire_meta *meta, uint32_t f,
                   uint64_t version, uint64_t now_ms, bool tell);
/* What `from` was told, as if it had been told to `to` now. */
void standing_add(struct standing *to, const struct standing *from);
/* The anchor of fragment `f` counts this now: who is turned away. `tell`: what has changed is news. */
void standing_turned(struct standing *standing, const struct view *view, uint32_t f, const struct dedup *counted,
                     uint64_t now_ms, bool tell);
/* Whether a member is turned away in most of what has counted it lately: it weighs nothing, unless too many are. */
bool standing_turned_away(const struct standing *standing, uint32_t member);
/* Whether STANDING_CLAIMS or more of the last eight results that judged a member say that it trained far more tokens
 * than most others, and than it weighs (outer_opt/weights.h). It may have. */
bool standing_claims_much(const struct standing *standing, uint32_t member);
/* Outliers so far of a member, and `*lately` among the last eight. */
uint64_t standing_outliers(const struct standing *standing, uint32_t member, unsigned *lately);

#endif
