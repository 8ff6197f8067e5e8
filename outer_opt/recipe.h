/* SPDX-License-Identifier: Apache-2.0 */
/*
 * recipe: which codec each tensor of a fragment is sent under, and so the parts of any shard of it.
 *
 * Norms and biases are sent as bf16 (they are few and carry much); matrices under the run's codec. A codec that cannot
 * keep a zero a zero leaves the last block of a padded tensor to bf16, so that padding stays zero. With PowerSGD the
 * recipe also holds the factors carried from one encoding to the next, one set for contributions and one for results.
 * One recipe a replica.
 */
#ifndef OUTER_OPT_RECIPE_H
#define OUTER_OPT_RECIPE_H

#include <stddef.h>
#include <stdint.h>

#include "common/err.h"
#include "outer_opt/codec.h"
#include "outer_opt/plan.h"

enum recipe_role { RECIPE_CONTRIBUTION, RECIPE_RESULT, RECIPE_ROLES };

struct recipe;

/* `plan` is borrowed. `apart`: every tensor is a part of its own, so that its codec can be chosen anew
 * (outer_opt/adapt.h). */
ERR_MUST_CHECK enum err recipe_new(const struct plan *plan, const struct codec_choice *choice, bool apart,
                                   struct recipe **out);
void recipe_free(struct recipe *recipe);

/* Bytes recipe_new() takes. */
uint64_t recipe_bytes(const struct plan *plan, const struct codec_choice *choice);
/* For codec_reserve(). */
size_t recipe_factor_values_max(const struct plan *plan, const struct codec_choice *choice);
size_t recipe_segment_values_max(const struct plan *plan, const struct codec_choice *choice);

/* Most parts of any shards of any fragment. */
size_t recipe_parts_max(const struct recipe *recipe);
/* The parts of what `share` names of a fragment into `parts`, which holds recipe_parts_max(); how many. They lie in
 * arrays of the whole fragment as contributions, and in arrays of the values of the share alone as results. */
size_t recipe_parts(const struct recipe *recipe, enum recipe_role role, uint32_t f, const struct plan_share *share,
                    struct codec_part *parts);
/* Largest frame of that. */
size_t recipe_frame_bytes_max(const struct plan *plan, const struct codec_choice *choice, uint32_t f,
                              const struct plan_share *share);

#endif
