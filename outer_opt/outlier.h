/* SPDX-License-Identifier: Apache-2.0 */
/*
 * outlier: contributions that do not look like those before them, and means that a few bad ones cannot carry off.
 *
 * A contribution is judged where there are three or more. It is an outlier if its norm is more than eight times the
 * median of the others', always; once enough was seen of its island, also if it lies too many deviations above the
 * running mean of its logarithm, which is EDiT's score (2412.07210), and is more than twice that median. Small norms
 * are no harm. Nothing is learnt from a version that has an outlier. An owner decides this for its own shards; what it
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
    OUTLIER_CLIP,    /* brought to the largest norm that would pass */
    OUTLIER_TRIMMED, /* per value, without the `trim` largest and smallest; no weights */
    OUTLIER_MEDIAN,  /* per value */
};

struct outlier_conf {
    enum outlier_action action;
    double threshold; /* deviations; 3 */
    uint64_t warmup;  /* norms of an island before its own history counts; 100 */
    uint32_t trim;
};

/* What is known of one island and one group of tensors. */
struct outlier_score {
    double mean, variance; /* of log2 of the norm */
    uint64_t seen;
};

/* `squares`: the contributions' sums of squares. Fills `factors`: 1 for one that passes, less than 1 for one that is to
 * be scaled down (CLIP) and 0 for one that is to be left out (DROP); never all of them. Scores learn where all pass.
 * Returns how many do not. */
size_t outlier_judge(const struct outlier_conf *conf, struct outlier_score **scores, const double *squares,
                     size_t count, float *factors);

/* out[i] = mean of inputs[k][i] over k without the `trim` smallest and largest of them; at least one or two are left.
 */
void outlier_trimmed_mean(const float *const *inputs, size_t inputs_count, uint32_t trim, float *out, size_t count);

#endif
