/* SPDX-License-Identifier: Apache-2.0 */
/*
 * removals: the voters that orders have sent away lately, and whether another may go now. Private to net/membership/.
 *
 * Of the voters that there were ten minutes ago at most a minority, or one, is sent away by order. A configuration does
 * not say when it was made, so nobody can check that in one: whoever composes a configuration keeps to it by what its
 * own clock says, and no acceptor looks at it. Each process counts from its start. One that is back, and is sent away
 * again, makes no fewer, and counts from the first time.
 */
#ifndef NET_MEMBERSHIP_REMOVALS_H
#define NET_MEMBERSHIP_REMOVALS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"
#include "net/config/config.h"

/* MAX: of so many the latest are remembered; more than there are voters. */
enum { REMOVALS_MS = 10 * 60 * 1000, REMOVALS_MAX = 2 * CONFIG_VOTERS_MAX };

/* All zero at first. */
struct removals {
    struct removal {
        uint32_t id, voters; /* how many there were before */
        uint64_t at_ms;
    } of[REMOVALS_MAX]; /* in order of time; of one member the first within ten minutes alone */
    uint32_t count;
    uint64_t epoch; /* of the newest configuration looked at; 0: none yet */
};

/* A configuration became the newest; `before`: the one before it, NULL where it is not known. What the first one says
 * that a process sees happened at a time that it does not know, and is not counted. */
void removals_note(struct removals *removals, const struct config *before, const struct config *config,
                   uint64_t now_ms);
/* Whether the order may be carried out after `config`, beside the orders of `next`, its successor so far. ERR_STATE:
 * others were sent away too lately; the text says for how long that stands in the way, fit for people. */
ERR_MUST_CHECK enum err removals_check(const struct removals *removals, const struct config *config,
                                       const struct config *next, const struct order *order, uint64_t now_ms);

#endif
