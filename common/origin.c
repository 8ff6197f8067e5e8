/* SPDX-License-Identifier: Apache-2.0 */
#include "common/origin.h"

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/bytes.h"
#include "common/mem.h"

enum { PIECE_VALUES = 1 << 18, CONTEXT_MAX = 1024, BYTES_VOCABULARY = 256 };
static const char tag[16] = "diloco init 1";

/* ---- the digest ---- */

struct summer {
    const struct modelfiles *files;
    struct digest_state state;
    float piece[PIECE_VALUES];
};

static enum err check_finite(const struct llama_tensor *tensor, const float *values, uint64_t first, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!isfinite(values[i]))
            return err_set(ERR_NONFINITE,
                           "tensor %s holds NaN or Inf, first as value %" PRIu64 ": no model that training can begin "
                           "from; take another",
                           tensor->name, first + i);
    return ERR_OK;
}

/* Name and a zero byte, number of dimensions, dimensions, values. */
static enum err add_tensor(struct summer *s, const struct llama_tensor *tensor)
{
    uint8_t raw[24];
    size_t index;
    struct bytes_writer shape = bytes_writer_init(raw, sizeof raw);
    TRY(modelfiles_find(s->files, tensor, &index));
    bytes_put_u64(&shape, tensor->dims);
    for (uint32_t d = 0; d < tensor->dims; d++)
        bytes_put_u64(&shape, tensor->shape[d]);
    digest_add(&s->state, tensor->name, strlen(tensor->name) + 1);
    digest_add(&s->state, raw, (1 + tensor->dims) * sizeof(uint64_t));
    for (uint64_t at = 0; at < tensor->count; at += PIECE_VALUES) {
        size_t count = tensor->count - at < PIECE_VALUES ? (size_t)(tensor->count - at) : PIECE_VALUES;
        TRY(modelfiles_read(s->files, index, at, count, s->piece));
        TRY(check_finite(tensor, s->piece, at, count));
        digest_add(&s->state, s->piece, count * sizeof *s->piece);
    }
    return ERR_OK;
}

enum err origin_digest(const struct modelfiles *files, const struct llama_config *config, struct digest *digest)
{
    enum err err;
    struct summer *s = NULL;
    struct llama_tensor *tensors = NULL;
    size_t count;
    TRY_OUT(mem_new(1, sizeof *s, "a model's digest", &s));
    TRY_OUT(llama_tensors(config, &tensors, &count));
    llama_sort(tensors, count);
    s->files = files;
    digest_begin(&s->state);
    digest_add(&s->state, tag, sizeof tag);
    for (size_t i = 0; i < count; i++)
        TRY_OUT(add_tensor(s, &tensors[i]));
    *digest = digest_end(&s->state);
out:
    mem_free(tensors);
    mem_free(s);
    return err;
}

enum err origin_check(const struct modelfiles *files, const char *path, const struct runspec *spec)
{
    struct llama_config config;
    struct digest digest;
    char hex[DIGEST_HEX_BYTES];
    TRY(modelfiles_config(files, &config));
    TRY(llama_config_check(&config, path, spec));
    TRY(origin_digest(files, &config, &digest));
    if (strcmp(digest_hex(&digest, hex), spec->init_digest) == 0)
        return ERR_OK;
    return err_set(ERR_CONF,
                   "%s: is another model than the run begins from: its digest is %.16s..., and [run] init_digest "
                   "%.16s...; put the run's model there, or leave init empty to get it from the other islands",
                   path, hex, spec->init_digest);
}

/* ---- a run spec for it ---- */

enum { OVERRIDE_BYTES = 512, MODEL_OVERRIDES = 14, INIT_OVERRIDES = 2 };

struct maker {
    const struct origin_base *base;
    char text[MODEL_OVERRIDES + INIT_OVERRIDES][OVERRIDE_BYTES];
    size_t count;
    char place[PATH_MAX];
};

__attribute__((format(printf, 2, 3))) static enum err say(struct maker *maker, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(maker->text[maker->count++], OVERRIDE_BYTES, format, arguments);
    va_end(arguments);
    return length < OVERRIDE_BYTES ? ERR_OK
                                   : err_set(ERR_CONF,
                                             "%s: the path is longer than a run spec takes; give the folder a "
                                             "shorter name",
                                             maker->place);
}

static enum err load(const struct maker *maker, bool with_users, struct runspec *spec)
{
    struct conf_override all[MODEL_OVERRIDES + INIT_OVERRIDES + ORIGIN_OVERRIDES_MAX];
    const struct origin_base *base = maker->base;
    size_t count = 0;
    for (; count < maker->count; count++)
        all[count].text = maker->text[count];
    for (size_t i = 0; with_users && i < base->overrides_count && i < ORIGIN_OVERRIDES_MAX; i++)
        all[count++] = base->overrides[i];
    return base->file != NULL ? runspec_load(base->file, all, count, spec)
                              : runspec_parse_with(base->text, base->name, all, count, spec);
}

static enum err say_model(struct maker *maker, const struct llama_config *c)
{
    TRY(say(maker, "run.init=")); /* of the file, whatever it says */
    TRY(say(maker, "run.init_digest="));
    TRY(say(maker, "model.vocab=%" PRId64, c->vocab));
    TRY(say(maker, "model.width=%" PRId64, c->width));
    TRY(say(maker, "model.layers=%" PRId64, c->layers));
    TRY(say(maker, "model.heads=%" PRId64, c->heads));
    TRY(say(maker, "model.kv_heads=%" PRId64, c->kv_heads));
    TRY(say(maker, "model.ff=%" PRId64, c->ff));
    TRY(say(maker, "model.rope_theta=%.17g", c->rope_theta));
    TRY(say(maker, "model.norm_eps=%.17g", c->norm_eps));
    TRY(say(maker, "model.tied=%s", c->tied ? "yes" : "no"));
    if (maker->base->file == NULL) {
        TRY(say(maker, "model.context=%" PRId64, c->context < CONTEXT_MAX ? c->context : CONTEXT_MAX));
        TRY(say(maker, "model.init_std=%.17g", c->init_std));
    }
    /* What tokens there are nobody knows but who made them: a vocabulary of bytes is told by its size alone. */
    return c->vocab != BYTES_VOCABULARY ? say(maker, "data.format=tokens") : ERR_OK;
}

/* Its own first, so that what does not do is the model's; then as the user changes it. */
static enum err check_base(struct maker *maker, const struct llama_config *config, const char *path)
{
    struct runspec spec;
    enum err err = load(maker, false, &spec);
    if (err != ERR_OK)
        return err_prefix(err, "%s", path);
    runspec_deinit(&spec);
    TRY(load(maker, true, &spec));
    err = llama_config_check(config, path, &spec);
    runspec_deinit(&spec);
    return err;
}

static enum err say_beginning(struct maker *maker, const struct modelfiles *files, const struct llama_config *config)
{
    struct digest digest;
    char hex[DIGEST_HEX_BYTES];
    enum err err = origin_digest(files, config, &digest);
    if (err != ERR_OK)
        return err_prefix(err, "%s", maker->place);
    TRY(say(maker, "run.init=%s", maker->place));
    return say(maker, "run.init_digest=%s", digest_hex(&digest, hex));
}

enum err origin_spec(const char *path, const struct origin_base *base, bool begins, struct runspec *spec)
{
    enum err err;
    struct llama_config config;
    struct modelfiles *files = NULL;
    struct maker *maker = NULL;
    TRY_OUT(mem_new(1, sizeof *maker, "a run spec", &maker));
    maker->base = base;
    TRY_OUT(modelfiles_open(path, false, &files));
    TRY_OUT(modelfiles_config(files, &config));
    if (realpath(path, maker->place) == NULL) {
        err = err_set_errno(ERR_IO, "%s: cannot find out where it is", path);
        goto out;
    }
    TRY_OUT(say_model(maker, &config));
    TRY_OUT(check_base(maker, &config, path));
    if (begins)
        TRY_OUT(say_beginning(maker, files, &config));
    err = load(maker, true, spec);
out:
    modelfiles_close(files);
    mem_free(maker);
    return err;
}
