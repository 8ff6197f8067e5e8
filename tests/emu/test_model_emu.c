/*
 * A small model trained by the emulated CUDA kernels, in bf16 with fp32 masters and with the host a step ahead: its
 * loss follows the CPU's, the same run gives the same bits, and one that is resumed half-way ends with them, too.
 */
#include "tests/lib/testlib.h"

#include "common/digest.h"
#include "kernels/kern.h"
#include "tests/emu/emu.h"
#include "tests/emu/kern_emu.h"
#include "tests/kern/learns.h"
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
        cmocka_unit_test(heads_that_no_kernel_has_are_refused),
    };
    assert_ok(digest_init());
    return cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
