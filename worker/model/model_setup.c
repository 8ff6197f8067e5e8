#include "worker/model/model.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/env.h"
#include "common/mem.h"
#include "worker/comm/comm.h"
#include "worker/model/model_shares.h"
#include "worker/model/model_work.h"

/* ---- modes ---- */

static const char *const recompute_names[MODEL_RECOMPUTES] = {"none", "norms", "layer"};

const char *model_recompute_name(enum model_recompute recompute)
{
    return recompute_names[recompute];
}

enum err model_recompute_find(const char *name, enum model_recompute *out)
{
    for (int i = 0; i < MODEL_RECOMPUTES; i++) {
        if (strcmp(name, recompute_names[i]) != 0)
            continue;
        *out = (enum model_recompute)i;
        return ERR_OK;
    }
    return err_set(ERR_ARG, "--recompute %s: expected none, norms or layer", name);
}

/* ---- the list of tensors ---- */

/* 64 bytes of fp32: the widest vectors begin on that. */
enum { ALIGN_VALUES = 16 };

struct lister {
    struct model *model;
    int next;
    int64_t offset;
};

/* Adds a tensor and returns its offset. `aligned` false: it must follow the one before without a gap, so that the two
 * are one matrix to a product. */
static int64_t add_tensor(struct lister *lister, int32_t layer, const char *name, uint64_t rows, uint64_t columns,
                          double init_std, bool aligned)
{
    struct model *model = lister->model;
    struct model_tensor *tensor = &model->tensors[lister->next++];
    if (layer >= 0)
        snprintf(tensor->name, sizeof tensor->name, "model.layers.%" PRId32 ".%s.weight", layer, name);
    else
        snprintf(tensor->name, sizeof tensor->name, "%s.weight", name);
    if (aligned)
        lister->offset = (lister->offset + ALIGN_VALUES - 1) / ALIGN_VALUES * ALIGN_VALUES;
    tensor->layer = layer;
    tensor->dims = columns > 0 ? 2 : 1;
    tensor->shape[0] = rows;
    tensor->shape[1] = columns;
    tensor->count = (int64_t)(rows * (columns > 0 ? columns : 1));
    tensor->offset = lister->offset;
    tensor->decay = columns > 0;
    tensor->init_std = init_std;
    lister->offset += tensor->count;
    model->params_count += tensor->count;
    return tensor->offset;
}

static void list_layer(struct lister *lister, int32_t l, double std)
{
    struct model *model = lister->model;
    struct model_layer *layer = &model->work->layers[l];
    uint64_t C = (uint64_t)model->C;
    uint64_t F = (uint64_t)model->F;
    uint64_t q = (uint64_t)(model->H * model->D);
    uint64_t kv = (uint64_t)(model->G * model->D);
    double back = std / sqrt(2.0 * (double)model->L);
    layer->norm1 = add_tensor(lister, l, "input_layernorm", C, 0, 0, true);
    layer->qkv = add_tensor(lister, l, "self_attn.q_proj", q, C, std, true);
    add_tensor(lister, l, "self_attn.k_proj", kv, C, std, false);
    add_tensor(lister, l, "self_attn.v_proj", kv, C, std, false);
    layer->out = add_tensor(lister, l, "self_attn.o_proj", C, q, back, true);
    layer->norm2 = add_tensor(lister, l, "post_attention_layernorm", C, 0, 0, true);
    layer->gate_up = add_tensor(lister, l, "mlp.gate_proj", F, C, std, true);
    add_tensor(lister, l, "mlp.up_proj", F, C, std, false);
    layer->down = add_tensor(lister, l, "mlp.down_proj", C, F, back, true);
}

enum { TENSORS_PER_LAYER = 9 };

/* All since the last bucket is one: as many whole lines as there are ranks. */
static void end_bucket(struct lister *lister)
{
    struct model *model = lister->model;
    int64_t whole = (int64_t)ALIGN_VALUES * model->ranks;
    struct model_bucket *bucket = &model->buckets[model->buckets_count++];
    bucket->begin = model->flat_count;
    bucket->count = (lister->offset - bucket->begin + whole - 1) / whole * whole;
    model->flat_count = bucket->begin + bucket->count;
    lister->offset = model->flat_count;
}

static enum err list_tensors(struct model *model, double std)
{
    int count = (int)model->L * TENSORS_PER_LAYER + 2 + (model->tied ? 0 : 1);
    TRY(mem_new((size_t)count, sizeof *model->tensors, "the model's tensors", &model->tensors));
    TRY(mem_new((size_t)model->L + 2, sizeof *model->buckets, "the model's tensors", &model->buckets));
    struct lister lister = {.model = model};
    uint64_t V = (uint64_t)model->V;
    uint64_t C = (uint64_t)model->C;
    model->work->embed = add_tensor(&lister, -1, "model.embed_tokens", V, C, std, true);
    end_bucket(&lister);
    for (int32_t l = 0; l < model->L; l++) {
        list_layer(&lister, l, std);
        end_bucket(&lister);
    }
    model->work->norm_final = add_tensor(&lister, -1, "model.norm", C, 0, 0, true);
    model->work->head = model->work->embed;
    if (!model->tied)
        model->work->head = add_tensor(&lister, -1, "lm_head", V, C, std, true);
    end_bucket(&lister);
    model->tensors_count = lister.next;
    model->own_count = model->flat_count / model->ranks;
    return ERR_OK;
}

/* ---- the model ---- */

static enum err alloc_params(struct model *model)
{
    const struct kern *kern = model->kern;
    size_t count = (size_t)model->flat_count, own = (size_t)model->own_count;
    TRY(kern->alloc(model->dev, own * sizeof(float), "the model's parameters", (void **)&model->w));
    model->act = model->w;
    if (kern->act_bytes != sizeof(float) || model->ranks > 1)
        TRY(kern->alloc(model->dev, count * kern->act_bytes, "the model's parameters", &model->act));
    if (model->work->train)
        TRY(kern->alloc(model->dev, count * sizeof(float), "the gradients", (void **)&model->grad));
    return kern->alloc(model->dev, sizeof *model->loss, "the loss", (void **)&model->loss);
}

/* Of the rows that any operation of a pass works on. */
static int64_t most_columns(const struct model *m)
{
    int64_t heads = (m->H + 2 * m->G) * m->D;
    int64_t most = m->C > 2 * m->F ? m->C : 2 * m->F;
    return most > heads ? most : heads;
}

/* Angles in double from the definition, then rounded: libm's last bit does not reach a float. */
static enum err put_angles(struct model *model, double theta)
{
    float *table = NULL;
    size_t half = (size_t)model->D / 2;
    TRY(mem_new((size_t)model->T * half * 2, sizeof *table, "rotary positions", &table));
    for (size_t t = 0; t < (size_t)model->T; t++) {
        for (size_t i = 0; i < half; i++) {
            double angle = (double)t * pow(theta, -2.0 * (double)i / (double)model->D);
            table[(t * half + i) * 2] = (float)cos(angle);
            table[(t * half + i) * 2 + 1] = (float)sin(angle);
        }
    }
    model->kern->copy(model->dev, KERN_MAIN, model->work->cos_sin, table, (size_t)model->T * half * 2 * sizeof *table);
    enum err err = model->kern->sync(model->dev);
    mem_free(table);
    return err;
}

enum err model_outline(const struct runspec *spec, const struct kern *kern, struct kern_dev *dev,
                       const struct model_conf *conf, struct model **out)
{
    enum err err;
    struct model *model = NULL;
    *out = NULL;
    TRY_OUT(mem_new(1, sizeof *model, "the model", &model));
    model->kern = kern;
    model->dev = dev;
    model->V = spec->vocab;
    model->C = spec->width;
    model->L = spec->layers;
    model->H = spec->heads;
    model->G = spec->kv_heads;
    model->D = spec->width / spec->heads;
    model->F = spec->ff;
    model->T = spec->context;
    model->B = conf->batch;
    model->dp = conf->dp;
    model->rank = conf->dp != NULL ? conf->dp->rank : 0;
    model->ranks = conf->dp != NULL ? conf->dp->count : 1;
    model->tied = spec->tied;
    model->eps = (float)spec->norm_eps;
    if (!kern->has_head_size(model->D)) {
        err =
            err_set(ERR_CONF,
                    "[model] width %" PRId64 " over %" PRId64 " heads: device %s has no attention for heads of %" PRId64
                    " values; choose heads so that width / heads is 16, 32, 64 or 128",
                    model->C, model->H, kern->name, model->D);
        goto out;
    }
    TRY_OUT(mem_new(1, sizeof *model->work, "the model", &model->work));
    TRY_OUT(mem_new((size_t)model->L, sizeof *model->work->layers, "the model", &model->work->layers));
    TRY_OUT(list_tensors(model, spec->init_std));
    model_work_outline(model, conf);
out:
    if (err != ERR_OK)
        model_free(model);
    else
        *out = model;
    return err;
}

enum err model_new(const struct runspec *spec, const struct kern *kern, struct kern_dev *dev,
                   const struct model_conf *conf, struct model **out)
{
    enum err err;
    struct model *model;
    *out = NULL;
    TRY_OUT(model_outline(spec, kern, dev, conf, &model));
    TRY_OUT(kern->reserve(dev, model->B * model->T, most_columns(model)));
    TRY_OUT(alloc_params(model));
    TRY_OUT(model_work_new(model));
    TRY_OUT(put_angles(model, spec->rope_theta));
out:
    if (err != ERR_OK)
        model_free(model);
    else
        *out = model;
    return err;
}

struct model_memory model_memory(struct model *model)
{
    uint64_t count = (uint64_t)model->flat_count;
    uint64_t act = model->kern->act_bytes;
    bool copy = act != sizeof(float) || model->ranks > 1;
    struct model_memory memory = {.masters = (uint64_t)model->own_count * sizeof(float),
                                  .copy = copy ? count * act : 0,
                                  .gradients = model->work->train ? count * sizeof(float) : 0,
                                  .activations = sizeof *model->loss};
    model_work_memory(model, &memory);
    return memory;
}

void model_free(struct model *model)
{
    if (model == NULL)
        return;
    if (model->work != NULL)
        model_work_free(model);
    if (model->act != model->w)
        model->kern->free(model->dev, model->act);
    model->kern->free(model->dev, model->w);
    model->kern->free(model->dev, model->grad);
    model->kern->free(model->dev, model->loss);
    mem_free(model->tensors);
    mem_free(model->buckets);
    mem_free(model);
}

enum err model_init(struct model *model, uint64_t seed)
{
    enum err err = ERR_OK;
    float *host = NULL;
    int64_t most = 0;
    for (int i = 0; i < model->tensors_count; i++)
        most = model->tensors[i].count > most ? model->tensors[i].count : most;
    TRY(mem_new((size_t)most, sizeof *host, "initial parameters", &host));
    for (int i = 0; err == ERR_OK && i < model->tensors_count; i++) {
        const struct model_tensor *tensor = &model->tensors[i];
        struct env_rng rng = env_rng_init(seed, (uint64_t)i);
        for (int64_t k = 0; k < tensor->count; k++)
            host[k] = tensor->init_std > 0 ? (float)(tensor->init_std * env_rng_normal(&rng)) : 1.0f;
        err = model_write(model, tensor, model->w, host);
    }
    mem_free(host);
    TRY(err);
    TRY(model_refresh(model));
    return model->kern->sync(model->dev);
}

enum err model_read(struct model *model, const struct model_tensor *tensor, const float *own, float *to)
{
    const float *whole = model->ranks > 1 ? model->grad : own;
    if (model->ranks > 1)
        TRY(model_gather(model, tensor, own));
    model->kern->copy(model->dev, KERN_MAIN, to, whole + tensor->offset, (size_t)tensor->count * sizeof *to);
    if (model->ranks > 1)
        model_gathered_end(model, tensor);
    return model->kern->sync(model->dev);
}

enum err model_write(struct model *model, const struct model_tensor *tensor, float *own, const float *from)
{
    struct model_share share = model_share(model, tensor);
    if (share.count > 0)
        model->kern->copy(model->dev, KERN_MAIN, own + share.at, from + share.first,
                          (size_t)share.count * sizeof *from);
    return model->kern->sync(model->dev);
}

enum err model_refresh(struct model *model)
{
    for (int i = 0; i < model_pieces(model); i++) {
        struct model_piece piece = model_piece(model, i);
        model->kern->to_act(model->dev, model_act_of(model, model->w + piece.at), model->w + piece.at, piece.count);
    }
    return model_spread(model);
}

double model_train_flops(const struct model *model, int64_t tokens)
{
    double per_layer = (double)((model->H + 2 * model->G) * model->D) * (double)model->C +
                       (double)(model->H * model->D) * (double)model->C + 3.0 * (double)model->F * (double)model->C;
    double products = 6.0 * ((double)model->L * per_layer + (double)model->V * (double)model->C);
    /* Scores and their use, causal: half of 2 products forward and 4 backward over T keys. */
    double attention = (double)model->L * 6.0 * (double)model->T * (double)(model->H * model->D);
    return (products + attention) * (double)tokens;
}
