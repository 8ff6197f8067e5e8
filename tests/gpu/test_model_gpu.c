/*
 * Whole models on a GPU, in bf16 with fp32 masters: loss follows the CPU's within 1 %, the same run gives the same
 * bits, and one that is resumed half-way ends with them, too.
 */
#include "tests/lib/testlib.h"

#include "common/digest.h"
#include "kernels/kern.h"
#include "tests/gpu/gpu.h"
#include "tests/kern/learns.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_small_model_learns_as_on_the_cpu),
        cmocka_unit_test(muon_learns_as_on_the_cpu),
        cmocka_unit_test(a_wide_model_learns_as_on_the_cpu),
        cmocka_unit_test(rounded_by_chance_it_resumes_with_the_same_bits),
    };
    int status = gpu_open(&gpu, &device);
    if (status != 0)
        return status;
    assert_ok(digest_init());
    int failures = cmocka_run_group_tests(tests, NULL, NULL);
    gpu->close(device);
    return failures != 0;
}
