/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bitset: a set of small numbers: members of a run, shards of a fragment. The one type for sets from net/ to status.
 *
 * A plain value: copied by assignment, empty when zeroed. Numbers are below BITSET_MAX; the caller sees to it.
 */
#ifndef COMMON_BITSET_H
#define COMMON_BITSET_H

#include <stdbool.h>
#include <stdint.h>

enum { BITSET_MAX = 1024, BITSET_WORDS = BITSET_MAX / 64 };

struct bitset {
    uint64_t word[BITSET_WORDS];
};

static inline bool bitset_has(const struct bitset *set, uint32_t i)
{
    return (set->word[i / 64] >> i % 64 & 1) != 0;
}

static inline void bitset_add(struct bitset *set, uint32_t i)
{
    set->word[i / 64] |= (uint64_t)1 << i % 64;
}

static inline void bitset_remove(struct bitset *set, uint32_t i)
{
    set->word[i / 64] &= ~((uint64_t)1 << i % 64);
}

static inline void bitset_add_all(struct bitset *set, const struct bitset *more)
{
    for (int k = 0; k < BITSET_WORDS; k++)
        set->word[k] |= more->word[k];
}

static inline void bitset_remove_all(struct bitset *set, const struct bitset *less)
{
    for (int k = 0; k < BITSET_WORDS; k++)
        set->word[k] &= ~less->word[k];
}

static inline void bitset_keep_all(struct bitset *set, const struct bitset *these)
{
    for (int k = 0; k < BITSET_WORDS; k++)
        set->word[k] &= these->word[k];
}

static inline bool bitset_empty(const struct bitset *set)
{
    uint64_t any = 0;
    for (int k = 0; k < BITSET_WORDS; k++)
        any |= set->word[k];
    return any == 0;
}

static inline uint32_t bitset_count(const struct bitset *set)
{
    uint32_t count = 0;
    for (int k = 0; k < BITSET_WORDS; k++)
        count += (uint32_t)__builtin_popcountll(set->word[k]);
    return count;
}

/* Whether every one of `part` is in `whole`. */
static inline bool bitset_within(const struct bitset *part, const struct bitset *whole)
{
    uint64_t outside = 0;
    for (int k = 0; k < BITSET_WORDS; k++)
        outside |= part->word[k] & ~whole->word[k];
    return outside == 0;
}

/* The numbers below 64 of a set, as bits, and a set of them. */
static inline uint64_t bitset_word(const struct bitset *set)
{
    return set->word[0];
}

static inline struct bitset bitset_of_word(uint64_t bits)
{
    return (struct bitset){.word = {bits}};
}

/* The numbers below `count`. */
static inline struct bitset bitset_first(uint32_t count)
{
    struct bitset set = {{0}};
    for (uint32_t i = 0; i < count; i++)
        bitset_add(&set, i);
    return set;
}

#endif
