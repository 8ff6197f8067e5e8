/* SPDX-License-Identifier: Apache-2.0 */
#include "outer_opt/outer.h"

#include "outer_opt/vec.h"

struct outer_round outer_round_of(const struct outer_conf *conf, uint64_t version)
{
    if (conf->kind == OUTER_AVERAGE || version <= conf->average_versions)
        return (struct outer_round){.scale = 1, .momentum = 0, .lr = 1};
    uint64_t into = version - conf->average_versions;
    float lr = conf->lr;
    if (into < conf->warmup_versions)
        lr = lr * (float)into / (float)conf->warmup_versions;
    return (struct outer_round){.scale = 1, .momentum = conf->momentum, .lr = lr};
}

struct outer_round outer_round_corrected(struct outer_round round, double momentum, double lr_ratio)
{
    if (!(lr_ratio > 0))
        return round;
    return (struct outer_round){.scale = (float)((double)round.scale / lr_ratio),
                                .momentum = (float)momentum,
                                .lr = (float)((double)round.lr * lr_ratio)};
}

struct outer_round outer_round_penalised(struct outer_round round, double moved, double delta)
{
    /* Where nothing moved there is no gap; where the mean did not move there is nothing to scale. */
    if (moved > 0 && delta > 0)
        round.scale = (float)((double)round.scale / (1 + moved / delta));
    return round;
}

void outer_step(const struct outer_conf *conf, const struct outer_round *round, float *theta, float *buffer,
                float *delta, size_t count)
{
    const struct vec_ops *ops = vec_best();
    if (round->scale != 1 && conf->kind != OUTER_AVERAGE)
        ops->scale(delta, count, round->scale);
    switch (conf->kind) {
    case OUTER_NESTEROV: ops->nesterov(theta, buffer, delta, count, round->lr, round->momentum); break;
    case OUTER_HEAVY_BALL:
        if (conf->clip > 0)
            ops->clipped(theta, buffer, delta, count, round->lr, round->momentum, conf->clip);
        else
            ops->heavy_ball(theta, buffer, delta, count, round->lr, round->momentum);
        break;
    case OUTER_AVERAGE: ops->average(theta, delta, count); break;
    }
}

void outer_mean_finish(float *sum, size_t count, const float *weights, size_t weights_count)
{
    float total = 0;
    for (size_t i = 0; i < weights_count; i++)
        total = total + weights[i];
    vec_best()->divide(sum, count, total);
}

void outer_scale(float *values, size_t count, float factor)
{
    vec_best()->scale(values, count, factor);
}

double outer_square_sum(const float *values, const float *subtrahend, size_t count)
{
    return vec_best()->square_sum(values, subtrahend, count / VEC_BLOCK);
}

double outer_dot(const float *a, const float *b, size_t count)
{
    return vec_best()->dot(a, b, count / VEC_BLOCK);
}
