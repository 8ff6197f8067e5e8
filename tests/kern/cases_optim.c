/* SPDX-License-Identifier: Apache-2.0 */
/* The gradient's norm, what is decided by it, and the optimizers. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/env.h"
#include "tests/kern/arrays.h"
#include "tests/kern/cases.h"

static struct kern_step *step_new(void)
{
    void *out;
    assert_ok(kern->alloc(dev, sizeof(struct kern_step), "a step", &out));
    return out;
}

static struct kern_step step_read(const struct kern_step *step)
{
    struct kern_step out;
    kern->copy(dev, KERN_MAIN, &out, step, sizeof out);
    assert_ok(kern->sync(dev));
    return out;
}

static double squares(const double *x, int64_t count)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += x[i] * x[i];
    return sum;
}

/* What optimizers work on: weights, their copy, gradients and moments. */
struct state {
    struct array w, act, g, m, v;
};

static struct state state_new(int64_t count, double sigma)
{
    struct state s = {.w = array_new(ARRAY_FLOAT, count, 1),
                      .act = array_out(ARRAY_ACT, count),
                      .g = array_new(ARRAY_FLOAT, count, sigma),
                      .m = array_new(ARRAY_FLOAT, count, 0.1),
                      .v = array_new(ARRAY_FLOAT, count, 0)};
    for (int64_t i = 0; i < count; i++)
        s.v.d[i] = 0.01 * env_rng_uniform(&arrays_rng);
    array_write(&s.v);
    return s;
}

static void state_free(struct state *s)
{
    arrays_free(&s->w, &s->act, &s->g, &s->m, &s->v, NULL);
}

/* The products' copy holds the new weights where a span was, and what it held elsewhere. */
static void act_follows(struct state *s, const struct kern_span *spans, size_t count)
{
    const float *act = array_read(&s->act), *w = array_read(&s->w);
    int64_t at = 0;
    for (size_t i = 0; i <= count; i++) {
        int64_t begin = i < count ? spans[i].begin : s->w.count, end = i < count ? begin + spans[i].count : begin;
        for (; at < begin; at++)
            assert_true(isnan(act[at]));
        for (; at < end; at++)
            if (!(fabs((double)(act[at] - w[at])) <= fabs((double)w[at]) / 256))
                fail_msg("act %ld is %g, its weight %g", (long)at, (double)act[at], (double)w[at]);
    }
}

static void steps_are_judged(void **state)
{
    (void)state;
    static const int64_t counts[] = {1, 3, 4096, 100003};
    struct kern_step *step = step_new(), got;
    struct kern_judge conf = {.norm_max = 1.5f, .beta1 = 0.9, .beta2 = 0.99};
    for (uint64_t i = 0; i < 4; i++) {
        struct array a = array_new(ARRAY_FLOAT, counts[i], 0.5), b = array_new(ARRAY_FLOAT, 17, 0.5);
        kern->sum_squares(dev, step, a.dev, a.count);
        kern->sum_squares(dev, step, b.dev, b.count);
        kern->judge(dev, step, conf);
        double norm = sqrt(squares(a.d, a.count) + squares(b.d, b.count));
        got = step_read(step);
        assert_true(fabs(got.norm - norm) < 1e-10 * norm && got.skip == 0 && got.sum == 0);
        assert_true(got.updates == i + 1);
        assert_true(fabs((double)got.scale - (norm > 1.5 ? 1.5 / norm : 1)) < 1e-6);
        assert_true(fabs((double)got.correction1 - (1 - pow(0.9, (double)got.updates))) < 1e-6);
        assert_true(fabs((double)got.correction2 - (1 - pow(0.99, (double)got.updates))) < 1e-6);
        arrays_free(&a, &b, NULL);
    }
    static const double bad[] = {NAN, INFINITY, -INFINITY};
    for (int i = 0; i < 3; i++) {
        struct array a = array_new(ARRAY_FLOAT, 5000, 1);
        a.d[4321] = bad[i];
        array_write(&a);
        kern->sum_squares(dev, step, a.dev, a.count);
        kern->judge(dev, step, conf);
        got = step_read(step);
        assert_true(got.skip != 0 && got.updates == 4 && got.sum == 0);
        array_free(&a);
    }
    struct array large = array_of(ARRAY_FLOAT, (double[]){1e3}, 1);
    kern->sum_squares(dev, step, large.dev, 1);
    kern->judge(dev, step, (struct kern_judge){.norm_max = 0, .beta1 = 0.9, .beta2 = 0.99}); /* no limit */
    got = step_read(step);
    assert_true(got.scale == 1.0f && got.updates == 5);
    array_free(&large);
    kern->free(dev, step);
}

enum { COUNT = 9001 };
/* Of all alignments, with gaps; longer and shorter than any piece that a kernel takes at a time. */
static const struct kern_span spans_of[] = {{0, 16, true}, {17, 3, false}, {21, 4500, true}, {5001, 3999, false}};

static void adamw_follows_its_definition(void **state)
{
    (void)state;
    struct state s = state_new(COUNT, 0.5);
    struct kern_step *step = step_new();
    struct kern_spans *spans;
    struct kern_adamw conf = {.lr = 0.01f, .beta1 = 0.9f, .beta2 = 0.99f, .eps = 1e-8f, .weight_decay = 0.1f};
    assert_ok(kern->spans_new(dev, spans_of, 4, &spans));
    for (int t = 1; t <= 3; t++) {
        double norm = sqrt(squares(s.g.d, COUNT)), factor = norm > 1 ? 1 / norm : 1;
        kern->sum_squares(dev, step, s.g.dev, COUNT);
        kern->judge(dev, step, (struct kern_judge){.norm_max = 1, .beta1 = 0.9, .beta2 = 0.99});
        kern->adamw(dev, s.w.dev, s.act.dev, s.g.dev, s.m.dev, s.v.dev, spans, step, conf);
        for (size_t k = 0; k < 4; k++)
            for (int64_t i = spans_of[k].begin; i < spans_of[k].begin + spans_of[k].count; i++) {
                double g = factor * s.g.d[i];
                s.m.d[i] = 0.9 * s.m.d[i] + 0.1 * g;
                s.v.d[i] = 0.99 * s.v.d[i] + 0.01 * g * g;
                double update = s.m.d[i] / (1 - pow(0.9, t)) / (sqrt(s.v.d[i] / (1 - pow(0.99, t))) + 1e-8);
                s.w.d[i] = s.w.d[i] * (spans_of[k].decay ? 1 - 0.01 * 0.1 : 1) - 0.01 * update;
            }
    }
    array_near("adamw w", &s.w, s.w.d, 1e-6);
    array_near("adamw m", &s.m, s.m.d, 1e-5);
    array_near("adamw v", &s.v, s.v.d, 1e-5);
    act_follows(&s, spans_of, 4);
    kern->spans_free(dev, spans);
    kern->free(dev, step);
    state_free(&s);
}

static void sgd_follows_its_definition(void **state)
{
    (void)state;
    struct state s = state_new(COUNT, 0.001);
    struct kern_step *step = step_new();
    struct kern_spans *spans;
    assert_ok(kern->spans_new(dev, spans_of, 4, &spans));
    kern->sum_squares(dev, step, s.g.dev, COUNT);
    kern->judge(dev, step, (struct kern_judge){.beta1 = 0.9, .beta2 = 0.99});
    kern->sgd(dev, s.w.dev, s.act.dev, s.g.dev, spans, step, 50.0f, (struct kern_rounding){0});
    for (size_t k = 0; k < 4; k++)
        for (int64_t i = spans_of[k].begin; i < spans_of[k].begin + spans_of[k].count; i++)
            s.w.d[i] -= 50 * s.g.d[i];
    array_near("sgd", &s.w, s.w.d, 1e-6);
    act_follows(&s, spans_of, 4);
    kern->spans_free(dev, spans);
    kern->free(dev, step);
    state_free(&s);
}

/* With a NaN in the gradient no optimizer changes a bit. */
static void a_skipped_step_changes_nothing(void **state)
{
    (void)state;
    struct state s = state_new(4096, 1), before;
    struct kern_step *step = step_new();
    struct kern_spans *spans;
    void *scratch;
    struct kern_span all = {0, 4096, true};
    s.g.d[77] = NAN;
    array_write(&s.g);
    before.w = array_of(ARRAY_FLOAT, s.w.d, 4096);
    before.m = array_of(ARRAY_FLOAT, s.m.d, 4096);
    before.v = array_of(ARRAY_FLOAT, s.v.d, 4096);
    assert_ok(kern->spans_new(dev, &all, 1, &spans));
    assert_ok(kern->alloc(dev, kern->muon_scratch(64, 64), "scratch", &scratch));
    kern->sum_squares(dev, step, s.g.dev, 4096);
    kern->judge(dev, step, (struct kern_judge){.norm_max = 1, .beta1 = 0.9, .beta2 = 0.99});
    kern->adamw(dev, s.w.dev, s.act.dev, s.g.dev, s.m.dev, s.v.dev, spans, step,
                (struct kern_adamw){.lr = 1, .beta1 = 0.9f, .beta2 = 0.9f, .eps = 1e-8f});
    kern->sgd(dev, s.w.dev, s.act.dev, s.g.dev, spans, step, 1, (struct kern_rounding){0});
    kern->muon_aim(dev, s.g.dev, s.m.dev, 4096, step, 0.9f);
    kern->orthogonalise(dev, s.g.dev, 64, 64, scratch);
    kern->muon_apply(dev, s.w.dev, s.act.dev, s.g.dev, 4096, 64, step, (struct kern_muon){.lr = 1});
    arrays_equal("skipped w", &s.w, &before.w);
    arrays_equal("skipped m", &s.m, &before.m);
    arrays_equal("skipped v", &s.v, &before.v);
    kern->free(dev, scratch);
    kern->spans_free(dev, spans);
    kern->free(dev, step);
    arrays_free(&before.w, &before.m, &before.v, NULL);
    state_free(&s);
}

/* Between two neighbours of bf16 the weights' copy is on the right one in the mean, the same by the same seed. */
static void stochastic_rounding_keeps_the_mean(void **state)
{
    (void)state;
    if (kern->act_bytes == sizeof(float)) /* nothing is rounded: nothing is seen here */
        skip();
    enum { N = 40000 };
    struct state s = state_new(N, 0);
    struct kern_step *step = step_new();
    struct kern_spans *spans;
    struct kern_span all = {0, N, false};
    for (int64_t i = 0; i < N; i++)
        s.w.d[i] = 1 + 0.25 / 128; /* a quarter of the way to the next */
    array_write(&s.w);
    assert_ok(kern->spans_new(dev, &all, 1, &spans));
    kern->judge(dev, step, (struct kern_judge){.beta1 = 0.9, .beta2 = 0.99});
    float first[N];
    for (uint64_t seed = 1; seed <= 3; seed++) {
        double up = 0, together = 0;
        struct kern_rounding rounding = {.stochastic = true, .seed = seed == 3 ? 1 : seed};
        kern->sgd(dev, s.w.dev, s.act.dev, s.g.dev, spans, step, 0, rounding);
        const float *act = array_read(&s.act);
        for (int64_t i = 0; i < N; i++) {
            assert_true(act[i] == 1.0f || act[i] == 1.0f + 1.0f / 128);
            up += act[i] != 1.0f;
            together += i > 0 && act[i] != 1.0f && act[i - 1] != 1.0f;
        }
        assert_true(fabs(up / N - 0.25) < 0.015); /* 7 sigma */
        assert_true(fabs(together / N - 0.0625) < 0.01);
        if (seed == 1)
            memcpy(first, act, sizeof first);
        assert_true((memcmp(first, act, sizeof first) == 0) == (seed != 2));
    }
    kern->spans_free(dev, spans);
    /* A part by itself, wherever it begins, is rounded as in the whole. */
    static const int64_t begins[] = {64, 11, 4096 + 3};
    for (size_t i = 0; i < sizeof begins / sizeof begins[0]; i++) {
        int64_t at = begins[i];
        struct kern_span rest = {0, N - at, false};
        struct kern_rounding rounding = {.stochastic = true, .seed = 1, .first = at};
        char *act = s.act.dev;
        kern->zero(dev, act, N * kern->act_bytes);
        assert_ok(kern->spans_new(dev, &rest, 1, &spans));
        kern->sgd(dev, (float *)s.w.dev + at, act + (size_t)at * kern->act_bytes, s.g.dev, spans, step, 0, rounding);
        assert_memory_equal(array_read(&s.act) + at, first + at, (size_t)(N - at) * sizeof *first);
        struct kern_muon muon = {.rounding = rounding};
        kern->zero(dev, act, N * kern->act_bytes);
        kern->muon_apply(dev, (float *)s.w.dev + at, act + (size_t)at * kern->act_bytes, s.g.dev, N - at, 1, step,
                         muon);
        assert_memory_equal(array_read(&s.act) + at, first + at, (size_t)(N - at) * sizeof *first);
        kern->spans_free(dev, spans);
    }
    kern->free(dev, step);
    state_free(&s);
}

/* ---- Muon ---- */

/* Cosines of different frequencies are orthogonal (DCT-II); of length 1. */
static double cosine(int64_t r, int64_t i, int64_t n)
{
    return cos(3.14159265358979 * (double)r * ((double)i + 0.5) / (double)n) * sqrt((r > 0 ? 2.0 : 1.0) / (double)n);
}

/* Singular values of a step come out near 1 whatever they were, and singular vectors stay: for a matrix made of known
 * ones the step is known. */
static void muon_case(int64_t N, int64_t K)
{
    int64_t rank = N < K ? N : K; /* all: what is left of none would be noise, which the iterations make large */
    struct array w = array_new(ARRAY_FLOAT, N * K, 1), act = array_out(ARRAY_ACT, N * K);
    struct array g = array_new(ARRAY_FLOAT, N * K, 0), m = array_new(ARRAY_FLOAT, N * K, 0);
    struct kern_step *step = step_new();
    void *scratch;
    for (int64_t r = 0; r < rank; r++) /* from 5 down to 0.2 */
        for (int64_t i = 0; i < N * K; i++)
            g.d[i] += 5 * pow(0.04, (double)r / (double)(rank - 1)) * cosine(r, i / K, N) * cosine(r, i % K, K);
    array_write(&g);
    assert_ok(kern->alloc(dev, kern->muon_scratch(N, K), "scratch", &scratch));
    kern->sum_squares(dev, step, g.dev, N * K);
    double norm = sqrt(squares(g.d, N * K));
    kern->judge(dev, step, (struct kern_judge){.norm_max = (float)(norm / 2), .beta1 = 0.9, .beta2 = 0.99});
    kern->muon_aim(dev, g.dev, m.dev, N * K, step, 0.9f);
    kern->orthogonalise(dev, g.dev, N, K, scratch);
    kern->muon_apply(dev, w.dev, act.dev, g.dev, N * K, N > K ? N : K, step,
                     (struct kern_muon){.lr = 0.1f, .weight_decay = 0.5f});
    double unit = 0.1 * 0.2 * sqrt((double)(N > K ? N : K)), rest = 0;
    double *moved = calloc((size_t)(N * K), sizeof *moved);
    const float *new_w = array_read(&w), *new_m = array_read(&m), *new_act = array_read(&act);
    for (int64_t i = 0; i < N * K; i++) {
        assert_true(fabs((double)new_m[i] - 0.5 * g.d[i]) < 1e-6);
        moved[i] = ((1 - 0.1 * 0.5) * w.d[i] - (double)new_w[i]) / unit;
        assert_true(fabs((double)(new_act[i] - new_w[i])) <= fabs((double)new_w[i]) / 256);
    }
    for (int64_t r = 0; r < rank; r++) {
        double value = 0;
        for (int64_t i = 0; i < N * K; i++)
            value += cosine(r, i / K, N) * moved[i] * cosine(r, i % K, K);
        assert_in_range((uint64_t)(1000 * value), 600, 1300);
        for (int64_t i = 0; i < N * K; i++)
            moved[i] -= value * cosine(r, i / K, N) * cosine(r, i % K, K);
    }
    for (int64_t i = 0; i < N * K; i++)
        rest += moved[i] * moved[i];
    double turned = sqrt(rest / (double)rank);
    if (!(turned < (kern->act_bytes == sizeof(float) ? 1e-3 : 0.06)))
        fail_msg("singular vectors have turned by %.3g", turned);
    free(moved);
    kern->free(dev, scratch);
    kern->free(dev, step);
    arrays_free(&w, &act, &g, &m, NULL);
}

static void muon_makes_a_step_orthogonal(void **state)
{
    (void)state;
    muon_case(6, 40);
    muon_case(40, 6);
    muon_case(24, 24);
    muon_case(35, 67);
}

const struct CMUnitTest cases_optim[] = {
    cmocka_unit_test(steps_are_judged),
    cmocka_unit_test(adamw_follows_its_definition),
    cmocka_unit_test(sgd_follows_its_definition),
    cmocka_unit_test(a_skipped_step_changes_nothing),
    cmocka_unit_test(stochastic_rounding_keeps_the_mean),
    cmocka_unit_test(muon_makes_a_step_orthogonal),
};
const size_t cases_optim_count = sizeof cases_optim / sizeof cases_optim[0];
