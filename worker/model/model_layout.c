/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/model/model_layout.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "common/mem.h"
#include "worker/model/model_work.h"

/* 64 bytes of fp32: the widest vectors begin on that. */
enum { ALIGN_VALUES = 16, TENSORS_PER_LAYER = 9 };

static int64_t round_up(int64_t value, int64_t unit)
{
    return (value + unit - 1) / unit * unit;
}

/* ---- what a column has ---- */

static enum err divide(const struct model *model, const char *key, int64_t whole, int64_t *part)
{
    *part = whole / model->grid.tp;
    if (whole % model->grid.tp == 0)
        return ERR_OK;
    return err_set(ERR_CONF,
                   "[model] %s %" PRId64 " cannot be shared out evenly among %d tensor-parallel ranks; take a "
                   "--tensor-parallel that divides it, or 1",
                   key, whole, model->grid.tp);
}

static enum err cut(struct model *model)
{
    struct model_extent *part = &model->part;
    int64_t tp = model->grid.tp, column = model->grid.column;
    TRY(divide(model, "heads", model->H, &part->H));
    TRY(divide(model, "kv_heads", model->G, &part->G));
    TRY(divide(model, "ff", model->F, &part->F));
    if (model->V < tp)
        return err_set(ERR_CONF, "[model] vocab %" PRId64 " is less than %" PRId64 " tensor-parallel ranks", model->V,
                       tp);
    /* Odd vocabularies are usual: parts differ by one. */
    part->first = model->V * column / tp;
    part->V = model->V * (column + 1) / tp - part->first;
    part->V_most = (model->V + tp - 1) / tp;
    return ERR_OK;
}

/* ---- the list of tensors ---- */

struct lister {
    struct model *model;
    int next;
    int64_t norms;  /* where the next norm goes */
    int64_t offset; /* where the next matrix goes */
};

static struct model_tensor *add(struct lister *lister, int32_t layer, const char *name, uint64_t rows, uint64_t columns,
                                double init_std)
{
    struct model_tensor *tensor = &lister->model->tensors[lister->next++];
    if (layer >= 0)
        snprintf(tensor->name, sizeof tensor->name, "model.layers.%" PRId32 ".%s.weight", layer, name);
    else
        snprintf(tensor->name, sizeof tensor->name, "%s.weight", name);
    tensor->layer = layer;
    tensor->dims = columns > 0 ? 2 : 1;
    tensor->shape[0] = rows;
    tensor->shape[1] = columns;
    tensor->count = (int64_t)(rows * (columns > 0 ? columns : 1));
    tensor->decay = columns > 0;
    tensor->init_std = init_std;
    lister->model->params_count += tensor->count;
    return tensor;
}

/* These return where the tensor lies. */

static int64_t add_norm(struct lister *lister, int32_t layer, const char *name)
{
    int64_t C = lister->model->C;
    struct model_tensor *tensor = add(lister, layer, name, (uint64_t)C, 0, 0);
    tensor->part = (struct model_part){.rows = 1, .columns = C};
    tensor->offset = lister->norms;
    lister->norms += round_up(C, ALIGN_VALUES);
    return tensor->offset;
}

/* (rows, columns), of which `part` is here and `room` values are kept free for it. `aligned` false: it must follow the
 * one before without a gap, so that the two are one matrix to a product. */
static int64_t add_matrix(struct lister *lister, int32_t layer, const char *name, const int64_t shape[2],
                          struct model_part part, double init_std, bool aligned)
{
    struct model_tensor *tensor = add(lister, layer, name, (uint64_t)shape[0], (uint64_t)shape[1], init_std);
    if (aligned)
        lister->offset = round_up(lister->offset, ALIGN_VALUES);
    tensor->part = part;
    tensor->offset = lister->offset;
    lister->offset += part.rows * part.columns;
    return tensor->offset;
}

/* The column's share of the rows, or of the columns. */
static int64_t add_by_rows(struct lister *lister, int32_t layer, const char *name, int64_t rows, int64_t columns,
                           double init_std, bool aligned)
{
    const struct model_grid *grid = &lister->model->grid;
    int64_t own = rows / grid->tp;
    return add_matrix(lister, layer, name, (int64_t[2]){rows, columns},
                      (struct model_part){grid->column * own, own, 0, columns}, init_std, aligned);
}

static int64_t add_by_columns(struct lister *lister, int32_t layer, const char *name, int64_t rows, int64_t columns,
                              double init_std)
{
    const struct model_grid *grid = &lister->model->grid;
    int64_t own = columns / grid->tp;
    return add_matrix(lister, layer, name, (int64_t[2]){rows, columns},
                      (struct model_part){0, rows, grid->column * own, own}, init_std, true);
}

/* The buckets of all columns are equally large. */
static int64_t add_by_vocabulary(struct lister *lister, const char *name, double init_std)
{
    struct model *model = lister->model;
    const struct model_extent *part = &model->part;
    int64_t offset = add_matrix(lister, -1, name, (int64_t[2]){model->V, model->C},
                                (struct model_part){part->first, part->V, 0, model->C}, init_std, true);
    lister->offset = offset + part->V_most * model->C;
    return offset;
}

static void list_layer(struct lister *lister, int32_t l, double std)
{
    struct model *model = lister->model;
    struct model_layer *layer = &model->work->layers[l];
    int64_t q = model->H * model->D, kv = model->G * model->D;
    double back = std / sqrt(2.0 * (double)model->L);
    layer->norm1 = add_norm(lister, l, "input_layernorm");
    layer->qkv = add_by_rows(lister, l, "self_attn.q_proj", q, model->C, std, true);
    add_by_rows(lister, l, "self_attn.k_proj", kv, model->C, std, false);
    add_by_rows(lister, l, "self_attn.v_proj", kv, model->C, std, false);
    layer->out = add_by_columns(lister, l, "self_attn.o_proj", model->C, q, back);
    layer->norm2 = add_norm(lister, l, "post_attention_layernorm");
    layer->gate_up = add_by_rows(lister, l, "mlp.gate_proj", model->F, model->C, std, true);
    add_by_rows(lister, l, "mlp.up_proj", model->F, model->C, std, false);
    layer->down = add_by_columns(lister, l, "mlp.down_proj", model->C, model->F, back);
}

/* Values from the last bucket on to `end` are one: as many whole lines as a column has ranks. Who has masters of it
 * has an equal part. */
static void end_bucket(struct model *model, int64_t *end, bool masters)
{
    int64_t dp = model->grid.dp;
    struct model_bucket *bucket = &model->buckets[model->buckets_count++];
    bucket->begin = model->flat_count;
    bucket->count = round_up(*end - bucket->begin, ALIGN_VALUES * dp);
    bucket->at = model->own_count;
    bucket->own = masters ? bucket->count / dp : 0;
    model->own_count += bucket->own;
    model->flat_count = bucket->begin + bucket->count;
    *end = model->flat_count;
}

enum err model_layout(struct model *model, double std)
{
    int64_t norms = (2 * model->L + 1) * round_up(model->C, ALIGN_VALUES);
    size_t count = (size_t)model->L * TENSORS_PER_LAYER + 2 + (model->tied ? 0 : 1);
    TRY(cut(model));
    TRY(mem_new(count, sizeof *model->tensors, "the model's tensors", &model->tensors));
    TRY(mem_new((size_t)model->L + 3, sizeof *model->buckets, "the model's tensors", &model->buckets));
    end_bucket(model, &norms, model->grid.column == 0);
    struct lister lister = {.model = model, .offset = norms};
    model->work->embed = add_by_vocabulary(&lister, "model.embed_tokens", std);
    end_bucket(model, &lister.offset, true);
    for (int32_t l = 0; l < model->L; l++) {
        list_layer(&lister, l, std);
        end_bucket(model, &lister.offset, true);
    }
    model->work->norm_final = add_norm(&lister, -1, "model.norm");
    model->work->head = model->work->embed;
    if (!model->tied) {
        model->work->head = add_by_vocabulary(&lister, "lm_head", std);
        end_bucket(model, &lister.offset, true);
    }
    model->tensors_count = lister.next;
    return ERR_OK;
}
