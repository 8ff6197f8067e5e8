/*
 * plan: how the tensors of a model form fragments, where each tensor lies in its fragment, and how a fragment is cut
 * into shards.
 *
 * Every island computes the plan from the registered tensors and the run spec and compares its digest with the
 * others'. A tensor starts on a block border (PLAN_BLOCK values) so that no codec block holds values of two tensors;
 * the padding is zeros and stays zero. Shards are cut on block borders too. Built once; read-only afterwards.
 */
#ifndef OUTER_OPT_PLAN_H
#define OUTER_OPT_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/digest.h"
#include "common/err.h"

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

/* A contiguous part of a fragment; begin == end if the fragment is too small to give everyone one. */
struct plan_shard {
    uint64_t begin, end; /* values, multiples of PLAN_BLOCK */
};

/* ERR_ARG: no tensors, an empty or repeated name, an empty tensor, more fragments than allowed. */
ERR_MUST_CHECK enum err plan_new(const struct plan_tensor *tensors, uint32_t tensors_count,
                                 const struct plan_conf *conf, struct plan **out);
void plan_free(struct plan *plan);

/* Cuts fragment `fragment` among `weights_count` owners in proportion to their weights (not all zero), on block
 * borders; with whole_tensors on the border of a tensor, the nearest one. */
struct plan_shard plan_shard(const struct plan *plan, uint32_t fragment, const uint64_t *weights,
                             uint32_t weights_count, uint32_t owner);

/* The tensor that holds value `offset` of a fragment, or NULL for padding. */
const struct plan_tensor *plan_tensor_at(const struct plan *plan, uint32_t fragment, uint64_t offset);

#endif
