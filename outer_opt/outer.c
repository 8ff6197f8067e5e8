#include "outer_opt/outer.h"

#include "outer_opt/vec.h"

void outer_step(const struct outer_conf *conf, float *theta, float *buffer, const float *delta, size_t count)
{
    const struct vec_ops *ops = vec_best();
    switch (conf->kind) {
    case OUTER_NESTEROV: ops->nesterov(theta, buffer, delta, count, conf->lr, conf->momentum); break;
    case OUTER_HEAVY_BALL: ops->heavy_ball(theta, buffer, delta, count, conf->lr, conf->momentum); break;
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
