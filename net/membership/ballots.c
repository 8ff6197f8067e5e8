/* SPDX-License-Identifier: Apache-2.0 */
#include "net/membership/ballots.h"

#include <stddef.h>
#include <string.h>

/*
 * In turns. PATIENCE: so long another may work on the next record, in an epoch; HASTE: if nobody here wanted it.
 * UNWANTED: between two that are not wanted, at first; twice as long after each, DOUBLINGS at most. A member's ballots
 * in one epoch: half a turn between the first two, twice as long each time. SAID, BURST: a message, repeated or not, in
 * a twentieth of a turn, and so many at once, since a proposer asks anew with every draft.
 */
enum { PATIENCE = 20, HASTE = 3, UNWANTED = 30, UNWANTED_DOUBLINGS = 6, DOUBLINGS = 5, SAID = 20, BURST = 64 };
/* Counters go up one by one. Who has missed some is far below this; from here on it is a member that wants to use them
 * up. */
static const uint64_t jump_max = (uint64_t)1 << 20;

static struct ballots_member *find(struct ballots *ballots, uint32_t id)
{
    for (uint32_t i = 0; i < BALLOTS_MEMBERS_MAX; i++)
        if (ballots->members[i].used && ballots->members[i].id == id)
            return &ballots->members[i];
    return NULL;
}

static bool votes(const uint32_t *voters, uint32_t voters_count, uint32_t id)
{
    for (uint32_t i = 0; i < voters_count; i++)
        if (voters[i] == id)
            return true;
    return false;
}

void ballots_begin(struct ballots *ballots, const uint32_t *voters, uint32_t voters_count)
{
    uint32_t free = 0;
    for (uint32_t i = 0; i < BALLOTS_MEMBERS_MAX; i++) {
        struct ballots_member *member = &ballots->members[i];
        if (!member->used || !votes(voters, voters_count, member->id))
            *member = (struct ballots_member){0};
        member->ballot = member->next_ms = member->began_ms = 0;
        member->count = 0;
    }
    for (uint32_t k = 0; k < voters_count && k < BALLOTS_MEMBERS_MAX; k++) {
        if (find(ballots, voters[k]) != NULL)
            continue;
        while (ballots->members[free].used)
            free++;
        ballots->members[free] = (struct ballots_member){.id = voters[k], .used = true};
    }
}

bool ballots_near(uint64_t ballot, uint64_t highest)
{
    return ballot >> 32 <= (highest >> 32) + jump_max;
}

static bool says_too_much(struct ballots_member *member, uint64_t turn_ms, uint64_t now_ms)
{
    uint64_t step_ms = turn_ms / SAID, from_ms = member->said_ms > now_ms ? member->said_ms : now_ms;
    if (from_ms > now_ms + BURST * step_ms)
        return true;
    member->said_ms = from_ms + step_ms;
    return false;
}

static uint32_t at_most(uint32_t count, uint32_t most)
{
    return count < most ? count : most;
}

/* One that seals us, and that we do not want. */
static bool take_unwanted(struct ballots_member *member, uint64_t turn_ms, uint64_t now_ms)
{
    uint64_t longest_ms = (UNWANTED * turn_ms) << UNWANTED_DOUBLINGS;
    if (now_ms < member->unwanted_ms)
        return false;
    if (now_ms >= member->unwanted_ms + longest_ms)
        member->unwanted_count = 0;
    member->unwanted_ms = now_ms + ((UNWANTED * turn_ms) << at_most(member->unwanted_count, UNWANTED_DOUBLINGS));
    member->unwanted_count++;
    return true;
}

bool ballots_take(struct ballots *ballots, uint32_t id, uint64_t ballot, uint64_t highest, bool wanted, uint64_t now_ms)
{
    struct ballots_member *member = find(ballots, id);
    if (member == NULL || !ballots_near(ballot, highest) || says_too_much(member, ballots->turn_ms, now_ms))
        return false;
    if (ballot <= member->ballot) /* again, or late */
        return true;
    if (now_ms < member->next_ms || (!wanted && !take_unwanted(member, ballots->turn_ms, now_ms)))
        return false;
    if (member->count == 0) {
        member->began_ms = now_ms;
        member->unwanted = !wanted;
    }
    member->next_ms = now_ms + ((ballots->turn_ms / 2) << at_most(member->count, DOUBLINGS));
    member->count++;
    member->ballot = ballot;
    return true;
}

uint64_t ballots_give_way(struct ballots *ballots, uint32_t id, unsigned doublings)
{
    const struct ballots_member *member = find(ballots, id);
    if (member == NULL || member->count == 0)
        return 0;
    return member->began_ms + (((member->unwanted ? HASTE : PATIENCE) * ballots->turn_ms) << doublings);
}
