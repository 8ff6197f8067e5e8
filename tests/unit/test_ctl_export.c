/* SPDX-License-Identifier: Apache-2.0 */
/* ctl_export: what is exported has the same values, is whole or not there, and takes nobody's place. */
#include "tests/lib/testlib.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/digest.h"
#include "common/fsio.h"
#include "common/llama_json.h"
#include "common/mem.h"
#include "common/modelfiles.h"
#include "common/tensorfile.h"
#include "daemon/ctl/ctl_export.h"
#include "tests/lib/outofmem.h"
#include "tests/lib/published.h"

enum { MOST_VALUES = 256 * 32 };
static const char run_spec[] =
    "[run]\nname=r\nsteps=1\n[model]\nwidth=32\nlayers=2\nheads=4\nkv_heads=2\nff=96\ncontext=64\n";
static const char *folder, *anchor; /* where exports go; a file as the daemon saves it */
static float scale;                 /* of its values, which need all bits of a float */

static float value_of(const char *name, uint64_t i)
{
    return published_value(name, i) * scale;
}

static const char *write_anchor(const char *name)
{
    const char *path = testlib_path(folder, name);
    const struct tensorfile_meta meta[] = {{"format", "diloco anchor 1"}, {"step", "12"}, {"run_spec", run_spec}};
    struct tensorfile_tensor headers[64];
    struct tensorfile_writer *writer;
    struct llama_tensor *tensors;
    size_t count;
    assert_ok(llama_tensors(&published_small, &tensors, &count));
    for (size_t t = 0; t < count; t++)
        headers[t] = (struct tensorfile_tensor){
            .name = tensors[t].name, .dims = tensors[t].dims, .shape = {tensors[t].shape[0], tensors[t].shape[1]}};
    assert_ok(tensorfile_create(path, headers, count, meta, 3, &writer));
    for (size_t t = 0; t < count; t++)
        for (uint64_t i = 0; i < tensors[t].count; i++) {
            float value = value_of(tensors[t].name, i);
            assert_ok(tensorfile_write(writer, &value, 1));
        }
    assert_ok(tensorfile_commit(writer));
    mem_free(tensors);
    return path;
}

static struct ctl_export to(const char *name)
{
    return (struct ctl_export){.from = anchor, .folder = testlib_path(folder, name), .format = "hf", .json = true};
}

static bool there(const char *parent, const char *name)
{
    return access(testlib_path(parent, name), F_OK) == 0;
}

/* That `path` holds the anchor's values as this dtype has them. */
static void assert_holds(const char *path, enum dtype dtype)
{
    struct modelfiles *files;
    struct llama_config config;
    struct llama_tensor *tensors;
    size_t count, index;
    static float values[MOST_VALUES];
    assert_ok(modelfiles_open(path, true, &files));
    assert_ok(modelfiles_config(files, &config));
    assert_true(published_same(&config, &published_small));
    assert_string_equal(modelfiles_meta(files, "run_spec"), run_spec);
    assert_string_equal(modelfiles_meta(files, "step"), "12");
    assert_ok(llama_tensors(&config, &tensors, &count));
    for (size_t t = 0; t < count; t++) {
        assert_ok(modelfiles_find(files, &tensors[t], &index));
        assert_ok(modelfiles_read(files, index, 0, tensors[t].count, values));
        for (uint64_t i = 0; i < tensors[t].count; i++) {
            float value = value_of(tensors[t].name, i);
            uint8_t kept[4];
            dtype_encode(dtype, &value, 1, kept);
            dtype_decode(dtype, kept, 1, &value);
            assert_int_equal(testlib_float_bits(values[i]), testlib_float_bits(value));
        }
    }
    mem_free(tensors);
    modelfiles_close(files);
}

static void what_comes_out_has_the_same_values(void **state)
{
    (void)state;
    static const char *const dtypes[] = {NULL, "bf16", "f16"}, *const sizes[] = {NULL, "20kB"};
    for (size_t d = 0; d < 3; d++)
        for (size_t s = 0; s < 2; s++) {
            char name[32];
            snprintf(name, sizeof name, "same-%zu-%zu", d, s);
            struct ctl_export export = to(name);
            export.dtype = dtypes[d];
            export.shard_size = sizes[s];
            assert_ok(ctl_export(&export));
            assert_holds(export.folder, (enum dtype)d);
            assert_int_equal(there(export.folder, "model.safetensors"), s == 0);
            assert_int_equal(there(export.folder, "model.safetensors.index.json"), s == 1);
            snprintf(name + strlen(name), sizeof name - strlen(name), ".new");
            assert_false(there(folder, name));
        }
}

/* A file holds what was asked for at most, but for a tensor that is larger by itself. */
static void shards_are_as_large_as_was_asked(void **state)
{
    (void)state;
    struct ctl_export export = to("sizes");
    export.shard_size = "20kB";
    assert_ok(ctl_export(&export));
    char *text, *place = NULL;
    size_t bytes, files = 0;
    assert_ok(fsio_read(testlib_path(export.folder, "model.safetensors.index.json"), 1 << 20, &text, &bytes));
    json_t *index = json_loadb(text, bytes, 0, NULL), *map = json_object_get(index, "weight_map"), *value;
    mem_free(text);
    const char *name;
    assert_int_equal(json_integer_value(json_object_get(json_object_get(index, "metadata"), "total_size")), 4 * 32928);
    json_object_foreach (map, name, value) {
        struct tensorfile *file;
        if (place != NULL && strcmp(place, json_string_value(value)) == 0)
            continue;
        place = (char *)(uintptr_t)json_string_value(value);
        files++;
        assert_ok(tensorfile_open(testlib_path(export.folder, place), true, &file));
        assert_string_equal(tensorfile_meta(file, "format"), "pt");
        size_t count = tensorfile_count(file);
        tensorfile_close(file);
        if (count > 1)
            assert_true(testlib_file_bytes(testlib_path(export.folder, place)) < 20000 + 1500);
    }
    assert_true(files > 3);
    json_decref(index);
}

static void a_vocabulary_of_bytes_is_a_tokenizer(void **state)
{
    (void)state;
    struct ctl_export export = to("tokens");
    char *text, *config;
    size_t bytes;
    assert_ok(ctl_export(&export));
    assert_ok(fsio_read(testlib_path(export.folder, "tokenizer.json"), 1 << 20, &text, &bytes));
    json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, NULL), *model = json_object_get(root, "model"), *id;
    json_t *vocab = json_object_get(model, "vocab");
    bool seen[256] = {false};
    const char *name;
    assert_int_equal(json_object_size(vocab), 256);
    assert_int_equal(json_array_size(json_object_get(model, "merges")), 0);
    json_object_foreach (vocab, name, id)
        seen[json_integer_value(id) & 255] = true;
    for (int i = 0; i < 256; i++)
        assert_true(seen[i]);
    /* As everybody's tables have it since GPT-2: letters stand for themselves, a space is U+0120. */
    assert_int_equal(json_integer_value(json_object_get(vocab, "A")), 'A');
    assert_int_equal(json_integer_value(json_object_get(vocab, "\xc4\xa0")), ' ');
    assert_int_equal(json_integer_value(json_object_get(vocab, "\xc3\xbf")), 255);
    json_decref(root);
    mem_free(text);
    assert_ok(ctl_tokenizer_config(64, &config));
    assert_non_null(strstr(config, "\"model_max_length\": 64"));
    mem_free(config);
}

static void what_is_there_keeps_its_place(void **state)
{
    (void)state;
    struct ctl_export export = to("taken"), forced = to("taken");
    forced.force = true;
    assert_int_equal(mkdir(export.folder, 0755), 0);
    assert_ok(ctl_export(&export)); /* into one that is empty */
    assert_fails(ERR_STATE, "is there already; --force replaces it", ctl_export(&export));
    forced.dtype = "bf16";
    assert_ok(ctl_export(&forced));
    assert_holds(forced.folder, DTYPE_BF16);
    assert_false(there(folder, "taken.new"));
    testlib_file(export.folder, "notes.txt", "mine");
    assert_fails(ERR_STATE, "holds notes.txt, which is not replaced", ctl_export(&forced));
    assert_int_equal(unlink(testlib_path(export.folder, "notes.txt")), 0);
    assert_int_equal(unlink(testlib_path(export.folder, "diloco.json")), 0);
    assert_fails(ERR_STATE, "was not made by us: no diloco.json is in it", ctl_export(&forced));
    assert_true(there(export.folder, "model.safetensors"));
    struct ctl_export file = to("file");
    testlib_file(folder, "file", "x");
    assert_fails(ERR_STATE, "is there, and no folder", ctl_export(&file));
    struct ctl_export dots = to("x");
    dots.folder = "..";
    assert_fails(ERR_ARG, "no name for a new folder", ctl_export(&dots));
    struct ctl_export slashes = to("slashes//");
    assert_ok(ctl_export(&slashes));
    struct ctl_export nowhere = to("no/such/place");
    assert_fails(ERR_IO, "cannot create folder", ctl_export(&nowhere));
}

static void two_at_a_time_do_not_mix(void **state)
{
    (void)state;
    struct ctl_export export = to("busy");
    const char *place = testlib_path(folder, "busy.new");
    assert_int_equal(mkdir(place, 0755), 0);
    int fd = open(place, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    assert_fails(ERR_STATE, "another program is writing it", ctl_export(&export));
    close(fd);
    testlib_file(place, "precious", "x");
    assert_fails(ERR_STATE, "busy.new: holds precious, which is not removed", ctl_export(&export));
    assert_int_equal(unlink(testlib_path(place, "precious")), 0);
    assert_ok(ctl_export(&export));
    assert_holds(export.folder, DTYPE_F32);
}

/* The child is ended by the kernel in the middle of a file. */
static void one_that_is_killed_leaves_nothing_that_is_taken_for_whole(void **state)
{
    (void)state;
    struct modelfiles *files;
    struct ctl_export export = to("killed");
    export.shard_size = "20kB";
    int pid = fork(), status;
    if (pid == 0) {
        const struct rlimit none = {0, 0}, limit = {30000, 30000};
        setrlimit(RLIMIT_CORE, &none);
        setrlimit(RLIMIT_FSIZE, &limit);
        _exit(ctl_export(&export) == ERR_OK ? 0 : 1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
    assert_false(there(folder, "killed"));
    assert_true(there(folder, "killed.new"));
    assert_fails(ERR_CONF, "no config.json is in it",
                 modelfiles_open(testlib_path(folder, "killed.new"), true, &files));
    assert_ok(ctl_export(&export));
    assert_holds(export.folder, DTYPE_F32);
    assert_false(there(folder, "killed.new"));
}

static void what_cannot_be_exported_is_refused(void **state)
{
    (void)state;
    struct ctl_export export = to("refused");
    export.format = "onnx";
    assert_fails(ERR_ARG, "--format onnx: expected hf", ctl_export_check(&export));
    export.format = NULL; /* the one there is */
    assert_ok(ctl_export_check(&export));
    export = to("refused");
    export.dtype = "int8";
    assert_fails(ERR_ARG, "--dtype int8: expected f32, bf16 or f16", ctl_export_check(&export));
    export.dtype = NULL;
    export.shard_size = "5";
    assert_fails(ERR_ARG, "--shard-size: \"5\" has no unit", ctl_export_check(&export));
    export.shard_size = "0";
    assert_fails(ERR_ARG, "--shard-size 0: above 0", ctl_export_check(&export));
    export = to("refused");
    export.folder = NULL;
    assert_fails(ERR_ARG, "needs a folder to make", ctl_export_check(&export));
    export = to("refused");
    scale = 1e6f;
    export.from = write_anchor("large.safetensors");
    scale = 1.0f / 3;
    export.dtype = "f16";
    assert_fails(ERR_NONFINITE, "are too large for f16; take bf16, or f32", ctl_export(&export));
    assert_non_null(strstr(err_text(), "tensor model.embed_tokens.weight"));
    export.from = testlib_path(folder, "nothing");
    assert_fails(ERR_NOTFOUND, "cannot open", ctl_export(&export));
    assert_false(there(folder, "refused") || there(folder, "refused.new"));
}

static enum err attempt(void *user)
{
    struct ctl_export *export = user;
    return ctl_export(export);
}

static void memory_may_run_out_anywhere(void **state)
{
    (void)state;
    struct ctl_export export = to("memory");
    export.shard_size = "60kB";
    assert_true(outofmem_walk(attempt, &export) > 20);
    assert_holds(export.folder, DTYPE_F32);
    assert_false(there(folder, "memory.new"));
}

int main(void)
{
    assert_ok(digest_init());
    folder = testlib_folder("export");
    scale = 1.0f / 3;
    anchor = write_anchor("anchor.safetensors");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_comes_out_has_the_same_values),
        cmocka_unit_test(shards_are_as_large_as_was_asked),
        cmocka_unit_test(a_vocabulary_of_bytes_is_a_tokenizer),
        cmocka_unit_test(what_is_there_keeps_its_place),
        cmocka_unit_test(two_at_a_time_do_not_mix),
        cmocka_unit_test(one_that_is_killed_leaves_nothing_that_is_taken_for_whole),
        cmocka_unit_test(what_cannot_be_exported_is_refused),
        cmocka_unit_test(memory_may_run_out_anywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
