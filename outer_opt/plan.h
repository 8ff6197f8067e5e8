/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan: how the tensors of a model form fragments, where each tensor lies in its fragment, how a fragment is cut into
 * shards, and which values a set of shards has.
 *
 * Every island computes the plan from the registered tensors and the run spec and compares its digest with the
 * others'. A tensor starts on a block border (PLAN_BLOCK values) so that no codec block holds values of two tensors;
 * the padding is zeros and stays zero. Shards are cut on block borders too. Built once; read-only afterwards.
 *
 * Owns: fragments and shards, the schedule, codecs, outer optimizers: pure functions on arrays, with the same bits
 * everywhere.
 * Called by: daemon, daemon/control, daemon/ctl, daemon/rounds, daemon/state, daemon/trainer.
 * Never includes: daemon/, net/, common/env.h, common/fsio.h, <math.h>, <pthread.h>, <sys/socket.h>, <time.h>,
 * <unistd.h>, <zmq.h>.
 */
#ifndef OUTER_OPT_PLAN_H
#define OUTER_OPT_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/digest.h"
#include "common/err.h"

/* A set of a fragment's shards is a mask: bit s is shard s. */
enum { PLAN_BLOCK = 256, PLAN_FRAGMENTS_MAX = 4096, PLAN_SHARDS_MAX = 64 };
#define PLAN_TENSOR_VALUES_MAX ((uint64_t)1 << 48)

enum plan_pattern {
    PLAN_STRIDED,    /* layer l to fragment 1 + l mod P_l */
    PLAN_SEQUENTIAL, /* layer l to fragment 1 + l div layers_per_fragment */
    PLAN_BALANCED,   /* largest tensor first to the smallest fragment */
};

struct plan_conf {
    enum plan_pattern pattern;
    uint32_t layers_per_fragment; /* strided, sequential */
    uint32_t fragments;           /* balanced */
    bool whole_tensors;           /* shards are cut between tensors, for codecs that take a tensor whole */
};

struct plan_tensor {
    const char *name; /* in the plan: owned by it */
    int32_t layer;    /* -1: not part of a layer */
    uint64_t count;   /* values */
    uint64_t rows;    /* of a matrix; count is a multiple of it. 0: not a matrix */
    bool sensitive;   /* norms, biases: few values that carry much, sent without loss of note */
    /* filled by plan_new() */
    uint32_t fragment;
    uint64_t offset; /* values within the fragment */
};

struct plan_fragment {
    uint64_t values_count; /* with padding; a multiple of PLAN_BLOCK */
    uint64_t params_count; /* without */
    uint32_t tensors_count;
    uint32_t shards_count; /* PLAN_SHARDS_MAX, or one for each block where these are fewer */
};

struct plan {
    struct plan_tensor *tensors; /* in registration order */
    uint32_t tensors_count;
    struct plan_fragment *fragments;
    uint32_t fragments_count;
    uint64_t params_count;
    uint64_t values_count_max; /* of the largest fragment */
    bool whole_tensors;
    struct digest digest;
};

/* A contiguous part of a fragment; begin == end: empty, which only happens with whole_tensors. */
struct plan_shard {
    uint64_t begin, end; /* values, multiples of PLAN_BLOCK */
};

/* ERR_ARG: no tensors, an empty or repeated name, an empty tensor, more fragments than allowed. */
ERR_MUST_CHECK enum err plan_new(const struct plan_tensor *tensors, uint32_t tensors_count,
                                 const struct plan_conf *conf, struct plan **out);
void plan_free(struct plan *plan);

/* Shard `shard` of a fragment. They are as large as each other, to a block; with whole_tensors they end at the border
 * of a tensor, the nearest one. The same for ever, whoever owns them. */
struct plan_shard plan_shard(const struct plan *plan, uint32_t fragment, uint32_t shard);

/* The mask of all shards of a fragment. */
uint64_t plan_shards(const struct plan *plan, uint32_t fragment);

/* A share: the values of a set of shards. Shards that lie one behind the other make one run. */
struct plan_share {
    uint32_t runs_count;
    uint64_t values_count; /* in all runs */
    struct plan_shard run[PLAN_SHARDS_MAX];
    uint64_t shards; /* mask: those that are not empty */
};
void plan_share(const struct plan *plan, uint32_t fragment, uint64_t shards, struct plan_share *out);

/* The tensor that holds value `offset` of a fragment, or NULL for padding. */
const struct plan_tensor *plan_tensor_at(const struct plan *plan, uint32_t fragment, uint64_t offset);

#endif
