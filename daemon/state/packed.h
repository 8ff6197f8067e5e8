/* SPDX-License-Identifier: Apache-2.0 */
/*
 * packed: the values of some shards of a fragment, one behind the other in one array. Private to replica.
 *
 * Owns the array; empty when zeroed, which is also what no shards are.
 */
#ifndef DAEMON_STATE_PACKED_H
#define DAEMON_STATE_PACKED_H

#include <stdint.h>

#include "common/err.h"
#include "outer_opt/plan.h"

struct packed {
    uint64_t shards; /* mask */
    size_t count;    /* of values */
    float *values;   /* NULL where there are none */
};

/* Zeros for these shards. ERR_NOMEM: `*out` is empty. */
ERR_MUST_CHECK enum err packed_new(const struct plan *plan, uint32_t f, uint64_t shards, const char *what,
                                   struct packed *out);
/* Leaves it empty. */
void packed_deinit(struct packed *packed);
/* The values of the shards that both have. */
void packed_copy(const struct plan *plan, uint32_t f, const struct packed *from, struct packed *to);
/* Likewise; afterwards `from` holds what its values were before, or `to`'s. */
void packed_move(const struct plan *plan, uint32_t f, struct packed *from, struct packed *to);
/* Zeros in the place of these shards' values, as far as it has them. */
void packed_clear(const struct plan *plan, uint32_t f, struct packed *packed, uint64_t shards);

#endif
