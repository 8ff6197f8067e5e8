/* SPDX-License-Identifier: Apache-2.0 */
/*
 * aside: what happens to a trainer's parameters when a contribution is on its way for a whole interval.
 *
 * With a short overlap a contribution's work stays in the live parameters until the anchor that counts it is mixed in.
 * Over a whole interval that does not do: the next outer gradient would hold the same work again. So the work is set
 * aside at the snapshot, and training goes on from the anchor it began from (CO2, 2401.16265: x(t+1, 0) = x(t, 0) -
 * lr m, with m from the round before). When the result counts it, the anchor holds it; when not, it is put back.
 * With keep > 0 that share of the work stays, and later the same share of where it differs from the anchor.
 *
 * Eager (2502.12996) trains on from an estimate of the anchor to come instead: the anchor, and this island's own share
 * of the step that is on its way. With outer gradient D on its way, E the decayed sum of those before it, and s the
 * share that this island has in the mean, the step that an outer optimizer will take for D differs from none by
 *     nesterov   lr s ((1 + mu) D + mu^2 E)     heavyball   lr s (D + mu E)     average   s D
 * (Eager gives every island an outer optimizer of its own, fed with own + (mean - own)/M terms; those are linear, so
 * their sum telescopes to this, and the anchor stays common.) There s is 1/M. Here means are weighted by tokens, so s
 * is the island's weight over all weights in the newest result; what an estimate added, it takes back with the same s.
 */
#ifndef WORKER_LIBDILOCO_ASIDE_H
#define WORKER_LIBDILOCO_ASIDE_H

#include <stdbool.h>
#include <stddef.h>

struct aside_rule {
    float keep;  /* share of an island's own that stays in the live parameters (mix) */
    float fresh; /* of D and E, taken ahead; both 0: not Eager, which wants keep = 0 */
    float past;
    float decay; /* of E, a round */
};

/* At the snapshot: `live` goes on from `base`; what it loses is left in `aside`. `past` is E; NULL if not Eager. */
void aside_out(const struct aside_rule *rule, float *live, const float *base, float *aside, const float *past,
               size_t count);

/* The anchor is there: `live`, trained on since, moves with it; if the contribution is not counted in it, the work set
 * aside comes back. */
void aside_in(const struct aside_rule *rule, float *live, const float *base, const float *anchor, const float *aside,
              float *past, bool counted, size_t count);

/* Neither counted nor missed: the contribution is off. The estimate goes; the work set aside comes back with `restore`
 * (not if it held NaN: then nothing else that the island has trained is worth keeping). */
void aside_off(const struct aside_rule *rule, float *live, const float *aside, const float *past, bool restore,
               size_t count);

#endif
