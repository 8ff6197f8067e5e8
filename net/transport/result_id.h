/* SPDX-License-Identifier: Apache-2.0 */
/*
 * result_id: the name of a result: one owner's, of one epoch, for its part of a fragment's version. Configurations,
 * promises, the ledger and its commits name results so. Pure.
 */
#ifndef NET_TRANSPORT_RESULT_ID_H
#define NET_TRANSPORT_RESULT_ID_H

#include <stdbool.h>
#include <stdint.h>

#include "common/digest.h"

/* Two results that differ have different digests, whatever else they share. */
struct result_id {
    uint32_t fragment, owner; /* owner: its id */
    uint64_t version, epoch;  /* version: that it makes; epoch: in which it was made */
    struct digest digest;     /* of the object */
};

/* A result, and the shards that it is of. */
struct part_result {
    struct result_id id;
    uint64_t shards; /* mask */
};

/* Whether they are of one part, whatever their digests. */
bool result_id_same_part(const struct result_id *left, const struct result_id *right);
bool result_id_equal(const struct result_id *left, const struct result_id *right);
bool part_result_equal(const struct part_result *left, const struct part_result *right);
/* Below 0: `left` comes first, in order of fragment, owner, epoch. */
int result_id_order(const struct result_id *left, const struct result_id *right);

#endif
