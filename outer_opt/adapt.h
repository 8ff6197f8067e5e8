/* SPDX-License-Identifier: Apache-2.0 */
/*
 * adapt: a codec for every tensor, so that all together take the fewest bytes at the error one codec for all would make
 * (L-GreCo, 2210.17357: a dynamic programme over discretised error).
 *
 * Errors are sums of squares over all tensors, so bits spent on a small tensor are saved on a large one. Each candidate
 * is tried on a stretch of each tensor. Allocates nothing after adapt_new(). One struct adapt per thread.
 */
#ifndef OUTER_OPT_ADAPT_H
#define OUTER_OPT_ADAPT_H

#include <stddef.h>
#include <stdint.h>

#include "common/err.h"
#include "outer_opt/codec.h"

struct adapt;

/* For ranges of up to `parts_max` parts. */
ERR_MUST_CHECK enum err adapt_new(size_t parts_max, struct adapt **out);
void adapt_free(struct adapt *adapt);
/* Bytes adapt_new() takes. */
uint64_t adapt_bytes(uint64_t parts_max);

/* What one candidate costs on one tensor. */
struct adapt_cost {
    double bytes, error;
};

/* The programme alone: for each of `tensors_count` tensors the index of one of its `candidates_count` costs (row by
 * row), so that the errors add up to `budget` at most, as far as the grid can tell, and the bytes to as little as can
 * be. `fallback` is the index taken by all if nothing else fits. `tensors_count` is parts_max at most. */
void adapt_solve(struct adapt *adapt, const struct adapt_cost *costs, size_t tensors_count, size_t candidates_count,
                 double budget, size_t fallback, size_t *chosen);

/* Gives the parts whose codec is not bf16 the codecs that serve `source` best, at the error of `reference` on all of
 * them. Without a residual in `source` none that would leave out all of a block of one magnitude for ever. */
ERR_MUST_CHECK enum err adapt_parts(struct adapt *adapt, struct codec *codec, const struct codec_choice *reference,
                                    const struct vec_source *source, struct codec_part *parts, size_t parts_count);

#endif
