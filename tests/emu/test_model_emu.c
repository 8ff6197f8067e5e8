/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A small model trained by the emulated CUDA kernels, in bf16 with fp32 masters and with the host a step ahead: its
 * loss follows the CPU's, the same run gives the same bits, and one that is resumed half-way ends with them, too.
 */
#include "tests/lib/testlib.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/digest.h"
#include "kernels/kern.h"
#include "tests/emu/emu.h"
#include "tests/emu/kern_emu.h"
#include "tests/kern/learns.h"
#include "worker/ckpt.h"
#include "worker/ckpt_write.h"
#include "worker/inner.h"
#include "worker/model/model.h"

static struct learnt train_so(const struct kern *kern, const struct runspec *spec, uint64_t again,
                              enum model_recompute recompute)
{
    struct kern_dev *dev;
    assert_ok(kern->open(&(struct kern_place){.threads = 1}, &dev));
    struct learnt learnt = learns_train(kern, dev, spec, again, recompute);
    kern->close(dev);
    assert_string_equal(emu_error(), "");
    return learnt;
}

static struct learnt train(const struct kern *kern, const struct runspec *spec, uint64_t again)
{
    return train_so(kern, spec, again, MODEL_RECOMPUTE_NONE);
}

static struct learnt on_cpu(const struct runspec *spec)
{
    const struct kern *cpu;
    assert_ok(kern_find("cpu", &cpu));
    return train(cpu, spec, 0);
}

static void a_model_learns_as_on_the_cpu(void **state)
{
    (void)state;
    struct runspec spec = learns_small(RUNSPEC_ADAMW, 1);
    emu_clear();
    emu_set_order(0);
    struct learnt want = on_cpu(&spec), got = train(&kern_emu, &spec, 0);
    learns_near(&got, &want, 0.01);
    assert_true(want.loss[want.steps - 1] < want.loss[0] - 0.5); /* there was something to follow */
    emu_set_order(5);
    struct learnt resumed = train(&kern_emu, &spec, (uint64_t)spec.steps / 2);
    learns_same(&got, &resumed);
    learns_free(&want);
    learns_free(&got);
    learns_free(&resumed);
}

/* With batches that come faster than the device takes them. */
static void muon_learns_as_on_the_cpu(void **state)
{
    (void)state;
    struct runspec spec = learns_small(RUNSPEC_MUON, 3);
    struct learnt want = on_cpu(&spec), got = train(&kern_emu, &spec, 0);
    learns_near(&got, &want, 0.03);
    learns_free(&want);
    learns_free(&got);
}

static void what_is_made_again_has_the_same_bits(void **state)
{
    (void)state;
    struct runspec spec = learns_small(RUNSPEC_ADAMW, 2);
    spec.layers = 3;
    spec.steps = 10;
    struct learnt want = train(&kern_emu, &spec, 0);
    for (int mode = MODEL_RECOMPUTE_NORMS; mode < MODEL_RECOMPUTES; mode++) {
        struct learnt got = train_so(&kern_emu, &spec, 0, (enum model_recompute)mode);
        learns_same(&want, &got);
        learns_free(&got);
    }
    learns_free(&want);
}

static struct learnt train_stochastic(const struct runspec *spec, uint64_t again)
{
    struct kern_dev *dev;
    assert_ok(kern_emu.open(&(struct kern_place){.threads = 1}, &dev));
    struct learnt learnt = learns_train_stochastic(&kern_emu, dev, spec, again);
    kern_emu.close(dev);
    assert_string_equal(emu_error(), "");
    return learnt;
}

static void rounded_by_chance_a_model_learns_and_resumes_with_the_same_bits(void **state)
{
    (void)state;
    for (int muon = 0; muon < 2; muon++) {
        struct runspec spec = learns_small(muon ? RUNSPEC_MUON : RUNSPEC_ADAMW, 1);
        spec.steps = 16;
        emu_clear();
        struct learnt want = on_cpu(&spec), nearest = train(&kern_emu, &spec, 0), got = train_stochastic(&spec, 0);
        struct learnt resumed = train_stochastic(&spec, (uint64_t)spec.steps / 2);
        learns_near(&got, &want, 0.03);
        learns_same(&got, &resumed);
        assert_true(got.loss[got.steps - 1] != nearest.loss[got.steps - 1]);
        spec.seed++;
        struct learnt other = train_stochastic(&spec, 0);
        assert_true(got.loss[got.steps - 1] != other.loss[got.steps - 1]);
        learns_free(&want);
        learns_free(&nearest);
        learns_free(&got);
        learns_free(&resumed);
        learns_free(&other);
    }
}

static void act_of(const struct model *model, uint16_t *to)
{
    model->kern->copy(model->dev, KERN_MAIN, to, model->act, (size_t)model->flat_count * sizeof *to);
    assert_ok(model->kern->sync(model->dev));
}

/* One step of a gradient of ones, or of NaN. */
static void step(struct inner *inner, uint64_t number, float slope)
{
    struct model *model = inner->model;
    struct inner_result result;
    size_t bytes = (size_t)model->flat_count * sizeof(float);
    float *grad = malloc(bytes);
    assert_non_null(grad);
    for (int64_t i = 0; i < model->flat_count; i++)
        grad[i] = slope;
    model->kern->copy(model->dev, KERN_MAIN, model->grad, grad, bytes);
    assert_ok(inner_step(inner, number));
    assert_ok(inner_result(inner, &result));
    free(grad);
}

static void save_and_load(struct inner *inner, const struct runspec *spec, bool between_to_nearest)
{
    const char *folder = testlib_folder("rounded");
    struct ckpt_writer *writer;
    struct ckpt_state saved = {.step = 10}, read;
    assert_ok(ckpt_writer_new(folder, spec, inner->model, inner, &writer));
    assert_ok(ckpt_save_now(writer, &saved));
    ckpt_writer_free(writer);
    inner_round(inner, !between_to_nearest);
    assert_ok(ckpt_load(folder, spec, inner->model, inner, &read));
}

/* After a checkpoint was read: as in the step that made it so, which is not the last one where that was skipped. */
static void the_copy_is_rounded_again_as_it_was(void **state)
{
    (void)state;
    static const char *const optimizers[] = {"adamw", "sgd", "muon"};
    for (size_t i = 0; i < sizeof optimizers / sizeof optimizers[0]; i++) {
        char text[200];
        struct runspec spec;
        snprintf(text, sizeof text,
                 "[run]\nname = rounded\nsteps = 20\n[model]\nwidth = 32\nlayers = 2\nheads = 2\nff = 48\n"
                 "context = 16\n[train]\nbatch = 2\noptimizer = %s\n",
                 optimizers[i]);
        assert_ok(runspec_parse(text, "the small run", &spec));
        struct model_conf conf = {.batch = spec.batch, .train = true};
        struct kern_dev *dev;
        struct model *model;
        struct inner *inner;
        emu_clear();
        assert_ok(kern_emu.open(&(struct kern_place){0}, &dev));
        assert_ok(model_new(&spec, &kern_emu, dev, &conf, &model));
        assert_ok(model_init(model, 1));
        assert_ok(inner_new(model, &spec, &inner));
        size_t count = (size_t)model->flat_count;
        uint16_t *was = calloc(count, sizeof *was), *is = calloc(count, sizeof *is);
        assert_true(was != NULL && is != NULL);
        inner_round(inner, true);
        step(inner, 7, 1);
        step(inner, 9, 1); /* the run was further than this island */
        act_of(model, was);
        step(inner, 10, NAN);
        assert_true(inner->updates == 2 && inner->updated == 9);
        save_and_load(inner, &spec, true);
        act_of(model, is);
        assert_memory_not_equal(was, is, count * sizeof *is);
        inner_round(inner, true);
        save_and_load(inner, &spec, false);
        act_of(model, is);
        assert_memory_equal(was, is, count * sizeof *is);
        assert_ok(inner_round_again(inner, inner->updated + 2)); /* another step, other chances */
        act_of(model, is);
        assert_memory_not_equal(was, is, count * sizeof *is);
        runspec_deinit(&spec);
        free(was);
        free(is);
        inner_free(inner);
        model_free(model);
        kern_emu.close(dev);
        assert_string_equal(emu_error(), "");
    }
}

static void heads_that_no_kernel_has_are_refused(void **state)
{
    (void)state;
    struct runspec spec = learns_small(RUNSPEC_ADAMW, 1);
    struct kern_dev *dev;
    struct model *model;
    struct model_conf conf = {.batch = spec.batch, .train = true};
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
        cmocka_unit_test(rounded_by_chance_a_model_learns_and_resumes_with_the_same_bits),
        cmocka_unit_test(the_copy_is_rounded_again_as_it_was),
        cmocka_unit_test(heads_that_no_kernel_has_are_refused),
    };
    assert_ok(digest_init());
    return cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
