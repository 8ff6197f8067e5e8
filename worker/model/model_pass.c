/* SPDX-License-Identifier: Apache-2.0 */
/* The forward and backward pass, and decoding one token at a time. */
#include "worker/model/model.h"

#include <string.h>

#include "worker/model/model_layout.h"
#include "worker/model/model_shares.h"
#include "worker/model/model_work.h"

static const kern_act *weight(const struct model *m, int64_t offset)
{
    return (const char *)m->act + (size_t)offset * m->kern->act_bytes;
}

static kern_act *row_of(const struct model *m, kern_act *base, int64_t row, int64_t width)
{
    return (char *)base + (size_t)(row * width) * m->kern->act_bytes;
}

static struct kern_linear shape(int64_t R, int64_t K, int64_t N)
{
    return (struct kern_linear){.R = R, .K = K, .N = N, .ld = N};
}

/* Values of a row of queries, keys and values, as many as this rank has. */
static int64_t heads_width(const struct model *m)
{
    return (m->part.H + 2 * m->part.G) * m->D;
}

/* out(rows,C) = inp(rows,K) w(C,K)^T, where each rank of the row has some of the K columns. */
static enum err project(struct model *m, kern_act *out, const kern_act *inp, int64_t w, int64_t rows, int64_t K)
{
    m->kern->linear_fwd(m->dev, out, inp, weight(m, w), shape(rows, K, m->C));
    model_row_begin(m);
    return model_row_sum(m, out, rows * m->C);
}

/* One layer over `rows` rows. `stream` is the residual stream so far; `add` the last projection, not yet added to it
 * (NULL in the first layer, and where `stream` is y->resid1 itself, with all added). Leaves the new stream in
 * y->resid2, and in y->hidden what layer_project() goes on with. */
static enum err layer_forward(struct model *m, struct model_layer *y, const kern_act *stream, const kern_act *add,
                              int64_t rows)
{
    const struct kern *k = m->kern;
    struct model_work *w = m->work;
    struct kern_attention dims = model_attention(m);
    int64_t wide = heads_width(m), F = m->part.F;
    k->rmsnorm_fwd(m->dev, y->normed1, y->rstd1, y->resid1, stream, add, weight(m, y->norm1), rows, m->C, m->eps);
    k->linear_fwd(m->dev, y->heads, y->normed1, weight(m, y->qkv), shape(rows, m->C, wide));
    k->rope(m->dev, y->heads, w->cos_sin, rows, m->T, wide, m->part.H + m->part.G, m->D, false);
    k->attention_fwd(m->dev, y->attended, y->lse, y->heads, &dims, w->scratch);
    TRY(project(m, w->proj, y->attended, y->out, rows, m->part.H * m->D));
    k->rmsnorm_fwd(m->dev, y->normed2, y->rstd2, y->resid2, add != NULL ? y->resid1 : stream, w->proj,
                   weight(m, y->norm2), rows, m->C, m->eps);
    k->linear_fwd(m->dev, y->gu, y->normed2, weight(m, y->gate_up), shape(rows, m->C, 2 * F));
    k->swiglu_fwd(m->dev, y->hidden, y->gu, rows, F);
    return ERR_OK;
}

static enum err forward(struct model *m)
{
    const struct kern *k = m->kern;
    struct model_work *w = m->work;
    int64_t rows = m->B * m->T;
    /* The first layer's norm reads the embedding itself, so that is where the embedding goes. Of a row one rank has
     * it, the others have zeros. */
    kern_act *first = w->layers[0].resid1;
    k->embed_fwd(m->dev, first, w->tokens, weight(m, w->embed), rows, m->C, m->part.first, m->part.V);
    model_row_begin(m);
    TRY(model_row_sum(m, first, rows * m->C));
    const kern_act *stream = first;
    for (int64_t l = 0; l < m->L; l++) {
        struct model_layer *y = &w->layers[l];
        TRY(layer_forward(m, y, stream, l > 0 ? w->proj : NULL, rows));
        TRY(project(m, w->proj, y->hidden, y->down, rows, m->part.F));
        stream = y->resid2;
    }
    k->rmsnorm_fwd(m->dev, w->normed_final, w->rstd_final, w->resid_final, stream, w->proj, weight(m, w->norm_final),
                   rows, m->C, m->eps);
    return ERR_OK;
}

/* Losses of `n` rows from `r` on, of which the logits are there; with `scale` these become their gradients. */
static enum err losses(struct model *m, int64_t r, int64_t n, float scale)
{
    const struct kern *k = m->kern;
    struct model_work *w = m->work;
    const int32_t *targets = w->targets + r;
    struct kern_logits logits = {.R = n, .V = m->part.V, .ld = w->logits_ld, .first = m->part.first};
    if (m->grid.of_row == NULL) {
        k->cross_entropy(m->dev, w->losses + r, w->logits, targets, logits, scale);
        return ERR_OK;
    }
    k->loss_part(m->dev, w->stats + m->grid.column * n * 3, w->logits, targets, logits);
    TRY(model_row_gather(m, w->stats, n * 3));
    k->loss_join(m->dev, w->losses + r, w->lse, w->stats, m->grid.tp, n);
    if (scale != 0)
        k->loss_back(m->dev, w->logits, w->lse, targets, logits, scale);
    return ERR_OK;
}

/* Logits, losses and, with `scale`, the gradients of head and final norm's output, some rows at a time. */
static enum err head(struct model *m, float scale)
{
    const struct kern *k = m->kern;
    struct model_work *w = m->work;
    int64_t rows = m->B * m->T;
    for (int64_t r = 0; r < rows; r += w->chunk) {
        int64_t n = rows - r < w->chunk ? rows - r : w->chunk;
        const kern_act *normed = row_of(m, w->normed_final, r, m->C);
        struct kern_linear linear = {.R = n, .K = m->C, .N = m->part.V, .ld = w->logits_ld};
        k->linear_fwd(m->dev, w->logits, normed, weight(m, w->head), linear);
        TRY(losses(m, r, n, scale));
        if (scale == 0)
            continue;
        k->linear_bwd_w(m->dev, m->grad + w->head, w->logits, normed, linear);
        k->linear_bwd_inp(m->dev, row_of(m, w->d_normed, r, m->C), w->logits, weight(m, w->head), linear, false);
    }
    if (scale == 0)
        return ERR_OK;
    model_row_begin(m);
    return model_row_sum(m, w->d_normed, rows * m->C);
}

/* Makes again what of a layer's forward pass was not kept. A stream that was stored is what its norm has seen, rounded
 * as it is, so all values come out as before. */
static enum err layer_again(struct model *m, struct model_layer *y, int64_t rows)
{
    const struct kern *k = m->kern;
    if (m->work->recompute == MODEL_RECOMPUTE_LAYER)
        return layer_forward(m, y, y->resid1, NULL, rows);
    if (m->work->recompute != MODEL_RECOMPUTE_NORMS)
        return ERR_OK;
    k->rmsnorm_fwd(m->dev, y->normed1, y->rstd1, NULL, y->resid1, NULL, weight(m, y->norm1), rows, m->C, m->eps);
    k->rmsnorm_fwd(m->dev, y->normed2, y->rstd2, NULL, y->resid2, NULL, weight(m, y->norm2), rows, m->C, m->eps);
    k->swiglu_fwd(m->dev, y->hidden, y->gu, rows, m->part.F);
    return ERR_OK;
}

/* Of out(rows,N) = inp(rows,C) w(N,C)^T, where each rank of the row has some of the N columns: work->d_normed(rows,C),
 * of which the ranks' parts are summed while dw is computed. */
static enum err project_back(struct model *m, int64_t w, const kern_act *dout, const kern_act *inp, int64_t rows,
                             int64_t N)
{
    struct kern_linear dims = shape(rows, m->C, N);
    m->kern->linear_bwd_inp(m->dev, m->work->d_normed, dout, weight(m, w), dims, false);
    model_row_begin(m);
    m->kern->linear_bwd_w(m->dev, m->grad + w, dout, inp, dims);
    return model_row_sum(m, m->work->d_normed, rows * m->C);
}

static enum err layer_backward(struct model *m, struct model_layer *y, int64_t rows)
{
    const struct kern *k = m->kern;
    struct model_work *w = m->work;
    struct kern_attention dims = model_attention(m);
    struct kern_linear out = shape(rows, m->part.H * m->D, m->C), down = shape(rows, m->part.F, m->C);
    int64_t wide = heads_width(m), F = m->part.F;
    k->linear_bwd_w(m->dev, m->grad + y->down, w->d_resid, y->hidden, down);
    k->linear_bwd_inp(m->dev, w->d_narrow, w->d_resid, weight(m, y->down), down, false);
    k->swiglu_bwd(m->dev, w->d_wide, w->d_narrow, y->gu, rows, F);
    TRY(project_back(m, y->gate_up, w->d_wide, y->normed2, rows, 2 * F));
    k->rmsnorm_bwd(m->dev, w->d_resid, m->grad + y->norm2, w->d_normed, y->resid2, weight(m, y->norm2), y->rstd2, rows,
                   m->C);
    k->linear_bwd_w(m->dev, m->grad + y->out, w->d_resid, y->attended, out);
    k->linear_bwd_inp(m->dev, w->d_narrow, w->d_resid, weight(m, y->out), out, false);
    k->attention_bwd(m->dev, w->d_wide, w->d_narrow, y->attended, y->heads, y->lse, &dims, w->scratch);
    k->rope(m->dev, w->d_wide, w->cos_sin, rows, m->T, wide, m->part.H + m->part.G, m->D, true);
    TRY(project_back(m, y->qkv, w->d_wide, y->normed1, rows, wide));
    k->rmsnorm_bwd(m->dev, w->d_resid, m->grad + y->norm1, w->d_normed, y->resid1, weight(m, y->norm1), y->rstd1, rows,
                   m->C);
    return ERR_OK;
}

static enum err backward(struct model *m)
{
    const struct kern *k = m->kern;
    struct model_work *w = m->work;
    int64_t rows = m->B * m->T;
    k->zero(m->dev, w->d_resid, (size_t)(rows * m->C) * k->act_bytes);
    k->rmsnorm_bwd(m->dev, w->d_resid, m->grad + w->norm_final, w->d_normed, w->resid_final, weight(m, w->norm_final),
                   w->rstd_final, rows, m->C);
    if (!m->tied)
        TRY(model_bucket_done(m, MODEL_BUCKET_LAYERS + (int)m->L));
    for (int64_t l = m->L - 1; l >= 0; l--) {
        if (l < m->L - 1) /* of the last layer all is there still */
            TRY(layer_again(m, &w->layers[l], rows));
        TRY(layer_backward(m, &w->layers[l], rows));
        TRY(model_bucket_done(m, MODEL_BUCKET_LAYERS + (int)l));
    }
    TRY(model_bucket_done(m, MODEL_BUCKET_NORMS));
    k->embed_bwd(m->dev, m->grad + w->embed, w->d_resid, w->tokens, rows, m->C, m->part.first, m->part.V);
    return model_bucket_done(m, MODEL_BUCKET_EMBED);
}

/* Tokens and targets to the device, by way of memory that the caller does not have to keep. */
static enum err feed(struct model *m, const int32_t *tokens, const int32_t *targets)
{
    const struct kern *k = m->kern;
    struct model_work *w = m->work;
    size_t rows = (size_t)(m->B * m->T);
    struct model_feed *feed = &w->feeds[w->fed++ % MODEL_FEEDS];
    int32_t *host = feed->host.bytes;
    if (feed->mark != 0)
        TRY(k->wait(m->dev, feed->mark));
    memcpy(host, tokens, rows * sizeof *tokens);
    memcpy(host + rows, targets, rows * sizeof *targets);
    k->copy(m->dev, KERN_MAIN, w->tokens, host, rows * sizeof *tokens);
    k->copy(m->dev, KERN_MAIN, w->targets, host + rows, rows * sizeof *targets);
    feed->mark = k->mark(m->dev, KERN_MAIN);
    return ERR_OK;
}

enum err model_train(struct model *m, const int32_t *tokens, const int32_t *targets, double scale)
{
    int64_t rows = m->B * m->T;
    if (!m->work->train)
        return err_set(ERR_STATE, "this model was made without gradients");
    double of_each = scale / (double)(rows * m->grid.dp);
    TRY(feed(m, tokens, targets));
    TRY(forward(m));
    TRY(head(m, (float)of_each));
    m->kern->add_losses(m->dev, m->loss, m->work->losses, rows, of_each);
    TRY(backward(m));
    return m->kern->fault(m->dev);
}

enum err model_loss(struct model *m, const int32_t *tokens, const int32_t *targets, double *loss)
{
    const struct kern *k = m->kern;
    int64_t rows = m->B * m->T;
    TRY(feed(m, tokens, targets));
    TRY(forward(m));
    TRY(head(m, 0));
    k->zero(m->dev, m->work->loss, sizeof *m->work->loss);
    k->add_losses(m->dev, m->work->loss, m->work->losses, rows, 1 / (double)rows);
    k->copy(m->dev, KERN_MAIN, loss, m->work->loss, sizeof *loss);
    TRY(k->sync(m->dev));
    return model_check(m);
}

/* ---- decoding ---- */

void model_decode_reset(struct model *m)
{
    m->work->decoded = 0;
}

/* Keys and values of one layer. */
static size_t cache_bytes(const struct model *m)
{
    return (size_t)(2 * m->T * m->G * m->D) * m->kern->act_bytes;
}

uint64_t model_decode_memory(const struct model *m)
{
    return (uint64_t)m->L * cache_bytes(m) + (uint64_t)m->V * sizeof(float);
}

static enum err ensure_caches(struct model *m)
{
    size_t bytes = cache_bytes(m);
    for (int64_t l = 0; l < m->L; l++)
        if (m->work->layers[l].cache == NULL)
            TRY(m->kern->alloc(m->dev, bytes, "the decoding cache", &m->work->layers[l].cache));
    if (m->work->logits_float == NULL)
        TRY(m->kern->alloc(m->dev, (size_t)m->V * sizeof(float), "logits", (void **)&m->work->logits_float));
    return ERR_OK;
}

/* As layer_forward(), for the one row at position `at`, with keys and values of earlier positions from the cache. */
static void layer_decode(struct model *m, struct model_layer *y, const kern_act *stream, const kern_act *add,
                         int64_t at)
{
    const struct kern *k = m->kern;
    struct model_work *w = m->work;
    struct kern_attention dims = model_attention(m);
    int64_t wide = heads_width(m);
    k->rmsnorm_fwd(m->dev, y->normed1, y->rstd1, y->resid1, stream, add, weight(m, y->norm1), 1, m->C, m->eps);
    k->linear_fwd(m->dev, y->heads, y->normed1, weight(m, y->qkv), shape(1, m->C, wide));
    k->rope(m->dev, y->heads, w->cos_sin + at * m->D, 1, 1, wide, m->H + m->G, m->D, false);
    k->attention_decode(m->dev, y->attended, y->heads, y->cache, at, &dims, w->scratch);
    k->linear_fwd(m->dev, w->proj, y->attended, weight(m, y->out), shape(1, m->H * m->D, m->C));
    k->rmsnorm_fwd(m->dev, y->normed2, y->rstd2, y->resid2, add != NULL ? y->resid1 : stream, w->proj,
                   weight(m, y->norm2), 1, m->C, m->eps);
    k->linear_fwd(m->dev, y->gu, y->normed2, weight(m, y->gate_up), shape(1, m->C, 2 * m->F));
    k->swiglu_fwd(m->dev, y->hidden, y->gu, 1, m->F);
    k->linear_fwd(m->dev, w->proj, y->hidden, weight(m, y->down), shape(1, m->F, m->C));
}

enum err model_decode(struct model *m, int32_t token, float *logits)
{
    const struct kern *k = m->kern;
    struct model_work *w = m->work;
    if (m->ranks > 1)
        return err_set(ERR_STATE, "decoding is for a model that is whole on one rank");
    if (w->decoded >= m->T)
        return err_set(ERR_STATE, "the context of %lld tokens is full", (long long)m->T);
    TRY(ensure_caches(m));
    k->copy(m->dev, KERN_MAIN, w->tokens, &token, sizeof token);
    k->embed_fwd(m->dev, w->layers[0].resid1, w->tokens, weight(m, w->embed), 1, m->C, 0, m->V);
    const kern_act *stream = w->layers[0].resid1;
    for (int64_t l = 0; l < m->L; l++) {
        layer_decode(m, &w->layers[l], stream, l > 0 ? w->proj : NULL, w->decoded);
        stream = w->layers[l].resid2;
    }
    k->rmsnorm_fwd(m->dev, w->normed_final, w->rstd_final, w->resid_final, stream, w->proj, weight(m, w->norm_final), 1,
                   m->C, m->eps);
    k->linear_fwd(m->dev, w->logits, w->normed_final, weight(m, w->head), shape(1, m->C, m->V));
    k->from_act(m->dev, w->logits_float, w->logits, m->V);
    k->copy(m->dev, KERN_MAIN, logits, w->logits_float, (size_t)m->V * sizeof *logits);
    w->decoded++;
    return k->sync(m->dev);
}
