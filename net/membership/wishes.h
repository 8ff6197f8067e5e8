/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wishes: what is wanted of the members: who drains, is evicted, comes or comes back, and how many steps the run takes;
 * until a record says it. Private to net/membership/.
 *
 * What others ask for (evict, revoke, steps, enrol) ends with the epoch in which it was asked, and when nobody has
 * asked again for WISHES_TOLD_MS: who asked has to stand by it, so that nothing is done long after, when those who were
 * cut off are back. What a member says of itself stands until it says otherwise.
 *
 * What the record should say of them is net/membership/muster's to decide; whether it would say anything new is asked
 * here. Of the members' rows (seats.h) it writes the wishes.
 */
#ifndef NET_MEMBERSHIP_WISHES_H
#define NET_MEMBERSHIP_WISHES_H

#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"
#include "net/membership/seats.h"
#include "net/membership/muster.h"
#include "net/config/record.h"

enum { WISHES_ENROL_MAX = 16, WISHES_TOLD_MS = 10000 };

/* All zero at first. */
struct wishes {
    struct record_member enrol[WISHES_ENROL_MAX];
    uint64_t enrol_told_ms[WISHES_ENROL_MAX];
    uint32_t enrol_count;
    uint64_t steps, steps_told_ms; /* 0: as they are */
    uint32_t idle;                 /* records in a row that changed nothing */
};

/* What the member `by` asks for, again or for the first time: kinds and numbers as in net/membership/wire_epoch.h.
 * ERR_NOTFOUND: nobody of that id is on the roster. ERR_ARG: nothing that can be wished so. What names another epoch
 * changes nothing.
 */
ERR_MUST_CHECK enum err wishes_add(struct wishes *wishes, struct seats *seats, uint32_t by, uint32_t kind, uint32_t id,
                                   uint64_t number);
/* A new member; likewise. ERR_STATE: too many at a time, or its name or key is taken; or it is a second witness. */
ERR_MUST_CHECK enum err wishes_enrol(struct wishes *wishes, const struct seats *seats, const struct record *record,
                                     const struct record_member *as);
/* A new epoch: what its record says is wished no more, nor what was asked for in the one before. */
void wishes_fulfil(struct wishes *wishes, struct seats *seats, const struct record *record);
/* Forgets what nobody asks for any more. */
void wishes_tick(struct wishes *wishes, struct seats *seats);

/* Of all members that are heard, or known to be silent, and of those to be enrolled: mem_free() them. Others stay as
 * they are: there is nothing to go by. `said`: with what members say of themselves. ERR_NOMEM. */
ERR_MUST_CHECK enum err wishes_gather(const struct wishes *wishes, const struct seats *seats, bool said,
                                      struct muster_wish **out, uint32_t *count);
/* Ids of those who might take part from the next record on, at most EPOCH_ASKED_MAX: what they hold has to be known, or
 * the record says nothing new. `asked`: slots of those who were asked for this record already, who stay so: a version
 * more, which others have come to meanwhile, they fetch now. */
uint32_t wishes_whom_to_ask(const struct seats *seats, struct bitset *asked, uint32_t *ids);
/* Whether all who were asked hold what the draft starts from, as compose() has found: rounds stand still, so they soon
 * do. */
bool wishes_all_there(const struct muster_wish *wishes, uint32_t count, const uint32_t *asked, uint32_t asked_count);
/* Whether the next record would say anything that the last one does not, and so many voters are heard as decide it. */
bool wishes_change(const struct wishes *wishes, const struct seats *seats);

#endif
