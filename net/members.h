/*
 * members: a set of members of a run, by number.
 */
#ifndef NET_MEMBERS_H
#define NET_MEMBERS_H

#include <stdbool.h>
#include <stdint.h>

enum { MEMBERS_MAX = 1024, MEMBERS_WORDS = MEMBERS_MAX / 64 };

struct members {
    uint64_t word[MEMBERS_WORDS];
};

static inline bool members_has(const struct members *set, uint32_t i)
{
    return (set->word[i / 64] >> i % 64 & 1) != 0;
}

static inline void members_add(struct members *set, uint32_t i)
{
    set->word[i / 64] |= (uint64_t)1 << i % 64;
}

static inline void members_remove(struct members *set, uint32_t i)
{
    set->word[i / 64] &= ~((uint64_t)1 << i % 64);
}

static inline void members_add_all(struct members *set, const struct members *more)
{
    for (int k = 0; k < MEMBERS_WORDS; k++)
        set->word[k] |= more->word[k];
}

static inline void members_remove_all(struct members *set, const struct members *less)
{
    for (int k = 0; k < MEMBERS_WORDS; k++)
        set->word[k] &= ~less->word[k];
}

static inline void members_keep_all(struct members *set, const struct members *these)
{
    for (int k = 0; k < MEMBERS_WORDS; k++)
        set->word[k] &= these->word[k];
}

static inline bool members_empty(const struct members *set)
{
    uint64_t any = 0;
    for (int k = 0; k < MEMBERS_WORDS; k++)
        any |= set->word[k];
    return any == 0;
}

static inline uint32_t members_count(const struct members *set)
{
    uint32_t count = 0;
    for (int k = 0; k < MEMBERS_WORDS; k++)
        count += (uint32_t)__builtin_popcountll(set->word[k]);
    return count;
}

/* Whether every one of `part` is in `whole`. */
static inline bool members_within(const struct members *part, const struct members *whole)
{
    uint64_t outside = 0;
    for (int k = 0; k < MEMBERS_WORDS; k++)
        outside |= part->word[k] & ~whole->word[k];
    return outside == 0;
}

/* The first `count` members. */
static inline struct members members_first(uint32_t count)
{
    struct members set = {{0}};
    for (uint32_t i = 0; i < count; i++)
        members_add(&set, i);
    return set;
}

/* Between a set and bits, for what has no members beyond the 64th. */
static inline uint64_t members_bits(const struct members *set)
{
    return set->word[0];
}

static inline struct members members_of_bits(uint64_t bits)
{
    return (struct members){.word = {bits}};
}

#endif
