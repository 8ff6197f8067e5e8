#include "daemon/state/store.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/fsio.h"
#include "common/mem.h"
#include "common/tensorfile.h"

static const char plan_file[] = "plan.txt";

/* ---- fragments ---- */

static enum err fragment_path(const char *folder, uint32_t f, char **path)
{
    return mem_printf(path, "%s/fragment-%04" PRIu32 ".safetensors", folder, f);
}

struct array {
    const char *name;
    float *values;
    uint64_t count;
    bool residual; /* may be missing in a file, or cut for another membership: it starts from nothing then */
};

/* The arrays a fragment's file holds; those the configuration has no use for are left out. */
static size_t list_arrays(const struct model_plan *plan, struct replica *replica, uint32_t f, uint64_t self_values,
                          struct array *arrays)
{
    uint64_t count = plan->plan->fragments[f].values_count;
    size_t n = 0;
    arrays[n++] = (struct array){"anchor", replica_anchor(replica, f), count, false};
    if (replica_momentum(replica, f) != NULL)
        arrays[n++] = (struct array){"momentum", replica_momentum(replica, f), count, false};
    if (replica_residual(replica, f) != NULL)
        arrays[n++] = (struct array){"residual", replica_residual(replica, f), count, true};
    if (replica_owner_residual(replica, f) != NULL && self_values > 0)
        arrays[n++] = (struct array){"owner_residual", replica_owner_residual(replica, f), self_values, true};
    return n;
}

static uint64_t owned_values(struct replica *replica, uint32_t f)
{
    struct plan_shard shard = replica_own_shard(replica, f);
    return shard.end - shard.begin;
}

enum err store_save_fragment(const char *folder, const struct runspec *spec, const struct digest *shares,
                             const struct model_plan *plan, struct replica *replica, uint32_t f,
                             const struct store_fragment *state)
{
    enum err err;
    char *path = NULL;
    struct tensorfile_writer *writer = NULL;
    struct array arrays[4];
    struct tensorfile_tensor tensors[4];
    char version[32], step[32];
    char hash[DIGEST_HEX_BYTES], run[DIGEST_HEX_BYTES], plan_id[DIGEST_HEX_BYTES], shares_id[DIGEST_HEX_BYTES];
    size_t count = list_arrays(plan, replica, f, owned_values(replica, f), arrays);
    for (size_t i = 0; i < count; i++)
        tensors[i] = (struct tensorfile_tensor){.name = arrays[i].name, .dims = 1, .shape = {arrays[i].count}};
    snprintf(version, sizeof version, "%" PRIu64, state->version);
    snprintf(step, sizeof step, "%" PRIu64, state->step);
    const struct tensorfile_meta meta[] = {{"format", "diloco fragment 2"},
                                           {"version", version},
                                           {"step", step},
                                           {"hash", digest_hex(&state->hash, hash)},
                                           {"run_id", digest_hex(&spec->digest, run)},
                                           {"shares_id", digest_hex(shares, shares_id)},
                                           {"plan_id", digest_hex(&plan->plan->digest, plan_id)}};
    TRY_OUT(fragment_path(folder, f, &path));
    TRY_OUT(tensorfile_create(path, tensors, count, meta, sizeof meta / sizeof meta[0], &writer));
    for (size_t i = 0; i < count; i++)
        TRY_OUT(tensorfile_write(writer, arrays[i].values, arrays[i].count));
    err = tensorfile_commit(writer);
    writer = NULL;
out:
    tensorfile_abort(writer);
    mem_free(path);
    return err;
}

static enum err check_identity(const struct tensorfile *file, const char *path, const char *key,
                               const struct digest *want)
{
    char hex[DIGEST_HEX_BYTES];
    const char *found = tensorfile_meta(file, key);
    if (found == NULL || strcmp(found, digest_hex(want, hex)) != 0)
        return err_set(ERR_CONF, "%s: belongs to another run or model (%s differs); use another [island] state folder",
                       path, key);
    return ERR_OK;
}

static enum err check_shares(const struct tensorfile *file, const char *path, const struct digest *shares)
{
    char hex[DIGEST_HEX_BYTES];
    const char *found = tensorfile_meta(file, "shares_id");
    if (found != NULL && strcmp(found, digest_hex(shares, hex)) == 0)
        return ERR_OK;
    return err_set(ERR_CONF,
                   "%s: was made by another list of islands, and a run keeps its islands: put their names and uplinks "
                   "and the [peer] sections back as they were, or begin anew, everywhere, with another [island] state "
                   "folder; nothing saved was changed",
                   path);
}

static enum err load_arrays(const struct tensorfile *file, const struct model_plan *plan, struct replica *replica,
                            uint32_t f)
{
    struct array arrays[4];
    size_t count = list_arrays(plan, replica, f, owned_values(replica, f), arrays);
    for (size_t i = 0; i < count; i++) {
        const float *values;
        enum err err = tensorfile_values(file, arrays[i].name, arrays[i].count, &values);
        if (err == ERR_NOTFOUND && !arrays[i].residual) /* of the array; the file is there */
            return err_prefix(ERR_CORRUPT, "not a whole checkpoint");
        if (err != ERR_OK && !arrays[i].residual)
            return err;
        if (err == ERR_OK)
            memcpy(arrays[i].values, values, arrays[i].count * sizeof *values);
    }
    return ERR_OK;
}

enum err store_load_fragment(const char *folder, const struct runspec *spec, const struct digest *shares,
                             const struct model_plan *plan, struct replica *replica, uint32_t f,
                             struct store_fragment *state)
{
    enum err err;
    char *path = NULL;
    struct tensorfile *file = NULL;
    char hex[DIGEST_HEX_BYTES];
    TRY_OUT(fragment_path(folder, f, &path));
    TRY_OUT(tensorfile_open(path, true, &file));
    TRY_OUT(check_identity(file, path, "run_id", &spec->digest));
    TRY_OUT(check_shares(file, path, shares));
    TRY_OUT(check_identity(file, path, "plan_id", &plan->plan->digest));
    TRY_OUT(tensorfile_meta_u64(file, "version", &state->version));
    TRY_OUT(tensorfile_meta_u64(file, "step", &state->step));
    TRY_OUT(load_arrays(file, plan, replica, f));
    TRY_OUT(replica_hash(replica, f, state->version, &state->hash));
    const char *hash = tensorfile_meta(file, "hash");
    if (hash == NULL || strcmp(hash, digest_hex(&state->hash, hex)) != 0)
        err = err_set(ERR_CORRUPT, "%s: its values are not those of its hash", path);
out:
    tensorfile_close(file);
    mem_free(path);
    return err;
}

/* ---- the plan ---- */

enum err store_save_plan(const char *folder, const struct model_plan *plan)
{
    char *path;
    TRY(mem_printf(&path, "%s/%s", folder, plan_file));
    enum err err = fsio_replace(path, plan->text, strlen(plan->text), 0644);
    mem_free(path);
    return err;
}

enum err store_load_plan(const char *folder, const struct runspec *spec, struct model_plan **out)
{
    char *path;
    char *text = NULL;
    size_t bytes;
    *out = NULL;
    TRY(mem_printf(&path, "%s/%s", folder, plan_file));
    enum err err = fsio_read(path, MODEL_PLAN_TEXT_MAX, &text, &bytes);
    if (err == ERR_OK) {
        err = model_plan_parse(spec, text, bytes, out);
        if (err == ERR_PROTO)
            err = err_prefix(ERR_CORRUPT, "%s", path);
    }
    mem_free(text);
    mem_free(path);
    return err;
}

/* ---- the anchor for people ---- */

static enum err write_anchors(struct tensorfile_writer *writer, const struct model_plan *plan, struct replica *replica)
{
    for (uint32_t i = 0; i < plan->tensors_count; i++) {
        const struct plan_tensor *tensor = &plan->plan->tensors[i];
        TRY(tensorfile_write(writer, replica_anchor(replica, tensor->fragment) + tensor->offset, tensor->count));
    }
    return ERR_OK;
}

static enum err versions_text(const struct model_plan *plan, const struct store_fragment *states, char **text,
                              uint64_t *step)
{
    char *stream_text = NULL;
    size_t bytes;
    FILE *stream = open_memstream(&stream_text, &bytes);
    if (stream == NULL)
        return err_set(ERR_NOMEM, "out of memory for the versions");
    *step = 0;
    for (uint32_t f = 0; f < plan->plan->fragments_count; f++) {
        fprintf(stream, "%s%" PRIu64, f > 0 ? "," : "", states[f].version);
        *step = states[f].step > *step ? states[f].step : *step;
    }
    fclose(stream);
    enum err err = mem_strdup(stream_text, text);
    free(stream_text);
    return err;
}

enum err store_export(const char *folder, const struct runspec *spec, const struct model_plan *plan,
                      struct replica *replica, const struct store_fragment *states)
{
    enum err err;
    char *path = NULL, *text = NULL, *versions = NULL;
    struct tensorfile_tensor *tensors = NULL;
    struct tensorfile_writer *writer = NULL;
    uint64_t step = 0;
    char step_text[32];
    TRY_OUT(mem_printf(&path, "%s/anchor.safetensors", folder));
    TRY_OUT(runspec_text(spec, &text));
    TRY_OUT(versions_text(plan, states, &versions, &step));
    snprintf(step_text, sizeof step_text, "%" PRIu64, step);
    TRY_OUT(mem_new(plan->tensors_count, sizeof *tensors, "tensor names", &tensors));
    for (uint32_t i = 0; i < plan->tensors_count; i++) {
        tensors[i] = (struct tensorfile_tensor){.name = plan->tensors[i].name, .dims = plan->tensors[i].dims};
        memcpy(tensors[i].shape, plan->tensors[i].shape, sizeof tensors[i].shape);
    }
    const struct tensorfile_meta meta[] = {
        {"format", "diloco anchor 1"}, {"step", step_text}, {"versions", versions}, {"run_spec", text}};
    TRY_OUT(tensorfile_create(path, tensors, plan->tensors_count, meta, sizeof meta / sizeof meta[0], &writer));
    TRY_OUT(write_anchors(writer, plan, replica));
    err = tensorfile_commit(writer);
    writer = NULL;
out:
    tensorfile_abort(writer);
    mem_free(tensors);
    mem_free(versions);
    mem_free(text);
    mem_free(path);
    return err;
}
