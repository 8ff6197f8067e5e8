/* SPDX-License-Identifier: Apache-2.0 */
/*
 * assign_roles: roles, voters and owners of the next configuration, from the last one and the changes wanted of its
 * members.
 *
 * A member that is lost loses its shards at once, but it leaves the voters only where that helps the others (rule 5 of
 * docs/PROTOCOL.md, "Epochs"): where it lowers the majority, where another takes its place, or beside a witness. A
 * newcomer votes and owns only when it holds every fragment. Pure integer arithmetic.
 */
#ifndef NET_MEMBERSHIP_ASSIGN_ROLES_H
#define NET_MEMBERSHIP_ASSIGN_ROLES_H

#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"
#include "net/config/config.h"

/* The change wanted of one member, or of a newcomer. Members without one stay as they are. */
struct change_request {
    /* A member: `id`, its own present word on address, uplink, incarnation and owner_choice, and how many of its losses
     * to remember. A newcomer: all but the id; role CONFIG_WITNESS: a witness, anything else: an island that trains. */
    struct config_member as;
    bool join;
    bool silent;      /* as a majority hears it */
    bool partitioned; /* it and an owner do not hear each other, and it is the one to stand back
                         (net/membership/hearing.h) */
    bool evicted;     /* it takes no part; its key stays on the roster */
    bool revoked;     /* its key leaves the roster */
    bool draining;    /* it is about to end */
    bool in_doubt;  /* it says that its disk is in doubt, perhaps too lately for `as` to have its incarnation; or it has
                       not said */
    bool caught_up; /* this incarnation holds every fragment at the version that the next epoch starts from */
    bool near;      /* it nearly does, as far as is known: enough to contribute */
};

/* Makes members, next_id and map of `next`, which come in as those of the last configuration. Leaves out a newcomer
 * whose name or key is on the roster, and a second witness. ERR_NOMEM; ERR_STATE: no full voter would be left, or the
 * roster has no room. */
ERR_MUST_CHECK enum err assign_roles(struct config *next, const struct change_request *requests,
                                     uint32_t change_requests_count);

#endif
