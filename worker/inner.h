/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inner: the inner optimizer: global norm, clipping, AdamW, Muon or plain SGD, by the run spec's schedule.
 *
 * Its state never leaves the island and is never reset by a synchronisation. Steps are queued on the model's device,
 * and what came of one is read when it is there: up to kern->ahead steps later. One thread calls; no allocation after
 * inner_new().
 */
#ifndef WORKER_INNER_H
#define WORKER_INNER_H

#include <stdint.h>

#include "common/err.h"
#include "common/runspec.h"
#include "kernels/kern_host.h"
#include "worker/model/model.h"

enum { INNER_RESULTS = 4 }; /* steps that may wait for inner_result() */

struct inner {
    struct model *model;        /* borrowed */
    const struct runspec *spec; /* borrowed */
    float *m, *v;               /* flat moments, on the device; NULL for SGD. Muon leaves its matrices' v at 0 */
    void *scratch;              /* Muon's, on the device */
    struct kern_step *step;     /* (1), on the device */
    struct kern_spans **spans;  /* [model_pieces()]: what AdamW or SGD change of each piece */
    uint64_t updates;           /* steps that changed something, as of the last result; for bias correction */
    uint64_t updated;           /* the run's step of the last of them; 0: not known, or none */
    bool stochastic;            /* how the products' copy is rounded; see inner_round() */
    struct kern_host results;   /* struct inner_arrival[INNER_RESULTS] */
    double lr[INNER_RESULTS];
    uint64_t mark[INNER_RESULTS];
    uint64_t step_of[INNER_RESULTS];
    uint64_t queued, read; /* steps */
};

struct inner_result {
    double loss; /* mean over the step's batches */
    double lr, grad_norm;
    bool skipped; /* the gradient held NaN or Inf: nothing was changed */
};

/* Bytes on the device that inner_new() allocates there, for a model or an outline of one. */
struct inner_memory {
    uint64_t moments;
    uint64_t scratch; /* Muon's */
};
struct inner_memory inner_memory(const struct model *model, const struct runspec *spec);

ERR_MUST_CHECK enum err inner_new(struct model *model, const struct runspec *spec, struct inner **out);
void inner_free(struct inner *inner);

/* Goes on after so many updates, of a checkpoint that m and v were read from. */
ERR_MUST_CHECK enum err inner_resume(struct inner *inner, uint64_t updates);

/* Where products have a copy of the weights in less than float: whether the optimizer rounds it by chance, so that the
 * mean is kept, instead of to nearest. The chances are a function of the run's seed, the step and where a value lies in
 * the flat arrays: a run repeats and resumes to the same bits, in any number of ranks for which these arrays lie alike
 * (that is so where every bucket's values are a multiple of 16 a rank). What the exchange with the daemon changes is
 * rounded to nearest. Before the first step. */
void inner_round(struct inner *inner, bool stochastic);

/* After inner_resume() and a model_refresh(), which rounds to nearest: rounds the copy as the update of the run's step
 * `step` did. Masters stay, bit by bit; gradients must be zero. Does nothing unless it is by chance. Of several ranks
 * all call. */
ERR_MUST_CHECK enum err inner_round_again(struct inner *inner, uint64_t step);

/* Queues the step `step` (of the run, from 1): applies model->grad, and sets it and model->loss to zero. Of several
 * ranks each changes its own masters; model_spread() then shows them to all. ERR_STATE if INNER_RESULTS of them wait to
 * be read. */
ERR_MUST_CHECK enum err inner_step(struct inner *inner, uint64_t step);

/* Steps whose results are not read yet. */
uint64_t inner_pending(const struct inner *inner);

/* Waits for the oldest of them. ERR_STATE if there is none. */
ERR_MUST_CHECK enum err inner_result(struct inner *inner, struct inner_result *result);

#endif
