/* SPDX-License-Identifier: Apache-2.0 */
/* Runs that begin from a model: the real training loop takes its values bit for bit, by any number of ranks, once, and
 * only if they are the run's. */
#include "tests/lib/testlib.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/digest.h"
#include "common/mem.h"
#include "common/origin.h"
#include "common/tensorfile.h"
#include "tests/lib/outofmem.h"
#include "tests/lib/published.h"
#include "worker/ckpt.h"
#include "worker/launch.h"
#include "worker/model/model.h"
#include "worker/train.h"

enum { TEXT_BYTES = 4096 };

static const char *corpus, *model_folder;
static struct published whole;
static struct runspec spec;
static bool stop_at_once;

static bool interrupted(void)
{
    return stop_at_once;
}

struct job {
    const char *folder;
    int tensor_parallel;
};

static enum err train_rank(void *user, const struct launch_rank *rank)
{
    const struct job *job = user;
    struct train_options options = {.spec = &spec,
                                    .data_path = corpus,
                                    .folder = job->folder,
                                    .device = "cpu",
                                    .threads = 1,
                                    .rank = rank,
                                    .tensor_parallel = job->tensor_parallel,
                                    .interrupted = interrupted};
    return train_run(&options);
}

static enum err train_with(const char *folder, int ranks, int tensor_parallel)
{
    const struct launch_conf conf = {.ranks = ranks, .device = "cpu"};
    struct job job = {folder, tensor_parallel};
    return ranks == 1 ? train_rank(&job, NULL) : launch_run(&conf, train_rank, &job);
}

/* A step that changes nothing. */
static struct runspec spec_for(const char *path)
{
    static const char text[] = "[run]\nname = b\nsteps = 1\n[train]\nbatch = 4\nlr = 0\n[model]\ncontext = 16\n";
    static const struct conf_override shorter = {"model.context=16"};
    const struct origin_base base = {.text = text, .name = "spec", .overrides = &shorter, .overrides_count = 1};
    struct runspec out;
    assert_ok(origin_spec(path, &base, true, &out));
    return out;
}

static void assert_begun(const char *folder)
{
    struct tensorfile *file;
    struct llama_tensor *tensors;
    size_t count;
    const float *values;
    assert_ok(llama_tensors(&whole.config, &tensors, &count));
    assert_ok(tensorfile_open(testlib_path(folder, "worker-000000001.safetensors"), true, &file));
    for (size_t t = 0; t < count; t++) {
        assert_ok(tensorfile_values(file, tensors[t].name, tensors[t].count, &values));
        for (uint64_t i = 0; i < tensors[t].count; i++)
            assert_true(values[i] == published_value(tensors[t].name, i));
    }
    tensorfile_close(file);
    mem_free(tensors);
}

static void every_rank_reads_what_is_its_own(void **state)
{
    (void)state;
    static const struct {
        int ranks, tensor_parallel;
    } grids[] = {{1, 1}, {2, 1}, {2, 2}, {4, 2}};
    for (size_t i = 0; i < sizeof grids / sizeof grids[0]; i++) {
        const char *folder = testlib_folder("begun");
        assert_ok(train_with(folder, grids[i].ranks, grids[i].tensor_parallel));
        assert_begun(folder);
    }
}

static void one_that_goes_on_does_not_read_it_again(void **state)
{
    (void)state;
    const char *folder = testlib_folder("goes-on"), *copy = published_write("vanishing", &whole);
    struct runspec before = spec;
    spec = spec_for(copy);
    stop_at_once = true;
    assert_ok(train_with(folder, 1, 1));
    stop_at_once = false;
    testlib_clear(copy);
    assert_ok(train_with(folder, 2, 1));
    assert_begun(folder);
    for (int ranks = 1; ranks <= 2; ranks++)
        assert_fails(ERR_CONF, "no config.json is in it", train_with(testlib_folder("anew"), ranks, 1));
    assert_int_equal(rmdir(copy), 0);
    for (int ranks = 1; ranks <= 2; ranks++)
        assert_fails(ERR_CONF, "is not there; set it, as in --set run.init=FOLDER",
                     train_with(testlib_folder("anew"), ranks, 1));
    runspec_deinit(&spec);
    spec = before;
}

static void another_model_is_refused_by_all_ranks(void **state)
{
    (void)state;
    const char *copy = published_write("changing", &whole);
    struct runspec before = spec;
    spec = spec_for(copy);
    struct published other = whole;
    other.scale = 2;
    const char *changed = published_write("changed", &other);
    assert_int_equal(rename(testlib_path(changed, "model-00001-of-00002.safetensors"),
                            testlib_path(copy, "model-00001-of-00002.safetensors")),
                     0);
    for (int ranks = 1; ranks <= 2; ranks++)
        assert_fails(ERR_CONF, "is another model than the run begins from",
                     train_with(testlib_folder("refused"), ranks, 1));
    runspec_deinit(&spec);
    spec = before;
}

static void its_loss_is_the_same_by_every_way(void **state)
{
    (void)state;
    struct eval_options options = {.spec = &spec, .data_path = corpus, .device = "cpu", .threads = 1, .batches = 1};
    double by_init, by_params, other;
    assert_ok(train_eval(&options, &by_init));
    options.params_path = model_folder;
    assert_ok(train_eval(&options, &by_params));
    assert_true(by_init == by_params);
    struct published turned = whole;
    turned.config.rope_theta = 123;
    options.params_path = published_write("turned", &turned);
    assert_fails(ERR_CONF, "rope_theta is 10000 in the run spec, and 123 there", train_eval(&options, &other));
    struct runspec found;
    assert_ok(ckpt_read_spec(options.params_path, &found));
    assert_true(found.rope_theta == 123 && found.init[0] == '\0' && found.init_digest[0] == '\0');
    runspec_deinit(&found);
}

/* What we have written is a model to begin from like any other. */
static void a_checkpoint_is_a_beginning(void **state)
{
    (void)state;
    const char *folder = testlib_folder("first");
    struct runspec before = spec;
    assert_ok(train_with(folder, 1, 1));
    spec = spec_for(testlib_path(folder, "worker-000000001.safetensors"));
    assert_string_equal(spec.init_digest, before.init_digest);
    const char *second = testlib_folder("second");
    assert_ok(train_with(second, 1, 1));
    assert_begun(second);
    runspec_deinit(&spec);
    spec = before;
}

static enum err attempt(void *model)
{
    return ckpt_load_origin(&spec, model);
}

static void memory_may_run_out_anywhere(void **state)
{
    (void)state;
    const struct kern *kern;
    struct kern_dev *dev;
    struct model *model;
    assert_ok(kern_find("cpu", &kern));
    assert_ok(kern->open(&(struct kern_place){.threads = 1}, &dev));
    assert_ok(model_new(&spec, kern, dev, &(struct model_conf){.batch = 1}, &model));
    assert_true(outofmem_walk(attempt, model) > 5);
    model_free(model);
    kern->close(dev);
}

static int set_up(void **state)
{
    (void)state;
    char text[TEXT_BYTES + 1];
    for (int i = 0; i < TEXT_BYTES; i++)
        text[i] = (char)(' ' + i * i % 61);
    text[TEXT_BYTES] = '\0';
    corpus = testlib_file(testlib_folder("begin"), "corpus", "%s", text);
    whole = (struct published){.config = published_small, .dtype = DTYPE_BF16, .shards = 2};
    whole.config.tied = false;
    model_folder = published_write("model", &whole);
    spec = spec_for(model_folder);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    runspec_deinit(&spec);
    return 0;
}

int main(void)
{
    assert_ok(digest_init());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_rank_reads_what_is_its_own),
        cmocka_unit_test(one_that_goes_on_does_not_read_it_again),
        cmocka_unit_test(another_model_is_refused_by_all_ranks),
        cmocka_unit_test(its_loss_is_the_same_by_every_way),
        cmocka_unit_test(a_checkpoint_is_a_beginning),
        cmocka_unit_test(memory_may_run_out_anywhere),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
