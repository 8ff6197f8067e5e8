/* SPDX-License-Identifier: Apache-2.0 */
/*
 * learns: a small model, trained on a table of kernels: what an emulated and a real GPU are tested with, against the
 * CPU and against themselves. Failures fail the cmocka case.
 */
#ifndef TESTS_KERN_LEARNS_H
#define TESTS_KERN_LEARNS_H

#include <stdint.h>

#include "common/runspec.h"
#include "kernels/kern_table.h"
#include "worker/model/model.h"

enum { LEARNS_STEPS_MAX = 64 };

/* What came of a run; ours until learns_free(). */
struct learnt {
    int steps;
    double loss[LEARNS_STEPS_MAX]; /* of each step */
    float *w, *m, *v;              /* at the end: master weights and moments */
    int64_t count;
};

/* 50 steps with two heads of 16; loss falls by more than .5. */
struct runspec learns_small(int inner, int64_t accumulate);
/* 8 steps at width 256, four heads of 64 and a vocabulary that nothing divides; loss falls by more than .5. */
struct runspec learns_wide(void);

/* Trains spec->steps steps on an open device; with `again` > 0 everything that a checkpoint keeps goes to a new model
 * after so many. Batches are a function of the step alone. The device stays the same, because a GPU's products are the
 * same bits only by the same device's plans, which are found by timing. */
struct learnt learns_train(const struct kern *kern, struct kern_dev *dev, const struct runspec *spec, uint64_t again,
                           enum model_recompute recompute);
/* The same with the products' copy rounded by chance. */
struct learnt learns_train_stochastic(const struct kern *kern, struct kern_dev *dev, const struct runspec *spec,
                                      uint64_t again);
void learns_free(struct learnt *learnt);

/* That every step's loss is that of the other run, but for so much of it. */
void learns_near(const struct learnt *got, const struct learnt *want, double part);
/* All bits: losses, weights and moments. */
void learns_same(const struct learnt *a, const struct learnt *b);

#endif
