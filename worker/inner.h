/*
 * inner: the inner optimizer: global norm, clipping, AdamW, Muon or plain SGD, by the run spec's schedule.
 *
 * Its state never leaves the island and is never reset by a synchronisation. One thread calls; no allocation after
 * inner_new().
 */
#ifndef WORKER_INNER_H
#define WORKER_INNER_H

#include <stdint.h>

#include "common/err.h"
#include "common/runspec.h"
#include "worker/model/model.h"

struct inner {
    struct model *model;        /* borrowed */
    const struct runspec *spec; /* borrowed */
    float *m, *v;               /* flat moments, on the device; NULL for SGD. Muon leaves its matrices' v at 0 */
    float *scratch;             /* Muon's, on the device */
    uint64_t updates;           /* AdamW's own step count, for bias correction */
    double *sum;                /* (1), on the device */
    float *scale;               /* (1), on the device */
};

struct inner_result {
    double lr, grad_norm;
    bool skipped; /* the gradient held NaN or Inf: nothing was changed */
};

ERR_MUST_CHECK enum err inner_new(struct model *model, const struct runspec *spec, struct inner **out);
void inner_free(struct inner *inner);

/* Applies model->grad at run step `step` (from 1) and zeroes it. */
ERR_MUST_CHECK enum err inner_step(struct inner *inner, uint64_t step, struct inner_result *result);

#endif
