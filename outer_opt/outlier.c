/* SPDX-License-Identifier: Apache-2.0 */
#include "outer_opt/outlier.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* EDiT's weight of a new value in the running mean and variance. */
static const double learning = 0.02;
/* Over the median norm of the others: what is never passed, and what is no outlier whatever its history says. When one
 * island is sick all others grow, because they pull the anchor back, and when a longer interval begins all grow. */
static const double far_above = 8, near = 2;
static const double nothing = -1e4; /* the logarithm of no norm at all */
enum { INSERTION_MAX = 64 };        /* up to so many, insertion sorts fastest */

/* log2 without a library: exponent and a cubic for the rest; a thousandth is more than enough here. */
static double log2_of(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    double exponent = (double)(int64_t)(bits >> 52 & 0x7ff) - 1023;
    bits = (bits & 0xfffffffffffffu) | (uint64_t)1023 << 52;
    memcpy(&value, &bits, sizeof value);
    double x = value - 1;
    return exponent + x * (1.4249 + x * (-0.5821 + x * 0.1572));
}

static int by_size(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return a < b ? -1 : a > b;
}

/* The logarithms that are some, sorted; how many. */
static size_t sort_logs(const double *logs, size_t count, double *sorted)
{
    size_t sorted_count = 0;
    for (size_t i = 0; i < count; i++)
        if (logs[i] > nothing)
            sorted[sorted_count++] = logs[i];
    qsort(sorted, sorted_count, sizeof *sorted, by_size);
    return sorted_count;
}

/* The largest log2 of the norm that an island's history lets pass. */
static double usual_limit(const struct outlier_conf *conf, const struct outlier_score *score)
{
    /* A norm that has hardly varied may vary a little. */
    double variance = score->variance > 0.01 ? score->variance : 0.01;
    double deviation = variance > 1 ? variance : 1;
    for (int i = 0; i < 6; i++)
        deviation = 0.5 * (deviation + variance / deviation);
    return score->mean + conf->threshold * deviation;
}

/* The largest log2 of the norm that passes; a huge one where the others say nothing. `sorted`: everyone's. */
static double limit_for(const struct outlier_conf *conf, const struct outlier_score *score, double log,
                        const double *sorted, size_t sorted_count)
{
    bool there = log > nothing;
    size_t others_count = sorted_count - there;
    if (others_count + 1 < OUTLIER_INPUTS_MIN)
        return 1e9;
    size_t middle = others_count / 2;
    double median = sorted[there && log <= sorted[middle] ? middle + 1 : middle]; /* without itself */
    double most = median + log2_of(far_above);
    double limit = score->seen >= conf->warmup ? usual_limit(conf, score) : most;
    limit = limit > median + log2_of(near) ? limit : median + log2_of(near);
    return limit < most ? limit : most;
}

static void learn(struct outlier_score *score, double log)
{
    double weight = 1 / (double)(score->seen + 1);
    weight = weight > learning ? weight : learning;
    double step = log - score->mean;
    score->mean += weight * step;
    score->variance = (1 - weight) * (score->variance + weight * step * step);
    score->seen++;
}

/* 2 to a power that is at most 0. */
static float shrink(double log)
{
    double factor = 1;
    for (; log < -1; log += 1)
        factor *= 0.5;
    return (float)(factor * (1 + log * (0.6931 + log * (0.2402 + log * 0.0555))));
}

size_t outlier_judge(const struct outlier_conf *conf, struct outlier_score **scores, const double *squares,
                     size_t count, float *factors)
{
    double logs[OUTLIER_INPUTS_MAX], sorted[OUTLIER_INPUTS_MAX];
    size_t out = 0;
    for (size_t i = 0; i < count; i++) {
        logs[i] = squares[i] > 0 ? 0.5 * log2_of(squares[i]) : nothing;
        factors[i] = 1;
    }
    if (count < OUTLIER_INPUTS_MIN)
        return 0;
    size_t sorted_count = sort_logs(logs, count, sorted);
    for (size_t i = 0; i < count; i++) {
        double limit = limit_for(conf, scores[i], logs[i], sorted, sorted_count);
        if (logs[i] > limit) {
            factors[i] = conf->action == OUTLIER_DROP ? 0 : shrink(limit - logs[i]);
            out++;
        }
    }
    /* While one is sick the anchor is not where it should be, and nobody's norm is its usual one. */
    for (size_t i = 0; out == 0 && i < count; i++)
        if (squares[i] > 0)
            learn(scores[i], logs[i]);
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
