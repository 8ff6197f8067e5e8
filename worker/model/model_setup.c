/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/model/model.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/env.h"
#include "common/mem.h"
#include "worker/model/model_layout.h"
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

/* ---- the model ---- */

/* The matrices that linear layers have, as they lie in the flat array, in rising order. Caller frees them. */
static enum err list_matrices(const struct model *m, struct kern_matrix **out, size_t *count)
{
    const struct model_work *work = m->work;
    int64_t heads = (m->part.H + 2 * m->part.G) * m->D;
    const struct kern_matrix head = {work->head, m->part.V, m->C};
    size_t n = 0;
    TRY(mem_new((size_t)m->L * 4 + 1, sizeof **out, "the model's matrices", out));
    if (m->tied)
        (*out)[n++] = head;
    for (int64_t l = 0; l < m->L; l++) {
        const struct model_layer *y = &work->layers[l];
        (*out)[n++] = (struct kern_matrix){y->qkv, heads, m->C};
        (*out)[n++] = (struct kern_matrix){y->out, m->C, m->part.H * m->D};
        (*out)[n++] = (struct kern_matrix){y->gate_up, 2 * m->part.F, m->C};
        (*out)[n++] = (struct kern_matrix){y->down, m->C, m->part.F};
    }
    if (!m->tied)
        (*out)[n++] = head;
    *count = n;
    return ERR_OK;
}

static enum err keep_matrices(struct model *m)
{
    struct kern_matrix *matrices;
    size_t count;
    TRY(list_matrices(m, &matrices, &count));
    enum err err = m->kern->weights_new(m->dev, m->act, matrices, count, m->work->train, &m->kept);
    mem_free(matrices);
    return err;
}

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
    int64_t heads = (m->part.H + 2 * m->part.G) * m->D;
    int64_t most = m->C > 2 * m->part.F ? m->C : 2 * m->part.F;
    return most > heads ? most : heads;
}

static int64_t most_logits(const struct model *m)
{
    return m->work->chunk * m->work->logits_ld;
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
    model->grid = conf->grid;
    model->grid.dp = conf->grid.dp > 1 ? conf->grid.dp : 1;
    model->grid.tp = conf->grid.tp > 1 ? conf->grid.tp : 1;
    model->rank = model->grid.row * model->grid.tp + model->grid.column;
    model->ranks = model->grid.dp * model->grid.tp;
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
    TRY_OUT(model_layout(model, spec->init_std));
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
    TRY_OUT(kern->reserve(dev, model->B * model->T, most_columns(model), most_logits(model)));
    TRY_OUT(alloc_params(model));
    TRY_OUT(keep_matrices(model));
    TRY_OUT(model_work_new(model));
    TRY_OUT(put_angles(model, spec->rope_theta));
out:
    if (err != ERR_OK)
        model_free(model);
    else
        *out = model;
    return err;
}

/* What the table keeps of the matrices; ERR_NOMEM only for the list of them. */
static enum err kept_bytes(const struct model *m, uint64_t *bytes)
{
    struct kern_matrix *matrices;
    size_t count;
    TRY(list_matrices(m, &matrices, &count));
    *bytes = m->kern->weights_bytes(m->dev, matrices, count, m->work->train);
    mem_free(matrices);
    return ERR_OK;
}

enum err model_memory(struct model *model, struct model_memory *out)
{
    uint64_t count = (uint64_t)model->flat_count, kept;
    uint64_t act = model->kern->act_bytes;
    bool copy = act != sizeof(float) || model->ranks > 1;
    TRY(kept_bytes(model, &kept));
    *out = (struct model_memory){.masters = (uint64_t)model->own_count * sizeof(float),
                                 .copy = (copy ? count * act : 0) + kept,
                                 .gradients = model->work->train ? count * sizeof(float) : 0,
                                 .activations = sizeof *model->loss,
                                 .scratch = model->kern->reserve_bytes(model->dev, model->B * model->T,
                                                                       most_columns(model), most_logits(model))};
    model_work_memory(model, out);
    return ERR_OK;
}

void model_free(struct model *model)
{
    if (model == NULL)
        return;
    if (model->work != NULL)
        model_work_free(model);
    model->kern->weights_free(model->dev, model->kept);
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

/* ---- whole tensors in host memory ---- */

/* Values from one row of the whole tensor to the next. */
static int64_t width_of(const struct model_tensor *tensor)
{
    return tensor->dims > 1 ? (int64_t)tensor->shape[1] : tensor->count;
}

/* Of each column in turn: from all its ranks to the gradients' memory, from there to its place in `to`. */
enum err model_read(struct model *model, const struct model_tensor *tensor, const float *own, float *to)
{
    int64_t width = width_of(tensor);
    for (int column = 0; column < model_parts(model, tensor); column++) {
        struct model_part part = model_part_of(model, tensor, column);
        const float *from = own + tensor->offset;
        size_t bytes = (size_t)part.columns * sizeof *to;
        if (model->ranks > 1)
            TRY(model_gather(model, tensor, column, own, &from));
        if (to != NULL)
            model->kern->copy_rows(model->dev, KERN_MAIN, to + part.row * width + part.column,
                                   (size_t)width * sizeof *to, from, bytes, bytes, (size_t)part.rows);
    }
    if (model->ranks > 1)
        model_gathered_end(model, tensor);
    TRY(model->kern->sync(model->dev));
    return model_check(model);
}

static int64_t rows_of(const struct model_tensor *tensor)
{
    return tensor->dims > 1 ? (int64_t)tensor->shape[0] : 1;
}

/* The share may begin and end in the midst of a row of the part. */
enum err model_write_rows(struct model *model, const struct model_tensor *tensor, float *own, int64_t row, int64_t rows,
                          const float *from)
{
    struct model_share share = model_share(model, tensor);
    const struct model_part *part = &tensor->part;
    int64_t width = width_of(tensor), first = (row - part->row) * part->columns, last = first + rows * part->columns;
    int64_t end = share.first + share.count < last ? share.first + share.count : last;
    for (int64_t at = share.first > first ? share.first : first; at < end;) {
        int64_t r = at / part->columns, column = at % part->columns;
        int64_t whole = column == 0 && end - at > part->columns ? (end - at) / part->columns : 1;
        int64_t rest = end - at < part->columns - column ? end - at : part->columns - column;
        size_t bytes = (size_t)rest * sizeof *own;
        model->kern->copy_rows(model->dev, KERN_MAIN, own + share.at + at - share.first, bytes,
                               from + (part->row + r - row) * width + part->column + column,
                               (size_t)width * sizeof *from, bytes, (size_t)whole);
        at += (whole - 1) * part->columns + rest;
    }
    return model->kern->sync(model->dev);
}

enum err model_write(struct model *model, const struct model_tensor *tensor, float *own, const float *from)
{
    return model_write_rows(model, tensor, own, 0, rows_of(tensor), from);
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
