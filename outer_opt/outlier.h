/* SPDX-License-Identifier: Apache-2.0 */
/*
 * outlier: contributions that are far larger than the others', and means that a few bad ones cannot carry off.
 *
 * A contribution is judged where there are three or more: it is an outlier if its norm is more than `threshold` times
 * the upper median of the others', whatever was before. One that weighs more than is usual holds the work of more
 * tokens, and may be that many times larger; its weight is bounded (weights.h). Small norms are no harm. An outlier is
 * brought to the median and not to the limit: three times the norm of each of two others would outweigh both, and as
 * they pull the anchor back they grow, and so would the limit. An owner decides this for its own shards; what it
 * decided travels with its result, so nothing here has to be the same elsewhere. Pure.
 */
#ifndef OUTER_OPT_OUTLIER_H
#define OUTER_OPT_OUTLIER_H

#include <stddef.h>
#include <stdint.h>

/* Judged from so many on; and no more than this at a time. */
enum { OUTLIER_INPUTS_MIN = 3, OUTLIER_INPUTS_MAX = 1024 };

enum outlier_action {
    OUTLIER_KEEP,    /* plain weighted mean */
    OUTLIER_DROP,    /* counted with weight 0 */
    OUTLIER_CLIP,    /* brought to the median norm of the others */
    OUTLIER_TRIMMED, /* per value, without the `trim` largest and smallest; no weights */
    OUTLIER_MEDIAN,  /* per value */
};

struct outlier_conf {
    enum outlier_action action;
    double threshold; /* medians; 3 */
    uint32_t trim;
};

/* The contributions' norms and weights. One without weight, as whose maker is turned away for its direction, is not
 * judged, nor a measure for others, but where only two weigh: there the largest of them is, as the third. Fills
 * `factors`: 1 for one that passes, less than 1 for one that is to be scaled down (CLIP) and 0 for one that is to be
 * left out (DROP); never all of them. Returns how many do not pass. */
size_t outlier_judge(const struct outlier_conf *conf, const double *norms, const float *weights, size_t count,
                     float *factors);

/* out[i] = mean of inputs[k][i] over k without the `trim` smallest and largest of them; at least one or two are left.
 */
void outlier_trimmed_mean(const float *const *inputs, size_t inputs_count, uint32_t trim, float *out, size_t count);

#endif
