/* SPDX-License-Identifier: Apache-2.0 */
/*
 * voters: the voters of an epoch as the one who proposes sees them: who can be heard, and what each answered to the
 * ballot at hand. Pure; plain memory inside struct epoch, all zero at first.
 */
#ifndef NET_MEMBERSHIP_VOTERS_H
#define NET_MEMBERSHIP_VOTERS_H

#include <stdbool.h>
#include <stdint.h>

#include "net/config/record.h"

enum { VOTERS_MAX = 128 };

struct voter {
    uint32_t id;
    bool up;
    bool promised, accepted, rejected; /* our ballot */
    struct record_vote vote;           /* `accepted`: signed */
};

struct voters {
    struct voter all[VOTERS_MAX];
    uint32_t count;
};

/* A new epoch, with these voters in order of id, at most VOTERS_MAX: who stays is as up as before. */
void voters_set(struct voters *voters, const uint32_t *ids, uint32_t count);
/* Borrowed; NULL: it does not vote. */
struct voter *voters_find(struct voters *voters, uint32_t id);
uint32_t voters_majority(const struct voters *voters);
/* How many that are up stand before this one. */
uint32_t voters_up_before(const struct voters *voters, uint32_t id);

/* A new ballot, to which nobody has answered. */
void voters_begin_ballot(struct voters *voters);
uint32_t voters_promised(const struct voters *voters);
bool voters_has_promised(const struct voters *voters, uint32_t id);
/* How many have not refused. */
uint32_t voters_left(const struct voters *voters);
/* The votes of those who accepted; how many. */
uint32_t voters_accepted(const struct voters *voters, struct record_vote votes[VOTERS_MAX]);

#endif
