/* SPDX-License-Identifier: Apache-2.0 */
/*
 * change_requests: what is wanted of the members: who drains, is evicted, comes or comes back, and how many steps the
 * run takes; until a configuration says it. Private to net/membership/.
 *
 * What others ask for (evict, revoke, steps, admit) ends with the epoch in which it was asked, and when nobody has
 * asked again for CHANGE_REQUESTS_TOLD_MS: who asked has to stand by it, so that nothing is done long after, when those
 * who were cut off are back. What a member says of itself stands until it says otherwise.
 *
 * What the configuration should say of them is net/membership/assign_roles's to decide; whether it would say anything
 * new is asked here. Of the members' rows (member_progress.h) it writes the change requests.
 */
#ifndef NET_MEMBERSHIP_CHANGE_REQUESTS_H
#define NET_MEMBERSHIP_CHANGE_REQUESTS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"
#include "net/membership/member_progress.h"
#include "net/membership/assign_roles.h"
#include "net/config/config.h"

enum { CHANGE_REQUESTS_ADMIT_MAX = 16, CHANGE_REQUESTS_TOLD_MS = 10000 };

/* All zero at first. */
struct change_requests {
    struct config_member join[CHANGE_REQUESTS_ADMIT_MAX];
    uint64_t admit_told_ms[CHANGE_REQUESTS_ADMIT_MAX];
    uint32_t admit_count;
    uint64_t steps, steps_told_ms; /* 0: as they are */
    uint32_t idle;                 /* configurations in a row that changed nothing */
};

/* What the member `by` asks for, again or for the first time: kinds and numbers as in net/membership/wire_paxos.h.
 * ERR_NOTFOUND: nobody of that id is on the roster. ERR_ARG: nothing that can be wished so. What names another epoch
 * changes nothing.
 */
ERR_MUST_CHECK enum err change_requests_add(struct change_requests *requests, struct member_progress *progress,
                                            uint32_t by, uint32_t kind, uint32_t id, uint64_t number);
/* A new member; likewise. ERR_STATE: too many at a time, or its name or key is taken; or it is a second witness. */
ERR_MUST_CHECK enum err change_requests_admit(struct change_requests *requests, const struct member_progress *progress,
                                              const struct config *config, const struct config_member *as);
/* A new epoch: what its configuration says is wished no more, nor what was asked for in the one before. */
void change_requests_fulfil(struct change_requests *requests, struct member_progress *progress,
                            const struct config *config);
/* Forgets what nobody asks for any more. */
void change_requests_tick(struct change_requests *requests, struct member_progress *progress);

/* Of all members that are heard, or known to be silent, and of those to be admitted: mem_free() them. Others stay as
 * they are: there is nothing to go by. `said`: with what members say of themselves. ERR_NOMEM. */
ERR_MUST_CHECK enum err change_requests_gather(const struct change_requests *requests,
                                               const struct member_progress *progress, bool said,
                                               struct change_request **out, uint32_t *count);
/* Whether a member that is away, which may be us, is back and comes in again by itself when it has caught up: it is
 * heard, and nobody wishes otherwise. */
bool change_requests_catches_up(const struct change_requests *requests, const struct member_progress *progress,
                                uint32_t member);
/* Ids of those who might take part from the next configuration on, at most PAXOS_ASKED_MAX: what they hold has to be
 * known, or the configuration says nothing new. `asked`: slots of those who were asked for this configuration already,
 * who stay so: a version more, which others have come to meanwhile, they fetch now. */
uint32_t change_requests_whom_to_ask(const struct member_progress *progress, struct bitset *asked, uint32_t *ids);
/* Whether all who were asked hold what the draft starts from, as compose() has found: rounds stand still, so they soon
 * do. */
bool change_requests_all_there(const struct change_request *requests, uint32_t count, const uint32_t *asked,
                               uint32_t asked_count);
/* Whether the next configuration would say anything that the last one does not, and so many voters are heard as decide
 * it. */
bool change_requests_change(const struct change_requests *requests, const struct member_progress *progress);

#endif
