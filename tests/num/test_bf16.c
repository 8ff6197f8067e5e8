/* SPDX-License-Identifier: Apache-2.0 */
/* The CPU's products with bf16 operands: every operation against double; weights that are kept packed follow whoever
 * writes them; models learn as in fp32, and go on from a checkpoint bit by bit. */
#include "tests/lib/testlib.h"

#include <malloc.h>
#include <math.h>
#include <string.h>

#include "common/env.h"
#include "kernels/kern.h"
#include "tests/kern/arrays.h"
#include "tests/kern/cases.h"
#include "tests/kern/learns.h"
#include "worker/memory_plan.h"

static const struct kern *cpu;
static struct kern_dev *half, *whole; /* in bf16, and in float */

static struct kern_dev *open_cpu(bool bf16, int threads)
{
    struct kern_dev *device;
    assert_ok(cpu->open(&(struct kern_place){.threads = threads, .bf16 = bf16}, &device));
    assert_true(cpu->bf16(device) == bf16);
    return device;
}

static float rounded(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* ---- operands and sums ---- */

/* Of operands that bf16 holds exactly nothing is lost: sums are in float. Others are rounded to nearest, ties to even:
 * the product is that of the rounded ones, to the bit. */
static void operands_are_rounded_and_sums_are_not(void **state)
{
    (void)state;
    const struct kern_linear s = {.R = 130, .K = 1000, .N = 70, .ld = 70};
    struct array out[2], inp[2], w[2], dw[2], dinp[2];
    double *want = calloc((size_t)(s.R * s.N), sizeof *want);
    arrays_begin(cpu, half);
    inp[0] = array_new(ARRAY_ACT, s.R * s.K, 1);
    w[0] = array_new(ARRAY_ACT, s.N * s.K, 1);
    inp[0].d[0] = 1 + 1.0 / 256; /* between 1 and 1 + 1/128: to even is down */
    inp[0].d[1] = 1 + 3.0 / 256; /* and here up */
    w[0].d[0] = w[0].d[1] = 1000;
    array_write(&inp[0]);
    array_write(&w[0]);
    for (int i = 0; i < 2; i++) {
        out[i] = array_out(ARRAY_ACT, s.R * s.N);
        dinp[i] = array_out(ARRAY_ACT, s.R * s.K);
        dw[i] = array_new(ARRAY_FLOAT, s.N * s.K, 0);
    }
    inp[1] = array_of(ARRAY_ACT, inp[0].d, inp[0].count);
    w[1] = array_of(ARRAY_ACT, w[0].d, w[0].count);
    for (int64_t i = 0; i < inp[1].count; i++)
        inp[1].d[i] = (double)rounded((float)inp[1].d[i]);
    for (int64_t i = 0; i < w[1].count; i++)
        w[1].d[i] = (double)rounded((float)w[1].d[i]);
    array_write(&inp[1]);
    array_write(&w[1]);
    assert_true(inp[1].d[0] == 1 && inp[1].d[1] == 1 + 4.0 / 256);
    for (int64_t r = 0; r < s.R; r++)
        for (int64_t n = 0; n < s.N; n++)
            for (int64_t k = 0; k < s.K; k++)
                want[r * s.N + n] += inp[1].d[r * s.K + k] * w[1].d[n * s.K + k];
    for (int i = 0; i < 2; i++) {
        cpu->linear_fwd(half, out[i].dev, inp[i].dev, w[i].dev, s);
        cpu->linear_bwd_w(half, dw[i].dev, out[0].dev, inp[i].dev, s);
        cpu->linear_bwd_inp(half, dinp[i].dev, out[0].dev, w[i].dev, s, false);
    }
    array_near("a product of rounded operands", &out[1], want, 1e-5);
    arrays_equal("rounded before, and here", &out[0], &out[1]);
    arrays_equal("gradients of weights", &dw[0], &dw[1]);
    arrays_equal("gradients of inputs", &dinp[0], &dinp[1]);
    free(want);
    for (int i = 0; i < 2; i++)
        arrays_free(&out[i], &inp[i], &w[i], &dw[i], &dinp[i], NULL);
}

/* ---- kept weights ---- */

enum { N = 48, K = 80, COUNT = N * K, BEFORE = 64, ALL = BEFORE + COUNT + 32 };

/* Everything that a writer may want. */
struct scene {
    struct array w, other, more, past, inp, grad, m, v; /* (ALL) each, but for inp */
    struct kern_weights *kept;
    struct kern_step *step;
    struct kern_spans *spans;
    int32_t *bad;
};

static float *at(const struct array *a)
{
    return (float *)a->dev + BEFORE;
}

static void by_copy(struct scene *s)
{
    cpu->copy(half, KERN_MAIN, (float *)s->w.dev + BEFORE + COUNT - 1, s->other.dev, sizeof(float));
}

static void by_copy_rows(struct scene *s)
{
    cpu->copy_rows(half, KERN_MAIN, at(&s->w), K * sizeof(float), s->other.dev, K * sizeof(float), 3 * sizeof(float),
                   2);
}

static void by_zero(struct scene *s)
{
    cpu->zero(half, at(&s->w) + 5, sizeof(float));
}

static void by_to_act(struct scene *s)
{
    cpu->to_act(half, s->w.dev, s->other.dev, ALL);
}

static void by_from_act(struct scene *s)
{
    cpu->from_act(half, s->w.dev, s->other.dev, ALL);
}

static void by_adamw(struct scene *s)
{
    const struct kern_adamw conf = {.lr = 0.1f, .beta1 = 0.9f, .beta2 = 0.9f, .eps = 1e-8f};
    cpu->adamw(half, s->w.dev, s->w.dev, s->grad.dev, s->m.dev, s->v.dev, s->spans, s->step, conf);
}

static void by_sgd(struct scene *s)
{
    cpu->sgd(half, s->w.dev, s->w.dev, s->grad.dev, s->spans, s->step, 0.5f, (struct kern_rounding){0});
}

static void by_muon(struct scene *s)
{
    const struct kern_muon conf = {.lr = 0.1f, .weight_decay = 0.1f};
    cpu->muon_apply(half, s->w.dev, s->w.dev, s->grad.dev, ALL, K, s->step, conf);
}

static void by_mix(struct scene *s)
{
    cpu->mix(half, s->w.dev, s->w.dev, s->other.dev, ALL, 0.5f);
}

static void by_overwriting(struct scene *s)
{
    cpu->mix(half, s->w.dev, NULL, s->other.dev, ALL, 0);
}

static void by_shift(struct scene *s)
{
    cpu->shift(half, s->w.dev, s->w.dev, s->other.dev, s->more.dev, ALL);
}

static const struct kern_aside rule = {.keep = 0.25f, .fresh = 0.5f, .past = 0.5f, .decay = 0.5f};

static void by_aside_out(struct scene *s)
{
    cpu->aside_out(half, s->w.dev, s->w.dev, s->other.dev, s->m.dev, s->past.dev, ALL, rule);
}

static void by_aside_in(struct scene *s)
{
    cpu->aside_in(half, s->w.dev, s->w.dev, s->other.dev, s->more.dev, s->m.dev, s->past.dev, true, ALL, rule);
}

static void by_aside_off(struct scene *s)
{
    cpu->aside_off(half, s->w.dev, s->w.dev, s->more.dev, s->past.dev, s->bad, ALL, rule);
}

static void into_the_copy(struct scene *s)
{
    cpu->sgd(half, s->other.dev, s->w.dev, s->grad.dev, s->spans, s->step, 0.5f, (struct kern_rounding){0});
}

static void from_outside(struct scene *s)
{
    at(&s->w)[17] = 3;
    cpu->to_act(half, s->w.dev, s->w.dev, ALL);
}

static struct scene scene_new(void)
{
    const struct kern_matrix matrix = {.at = BEFORE, .N = N, .K = K};
    const struct kern_span span = {.begin = BEFORE, .count = COUNT, .decay = true};
    struct scene s = {.w = array_new(ARRAY_ACT, ALL, 1),
                      .other = array_new(ARRAY_FLOAT, ALL, 1),
                      .more = array_new(ARRAY_FLOAT, ALL, 1),
                      .past = array_new(ARRAY_FLOAT, ALL, 1),
                      .inp = array_new(ARRAY_ACT, COUNT, 1),
                      .grad = array_new(ARRAY_FLOAT, ALL, 1),
                      .m = array_new(ARRAY_FLOAT, ALL, 1),
                      .v = array_new(ARRAY_FLOAT, ALL, 0)};
    assert_ok(cpu->weights_new(half, s.w.dev, &matrix, 1, true, &s.kept));
    assert_non_null(s.kept);
    assert_ok(cpu->alloc(half, sizeof *s.step, "a step", (void **)&s.step));
    assert_ok(cpu->alloc(half, sizeof *s.bad, "a number", (void **)&s.bad));
    assert_ok(cpu->spans_new(half, &span, 1, &s.spans));
    *s.step = (struct kern_step){.scale = 1, .correction1 = 0.1f, .correction2 = 0.1f};
    return s;
}

static void scene_free(struct scene *s)
{
    cpu->weights_free(half, s->kept);
    cpu->spans_free(half, s->spans);
    cpu->free(half, s->step);
    cpu->free(half, s->bad);
    arrays_free(&s->w, &s->other, &s->more, &s->past, &s->inp, &s->grad, &s->m, &s->v, NULL);
}

/* Both products, by the kept weights and by the same values where nothing is kept. */
static void products_are_of(struct scene *s, const char *after)
{
    const struct kern_linear forth = {.R = 9, .K = K, .N = N, .ld = N};
    struct array out[2], dinp[2], values = array_new(ARRAY_ACT, COUNT, 0);
    memcpy(values.dev, at(&s->w), COUNT * sizeof(float));
    for (int i = 0; i < 2; i++) {
        const float *w = i == 0 ? at(&s->w) : values.dev;
        out[i] = array_out(ARRAY_ACT, forth.R * N);
        dinp[i] = array_out(ARRAY_ACT, forth.R * K);
        cpu->linear_fwd(half, out[i].dev, s->inp.dev, w, forth);
        cpu->linear_bwd_inp(half, dinp[i].dev, s->inp.dev, w, forth, false);
    }
    arrays_equal(after, &out[0], &out[1]);
    arrays_equal(after, &dinp[0], &dinp[1]);
    arrays_free(&out[0], &out[1], &dinp[0], &dinp[1], &values, NULL);
}

static void kept_weights_follow_every_writer(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        void (*write)(struct scene *s);
    } writers[] = {
        {"copy", by_copy},
        {"copy_rows", by_copy_rows},
        {"zero", by_zero},
        {"to_act", by_to_act},
        {"from_act", by_from_act},
        {"adamw", by_adamw},
        {"sgd", by_sgd},
        {"muon_apply", by_muon},
        {"mix", by_mix},
        {"mix with keep 0", by_overwriting},
        {"shift", by_shift},
        {"aside_out", by_aside_out},
        {"aside_in", by_aside_in},
        {"aside_off", by_aside_off},
        {"act of sgd", into_the_copy},
        {"somebody else", from_outside},
    };
    arrays_begin(cpu, half);
    for (size_t i = 0; i < sizeof writers / sizeof writers[0]; i++) {
        struct scene s = scene_new();
        float before[COUNT];
        products_are_of(&s, "at first");
        memcpy(before, at(&s.w), sizeof before);
        writers[i].write(&s);
        assert_memory_not_equal(before, at(&s.w), sizeof before);
        products_are_of(&s, writers[i].name);
        assert_ok(cpu->fault(half));
        scene_free(&s);
    }
}

/* Who writes weights by other means and does not say so is told, and gets no product of old ones. */
static void untold_changes_are_a_fault(void **state)
{
    (void)state;
    struct kern_dev *was = half;
    half = open_cpu(true, 1);
    arrays_begin(cpu, half);
    struct scene s = scene_new();
    struct array out = array_out(ARRAY_ACT, 9 * N);
    products_are_of(&s, "at first");
    for (int i = 0; i < COUNT; i++)
        at(&s.w)[i] += 1;
    cpu->linear_fwd(half, out.dev, s.inp.dev, at(&s.w), (struct kern_linear){.R = 9, .K = K, .N = N, .ld = N});
    assert_true(isnan(((const float *)out.dev)[0]));
    assert_fails(ERR_STATE, "to_act() is missing", cpu->fault(half));
    assert_fails(ERR_STATE, "to_act() is missing", cpu->sync(half));
    cpu->weights_free(half, s.kept);
    cpu->spans_free(half, s.spans);
    cpu->free(half, s.step);
    cpu->free(half, s.bad);
    arrays_drop(&s.w, &s.other, &s.more, &s.past, &s.inp, &s.grad, &s.m, &s.v, &out, NULL);
    cpu->close(half);
    half = was;
}

/* ---- models ---- */

static struct runspec learnable(void)
{
    struct runspec spec = learns_small(RUNSPEC_ADAMW, 2);
    spec.width = 64;
    spec.ff = 96;
    spec.context = 32;
    spec.lr = 2e-3;
    return spec;
}

static void models_learn_as_in_fp32(void **state)
{
    (void)state;
    struct runspec spec = learnable();
    struct learnt want = learns_train(cpu, whole, &spec, 0, MODEL_RECOMPUTE_NONE);
    struct learnt got = learns_train(cpu, half, &spec, 0, MODEL_RECOMPUTE_NONE);
    assert_true(want.loss[0] - want.loss[want.steps - 1] > 0.5);
    assert_memory_not_equal(got.loss, want.loss, sizeof got.loss); /* or nothing was rounded */
    learns_near(&got, &want, 0.005);
    learns_free(&want);
    learns_free(&got);
}

static void resumed_runs_end_with_the_same_bits(void **state)
{
    (void)state;
    static const int inners[] = {RUNSPEC_ADAMW, RUNSPEC_MUON};
    for (size_t i = 0; i < sizeof inners / sizeof inners[0]; i++) {
        struct runspec spec = learns_small(inners[i], 2);
        struct learnt at_once = learns_train(cpu, half, &spec, 0, MODEL_RECOMPUTE_NONE);
        struct learnt again = learns_train(cpu, half, &spec, 20, MODEL_RECOMPUTE_NONE);
        struct learnt made_again = learns_train(cpu, half, &spec, 0, MODEL_RECOMPUTE_LAYER);
        learns_same(&again, &at_once);
        learns_same(&made_again, &at_once);
        learns_free(&at_once);
        learns_free(&again);
        learns_free(&made_again);
    }
}

/* ---- memory ---- */

static size_t in_use(void)
{
    struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
}

static void what_is_said_to_be_taken_is_taken(void **state)
{
    (void)state;
    struct runspec spec = learns_wide();
    struct memory_plan_conf conf = {.model = {.batch = spec.batch, .train = true}};
    struct memory_plan plan, in_float;
    struct model *model;
    spec.batch = conf.model.batch = 4;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    skip(); /* their allocators do not say */
#endif
    struct kern_dev *device = open_cpu(true, 1);
    assert_ok(memory_plan(&spec, cpu, whole, &conf, &in_float));
    assert_ok(memory_plan(&spec, cpu, device, &conf, &plan));
    size_t before = in_use();
    assert_ok(model_new(&spec, cpu, device, &conf.model, &model));
    double taken = (double)(in_use() - before), said = (double)(memory_plan_sum(&plan) - plan.moments);
    if (fabs(taken / said - 1) > 0.02)
        fail_msg("%.0f bytes were taken and %.0f said", taken, said);
    assert_true(plan.parameters > 1.5 * (double)in_float.parameters);
    model_free(model);
    cpu->close(device);
}

static int no_bf16(void)
{
    struct kern_dev *device;
    assert_ok(cpu->open(&(struct kern_place){.threads = 1, .bf16 = true}, &device));
    bool there = cpu->bf16(device);
    cpu->close(device);
    return !there;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(operands_are_rounded_and_sums_are_not),
        cmocka_unit_test(kept_weights_follow_every_writer),
        cmocka_unit_test(untold_changes_are_a_fault),
        cmocka_unit_test(models_learn_as_in_fp32),
        cmocka_unit_test(resumed_runs_end_with_the_same_bits),
        cmocka_unit_test(what_is_said_to_be_taken_is_taken),
    };
    assert_ok(digest_init());
    assert_ok(kern_find("cpu", &cpu));
    if (no_bf16()) {
        puts("skip: this CPU has neither AVX512-BF16 nor AMX");
        return 77;
    }
    half = open_cpu(true, 2);
    whole = open_cpu(false, 2);
    int failures = cases_run("in bf16", cpu, half);
    failures += cmocka_run_group_tests(tests, NULL, NULL);
    cpu->close(half);
    cpu->close(whole);
    return failures != 0;
}
