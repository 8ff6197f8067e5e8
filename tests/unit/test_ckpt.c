/* SPDX-License-Identifier: Apache-2.0 */
/* ckpt: what training goes on from. A folder whose checkpoints are damaged, or lack something, is refused by the real
 * training loop, by one rank as by several, and stays as it is: nothing begins anew in its place. */
#include "tests/lib/testlib.h"

#include <stdio.h>
#include <string.h>

#include "common/digest.h"
#include "common/fsio.h"
#include "common/mem.h"
#include "common/runspec.h"
#include "common/tensorfile.h"
#include "worker/ckpt.h"
#include "worker/launch.h"
#include "worker/train.h"

enum { STEPS = 6, TEXT_BYTES = 4096, TENSORS_MAX = 64, FILE_MAX = 1 << 20 };

static const char *corpus;
static struct runspec spec;

static bool never(void)
{
    return false;
}

static enum err train(const char *folder, const struct launch_rank *rank)
{
    struct train_options options = {.spec = &spec,
                                    .data_path = corpus,
                                    .folder = folder,
                                    .device = "cpu",
                                    .threads = 1,
                                    .rank = rank,
                                    .checkpoint_every = 3,
                                    .interrupted = never};
    return train_run(&options);
}

static enum err train_rank(void *folder, const struct launch_rank *rank)
{
    return train(folder, rank);
}

static enum err train_with(const char *folder, int ranks)
{
    const struct launch_conf conf = {.ranks = ranks, .device = "cpu"};
    return ranks == 1 ? train(folder, NULL) : launch_run(&conf, train_rank, (void *)folder);
}

static const char *file_of(const char *folder, unsigned step)
{
    char name[64];
    snprintf(name, sizeof name, "worker-%09u.safetensors", step);
    return testlib_path(folder, name);
}

/* The file at `from` without the tensor or the word of that name, and with a right checksum. */
static void copy_without(const char *from, const char *to, const char *lost)
{
    static const char *const keys[] = {"format", "step", "position", "tokens", "updates", "run_spec"};
    struct tensorfile_meta meta[sizeof keys / sizeof keys[0]];
    struct tensorfile_tensor tensors[TENSORS_MAX];
    struct tensorfile *file;
    struct tensorfile_writer *writer;
    size_t metas = 0, count = 0;
    assert_ok(tensorfile_open(from, true, &file));
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (strcmp(keys[i], lost) != 0)
            meta[metas++] = (struct tensorfile_meta){keys[i], tensorfile_meta(file, keys[i])};
    for (size_t i = 0; i < tensorfile_count(file); i++)
        if (strcmp(tensorfile_at(file, i).name, lost) != 0)
            tensors[count++] = tensorfile_at(file, i);
    assert_int_equal(metas + count, sizeof keys / sizeof keys[0] + tensorfile_count(file) - 1);
    assert_ok(tensorfile_create(to, tensors, count, meta, metas, &writer));
    for (size_t i = 0; i < count; i++) {
        uint64_t values = tensors[i].shape[0] * (tensors[i].dims > 1 ? tensors[i].shape[1] : 1);
        const float *at;
        assert_ok(tensorfile_values(file, tensors[i].name, values, &at));
        assert_ok(tensorfile_write(writer, at, values));
    }
    assert_ok(tensorfile_commit(writer));
    tensorfile_close(file);
}

static const char *trained(const char *name)
{
    const char *folder = testlib_folder(name);
    assert_ok(train(folder, NULL));
    return folder;
}

/* That training is refused there, and leaves the file as it is. */
static void refuses(const char *folder, const char *path, enum err code, const char *words)
{
    for (int ranks = 1; ranks <= 2; ranks++) {
        char *before, *after;
        size_t bytes, bytes_after;
        assert_ok(fsio_read(path, FILE_MAX, &before, &bytes));
        assert_fails(code, words, train_with(folder, ranks));
        assert_ok(fsio_read(path, FILE_MAX, &after, &bytes_after));
        assert_int_equal(bytes, bytes_after);
        assert_memory_equal(before, after, bytes);
        mem_free(before);
        mem_free(after);
    }
}

static void what_lacks_something_is_refused(void **state)
{
    (void)state;
    const char *whole = file_of(trained("whole"), STEPS);
    static const struct {
        const char *lost, *words;
        enum err code;
    } cases[] = {
        {"model.norm.weight", "lacks tensor model.norm.weight", ERR_CONF},
        {"model.layers.0.mlp.down_proj.weight", "lacks tensor model.layers.0.mlp.down_proj.weight", ERR_CONF},
        {"adamw.m/model.embed_tokens.weight", "lacks tensor adamw.m/model.embed_tokens.weight", ERR_CONF},
        {"adamw.v/model.norm.weight", "lacks tensor adamw.v/model.norm.weight", ERR_CONF},
        {"run_spec", "carries no run spec", ERR_CONF},
        {"step", "none of its checkpoints is whole", ERR_CORRUPT},
        {"format", "none of its checkpoints is whole", ERR_CORRUPT},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *folder = testlib_folder("lacking");
        copy_without(whole, file_of(folder, STEPS), cases[i].lost);
        refuses(folder, file_of(folder, STEPS), cases[i].code, cases[i].words);
    }
}

static void what_is_damaged_is_passed_over_but_not_forgotten(void **state)
{
    (void)state;
    const char *folder = trained("damaged");
    testlib_damage(file_of(folder, STEPS), testlib_file_bytes(file_of(folder, STEPS)) - 501);
    assert_ok(train_with(folder, 2)); /* by the one before */
    for (unsigned step = 3; step <= STEPS; step += 3)
        testlib_damage(file_of(folder, step), testlib_file_bytes(file_of(folder, step)) - 501);
    refuses(folder, file_of(folder, STEPS), ERR_CORRUPT, "none of its checkpoints is whole");
    refuses(folder, file_of(folder, 3), ERR_CORRUPT, "use another folder");
}

static int set_up(void **state)
{
    (void)state;
    const char *folder = testlib_folder("ckpt");
    char text[TEXT_BYTES + 1];
    for (int i = 0; i < TEXT_BYTES; i++)
        text[i] = (char)(' ' + i * i % 61);
    text[TEXT_BYTES] = '\0';
    corpus = testlib_file(folder, "corpus", "%s", text);
    assert_ok(digest_init());
    assert_ok(runspec_parse("[run]\nname = small\nsteps = 6\n[model]\nwidth = 16\nlayers = 1\nheads = 2\nff = 32\n"
                            "context = 16\n[train]\nbatch = 2\n",
                            "a test", &spec));
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
    const struct CMUnitTest tests[] = {cmocka_unit_test(what_lacks_something_is_refused),
                                       cmocka_unit_test(what_is_damaged_is_passed_over_but_not_forgotten)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
