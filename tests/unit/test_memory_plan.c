/* SPDX-License-Identifier: Apache-2.0 */
/* memory_plan: what a refusal says, word for word, on devices that have less than the model takes. */
#include "tests/lib/testlib.h"

#include "tests/lib/outofmem.h"
#include "worker/memory_plan.h"

static struct kern kern; /* the CPU's, but for what it says is free */
static struct kern_dev *dev;
static size_t little;
static uint64_t takes; /* as last said */

static enum err little_memory(struct kern_dev *of, size_t *free_bytes, size_t *total)
{
    (void)of;
    *free_bytes = little;
    *total = (size_t)64 << 20;
    return ERR_OK;
}

static const struct runspec spec = {.vocab = 256,
                                    .width = 128,
                                    .layers = 8,
                                    .heads = 4,
                                    .kv_heads = 2,
                                    .ff = 320,
                                    .context = 128,
                                    .rope_theta = 10000,
                                    .norm_eps = 1e-5,
                                    .init_std = 0.02,
                                    .tied = true,
                                    .inner = RUNSPEC_ADAMW,
                                    .lr = 1e-3,
                                    .batch = 6,
                                    .accumulate = 1,
                                    .interval = 50,
                                    .overlap = 1};

static enum err check_with(size_t mib, enum model_recompute recompute)
{
    struct memory_plan_conf conf = {.model = {.batch = spec.batch, .train = true, .recompute = recompute}};
    little = mib << 20;
    return memory_plan_check(&spec, &kern, dev, &conf, &takes);
}

#define STATES "(parameters 5.4, gradients 5.4, moments 10.8, "
#define ALL_KEPT "this model needs 70.8 MiB on device cpu " STATES "activations 48.4, logits 0.8, workspace 0.1)"

static void a_refusal_says_what_it_takes_and_what_would_fit(void **state)
{
    (void)state;
    static const struct {
        size_t mib; /* that are free */
        enum model_recompute recompute;
        const char *says;
    } rows[] = {
        {60, MODEL_RECOMPUTE_NONE,
         ALL_KEPT
         ", which has 60.0 of 64.0 MiB free; use --recompute norms, or batch = 3 and accumulate = 2 in the run "
         "spec's [train]"},
        {42, MODEL_RECOMPUTE_NONE,
         ALL_KEPT
         ", which has 42.0 of 64.0 MiB free; use --recompute layer, or batch = 1 and accumulate = 6 in the run "
         "spec's [train]"},
        {26, MODEL_RECOMPUTE_NONE,
         ALL_KEPT ", which has 26.0 of 64.0 MiB free; use --recompute layer with batch = 1 and accumulate = 6 in the "
                  "run spec's [train]"},
        {10, MODEL_RECOMPUTE_NONE,
         ALL_KEPT ", which has 10.0 of 64.0 MiB free; neither a batch of 1 nor --recompute makes it fit: it takes a "
                  "smaller model, or a device with more memory"},
        {50, MODEL_RECOMPUTE_NORMS,
         "this model needs 59.0 MiB on device cpu " STATES "activations 36.5, logits 0.8, workspace 0.1), which has "
         "50.0 of 64.0 MiB free; use --recompute layer, or batch = 3 and accumulate = 2 in the run spec's [train]"},
        {26, MODEL_RECOMPUTE_LAYER,
         "this model needs 35.2 MiB on device cpu " STATES "activations 12.8, logits 0.8, workspace 0.1), which has "
         "26.0 of 64.0 MiB free; use batch = 1 and accumulate = 6 in the run spec's [train]"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_int_equal(check_with(rows[i].mib, rows[i].recompute), ERR_NOMEM);
        assert_string_equal(err_text(), rows[i].says);
    }
    assert_ok(check_with(71, MODEL_RECOMPUTE_NONE));
    assert_in_range(takes, (uint64_t)70 << 20, (uint64_t)71 << 20);
    assert_ok(check_with(36, MODEL_RECOMPUTE_LAYER));
    assert_in_range(takes, (uint64_t)35 << 20, (uint64_t)36 << 20);
}

/* What it suggests is the run spec's batch, of which each row has its share; ranks that share a device share what is
 * free there. */
static void what_is_suggested_is_for_all_rows(void **state)
{
    (void)state;
    struct memory_plan_conf conf = {.model = {.batch = spec.batch, .train = true, .grid = {.dp = 4}}};
    little = (size_t)40 << 20;
    assert_fails(ERR_NOMEM, "or batch = 12 and accumulate = 2 in the run spec's [train]",
                 memory_plan_check(&spec, &kern, dev, &conf, NULL));
    little = (size_t)180 << 20;
    assert_ok(memory_plan_check(&spec, &kern, dev, &conf, NULL));
    conf.sharing = 4;
    assert_fails(ERR_NOMEM, "for each of 4 ranks that share it, which has 180.0 of",
                 memory_plan_check(&spec, &kern, dev, &conf, NULL));
    little = (size_t)260 << 20;
    assert_ok(memory_plan_check(&spec, &kern, dev, &conf, NULL));
}

/* It has no gradients, and is for a batch as it is. */
static void evaluation_and_sampling_are_refused_as_well(void **state)
{
    (void)state;
    struct memory_plan_conf conf = {.model = {.batch = spec.batch}};
    little = (size_t)16 << 20;
    assert_ok(memory_plan_check(&spec, &kern, dev, &conf, NULL));
    little = (size_t)9 << 20;
    assert_int_equal(memory_plan_check(&spec, &kern, dev, &conf, NULL), ERR_NOMEM);
    assert_string_equal(err_text(),
                        "this model needs 12.9 MiB on device cpu (parameters 5.4, activations 6.6, logits 0.8, "
                        "workspace 0.1), which has 9.0 of 64.0 MiB free; use batch = 1 in the run spec's [train]");
    little = (size_t)5 << 20;
    assert_fails(ERR_NOMEM, "free; it takes a device with more memory",
                 memory_plan_check(&spec, &kern, dev, &conf, NULL));
    conf = (struct memory_plan_conf){.model = {.batch = 1}, .decodes = true};
    assert_int_equal(memory_plan_check(&spec, &kern, dev, &conf, NULL), ERR_NOMEM);
    assert_string_equal(
        err_text(), "this model needs 7.2 MiB on device cpu (parameters 5.4, activations 1.1, logits 0.1, "
                    "caches 0.5, workspace 0.1), which has 5.0 of 64.0 MiB free; it takes a device with more memory");
}

static enum err check_once(void *user)
{
    (void)user;
    return check_with(71, MODEL_RECOMPUTE_NONE);
}

static void it_survives_without_memory_of_its_own(void **state)
{
    (void)state;
    assert_true(outofmem_walk(check_once, NULL) >= 3);
}

/* Of the machine: files that are cached count as free, and no more than there is. */
static void the_cpu_says_what_is_free(void **state)
{
    (void)state;
    const struct kern *cpu;
    size_t free_bytes, total;
    assert_ok(kern_find("cpu", &cpu));
    assert_ok(cpu->memory(dev, &free_bytes, &total));
    assert_true(free_bytes > 0 && free_bytes <= total);
}

int main(void)
{
    const struct kern *cpu;
    assert_ok(kern_find("cpu", &cpu));
    assert_ok(cpu->open(&(struct kern_place){.threads = 1}, &dev));
    kern = *cpu;
    kern.memory = little_memory;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_refusal_says_what_it_takes_and_what_would_fit),
        cmocka_unit_test(what_is_suggested_is_for_all_rows),
        cmocka_unit_test(evaluation_and_sampling_are_refused_as_well),
        cmocka_unit_test(it_survives_without_memory_of_its_own),
        cmocka_unit_test(the_cpu_says_what_is_free),
    };
    int failures = cmocka_run_group_tests(tests, NULL, NULL);
    cpu->close(dev);
    return failures != 0;
}
