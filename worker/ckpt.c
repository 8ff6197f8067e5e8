/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/ckpt.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/llama.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/modelfiles.h"
#include "common/origin.h"
#include "common/tensorfile.h"
#include "worker/comm/comm.h"
#include "worker/ckpt_folder.h"
#include "worker/model/model_shares.h"

/* A tensor's values, borrowed of the file; `prefix` "" for the parameter itself. */
static enum err values_of(const struct tensorfile *file, const char *prefix, const struct model_tensor *tensor,
                          const float **values)
{
    char name[CKPT_NAME_BYTES];
    snprintf(name, sizeof name, "%s%s%s", prefix, prefix[0] != '\0' ? "/" : "", tensor->name);
    return tensorfile_values(file, name, (uint64_t)tensor->count, values);
}

/* Of a model of others, at a time; or one row. */
enum { PIECE_VALUES = 1 << 20 };

static enum err read_flat(const struct tensorfile *file, struct model *model, const char *prefix, float *flat)
{
    for (int i = 0; i < model->tensors_count; i++) {
        const float *values;
        TRY(values_of(file, prefix, &model->tensors[i], &values));
        TRY(model_write(model, &model->tensors[i], flat, values));
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

static enum err spec_of(const struct modelfiles *files, const char *path, struct runspec *spec)
{
    static const struct origin_base base = {.text = "[run]\nname = model\nsteps = 1\n", .name = "a model's run spec"};
    const char *text = modelfiles_meta(files, "run_spec");
    if (text != NULL)
        return runspec_parse(text, path, spec);
    if (modelfiles_is_folder(files))
        return origin_spec(path, &base, false, spec);
    return err_set(ERR_NOTFOUND, "%s: carries no run spec; give one with --run", path);
}

enum err ckpt_read_spec(const char *path, struct runspec *spec)
{
    struct modelfiles *files;
    TRY(modelfiles_open(path, false, &files));
    enum err err = spec_of(files, path, spec);
    modelfiles_close(files);
    return err;
}

/* ---- parameters of a model, ours or of others ---- */

static struct llama_tensor wanted(const struct model_tensor *tensor)
{
    struct llama_tensor out = {
        .dims = tensor->dims, .shape = {tensor->shape[0], tensor->shape[1]}, .count = (uint64_t)tensor->count};
    snprintf(out.name, sizeof out.name, "%s", tensor->name);
    return out;
}

/* By pieces of whole rows, and no more of them than this rank has something of. */
static enum err read_tensor(const struct modelfiles *files, struct model *model, const struct model_tensor *tensor,
                            float *piece)
{
    const struct llama_tensor want = wanted(tensor);
    const struct model_share share = model_share(model, tensor);
    const struct model_part *part = &tensor->part;
    int64_t width = tensor->dims > 1 ? (int64_t)tensor->shape[1] : tensor->count;
    int64_t at_a_time = width < PIECE_VALUES ? PIECE_VALUES / width : 1;
    size_t index;
    TRY(modelfiles_find(files, &want, &index));
    int64_t row = part->row + share.first / part->columns;
    int64_t end = part->row + (share.first + share.count + part->columns - 1) / part->columns;
    for (; row < end; row += at_a_time) {
        int64_t rows = end - row < at_a_time ? end - row : at_a_time;
        TRY(modelfiles_read(files, index, (uint64_t)(row * width), (size_t)(rows * width), piece));
        TRY(model_write_rows(model, tensor, model->w, row, rows, piece));
    }
    return ERR_OK;
}

static enum err read_params(const struct modelfiles *files, struct model *model)
{
    float *piece;
    int64_t most = PIECE_VALUES;
    for (int i = 0; i < model->tensors_count; i++) {
        const struct model_tensor *tensor = &model->tensors[i];
        int64_t width = tensor->dims > 1 ? (int64_t)tensor->shape[1] : tensor->count;
        most = width > most ? width : most;
    }
    TRY(mem_new((size_t)most, sizeof *piece, "a piece of a model", &piece));
    enum err err = ERR_OK;
    for (int i = 0; err == ERR_OK && i < model->tensors_count; i++)
        err = read_tensor(files, model, &model->tensors[i], piece);
    mem_free(piece);
    TRY(err);
    return model_refresh(model);
}

static enum err check_folder(const struct modelfiles *files, const char *path, const struct runspec *spec)
{
    struct llama_config config;
    if (!modelfiles_is_folder(files))
        return ERR_OK;
    TRY(modelfiles_config(files, &config));
    return llama_config_check(&config, path, spec);
}

enum err ckpt_load_params(const char *path, const struct runspec *spec, struct model *model)
{
    struct modelfiles *files;
    TRY(modelfiles_open(path, true, &files));
    enum err err = check_folder(files, path, spec);
    if (err == ERR_OK)
        err = read_params(files, model);
    modelfiles_close(files);
    if (err == ERR_NOTFOUND || err == ERR_CORRUPT)
        return err_suffix(err, "give --params a checkpoint or an anchor of the model that the run spec describes");
    return err;
}

/* Whether it is on this machine: rank 0 says it for all. */
static enum err find_origin(const struct runspec *spec, const struct model *model, bool *there)
{
    struct comm *all = model->grid.of_all;
    *there = spec->init[0] != '\0' && access(spec->init, F_OK) == 0;
    return all != NULL ? all->calls->host_broadcast(all, there, sizeof *there, NULL, 0) : ERR_OK;
}

enum err ckpt_load_origin(const struct runspec *spec, struct model *model)
{
    struct modelfiles *files;
    bool there;
    TRY(find_origin(spec, model, &there));
    if (!there && spec->init[0] == '\0')
        return err_set(ERR_NOTFOUND, "the run begins from a model, and [run] init does not say where it is here");
    if (!there)
        return err_set(ERR_NOTFOUND, "the run begins from a model, and [run] init = %s is not there", spec->init);
    TRY(modelfiles_open(spec->init, false, &files));
    enum err err = model->rank == 0 ? origin_check(files, spec->init, spec) : ERR_OK;
    if (err == ERR_OK)
        err = read_params(files, model);
    modelfiles_close(files);
    return err;
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

/* ---- what training goes on from ---- */

/* Whether all that is to be read is there, before any of it is. */
static enum err check_tensors(const struct tensorfile *file, const char *path, const struct model *model,
                              const struct inner *inner)
{
    const char *const prefixes[] = {"", ckpt_moments[0], ckpt_moments[1]};
    const float *values;
    for (int p = 0; p < (inner->m != NULL ? 1 + CKPT_MOMENTS : 1); p++)
        for (int i = 0; i < model->tensors_count; i++)
            if (values_of(file, prefixes[p], &model->tensors[i], &values) != ERR_OK)
                return err_set(ERR_CONF,
                               "%s: lacks tensor %s%s%s as this run needs it: no checkpoint that training can go on "
                               "from; remove it, or use another folder",
                               path, prefixes[p], p > 0 ? "/" : "", model->tensors[i].name);
    return ERR_OK;
}

static enum err check_spec(const struct tensorfile *file, const char *path, const struct runspec *spec)
{
    struct runspec saved = {0};
    enum err err = read_spec(file, path, &saved);
    if (err == ERR_NOTFOUND)
        err = err_set(ERR_CONF,
                      "%s: carries no run spec: no checkpoint that training can go on from; remove it, or use another "
                      "folder",
                      path);
    else if (err == ERR_OK && !digest_equal(&saved.digest, &spec->digest))
        err = err_set(ERR_CONF,
                      "%s: belongs to another run spec (%s); use the run spec it was made with, or another folder",
                      path, saved.name);
    runspec_deinit(&saved);
    return err;
}

/* The file, if training can go on from it. ERR_CORRUPT: it is damaged. `sure`: it has been looked at already. */
static enum err open_one(const char *path, const struct runspec *spec, const struct model *model,
                         const struct inner *inner, bool sure, struct tensorfile **out)
{
    enum err err;
    struct tensorfile *file = NULL;
    uint64_t number;
    static const char *const numbers[] = {"step", "position", "tokens", "updates"};
    TRY_OUT(tensorfile_open(path, !sure, &file));
    TRY_OUT(tensorfile_check_format(file, CKPT_FORMAT));
    TRY_OUT(check_spec(file, path, spec));
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        TRY_OUT(tensorfile_meta_u64(file, numbers[i], &number));
    err = check_tensors(file, path, model, inner);
out:
    if (err != ERR_OK) {
        tensorfile_close(file);
        file = NULL;
    }
    *out = file;
    return err;
}

static enum err read_all(const struct tensorfile *file, struct model *model, struct inner *inner,
                         struct ckpt_state *state)
{
    uint64_t updates, rounded;
    TRY(tensorfile_meta_u64(file, "step", &state->step));
    TRY(tensorfile_meta_u64(file, "position", &state->position));
    TRY(tensorfile_meta_u64(file, "tokens", &state->tokens));
    TRY(tensorfile_meta_u64(file, "updates", &updates));
    TRY(inner_resume(inner, updates));
    TRY(read_flat(file, model, "", model->w));
    if (inner->m != NULL) {
        TRY(read_flat(file, model, ckpt_moments[0], inner->m));
        TRY(read_flat(file, model, ckpt_moments[1], inner->v));
    }
    TRY(read_kept(file, state));
    TRY(model_refresh(model));
    if (tensorfile_meta(file, "rounded") == NULL)
        return ERR_OK;
    TRY(tensorfile_meta_u64(file, "rounded", &rounded));
    return inner_round_again(inner, rounded);
}

/* The newest that is whole. ERR_NOTFOUND: there is none at all. ERR_CORRUPT: all are damaged. */
static enum err choose(const char *folder, const struct runspec *spec, const struct model *model,
                       const struct inner *inner, uint64_t *step)
{
    uint64_t steps[CKPT_STEPS_MAX];
    size_t count = ckpt_folder_steps(folder, steps);
    for (size_t i = 0; i < count; i++) {
        struct tensorfile *file;
        char *path;
        *step = steps[i];
        TRY(ckpt_folder_path(folder, *step, &path));
        enum err err = open_one(path, spec, model, inner, false, &file);
        mem_free(path);
        tensorfile_close(file);
        if (err != ERR_CORRUPT)
            return err;
        log_warn("%s; %s", err_text(), i + 1 < count ? "trying the one before" : "there is no other");
    }
    return count == 0 ? ERR_NOTFOUND : ERR_CORRUPT;
}

/* What every rank says where there is nothing to go on from. */
static enum err nothing_whole(const char *folder, enum err why)
{
    if (why == ERR_NOTFOUND)
        return err_set(why, "%s: no checkpoint", folder);
    return err_set(why,
                   "%s: none of its checkpoints is whole; put one back from elsewhere, or use another folder to begin "
                   "anew",
                   folder);
}

enum err ckpt_load(const char *folder, const struct runspec *spec, struct model *model, struct inner *inner,
                   struct ckpt_state *state)
{
    struct {
        uint64_t step;
        enum err err;
    } chosen = {0, ERR_OK};
    struct comm *all = model->grid.of_all;
    struct tensorfile *file;
    char *path;
    if (model->rank == 0)
        chosen.err = choose(folder, spec, model, inner, &chosen.step);
    if (chosen.err != ERR_OK && chosen.err != ERR_NOTFOUND && chosen.err != ERR_CORRUPT)
        return chosen.err; /* the others hear that this rank has failed; after those two all may go on */
    if (all != NULL)
        TRY(all->calls->host_broadcast(all, &chosen, sizeof chosen, NULL, 0));
    if (chosen.err != ERR_OK)
        return nothing_whole(folder, chosen.err);
    TRY(ckpt_folder_path(folder, chosen.step, &path));
    enum err err = open_one(path, spec, model, inner, true, &file);
    mem_free(path);
    TRY(err);
    err = read_all(file, model, inner, state);
    tensorfile_close(file);
    return err;
}
