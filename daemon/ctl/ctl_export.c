/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/ctl/ctl_export.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/conf_value.h"
#include "common/fsio.h"
#include "common/human.h"
#include "common/llama_json.h"
#include "common/mem.h"
#include "common/modelfiles.h"
#include "common/newfolder.h"
#include "common/tensorfile.h"
#include "daemon/ctl/ctl_client.h"

enum { PIECE_VALUES = 1 << 18, SHARDS_MAX = 4096, NAME_BYTES = 64 };
static const char usual_shard[] = "5GB", ours_format[] = "diloco export 1";
static const char tokenizer_file[] = "tokenizer.json", tokenizer_config_file[] = "tokenizer_config.json";

/* Consecutive tensors of the list. */
struct shard {
    size_t first, count;
    char name[NAME_BYTES];
};

struct exporter {
    const struct ctl_export *conf;
    enum dtype dtype;
    uint64_t shard_bytes;
    struct modelfiles *files;
    struct llama_config config;
    struct llama_tensor *tensors;
    size_t tensors_count;
    struct shard *shards;
    size_t shards_count;
    uint64_t bytes; /* of all values, as they are written */
    struct newfolder folder;
    float *piece;
    bool tokenizer;
};

/* ---- what was asked for ---- */

static enum err parse_size(const char *text, uint64_t *bytes)
{
    static const struct conf_key key = {.section = "", .name = "", .type = CONF_BYTES, .unit = "B"};
    if (conf_value_set(&key, text, NULL, bytes) != ERR_OK)
        return err_prefix(ERR_ARG, "--shard-size");
    return *bytes > 0 ? ERR_OK : err_set(ERR_ARG, "--shard-size %s: above 0, as in 5GB", text);
}

static enum err parse(const struct ctl_export *conf, enum dtype *dtype, uint64_t *shard_bytes)
{
    if (conf->folder == NULL)
        return err_set(ERR_ARG, "export needs a folder to make: dilococtl export DIR");
    if (conf->format != NULL && strcmp(conf->format, "hf") != 0) /* the only one there is */
        return err_set(ERR_ARG, "--format %s: expected hf, which transformers and most others read", conf->format);
    TRY(dtype_find(conf->dtype != NULL ? conf->dtype : "f32", dtype));
    return parse_size(conf->shard_size != NULL ? conf->shard_size : usual_shard, shard_bytes);
}

enum err ctl_export_check(const struct ctl_export *conf)
{
    enum dtype dtype;
    uint64_t shard_bytes;
    return parse(conf, &dtype, &shard_bytes);
}

/* Of the files that an export has, and nothing else. */
static bool is_ours(const char *name)
{
    static const char *const names[] = {MODELFILES_CONFIG, MODELFILES_SINGLE, MODELFILES_INDEX,
                                        MODELFILES_OURS,   tokenizer_file,    tokenizer_config_file};
    unsigned index, count;
    int end = 0;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return sscanf(name, "model-%5u-of-%5u.safetensors%n", &index, &count, &end) == 2 && end > 0 && name[end] == '\0';
}

/* ---- which tensor goes where ---- */

static enum err add_shard(struct exporter *e, size_t first)
{
    if (e->shards_count == SHARDS_MAX)
        return err_set(ERR_ARG, "--shard-size %s: the model would be cut into more than %d files; take a larger one",
                       e->conf->shard_size, SHARDS_MAX);
    e->shards[e->shards_count++] = (struct shard){.first = first};
    return ERR_OK;
}

/* In order; one that is larger than a shard is a shard by itself. */
static enum err cut(struct exporter *e)
{
    uint64_t used = 0;
    TRY(mem_new(SHARDS_MAX, sizeof *e->shards, "shards", &e->shards));
    for (size_t i = 0; i < e->tensors_count; i++) {
        uint64_t bytes = e->tensors[i].count * dtype_bytes(e->dtype);
        if (i == 0 || used + bytes > e->shard_bytes) {
            TRY(add_shard(e, i));
            used = 0;
        }
        e->shards[e->shards_count - 1].count++;
        used += bytes;
        e->bytes += bytes;
    }
    for (size_t s = 0; s < e->shards_count; s++) {
        char *name = e->shards[s].name;
        if (e->shards_count == 1)
            snprintf(name, NAME_BYTES, "%s", MODELFILES_SINGLE);
        else
            snprintf(name, NAME_BYTES, "model-%05zu-of-%05zu.safetensors", s + 1, e->shards_count);
    }
    return ERR_OK;
}

/* ---- the vocabulary of bytes as a tokenizer ---- */

enum { BYTES = 256 };

/* Those that GPT-2's tables, and since then everybody's, show as themselves. */
static bool is_shown(int byte)
{
    return (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

/* The others are the characters from 256 on, in order. UTF-8, of two bytes at most. */
static void character_of(int byte, char text[3])
{
    int code = byte;
    if (!is_shown(byte)) {
        code = BYTES;
        for (int before = 0; before < byte; before++)
            code += !is_shown(before);
    }
    if (code < 0x80)
        snprintf(text, 3, "%c", code);
    else
        snprintf(text, 3, "%c%c", 0xc0 | code >> 6, 0x80 | (code & 0x3f));
}

static enum err dumped(json_t *root, char **text)
{
    char *dump = root != NULL ? json_dumps(root, JSON_INDENT(1) | JSON_PRESERVE_ORDER) : NULL;
    json_decref(root);
    if (dump == NULL)
        return err_set(ERR_NOMEM, "out of memory for a tokenizer");
    enum err err = mem_printf(text, "%s\n", dump);
    free(dump);
    return err;
}

/* Nothing is cut at spaces, joined or left out: text becomes its bytes, and bytes become text. */
enum err ctl_tokenizer(char **text)
{
    json_t *vocab = json_object();
    for (int byte = 0; byte < BYTES; byte++) {
        char character[3];
        character_of(byte, character);
        json_object_set_new(vocab, character, json_integer(byte));
    }
    json_t *level = json_pack("{s:s, s:b, s:b, s:b}", "type", "ByteLevel", "add_prefix_space", 0, "trim_offsets", 0,
                              "use_regex", 0);
    json_t *model = json_pack("{s:s, s:n, s:n, s:n, s:n, s:b, s:b, s:o, s:[]}", "type", "BPE", "dropout", "unk_token",
                              "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk", 0, "byte_fallback", 0,
                              "vocab", vocab, "merges");
    return dumped(json_pack("{s:s, s:n, s:n, s:[], s:n, s:O, s:n, s:o, s:o}", "version", "1.0", "truncation", "padding",
                            "added_tokens", "normalizer", "pre_tokenizer", level, "post_processor", "decoder", level,
                            "model", model),
                  text);
}

enum err ctl_tokenizer_config(int64_t context, char **text)
{
    return dumped(json_pack("{s:s, s:I, s:b, s:n, s:n, s:n}", "tokenizer_class", "PreTrainedTokenizerFast",
                            "model_max_length", (json_int_t)context, "clean_up_tokenization_spaces", 0, "bos_token",
                            "eos_token", "unk_token"),
                  text);
}

/* ---- writing ---- */

static enum err write_text(const struct exporter *e, const char *name, const char *text)
{
    char *path;
    TRY(mem_printf(&path, "%s/%s", e->folder.place, name));
    enum err err = fsio_replace(path, text, strlen(text), 0644);
    mem_free(path);
    return err;
}

static enum err write_json(const struct exporter *e, const char *name, json_t *root)
{
    char *dump = root != NULL ? json_dumps(root, JSON_INDENT(2) | JSON_PRESERVE_ORDER) : NULL;
    json_decref(root);
    if (dump == NULL)
        return err_set(ERR_NOMEM, "out of memory for %s", name);
    enum err err = write_text(e, name, dump);
    free(dump);
    return err;
}

static enum err write_tensor(struct exporter *e, const struct llama_tensor *tensor, struct tensorfile_writer *writer)
{
    size_t index;
    TRY(modelfiles_find(e->files, tensor, &index));
    for (uint64_t at = 0; at < tensor->count; at += PIECE_VALUES) {
        size_t count = tensor->count - at < PIECE_VALUES ? (size_t)(tensor->count - at) : PIECE_VALUES;
        TRY(modelfiles_read(e->files, index, at, count, e->piece));
        enum err err = tensorfile_write(writer, e->piece, count);
        if (err == ERR_NONFINITE)
            return err_prefix(err, "tensor %s", tensor->name);
        TRY(err);
    }
    return ERR_OK;
}

static enum err write_shard(struct exporter *e, const struct shard *shard)
{
    enum err err;
    char *path = NULL;
    struct tensorfile_tensor *tensors = NULL;
    struct tensorfile_writer *writer = NULL;
    const struct tensorfile_meta meta = {"format", "pt"}; /* readers of old ask for it */
    TRY_OUT(mem_printf(&path, "%s/%s", e->folder.place, shard->name));
    TRY_OUT(mem_new(shard->count, sizeof *tensors, "tensor names", &tensors));
    for (size_t i = 0; i < shard->count; i++) {
        const struct llama_tensor *tensor = &e->tensors[shard->first + i];
        tensors[i] = (struct tensorfile_tensor){.name = tensor->name,
                                                .dims = tensor->dims,
                                                .shape = {tensor->shape[0], tensor->shape[1]},
                                                .dtype = e->dtype};
    }
    TRY_OUT(tensorfile_create(path, tensors, shard->count, &meta, 1, &writer));
    for (size_t i = 0; i < shard->count; i++)
        TRY_OUT(write_tensor(e, &e->tensors[shard->first + i], writer));
    err = tensorfile_commit(writer);
    writer = NULL;
out:
    tensorfile_abort(writer);
    mem_free(tensors);
    mem_free(path);
    return err;
}

static enum err write_index(const struct exporter *e)
{
    json_t *map = json_object();
    for (size_t s = 0; s < e->shards_count; s++)
        for (size_t i = 0; i < e->shards[s].count; i++)
            json_object_set_new(map, e->tensors[e->shards[s].first + i].name, json_string(e->shards[s].name));
    return write_json(e, MODELFILES_INDEX,
                      json_pack("{s:{s:I}, s:o}", "metadata", "total_size", (json_int_t)e->bytes, "weight_map", map));
}

static enum err write_tokenizer(const struct exporter *e)
{
    char *text = NULL, *config = NULL;
    enum err err = ctl_tokenizer(&text);
    if (err == ERR_OK)
        err = ctl_tokenizer_config(e->config.context, &config);
    if (err == ERR_OK)
        err = write_text(e, tokenizer_file, text);
    if (err == ERR_OK)
        err = write_text(e, tokenizer_config_file, config);
    mem_free(text);
    mem_free(config);
    return err;
}

/* What it was made from, and the mark by which it may be replaced. */
static enum err write_ours(const struct exporter *e)
{
    json_t *root = json_pack("{s:s}", "format", ours_format);
    static const char *const keys[] = {"step", "versions", "run_spec"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (modelfiles_meta(e->files, keys[i]) != NULL)
            json_object_set_new(root, keys[i], json_string(modelfiles_meta(e->files, keys[i])));
    return write_json(e, MODELFILES_OURS, root);
}

/* config.json last: without it no reader takes a folder for a model. */
static enum err fill(struct exporter *e)
{
    char *config;
    for (size_t s = 0; s < e->shards_count; s++)
        TRY(write_shard(e, &e->shards[s]));
    if (e->shards_count > 1)
        TRY(write_index(e));
    if (e->tokenizer)
        TRY(write_tokenizer(e));
    TRY(write_ours(e));
    TRY(llama_json_text(&e->config, e->dtype, &config));
    enum err err = write_text(e, MODELFILES_CONFIG, config);
    mem_free(config);
    return err;
}

/* ---- all of it ---- */

static enum err say(const struct exporter *e)
{
    char bytes[HUMAN_BYTES];
    if (e->conf->json) {
        json_t *root = json_pack("{s:s, s:I, s:I, s:s}", "folder", e->conf->folder, "bytes", (json_int_t)e->bytes,
                                 "files", (json_int_t)e->shards_count, "dtype", dtype_name(e->dtype));
        json_dumpf(root, stdout, JSON_COMPACT | JSON_PRESERVE_ORDER);
        putchar('\n');
        json_decref(root);
    } else {
        printf("%s: %s of %s in %zu file%s\n", e->conf->folder, human_bytes((double)e->bytes, bytes),
               dtype_name(e->dtype), e->shards_count, e->shards_count > 1 ? "s" : "");
    }
    return fflush(stdout) == 0 ? ERR_OK : err_set_errno(ERR_IO, "cannot write");
}

/* Only a run on bytes is known to have them as its tokens. */
static enum err find_tokenizer(struct exporter *e)
{
    struct runspec spec;
    const char *text = modelfiles_meta(e->files, "run_spec");
    if (text == NULL)
        return ERR_OK;
    TRY(runspec_parse(text, e->conf->from, &spec));
    e->tokenizer = spec.format == RUNSPEC_BYTES;
    runspec_deinit(&spec);
    return ERR_OK;
}

enum err ctl_export(const struct ctl_export *conf)
{
    enum err err;
    struct exporter e = {.conf = conf, .folder = {.fd = -1, .parent_fd = -1}};
    TRY_OUT(parse(conf, &e.dtype, &e.shard_bytes));
    TRY_OUT(modelfiles_open(conf->from, true, &e.files));
    TRY_OUT(modelfiles_config(e.files, &e.config));
    TRY_OUT(find_tokenizer(&e));
    TRY_OUT(llama_tensors(&e.config, &e.tensors, &e.tensors_count));
    TRY_OUT(cut(&e));
    TRY_OUT(mem_new(PIECE_VALUES, sizeof *e.piece, "a piece of a model", &e.piece));
    TRY_OUT(newfolder_begin(&e.folder, conf->folder, conf->force ? MODELFILES_OURS : NULL, is_ours));
    err = fill(&e);
    if (err != ERR_OK)
        newfolder_abort(&e.folder);
    else
        err = newfolder_commit(&e.folder);
    if (err == ERR_OK)
        err = say(&e);
out:
    modelfiles_close(e.files);
    mem_free(e.tensors);
    mem_free(e.shards);
    mem_free(e.piece);
    return err;
}
