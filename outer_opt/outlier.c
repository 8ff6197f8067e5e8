#include "outer_opt/outlier.h"

#include <string.h>

/* EDiT's weight of a new value in the running mean and variance. */
static const double learning = 0.02;
/* Over the median norm of the others: what is never passed, and what is no outlier whatever its history says. When one
 * island is sick all others grow, because they pull the anchor back, and when a longer interval begins all grow. */
static const double far_above = 8, near = 2;
static const double nothing = -1e4; /* the logarithm of no norm at all */
enum { INPUTS_MAX = 64 };

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

static double median_of(double *values, size_t count)
{
    for (size_t i = 1; i < count; i++)
        for (size_t k = i; k > 0 && values[k] < values[k - 1]; k--) {
            double low = values[k];
            values[k] = values[k - 1];
            values[k - 1] = low;
        }
    return values[count / 2];
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

/* The largest log2 of the norm that passes; a huge one where the others say nothing. */
static double limit_for(const struct outlier_conf *conf, const struct outlier_score *score, const double *logs,
                        size_t count, size_t self)
{
    double others[INPUTS_MAX];
    size_t others_count = 0;
    for (size_t i = 0; i < count; i++)
        if (i != self && logs[i] > nothing)
            others[others_count++] = logs[i];
    if (others_count + 1 < OUTLIER_INPUTS_MIN)
        return 1e9;
    double median = median_of(others, others_count);
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
    double logs[INPUTS_MAX];
    size_t out = 0;
    for (size_t i = 0; i < count; i++) {
        logs[i] = squares[i] > 0 ? 0.5 * log2_of(squares[i]) : nothing;
        factors[i] = 1;
    }
    if (count < OUTLIER_INPUTS_MIN)
        return 0;
    for (size_t i = 0; i < count; i++) {
        double limit = limit_for(conf, scores[i], logs, count, i);
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

void outlier_trimmed_mean(const float *const *inputs, size_t inputs_count, uint32_t trim, float *out, size_t count)
{
    size_t cut = trim;
    if (2 * cut >= inputs_count)
        cut = (inputs_count - 1) / 2;
    for (size_t i = 0; i < count; i++) {
        float values[INPUTS_MAX];
        for (size_t k = 0; k < inputs_count; k++) {
            float value = inputs[k][i];
            size_t at = k;
            for (; at > 0 && value < values[at - 1]; at--)
                values[at] = values[at - 1];
            values[at] = value;
        }
        float sum = 0;
        for (size_t k = cut; k < inputs_count - cut; k++)
            sum = sum + values[k];
        out[i] = sum / (float)(inputs_count - 2 * cut);
    }
}
