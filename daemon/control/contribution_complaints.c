/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/control/contribution_complaints.h"

#include <inttypes.h>
#include <stdio.h>

#include "daemon/control/complain.h"
#include "outer_opt/direction.h"
#include "outer_opt/weights.h"

/* When something that may pass is worth a complaint: rounds missed in a row; intervals a peer is behind. */
enum { MISSED_TOLD = 3, INTERVALS_BEHIND = 2 };

/* With late = merge a fast island does not wait; it should be known that it runs ahead: of where the other was when it
 * last said so, since steps may be many in the time from one heartbeat to the next. */
static void complain_pace(struct status *status)
{
    uint64_t behind = INTERVALS_BEHIND * (uint64_t)status->from->spec->interval;
    for (uint32_t i = 0; i < status->from->view->count; i++) {
        const struct status_peer *peer = &status->peers[i];
        char text[200];
        bool both = status->trainer.training && peer->training;
        if (peer->self || !peer->up || !both || peer->own_step <= peer->step + behind)
            continue;
        snprintf(text, sizeof text, "island %s is %" PRIu64 " steps behind this one", peer->member->as.name,
                 peer->own_step - peer->step);
        complain_of(status, COMPLAINT_SLOW_PEER, i, text,
                    "rounds close at its pace; late = wait in the run spec keeps islands in step");
    }
}

/* No fault: it may be as fast. */
static void complain_too_fast(struct status *status)
{
    for (uint32_t i = 0; i < status->from->view->count; i++) {
        const struct status_peer *peer = &status->peers[i];
        char text[300];
        if (!peer->member->used || !peer->too_fast)
            continue;
        snprintf(text, sizeof text,
                 "island %s trains, as it says, more than %g times (weight_max) as fast as most owners: the run's step "
                 "follows it at that pace, and so many of its tokens count",
                 peer->member->as.name, status->from->spec->weight_max);
        complain_of(status, COMPLAINT_TOO_FAST, i, text,
                    "if it is that fast, let others as fast own shards ({here} owner NAME), or begin the next run with "
                    "a larger weight_max; if it is not, look at what trains there");
    }
}

/* Nor this: of its work most is lost. */
static void complain_claims_much(struct status *status)
{
    for (uint32_t i = 0; i < status->from->view->count; i++) {
        const struct status_peer *peer = &status->peers[i];
        char text[300], remedy[300];
        if (!peer->member->used || !peer->claims_much)
            continue;
        snprintf(text, sizeof text,
                 "island %s says that it trains more than %d times as many tokens a round as most others: at most %g "
                 "times as many as usual (weight_max) count, and no more than half of all others' together",
                 peer->member->as.name, WEIGHT_CLAIM_FAR, status->from->spec->weight_max);
        snprintf(remedy, sizeof remedy,
                 "if it does, begin the next run with a larger weight_max; if not, look at its trainer, or, at an "
                 "operator, {here} revoke %s",
                 peer->member->as.name);
        complain_of(status, COMPLAINT_CLAIMS_MUCH, i, text, remedy);
    }
}

/* With a quorum: work that is trained and not counted. */
static void complain_missed(struct status *status)
{
    for (uint32_t i = 0; i < status->from->view->count; i++) {
        const struct status_peer *peer = &status->peers[i];
        char text[200];
        if (peer->missed < MISSED_TOLD || !peer->too_late || !peer->up || peer->self)
            continue;
        snprintf(text, sizeof text, "the last %" PRIu64 " rounds of our shards closed without island %s", peer->missed,
                 peer->member->as.name);
        complain_of(status, COMPLAINT_MISSED, i, text,
                    "it comes later than [sync] grace allows; make grace longer, or look at its line");
    }
}

/* As an owner: whose contributions do not count as they came. */
static void complain_outliers(struct status *status)
{
    for (uint32_t i = 0; i < status->from->view->count; i++) {
        unsigned lately = status->peers[i].outliers_lately;
        char text[200];
        if (lately == 0)
            continue;
        snprintf(text, sizeof text, "of the last 8 contributions of island %s %u were outliers, and %s",
                 status->peers[i].member->as.name, lately,
                 status->from->spec->outliers == RUNSPEC_OUTLIERS_DROP ? "left out" : "scaled down");
        complain_of(status, COMPLAINT_OUTLIER, i, text, "look at its loss, its data and its learning rate");
    }
}

/* Whose work is in none of the means, on every island alike. */
static void complain_turned_away(struct status *status)
{
    for (uint32_t i = 0; i < status->from->view->count; i++) {
        const struct status_peer *peer = &status->peers[i];
        char text[250], remedy[300];
        if (!peer->member->used || !peer->turned_away)
            continue;
        snprintf(text, sizeof text,
                 "the contributions of island %s have pointed away from the others' in %d rounds running, and weigh "
                 "nothing",
                 peer->member->as.name, DIRECTION_ROUNDS);
        snprintf(remedy, sizeof remedy,
                 "look at its loss, its data and its learning rate: they weigh again when they have not in as many "
                 "rounds; or, at an operator, {here} revoke %s, which takes its key off the roster",
                 peer->member->as.name);
        complain_of(status, COMPLAINT_TURNED_AWAY, i, text, remedy);
    }
}

void contribution_complaints(struct status *status)
{
    complain_pace(status);
    complain_too_fast(status);
    complain_missed(status);
    complain_outliers(status);
    complain_claims_much(status);
    complain_turned_away(status);
}
