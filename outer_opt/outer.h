/*
 * outer: the outer optimizers and the weighted mean, on arrays.
 *
 * fp32, elementwise, one rounding per operation, islands in order of their index: the same bits on every machine,
 * compiler, vector width and thread count. A call may be cut into ranges and the ranges given to several threads.
 * Pure; no allocation.
 *
 * nesterov:   buffer = mu * buffer + delta;  theta = theta - lr * (delta + mu * buffer)   (Sutskever 2013, as PyTorch)
 * heavy ball: buffer = mu * buffer + delta;  theta = theta - lr * buffer
 * average:    theta = theta - delta, the mean of the islands' parameters
 */
#ifndef OUTER_OPT_OUTER_H
#define OUTER_OPT_OUTER_H

#include <stddef.h>

#include "common/err.h"

enum outer_kind { OUTER_NESTEROV, OUTER_HEAVY_BALL, OUTER_AVERAGE };

struct outer_conf {
    enum outer_kind kind;
    float lr, momentum; /* not used by OUTER_AVERAGE */
};

/* One outer step: `delta` is the weighted mean of the outer gradients. `buffer` is the momentum; NULL for
 * OUTER_AVERAGE. */
void outer_step(const struct outer_conf *conf, float *theta, float *buffer, const float *delta, size_t count);

/* Ends a weighted mean: `sum` holds the sum of weight * value in island order and becomes the mean. `weights` are the
 * `weights_count` weights of that order; their sum is taken in fp32 in the same order. */
void outer_mean_finish(float *sum, size_t count, const float *weights, size_t weights_count);

#endif
