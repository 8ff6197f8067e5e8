/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lab: a whole run in one process: N islands that train one after the other, and the same replica and rules that the
 * daemon uses between them. No network, no clock: what comes out depends on run spec, data and seed alone, and says how
 * well an algorithm trains, not how fast a link is.
 */
#ifndef TESTS_BENCH_LAB_H
#define TESTS_BENCH_LAB_H

#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"
#include "common/runspec.h"

enum { LAB_ISLANDS_MAX = 8, LAB_EVAL_WINDOWS = 256 };

struct lab_conf {
    struct runspec spec;
    uint32_t islands;
    const char *data;   /* a text */
    bool data_parallel; /* gradients of all islands averaged at every step; nothing else */
    bool own_parts;     /* island i draws from the i-th part of the text alone */
    double drop;        /* part of the contributions that never arrive */
    bool field;         /* for field.h instead of this */
    bool flush;         /* what was trained after a fragment's last due step is contributed too, as trainers do */
    double forget[2];   /* part of AdamW's first and second moments that goes when a fragment takes in an anchor; the
                           trainers keep all */
    uint32_t slow;      /* the last island takes a step in `slow` steps of the run; 0: all are alike */
    uint32_t liars;     /* so many of the last islands turn their contributions around */
    uint32_t without;   /* so many of the last islands train, and contribute nothing */
};

struct lab_result {
    double val_loss; /* of the anchor, nats per byte */
    uint64_t tokens; /* of all islands */
    uint64_t rounds; /* versions of fragment 0 */
    double bytes_sent,
        bytes_data_parallel; /* by one island; the latter: bf16 gradients at every step, ring all-reduce */
    /* Of an island: in how many versions of how many shards it weighed nothing, for it pointed elsewhere; and the first
     * such version of any; 0: none. */
    uint64_t weightless[LAB_ISLANDS_MAX], first_weightless[LAB_ISLANDS_MAX];
    uint64_t shard_versions; /* of all */
};

ERR_MUST_CHECK enum err lab_run(const struct lab_conf *conf, struct lab_result *result);

#endif
