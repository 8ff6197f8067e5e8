/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hearing: finds lost members, and members that have to stand back, from the lists of members that each one does not
 * hear.
 *
 * A member that a majority of the voters does not hear is lost. Where only a line between two owners is cut, nobody is
 * lost, and yet no round can close: each waits for what the other can't bring. Then one of the two stands back, until
 * it and the owners that stay hear each other again: first whoever is cut off from most owners, and voters that stand
 * back, of those the one with the higher id. Everybody who knows the same finds the same. Who owns nothing
 * stands back (does not become an owner) as long as it and any owner do not hear each other, so that nobody is put in
 * and out in turns; where nobody owns anything, voters come first, then the lower ids. Rule 6 of docs/PROTOCOL.md,
 * "Epochs". Pure.
 *
 * One member that lies can say that it does not hear another one, or be silent to it, and cost one that came later its
 * shards: one at a time, since it is cut off from whom it has put back as from the next one, and so from more than that
 * one is. Nothing here goes by what a member states of itself: an id none can choose.
 */
#ifndef NET_MEMBERSHIP_HEARING_H
#define NET_MEMBERSHIP_HEARING_H

#include <stdbool.h>
#include <stdint.h>

#include "common/bitset.h"

/* A member, by its place in an array. */
struct hearing {
    bool used, voter;
    bool owner;     /* role CONFIG_OWNER */
    bool candidate; /* no owner, and it would become one */
    uint32_t id;
    const struct bitset *silent; /* places of those it does not hear; NULL: it can't be heard itself, and has no say */
};

/* Places of those whom a majority of the voters does not hear; nobody says it of itself. `count` <= BITSET_MAX. */
struct bitset hearing_lost(const struct hearing *members, uint32_t count);
/* Whether we, at place `self`, are lost ourselves and others can go on without us: one that has a copy, can be heard
 * and is not lost. */
bool hearing_yields(const struct hearing *members, uint32_t count, uint32_t self);
/* Whether one of the two says that it does not hear the other. */
bool hearing_cut(const struct hearing *members, uint32_t a, uint32_t b);
/* Whether all owners that are not lost have a say: else somebody may stand back of whom it is not known here. */
bool hearing_all_owners(const struct hearing *members, uint32_t count);
/* Places of the members that have to stand back. A lost one need not, nor anybody where no majority of voters is heard.
 */
struct bitset hearing_partitioned(const struct hearing *members, uint32_t count);

#endif
