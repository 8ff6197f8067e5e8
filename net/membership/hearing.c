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

/* Whether `a` stands back rather than `b`, which is cut off from as many. */
static bool rather(const struct hearing *a, const struct hearing *b)
{
    return a->uplink != b->uplink ? a->uplink < b->uplink : a->id > b->id;
}

/* The next of the owners to stand back; `count`: none has to. */
static uint32_t next_apart(const struct hearing *members, uint32_t count, const struct bitset *owners)
{
    uint32_t next = count, most = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t many = bitset_has(owners, i) ? cut_off_from(members, count, owners, i) : 0;
        if (many > most || (many == most && many > 0 && rather(&members[i], &members[next]))) {
            most = many;
            next = i;
        }
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

/* A voter has kept what was committed: another one may have to get it from that one, and cannot where their line is
 * cut. */
static bool judged_before(const struct hearing *a, const struct hearing *b)
{
    return a->voter != b->voter ? a->voter : a->id < b->id;
}

/* The one to be judged next; `count`: all are. */
static uint32_t next_candidate(const struct hearing *members, uint32_t count, const struct bitset *judged)
{
    uint32_t next = count;
    for (uint32_t i = 0; i < count; i++)
        if (members[i].used && members[i].candidate && !bitset_has(judged, i) &&
            (next == count || judged_before(&members[i], &members[next])))
            next = i;
    return next;
}

struct bitset hearing_partitioned(const struct hearing *members, uint32_t count)
{
    struct bitset owners = {{0}}, partitioned = {{0}}, judged = {{0}}, lost = hearing_lost(members, count);
    uint32_t next;
    if (all_hear_all(members, count) || !majority_speaks(members, count))
        return partitioned;
    for (uint32_t i = 0; i < count; i++)
        if (members[i].used && members[i].owner && !bitset_has(&lost, i))
            bitset_add(&owners, i);
    while ((next = next_apart(members, count, &owners)) < count) {
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
