/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What training is said to take of a device's memory (memory_plan), against what it takes on the emulated GPU, which
 * counts; and that what a refusal suggests does fit.
 */
#include "tests/lib/testlib.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "tests/emu/emu.h"
#include "tests/emu/kern_emu.h"
#include "worker/inner.h"
#include "worker/memory_plan.h"
#include "worker/model/model_shares.h"
#include "worker/moves.h"

static kern_act *act_of(const void *model, const float *own)
{
    return model_act_of(model, own);
}

static struct runspec spec_of(int64_t width, int64_t layers, int64_t heads, int64_t kv_heads, int64_t context)
{
    return (struct runspec){.vocab = 256,
                            .width = width,
                            .layers = layers,
                            .heads = heads,
                            .kv_heads = kv_heads,
                            .ff = width * 8 / 3 / 16 * 16,
                            .context = context,
                            .rope_theta = 10000,
                            .norm_eps = 1e-5,
                            .init_std = 0.02,
                            .tied = true,
                            .inner = RUNSPEC_ADAMW,
                            .lr = 1e-3,
                            .steps = 100,
                            .batch = 4,
                            .accumulate = 2,
                            .interval = 50,
                            .overlap = 1};
}

static struct memory_plan_conf conf_of(const struct runspec *spec, enum model_recompute recompute)
{
    return (struct memory_plan_conf){.model = {.batch = spec->batch, .train = true, .recompute = recompute}};
}

static size_t used(const struct kern *kern, struct kern_dev *dev)
{
    size_t free_bytes, total;
    assert_ok(kern->memory(dev, &free_bytes, &total));
    return total - free_bytes;
}

static int64_t largest(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Of all operations, kept by the device until it is closed. */
static size_t reserved(const struct runspec *spec, const struct model_conf *conf)
{
    int64_t tp = largest(conf->grid.tp, 1);
    int64_t heads = (spec->heads + 2 * spec->kv_heads) / tp * (spec->width / spec->heads);
    return kern_emu.reserve_bytes(NULL, conf->batch * spec->context,
                                  largest(largest(spec->width, 2 * spec->ff / tp), heads), 0);
}

/* As the train loop, an evaluation or sampling allocates it; with `attached` what libdiloco asks of a device, too. */
static uint64_t allocated(const struct runspec *spec, const struct memory_plan_conf *conf)
{
    const struct kern *kern = &kern_emu;
    struct kern_dev *dev;
    struct model *model;
    struct inner *inner = NULL;
    struct moves *moves = NULL;
    void *aside = NULL, *past = NULL;
    emu_clear();
    assert_ok(kern->open(&(struct kern_place){0}, &dev));
    size_t before = used(kern, dev);
    assert_ok(model_new(spec, kern, dev, &conf->model, &model));
    if (conf->model.train)
        assert_ok(inner_new(model, spec, &inner));
    if (conf->decodes) {
        float *logits = malloc((size_t)spec->vocab * sizeof *logits);
        assert_non_null(logits);
        assert_ok(model_decode(model, 1, logits));
        free(logits);
    }
    if (conf->attached) {
        assert_ok(moves_new(kern, dev, model->w, model->own_count, act_of, model, &moves));
        const struct diloco_device *device = moves_device(moves);
        if (spec->overlap == spec->interval)
            aside = device->alloc(device->user, (size_t)model->params_count);
        if (spec->eager)
            past = device->alloc(device->user, (size_t)model->params_count);
    }
    size_t after = used(kern, dev);
    kern->free(dev, aside);
    kern->free(dev, past);
    moves_free(moves);
    inner_free(inner);
    model_free(model);
    assert_true(used(kern, dev) == before + reserved(spec, &conf->model));
    kern->close(dev);
    assert_string_equal(emu_error(), "");
    return after - before;
}

static struct memory_plan plan_of(const struct runspec *spec, const struct memory_plan_conf *conf)
{
    struct memory_plan plan;
    struct kern_dev *dev;
    assert_ok(kern_emu.open(&(struct kern_place){0}, &dev));
    assert_ok(memory_plan(spec, &kern_emu, dev, conf, &plan));
    assert_true(used(&kern_emu, dev) == 0);
    kern_emu.close(dev);
    return plan;
}

static uint64_t check(const struct runspec *spec, const struct memory_plan_conf *conf)
{
    struct memory_plan plan = plan_of(spec, conf);
    uint64_t said = memory_plan_sum(&plan), taken = allocated(spec, conf);
    uint64_t off = said > taken ? said - taken : taken - said;
    if (off * 50 > taken)
        fail_msg("width %" PRId64 ", %" PRId64 " layers, --recompute %s: %" PRIu64 " bytes are said, %" PRIu64
                 " are taken",
                 spec->width, spec->layers, model_recompute_name(conf->model.recompute), said, taken);
    return said;
}

static void what_is_said_is_what_is_taken(void **state)
{
    (void)state;
    const struct runspec shapes[] = {
        spec_of(64, 1, 2, 2, 64),
        spec_of(128, 6, 4, 2, 128),
        spec_of(256, 3, 4, 1, 96),
        spec_of(64, 12, 4, 4, 256),
    };
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        uint64_t last = UINT64_MAX;
        for (int mode = 0; mode < MODEL_RECOMPUTES; mode++) {
            struct runspec spec = shapes[i];
            struct memory_plan_conf conf = conf_of(&spec, (enum model_recompute)mode);
            uint64_t bytes = check(&spec, &conf);
            assert_true(spec.layers == 1 ? bytes == last || mode == 0 : bytes < last);
            last = bytes;
            spec.tied = mode == 1;
            spec.vocab = 5000; /* with logits that are much of it */
            spec.inner = mode == 0 ? RUNSPEC_SGD : RUNSPEC_MUON;
            check(&spec, &conf);
        }
    }
}

/* Its matrices, where they are much beside few activations. */
static void what_muon_takes_is_said(void **state)
{
    (void)state;
    struct runspec spec = spec_of(256, 1, 4, 2, 16);
    spec.batch = 1;
    spec.inner = RUNSPEC_MUON;
    struct memory_plan_conf conf = conf_of(&spec, MODEL_RECOMPUTE_NONE);
    check(&spec, &conf);
}

/* Without gradients and moments; sampling has caches. */
static void what_evaluation_and_sampling_take_is_said(void **state)
{
    (void)state;
    const struct runspec shapes[] = {spec_of(128, 6, 4, 2, 128), spec_of(64, 12, 4, 4, 256), spec_of(64, 1, 2, 2, 64)};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        struct memory_plan_conf train = conf_of(&shapes[i], MODEL_RECOMPUTE_NONE), conf = train;
        conf.model.train = false;
        uint64_t evaluated = check(&shapes[i], &conf);
        struct memory_plan plan = plan_of(&shapes[i], &conf);
        assert_true(evaluated < check(&shapes[i], &train));
        assert_true(plan.gradients == 0 && plan.moments == 0 && plan.caches == 0);
        conf.model.batch = 1;
        conf.decodes = true;
        check(&shapes[i], &conf);
        plan = plan_of(&shapes[i], &conf);
        const struct runspec *s = &shapes[i];
        assert_true(plan.caches ==
                    (uint64_t)(s->layers * s->context * s->kv_heads * (s->width / s->heads) * 4 + s->vocab * 4));
    }
}

static void what_the_exchange_takes_is_said(void **state)
{
    (void)state;
    struct runspec spec = spec_of(128, 2, 4, 2, 32);
    struct memory_plan_conf conf = conf_of(&spec, MODEL_RECOMPUTE_NONE);
    uint64_t alone = check(&spec, &conf);
    conf.attached = true;
    uint64_t attached = check(&spec, &conf);
    spec.overlap = spec.interval;
    uint64_t aside = check(&spec, &conf);
    spec.eager = true;
    uint64_t eager = check(&spec, &conf);
    assert_true(alone < attached && attached < aside && aside < eager);
}

static bool near(uint64_t is, uint64_t should)
{
    return is * 50 > should * 49 && is * 50 < should * 51;
}

/* Ranks that share: P (6 + 12/dp) / tp, the logits / tp, and of the activations what is not as wide as the model. What
 * is said of a rank is what it takes, wherever in the grid it is. */
static void ranks_share_the_parameters(void **state)
{
    (void)state;
    struct runspec spec = spec_of(128, 4, 4, 2, 64);
    struct memory_plan_conf conf = conf_of(&spec, MODEL_RECOMPUTE_NONE);
    struct memory_plan one = plan_of(&spec, &conf);
    uint64_t P = one.gradients / 4, wide = 0;
    assert_true(one.parameters == 6 * P && one.moments == 8 * P);
    conf.model.grid.dp = 4;
    struct memory_plan dp = plan_of(&spec, &conf);
    assert_true(near(dp.parameters + dp.gradients + dp.moments, 6 * P + 12 * P / 4));
    assert_true(dp.activations == one.activations && dp.logits == one.logits);
    check(&spec, &conf);
    for (int column = 0; column < 2; column++) {
        conf.model.grid = (struct model_grid){.dp = 4, .tp = 2, .row = 3, .column = column};
        struct memory_plan both = plan_of(&spec, &conf);
        assert_true(near(both.parameters + both.gradients + both.moments, (6 * P + 12 * P / 4) / 2));
        assert_true(both.activations < one.activations * 3 / 4 && both.logits == one.logits / 2);
        check(&spec, &conf);
        spec.inner = RUNSPEC_MUON;
        check(&spec, &conf);
        spec.inner = RUNSPEC_ADAMW;
        wide += both.activations;
    }
    assert_true(wide > one.activations);
}

/* ---- refusals ---- */

enum { PARTS = 24 }; /* of what is needed: so many devices are too small, and the last is not */

static size_t little; /* what a small device says is free */

static enum err little_memory(struct kern_dev *dev, size_t *free_bytes, size_t *total)
{
    (void)dev;
    *free_bytes = little;
    *total = (size_t)8 << 30;
    return ERR_OK;
}

static int64_t number_after(const char *text, const char *word)
{
    const char *at = strstr(text, word);
    return at != NULL ? strtoll(at + strlen(word), NULL, 10) : 0;
}

static bool fits(const struct runspec *spec, int64_t batch, int recompute)
{
    struct memory_plan_conf conf = conf_of(spec, (enum model_recompute)recompute);
    conf.model.batch = batch;
    struct memory_plan plan = plan_of(spec, &conf);
    bool yes = memory_plan_sum(&plan) <= little;
    if (yes && allocated(spec, &conf) > little)
        fail_msg("batch %" PRId64 " with --recompute %s does not fit into %zu bytes", batch,
                 model_recompute_name(conf.model.recompute), little);
    return yes;
}

/* Whether what a refusal says is true, and as little as will do. Returns what kind of advice it is. */
static int follow(const struct runspec *spec, const char *text)
{
    const char *advice = strstr(text, " free; ");
    assert_non_null(advice);
    const char *mode_at = strstr(advice, "--recompute ");
    int64_t batch = number_after(advice, "batch = "), accumulate = number_after(advice, "accumulate = ");
    enum model_recompute mode = MODEL_RECOMPUTE_NONE;
    if (strstr(advice, "neither") != NULL) {
        assert_false(fits(spec, 1, MODEL_RECOMPUTE_LAYER));
        return 0;
    }
    if (mode_at != NULL) {
        char name[8] = "";
        assert_int_equal(sscanf(mode_at, "--recompute %7[a-z]", name), 1);
        assert_ok(model_recompute_find(name, &mode));
    }
    assert_true(batch == 0 || batch * accumulate == spec->batch * spec->accumulate);
    if (strstr(advice, " with batch") != NULL) {
        assert_true(mode == MODEL_RECOMPUTE_LAYER && fits(spec, batch, mode));
        assert_false(fits(spec, 2 * batch, mode) || fits(spec, 1, MODEL_RECOMPUTE_NONE));
        return 1;
    }
    if (mode_at != NULL)
        assert_true(fits(spec, spec->batch, (int)mode) && !fits(spec, spec->batch, (int)mode - 1));
    if (batch > 0)
        assert_true(fits(spec, batch, MODEL_RECOMPUTE_NONE) && !fits(spec, 2 * batch, MODEL_RECOMPUTE_NONE));
    assert_true(mode_at != NULL || batch > 0);
    return mode_at == NULL ? 2 : mode == MODEL_RECOMPUTE_NORMS ? 3 : batch > 0 ? 4 : 5;
}

/* Of an evaluation. */
static void a_smaller_batch_is_suggested_where_it_fits(void **state)
{
    (void)state;
    struct runspec spec = spec_of(128, 2, 4, 2, 128);
    struct kern small = kern_emu;
    struct kern_dev *dev;
    int seen[3] = {0};
    small.memory = little_memory;
    spec.batch = 8;
    struct memory_plan_conf conf = conf_of(&spec, MODEL_RECOMPUTE_NONE);
    conf.model.train = false;
    struct memory_plan plan = plan_of(&spec, &conf);
    uint64_t whole = memory_plan_sum(&plan);
    for (int part = 1; part <= PARTS; part++) {
        struct memory_plan_conf smaller = conf;
        little = (size_t)(whole * (uint64_t)part / PARTS);
        assert_ok(small.open(&(struct kern_place){0}, &dev));
        enum err err = memory_plan_check(&spec, &small, dev, &conf, NULL);
        small.close(dev);
        assert_int_equal(err, part < PARTS ? ERR_NOMEM : ERR_OK);
        if (err == ERR_OK)
            continue;
        int64_t batch = number_after(err_text(), "batch = ");
        assert_true((batch == 0) == (strstr(err_text(), "free; it takes a device with more memory") != NULL));
        assert_null(strstr(err_text(), "accumulate"));
        assert_null(strstr(err_text(), "--recompute"));
        smaller.model.batch = batch > 0 ? 2 * batch : 1;
        assert_true(allocated(&spec, &smaller) > little || smaller.model.batch == spec.batch);
        smaller.model.batch = batch;
        assert_true(batch == 0 || allocated(&spec, &smaller) <= little);
        seen[batch == 0 ? 0 : batch == 4 ? 1 : 2]++;
    }
    assert_true(seen[0] > 0 && seen[1] > 0 && seen[2] > 0);
}

static void what_a_refusal_suggests_fits(void **state)
{
    (void)state;
    const struct runspec shapes[] = {spec_of(128, 6, 4, 2, 128), spec_of(256, 2, 4, 2, 64), spec_of(64, 16, 2, 2, 128)};
    struct kern small = kern_emu;
    struct kern_dev *dev;
    int seen[6] = {0};
    small.memory = little_memory;
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        struct runspec spec = shapes[i];
        spec.batch = i == 2 ? 2 : 8;
        struct memory_plan_conf conf = conf_of(&spec, MODEL_RECOMPUTE_NONE);
        struct memory_plan plan = plan_of(&spec, &conf);
        uint64_t whole = memory_plan_sum(&plan), takes;
        for (int part = 1; part <= PARTS; part++) {
            little = (size_t)(whole * (uint64_t)part / PARTS);
            assert_ok(small.open(&(struct kern_place){0}, &dev));
            enum err err = memory_plan_check(&spec, &small, dev, &conf, &takes);
            small.close(dev);
            assert_int_equal(err, part < PARTS ? ERR_NOMEM : ERR_OK);
            assert_int_equal(takes, whole);
            if (err == ERR_NOMEM)
                seen[follow(&spec, err_text())]++;
        }
    }
    /* All kinds but 2, where a smaller batch helps and recomputation does not: that takes a model of one layer. */
    assert_true(seen[0] > 0 && seen[1] > 0 && seen[3] > 0 && seen[4] > 0 && seen[5] > 0);
}

/* By the formulas of docs/TRAINER.md, "Memory of the trainer". */
static uint64_t documented_activations(const struct runspec *spec, int64_t batch, int recompute)
{
    int64_t T = spec->context, R = batch * T, C = spec->width, F = spec->ff, H = spec->heads;
    int64_t D = C / H, A = (H + 2 * spec->kv_heads) * D, kept = 0, once = 0;
    int64_t all = R * (8 * C + 2 * A + 2 * H * D + 6 * F + 4 * H + 8);
    switch (recompute) {
    case MODEL_RECOMPUTE_NONE: kept = all; break;
    case MODEL_RECOMPUTE_NORMS: kept = all - R * (4 * C + 2 * F), once = R * (4 * C + 2 * F); break;
    case MODEL_RECOMPUTE_LAYER: kept = R * 2 * C, once = all - R * 2 * C; break;
    }
    return (uint64_t)(spec->layers * kept + once + R * (10 * C + 2 * largest(2 * F, A) + 2 * largest(F, H * D) + 16) +
                      4 * T * D);
}

/* The example there. */
static void the_documented_example_is_true(void **state)
{
    (void)state;
    static const char *const rows[MODEL_RECOMPUTES] = {
        "7.2 + 4.8 + 9.5 + 24.9 + 0.5 = 46.9",
        "7.2 + 4.8 + 9.5 + 18.2 + 0.5 = 40.2",
        "7.2 + 4.8 + 9.5 + 3.3 + 0.5 = 25.3",
    };
    struct runspec spec = spec_of(2048, 24, 16, 16, 2048);
    spec.vocab = 32768;
    spec.ff = 5504;
    spec.batch = 8;
    for (int mode = 0; mode < MODEL_RECOMPUTES; mode++) {
        struct memory_plan_conf conf = conf_of(&spec, (enum model_recompute)mode);
        struct memory_plan p = plan_of(&spec, &conf);
        assert_true(p.activations - documented_activations(&spec, spec.batch, mode) < 100); /* sums of losses */
        uint64_t operations = 2048 * 2 * (uint64_t)spec.ff; /* 2 kB a column of the widest rows */
        assert_true(p.workspace == (uint64_t)(4 * spec.batch * spec.heads * spec.context) + operations);
        const double gib = 1073741824.0;
        char row[80];
        snprintf(row, sizeof row, "%.1f + %.1f + %.1f + %.1f + %.1f = %.1f", (double)p.parameters / gib,
                 (double)p.gradients / gib, (double)p.moments / gib, (double)p.activations / gib,
                 (double)p.logits / gib, (double)memory_plan_sum(&p) / gib);
        assert_string_equal(row, rows[mode]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_said_is_what_is_taken),
        cmocka_unit_test(what_muon_takes_is_said),
        cmocka_unit_test(what_the_exchange_takes_is_said),
        cmocka_unit_test(ranks_share_the_parameters),
        cmocka_unit_test(what_evaluation_and_sampling_take_is_said),
        cmocka_unit_test(a_smaller_batch_is_suggested_where_it_fits),
        cmocka_unit_test(what_a_refusal_suggests_fits),
        cmocka_unit_test(the_documented_example_is_true),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
