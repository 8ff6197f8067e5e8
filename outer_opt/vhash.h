/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vhash: the hash of one version of one fragment: all that its state is, bit for bit.
 *
 * It covers the fields below and the digest tree (common/digest.h) over the state's body: anchor, momentum, and the
 * packed rows of what the anchor counts, one behind the other. So whoever has the tree's leaves and this can prove each
 * of them by the version's hash alone (docs/FORMATS.md, 4). Pure; no allocation.
 */
#ifndef OUTER_OPT_VHASH_H
#define OUTER_OPT_VHASH_H

#include <stdbool.h>
#include <stdint.h>

#include "common/digest.h"

struct vhash_subject {
    uint32_t fragment;
    bool momentum; /* there is one */
    uint64_t version;
    uint64_t step;  /* run step of the newest result in it */
    uint64_t count; /* of values, padding included */
    uint64_t rows;  /* of what the anchor counts */
};
/* From the root of the tree over the body. */
struct digest vhash_root(const struct vhash_subject *subject, const struct digest *tree);

#endif
