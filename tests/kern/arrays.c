/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/kern/arrays.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "common/env.h"
#include "tests/lib/testlib.h"

enum { BEHIND = 256, SAMPLES = 30 };

const struct kern *kern;
struct kern_dev *dev;
struct env_rng arrays_rng;
static struct digest seen;

void arrays_begin(const struct kern *table, struct kern_dev *device)
{
    kern = table;
    dev = device;
    arrays_rng = env_rng_init(7, 0);
    memset(&seen, 0, sizeof seen);
}

struct digest arrays_digest(void)
{
    return seen;
}

/* Folds bytes into what was seen before them. */
static void see(const void *bytes, size_t count)
{
    struct digest pair[2] = {seen, digest_of(bytes, count)};
    seen = digest_of(pair, sizeof pair);
}

static size_t value_bytes(enum array_type type)
{
    return type == ARRAY_ACT ? kern->act_bytes : sizeof(float);
}

static uint16_t to_bf16(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if (isnan(x))
        return 0x7fff;
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static float from_bf16(uint16_t x)
{
    uint32_t bits = (uint32_t)x << 16;
    float out;
    memcpy(&out, &bits, sizeof out);
    return out;
}

static struct array make(enum array_type type, int64_t count)
{
    struct array a = {.count = count, .type = type};
    size_t bytes = (size_t)count * value_bytes(type);
    unsigned char behind[BEHIND];
    memset(behind, 0xa5, sizeof behind);
    a.d = calloc((size_t)count + 1, sizeof *a.d);
    a.read = calloc((size_t)count + 1, sizeof *a.read);
    assert_ok(kern->alloc(dev, bytes + BEHIND, "a test's array", &a.dev));
    kern->copy(dev, KERN_MAIN, (char *)a.dev + bytes, behind, BEHIND);
    return a;
}

void array_write(struct array *a)
{
    size_t count = (size_t)a->count;
    bool half = value_bytes(a->type) == 2;
    uint16_t *halves = calloc(count + 1, sizeof *halves);
    float *floats = calloc(count + 1, sizeof *floats);
    for (size_t i = 0; i < count; i++) {
        floats[i] = (float)a->d[i];
        halves[i] = to_bf16(floats[i]);
        a->d[i] = half ? from_bf16(halves[i]) : floats[i];
    }
    kern->copy(dev, KERN_MAIN, a->dev, half ? (void *)halves : (void *)floats, count * value_bytes(a->type));
    assert_ok(kern->sync(dev));
    free(halves);
    free(floats);
}

struct array array_new(enum array_type type, int64_t count, double sigma)
{
    struct array a = make(type, count);
    for (int64_t i = 0; sigma != 0 && i < count; i++)
        a.d[i] = sigma * env_rng_normal(&arrays_rng);
    array_write(&a);
    return a;
}

struct array array_out(enum array_type type, int64_t count)
{
    struct array a = make(type, count);
    for (int64_t i = 0; i < count; i++)
        a.d[i] = NAN;
    array_write(&a);
    memset(a.d, 0, (size_t)count * sizeof *a.d);
    return a;
}

struct array array_of(enum array_type type, const double *values, int64_t count)
{
    struct array a = make(type, count);
    memcpy(a.d, values, (size_t)count * sizeof *values);
    array_write(&a);
    return a;
}

const float *array_read(struct array *a)
{
    size_t count = (size_t)a->count;
    if (value_bytes(a->type) == sizeof(float)) {
        kern->copy(dev, KERN_MAIN, a->read, a->dev, count * sizeof(float));
        assert_ok(kern->sync(dev));
    } else {
        uint16_t *halves = calloc(count + 1, sizeof *halves);
        kern->copy(dev, KERN_MAIN, halves, a->dev, count * sizeof *halves);
        assert_ok(kern->sync(dev));
        for (size_t i = 0; i < count; i++)
            a->read[i] = from_bf16(halves[i]);
        free(halves);
    }
    see(a->read, count * sizeof(float));
    return a->read;
}

static void array_drop(struct array *a)
{
    kern->free(dev, a->dev);
    free(a->d);
    free(a->read);
    *a = (struct array){0};
}

void array_free(struct array *a)
{
    unsigned char behind[BEHIND];
    kern->copy(dev, KERN_MAIN, behind, (char *)a->dev + (size_t)a->count * value_bytes(a->type), BEHIND);
    assert_ok(kern->sync(dev));
    for (int i = 0; i < BEHIND; i++)
        if (behind[i] != 0xa5)
            fail_msg("byte %d behind an array of %ld values was written", i, (long)a->count);
    array_drop(a);
}

void arrays_free(struct array *first, ...)
{
    va_list rest;
    va_start(rest, first);
    for (struct array *a = first; a != NULL; a = va_arg(rest, struct array *))
        array_free(a);
    va_end(rest);
}

void arrays_drop(struct array *first, ...)
{
    va_list rest;
    va_start(rest, first);
    for (struct array *a = first; a != NULL; a = va_arg(rest, struct array *))
        array_drop(a);
    va_end(rest);
}

int32_t *arrays_tokens(const int32_t *tokens, int64_t count)
{
    void *out;
    assert_ok(kern->alloc(dev, (size_t)count * sizeof *tokens, "tokens", &out));
    kern->copy(dev, KERN_MAIN, out, tokens, (size_t)count * sizeof *tokens);
    assert_ok(kern->sync(dev));
    return out;
}

double array_tolerance(enum array_type type)
{
    return value_bytes(type) == 2 ? 6e-3 : 1e-5;
}

double arrays_operand_error(void)
{
    return kern->act_bytes == sizeof(float) && kern->bf16(dev) ? 6e-3 : 0;
}

void values_near(const char *what, const float *got, const double *want, int64_t count, double tolerance)
{
    double difference = 0, norm = 0;
    for (int64_t i = 0; i < count; i++) {
        if (!isfinite(got[i]))
            fail_msg("%s: element %ld of %ld is %g, not %g", what, (long)i, (long)count, (double)got[i], want[i]);
        difference += ((double)got[i] - want[i]) * ((double)got[i] - want[i]);
        norm += want[i] * want[i];
    }
    double error = sqrt(difference / (norm + 1e-300));
    if (!(error <= tolerance))
        fail_msg("%s: relative error %.3g, allowed %.3g", what, error, tolerance);
}

void array_near(const char *what, struct array *a, const double *want, double tolerance)
{
    values_near(what, array_read(a), want, a->count, tolerance);
}

void arrays_equal(const char *what, struct array *a, struct array *b)
{
    assert_true(a->count == b->count);
    const float *left = array_read(a), *right = array_read(b);
    for (int64_t i = 0; i < a->count; i++)
        if (memcmp(&left[i], &right[i], sizeof *left) != 0)
            fail_msg("%s: element %ld is %.9g and %.9g", what, (long)i, (double)left[i], (double)right[i]);
}

static double objective(arrays_forward *forward, void *context, const struct array *dout, double *out)
{
    forward(out, context);
    double sum = 0;
    for (int64_t i = 0; i < dout->count; i++)
        sum += dout->d[i] * out[i];
    return sum;
}

void array_gradient(const char *what, arrays_forward *forward, void *context, const struct array *dout,
                    struct array *input, struct array *gradient, const double *before, double tolerance)
{
    double *out = calloc((size_t)dout->count, sizeof *out);
    const float *got = array_read(gradient);
    double difference = 0, norm = 0;
    const double h = 1e-5;
    for (int64_t i = 0; i < gradient->count; i++)
        if (!isfinite(got[i]))
            fail_msg("%s: element %ld is %g", what, (long)i, (double)got[i]);
    for (int s = 0; s < SAMPLES; s++) {
        int64_t i =
            input->count <= SAMPLES ? s % input->count : (int64_t)env_rng_below(&arrays_rng, (uint64_t)input->count);
        double saved = input->d[i];
        input->d[i] = saved + h;
        double up = objective(forward, context, dout, out);
        input->d[i] = saved - h;
        double down = objective(forward, context, dout, out);
        input->d[i] = saved;
        double want = (up - down) / (2 * h) + (before != NULL ? before[i] : 0);
        difference += (got[i] - want) * (got[i] - want);
        norm += want * want;
    }
    free(out);
    double error = sqrt(difference / (norm + 1e-300));
    if (!(error <= tolerance))
        fail_msg("%s: gradient off by %.3g, allowed %.3g", what, error, tolerance);
}
