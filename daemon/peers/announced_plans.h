/* SPDX-License-Identifier: Apache-2.0 */
/*
 * announced_plans: which plans of the model the others announce, and which of them is the run's for one who does not
 * know it. Private to peers/.
 *
 * One who lies may be the first to be heard, so all are waited for, or a while, and the plan of most voters counts.
 * Plain memory, only the loop's thread.
 */
#ifndef DAEMON_PEERS_ANNOUNCED_PLANS_H
#define DAEMON_PEERS_ANNOUNCED_PLANS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/bitset.h"
#include "common/digest.h"
#include "net/config/view.h"

/* All zero at first. */
struct announced_plans {
    struct bitset known;              /* slots of those that announced one */
    struct digest of[VIEW_SLOTS_MAX]; /* which, by slot */
    uint64_t heard_ms;                /* since when another one has announced one; 0: nobody has */
};

/* What the member in that slot announces; not `known`: that it knows none. */
void announced_plans_note(struct announced_plans *plans, uint32_t slot, bool known, const struct digest *plan);

/* Of the members `up`, by slot, those that announce the plan that most voters announce. Empty: nobody announces one, or
 * not `all_heard`, so that somebody who may know another one has not been heard yet, for no longer than two seconds. */
struct bitset announced_plans_holders(struct announced_plans *plans, const struct view *view, const struct bitset *up,
                                      bool all_heard, uint64_t now_ms);

/* What a member announces. */
struct plan_said {
    uint32_t id; /* of the member */
    bool voter;
    struct digest plan;
};
/* One who announces the plan that most voters announce; of as many, the one that most members do; of as many, that of
 * the lowest id. `count`, if there is none. */
uint32_t plan_of_most(const struct plan_said *said, uint32_t count);

#endif
