/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ballots: which of others' ballots a voter takes in, and how long it leaves the next record to them, so that one who
 * begins ballot after ballot seals nobody for long.
 *
 * A voter that has not promised takes a ballot of a member in that begins what the voter itself does not want only now
 * and then, and less often each time; within an epoch, a member's ballots at growing distances, which whoever backs off
 * after a refusal keeps anyway (net/membership/epoch). A ballot that is not taken in is as if it had been lost: it is
 * safe, and who means it says it again. Pure; plain memory inside struct epoch. The clock is the caller's.
 */
#ifndef NET_MEMBERSHIP_BALLOTS_H
#define NET_MEMBERSHIP_BALLOTS_H

#include <stdbool.h>
#include <stdint.h>

enum { BALLOTS_MEMBERS_MAX = 128 };

/* Of one member. */
struct ballots_member {
    uint32_t id;
    bool used;
    uint64_t ballot;   /* the last one taken in, of this epoch; 0: none */
    uint32_t count;    /* so many were */
    uint64_t next_ms;  /* none before this */
    uint64_t began_ms; /* when the first one was */
    bool unwanted;     /* and whether nobody here wanted it */
    uint32_t unwanted_count;
    uint64_t unwanted_ms; /* of any epoch: none that is not wanted before this */
    uint64_t said_ms;     /* how far it has used up what it may say */
};

/* All zero at first, but for turn_ms. */
struct ballots {
    uint64_t turn_ms;
    struct ballots_member members[BALLOTS_MEMBERS_MAX];
};

/* A new epoch, with these voters: what is remembered of others is forgotten. */
void ballots_begin(struct ballots *ballots, const uint32_t *voters, uint32_t voters_count);
/* Whether this ballot of the member is taken in. `highest`: heard of so far; `wanted`: we want the next record, or are
 * sealed already. */
bool ballots_take(struct ballots *ballots, uint32_t id, uint64_t ballot, uint64_t highest, bool wanted,
                  uint64_t now_ms);
/* Whether it is no further above the highest one than ballots can be that were taken in one by one. */
bool ballots_near(uint64_t ballot, uint64_t highest);
/* Until when to leave the next record to the member, of which a ballot was taken in; 0: none was. `doublings`: of our
 * patience. */
uint64_t ballots_give_way(struct ballots *ballots, uint32_t id, unsigned doublings);

#endif
