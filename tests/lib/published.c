/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/published.h"

#include "tests/lib/testlib.h"

#include <stdio.h>
#include <string.h>

#include "common/llama_json.h"
#include "common/mem.h"
#include "common/tensorfile.h"

enum { PARTS = 64 };

const struct llama_config published_small = {.vocab = 256,
                                             .width = 32,
                                             .layers = 2,
                                             .heads = 4,
                                             .kv_heads = 2,
                                             .ff = 96,
                                             .rope_theta = 10000,
                                             .norm_eps = 1e-5,
                                             .tied = true,
                                             .context = 64,
                                             .init_std = 0.02};

bool published_same(const struct llama_config *a, const struct llama_config *b)
{
    return a->vocab == b->vocab && a->width == b->width && a->layers == b->layers && a->heads == b->heads &&
           a->kv_heads == b->kv_heads && a->ff == b->ff && a->rope_theta == b->rope_theta &&
           a->norm_eps == b->norm_eps && a->tied == b->tied && a->context == b->context && a->init_std == b->init_std;
}

float published_value(const char *name, uint64_t i)
{
    uint32_t hash = 2166136261u;
    for (; *name != '\0'; name++)
        hash = (hash ^ (uint32_t)(unsigned char)*name) * 16777619u;
    hash = (hash ^ (uint32_t)i) * 16777619u;
    hash ^= hash >> 13;
    return (float)((int)(hash * 2654435761u >> 24) - 128) / (8.0f * PARTS);
}

static void write_tensor(struct tensorfile_writer *writer, const struct published *what,
                         const struct llama_tensor *tensor)
{
    double scale = what->scale != 0 ? what->scale : 1;
    float *values;
    assert_ok(mem_new(tensor->count, sizeof *values, "values", &values));
    for (uint64_t i = 0; i < tensor->count; i++)
        values[i] = (float)(scale * (double)published_value(tensor->name, i));
    assert_ok(tensorfile_write(writer, values, tensor->count));
    mem_free(values);
}

static const char *name_in(const struct published *what, const char *name)
{
    return what->bare && strncmp(name, "model.", 6) == 0 ? name + 6 : name;
}

static void write_shard(const char *path, const struct published *what, const struct llama_tensor *tensors,
                        size_t count)
{
    struct tensorfile_tensor *headers;
    struct tensorfile_writer *writer;
    const struct tensorfile_meta meta = {"format", "pt"};
    assert_ok(mem_new(count + 1, sizeof *headers, "headers", &headers));
    for (size_t i = 0; i < count; i++)
        headers[i] = (struct tensorfile_tensor){.name = name_in(what, tensors[i].name),
                                                .dims = tensors[i].dims,
                                                .shape = {tensors[i].shape[0], tensors[i].shape[1]},
                                                .dtype = what->dtype};
    if (what->more != NULL)
        headers[count] = (struct tensorfile_tensor){.name = what->more, .dims = 1, .shape = {1}, .dtype = what->dtype};
    assert_ok(tensorfile_create(path, headers, count + (what->more != NULL), &meta, 1, &writer));
    for (size_t i = 0; i < count; i++)
        write_tensor(writer, what, &tensors[i]);
    if (what->more != NULL)
        assert_ok(tensorfile_write(writer, &(float){0}, 1));
    assert_ok(tensorfile_commit(writer));
    mem_free(headers);
}

/* Tensors go to shards in turns: those of a layer are apart. */
static void write_shards(const char *folder, const struct published *what, const struct llama_tensor *tensors,
                         size_t count)
{
    json_t *map = json_object();
    for (size_t s = 0; s < what->shards; s++) {
        char name[64];
        struct llama_tensor mine[64];
        size_t n = 0;
        snprintf(name, sizeof name, "model-%05zu-of-%05zu.safetensors", s + 1, what->shards);
        for (size_t i = s; i < count; i += what->shards) {
            mine[n++] = tensors[i];
            json_object_set_new(map, name_in(what, tensors[i].name), json_string(name));
        }
        write_shard(testlib_path(folder, name), what, mine, n);
    }
    json_t *index = json_pack("{s:{s:i}, s:o}", "metadata", "total_size", 0, "weight_map", map);
    assert_int_equal(json_dump_file(index, testlib_path(folder, "model.safetensors.index.json"), 0), 0);
    json_decref(index);
}

const char *published_write(const char *name, const struct published *what)
{
    const char *folder = testlib_folder(name);
    struct llama_tensor *tensors;
    size_t all, count = 0;
    char *json;
    assert_ok(llama_tensors(&what->config, &tensors, &all));
    for (size_t i = 0; i < all; i++) {
        if (what->less != NULL && strcmp(tensors[i].name, what->less) == 0)
            continue;
        tensors[count] = tensors[i];
        if (what->wide != NULL && strcmp(tensors[i].name, what->wide) == 0) {
            tensors[count].shape[0]++;
            tensors[count].count += tensors[i].dims > 1 ? tensors[i].shape[1] : 1;
        }
        count++;
    }
    if (what->shards == 0)
        write_shard(testlib_path(folder, "model.safetensors"), what, tensors, count);
    else
        write_shards(folder, what, tensors, count);
    assert_ok(llama_json_text(&what->config, what->dtype, &json));
    testlib_file(folder, "config.json", "{%s%s", what->json != NULL ? what->json : "", json + 1);
    mem_free(json);
    mem_free(tensors);
    return folder;
}
