/*
 * shares: what a member owns, where a test counts on it being one run of values, as it is before any member has gone;
 * and a replica cut into the parts of version 1.
 */
#ifndef TESTS_LIB_SHARES_H
#define TESTS_LIB_SHARES_H

#include "daemon/state/parts.h"
#include "daemon/state/replica.h"

/* The mask of a member's shards; 0: it has none. */
uint64_t shares_mask(const struct parts *parts, uint32_t f, uint32_t member);
/* Its part's index; CHAIN_PARTS_MAX: it has none. */
uint32_t shares_part(const struct parts *parts, uint32_t f, uint32_t member);
/* Its values; fails the running test if they are several runs; empty if it has none. */
struct plan_shard shares_run(const struct parts *parts, uint32_t f, uint32_t member);
/* Its first shard; the fragment's number of shards if it has none. */
uint32_t shares_first(const struct parts *parts, uint32_t f, uint32_t member);

/* Cuts every fragment into the parts, of which we own member `self`'s. ERR_NOMEM. */
ERR_MUST_CHECK enum err shares_cut(const struct parts *parts, struct replica *replica, uint32_t self);

#endif
