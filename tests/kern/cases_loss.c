/* SPDX-License-Identifier: Apache-2.0 */
/* Softmax and cross-entropy: whole, in a rank's parts, and added up. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/env.h"
#include "tests/kern/arrays.h"
#include "tests/kern/cases.h"
#include "tests/lib/ref64.h"

enum { R = 20 };

struct loss {
    struct array logits; /* (R,ld) */
    int32_t targets[R];
    int64_t V, ld;
    double *packed;
};

static struct loss loss_new(int64_t V, int64_t ld)
{
    struct loss c = {.V = V, .ld = ld, .packed = calloc((size_t)(R * V), sizeof(double))};
    c.logits = array_new(ARRAY_ACT, R * ld, 3);
    c.logits.d[V / 2] = 500; /* a logit that would overflow without subtracting the largest */
    for (int64_t r = 0; r < R; r++)
        for (int64_t i = V; i < ld; i++)
            c.logits.d[r * ld + i] = NAN; /* nobody's */
    array_write(&c.logits);
    for (int i = 0; i < R; i++)
        c.targets[i] = (int32_t)env_rng_below(&arrays_rng, (uint64_t)V);
    c.targets[0] = (int32_t)V - 1;
    return c;
}

/* Losses of the rows, and scale * dloss/dlogits where `gradient` (R,V) is wanted. */
static void reference(const struct loss *c, double *losses, double *gradient, double scale)
{
    for (int64_t r = 0; r < R; r++) {
        const double *x = c->logits.d + r * c->ld;
        double most = x[0], sum = 0;
        for (int64_t i = 0; i < c->V; i++)
            most = fmax(most, x[i]);
        for (int64_t i = 0; i < c->V; i++)
            sum += exp(x[i] - most);
        losses[r] = log(sum) + most - x[c->targets[r]];
        for (int64_t i = 0; gradient != NULL && i < c->V; i++)
            gradient[r * c->V + i] = scale * (exp(x[i] - most) / sum - (i == c->targets[r] ? 1 : 0));
    }
}

/* The columns of `read` (R,ld) that `first` .. are, against (R,V) of which they are a part. */
static void gradient_near(const char *what, const float *read, const double *want, const struct loss *c, int64_t first,
                          int64_t count, int64_t ld)
{
    float *got = calloc((size_t)(R * count), sizeof *got);
    double *part = calloc((size_t)(R * count), sizeof *part);
    for (int64_t r = 0; r < R; r++) {
        memcpy(got + r * count, read + r * ld, (size_t)count * sizeof *got);
        memcpy(part + r * count, want + r * c->V + first, (size_t)count * sizeof *part);
        for (int64_t i = count; i < ld; i++)
            assert_true(isnan(read[r * ld + i]));
    }
    values_near(what, got, part, R * count, array_tolerance(ARRAY_ACT));
    free(got);
    free(part);
}

/* What the table wants of rows at a time, and how far apart, can be given to it. */
static void shapes_suit(void **state)
{
    static const struct {
        int64_t R, V;
    } asked[] = {{1, 1}, {R, 301}, {4096, 50257}, {100000, 128256}};
    (void)state;
    for (size_t i = 0; i < sizeof asked / sizeof asked[0]; i++) {
        int64_t rows = 0, ld = 0;
        kern->logits_shape(asked[i].R, asked[i].V, &rows, &ld);
        assert_in_range(rows, 1, asked[i].R);
        assert_in_range(ld, asked[i].V, asked[i].V + 255);
    }
}

static void whole_case(int64_t V, int64_t ld)
{
    struct loss c = loss_new(V, ld);
    struct kern_logits shape = {.R = R, .V = V, .ld = ld};
    int32_t *targets = arrays_tokens(c.targets, R);
    double want[R], *gradient = calloc((size_t)(R * V), sizeof *gradient);
    struct array losses = array_out(ARRAY_FLOAT, R), again = array_out(ARRAY_FLOAT, R);
    struct array untouched = array_of(ARRAY_ACT, c.logits.d, c.logits.count);
    reference(&c, want, gradient, 1.0 / R);
    kern->cross_entropy(dev, losses.dev, c.logits.dev, targets, shape, 0);
    array_near("cross-entropy", &losses, want, 1e-5);
    arrays_equal("logits without a gradient", &c.logits, &untouched);
    kern->cross_entropy(dev, again.dev, c.logits.dev, targets, shape, 1.0f / R);
    array_near("cross-entropy with its gradient", &again, want, 1e-5);
    gradient_near("gradient of logits", array_read(&c.logits), gradient, &c, 0, V, ld);
    kern->free(dev, targets);
    free(gradient);
    free(c.packed);
    arrays_free(&c.logits, &losses, &again, &untouched, NULL);
}

static void cross_entropy_holds(void **state)
{
    (void)state;
    whole_case(1, 1);
    whole_case(301, 301); /* odd: rows begin at any place */
    whole_case(301, 320);
    whole_case(4096, 4096);
    whole_case(5000, 5056);
}

/* `parts` ranks, each with its columns: losses and gradients are those of the whole. */
static void parts_case(int64_t V, int64_t parts)
{
    struct loss c = loss_new(V, V);
    int32_t *targets = arrays_tokens(c.targets, R);
    double want[R], *gradient = calloc((size_t)(R * V), sizeof *gradient);
    struct array stats = array_out(ARRAY_FLOAT, parts * R * 3), lse = array_out(ARRAY_FLOAT, R);
    struct array losses = array_out(ARRAY_FLOAT, R), part[4];
    reference(&c, want, gradient, 0.5);
    for (int64_t p = 0; p < parts; p++) {
        int64_t first = V * p / parts, count = V * (p + 1) / parts - first, ld = count + 3;
        double *columns = calloc((size_t)(R * ld), sizeof *columns);
        for (int64_t r = 0; r < R; r++)
            for (int64_t i = 0; i < ld; i++)
                columns[r * ld + i] = i < count ? c.logits.d[r * V + first + i] : NAN;
        part[p] = array_of(ARRAY_ACT, columns, R * ld);
        kern->loss_part(dev, (float *)stats.dev + p * R * 3, part[p].dev, targets,
                        (struct kern_logits){R, count, ld, first});
        free(columns);
    }
    kern->loss_join(dev, losses.dev, lse.dev, stats.dev, parts, R);
    array_near("loss of parts", &losses, want, 1e-5);
    for (int64_t p = 0; p < parts; p++) {
        int64_t first = V * p / parts, count = V * (p + 1) / parts - first, ld = count + 3;
        kern->loss_back(dev, part[p].dev, lse.dev, targets, (struct kern_logits){R, count, ld, first}, 0.5f);
        gradient_near("gradient of a part", array_read(&part[p]), gradient, &c, first, count, ld);
        array_free(&part[p]);
    }
    kern->free(dev, targets);
    free(gradient);
    free(c.packed);
    arrays_free(&c.logits, &stats, &lse, &losses, NULL);
}

static void parts_of_a_vocabulary_are_the_whole(void **state)
{
    (void)state;
    parts_case(301, 1);
    parts_case(301, 2);
    parts_case(1000, 4);
}

static void a_loss_that_is_no_number_shows(void **state)
{
    (void)state;
    struct loss c = loss_new(100, 100);
    int32_t *targets = arrays_tokens(c.targets, R);
    struct array losses = array_out(ARRAY_FLOAT, R);
    c.logits.d[3 * 100 + 7] = NAN;
    array_write(&c.logits);
    kern->cross_entropy(dev, losses.dev, c.logits.dev, targets, (struct kern_logits){R, 100, 100, 0}, 0);
    const float *read = array_read(&losses);
    for (int r = 0; r < R; r++)
        assert_true(isnan(read[r]) == (r == 3));
    kern->free(dev, targets);
    free(c.packed);
    arrays_free(&c.logits, &losses, NULL);
}

static void losses_add_up(void **state)
{
    (void)state;
    static const int64_t counts[] = {1, 255, 1000, 5003};
    double *total, got, want = 0;
    assert_ok(kern->alloc(dev, sizeof *total, "a total", (void **)&total));
    for (int i = 0; i < 4; i++) {
        struct array losses = array_new(ARRAY_FLOAT, counts[i], 2);
        kern->add_losses(dev, total, losses.dev, counts[i], 0.25);
        for (int64_t r = 0; r < counts[i]; r++)
            want += 0.25 * losses.d[r];
        array_free(&losses);
    }
    kern->copy(dev, KERN_MAIN, &got, total, sizeof got);
    assert_ok(kern->sync(dev));
    assert_true(fabs(got - want) < 1e-12 * 7000);
    kern->free(dev, total);
}

const struct CMUnitTest cases_loss[] = {
    cmocka_unit_test(shapes_suit),
    cmocka_unit_test(cross_entropy_holds),
    cmocka_unit_test(parts_of_a_vocabulary_are_the_whole),
    cmocka_unit_test(a_loss_that_is_no_number_shows),
    cmocka_unit_test(losses_add_up),
};
const size_t cases_loss_count = sizeof cases_loss / sizeof cases_loss[0];
