#include "worker/ckpt.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/log.h"
#include "common/mem.h"
#include "common/tensorfile.h"

enum { KEPT = 2, FOUND_MAX = 64, NAME_BYTES = MODEL_NAME_BYTES + 16 };
static const char *const moment_names[2] = {"adamw.m", "adamw.v"};
static const char worker_format[] = "diloco worker 1";
static const char kept_name[] = "diloco.kept";

/* ---- writing ---- */

struct names {
    struct tensorfile_tensor *tensors;
    char (*text)[NAME_BYTES];
    size_t count;
};

static enum err list_names(const struct model *model, bool moments, size_t kept_count, struct names *names)
{
    size_t n = (size_t)model->tensors_count;
    names->count = moments ? 3 * n : n;
    TRY(mem_new(names->count + 1, sizeof *names->tensors, "tensor names", &names->tensors));
    TRY(mem_new(names->count, sizeof *names->text, "tensor names", &names->text));
    for (size_t i = 0; i < names->count; i++) {
        const struct model_tensor *tensor = &model->tensors[i % n];
        if (i < n)
            snprintf(names->text[i], sizeof names->text[i], "%s", tensor->name);
        else
            snprintf(names->text[i], sizeof names->text[i], "%s/%s", moment_names[i / n - 1], tensor->name);
        names->tensors[i] = (struct tensorfile_tensor){
            .name = names->text[i], .dims = tensor->dims, .shape = {tensor->shape[0], tensor->shape[1]}};
    }
    if (kept_count > 0)
        names->tensors[names->count++] =
            (struct tensorfile_tensor){.name = kept_name, .dims = 1, .shape = {kept_count}};
    return ERR_OK;
}

/* Of several ranks all read every tensor, whatever happens, and the first one writes; `writer` NULL: this one does
 * not, or can no more. */
static enum err write_flat(struct tensorfile_writer *writer, struct model *model, const float *own, float *host)
{
    enum err written = ERR_OK;
    for (int i = 0; i < model->tensors_count; i++) {
        const struct model_tensor *tensor = &model->tensors[i];
        TRY(model_read(model, tensor, own, host));
        if (writer != NULL && written == ERR_OK)
            written = tensorfile_write(writer, host, (size_t)tensor->count);
        if (written != ERR_OK && model->ranks == 1)
            break;
    }
    return written;
}

static size_t largest_tensor(const struct model *model)
{
    int64_t most = 0;
    for (int i = 0; i < model->tensors_count; i++)
        most = model->tensors[i].count > most ? model->tensors[i].count : most;
    return (size_t)most;
}

static enum err write_all(const char *path, const struct runspec *spec, struct model *model, const struct inner *inner,
                          const struct ckpt_state *state)
{
    enum err err;
    struct names names = {0};
    float *host = NULL;
    char *text = NULL;
    char step[32], position[32], tokens[32], updates[32];
    struct tensorfile_writer *writer = NULL;
    snprintf(step, sizeof step, "%" PRIu64, state->step);
    snprintf(position, sizeof position, "%" PRIu64, state->position);
    snprintf(tokens, sizeof tokens, "%" PRIu64, state->tokens);
    snprintf(updates, sizeof updates, "%" PRIu64, inner->updates);
    TRY_OUT(runspec_text(spec, &text));
    const struct tensorfile_meta meta[] = {{"format", worker_format}, {"step", step},       {"position", position},
                                           {"tokens", tokens},        {"updates", updates}, {"run_spec", text}};
    TRY_OUT(list_names(model, inner->m != NULL, state->kept_count, &names));
    TRY_OUT(mem_new(largest_tensor(model), sizeof *host, "a tensor", &host));
    if (model->rank == 0)
        err = tensorfile_create(path, names.tensors, names.count, meta, sizeof meta / sizeof meta[0], &writer);
    const float *const own[] = {model->w, inner->m, inner->v};
    for (int i = 0; i < (inner->m != NULL ? 3 : 1); i++) {
        enum err part = write_flat(err == ERR_OK ? writer : NULL, model, own[i], host);
        err = err == ERR_OK ? part : err;
    }
    if (err != ERR_OK || model->rank != 0)
        goto out;
    if (state->kept_count > 0)
        TRY_OUT(tensorfile_write(writer, state->kept, state->kept_count));
    err = tensorfile_commit(writer);
    writer = NULL;
out:
    if (err != ERR_OK)
        tensorfile_abort(writer);
    mem_free(names.tensors);
    mem_free(names.text);
    mem_free(host);
    mem_free(text);
    return err;
}

/* ---- the folder ---- */

static int newest_first(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left;
    uint64_t b = *(const uint64_t *)right;
    return a > b ? -1 : a < b;
}

/* Steps of the checkpoints in `folder`, newest first. */
static size_t find_steps(const char *folder, uint64_t *steps)
{
    DIR *dir = opendir(folder);
    size_t count = 0;
    if (dir == NULL)
        return 0;
    for (struct dirent *entry; (entry = readdir(dir)) != NULL && count < FOUND_MAX;) {
        uint64_t step;
        int end = 0;
        if (sscanf(entry->d_name, "worker-%" SCNu64 ".safetensors%n", &step, &end) == 1 && end > 0 &&
            entry->d_name[end] == '\0')
            steps[count++] = step;
    }
    closedir(dir);
    qsort(steps, count, sizeof *steps, newest_first);
    return count;
}

static enum err path_of(const char *folder, uint64_t step, char **path)
{
    return mem_printf(path, "%s/worker-%09" PRIu64 ".safetensors", folder, step);
}

enum err ckpt_save(const char *folder, const struct runspec *spec, struct model *model, const struct inner *inner,
                   const struct ckpt_state *state)
{
    char *path;
    TRY(path_of(folder, state->step, &path));
    enum err err = write_all(path, spec, model, inner, state);
    mem_free(path);
    TRY(err);
    if (model->rank != 0)
        return ERR_OK;
    uint64_t steps[FOUND_MAX];
    size_t count = find_steps(folder, steps);
    for (size_t i = KEPT; i < count; i++) {
        if (steps[i] == state->step) /* the run's step went back: this one is the newest all the same */
            continue;
        TRY(path_of(folder, steps[i], &path));
        unlink(path);
        mem_free(path);
    }
    return ERR_OK;
}

/* ---- reading ---- */

static enum err read_flat(const struct tensorfile *file, struct model *model, const char *prefix, float *flat)
{
    for (int i = 0; i < model->tensors_count; i++) {
        const struct model_tensor *tensor = &model->tensors[i];
        char name[NAME_BYTES];
        const float *values;
        snprintf(name, sizeof name, "%s%s%s", prefix, prefix[0] != '\0' ? "/" : "", tensor->name);
        TRY(tensorfile_values(file, name, (uint64_t)tensor->count, &values));
        TRY(model_write(model, tensor, flat, values));
    }
    return ERR_OK;
}

static enum err read_spec(const struct tensorfile *file, const char *path, struct runspec *spec)
{
    const char *text = tensorfile_meta(file, "run_spec");
    if (text == NULL)
        return err_set(ERR_NOTFOUND, "%s: carries no run spec; give one with --run", path);
    return runspec_parse(text, path, spec);
}

enum err ckpt_read_spec(const char *path, struct runspec *spec)
{
    struct tensorfile *file;
    TRY(tensorfile_open(path, false, &file));
    enum err err = read_spec(file, path, spec);
    tensorfile_close(file);
    return err;
}

enum err ckpt_load_params(const char *path, struct model *model)
{
    struct tensorfile *file;
    TRY(tensorfile_open(path, false, &file));
    enum err err = read_flat(file, model, "", model->w);
    tensorfile_close(file);
    TRY(err);
    return model_refresh(model);
}

/* Whatever is there: libdiloco looks whether it is whole. */
static enum err read_kept(const struct tensorfile *file, struct ckpt_state *state)
{
    const float *values;
    for (size_t i = 0; i < tensorfile_count(file); i++) {
        struct tensorfile_tensor tensor = tensorfile_at(file, i);
        if (strcmp(tensor.name, kept_name) != 0 || tensor.dims != 1)
            continue;
        TRY(tensorfile_values(file, kept_name, tensor.shape[0], &values));
        TRY(mem_new((size_t)tensor.shape[0], sizeof *values, "what the checkpoint kept", &state->kept));
        state->kept_count = (size_t)tensor.shape[0];
        memcpy(state->kept, values, state->kept_count * sizeof *values);
    }
    return ERR_OK;
}

static enum err load_one(const char *path, const struct runspec *spec, struct model *model, struct inner *inner,
                         struct ckpt_state *state)
{
    enum err err;
    struct tensorfile *file = NULL;
    struct runspec saved = {0};
    uint64_t updates;
    TRY_OUT(tensorfile_open(path, true, &file));
    TRY_OUT(tensorfile_check_format(file, worker_format));
    TRY_OUT(read_spec(file, path, &saved));
    if (!digest_equal(&saved.digest, &spec->digest)) {
        err = err_set(ERR_CONF,
                      "%s: belongs to another run spec (%s); use the run spec it was made with, or another folder",
                      path, saved.name);
        goto out;
    }
    TRY_OUT(tensorfile_meta_u64(file, "step", &state->step));
    TRY_OUT(tensorfile_meta_u64(file, "position", &state->position));
    TRY_OUT(tensorfile_meta_u64(file, "tokens", &state->tokens));
    TRY_OUT(tensorfile_meta_u64(file, "updates", &updates));
    TRY_OUT(inner_resume(inner, updates));
    TRY_OUT(read_flat(file, model, "", model->w));
    if (inner->m != NULL) {
        TRY_OUT(read_flat(file, model, moment_names[0], inner->m));
        TRY_OUT(read_flat(file, model, moment_names[1], inner->v));
    }
    TRY_OUT(read_kept(file, state));
    err = model_refresh(model);
out:
    tensorfile_close(file);
    runspec_deinit(&saved);
    return err;
}

enum err ckpt_load(const char *folder, const struct runspec *spec, struct model *model, struct inner *inner,
                   struct ckpt_state *state)
{
    uint64_t steps[FOUND_MAX];
    size_t count = find_steps(folder, steps);
    for (size_t i = 0; i < count; i++) {
        char *path;
        TRY(path_of(folder, steps[i], &path));
        enum err err = load_one(path, spec, model, inner, state);
        mem_free(path);
        if (err != ERR_CORRUPT)
            return err;
        log_warn("%s; trying the one before", err_text());
    }
    return err_set(ERR_NOTFOUND, "%s: no checkpoint", folder);
}
