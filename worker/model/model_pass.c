/* The forward and backward pass, and decoding one token at a time. */
#include "worker/model/model.h"

#include "worker/model/model_work.h"

static const kern_act *weight(const struct model *m, int64_t offset)
{
    return (const char *)m->act + (size_t)offset * m->kern->act_bytes;
}

static kern_act *row_of(const struct model *m, kern_act *base, int64_t row, int64_t width)
{
    return (char *)base + (size_t)(row * width) * m->kern->act_bytes;
}

/* One layer over `rows` rows. `stream` is the residual stream so far; `add` the last projection, not yet added to it
 * (NULL in the first layer). Leaves the new stream in y->resid2 and the next projection in work->proj. */
static void layer_forward(struct model *m, struct model_layer *y, const kern_act *stream, const kern_act *add,
                          int64_t rows)
{
    const struct kern *k = m->kern;
    struct model_work *w = m->work;
    struct kern_attention dims = model_attention(m);
    int64_t heads_width = (m->H + 2 * m->G) * m->D;
    k->rmsnorm_fwd(m->dev, y->normed1, y->rstd1, y->resid1, stream, add, weight(m, y->norm1), rows, m->C, m->eps);
    k->linear_fwd(m->dev, y->heads, y->normed1, weight(m, y->qkv), rows, m->C, heads_width);
    k->rope(m->dev, y->heads, w->cos_sin, rows, m->T, heads_width, m->H + m->G, m->D, false);
    k->attention_fwd(m->dev, y->attended, y->lse, y->heads, &dims, w->scratch);
    k->linear_fwd(m->dev, w->proj, y->attended, weight(m, y->out), rows, m->H * m->D, m->C);
    k->rmsnorm_fwd(m->dev, y->normed2, y->rstd2, y->resid2, add != NULL ? y->resid1 : stream, w->proj,
                   weight(m, y->norm2), rows, m->C, m->eps);
    k->linear_fwd(m->dev, y->gu, y->normed2, weight(m, y->gate_up), rows, m->C, 2 * m->F);
    k->swiglu_fwd(m->dev, y->hidden, y->gu, rows, m->F);
    k->linear_fwd(m->dev, w->proj, y->hidden, weight(m, y->down), rows, m->F, m->C);
}

static void forward(struct model *m)
{
    const struct kern *k = m->kern;
    struct model_work *w = m->work;
    int64_t rows = m->B * m->T;
    /* The first layer's norm reads the embedding itself, so that is where the embedding goes. */
    k->embed_fwd(m->dev, w->layers[0].resid1, w->tokens, weight(m, w->embed), rows, m->C);
    const kern_act *stream = w->layers[0].resid1;
    for (int64_t l = 0; l < m->L; l++) {
        layer_forward(m, &w->layers[l], stream, l > 0 ? w->proj : NULL, rows);
        stream = w->layers[l].resid2;
    }
    k->rmsnorm_fwd(m->dev, w->normed_final, w->rstd_final, w->resid_final, stream, w->proj, weight(m, w->norm_final),
                   rows, m->C, m->eps);
}

/* Logits, losses and, with `scale`, the gradients of head and final norm's output, some rows at a time. */
static void head(struct model *m, float scale)
{
    const struct kern *k = m->kern;
    struct model_work *w = m->work;
    int64_t rows = m->B * m->T;
    for (int64_t r = 0; r < rows; r += w->chunk) {
        int64_t n = rows - r < w->chunk ? rows - r : w->chunk;
        const kern_act *normed = row_of(m, w->normed_final, r, m->C);
        k->linear_fwd(m->dev, w->logits, normed, weight(m, w->head), n, m->C, m->V);
        k->cross_entropy(m->dev, w->losses + r, w->logits, w->targets + r, n, m->V, scale);
        if (scale == 0)
            continue;
        k->linear_bwd_w(m->dev, m->grad + w->head, w->logits, normed, n, m->C, m->V);
        k->linear_bwd_inp(m->dev, row_of(m, w->d_normed, r, m->C), w->logits, weight(m, w->head), n, m->C, m->V, false);
    }
}

static void layer_backward(struct model *m, struct model_layer *y, int64_t rows)
{
    const struct kern *k = m->kern;
    struct model_work *w = m->work;
    struct kern_attention dims = model_attention(m);
    int64_t heads_width = (m->H + 2 * m->G) * m->D;
    k->linear_bwd_w(m->dev, m->grad + y->down, w->d_resid, y->hidden, rows, m->F, m->C);
    k->linear_bwd_inp(m->dev, w->d_narrow, w->d_resid, weight(m, y->down), rows, m->F, m->C, false);
    k->swiglu_bwd(m->dev, w->d_wide, w->d_narrow, y->gu, rows, m->F);
    k->linear_bwd_w(m->dev, m->grad + y->gate_up, w->d_wide, y->normed2, rows, m->C, 2 * m->F);
    k->linear_bwd_inp(m->dev, w->d_normed, w->d_wide, weight(m, y->gate_up), rows, m->C, 2 * m->F, false);
    k->rmsnorm_bwd(m->dev, w->d_resid, m->grad + y->norm2, w->d_normed, y->resid2, weight(m, y->norm2), y->rstd2, rows,
                   m->C);
    k->linear_bwd_w(m->dev, m->grad + y->out, w->d_resid, y->attended, rows, m->H * m->D, m->C);
    k->linear_bwd_inp(m->dev, w->d_narrow, w->d_resid, weight(m, y->out), rows, m->H * m->D, m->C, false);
    k->attention_bwd(m->dev, w->d_wide, w->d_narrow, y->attended, y->heads, y->lse, &dims, w->scratch);
    k->rope(m->dev, w->d_wide, w->cos_sin, rows, m->T, heads_width, m->H + m->G, m->D, true);
    k->linear_bwd_w(m->dev, m->grad + y->qkv, w->d_wide, y->normed1, rows, m->C, heads_width);
    k->linear_bwd_inp(m->dev, w->d_normed, w->d_wide, weight(m, y->qkv), rows, m->C, heads_width, false);
    k->rmsnorm_bwd(m->dev, w->d_resid, m->grad + y->norm1, w->d_normed, y->resid1, weight(m, y->norm1), y->rstd1, rows,
                   m->C);
}

static void backward(struct model *m)
{
    const struct kern *k = m->kern;
    struct model_work *w = m->work;
    int64_t rows = m->B * m->T;
    k->zero(m->dev, w->d_resid, (size_t)(rows * m->C) * k->act_bytes);
    k->rmsnorm_bwd(m->dev, w->d_resid, m->grad + w->norm_final, w->d_normed, w->resid_final, weight(m, w->norm_final),
                   w->rstd_final, rows, m->C);
    for (int64_t l = m->L - 1; l >= 0; l--)
        layer_backward(m, &w->layers[l], rows);
    k->embed_bwd(m->dev, m->grad + w->embed, w->d_resid, w->tokens, rows, m->C);
}

static enum err run(struct model *m, const int32_t *tokens, const int32_t *targets, double scale, double *loss)
{
    struct model_work *w = m->work;
    size_t rows = (size_t)(m->B * m->T);
    m->kern->upload(m->dev, w->tokens, tokens, rows * sizeof *tokens);
    m->kern->upload(m->dev, w->targets, targets, rows * sizeof *targets);
    forward(m);
    head(m, (float)(scale / (double)rows));
    if (scale != 0)
        backward(m);
    m->kern->download(m->dev, w->losses_host, w->losses, rows * sizeof *w->losses_host);
    double sum = 0;
    for (size_t r = 0; r < rows; r++)
        sum += (double)w->losses_host[r];
    *loss = sum / (double)rows;
    return m->kern->sync(m->dev);
}

enum err model_train(struct model *m, const int32_t *tokens, const int32_t *targets, double scale, double *loss)
{
    if (!m->work->train)
        return err_set(ERR_STATE, "this model was made without gradients");
    return run(m, tokens, targets, scale, loss);
}

enum err model_loss(struct model *m, const int32_t *tokens, const int32_t *targets, double *loss)
{
    return run(m, tokens, targets, 0, loss);
}

/* ---- decoding ---- */

void model_decode_reset(struct model *m)
{
    m->work->decoded = 0;
}

static enum err ensure_caches(struct model *m)
{
    size_t bytes = (size_t)(2 * m->T * m->G * m->D) * m->kern->act_bytes;
    for (int64_t l = 0; l < m->L; l++)
        if (m->work->layers[l].cache == NULL)
            TRY(m->kern->alloc(m->dev, bytes, "the decoding cache", &m->work->layers[l].cache));
    return ERR_OK;
}

/* As layer_forward(), for the one row at position `at`, with keys and values of earlier positions from the cache. */
static void layer_decode(struct model *m, struct model_layer *y, const kern_act *stream, const kern_act *add,
                         int64_t at)
{
    const struct kern *k = m->kern;
    struct model_work *w = m->work;
    struct kern_attention dims = model_attention(m);
    int64_t heads_width = (m->H + 2 * m->G) * m->D;
    k->rmsnorm_fwd(m->dev, y->normed1, y->rstd1, y->resid1, stream, add, weight(m, y->norm1), 1, m->C, m->eps);
    k->linear_fwd(m->dev, y->heads, y->normed1, weight(m, y->qkv), 1, m->C, heads_width);
    k->rope(m->dev, y->heads, w->cos_sin + at * m->D, 1, 1, heads_width, m->H + m->G, m->D, false);
    k->attention_decode(m->dev, y->attended, y->heads, y->cache, at, &dims, w->scratch);
    k->linear_fwd(m->dev, w->proj, y->attended, weight(m, y->out), 1, m->H * m->D, m->C);
    k->rmsnorm_fwd(m->dev, y->normed2, y->rstd2, y->resid2, add != NULL ? y->resid1 : stream, w->proj,
                   weight(m, y->norm2), 1, m->C, m->eps);
    k->linear_fwd(m->dev, y->gu, y->normed2, weight(m, y->gate_up), 1, m->C, 2 * m->F);
    k->swiglu_fwd(m->dev, y->hidden, y->gu, 1, m->F);
    k->linear_fwd(m->dev, w->proj, y->hidden, weight(m, y->down), 1, m->F, m->C);
}

enum err model_decode(struct model *m, int32_t token, float *logits)
{
    const struct kern *k = m->kern;
    struct model_work *w = m->work;
    if (w->decoded >= m->T)
        return err_set(ERR_STATE, "the context of %lld tokens is full", (long long)m->T);
    TRY(ensure_caches(m));
    k->upload(m->dev, w->tokens, &token, sizeof token);
    k->embed_fwd(m->dev, w->layers[0].resid1, w->tokens, weight(m, w->embed), 1, m->C);
    const kern_act *stream = w->layers[0].resid1;
    for (int64_t l = 0; l < m->L; l++) {
        layer_decode(m, &w->layers[l], stream, l > 0 ? w->proj : NULL, w->decoded);
        stream = w->layers[l].resid2;
    }
    k->rmsnorm_fwd(m->dev, w->normed_final, w->rstd_final, w->resid_final, stream, w->proj, weight(m, w->norm_final), 1,
                   m->C, m->eps);
    k->linear_fwd(m->dev, w->logits, w->normed_final, weight(m, w->head), 1, m->C, m->V);
    k->download_act(m->dev, logits, w->logits, m->V);
    w->decoded++;
    return k->sync(m->dev);
}
