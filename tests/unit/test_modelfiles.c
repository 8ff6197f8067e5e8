/* SPDX-License-Identifier: Apache-2.0 */
/* modelfiles, llama and llama_json: what others have published is read as what it is, or refused in one line. */
#include "tests/lib/testlib.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/digest.h"
#include "common/fsio.h"
#include "common/llama_json.h"
#include "common/mem.h"
#include "common/modelfiles.h"
#include "common/tensorfile.h"
#include "tests/lib/outofmem.h"
#include "tests/lib/published.h"

enum { MOST_VALUES = 256 * 32 };
static struct published whole;

/* Every tensor, in pieces of so many values. */
static void assert_values(const char *path, const struct llama_config *config, size_t at_a_time)
{
    struct modelfiles *files;
    struct llama_tensor *tensors;
    size_t count, index;
    static float values[MOST_VALUES];
    assert_ok(modelfiles_open(path, true, &files));
    assert_ok(llama_tensors(config, &tensors, &count));
    for (size_t t = 0; t < count; t++) {
        assert_ok(modelfiles_find(files, &tensors[t], &index));
        for (uint64_t at = 0; at < tensors[t].count; at += at_a_time) {
            size_t part = tensors[t].count - at < at_a_time ? (size_t)(tensors[t].count - at) : at_a_time;
            assert_ok(modelfiles_read(files, index, at, part, values));
            for (size_t i = 0; i < part; i++)
                assert_true(values[i] == published_value(tensors[t].name, at + i));
        }
    }
    mem_free(tensors);
    modelfiles_close(files);
}

static void every_way_to_publish_reads_alike(void **state)
{
    (void)state;
    static const enum dtype dtypes[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16};
    for (size_t d = 0; d < sizeof dtypes / sizeof dtypes[0]; d++)
        for (int variant = 0; variant < 8; variant++) {
            struct published what = whole;
            what.dtype = dtypes[d];
            what.shards = (variant & 1) != 0 ? 3 : 0;
            what.bare = (variant & 2) != 0;
            what.config.tied = (variant & 4) == 0;
            what.more = "rotary_emb.inv_freq";
            if (what.shards > 0) /* else it is in all of them */
                what.more = NULL;
            assert_values(published_write("alike", &what), &what.config, variant % 2 == 0 ? MOST_VALUES : 37);
        }
}

/* As the cache of a download has them. */
static void shards_may_be_links(void **state)
{
    (void)state;
    const char *folder = published_write("links", &whole), *blobs = testlib_folder("blobs");
    const char *from = testlib_path(folder, "model.safetensors"), *to = testlib_path(blobs, "blob");
    assert_int_equal(rename(from, to), 0);
    char *absolute = realpath(to, NULL);
    assert_int_equal(symlink(absolute, from), 0);
    free(absolute);
    assert_values(folder, &whole.config, MOST_VALUES);
    assert_int_equal(unlink(from), 0);
    assert_int_equal(mkfifo(from, 0600), 0);
    struct modelfiles *files;
    assert_fails(ERR_IO, "not a regular file", modelfiles_open(folder, true, &files)); /* and nobody waits */
}

static enum err parse(const char *members, struct llama_config *config)
{
    static const char rest[] = "\"vocab_size\":300,\"hidden_size\":64,\"num_hidden_layers\":2,"
                               "\"num_attention_heads\":4,\"intermediate_size\":96}";
    char text[1000];
    snprintf(text, sizeof text, "{%s%s", members, rest);
    return llama_json_parse(text, strlen(text), "X/config.json", config);
}

static void what_is_left_out_is_as_the_published_code_has_it(void **state)
{
    (void)state;
    struct llama_config config;
    assert_ok(parse("\"architectures\":[\"LlamaForCausalLM\"],\"model_type\":\"llama\",", &config));
    assert_int_equal(config.kv_heads, 4);
    assert_false(config.tied);
    assert_true(config.rope_theta == 10000 && config.norm_eps == 1e-6 && config.context == 2048);
    assert_ok(parse("\"model_type\":\"llama\",\"rope_theta\":500000,\"rope_scaling\":null,", &config));
    assert_true(config.rope_theta == 500000);
    assert_ok(parse("\"model_type\":\"llama\",\"rope_scaling\":{\"type\":\"default\"},", &config));
    assert_ok(parse("\"model_type\":\"llama\",\"rope_parameters\":{\"rope_type\":\"default\",\"rope_theta\":2e4},"
                    "\"num_key_value_heads\":2,\"tie_word_embeddings\":true,",
                    &config));
    assert_true(config.rope_theta == 20000 && config.kv_heads == 2 && config.tied);
    char *text;
    struct llama_config again;
    assert_ok(llama_json_text(&config, DTYPE_BF16, &text));
    assert_ok(llama_json_parse(text, strlen(text), "ours", &again));
    assert_true(published_same(&again, &config));
    assert_non_null(strstr(text, "\"torch_dtype\": \"bfloat16\""));
    mem_free(text);
}

#define LLAMA "\"model_type\":\"llama\","
static void what_computes_something_else_is_refused_by_name(void **state)
{
    (void)state;
    static const struct {
        const char *members, *said;
    } cases[] = {
        {"\"architectures\":[\"Qwen2ForCausalLM\"],", "X/config.json: is a Qwen2ForCausalLM; only LlamaForCausalLM"},
        {"\"architectures\":[\"LlamaForCausalLM\"],\"model_type\":\"mistral\",", "is a model of type mistral"},
        {"\"architectures\":[\"\\u001b[2J\"],", "is a ?[2J;"},
        {"\"architectures\":[],", "is a model of no architecture"},
        {"", "neither architectures nor model_type"},
        {LLAMA "\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8},", "rope_scaling is of type llama3"},
        {LLAMA "\"rope_scaling\":{\"type\":\"linear\",\"factor\":2},", "rope_scaling is of type linear"},
        {LLAMA "\"rope_scaling\":7,", "rope_scaling is of type nothing"},
        {LLAMA "\"rope_parameters\":{\"rope_type\":\"yarn\"},", "rope_parameters is of type yarn"},
        {LLAMA "\"attention_bias\":true,", "attention_bias is true"},
        {LLAMA "\"mlp_bias\":true,", "mlp_bias is true"},
        {LLAMA "\"hidden_act\":\"gelu\",", "hidden_act is not silu"},
        {LLAMA "\"head_dim\":32,", "head_dim is not hidden_size over num_attention_heads"},
        {LLAMA "\"quantization_config\":{},", "quantization_config is there"},
        {LLAMA "\"partial_rotary_factor\":0.5,", "partial_rotary_factor is not 1"},
        {LLAMA "\"rms_norm_eps\":\"1\",", "rms_norm_eps is no number above 0"},
        {LLAMA "\"num_key_value_heads\":-2,", "num_key_value_heads is no whole number from 1"},
        {LLAMA "\"vocab_size\":300,", "not a JSON object"}, /* twice */
    };
    struct llama_config config;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        if (parse(cases[i].members, &config) == ERR_OK || strstr(err_text(), cases[i].said) == NULL)
            fail_msg("%s: \"%s\" is not said, but: %s", cases[i].members, cases[i].said, err_text());
    assert_fails(ERR_CONF, "hidden_size is missing", llama_json_parse("{" LLAMA "\"vocab_size\":9}", 37, "X", &config));
    assert_fails(ERR_CORRUPT, "not a JSON object", llama_json_parse("[]", 2, "X", &config));
}

static enum err open_and_find(const char *path)
{
    struct modelfiles *files;
    struct llama_config config;
    struct llama_tensor *tensors = NULL;
    size_t count, index;
    TRY(modelfiles_open(path, true, &files));
    enum err err = modelfiles_config(files, &config);
    if (err == ERR_OK)
        err = llama_tensors(&config, &tensors, &count);
    for (size_t t = 0; err == ERR_OK && t < count; t++)
        err = modelfiles_find(files, &tensors[t], &index);
    mem_free(tensors);
    modelfiles_close(files);
    return err;
}

static const char *with(const char *name, struct published what, const char *less, const char *wide, const char *more)
{
    what.less = less;
    what.wide = wide;
    what.more = more;
    return published_write(name, &what);
}

static void what_is_not_whole_is_refused_by_name(void **state)
{
    (void)state;
    struct published cut = whole, head = whole;
    cut.shards = 3;
    head.config.tied = false;
    assert_ok(open_and_find(published_write("good", &cut)));
    assert_fails(ERR_CORRUPT, "tensor model.layers.1.mlp.up_proj.weight is missing",
                 open_and_find(with("less", cut, "model.layers.1.mlp.up_proj.weight", NULL, NULL)));
    assert_fails(ERR_CORRUPT, "tensor lm_head.weight is missing",
                 open_and_find(with("headless", head, "lm_head.weight", NULL, NULL)));
    assert_fails(ERR_CORRUPT,
                 "tensor model.layers.0.self_attn.k_proj.weight has shape (17, 32) where the model has (16, 32)",
                 open_and_find(with("wide", cut, NULL, "model.layers.0.self_attn.k_proj.weight", NULL)));
    assert_fails(ERR_CONF, "holds tensor model.layers.0.self_attn.q_proj.bias, and ours has no biases",
                 open_and_find(with("bias", whole, NULL, NULL, "model.layers.0.self_attn.q_proj.bias")));
    assert_fails(ERR_CORRUPT, "tensor extra is in two shards", open_and_find(with("twice", cut, NULL, NULL, "extra")));

    const char *folder = published_write("lost", &cut), *shard = "model-00002-of-00003.safetensors";
    assert_int_equal(unlink(testlib_path(folder, shard)), 0);
    assert_fails(ERR_CORRUPT, "lacks model-00002-of-00003.safetensors, which model.safetensors.index.json names",
                 open_and_find(folder));
    folder = published_write("short", &cut);
    const char *path = testlib_path(folder, shard);
    assert_int_equal(truncate(path, testlib_file_bytes(path) - 8), 0);
    assert_fails(ERR_CORRUPT, "model-00002-of-00003.safetensors: not a whole tensor file: tensor",
                 open_and_find(folder));
    folder = published_write("damaged", &whole);
    testlib_damage(testlib_path(folder, "model.safetensors"), 5000);
    assert_fails(ERR_CORRUPT, "its checksum does not match", open_and_find(folder));
    folder = published_write("empty", &whole);
    assert_int_equal(unlink(testlib_path(folder, "model.safetensors")), 0);
    assert_fails(ERR_CORRUPT, "neither model.safetensors nor", open_and_find(folder));
    assert_int_equal(unlink(testlib_path(folder, "config.json")), 0);
    assert_fails(ERR_CONF, "no config.json is in it", open_and_find(folder));
    assert_fails(ERR_NOTFOUND, "cannot open", open_and_find(testlib_path(folder, "nothing")));
    path = testlib_path(published_write("single", &whole), "model.safetensors");
    assert_fails(ERR_CONF, "carries no run spec", open_and_find(path));
}

static void no_shard_leads_out_of_the_folder(void **state)
{
    (void)state;
    const char *outside = published_write("outside", &whole);
    static const char *const names[] = {
        "../outside/model.safetensors", "/etc/passwd", "..", "", "a/b", "\\u001b", ".hidden"};
    (void)outside;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *folder = published_write("inside", &whole);
        assert_int_equal(unlink(testlib_path(folder, "model.safetensors")), 0);
        testlib_file(folder, "model.safetensors.index.json", "{\"weight_map\":{\"model.norm.weight\":\"%s\"}}",
                     names[i]);
        assert_fails(ERR_CORRUPT, "no plain name of a file in that folder", open_and_find(folder));
    }
    const char *folder = published_write("inside", &whole);
    assert_int_equal(unlink(testlib_path(folder, "model.safetensors")), 0);
    testlib_file(folder, "model.safetensors.index.json", "{\"weight_map\":{\"model.norm.weight\":7}}");
    assert_fails(ERR_CORRUPT, "no plain name", open_and_find(folder));
    testlib_file(folder, "model.safetensors.index.json", "{\"weight_map\":{}}");
    assert_fails(ERR_CORRUPT, "no weight_map", open_and_find(folder));
}

static void the_first_difference_is_named(void **state)
{
    (void)state;
    struct runspec spec;
    struct llama_config config = published_small;
    assert_ok(runspec_parse("[run]\nname=r\nsteps=1\n[model]\nwidth=32\nlayers=2\nheads=4\nkv_heads=2\nff=96\n", "spec",
                            &spec));
    assert_ok(llama_config_check(&config, "DIR", &spec));
    config.norm_eps = (double)(float)1e-5;
    assert_ok(llama_config_check(&config, "DIR", &spec));
    config.context = 4096; /* is how long the training's sequences are */
    assert_ok(llama_config_check(&config, "DIR", &spec));
    config.rope_theta = 5e5;
    assert_fails(ERR_CONF,
                 "DIR: [model] rope_theta is 10000 in the run spec, and 500000 there; diloco-worker spec --from",
                 llama_config_check(&config, "DIR", &spec));
    config.kv_heads = 4;
    assert_fails(ERR_CONF, "[model] kv_heads is 2 in the run spec, and 4 there",
                 llama_config_check(&config, "DIR", &spec));
    config = published_small;
    config.tied = false;
    assert_fails(ERR_CONF, "[model] tied is yes in the run spec, and no there",
                 llama_config_check(&config, "DIR", &spec));
    runspec_deinit(&spec);
}

static enum err attempt(void *path)
{
    return open_and_find(path);
}

static void memory_may_run_out_anywhere(void **state)
{
    (void)state;
    struct published what = whole;
    what.shards = 3;
    const char *folder = published_write("memory", &what);
    assert_true(outofmem_walk(attempt, (void *)(uintptr_t)folder) > 10);
}

int main(void)
{
    assert_ok(digest_init());
    whole.config = published_small;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_way_to_publish_reads_alike),
        cmocka_unit_test(shards_may_be_links),
        cmocka_unit_test(what_is_left_out_is_as_the_published_code_has_it),
        cmocka_unit_test(what_computes_something_else_is_refused_by_name),
        cmocka_unit_test(what_is_not_whole_is_refused_by_name),
        cmocka_unit_test(no_shard_leads_out_of_the_folder),
        cmocka_unit_test(the_first_difference_is_named),
        cmocka_unit_test(memory_may_run_out_anywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
