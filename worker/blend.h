/* SPDX-License-Identifier: Apache-2.0 */
/*
 * blend: which source each window of a stream is of, and the how manieth of it.
 *
 * A pure function of the weights and the position: nothing is drawn, counted or kept, so a run that goes on somewhere,
 * in any number of ranks, has the same windows as one that was never stopped. A source's share of the first `t` windows
 * is the integral of its weight over the sum of all, A(t), in whole numbers; its window `j` falls due when A reaches
 * j + 1/2, and windows are taken in the order in which they fall due. So each source is always within half as many
 * windows of its share as there are sources; of one or two, within half a window. Any thread.
 */
#ifndef WORKER_BLEND_H
#define WORKER_BLEND_H

#include <stdint.h>

#include "common/err.h"
#include "common/mixture.h"

struct blend;

struct blend_place {
    size_t source;  /* index in the mixture */
    uint64_t index; /* its windows before this one */
};

/* `windows_per_step`: of the stream; weights are by step. ERR_CONF: a step that no run reaches. */
ERR_MUST_CHECK enum err blend_new(const struct mixture *mixture, uint64_t windows_per_step, struct blend **out);

/* Sources that stay in these proportions, at least one of them above 0. */
ERR_MUST_CHECK enum err blend_even(const double *weights, size_t count, struct blend **out);
void blend_free(struct blend *blend);

/* Of window `position`, which is below 2^48. */
struct blend_place blend_at(const struct blend *blend, uint64_t position);

/* Shares of the sources in the first `position` windows, which is above 0; not rounded to windows: shares(sources). */
void blend_shares(const struct blend *blend, uint64_t position, double *shares);

/* How many of the first `position` windows are of each source: counts(sources). */
void blend_counts(const struct blend *blend, uint64_t position, uint64_t *counts);

#endif
