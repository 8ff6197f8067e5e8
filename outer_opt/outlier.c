/* SPDX-License-Identifier: Apache-2.0 */
#include "outer_opt/outlier.h"

#include <stdbool.h>
#include <stdlib.h>

enum { INSERTION_MAX = 64 }; /* up to so many, insertion sorts fastest */

static int by_size(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return a < b ? -1 : a > b;
}

/* Of two it is the smaller one: who has the more tokens may be that many times larger than the other. */
static double median_weight(const float *weights, size_t count)
{
    double sorted[OUTLIER_INPUTS_MAX];
    for (size_t i = 0; i < count; i++)
        sorted[i] = (double)weights[i];
    qsort(sorted, count, sizeof *sorted, by_size);
    return sorted[count < OUTLIER_INPUTS_MIN ? 0 : count / 2];
}

/* Beside two that weigh: the largest norm of those that do not, so that they bring nobody down by small ones; 0: there
 * is none. */
static double third_of(const double *norms, const float *weights, size_t count)
{
    double third = 0;
    for (size_t i = 0; i < count; i++)
        if (!(weights[i] > 0) && norms[i] > third)
            third = norms[i];
    return third;
}

/* The upper median of the others' sizes; 0 where there are not enough others that sent anything. */
static double median_of_others(const double *sorted, size_t count, double own)
{
    size_t others = count - (own > 0), middle = others / 2;
    if (others + 1 < OUTLIER_INPUTS_MIN)
        return 0;
    return sorted[own > 0 && own <= sorted[middle] ? middle + 1 : middle];
}

size_t outlier_judge(const struct outlier_conf *conf, const double *norms, const float *weights, size_t count,
                     float *factors)
{
    double sizes[OUTLIER_INPUTS_MAX], sorted[OUTLIER_INPUTS_MAX];
    float weighing[OUTLIER_INPUTS_MAX];
    size_t sorted_count = 0, weighing_count = 0, out = 0;
    for (size_t i = 0; i < count; i++) {
        factors[i] = 1;
        if (weights[i] > 0)
            weighing[weighing_count++] = weights[i];
    }
    double third = weighing_count + 1 == OUTLIER_INPUTS_MIN ? third_of(norms, weights, count) : 0;
    if (weighing_count + (third > 0) < OUTLIER_INPUTS_MIN)
        return 0;
    if (third > 0)
        sorted[sorted_count++] = third;
    double usual = median_weight(weighing, weighing_count);
    for (size_t i = 0; i < count; i++) {
        double times = (double)weights[i] > usual ? (double)weights[i] / usual : 1;
        /* No number at all is found when the mean is encoded. */
        sizes[i] = norms[i] > 0 && weights[i] > 0 ? norms[i] / times : 0;
        if (sizes[i] > 0)
            sorted[sorted_count++] = sizes[i];
    }
    qsort(sorted, sorted_count, sizeof *sorted, by_size);
    for (size_t i = 0; i < count; i++) {
        double median = median_of_others(sorted, sorted_count, sizes[i]);
        if (!(median > 0 && sizes[i] > conf->threshold * median))
            continue;
        factors[i] = conf->action == OUTLIER_DROP ? 0 : (float)(median / norms[i]);
        out++;
    }
    return out;
}

static int by_value(const void *left, const void *right)
{
    float a = *(const float *)left, b = *(const float *)right;
    return a < b ? -1 : a > b;
}

static void sort_values(float *values, size_t count)
{
    if (count > INSERTION_MAX) {
        qsort(values, count, sizeof *values, by_value);
        return;
    }
    for (size_t k = 1; k < count; k++) {
        float value = values[k];
        size_t at = k;
        for (; at > 0 && value < values[at - 1]; at--)
            values[at] = values[at - 1];
        values[at] = value;
    }
}

void outlier_trimmed_mean(const float *const *inputs, size_t inputs_count, uint32_t trim, float *out, size_t count)
{
    size_t cut = trim;
    if (2 * cut >= inputs_count)
        cut = (inputs_count - 1) / 2;
    for (size_t i = 0; i < count; i++) {
        float values[OUTLIER_INPUTS_MAX];
        for (size_t k = 0; k < inputs_count; k++)
            values[k] = inputs[k][i];
        sort_values(values, inputs_count);
        float sum = 0;
        for (size_t k = cut; k < inputs_count - cut; k++)
            sum = sum + values[k];
        out[i] = sum / (float)(inputs_count - 2 * cut);
    }
}
