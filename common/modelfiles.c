/* SPDX-License-Identifier: Apache-2.0 */
#include "common/modelfiles.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/fsio.h"
#include "common/llama_json.h"
#include "common/mem.h"
#include "common/runspec.h"
#include "common/tensorfile.h"

/* Far above what there is: of a config.json, an index, and how many shards one names. */
enum { CONFIG_BYTES_MAX = 1 << 20, INDEX_BYTES_MAX = 64 << 20, SHARDS_MAX = 4096, SHARD_NAME_MAX = 200 };
static const char prefix[] = "model.";

struct shard {
    char *name;
    struct tensorfile *file;
};

/* A tensor by its name, which lives in its shard. */
struct known {
    const char *name;
    uint32_t shard, index;
};

struct modelfiles {
    char *path;
    bool folder, checked;
    struct llama_config config; /* of a folder */
    json_t *ours;               /* of a folder: diloco.json, or NULL */
    struct shard *shards;
    size_t shards_count, shards_room;
    struct known *known; /* by name */
    size_t known_count;
};

/* ---- what is in a folder ---- */

static enum err in_folder(const struct modelfiles *files, const char *name, char **path)
{
    return mem_printf(path, "%s/%s", files->path, name);
}

static enum err exists(const struct modelfiles *files, const char *name, bool *there)
{
    char *path;
    TRY(in_folder(files, name, &path));
    *there = access(path, F_OK) == 0;
    mem_free(path);
    return ERR_OK;
}

static enum err read_text(const struct modelfiles *files, const char *name, size_t bytes_max, char **text,
                          size_t *bytes)
{
    char *path;
    struct stat status;
    TRY(in_folder(files, name, &path));
    enum err err = ERR_OK;
    if (stat(path, &status) == 0 && !S_ISREG(status.st_mode)) /* a pipe would be waited for */
        err = err_set(ERR_CORRUPT, "%s: not a regular file", path);
    if (err == ERR_OK)
        err = fsio_read(path, bytes_max, text, bytes);
    mem_free(path);
    return err;
}

static enum err read_config(struct modelfiles *files)
{
    char *text, *path;
    size_t bytes;
    enum err err = read_text(files, MODELFILES_CONFIG, CONFIG_BYTES_MAX, &text, &bytes);
    if (err == ERR_NOTFOUND)
        return err_set(ERR_CONF,
                       "%s: no " MODELFILES_CONFIG " is in it; name the folder of a published model, or a file that "
                       "diloco has written",
                       files->path);
    TRY(err);
    err = in_folder(files, MODELFILES_CONFIG, &path);
    if (err == ERR_OK) {
        err = llama_json_parse(text, bytes, path, &files->config);
        mem_free(path);
    }
    mem_free(text);
    return err;
}

/* What an export says of itself. One that says nothing is a published model like any other. */
static enum err read_ours(struct modelfiles *files)
{
    char *text;
    size_t bytes;
    enum err err = read_text(files, MODELFILES_OURS, CONFIG_BYTES_MAX, &text, &bytes);
    if (err == ERR_NOTFOUND)
        return ERR_OK;
    TRY(err);
    files->ours = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, NULL);
    mem_free(text);
    return ERR_OK;
}

/* ---- shards ---- */

static enum err add_shard(struct modelfiles *files, const char *name, const char *path)
{
    if (files->shards_count == files->shards_room) {
        size_t room = files->shards_room > 0 ? 2 * files->shards_room : 4;
        TRY(mem_grow(&files->shards, files->shards_room, room, sizeof *files->shards, "shards"));
        files->shards_room = room;
    }
    struct shard *shard = &files->shards[files->shards_count++];
    TRY(mem_strdup(name, &shard->name));
    return files->checked ? tensorfile_open(path, false, &shard->file) : tensorfile_open_unread(path, &shard->file);
}

/* One of the folder: nothing that leads out of it. */
static bool is_plain(const char *name)
{
    size_t length = strlen(name);
    for (const char *at = name; *at != '\0'; at++)
        if (*at < ' ' || *at > '~' || *at == '/')
            return false;
    return length > 0 && length <= SHARD_NAME_MAX && name[0] != '.';
}

static size_t shard_of(const struct modelfiles *files, const char *name)
{
    size_t i = 0;
    while (i < files->shards_count && strcmp(files->shards[i].name, name) != 0)
        i++;
    return i;
}

static enum err open_named(struct modelfiles *files, const char *name)
{
    char *path;
    if (!is_plain(name))
        return err_set(ERR_CORRUPT,
                       "%s/" MODELFILES_INDEX ": names a shard that is no plain name of a file in that folder; do not "
                       "use this model",
                       files->path);
    if (shard_of(files, name) < files->shards_count)
        return ERR_OK;
    if (files->shards_count == SHARDS_MAX)
        return err_set(ERR_CORRUPT, "%s/" MODELFILES_INDEX ": names more than %d shards", files->path, SHARDS_MAX);
    TRY(in_folder(files, name, &path));
    enum err err = add_shard(files, name, path);
    mem_free(path);
    if (err == ERR_NOTFOUND)
        err = err_set(ERR_CORRUPT, "%s: lacks %s, which " MODELFILES_INDEX " names; copy or download it again",
                      files->path, name);
    return err;
}

static enum err open_indexed(struct modelfiles *files)
{
    char *text;
    size_t bytes;
    TRY(read_text(files, MODELFILES_INDEX, INDEX_BYTES_MAX, &text, &bytes));
    json_t *index = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, NULL), *file;
    const char *name;
    mem_free(text);
    enum err err = ERR_OK;
    json_t *map = json_object_get(index, "weight_map");
    if (json_object_size(map) == 0)
        err = err_set(ERR_CORRUPT, "%s/" MODELFILES_INDEX ": no weight_map is in it; copy or download it again",
                      files->path);
    json_object_foreach (map, name, file)
        if (err == ERR_OK)
            err = open_named(files, json_is_string(file) ? json_string_value(file) : "");
    json_decref(index);
    return err;
}

static enum err open_folder(struct modelfiles *files)
{
    char *path;
    bool single, indexed;
    TRY(read_config(files));
    TRY(read_ours(files));
    TRY(exists(files, MODELFILES_SINGLE, &single));
    TRY(exists(files, MODELFILES_INDEX, &indexed));
    if (indexed && !single)
        return open_indexed(files);
    if (!single)
        return err_set(ERR_CORRUPT,
                       "%s: neither " MODELFILES_SINGLE " nor " MODELFILES_INDEX " is in it, and no other format can "
                       "be read; convert the model to safetensors",
                       files->path);
    TRY(in_folder(files, MODELFILES_SINGLE, &path));
    enum err err = add_shard(files, MODELFILES_SINGLE, path);
    mem_free(path);
    return err;
}

/* ---- tensors by name ---- */

static int by_name(const void *left, const void *right)
{
    const struct known *a = left, *b = right;
    return strcmp(a->name, b->name);
}

/* Left out, it would change what the model computes without a word. */
static enum err check_name(const struct modelfiles *files, const char *name)
{
    static const char ending[] = ".bias";
    size_t length = strlen(name), end = sizeof ending - 1;
    if (!files->folder || length < end || strcmp(name + length - end, ending) != 0)
        return ERR_OK;
    return err_set(ERR_CONF, "%s: holds tensor %.80s, and ours has no biases; only models without can be taken in",
                   files->path, name);
}

/* Of all that files hold, not of what the index says that they do: a tensor is where it is. */
static enum err list_tensors(struct modelfiles *files)
{
    size_t count = 0;
    for (size_t s = 0; s < files->shards_count; s++)
        count += tensorfile_count(files->shards[s].file);
    TRY(mem_new(count, sizeof *files->known, "tensor names", &files->known));
    for (size_t s = 0; s < files->shards_count; s++)
        for (size_t i = 0; i < tensorfile_count(files->shards[s].file); i++)
            files->known[files->known_count++] = (struct known){
                .name = tensorfile_at(files->shards[s].file, i).name, .shard = (uint32_t)s, .index = (uint32_t)i};
    qsort(files->known, count, sizeof *files->known, by_name);
    for (size_t i = 0; i < count; i++)
        TRY(check_name(files, files->known[i].name));
    for (size_t i = 1; i < count; i++)
        if (strcmp(files->known[i - 1].name, files->known[i].name) == 0)
            return err_set(ERR_CORRUPT, "%s: tensor %.80s is in two shards, and nobody can tell which counts",
                           files->path, files->known[i].name);
    return ERR_OK;
}

static const struct known *look_up(const struct modelfiles *files, const char *name)
{
    struct known wanted = {.name = name};
    return bsearch(&wanted, files->known, files->known_count, sizeof wanted, by_name);
}

static void shape_text(uint32_t dims, const uint64_t *shape, char text[160])
{
    int at = snprintf(text, 160, "(");
    for (uint32_t d = 0; d < dims; d++)
        at += snprintf(text + at, (size_t)(160 - at), "%s%" PRIu64, d > 0 ? ", " : "", shape[d]);
    snprintf(text + at, (size_t)(160 - at), ")");
}

static enum err check_tensor(const struct modelfiles *files, const struct llama_tensor *tensor,
                             const struct known *known)
{
    char expected[160], found[160];
    struct tensorfile_tensor there = tensorfile_at(files->shards[known->shard].file, known->index);
    bool same = there.dims == tensor->dims && there.shape[0] == tensor->shape[0] &&
                (there.dims < 2 || there.shape[1] == tensor->shape[1]);
    shape_text(tensor->dims, tensor->shape, expected);
    shape_text(there.dims, there.shape, found);
    if (!same)
        return err_set(ERR_CORRUPT, "%s: tensor %s has shape %s where the model has %s", files->path, tensor->name,
                       found, expected);
    float none;
    return tensorfile_read(files->shards[known->shard].file, known->index, 0, 0, &none);
}

enum err modelfiles_find(const struct modelfiles *files, const struct llama_tensor *tensor, size_t *index)
{
    const struct known *known = look_up(files, tensor->name);
    size_t length = sizeof prefix - 1;
    if (known == NULL && strncmp(tensor->name, prefix, length) == 0)
        known = look_up(files, tensor->name + length);
    if (known == NULL)
        return err_set(ERR_CORRUPT, "%s: tensor %s is missing, which the model has", files->path, tensor->name);
    *index = (size_t)(known - files->known);
    return check_tensor(files, tensor, known);
}

enum err modelfiles_read(const struct modelfiles *files, size_t index, uint64_t first, size_t count, float *to)
{
    const struct known *known = &files->known[index];
    return tensorfile_read(files->shards[known->shard].file, known->index, first, count, to);
}

/* ---- the model ---- */

bool modelfiles_is_folder(const struct modelfiles *files)
{
    return files->folder;
}

const char *modelfiles_meta(const struct modelfiles *files, const char *key)
{
    return files->folder ? json_string_value(json_object_get(files->ours, key))
                         : tensorfile_meta(files->shards[0].file, key);
}

enum err modelfiles_config(const struct modelfiles *files, struct llama_config *config)
{
    struct runspec spec;
    const char *text = modelfiles_meta(files, "run_spec");
    *config = files->config;
    if (files->folder)
        return ERR_OK;
    if (text == NULL)
        return err_set(ERR_CONF,
                       "%s: carries no run spec, so nobody can tell what it computes; name the folder that it is in, "
                       "with its " MODELFILES_CONFIG,
                       files->path);
    TRY(runspec_parse(text, files->path, &spec));
    *config = llama_config_of(&spec);
    runspec_deinit(&spec);
    return ERR_OK;
}

enum err modelfiles_open(const char *path, bool checked, struct modelfiles **out)
{
    enum err err;
    struct modelfiles *files = NULL;
    struct stat status;
    *out = NULL;
    TRY_OUT(mem_new(1, sizeof *files, "a model's files", &files));
    TRY_OUT(mem_strdup(path, &files->path));
    files->checked = checked;
    files->folder = stat(path, &status) == 0 && S_ISDIR(status.st_mode);
    TRY_OUT(files->folder ? open_folder(files) : add_shard(files, "", path));
    TRY_OUT(list_tensors(files));
out:
    if (err != ERR_OK)
        modelfiles_close(files);
    else
        *out = files;
    return err;
}

void modelfiles_close(struct modelfiles *files)
{
    if (files == NULL)
        return;
    for (size_t i = 0; i < files->shards_count; i++) {
        tensorfile_close(files->shards[i].file);
        mem_free(files->shards[i].name);
    }
    json_decref(files->ours);
    mem_free(files->shards);
    mem_free(files->known);
    mem_free(files->path);
    mem_free(files);
}
