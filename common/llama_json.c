/* SPDX-License-Identifier: Apache-2.0 */
#include "common/llama_json.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/mem.h"

/* Of the published code, where a config.json leaves it out. */
static const double rope_theta_usual = 10000, norm_eps_usual = 1e-6, init_std_usual = 0.02;
enum { CONTEXT_USUAL = 2048 };
/* More than any key of a run spec takes, and far from where products of two overflow. */
enum { WHOLE_MAX = 1 << 30 };

/* ---- reading ---- */

struct reader {
    const char *path;
    const json_t *root;
};

static enum err refuse(const struct reader *r, const char *key, const char *why)
{
    return err_set(ERR_CONF, "%s: %s %s; only models that compute as LlamaForCausalLM by its defaults can be taken in",
                   r->path, key, why);
}

/* A member that says something. */
static const json_t *member(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return json_is_null(value) ? NULL : value;
}

/* `usual` -1: there is none. */
static enum err whole(const struct reader *r, const char *key, int64_t usual, int64_t *out)
{
    const json_t *value = member(r->root, key);
    *out = value != NULL ? (int64_t)json_integer_value(value) : usual;
    if (value == NULL && usual < 0)
        return err_set(ERR_CONF, "%s: %s is missing; it is no config.json of a Llama model", r->path, key);
    if ((value != NULL && !json_is_integer(value)) || *out < 1 || *out > WHOLE_MAX)
        return err_set(ERR_CONF, "%s: %s is no whole number from 1 to %d", r->path, key, WHOLE_MAX);
    return ERR_OK;
}

static enum err real_in(const struct reader *r, const json_t *object, const char *key, double usual, double *out)
{
    const json_t *value = member(object, key);
    *out = value != NULL ? json_number_value(value) : usual;
    if ((value != NULL && !json_is_number(value)) || !isfinite(*out) || *out <= 0)
        return err_set(ERR_CONF, "%s: %s is no number above 0", r->path, key);
    return ERR_OK;
}

static bool is_true(const json_t *object, const char *key)
{
    return json_is_true(json_object_get(object, key));
}

/* What it says, as it can be printed: it may be anything. */
static const char *text_of(const json_t *value, char *text, size_t text_bytes)
{
    const char *from = json_string_value(value);
    size_t i = 0;
    for (; from != NULL && from[i] != '\0' && i + 1 < text_bytes; i++)
        text[i] = from[i];
    text[i] = '\0';
    for (i = 0; text[i] != '\0'; i++)
        text[i] = text[i] < ' ' || text[i] > '~' ? '?' : text[i];
    return i > 0 ? text : "nothing";
}

static enum err check_architecture(const struct reader *r)
{
    char said[64];
    const json_t *list = member(r->root, "architectures");
    const json_t *type = member(r->root, "model_type");
    if (list != NULL) {
        text_of(json_array_get(list, 0), said, sizeof said);
        if (json_array_size(list) != 1 || (strcmp(said, "LlamaForCausalLM") != 0 && strcmp(said, "LlamaModel") != 0))
            return err_set(ERR_CONF, "%s: is a %s; only LlamaForCausalLM can be taken in", r->path,
                           json_array_size(list) > 0 ? said : "model of no architecture");
    } else if (type == NULL) {
        return err_set(ERR_CONF, "%s: says neither architectures nor model_type; it is no config.json of a model",
                       r->path);
    }
    if (type != NULL && strcmp(text_of(type, said, sizeof said), "llama") != 0)
        return err_set(ERR_CONF, "%s: is a model of type %s; only LlamaForCausalLM can be taken in", r->path, said);
    return ERR_OK;
}

/* Positions other than plain ones. The newer name of it holds the base, too. */
static enum err read_rope(const struct reader *r, double *theta)
{
    static const char *const names[] = {"rope_scaling", "rope_parameters"};
    const json_t *from = r->root;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const json_t *rope = member(r->root, names[i]);
        const json_t *type = member(rope, "rope_type") != NULL ? member(rope, "rope_type") : member(rope, "type");
        char said[64], why[100];
        snprintf(why, sizeof why, "is of type %s", text_of(type, said, sizeof said));
        bool plain = json_is_object(rope) && (type == NULL || strcmp(said, "default") == 0);
        if (rope != NULL && !plain)
            return refuse(r, names[i], why);
        if (member(rope, "rope_theta") != NULL)
            from = rope;
        if (member(rope, "partial_rotary_factor") != NULL &&
            json_number_value(member(rope, "partial_rotary_factor")) != 1)
            return refuse(r, names[i], "turns a part of each head only");
    }
    return real_in(r, from, "rope_theta", rope_theta_usual, theta);
}

/* What ours has not. */
static enum err check_extras(const struct reader *r, const struct llama_config *config)
{
    char said[64];
    const json_t *act = member(r->root, "hidden_act");
    const json_t *partial = member(r->root, "partial_rotary_factor");
    int64_t head_dim;
    if (act != NULL && strcmp(text_of(act, said, sizeof said), "silu") != 0)
        return refuse(r, "hidden_act", "is not silu");
    if (is_true(r->root, "attention_bias"))
        return refuse(r, "attention_bias", "is true");
    if (is_true(r->root, "mlp_bias"))
        return refuse(r, "mlp_bias", "is true");
    if (member(r->root, "quantization_config") != NULL)
        return refuse(r, "quantization_config", "is there");
    if (partial != NULL && json_number_value(partial) != 1)
        return refuse(r, "partial_rotary_factor", "is not 1");
    if (config->width % config->heads != 0)
        return refuse(r, "hidden_size", "is no multiple of num_attention_heads");
    TRY(whole(r, "head_dim", config->width / config->heads, &head_dim));
    if (head_dim != config->width / config->heads)
        return refuse(r, "head_dim", "is not hidden_size over num_attention_heads");
    return ERR_OK;
}

static enum err read_root(const struct reader *r, struct llama_config *c)
{
    TRY(check_architecture(r));
    TRY(whole(r, "vocab_size", -1, &c->vocab));
    TRY(whole(r, "hidden_size", -1, &c->width));
    TRY(whole(r, "num_hidden_layers", -1, &c->layers));
    TRY(whole(r, "num_attention_heads", -1, &c->heads));
    TRY(whole(r, "num_key_value_heads", c->heads, &c->kv_heads));
    TRY(whole(r, "intermediate_size", -1, &c->ff));
    TRY(whole(r, "max_position_embeddings", CONTEXT_USUAL, &c->context));
    TRY(real_in(r, r->root, "rms_norm_eps", norm_eps_usual, &c->norm_eps));
    TRY(real_in(r, r->root, "initializer_range", init_std_usual, &c->init_std));
    TRY(read_rope(r, &c->rope_theta));
    c->tied = is_true(r->root, "tie_word_embeddings");
    return check_extras(r, c);
}

enum err llama_json_parse(const char *text, size_t bytes, const char *path, struct llama_config *out)
{
    json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, NULL);
    struct reader reader = {.path = path, .root = root};
    enum err err = ERR_OK;
    *out = (struct llama_config){0};
    if (!json_is_object(root))
        err = err_set(ERR_CORRUPT, "%s: not a JSON object; copy or download it again", path);
    else
        err = read_root(&reader, out);
    json_decref(root);
    return err;
}

/* ---- writing ---- */

static const char *torch_name(enum dtype dtype)
{
    return dtype == DTYPE_BF16 ? "bfloat16" : dtype == DTYPE_F16 ? "float16" : "float32";
}

/* Beginning and end of a text are null: no token is taken for them, where the published code's defaults would be. */
enum err llama_json_text(const struct llama_config *c, enum dtype dtype, char **text)
{
    json_t *root = json_pack(
        "{s:[s], s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:f, s:f, s:n, s:f, s:b, s:b, s:b, s:f, s:n, s:n, "
        "s:n, s:b, s:s}",
        "architectures", "LlamaForCausalLM", "model_type", "llama", "vocab_size", (json_int_t)c->vocab, "hidden_size",
        (json_int_t)c->width, "intermediate_size", (json_int_t)c->ff, "num_hidden_layers", (json_int_t)c->layers,
        "num_attention_heads", (json_int_t)c->heads, "num_key_value_heads", (json_int_t)c->kv_heads, "head_dim",
        (json_int_t)(c->width / c->heads), "max_position_embeddings", (json_int_t)c->context, "hidden_act", "silu",
        "rms_norm_eps", c->norm_eps, "rope_theta", c->rope_theta, "rope_scaling", "initializer_range", c->init_std,
        "tie_word_embeddings", c->tied, "attention_bias", 0, "mlp_bias", 0, "attention_dropout", 0.0, "bos_token_id",
        "eos_token_id", "pad_token_id", "use_cache", 1, "torch_dtype", torch_name(dtype));
    char *dump = root != NULL ? json_dumps(root, JSON_INDENT(2) | JSON_PRESERVE_ORDER) : NULL;
    json_decref(root);
    if (dump == NULL)
        return err_set(ERR_NOMEM, "out of memory for a config.json");
    enum err err = mem_printf(text, "%s\n", dump);
    free(dump);
    return err;
}
