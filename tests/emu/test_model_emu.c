/*
 * A small model trained by the emulated CUDA kernels, in bf16 with fp32 masters and with the host a step ahead: its
 * loss follows the CPU's, the same run gives the same bits, and one that is resumed half-way ends with them, too.
 */
#include "tests/lib/testlib.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/kern.h"
#include "tests/emu/emu.h"
#include "tests/emu/kern_emu.h"
#include "worker/inner.h"
#include "worker/model/model.h"

enum { STEPS = 50, BATCH = 2, CONTEXT = 16, ROWS = BATCH * CONTEXT };

static struct runspec spec_of(int inner, int64_t accumulate)
{
    return (struct runspec){.vocab = 61,
                            .width = 32,
                            .layers = 2,
                            .heads = 2,
                            .kv_heads = 1,
                            .ff = 48,
                            .context = CONTEXT,
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
                            .steps = STEPS,
                            .batch = BATCH,
                            .accumulate = accumulate};
}

/* Text with something to learn: a token follows from the one before, with some noise. */
static void batch_of(uint64_t step, int64_t vocab, int32_t *tokens, int32_t *targets)
{
    struct env_rng rng = env_rng_init(11, step);
    for (int b = 0; b < BATCH; b++) {
        int64_t token = (int64_t)env_rng_below(&rng, (uint64_t)vocab);
        for (int t = 0; t < CONTEXT; t++) {
            tokens[b * CONTEXT + t] = (int32_t)token;
            token = env_rng_below(&rng, 5) == 0 ? (int64_t)env_rng_below(&rng, (uint64_t)vocab) : token * 7 % vocab;
            targets[b * CONTEXT + t] = (int32_t)token;
        }
    }
}

struct trained {
    double loss[STEPS];
    float *w, *m, *v;
    int64_t count;
};

struct trainer {
    const struct kern *kern;
    struct kern_dev *dev;
    struct model *model;
    struct inner *inner;
};

static struct trainer open_trainer(const struct kern *kern, const struct runspec *spec, enum model_recompute recompute)
{
    struct model_conf conf = {.batch = BATCH, .train = true, .recompute = recompute};
    struct trainer t = {.kern = kern};
    assert_ok(kern->open(&(struct kern_place){.threads = 1}, &t.dev));
    assert_ok(model_new(spec, kern, t.dev, &conf, &t.model));
    assert_ok(model_init(t.model, 1));
    assert_ok(inner_new(t.model, spec, &t.inner));
    return t;
}

static void close_trainer(struct trainer *t)
{
    inner_free(t->inner);
    model_free(t->model);
    t->kern->close(t->dev);
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

static void keep(struct trainer *t, struct trained *out)
{
    size_t count = (size_t)t->model->flat_count;
    out->count = t->model->flat_count;
    out->w = calloc(count, sizeof(float));
    out->m = calloc(count, sizeof(float));
    out->v = calloc(count, sizeof(float));
    read_all(t, t->model->w, out->w);
    read_all(t, t->inner->m, out->m);
    read_all(t, t->inner->v, out->v);
}

static void forget(struct trained *out)
{
    free(out->w);
    free(out->m);
    free(out->v);
}

struct run {
    uint64_t steps;
    uint64_t again; /* > 0: everything that a checkpoint keeps goes to a new trainer after so many steps */
    enum model_recompute recompute;
};

static struct trained train_so(const struct kern *kern, const struct runspec *spec, struct run run)
{
    struct trained out = {0}, half;
    struct trainer t = open_trainer(kern, spec, run.recompute);
    struct inner_result result;
    uint64_t read = 0;
    for (uint64_t step = 1; step <= run.steps; step++) {
        for (int64_t i = 0; i < spec->accumulate; i++) {
            int32_t tokens[ROWS], targets[ROWS];
            batch_of(step * 8 + (uint64_t)i, spec->vocab, tokens, targets);
            assert_ok(model_train(t.model, tokens, targets, 1 / (double)spec->accumulate));
            memset(tokens, 0xff, sizeof tokens); /* ours again */
            memset(targets, 0xff, sizeof targets);
        }
        assert_ok(inner_step(t.inner, step));
        while (inner_pending(t.inner) > (step == run.again || step == run.steps ? 0 : kern->ahead)) {
            assert_ok(inner_result(t.inner, &result));
            out.loss[read++] = result.loss;
        }
        if (step == run.again) {
            uint64_t updates = t.inner->updates;
            keep(&t, &half);
            close_trainer(&t);
            t = open_trainer(kern, spec, run.recompute);
            write_all(&t, t.model->w, half.w);
            write_all(&t, t.inner->m, half.m);
            write_all(&t, t.inner->v, half.v);
            assert_ok(inner_resume(t.inner, updates));
            assert_ok(model_refresh(t.model));
            forget(&half);
        }
    }
    keep(&t, &out);
    close_trainer(&t);
    assert_string_equal(emu_error(), "");
    return out;
}

static struct trained train(const struct kern *kern, const struct runspec *spec, uint64_t again)
{
    return train_so(kern, spec, (struct run){.steps = STEPS, .again = again});
}

static void same_bits(const struct trained *a, const struct trained *b)
{
    size_t bytes = (size_t)a->count * sizeof(float);
    assert_memory_equal(a->loss, b->loss, sizeof a->loss);
    assert_memory_equal(a->w, b->w, bytes);
    assert_memory_equal(a->m, b->m, bytes);
    assert_memory_equal(a->v, b->v, bytes);
}

static void a_model_learns_as_on_the_cpu(void **state)
{
    (void)state;
    const struct kern *cpu;
    struct runspec spec = spec_of(RUNSPEC_ADAMW, 1);
    assert_ok(kern_find("cpu", &cpu));
    emu_clear();
    emu_set_order(0);
    struct trained want = train(cpu, &spec, 0), got = train(&kern_emu, &spec, 0);
    for (int i = 0; i < STEPS; i++)
        if (!(fabs(got.loss[i] / want.loss[i] - 1) < 0.01))
            fail_msg("step %d: loss %.4f, on the CPU %.4f", i + 1, got.loss[i], want.loss[i]);
    assert_true(want.loss[STEPS - 1] < want.loss[0] - 0.5); /* there was something to follow */
    emu_set_order(5);
    struct trained resumed = train(&kern_emu, &spec, STEPS / 2);
    same_bits(&got, &resumed);
    forget(&want);
    forget(&got);
    forget(&resumed);
}

/* With batches that come faster than the device takes them. */
static void muon_learns_as_on_the_cpu(void **state)
{
    (void)state;
    const struct kern *cpu;
    struct runspec spec = spec_of(RUNSPEC_MUON, 3);
    assert_ok(kern_find("cpu", &cpu));
    struct trained want = train(cpu, &spec, 0), got = train(&kern_emu, &spec, 0);
    for (int i = 0; i < STEPS; i++)
        if (!(fabs(got.loss[i] / want.loss[i] - 1) < 0.03))
            fail_msg("step %d: loss %.4f, on the CPU %.4f", i + 1, got.loss[i], want.loss[i]);
    forget(&want);
    forget(&got);
}

static void what_is_made_again_has_the_same_bits(void **state)
{
    (void)state;
    struct runspec spec = spec_of(RUNSPEC_ADAMW, 2);
    spec.layers = 3;
    struct trained want = train_so(&kern_emu, &spec, (struct run){.steps = 10});
    for (int mode = MODEL_RECOMPUTE_NORMS; mode < MODEL_RECOMPUTES; mode++) {
        struct trained got =
            train_so(&kern_emu, &spec, (struct run){.steps = 10, .recompute = (enum model_recompute)mode});
        same_bits(&want, &got);
        forget(&got);
    }
    forget(&want);
}

static void heads_that_no_kernel_has_are_refused(void **state)
{
    (void)state;
    struct runspec spec = spec_of(RUNSPEC_ADAMW, 1);
    struct kern_dev *dev;
    struct model *model;
    struct model_conf conf = {.batch = BATCH, .train = true};
    spec.width = 48; /* heads of 24 */
    assert_ok(kern_emu.open(&(struct kern_place){0}, &dev));
    assert_fails(ERR_CONF, "no attention for heads of 24", model_new(&spec, &kern_emu, dev, &conf, &model));
    kern_emu.close(dev);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_model_learns_as_on_the_cpu),
        cmocka_unit_test(muon_learns_as_on_the_cpu),
        cmocka_unit_test(what_is_made_again_has_the_same_bits),
        cmocka_unit_test(heads_that_no_kernel_has_are_refused),
    };
    assert_ok(digest_init());
    return cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
