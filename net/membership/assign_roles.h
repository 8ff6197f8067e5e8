/* SPDX-License-Identifier: Apache-2.0 */
/*
 * assign_roles: who takes part in the next epoch: roles, voters and owners of the next configuration, from the last one
 * and what is wanted of its members.
 *
 * A member that is lost loses its shards at once, but it leaves the voters only where that helps the others (rule 5 of
 * docs/PROTOCOL.md, "Epochs"): where it lowers the majority, where another takes its place, or beside a witness. Who
 * comes votes and owns only when it holds every fragment. Pure integer arithmetic.
 */
#ifndef NET_MEMBERSHIP_ASSIGN_ROLES_H
#define NET_MEMBERSHIP_ASSIGN_ROLES_H

#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"
#include "net/config/config.h"

/* The change wanted of one member, or of a newcomer. Members without one stay as they are. */
struct change_request {
    /* Admitted already: `id`, and what it says of itself now: address, uplink, incarnation, owner_choice; and
     * how many of its losses are to be remembered. Else all of it
     * but the id; role CONFIG_WITNESS: a witness, anything else: an island that trains. */
    struct config_member as;
    bool join;
    bool silent;      /* as a majority hears it */
    bool partitioned; /* it and an owner do not hear each other, and it is the one to stand back
                         (net/membership/hearing.h) */
    bool evicted;     /* it takes no part; its key stays on the roster */
    bool revoked;     /* its key leaves the roster */
    bool draining;    /* it is about to end */
    bool in_doubt;  /* its disk is, as it says, be it too lately for `as` to have its incarnation; or it has not said */
    bool caught_up; /* this incarnation holds every fragment at what the next epoch starts from */
    bool near;      /* it nearly does, as far as is known: enough to contribute */
};

/* Makes members, next_id and map of `next`, whose members and map are those of the last configuration still. Admissions
 * of a name or key that is there already, and of a second witness, are left out. ERR_NOMEM; ERR_STATE: nobody would be
 * left who votes and has a copy, or there is no room on the roster. */
ERR_MUST_CHECK enum err assign_roles(struct config *next, const struct change_request *requests,
                                     uint32_t change_requests_count);

#endif
