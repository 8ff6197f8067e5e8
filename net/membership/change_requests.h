/* SPDX-License-Identifier: Apache-2.0 */
/*
 * change_requests: wanted changes, until a configuration fulfils them: members that drain, are evicted, come or come
 * back, and the run's number of steps. Private to net/membership/.
 *
 * A request by others (evict, revoke, steps, admit) ends with the epoch in which it was asked, and when nobody has
 * repeated it for CHANGE_REQUESTS_TOLD_MS. So nothing is carried out long after, when an asker that was cut off is
 * back. A member's word on itself stands until it says otherwise.
 *
 * It says whether another configuration would bring anything new; net/membership/assign_roles decides what that one
 * says. Of the members' rows (member_progress.h) it writes the requests.
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

/* Takes in a request of the member `by`, new or repeated: kinds and numbers as in net/membership/wire_paxos.h. One that
 * names another epoch changes nothing. ERR_NOTFOUND: nobody of that id is on the roster. ERR_ARG: no request of this
 * kind has this form. */
ERR_MUST_CHECK enum err change_requests_add(struct change_requests *requests, struct member_progress *progress,
                                            uint32_t by, uint32_t kind, uint32_t id, uint64_t number);
/* A new member; likewise. ERR_STATE: too many at a time, or its name or key is taken; or it is a second witness. */
ERR_MUST_CHECK enum err change_requests_admit(struct change_requests *requests, const struct member_progress *progress,
                                              const struct config *config, const struct config_member *as);
/* A new epoch: forgets requests that its configuration fulfils, and those of the epoch before. */
void change_requests_fulfil(struct change_requests *requests, struct member_progress *progress,
                            const struct config *config);
/* Forgets requests that nobody repeats any more. */
void change_requests_tick(struct change_requests *requests, struct member_progress *progress);

/* The changes wanted of all members that are heard, or known to be silent, and of newcomers: mem_free() them. Other
 * members stay as they are: there is nothing to go by. `said`: with the members' own words. ERR_NOMEM. */
ERR_MUST_CHECK enum err change_requests_gather(const struct change_requests *requests,
                                               const struct member_progress *progress, bool said,
                                               struct change_request **out, uint32_t *count);
/* Whether a member that is away, which may be us, is back and comes in again by itself when it has caught up: it is
 * heard, and nobody asks otherwise. */
bool change_requests_catches_up(const struct change_requests *requests, const struct member_progress *progress,
                                uint32_t member);
/* Ids of members that might take part from the next configuration on, at most PAXOS_ASKED_MAX: their reports must be
 * known, or the configuration says nothing new. `asked`: slots of those already asked for this configuration; they
 * stay: they are fetching a version that others have reached meanwhile. */
uint32_t change_requests_whom_to_ask(const struct member_progress *progress, struct bitset *asked, uint32_t *ids);
/* Whether all that were asked hold the versions that the draft starts from, as next_config() has found: rounds stand
 * still, so they soon do. */
bool change_requests_all_there(const struct change_request *requests, uint32_t count, const uint32_t *asked,
                               uint32_t asked_count);
/* Whether the next configuration would differ from the last one, and enough voters are heard to decide it. */
bool change_requests_change(const struct change_requests *requests, const struct member_progress *progress);

#endif
