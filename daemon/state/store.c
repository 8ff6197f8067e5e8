/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/state/store.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/fsio.h"
#include "common/mem.h"
#include "common/tensorfile.h"

static const char plan_file[] = "plan.txt";
/* Its first line: this, the run's id, a tab, the digest. */
static const char plan_head[] = "diloco plan 1\t";
enum { HEX = DIGEST_HEX_BYTES - 1, PLAN_HEAD = sizeof plan_head - 1 };
enum { PLAN_DIGEST_AT = PLAN_HEAD + HEX + 1, PLAN_HEAD_BYTES = PLAN_DIGEST_AT + HEX + 1 };
/* Folders of what trainers of other runs saved. */
enum { ASIDE_MAX = 1000 };

/* ---- fragments ---- */

static enum err fragment_path(const char *folder, uint32_t f, char **path)
{
    return mem_printf(path, "%s/fragment-%04" PRIu32 ".safetensors", folder, f);
}

struct array {
    const char *name;
    float *values;
    uint64_t count;
    bool residual; /* may be missing in a file: it starts from nothing then */
};

static const char fragment_format[] = "diloco fragment 6";
/* What is said of a fragment in its file. */
struct store_numbers {
    uint32_t f;
    struct store_fragment state;
    uint64_t owned; /* shards that the owner's residual is of */
    size_t rows;    /* of what is counted */
};
enum { ARRAYS_MAX = 5 };

static const char owner_array[] = "owner_residual", owner_key[] = "owner_shards";
/* What is counted: rows as they are packed, in an array of as many words. */
static const char counted_array[] = "counted", dedup_key[] = "counted_rows";
enum { ROW_WORDS = DEDUP_ROW_BYTES / (int)sizeof(float) };

/* The arrays a fragment's file holds, but for the owner's residual and what is counted: those that `hash` is of come
 * first. Those the configuration has no use for are left out. */
static size_t list_arrays(const struct model_plan *plan, struct replica *replica, uint32_t f, bool residuals,
                          struct array *arrays)
{
    uint64_t count = plan->plan->fragments[f].values_count;
    size_t n = 0;
    arrays[n++] = (struct array){"anchor", replica_anchor(replica, f), count, false};
    if (replica_momentum(replica, f) != NULL)
        arrays[n++] = (struct array){"momentum", replica_momentum(replica, f), count, false};
    if (residuals && replica_residual(replica, f) != NULL)
        arrays[n++] = (struct array){"residual", replica_residual(replica, f), count, true};
    return n;
}

static uint64_t certified_bytes(const struct array *arrays, size_t count)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < count; i++)
        bytes += arrays[i].residual ? 0 : arrays[i].count * sizeof(float);
    return bytes;
}

uint64_t store_fragment_bytes(struct replica *replica, const struct model_plan *plan, uint32_t f)
{
    struct array arrays[ARRAYS_MAX];
    return certified_bytes(arrays, list_arrays(plan, replica, f, false, arrays));
}

bool store_has_residuals(struct replica *replica, uint32_t f)
{
    return replica_residual(replica, f) != NULL || replica_owner_residual(replica, f) != NULL;
}

/* The whole file, but that nothing is flushed and that it has no name. */
static enum err begin_fragment(const struct store_at *at, const struct array *arrays, size_t count,
                               const struct store_numbers *numbers, struct tensorfile_writer **out)
{
    char *path, version[32], step[32], owner_shards[32], counted_rows[32], certified[32];
    char hash[DIGEST_HEX_BYTES], run[DIGEST_HEX_BYTES], plan_id[DIGEST_HEX_BYTES], nonce_hex[DIGEST_HEX_BYTES];
    struct tensorfile_tensor tensors[ARRAYS_MAX];
    for (size_t i = 0; i < count; i++)
        tensors[i] = (struct tensorfile_tensor){.name = arrays[i].name, .dims = 1, .shape = {arrays[i].count}};
    snprintf(version, sizeof version, "%" PRIu64, numbers->state.version);
    snprintf(step, sizeof step, "%" PRIu64, numbers->state.step);
    snprintf(owner_shards, sizeof owner_shards, "%" PRIu64, numbers->owned);
    snprintf(counted_rows, sizeof counted_rows, "%zu", numbers->rows);
    snprintf(certified, sizeof certified, "%" PRIu64, certified_bytes(arrays, count));
    const struct tensorfile_meta meta[] = {{"format", fragment_format},
                                           {"version", version},
                                           {"step", step},
                                           {owner_key, owner_shards},
                                           {dedup_key, counted_rows},
                                           {"certified_bytes", certified},
                                           {"hash", digest_hex(&numbers->state.hash, hash)},
                                           {"run_id", digest_hex(&at->spec->digest, run)},
                                           {"nonce_id", digest_hex(at->nonce_id, nonce_hex)},
                                           {"plan_id", digest_hex(&at->plan->id, plan_id)}};
    TRY(fragment_path(at->folder, numbers->f, &path));
    enum err err = tensorfile_create(path, tensors, count, meta, sizeof meta / sizeof meta[0], out);
    mem_free(path);
    return err;
}

enum err store_write_fragment(const struct store_at *at, struct replica *replica, uint32_t f,
                              const struct store_fragment *state, bool residuals, struct tensorfile_writer **out)
{
    enum err err;
    struct array arrays[ARRAYS_MAX];
    float *rows = NULL;
    const struct dedup *counted = replica_counted(replica, f);
    struct store_numbers numbers = {.f = f, .state = *state, .rows = counted->count};
    size_t count = list_arrays(at->plan, replica, f, residuals, arrays);
    *out = NULL;
    if (residuals && replica_owner_residual(replica, f) != NULL) {
        numbers.owned = replica_owner_shards(replica, f);
        arrays[count++] = (struct array){owner_array, replica_owner_residual(replica, f),
                                         replica_values(replica, f, numbers.owned), true};
    }
    TRY_OUT(mem_new(dedup_bytes(counted), 1, "what is counted", &rows));
    dedup_pack(counted, (uint8_t *)rows);
    if (counted->count > 0)
        arrays[count++] = (struct array){counted_array, rows, counted->count * ROW_WORDS, true};
    TRY_OUT(begin_fragment(at, arrays, count, &numbers, out));
    for (size_t i = 0; i < count; i++)
        TRY_OUT(tensorfile_write(*out, arrays[i].values, arrays[i].count));
out:
    mem_free(rows);
    if (err != ERR_OK) {
        tensorfile_abort(*out);
        *out = NULL;
    }
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

static enum err check_nonce(const struct tensorfile *file, const char *path, const struct digest *nonce_id)
{
    char hex[DIGEST_HEX_BYTES];
    const char *found = tensorfile_meta(file, "nonce_id");
    if (found != NULL && strcmp(found, digest_hex(nonce_id, hex)) == 0)
        return ERR_OK;
    return err_set(ERR_CONF,
                   "%s: was saved in a run that was begun another time, as before a reset; move the [island] state "
                   "folder away, or name another; nothing saved was changed",
                   path);
}

/* Initial tensors of another run or model are nobody's work: their trainer brings them again. */
static enum err forgive_initial(enum err err, uint64_t version)
{
    return err == ERR_CONF && version == 0 ? err_prefix(ERR_NOTFOUND, "only initial tensors") : err;
}

static enum err check_owner(const struct tensorfile *file, const char *path, const struct runspec *spec,
                            const struct digest *nonce_id)
{
    uint64_t version;
    TRY(tensorfile_check_format(file, fragment_format));
    TRY(tensorfile_meta_u64(file, "version", &version));
    enum err err = check_identity(file, path, "run_id", &spec->digest);
    if (err == ERR_OK)
        err = check_nonce(file, path, nonce_id);
    return forgive_initial(err, version);
}

/* The owner's residual, of the shards that were ours when it was saved: whose they are now is replica_cut()'s business.
 * A file without one, or with one that does not fit, is as good as any for the rest. */
static enum err load_owner(const struct tensorfile *file, struct replica *replica, uint32_t f)
{
    uint64_t shards;
    const float *values;
    if (tensorfile_meta(file, owner_key) == NULL || tensorfile_meta_u64(file, owner_key, &shards) != ERR_OK)
        return ERR_OK;
    size_t count = replica_values(replica, f, shards);
    if (count == 0 || tensorfile_values(file, owner_array, count, &values) != ERR_OK)
        return ERR_OK;
    return replica_set_owner_residual(replica, f, shards, values);
}

static enum err load_counted(const struct tensorfile *file, struct replica *replica, uint32_t f)
{
    uint64_t count;
    const float *rows = NULL;
    struct dedup counted = {0};
    TRY(tensorfile_meta_u64(file, dedup_key, &count));
    if (count > (uint64_t)BITSET_MAX * DEDUP_ROWS_OF_ONE_MAX)
        return err_set(ERR_CORRUPT, "%" PRIu64 " rows of what is counted", count);
    if (count > 0)
        TRY(tensorfile_values(file, counted_array, count * ROW_WORDS, &rows));
    enum err err = dedup_unpack((const uint8_t *)rows, (size_t)count * DEDUP_ROW_BYTES, &counted);
    if (err != ERR_OK)
        return err == ERR_PROTO ? err_prefix(ERR_CORRUPT, "not a whole checkpoint") : err;
    dedup_clear(replica_counted(replica, f));
    *replica_counted(replica, f) = counted;
    return ERR_OK;
}

static enum err load_arrays(const struct tensorfile *file, const struct model_plan *plan, struct replica *replica,
                            uint32_t f)
{
    struct array arrays[ARRAYS_MAX];
    size_t count = list_arrays(plan, replica, f, true, arrays);
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
    return load_owner(file, replica, f);
}

enum err store_load_fragment(const char *folder, const struct runspec *spec, const struct digest *nonce_id,
                             const struct model_plan *plan, struct replica *replica, uint32_t f,
                             struct store_fragment *state)
{
    enum err err;
    char *path = NULL;
    struct tensorfile *file = NULL;
    char hex[DIGEST_HEX_BYTES];
    TRY_OUT(fragment_path(folder, f, &path));
    TRY_OUT(tensorfile_open(path, true, &file));
    TRY_OUT(check_owner(file, path, spec, nonce_id));
    TRY_OUT(tensorfile_meta_u64(file, "version", &state->version));
    TRY_OUT(tensorfile_meta_u64(file, "step", &state->step));
    err = check_identity(file, path, "plan_id", &plan->id);
    TRY_OUT(forgive_initial(err, state->version));
    TRY_OUT(load_arrays(file, plan, replica, f));
    TRY_OUT(load_counted(file, replica, f));
    TRY_OUT(replica_hash(replica, f, state->version, state->step, &state->hash));
    const char *hash = tensorfile_meta(file, "hash");
    if (hash == NULL || strcmp(hash, digest_hex(&state->hash, hex)) != 0)
        err = err_set(ERR_CORRUPT, "%s: its values are not those of its hash", path);
out:
    tensorfile_close(file);
    mem_free(path);
    return err;
}

enum err store_check_fragment(const char *folder, const struct runspec *spec, const struct digest *nonce_id,
                              const struct model_plan *plan, uint32_t f)
{
    enum err err;
    char *path = NULL;
    struct tensorfile *file = NULL;
    uint64_t version;
    TRY_OUT(fragment_path(folder, f, &path));
    TRY_OUT(tensorfile_open_unread(path, &file));
    TRY_OUT(check_owner(file, path, spec, nonce_id));
    TRY_OUT(tensorfile_meta_u64(file, "version", &version));
    err = check_identity(file, path, "plan_id", &plan->id);
    err = forgive_initial(err, version);
out:
    tensorfile_close(file);
    mem_free(path);
    return err;
}

/* ---- the plan ---- */

/* Of what goes before it and what follows. */
static struct digest plan_digest(const char *head, const char *lines, size_t bytes)
{
    struct digest_state state;
    digest_begin(&state);
    digest_add(&state, head, PLAN_DIGEST_AT);
    digest_add(&state, lines, bytes);
    return digest_end(&state);
}

enum err store_save_plan(const char *folder, const struct runspec *spec, const struct model_plan *plan)
{
    enum err err;
    char *path = NULL, *text = NULL;
    char head[PLAN_DIGEST_AT + 1], hex[DIGEST_HEX_BYTES];
    snprintf(head, sizeof head, "%s%s\t", plan_head, digest_hex(&spec->digest, hex));
    struct digest digest = plan_digest(head, plan->text, strlen(plan->text));
    TRY_OUT(mem_printf(&path, "%s/%s", folder, plan_file));
    TRY_OUT(mem_printf(&text, "%s%s\n%s", head, digest_hex(&digest, hex), plan->text));
    TRY_OUT(fsio_replace(path, text, strlen(text), 0644));
out:
    mem_free(path);
    mem_free(text);
    return err;
}

/* The plan's file as it was read: its head, then the lines that everybody has alike. */
static enum err parse_plan(const struct runspec *spec, const char *path, const char *text, size_t bytes,
                           struct model_plan **out)
{
    char hex[DIGEST_HEX_BYTES];
    const char *lines = text + PLAN_HEAD_BYTES;
    if (bytes < PLAN_HEAD_BYTES || memcmp(text, plan_head, PLAN_HEAD) != 0 || lines[-1] != '\n')
        return err_set(ERR_CORRUPT, "%s: damaged, or of another version", path);
    struct digest found = plan_digest(text, lines, bytes - PLAN_HEAD_BYTES);
    if (memcmp(digest_hex(&found, hex), text + PLAN_DIGEST_AT, HEX) != 0)
        return err_set(ERR_CORRUPT, "%s: damaged: its checksum does not match its content", path);
    if (memcmp(digest_hex(&spec->digest, hex), text + PLAN_HEAD, HEX) != 0)
        return err_set(ERR_CONF, "%s: belongs to another run", path);
    enum err err = model_plan_parse(spec, lines, bytes - PLAN_HEAD_BYTES, out);
    return err == ERR_PROTO ? err_prefix(ERR_CORRUPT, "%s", path) : err;
}

enum err store_load_plan(const char *folder, const struct runspec *spec, struct model_plan **out)
{
    char *path;
    char *text = NULL;
    size_t bytes;
    *out = NULL;
    TRY(mem_printf(&path, "%s/%s", folder, plan_file));
    enum err err = fsio_read(path, MODEL_PLAN_TEXT_MAX + PLAN_HEAD_BYTES, &text, &bytes);
    if (err == ERR_OK)
        err = parse_plan(spec, path, text, bytes, out);
    mem_free(text);
    mem_free(path);
    return err;
}

/* ---- a folder without a plan ---- */

static enum err check_file(const char *folder, const char *name, const struct runspec *spec,
                           const struct digest *nonce_id)
{
    char *path;
    struct tensorfile *file = NULL;
    TRY(mem_printf(&path, "%s/%s", folder, name));
    enum err err = tensorfile_open(path, true, &file);
    if (err == ERR_OK)
        err = check_owner(file, path, spec, nonce_id);
    tensorfile_close(file);
    mem_free(path);
    /* What is damaged is told, and mended, when its fragment is loaded. */
    return err == ERR_CONF || err == ERR_NOMEM ? err : ERR_OK;
}

/* The next file of a fragment in a folder; NULL: that was the last. */
static const char *next_fragment(DIR *dir)
{
    for (struct dirent *item; (item = readdir(dir)) != NULL;) {
        unsigned f;
        int end = 0;
        if (sscanf(item->d_name, "fragment-%u.safetensors%n", &f, &end) == 1 && end > 0 && item->d_name[end] == '\0')
            return item->d_name;
    }
    return NULL;
}

enum err store_check(const char *folder, const struct runspec *spec, const struct digest *nonce_id)
{
    DIR *dir = opendir(folder);
    enum err err = ERR_OK;
    const char *name;
    if (dir == NULL)
        return err_set_errno(ERR_IO, "%s: cannot open", folder);
    while (err == ERR_OK && (name = next_fragment(dir)) != NULL)
        err = check_file(folder, name, spec, nonce_id);
    closedir(dir);
    return err;
}

static bool has_version(const char *folder, const char *name)
{
    char *path;
    uint64_t version = 0;
    struct tensorfile *file = NULL;
    if (mem_printf(&path, "%s/%s", folder, name) != ERR_OK)
        return true;
    if (tensorfile_open(path, true, &file) == ERR_OK && tensorfile_meta_u64(file, "version", &version) != ERR_OK)
        version = 0;
    tensorfile_close(file);
    mem_free(path);
    return version > 0;
}

bool store_in(const char *folder)
{
    DIR *dir = opendir(folder);
    const char *name;
    bool found = false;
    while (dir != NULL && !found && (name = next_fragment(dir)) != NULL)
        found = has_version(folder, name);
    if (dir != NULL)
        closedir(dir);
    return found;
}

/* To the first name that is free: the given one, and a number. */
static enum err move_aside(const char *path)
{
    for (int i = 1; i < ASIDE_MAX; i++) {
        char *aside;
        TRY(mem_printf(&aside, "%s.%d", path, i));
        bool taken = access(aside, F_OK) == 0;
        enum err err = taken || rename(path, aside) == 0 || errno == ENOENT
                           ? ERR_OK
                           : fsio_failed(ERR_IO, "%s: cannot put aside", path);
        mem_free(aside);
        if (!taken)
            return err;
    }
    return err_set(ERR_IO, "%s: cannot put aside: remove some of those that were before", path);
}

enum err store_put_aside(const char *folder, bool other_run)
{
    enum err err;
    char *plan = NULL, *damaged = NULL, *worker = NULL;
    TRY_OUT(mem_printf(&plan, "%s/%s", folder, plan_file));
    TRY_OUT(mem_printf(&damaged, "%s.damaged", plan));
    TRY_OUT(mem_printf(&worker, "%s/worker", folder));
    if (other_run)
        TRY_OUT(move_aside(worker));
    if (other_run)
        err = move_aside(plan);
    else if (rename(plan, damaged) != 0)
        err = fsio_failed(ERR_IO, "%s: cannot put aside", plan);
out:
    mem_free(plan);
    mem_free(damaged);
    mem_free(worker);
    return err;
}

/* ---- the anchor for people ---- */

struct store_export {
    const struct runspec *spec;
    const struct model_plan *plan;
    struct tensorfile_writer *writer;
    struct tensorfile_tensor *tensors;
    uint64_t *first;               /* of each tensor: the file's value that it begins with */
    struct store_fragment *states; /* of each fragment: what is in the file */
};

/* A version in the header, and what comes between two. */
enum { VERSION_DIGITS = 20, VERSION_BYTES = VERSION_DIGITS + 1 };

/* "12,0,9". */
static enum err versions_text(const struct store_export *export, bool longest, char **text, uint64_t *step)
{
    uint32_t fragments = export->plan->plan->fragments_count;
    size_t at = 0;
    TRY(mem_new((size_t)fragments * VERSION_BYTES + 1, 1, "the versions", text));
    *step = 0;
    for (uint32_t f = 0; f < fragments; f++) {
        uint64_t version = longest ? UINT64_MAX : export->states[f].version;
        at += (size_t)snprintf(*text + at, VERSION_BYTES + 1, "%s%" PRIu64, f > 0 ? "," : "", version);
        *step = export->states[f].step > *step ? export->states[f].step : *step;
    }
    if (longest)
        *step = UINT64_MAX;
    return ERR_OK;
}

/* Begins the file at `path` with a header as long as it may become; or ends it with the one that is true. */
static enum err put_header(struct store_export *export, const char *path)
{
    enum err err;
    char *text = NULL, *versions = NULL, step_text[32];
    uint64_t step;
    uint32_t count = export->plan->tensors_count;
    TRY_OUT(runspec_text(export->spec, &text));
    TRY_OUT(versions_text(export, path != NULL, &versions, &step));
    snprintf(step_text, sizeof step_text, "%" PRIu64, step);
    const struct tensorfile_meta meta[] = {
        {"format", "diloco anchor 1"}, {"step", step_text}, {"versions", versions}, {"run_spec", text}};
    enum { META = sizeof meta / sizeof meta[0] };
    if (path != NULL) {
        err = tensorfile_create(path, export->tensors, count, meta, META, &export->writer);
    } else {
        err = tensorfile_commit_as(export->writer, export->tensors, count, meta, META);
        export->writer = NULL;
    }
out:
    mem_free(versions);
    mem_free(text);
    return err;
}

enum err store_export_begin(const char *folder, const struct runspec *spec, const struct model_plan *plan,
                            struct store_export **out)
{
    enum err err;
    char *path = NULL;
    struct store_export *export = NULL;
    uint64_t at = 0;
    *out = NULL;
    TRY_OUT(mem_printf(&path, "%s/anchor.safetensors", folder));
    TRY_OUT(mem_new(1, sizeof *export, "the exported anchor", &export));
    *export = (struct store_export){.spec = spec, .plan = plan};
    TRY_OUT(mem_new(plan->tensors_count, sizeof *export->tensors, "tensor names", &export->tensors));
    TRY_OUT(mem_new(plan->tensors_count, sizeof *export->first, "tensor names", &export->first));
    TRY_OUT(mem_new(plan->plan->fragments_count, sizeof *export->states, "versions", &export->states));
    for (uint32_t i = 0; i < plan->tensors_count; i++) {
        struct tensorfile_tensor *tensor = &export->tensors[i];
        *tensor = (struct tensorfile_tensor){.name = plan->tensors[i].name, .dims = plan->tensors[i].dims};
        memcpy(tensor->shape, plan->tensors[i].shape, sizeof tensor->shape);
        export->first[i] = at;
        at += plan->plan->tensors[i].count;
    }
    TRY_OUT(put_header(export, path));
out:
    mem_free(path);
    if (err != ERR_OK)
        store_export_free(export);
    else
        *out = export;
    return err;
}

enum err store_export_fragment(struct store_export *export, struct replica *replica, uint32_t f,
                               const struct store_fragment *state)
{
    const struct plan *plan = export->plan->plan;
    export->states[f] = *state;
    for (uint32_t i = 0; i < export->plan->tensors_count; i++) {
        const struct plan_tensor *tensor = &plan->tensors[i];
        if (tensor->fragment == f)
            TRY(tensorfile_write_at(export->writer, export->first[i], replica_anchor(replica, f) + tensor->offset,
                                    tensor->count));
    }
    return ERR_OK;
}

enum err store_export_end(struct store_export *export)
{
    return put_header(export, NULL);
}

void store_export_free(struct store_export *export)
{
    if (export == NULL)
        return;
    tensorfile_abort(export->writer);
    mem_free(export->tensors);
    mem_free(export->first);
    mem_free(export->states);
    mem_free(export);
}
