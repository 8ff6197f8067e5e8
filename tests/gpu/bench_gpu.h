/*
 * bench_gpu: how far a GPU is from what it can do: its own ceilings first, then operations and whole models as shares
 * of them, all in one run, because clocks and neighbours drift. Nothing here passes or fails by a speed.
 */
#ifndef TESTS_GPU_BENCH_GPU_H
#define TESTS_GPU_BENCH_GPU_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "kernels/kern_table.h"

struct bench_gpu {
    const struct kern *kern;
    struct kern_dev *dev;
    bool small;        /* sizes that a CPU does at once: to try this program, not to measure */
    const char *torch; /* the script of the same model in PyTorch; NULL: without */
    const char *only;  /* models whose name contains it; NULL: all */
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

/* Each prints its table and adds to b->summary. */
ERR_MUST_CHECK enum err bench_gpu_ceilings(struct bench_gpu *b);
ERR_MUST_CHECK enum err bench_gpu_operations(struct bench_gpu *b);
ERR_MUST_CHECK enum err bench_gpu_models(struct bench_gpu *b);

#endif
