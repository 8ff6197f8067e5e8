/* SPDX-License-Identifier: Apache-2.0 */
#include "net/membership/hearing.h"

#include <stddef.h>

struct bitset hearing_lost(const struct hearing *members, uint32_t count)
{
    uint32_t voters = 0, deaf[BITSET_MAX] = {0};
    struct bitset lost = {{0}};
    for (uint32_t i = 0; i < count; i++) {
        if (!members[i].used || !members[i].voter)
            continue;
        voters++;
        /* Mostly nobody is: then that takes a look at the set's words, not at each member. */
        for (int w = 0; members[i].silent != NULL && w < BITSET_WORDS; w++)
            for (uint64_t left = members[i].silent->word[w]; left != 0; left &= left - 1) {
                uint32_t k = (uint32_t)(64 * w + __builtin_ctzll(left));
                deaf[k] += k != i;
            }
    }
    for (uint32_t k = 0; k < count; k++)
        if (deaf[k] > voters / 2)
            bitset_add(&lost, k);
    return lost;
}

bool hearing_yields(const struct hearing *members, uint32_t count, uint32_t self)
{
    struct bitset lost = hearing_lost(members, count);
    bool others = false;
    for (uint32_t i = 0; i < count; i++)
        others = others || (i != self && members[i].used && (members[i].owner || members[i].candidate) &&
                            members[i].silent != NULL && !bitset_has(&lost, i));
    return others && bitset_has(&lost, self);
}

bool hearing_all_owners(const struct hearing *members, uint32_t count)
{
    struct bitset lost = hearing_lost(members, count);
    for (uint32_t i = 0; i < count; i++)
        if (members[i].used && members[i].owner && members[i].silent == NULL && !bitset_has(&lost, i))
            return false;
    return true;
}

bool hearing_cut(const struct hearing *members, uint32_t a, uint32_t b)
{
    return (members[a].silent != NULL && bitset_has(members[a].silent, b)) ||
           (members[b].silent != NULL && bitset_has(members[b].silent, a));
}

static uint32_t cut_off_from(const struct hearing *members, uint32_t count, const struct bitset *these, uint32_t who)
{
    uint32_t many = 0;
    for (uint32_t i = 0; i < count; i++)
        many += i != who && bitset_has(these, i) && hearing_cut(members, who, i);
    return many;
}

/* What speaks for a member's standing back rather than another one. */
struct case_against {
    uint32_t cuts; /* of all that would own, also those that stand back */
    bool owner;
    uint32_t id;
};

static bool stronger(const struct case_against *a, const struct case_against *b)
{
    if (a->cuts != b->cuts)
        return a->cuts > b->cuts;
    return a->owner != b->owner ? !a->owner : a->id > b->id;
}

static bool is_last_owner(const struct hearing *members, uint32_t count, const struct bitset *these, uint32_t who)
{
    uint32_t owners = 0;
    for (uint32_t i = 0; i < count; i++)
        owners += bitset_has(these, i) && members[i].owner;
    return members[who].owner && owners == 1;
}

/* The next of these to stand back; `count`: none has to. `whole`: with those that have to already. */
static uint32_t next_apart(const struct hearing *members, uint32_t count, const struct bitset *these,
                           const struct bitset *whole)
{
    uint32_t next = count;
    struct case_against most = {0};
    for (uint32_t i = 0; i < count; i++) {
        if (!bitset_has(these, i) || cut_off_from(members, count, these, i) == 0 ||
            is_last_owner(members, count, these, i))
            continue;
        struct case_against its = {
            .cuts = cut_off_from(members, count, whole, i), .owner = members[i].owner, .id = members[i].id};
        if (next < count && !stronger(&its, &most))
            continue;
        most = its;
        next = i;
    }
    return next;
}

/* Fewer could decide nothing, and a minority may hear nobody. */
static bool majority_speaks(const struct hearing *members, uint32_t count)
{
    uint32_t voters = 0, speak = 0;
    for (uint32_t i = 0; i < count; i++) {
        voters += members[i].used && members[i].voter;
        speak += members[i].used && members[i].voter && members[i].silent != NULL;
    }
    return speak > voters / 2;
}

static bool all_hear_all(const struct hearing *members, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (members[i].used && members[i].silent != NULL && !bitset_empty(members[i].silent))
            return false;
    return true;
}

/* The one to be judged next; `count`: all are. */
static uint32_t next_candidate(const struct hearing *members, uint32_t count, const struct bitset *judged)
{
    uint32_t next = count;
    for (uint32_t i = 0; i < count; i++)
        if (members[i].used && members[i].candidate && !bitset_has(judged, i) &&
            (next == count || members[i].id < members[next].id))
            next = i;
    return next;
}

struct bitset hearing_partitioned(const struct hearing *members, uint32_t count)
{
    struct bitset owners = {{0}}, whole = {{0}}, partitioned = {{0}}, judged = {{0}},
                  lost = hearing_lost(members, count);
    uint32_t next;
    if (all_hear_all(members, count) || !majority_speaks(members, count))
        return partitioned;
    for (uint32_t i = 0; i < count; i++)
        if (members[i].used && !bitset_has(&lost, i) &&
            (members[i].owner || (members[i].voter && members[i].candidate)))
            bitset_add(&whole, i);
    owners = judged = whole;
    while ((next = next_apart(members, count, &owners, &whole)) < count) {
        bitset_remove(&owners, next);
        bitset_add(&partitioned, next);
    }
    while ((next = next_candidate(members, count, &judged)) < count) {
        bitset_add(&judged, next);
        if (bitset_has(&lost, next))
            continue;
        if (cut_off_from(members, count, &owners, next) > 0)
            bitset_add(&partitioned, next);
        else
            bitset_add(&owners, next); /* whoever comes after it has to hear it, too */
    }
    return partitioned;
}
