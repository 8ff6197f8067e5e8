/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/kern/learns.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/testlib.h"
#include "worker/inner.h"
#include "worker/model/model.h"

enum { WORDS = 61 };

struct runspec learns_small(int inner, int64_t accumulate)
{
    return (struct runspec){.vocab = WORDS,
                            .width = 32,
                            .layers = 2,
                            .heads = 2,
                            .kv_heads = 1,
                            .ff = 48,
                            .context = 16,
                            .rope_theta = 10000,
                            .norm_eps = 1e-5,
                            .init_std = 0.05,
                            .tied = true,
                            .inner = inner,
                            .lr = 3e-3,
                            .lr_final = 1,
                            .beta1 = 0.9,
                            .beta2 = 0.99,
                            .eps = 1e-8,
                            .clip = 1,
                            .steps = 50,
                            .batch = 2,
                            .accumulate = accumulate};
}

struct runspec learns_wide(void)
{
    struct runspec spec = learns_small(RUNSPEC_ADAMW, 1);
    spec.vocab = 5003;
    spec.width = 256;
    spec.layers = 4;
    spec.heads = 4;
    spec.kv_heads = 2;
    spec.ff = 688;
    spec.context = 256;
    spec.init_std = 0.02;
    spec.tied = false;
    spec.lr = 3e-4;
    spec.steps = 8;
    return spec;
}

/* Text with something to learn: of WORDS tokens, wherever in the vocabulary they lie, each follows from the one before,
 * with some noise. */
static void batch_of(const struct runspec *spec, uint64_t step, int32_t *tokens, int32_t *targets)
{
    struct env_rng rng = env_rng_init(11, step);
    const uint64_t apart = (uint64_t)spec->vocab / WORDS;
    for (int64_t b = 0; b < spec->batch; b++) {
        uint64_t word = env_rng_below(&rng, WORDS);
        for (int64_t t = 0; t < spec->context; t++) {
            tokens[b * spec->context + t] = (int32_t)(word * apart);
            word = env_rng_below(&rng, 5) == 0 ? env_rng_below(&rng, WORDS) : word * 7 % WORDS;
            targets[b * spec->context + t] = (int32_t)(word * apart);
        }
    }
}

struct trainer {
    struct model *model;
    struct inner *inner;
    enum model_recompute recompute;
    bool stochastic;
};

static struct trainer open_trainer(const struct kern *kern, struct kern_dev *dev, const struct runspec *spec,
                                   enum model_recompute recompute, bool stochastic)
{
    struct trainer t = {.recompute = recompute, .stochastic = stochastic};
    struct model_conf conf = {.batch = spec->batch, .train = true, .recompute = recompute};
    assert_ok(model_new(spec, kern, dev, &conf, &t.model));
    assert_ok(model_init(t.model, 1));
    assert_ok(inner_new(t.model, spec, &t.inner));
    inner_round(t.inner, stochastic);
    return t;
}

static void close_trainer(struct trainer *t)
{
    inner_free(t->inner);
    model_free(t->model);
}

static void read_all(struct trainer *t, const float *flat, float *to)
{
    for (int i = 0; i < t->model->tensors_count; i++)
        assert_ok(model_read(t->model, &t->model->tensors[i], flat, to + t->model->tensors[i].offset));
}

static void write_all(struct trainer *t, float *flat, const float *from)
{
    for (int i = 0; i < t->model->tensors_count; i++)
        assert_ok(model_write(t->model, &t->model->tensors[i], flat, from + t->model->tensors[i].offset));
}

static void keep(struct trainer *t, struct learnt *out)
{
    size_t count = (size_t)t->model->flat_count;
    out->count = t->model->flat_count;
    out->w = calloc(count, sizeof(float));
    out->m = calloc(count, sizeof(float));
    out->v = calloc(count, sizeof(float));
    assert_true(out->w != NULL && out->m != NULL && out->v != NULL);
    read_all(t, t->model->w, out->w);
    read_all(t, t->inner->m, out->m);
    read_all(t, t->inner->v, out->v);
}

void learns_free(struct learnt *learnt)
{
    free(learnt->w);
    free(learnt->m);
    free(learnt->v);
    *learnt = (struct learnt){0};
}

/* To a new trainer, as a checkpoint would. */
static void move(struct trainer *t, const struct runspec *spec)
{
    struct learnt half = {0};
    uint64_t updates = t->inner->updates, updated = t->inner->updated;
    const struct kern *kern = t->model->kern;
    struct kern_dev *dev = t->model->dev;
    keep(t, &half);
    close_trainer(t);
    *t = open_trainer(kern, dev, spec, t->recompute, t->stochastic);
    write_all(t, t->model->w, half.w);
    write_all(t, t->inner->m, half.m);
    write_all(t, t->inner->v, half.v);
    assert_ok(inner_resume(t->inner, updates));
    assert_ok(model_refresh(t->model));
    assert_ok(inner_round_again(t->inner, updated));
    learns_free(&half);
}

static struct learnt train(struct trainer t, const struct runspec *spec, uint64_t again)
{
    struct learnt out = {.steps = (int)spec->steps};
    const struct kern *kern = t.model->kern;
    size_t bytes = (size_t)(spec->batch * spec->context) * sizeof(int32_t);
    int32_t *tokens = malloc(bytes), *targets = malloc(bytes);
    uint64_t last = (uint64_t)spec->steps;
    int read = 0;
    assert_true(tokens != NULL && targets != NULL && spec->steps <= LEARNS_STEPS_MAX);
    for (uint64_t step = 1; step <= last; step++) {
        for (int64_t i = 0; i < spec->accumulate; i++) {
            batch_of(spec, step * 8 + (uint64_t)i, tokens, targets);
            assert_ok(model_train(t.model, tokens, targets, 1 / (double)spec->accumulate));
            memset(tokens, 0xff, bytes); /* ours again */
            memset(targets, 0xff, bytes);
        }
        assert_ok(inner_step(t.inner, step));
        while (inner_pending(t.inner) > (step == again || step == last ? 0 : kern->ahead)) {
            struct inner_result result;
            assert_ok(inner_result(t.inner, &result));
            out.loss[read++] = result.loss;
        }
        if (step == again)
            move(&t, spec);
    }
    keep(&t, &out);
    close_trainer(&t);
    free(tokens);
    free(targets);
    return out;
}

struct learnt learns_train(const struct kern *kern, struct kern_dev *dev, const struct runspec *spec, uint64_t again,
                           enum model_recompute recompute)
{
    return train(open_trainer(kern, dev, spec, recompute, false), spec, again);
}

struct learnt learns_train_stochastic(const struct kern *kern, struct kern_dev *dev, const struct runspec *spec,
                                      uint64_t again)
{
    return train(open_trainer(kern, dev, spec, MODEL_RECOMPUTE_NONE, true), spec, again);
}

void learns_near(const struct learnt *got, const struct learnt *want, double part)
{
    assert_int_equal(got->steps, want->steps);
    for (int i = 0; i < want->steps; i++)
        if (!(fabs(got->loss[i] / want->loss[i] - 1) < part))
            fail_msg("step %d: loss %.4f, on the CPU %.4f", i + 1, got->loss[i], want->loss[i]);
}

void learns_same(const struct learnt *a, const struct learnt *b)
{
    size_t bytes = (size_t)a->count * sizeof(float);
    assert_int_equal(a->count, b->count);
    assert_memory_equal(a->loss, b->loss, sizeof a->loss);
    assert_memory_equal(a->w, b->w, bytes);
    assert_memory_equal(a->m, b->m, bytes);
    assert_memory_equal(a->v, b->v, bytes);
}
