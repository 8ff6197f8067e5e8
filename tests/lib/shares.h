/*
 * shares: what a member owns, where a test counts on it being one run of values, as it is before any member has gone.
 */
#ifndef TESTS_LIB_SHARES_H
#define TESTS_LIB_SHARES_H

#include "daemon/state/replica.h"

/* Fails the running test if it is several runs; empty if it is none. */
struct plan_shard shares_run(const struct replica *replica, uint32_t f, uint32_t member);

/* The first shard of a member; the fragment's number of shards if it has none. */
uint32_t shares_first(const struct replica *replica, uint32_t f, uint32_t member);

#endif
