/*
 * vhash: the hash of one version of one fragment: anchor and momentum, bit for bit.
 *
 * A tree of BLAKE2b: leaves over VHASH_LEAF values each, so that threads share the work and a repair can find the
 * damaged part; the root covers fragment, version, counts and all leaves. Pure; no allocation.
 */
#ifndef OUTER_OPT_VHASH_H
#define OUTER_OPT_VHASH_H

#include <stddef.h>
#include <stdint.h>

#include "common/digest.h"

enum { VHASH_LEAF = 1 << 20 };

/* Leaves of an array of `count` values. */
size_t vhash_leaves(size_t count);

/* Leaf `index` of an array. */
struct digest vhash_leaf(const float *values, size_t count, size_t index);

/* Root over the anchor's leaves and the momentum's (`momentum_leaves` may be NULL: no momentum). */
struct digest vhash_root(uint32_t fragment, uint64_t version, size_t count, const struct digest *anchor_leaves,
                         const struct digest *momentum_leaves);

#endif
