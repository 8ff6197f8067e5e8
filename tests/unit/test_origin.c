/* SPDX-License-Identifier: Apache-2.0 */
/* origin: one digest for one model, however it is kept, and a run spec that goes together with it. */
#include "tests/lib/testlib.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/digest.h"
#include "common/mem.h"
#include "common/origin.h"
#include "tests/lib/outofmem.h"
#include "tests/lib/published.h"
#include "worker/model/model.h"

static struct published whole;
static const struct origin_base sample = {.text = "[run]\nname = r\nsteps = 10\n", .name = "the sample"};

static enum err digest_of_model(const char *path, struct digest *digest)
{
    struct modelfiles *files;
    struct llama_config config;
    TRY(modelfiles_open(path, false, &files));
    enum err err = modelfiles_config(files, &config);
    if (err == ERR_OK)
        err = origin_digest(files, &config, digest);
    modelfiles_close(files);
    return err;
}

/* The trainer's own list, which nobody else sees. */
static void tensors_are_those_of_the_trainers_model(void **state)
{
    (void)state;
    for (int tied = 0; tied < 2; tied++) {
        const struct kern *kern;
        struct kern_dev *dev;
        struct model *model;
        struct runspec spec;
        struct llama_tensor *tensors;
        size_t count;
        char text[200];
        snprintf(text, sizeof text,
                 "[run]\nname=r\nsteps=1\n[model]\nwidth=48\nlayers=12\nheads=6\nkv_heads=2\ntied=%s\n",
                 tied ? "yes" : "no");
        assert_ok(runspec_parse(text, "spec", &spec));
        const struct llama_config config = llama_config_of(&spec);
        assert_ok(llama_tensors(&config, &tensors, &count));
        assert_ok(kern_find("cpu", &kern));
        assert_ok(kern->open(&(struct kern_place){.threads = 1}, &dev));
        assert_ok(model_outline(&spec, kern, dev, &(struct model_conf){.batch = 1}, &model));
        assert_int_equal(count, model->tensors_count);
        for (size_t i = 0; i < count; i++) {
            assert_string_equal(tensors[i].name, model->tensors[i].name);
            assert_int_equal(tensors[i].dims, model->tensors[i].dims);
            assert_int_equal(tensors[i].shape[0], model->tensors[i].shape[0]);
            assert_int_equal(tensors[i].shape[1], model->tensors[i].shape[1]);
            assert_int_equal(tensors[i].count, model->tensors[i].count);
        }
        model_free(model);
        kern->close(dev);
        mem_free(tensors);
        runspec_deinit(&spec);
    }
}

static void the_digest_is_that_of_the_values(void **state)
{
    (void)state;
    struct digest first, other;
    assert_ok(digest_of_model(published_write("first", &whole), &first));
    static const enum dtype dtypes[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16};
    for (size_t d = 0; d < sizeof dtypes / sizeof dtypes[0]; d++) {
        struct published same = whole;
        same.dtype = dtypes[d];
        same.shards = d + 2;
        same.bare = d == 1;
        assert_ok(digest_of_model(published_write("same", &same), &other));
        assert_true(digest_equal(&first, &other));
    }
    struct published changed = whole;
    changed.scale = 2;
    assert_ok(digest_of_model(published_write("changed", &changed), &other));
    assert_false(digest_equal(&first, &other));
    /* The definition, by hand: FORMATS.md, section 1. */
    struct digest_state hand;
    struct llama_tensor *tensors;
    size_t count;
    assert_ok(llama_tensors(&published_small, &tensors, &count));
    llama_sort(tensors, count);
    digest_begin(&hand);
    digest_add(&hand, "diloco init 1\0\0\0", 16);
    for (size_t t = 0; t < count; t++) {
        uint64_t numbers[3] = {tensors[t].dims, tensors[t].shape[0], tensors[t].shape[1]};
        assert_true(t == 0 || strcmp(tensors[t - 1].name, tensors[t].name) < 0);
        digest_add(&hand, tensors[t].name, strlen(tensors[t].name) + 1);
        digest_add(&hand, numbers, 8 + 8 * tensors[t].dims);
        for (uint64_t i = 0; i < tensors[t].count; i++)
            digest_add(&hand, &(float){published_value(tensors[t].name, i)}, sizeof(float));
    }
    mem_free(tensors);
    other = digest_end(&hand);
    assert_true(digest_equal(&first, &other));
}

static void what_is_not_finite_is_refused(void **state)
{
    (void)state;
    struct digest digest;
    struct published bad = whole;
    bad.scale = NAN;
    assert_fails(ERR_NONFINITE, "tensor model.embed_tokens.weight holds NaN or Inf, first as value 0",
                 digest_of_model(published_write("nan", &bad), &digest));
}

static void a_run_spec_is_filled_in_from_the_model(void **state)
{
    (void)state;
    struct published what = whole;
    what.config.rope_theta = 500000;
    what.config.norm_eps = 1e-6;
    what.config.tied = false;
    what.config.context = 100000;
    const char *folder = published_write("filled", &what);
    struct runspec spec;
    struct digest digest;
    char hex[DIGEST_HEX_BYTES], *place = realpath(folder, NULL);
    assert_ok(origin_spec(folder, &sample, true, &spec));
    struct llama_config config = llama_config_of(&spec);
    assert_int_equal(config.context, 1024);
    config.context = what.config.context;
    assert_true(published_same(&config, &what.config));
    assert_string_equal(spec.init, place);
    assert_ok(digest_of_model(folder, &digest));
    assert_string_equal(spec.init_digest, digest_hex(&digest, hex));
    free(place);

    /* The path is this machine's, what lies there is the run's. */
    char *text;
    struct runspec other;
    assert_ok(runspec_text(&spec, &text));
    assert_null(strstr(text, "init ="));
    assert_non_null(strstr(text, "init_digest = "));
    assert_ok(runspec_parse(text, "canonical", &other));
    assert_true(digest_equal(&spec.digest, &other.digest));
    assert_string_equal(other.init, "");
    runspec_deinit(&other);
    mem_free(text);
    what.scale = 2;
    assert_ok(origin_spec(published_write("other", &what), &sample, true, &other));
    assert_false(digest_equal(&spec.digest, &other.digest));
    runspec_deinit(&other);
    runspec_deinit(&spec);
}

static void what_a_user_says_besides_is_kept(void **state)
{
    (void)state;
    const char *folder = published_write("besides", &whole), *specs = testlib_folder("origin-specs");
    const char *file = testlib_file(
        specs, "run.ini", "[run]\nname = mine\nsteps = 7\ninit = elsewhere\n[model]\ncontext = 48\nwidth = 999\n");
    const struct conf_override fast = {"train.lr=0.5"}, wide = {"model.width=64"};
    struct origin_base base = {.file = file, .overrides = &fast, .overrides_count = 1};
    struct runspec spec;
    assert_ok(origin_spec(folder, &base, true, &spec));
    assert_string_equal(spec.name, "mine");
    assert_true(spec.steps == 7 && spec.context == 48 && spec.lr == 0.5 && spec.width == 32);
    runspec_deinit(&spec);
    base.overrides = &wide;
    assert_fails(ERR_CONF, "[model] width is 64 in the run spec, and 32 there",
                 origin_spec(folder, &base, true, &spec));
    struct published large = whole;
    large.config.heads = large.config.kv_heads = 2048;
    large.config.width = 4096;
    large.config.ff = 2;
    large.config.layers = 1;
    folder = published_write("large", &large);
    assert_fails(ERR_CONF, "large", origin_spec(folder, &sample, true, &spec));
    assert_non_null(strstr(err_text(), "heads: 2048 is outside 1 .. 1024"));
}

static void a_run_spec_says_what_init_holds(void **state)
{
    (void)state;
    struct runspec spec;
    assert_fails(ERR_CONF, "[run] init_digest: must say what init holds",
                 runspec_parse("[run]\nname=r\nsteps=1\ninit = m\n", "X", &spec));
    assert_non_null(strstr(err_text(), "diloco-worker spec --run X --from m prints both"));
    assert_fails(ERR_CONF, "is no digest of 64 digits",
                 runspec_parse("[run]\nname=r\nsteps=1\ninit_digest = abc\n", "X", &spec));
}

static void another_model_than_the_runs_is_refused(void **state)
{
    (void)state;
    const char *folder = published_write("mine", &whole);
    struct published changed = whole;
    struct runspec spec;
    struct modelfiles *files;
    assert_ok(origin_spec(folder, &sample, true, &spec));
    assert_ok(modelfiles_open(folder, false, &files));
    assert_ok(origin_check(files, folder, &spec));
    modelfiles_close(files);
    changed.scale = 0.5;
    assert_ok(modelfiles_open(published_write("theirs", &changed), false, &files));
    assert_fails(ERR_CONF, "is another model than the run begins from", origin_check(files, "DIR", &spec));
    modelfiles_close(files);
    changed.config.rope_theta = 7;
    assert_ok(modelfiles_open(published_write("turned", &changed), false, &files));
    assert_fails(ERR_CONF, "rope_theta is 10000 in the run spec, and 7 there", origin_check(files, "DIR", &spec));
    modelfiles_close(files);
    runspec_deinit(&spec);
}

static enum err attempt(void *path)
{
    struct runspec spec;
    TRY(origin_spec(path, &sample, true, &spec));
    runspec_deinit(&spec);
    return ERR_OK;
}

static void memory_may_run_out_anywhere(void **state)
{
    (void)state;
    const char *folder = published_write("memory", &whole);
    assert_true(outofmem_walk(attempt, (void *)(uintptr_t)folder) > 10);
}

int main(void)
{
    assert_ok(digest_init());
    whole.config = published_small;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensors_are_those_of_the_trainers_model),
        cmocka_unit_test(the_digest_is_that_of_the_values),
        cmocka_unit_test(what_is_not_finite_is_refused),
        cmocka_unit_test(a_run_spec_is_filled_in_from_the_model),
        cmocka_unit_test(what_a_user_says_besides_is_kept),
        cmocka_unit_test(a_run_spec_says_what_init_holds),
        cmocka_unit_test(another_model_than_the_runs_is_refused),
        cmocka_unit_test(memory_may_run_out_anywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
