#include "worker/ckpt.h"

#include <stdio.h>
#include <string.h>

#include "common/log.h"
#include "common/mem.h"
#include "common/tensorfile.h"
#include "worker/ckpt_folder.h"

static enum err read_flat(const struct tensorfile *file, struct model *model, const char *prefix, float *flat)
{
    for (int i = 0; i < model->tensors_count; i++) {
        const struct model_tensor *tensor = &model->tensors[i];
        char name[CKPT_NAME_BYTES];
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
        if (strcmp(tensor.name, CKPT_KEPT) != 0 || tensor.dims != 1)
            continue;
        TRY(tensorfile_values(file, CKPT_KEPT, tensor.shape[0], &values));
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
    uint64_t updates, rounded;
    TRY_OUT(tensorfile_open(path, true, &file));
    TRY_OUT(tensorfile_check_format(file, CKPT_FORMAT));
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
        TRY_OUT(read_flat(file, model, ckpt_moments[0], inner->m));
        TRY_OUT(read_flat(file, model, ckpt_moments[1], inner->v));
    }
    TRY_OUT(read_kept(file, state));
    TRY_OUT(model_refresh(model));
    if (tensorfile_meta(file, "rounded") != NULL) {
        TRY_OUT(tensorfile_meta_u64(file, "rounded", &rounded));
        err = inner_round_again(inner, rounded);
    }
out:
    tensorfile_close(file);
    runspec_deinit(&saved);
    return err;
}

enum err ckpt_load(const char *folder, const struct runspec *spec, struct model *model, struct inner *inner,
                   struct ckpt_state *state)
{
    uint64_t steps[CKPT_STEPS_MAX];
    size_t count = ckpt_folder_steps(folder, steps);
    for (size_t i = 0; i < count; i++) {
        char *path;
        TRY(ckpt_folder_path(folder, steps[i], &path));
        enum err err = load_one(path, spec, model, inner, state);
        mem_free(path);
        if (err != ERR_CORRUPT)
            return err;
        log_warn("%s; trying the one before", err_text());
    }
    return err_set(ERR_NOTFOUND, "%s: no checkpoint", folder);
}
