/* SPDX-License-Identifier: Apache-2.0 */
#include "common/llama.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/mem.h"

enum { LAYER_TENSORS = 9, OTHER_TENSORS = 3 };

/* ---- tensors ---- */

static void add(struct llama_tensor *tensors, size_t *count, int32_t layer, const char *name, int64_t rows,
                int64_t columns)
{
    struct llama_tensor *tensor = &tensors[(*count)++];
    if (layer >= 0)
        snprintf(tensor->name, sizeof tensor->name, "model.layers.%" PRId32 ".%s.weight", layer, name);
    else
        snprintf(tensor->name, sizeof tensor->name, "%s.weight", name);
    tensor->dims = columns > 0 ? 2 : 1;
    tensor->shape[0] = (uint64_t)rows;
    tensor->shape[1] = (uint64_t)columns;
    tensor->count = (uint64_t)rows * (uint64_t)(columns > 0 ? columns : 1);
}

enum err llama_tensors(const struct llama_config *config, struct llama_tensor **out, size_t *count)
{
    int64_t C = config->width, F = config->ff, kv = config->width / config->heads * config->kv_heads;
    struct llama_tensor *t;
    *count = 0;
    TRY(mem_new((size_t)config->layers * LAYER_TENSORS + OTHER_TENSORS, sizeof **out, "tensor names", out));
    t = *out;
    add(t, count, -1, "model.embed_tokens", config->vocab, C);
    for (int32_t l = 0; l < config->layers; l++) {
        add(t, count, l, "input_layernorm", C, 0);
        add(t, count, l, "self_attn.q_proj", C, C);
        add(t, count, l, "self_attn.k_proj", kv, C);
        add(t, count, l, "self_attn.v_proj", kv, C);
        add(t, count, l, "self_attn.o_proj", C, C);
        add(t, count, l, "post_attention_layernorm", C, 0);
        add(t, count, l, "mlp.gate_proj", F, C);
        add(t, count, l, "mlp.up_proj", F, C);
        add(t, count, l, "mlp.down_proj", C, F);
    }
    add(t, count, -1, "model.norm", C, 0);
    if (!config->tied)
        add(t, count, -1, "lm_head", config->vocab, C);
    return ERR_OK;
}

static int by_name(const void *left, const void *right)
{
    const struct llama_tensor *a = left, *b = right;
    return strcmp(a->name, b->name);
}

void llama_sort(struct llama_tensor *tensors, size_t count)
{
    qsort(tensors, count, sizeof *tensors, by_name);
}

/* ---- numbers ---- */

struct llama_config llama_config_of(const struct runspec *spec)
{
    return (struct llama_config){.vocab = spec->vocab,
                                 .width = spec->width,
                                 .layers = spec->layers,
                                 .heads = spec->heads,
                                 .kv_heads = spec->kv_heads,
                                 .ff = spec->ff,
                                 .rope_theta = spec->rope_theta,
                                 .norm_eps = spec->norm_eps,
                                 .tied = spec->tied,
                                 .context = spec->context,
                                 .init_std = spec->init_std};
}

static enum err differs(const char *path, const char *key, const char *expected, const char *found)
{
    return err_set(ERR_CONF,
                   "%s: [model] %s is %s in the run spec, and %s there; diloco-worker spec --from %s prints a run spec "
                   "that fits",
                   path, key, expected, found, path);
}

static enum err check_whole(const char *path, const char *key, int64_t expected, int64_t found)
{
    char left[32], right[32];
    if (expected == found)
        return ERR_OK;
    snprintf(left, sizeof left, "%" PRId64, expected);
    snprintf(right, sizeof right, "%" PRId64, found);
    return differs(path, key, left, right);
}

/* Published numbers have often been through single precision. */
static enum err check_real(const char *path, const char *key, double expected, double found)
{
    char left[32], right[32];
    if ((float)expected == (float)found)
        return ERR_OK;
    snprintf(left, sizeof left, "%.10g", expected);
    snprintf(right, sizeof right, "%.10g", found);
    return differs(path, key, left, right);
}

enum err llama_config_check(const struct llama_config *config, const char *path, const struct runspec *spec)
{
    struct llama_config want = llama_config_of(spec);
    TRY(check_whole(path, "vocab", want.vocab, config->vocab));
    TRY(check_whole(path, "width", want.width, config->width));
    TRY(check_whole(path, "layers", want.layers, config->layers));
    TRY(check_whole(path, "heads", want.heads, config->heads));
    TRY(check_whole(path, "kv_heads", want.kv_heads, config->kv_heads));
    TRY(check_whole(path, "ff", want.ff, config->ff));
    TRY(check_real(path, "rope_theta", want.rope_theta, config->rope_theta));
    TRY(check_real(path, "norm_eps", want.norm_eps, config->norm_eps));
    if (want.tied != config->tied)
        return differs(path, "tied", want.tied ? "yes" : "no", config->tied ? "yes" : "no");
    return ERR_OK;
}
