/* SPDX-License-Identifier: Apache-2.0 */
/*
 * part_cut: cuts one part of a fragment for encoding: the codec of each stretch of a tensor in it, and the usual size
 * of its outer gradients. Private to replica.
 *
 * Made for a mask of shards, and good as long as that mask is a part. One job at a time works with it.
 */
#ifndef DAEMON_STATE_PART_CUT_H
#define DAEMON_STATE_PART_CUT_H

#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"
#include "outer_opt/adapt.h"
#include "outer_opt/recipe.h"

/* What residuals are held against: the norm of an outer gradient over the tokens behind it. */
struct usual {
    double norm_per_token;
    uint32_t rounds; /* of those looked at first */
};

/* Empty when zeroed. */
struct part_cut {
    uint64_t shards;
    struct codec_part *parts;
    size_t parts_count;
    struct adapt *adapt; /* adaptive: chooses their codecs anew now and then */
    uint64_t encodings;
    struct usual usual;
};

/* ERR_NOMEM: `*out` is empty. */
ERR_MUST_CHECK enum err part_cut_new(const struct recipe *recipe, enum recipe_role role, const struct plan *plan,
                                     uint32_t f, uint64_t shards, bool adaptive, struct part_cut *out);
void part_cut_deinit(struct part_cut *cut);
/* Bytes that takes. */
uint64_t part_cut_bytes(const struct plan *plan, uint32_t f, uint64_t shards, bool adaptive);

/* Before an encoding of `source`: chooses the codecs anew if it is time to; `choice` is the run's. */
void part_cut_adapt(struct part_cut *cut, const struct codec_choice *choice, const struct vec_source *source,
                    struct codec *codec);

/* Where a cut is encoded on from: at a value of `parts[part]`. All zero at first; `at` is then where that one begins.
 */
struct part_cut_place {
    size_t part;
    bool inside;
    uint64_t at;
};
/* The next values that are encoded as one: at most a segment, but for codecs that take tensors whole. False: there are
 * none left. */
bool part_cut_next(const struct part_cut *cut, struct part_cut_place *place, struct codec_part *out);

/* How a residual is held down. */
struct restraint {
    double decay; /* how much is kept of any */
    double limit; /* over the usual outer gradient; 0: none */
    bool settled; /* the run's warm-up is over */
};
/* Holds the residual `left`, over the values of `share`, of an outer gradient down whose norm is `norm` (not used
 * without a limit), with `tokens` behind it. Takes note of how large that was. True: the limit was passed. */
bool part_cut_restrain(struct part_cut *cut, const struct restraint *rule, double norm, double tokens,
                       const struct plan_share *share, float *left);
/* Sum of squares of the encoded values, before residuals. */
double part_cut_square_sum(const struct vec_source *source, const struct plan_share *share);

#endif
