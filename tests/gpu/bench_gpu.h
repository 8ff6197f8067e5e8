/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_gpu: how far a GPU is from what it can do: its own ceilings first, then operations and whole models as shares
 * of them, all in one run, because clocks and neighbours drift. Nothing here passes or fails by a speed.
 *
 * What has been measured is in the file at once: whoever ends this program early has all until then.
 */
#ifndef TESTS_GPU_BENCH_GPU_H
#define TESTS_GPU_BENCH_GPU_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "kernels/kern_table.h"

struct inner;
struct model;
struct env_rng;

struct bench_gpu {
    const struct kern *kern;
    struct kern_dev *dev;
    bool small;        /* sizes that a CPU does at once: to try this program, not to measure */
    const char *torch; /* the script of the same model in PyTorch; NULL: without */
    const char *only;  /* models whose name contains it; NULL: all */
    const char *out;   /* where the results go, as JSON; NULL: nowhere */
    double end_s;      /* by env_mono_s(): nothing new begins then */
    /* BENCH_TILE on the device, each: normal values of deviation 1, and .02; ones. */
    float *tile, *weights, *ones;
    double product_rate; /* floating-point operations a second, measured */
    double copy_rate;    /* bytes a second that a copy reads and writes, together */
    json_t *summary;
};

/* Not a power of two, so that rows of matrices are not alike; a whole number of 16 bytes. */
enum { BENCH_TILE = (1 << 22) - 1016 };

/* count values of deviation 1, random but for a period of BENCH_TILE. */
ERR_MUST_CHECK enum err bench_gpu_fill(struct bench_gpu *b, kern_act *to, int64_t count);
/* The same of float, from a tile. */
void bench_gpu_fill_float(struct bench_gpu *b, float *to, const float *tile, int64_t count);

/* Seconds that a call takes among many that are queued: after a first one, the median of several groups. */
typedef void bench_call(struct bench_gpu *b, void *context);
ERR_MUST_CHECK enum err bench_gpu_time(struct bench_gpu *b, bench_call *call, void *context, double *seconds);

/* Seconds that are left of all; 0 or less: none. */
double bench_gpu_left(const struct bench_gpu *b);
/* An empty list in b->summary, by that name; the summary's. */
json_t *bench_gpu_rows(struct bench_gpu *b, const char *name);
/* Replaces the file by b->summary as it is. */
ERR_MUST_CHECK enum err bench_gpu_keep(struct bench_gpu *b);

struct bench_shape {
    const char *name;
    int64_t width, layers, heads, ff, context, batch;
    double aim;    /* share of the measured product rate */
    bool exchange; /* steps are timed with and without it */
};
const struct bench_shape *bench_gpu_shapes(const struct bench_gpu *b, size_t *count);
int64_t bench_gpu_vocab(const struct bench_gpu *b);
/* Seconds for which whole steps are measured. */
double bench_gpu_measured_s(const struct bench_gpu *b);

/* A model in training. */
struct bench_run {
    struct model *model;
    struct inner *inner;
    struct env_rng *rng;
    int32_t *tokens;
    int64_t step; /* the last */
    double loss;  /* of the last that is known */
};
/* A step as our trainer does it: results are read as late as the device may be. */
ERR_MUST_CHECK enum err bench_gpu_step(struct bench_run *run);
/* Until all results are there. */
ERR_MUST_CHECK enum err bench_gpu_settle(struct bench_run *run);

/* Each prints its table and adds to b->summary, row by row. */
ERR_MUST_CHECK enum err bench_gpu_ceilings(struct bench_gpu *b);
ERR_MUST_CHECK enum err bench_gpu_models(struct bench_gpu *b);
/* Of a model that takes step_s a step: what the exchange between islands costs it. */
ERR_MUST_CHECK enum err bench_gpu_exchange(struct bench_gpu *b, const char *name, struct bench_run *run, double step_s);
ERR_MUST_CHECK enum err bench_gpu_operations(struct bench_gpu *b);
/* Adds to the rows of the models. */
ERR_MUST_CHECK enum err bench_gpu_torch(struct bench_gpu *b);

#endif
