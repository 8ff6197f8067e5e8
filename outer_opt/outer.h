/* SPDX-License-Identifier: Apache-2.0 */
/*
 * outer: the outer optimizers and the weighted mean, on arrays.
 *
 * fp32, elementwise, one rounding per operation, islands in order of their index: the same bits on every machine,
 * compiler, vector width and thread count. A call may be cut into ranges and the ranges given to several threads.
 * Pure; no allocation.
 *
 * With g = scale * delta, and scale, momentum, lr those of the round:
 * nesterov:   buffer = momentum * buffer + g;  theta = theta - lr * (g + momentum * buffer)   (Sutskever 2013, as
 *             PyTorch)
 * heavy ball: buffer = momentum * buffer + g, with a clip clamped to -clip .. clip (CO2, 2401.16265);
 *             theta = theta - lr * buffer
 * average:    theta = theta - delta, the mean of the islands' parameters
 *
 * The numbers of a round are computed once, in double, by whoever makes its result, and travel with it: mathematical
 * libraries differ in the last bit.
 */
#ifndef OUTER_OPT_OUTER_H
#define OUTER_OPT_OUTER_H

#include <stddef.h>
#include <stdint.h>

#include "common/err.h"

enum outer_kind { OUTER_NESTEROV, OUTER_HEAVY_BALL, OUTER_AVERAGE };

struct outer_conf {
    enum outer_kind kind;
    float lr, momentum;        /* not used by OUTER_AVERAGE */
    float clip;                /* OUTER_HEAVY_BALL: largest magnitude of the momentum; 0: none */
    uint64_t average_versions; /* the first versions are plain averages */
    uint64_t warmup_versions;  /* over the next ones lr rises linearly */
};

/* One round's numbers. */
struct outer_round {
    float scale, momentum, lr;
};

/* Those of version `version` (from 1) where every interval is alike. */
struct outer_round outer_round_of(const struct outer_conf *conf, uint64_t version);

/* The correction for an interval that is not the reference one [ours; docs/DECISIONS.md]: momentum decays per
 * reference interval, and the mean is brought to what a reference interval would have moved, by the sums of the inner
 * learning rates over both; lr makes up for it, so that momentum 0 and lr 1 stay an average. `momentum` is the round's
 * raised to the interval's length over the reference one's, `lr_ratio` the sum of its learning rates over that of the
 * reference one. */
struct outer_round outer_round_corrected(struct outer_round round, double momentum, double lr_ratio);

/* CO2's staleness gap penalty: `moved` = |theta - theta before|, `delta` = |theta before - mean|, both norms over the
 * whole fragment; the round's scale is divided by 1 + moved / delta. */
struct outer_round outer_round_penalised(struct outer_round round, double moved, double delta);

/* One outer step: `delta` is the weighted mean of the outer gradients, scaled in place. `buffer` is the momentum; NULL
 * for OUTER_AVERAGE. */
void outer_step(const struct outer_conf *conf, const struct outer_round *round, float *theta, float *buffer,
                float *delta, size_t count);

/* Ends a weighted mean: `sum` holds the sum of weight * value in island order and becomes the mean. `weights` are the
 * `weights_count` weights of that order; their sum is taken in fp32 in the same order. */
void outer_mean_finish(float *sum, size_t count, const float *weights, size_t weights_count);

void outer_scale(float *values, size_t count, float factor);

/* Sum of squares over whole blocks of VEC_BLOCK, the same bits everywhere; `subtrahend` may be NULL. */
double outer_square_sum(const float *values, const float *subtrahend, size_t count);
/* Sum of products, likewise. */
double outer_dot(const float *a, const float *b, size_t count);

#endif
