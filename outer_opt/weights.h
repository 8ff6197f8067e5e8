/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weights: how much each contribution to a mean weighs: as the tokens that its maker says, within bounds that follow
 * from what the others say.
 *
 * A member's tokens are its own word, and a wrong counter would own the mean. So they count at most `max` times the
 * upper median of the other owners' tokens a round, for each round that it was not counted in, at most
 * WEIGHT_ROUNDS_MAX; where fewer than two other owners contribute, of all others. Where three or more contribute,
 * nobody weighs more than half of what the others do within that bound; and those that own nothing weigh together at
 * most as much as the owners. How many rounds a member missed is known from results, never from its word. Every owner
 * computes the same. Pure.
 */
#ifndef OUTER_OPT_WEIGHTS_H
#define OUTER_OPT_WEIGHTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { WEIGHT_INPUTS_MAX = 1024, WEIGHT_ROUNDS_MAX = 8, WEIGHT_CLAIM_FAR = 16 };

struct weight_input {
    uint64_t tokens; /* its maker's word; at least 1 */
    uint64_t missed; /* rounds since the last one that counted its maker */
    bool owner;      /* its maker owns shards */
};

/* Up to WEIGHT_INPUTS_MAX inputs, in any order; a single one weighs its tokens. */
void weights_bound(double max, const struct weight_input *inputs, size_t count, float *weights);
/* Whether so many tokens, which weigh `weight` after all bounds, are so far beyond what is usual that people should be
 * told: more than WEIGHT_CLAIM_FAR times as many, of which a quarter counts at most. Who comes after some rounds claims
 * as much more, and weighs it, and is not meant. */
bool weights_far_beyond(uint64_t tokens, float weight, uint64_t usual);

#endif
