/* SPDX-License-Identifier: Apache-2.0 */
/*
 * accounts: what the ledgers of a cluster's islands say of the tokens that each of them trained. Its daemons have
 * ended.
 *
 * An island that was away and took a state over has no results of the versions before it: each version is looked for in
 * all ledgers. A helper that fails fails the running test.
 */
#ifndef TESTS_LIB_ACCOUNTS_H
#define TESTS_LIB_ACCOUNTS_H

#include <stdint.h>

#include "tests/lib/cluster.h"

struct accounts;

struct accounts *accounts_open(struct cluster *cluster);
void accounts_close(struct accounts *accounts);

/* Of the results for one shard: how many there are, how many do not count everyone, how many contributions in them say
 * something else of this shard than of others of their part; and the tokens of each island that they count. */
struct shard_account {
    long long results, partial, uneven, tokens[CLUSTER_MAX];
    /* Of each result: its tokens squared over the tokens of all in it. Where each of an island's tokens moves a value
     * by as much, results move it by so many times that, whenever they were exchanged. */
    double moved[CLUSTER_MAX];
    /* What part of all lengths that went into a mean, each by its weight and factor, is the island's: the most of any
     * result, and of the last one. Where lengths were not looked at, of the weights alone. */
    double pull_most[CLUSTER_MAX], pull_last[CLUSTER_MAX];
    /* How many results count work of the island that weighs nothing, and the first such version; 0: none. */
    long long weightless[CLUSTER_MAX], first_weightless[CLUSTER_MAX];
};
/* Up to the first version that nobody has. */
struct shard_account accounts_of(struct accounts *accounts, uint32_t f, uint32_t shard);

#endif
