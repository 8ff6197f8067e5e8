/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arrays: arrays on a device under test, each with its values in double on the host, and how near they must come.
 *
 * Inputs are drawn, rounded to the type that the device holds, and copied there; outputs begin as NaN. Behind each
 * array lie bytes that nobody may write, which array_free() checks. What a test reads goes into a digest, by which two
 * runs are compared to the bit. One device at a time, set by arrays_begin(); one thread. Failures fail the cmocka case.
 */
#ifndef TESTS_KERN_ARRAYS_H
#define TESTS_KERN_ARRAYS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/digest.h"
#include "kernels/kern_table.h"

enum array_type { ARRAY_ACT, ARRAY_FLOAT };

struct array {
    int64_t count;
    enum array_type type;
    double *d; /* what the device was given; 0 for outputs */
    void *dev;
    float *read; /* what array_read() last got */
};

extern const struct kern *kern;
extern struct kern_dev *dev;
extern struct env_rng arrays_rng;

/* The device that arrays are on from now on; random numbers begin anew. */
void arrays_begin(const struct kern *table, struct kern_dev *device);
/* Of all that was read since. */
struct digest arrays_digest(void);

/* Normal values of deviation `sigma`; 0: zeros. */
struct array array_new(enum array_type type, int64_t count, double sigma);
/* NaN, to be overwritten. */
struct array array_out(enum array_type type, int64_t count);
/* From `values`, rounded to the type. */
struct array array_of(enum array_type type, const double *values, int64_t count);
/* Gives the device array->d again, after it was changed; rounds it. */
void array_write(struct array *array);
/* What the device holds now: count floats, until the next reading or array_free(). */
const float *array_read(struct array *array);
void array_free(struct array *array);
/* As array_free() of each, to a NULL. */
void arrays_free(struct array *first, ...);
/* Likewise, of a device that has failed: what it holds is not looked at. */
void arrays_drop(struct array *first, ...);

/* int32_t values on the device; free by kern->free(). */
int32_t *arrays_tokens(const int32_t *tokens, int64_t count);

/* The error that may be made in arrays of this type, relative to the norm: one rounding, and what sums add to it. */
double array_tolerance(enum array_type type);
/* What a table whose activations are float adds to it by rounding the operands of products to bf16; else 0. */
double arrays_operand_error(void);
/* What the device holds against `want`, relative to its norm; every element finite. */
void array_near(const char *what, struct array *array, const double *want, double tolerance);
void values_near(const char *what, const float *got, const double *want, int64_t count, double tolerance);
/* All bits of both. */
void arrays_equal(const char *what, struct array *a, struct array *b);

/* A forward pass in double: out(dout->count) from what `context` holds. */
typedef void arrays_forward(double *out, void *context);
/* That `gradient` holds `before` (NULL: 0) + d sum(dout * forward) / d input->d, judged at up to 30 places by central
 * differences. */
void array_gradient(const char *what, arrays_forward *forward, void *context, const struct array *dout,
                    struct array *input, struct array *gradient, const double *before, double tolerance);

#endif
