/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ranks: what tests of ranks need inside a rank's process, where cmocka's assertions cannot be used: checks that become
 * the rank's error, which launch_run() tells; arrays with values by which the order of a sum can be seen.
 */
#ifndef TESTS_LIB_RANKS_H
#define TESTS_LIB_RANKS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"
#include "kernels/kern_table.h"
#include "worker/comm/comm_shm.h"
#include "worker/launch.h"

#define CHECK(condition)                                                                    \
    do {                                                                                    \
        if (!(condition))                                                                   \
            return err_set(ERR_STATE, "%s:%d: not so: %s", __FILE__, __LINE__, #condition); \
    } while (0)

/* A rank with its device and the communicator of all. */
struct ranks {
    const struct kern *kern;
    struct kern_dev *dev;
    struct comm *comm;
};
ERR_MUST_CHECK enum err ranks_open(const struct launch_rank *rank, const struct kern *kern, struct ranks *out);
void ranks_close(struct ranks *ranks);

/* Value i of the array that `rank` brings to round `seed`, into out[i]. */
void ranks_fill(enum comm_type type, void *out, int64_t count, uint64_t seed, int rank);
/* The sum of what the ranks of `rank[ranks_count]` bring, one value after the other, in that order. */
void ranks_sum(enum comm_type type, void *out, int64_t count, uint64_t seed, const int *rank, int ranks_count);
int64_t ranks_bytes(enum comm_type type, int64_t count);

/* All collectives, types and sizes, at once and in place, on the device's arrays: every value right, to the bit.
 * Operations and host go through MAIN, collectives through `queue`. */
ERR_MUST_CHECK enum err ranks_check_all(const struct ranks *ranks, enum kern_queue queue, const int64_t *counts,
                                        int counts_count);

#endif
