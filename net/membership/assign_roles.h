/* SPDX-License-Identifier: Apache-2.0 */
/*
 * assign_roles: roles, voters and owners of the next configuration, from the last one and what is known of its members.
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

/* The change wanted of one member. Members without one stay as they are. */
struct change_request {
    uint32_t id;
    bool unheard;         /* it stays as it is, but for `evicted` */
    uint64_t incarnation; /* of its disk, as it says */
    uint8_t losses;       /* how many of its losses to remember */
    bool silent;          /* as a majority hears it */
    bool partitioned;     /* it and an owner do not hear each other, and it is the one to stand back
                             (net/membership/hearing.h) */
    bool evicted;         /* it takes no part; its key stays on the roster */
    bool held;            /* no majority agrees to any change of it: it stays as it is */
    bool in_doubt;  /* it says that its disk is in doubt, perhaps too lately for `incarnation` to be that one; or it has
                       not said */
    bool caught_up; /* this incarnation holds every fragment at the version that the next epoch starts from */
    bool near;      /* it nearly does, as far as is known: enough to contribute */
};

/* Makes roles, voters, incarnations, losses and map of `next`, which come in as those of the last configuration, with
 * orders and members' words carried out (net/config/config_orders.h). A newcomer observes until it has caught up; who
 * is a contributor by order owns and votes no more. ERR_NOMEM; ERR_STATE: no full voter would be left. */
ERR_MUST_CHECK enum err assign_roles(struct config *next, const struct change_request *requests,
                                     uint32_t change_requests_count);
/* Likewise, but nothing changes except what the configuration's own orders say: for when nothing else can. */
void assign_roles_by_order(struct config *next);

#endif
