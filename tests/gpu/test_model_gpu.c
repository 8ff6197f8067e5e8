/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whole models on a GPU, in bf16 with fp32 masters: loss follows the CPU's within 1 %, the same run gives the same
 * bits, and one that is resumed half-way ends with them, too. What training takes of the GPU's memory is what
 * memory_plan says.
 */
#include "tests/lib/testlib.h"

#include <inttypes.h>

#include "common/digest.h"
#include "kernels/kern.h"
#include "tests/gpu/gpu.h"
#include "tests/kern/learns.h"
#include "worker/inner.h"
#include "worker/memory_plan.h"

/* Bytes. The GPU gives memory in pieces of 2 MiB, and what is large has some of its own. */
enum { GRANULARITY = 8 << 20 };

static const struct kern *gpu;
static struct kern_dev *device;

static struct learnt on_cpu(const struct runspec *spec)
{
    const struct kern *cpu;
    struct kern_dev *dev;
    assert_ok(kern_find("cpu", &cpu));
    assert_ok(cpu->open(&(struct kern_place){.threads = 1}, &dev));
    struct learnt learnt = learns_train(cpu, dev, spec, 0, MODEL_RECOMPUTE_NONE);
    cpu->close(dev);
    return learnt;
}

static void follows_the_cpu_and_itself(const struct runspec *spec, double part)
{
    struct learnt want = on_cpu(spec), got = learns_train(gpu, device, spec, 0, MODEL_RECOMPUTE_NONE);
    learns_near(&got, &want, part);
    assert_true(want.loss[want.steps - 1] < want.loss[0] - 0.5); /* there was something to follow */
    struct learnt again = learns_train(gpu, device, spec, 0, MODEL_RECOMPUTE_NONE);
    learns_same(&got, &again);
    struct learnt resumed = learns_train(gpu, device, spec, (uint64_t)spec->steps / 2, MODEL_RECOMPUTE_NONE);
    learns_same(&got, &resumed);
    learns_free(&want);
    learns_free(&got);
    learns_free(&again);
    learns_free(&resumed);
}

static void rounded_by_chance_it_resumes_with_the_same_bits(void **state)
{
    (void)state;
    struct runspec spec = learns_wide();
    struct learnt want = on_cpu(&spec), got = learns_train_stochastic(gpu, device, &spec, 0);
    struct learnt resumed = learns_train_stochastic(gpu, device, &spec, (uint64_t)spec.steps / 2);
    learns_near(&got, &want, 0.01);
    learns_same(&got, &resumed);
    learns_free(&want);
    learns_free(&got);
    learns_free(&resumed);
}

static void a_small_model_learns_as_on_the_cpu(void **state)
{
    (void)state;
    struct runspec spec = learns_small(RUNSPEC_ADAMW, 1);
    follows_the_cpu_and_itself(&spec, 0.01);
}

static void muon_learns_as_on_the_cpu(void **state)
{
    (void)state;
    struct runspec spec = learns_small(RUNSPEC_MUON, 3);
    follows_the_cpu_and_itself(&spec, 0.03);
}

static void a_wide_model_learns_as_on_the_cpu(void **state)
{
    (void)state;
    struct runspec spec = learns_wide();
    follows_the_cpu_and_itself(&spec, 0.01);
}

/* ---- memory ---- */

static size_t used(struct kern_dev *dev)
{
    size_t free_bytes, total;
    assert_ok(gpu->memory(dev, &free_bytes, &total));
    return total - free_bytes;
}

/* What a model and its optimizer take, as the device itself says. */
static uint64_t taken(struct kern_dev *dev, const struct runspec *spec, const struct memory_plan_conf *conf)
{
    struct model *model;
    struct inner *inner;
    size_t before = used(dev);
    assert_ok(model_new(spec, gpu, dev, &conf->model, &model));
    assert_ok(inner_new(model, spec, &inner));
    size_t after = used(dev);
    inner_free(inner);
    model_free(model);
    return after > before ? after - before : 0;
}

static void what_training_takes_is_what_is_said(void **state)
{
    (void)state;
    struct runspec spec = learns_wide();
    /* Large, and of activations that fill the GPU's pieces of memory. */
    spec.vocab = 8192;
    spec.width = 1024;
    spec.layers = 8;
    spec.heads = spec.kv_heads = 16;
    spec.ff = 2816;
    spec.context = 512;
    spec.batch = 8;
    const enum model_recompute modes[] = {MODEL_RECOMPUTE_NONE, MODEL_RECOMPUTE_LAYER};
    for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++) {
        struct memory_plan_conf conf = {.model = {.batch = spec.batch, .train = true, .recompute = modes[i]}};
        const struct kern_place place = {.device = gpu_number()};
        struct memory_plan plan;
        struct kern_dev *fresh;      /* keeps no scratch memory yet */
        taken(device, &spec, &conf); /* loads what there is to load */
        assert_ok(gpu->open(&place, &fresh));
        assert_ok(memory_plan(&spec, gpu, fresh, &conf, &plan));
        uint64_t said = memory_plan_sum(&plan), is = taken(fresh, &spec, &conf);
        gpu->close(fresh);
        printf("--recompute %s: %.1f MiB are said, %.1f MiB are taken\n", model_recompute_name(modes[i]),
               (double)said / 1048576, (double)is / 1048576);
        uint64_t off = said > is ? said - is : is - said;
        if (off > is / 50 + GRANULARITY)
            fail_msg("--recompute %s: %" PRIu64 " bytes are said, %" PRIu64 " are taken; does another process use the "
                     "GPU?",
                     model_recompute_name(modes[i]), said, is);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_small_model_learns_as_on_the_cpu),
        cmocka_unit_test(muon_learns_as_on_the_cpu),
        cmocka_unit_test(a_wide_model_learns_as_on_the_cpu),
        cmocka_unit_test(rounded_by_chance_it_resumes_with_the_same_bits),
        cmocka_unit_test(what_training_takes_is_what_is_said),
    };
    int status = gpu_open(&gpu, &device);
    if (status != 0)
        return status;
    assert_ok(digest_init());
    int failures = cmocka_run_group_tests(tests, NULL, NULL);
    gpu->close(device);
    return failures != 0;
}
