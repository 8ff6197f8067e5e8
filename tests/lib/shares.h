/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shares: a config log of configuration 0 alone, what its members own in version 1, where a test counts on that being
 * one run of values, and a replica cut into these parts.
 *
 * `member` is a place in configuration 0, which is a slot where nobody has come or gone; shares_id() is its id.
 */
#ifndef TESTS_LIB_SHARES_H
#define TESTS_LIB_SHARES_H

#include "common/bitset.h"
#include "daemon/state/parts.h"
#include "daemon/state/replica.h"

/* Configuration 0 of so many owners, whose ids are tests/lib/roster's, with shards by these weights. The caller frees.
 */
struct config_log *shares_config_log(const uint64_t *weights, uint32_t count);
/* The same configuration for the caller to change, who frees it or puts it into a config log. */
struct config shares_config(const uint64_t *weights, uint32_t count);

uint32_t shares_id(const struct parts *parts, uint32_t member);
/* Members that own shards of the fragment, and the mask of those that some of them own. */
struct bitset shares_owners(const struct parts *parts, uint32_t f);
uint64_t shares_masks(const struct parts *parts, uint32_t f, const struct bitset *members);

/* The mask of a member's shards; 0: it has none. */
uint64_t shares_mask(const struct parts *parts, uint32_t f, uint32_t member);
/* Its part's index; VERSION_PARTS_MAX: it has none. */
uint32_t shares_part(const struct parts *parts, uint32_t f, uint32_t member);
/* Its values; fails the running test if they are several runs; empty if it has none. */
struct plan_shard shares_run(const struct parts *parts, uint32_t f, uint32_t member);
/* Its first shard; the fragment's number of shards if it has none. */
uint32_t shares_first(const struct parts *parts, uint32_t f, uint32_t member);

/* Cuts every fragment into the parts, of which we own member `self`'s. ERR_NOMEM. */
ERR_MUST_CHECK enum err shares_cut(const struct parts *parts, struct replica *replica, uint32_t self);

#endif
