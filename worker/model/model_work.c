/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes are a function of the shape alone and are known at start. */
#include "worker/model/model_work.h"

#include "common/mem.h"

/* One list serves allocation, release and counting: each entry is a pointer's place and its size. */
struct entry {
    void **place;
    size_t bytes;
    bool own; /* false: of a layer, and not kept for the backward pass, so that the first layer's is for all */
};

enum { SHARED_ENTRIES = 18, LAYER_ENTRIES = 12 };

static int64_t max2(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static size_t list_shared(struct model *m, struct entry *list)
{
    struct model_work *w = m->work;
    size_t rows = (size_t)(m->B * m->T);
    size_t act = m->kern->act_bytes;
    size_t C = (size_t)m->C;
    size_t wide = (size_t)max2(2 * m->part.F, (m->part.H + 2 * m->part.G) * m->D);
    size_t narrow = (size_t)max2(m->part.F, m->part.H * m->D);
    size_t n = 0;
    struct kern_attention dims = model_attention(m);
    list[n++] = (struct entry){(void **)&w->tokens, rows * sizeof(int32_t), true};
    list[n++] = (struct entry){(void **)&w->targets, rows * sizeof(int32_t), true};
    list[n++] = (struct entry){(void **)&w->cos_sin, (size_t)(m->T * m->D) * sizeof(float), true};
    list[n++] = (struct entry){&w->resid_final, rows * C * act, true};
    list[n++] = (struct entry){&w->normed_final, rows * C * act, true};
    list[n++] = (struct entry){(void **)&w->rstd_final, rows * sizeof(float), true};
    list[n++] = (struct entry){&w->proj, rows * C * act, true};
    list[n++] = (struct entry){&w->logits, (size_t)w->chunk * (size_t)w->logits_ld * act, true};
    list[n++] = (struct entry){(void **)&w->losses, rows * sizeof(float), true};
    list[n++] = (struct entry){(void **)&w->loss, sizeof *w->loss, true};
    list[n++] = (struct entry){&w->scratch, m->kern->attention_scratch(m->dev, &dims), true};
    if (m->grid.tp > 1) {
        size_t stats = (size_t)(m->grid.tp * w->chunk * 3);
        list[n++] = (struct entry){(void **)&w->stats, stats * sizeof(float), true};
        list[n++] = (struct entry){(void **)&w->lse, (size_t)w->chunk * sizeof(float), true};
    }
    if (w->train) {
        list[n++] = (struct entry){&w->d_resid, rows * C * act, true};
        list[n++] = (struct entry){&w->d_normed, rows * C * act, true};
        list[n++] = (struct entry){&w->d_wide, rows * wide * act, true};
        list[n++] = (struct entry){&w->d_narrow, rows * narrow * act, true};
    }
    return n;
}

static size_t list_layer(struct model *m, int64_t l, struct entry *list)
{
    struct model_layer *y = &m->work->layers[l];
    size_t rows = (size_t)(m->B * m->T);
    size_t act = m->kern->act_bytes;
    size_t C = (size_t)m->C;
    bool input = m->work->train;
    bool most = input && m->work->recompute != MODEL_RECOMPUTE_LAYER;
    bool all = input && m->work->recompute == MODEL_RECOMPUTE_NONE;
    size_t n = 0;
    list[n++] = (struct entry){&y->resid1, rows * C * act, input};
    list[n++] = (struct entry){&y->normed1, rows * C * act, all};
    list[n++] = (struct entry){(void **)&y->rstd1, rows * sizeof(float), most};
    list[n++] = (struct entry){&y->heads, rows * (size_t)((m->part.H + 2 * m->part.G) * m->D) * act, most};
    list[n++] = (struct entry){&y->attended, rows * (size_t)(m->part.H * m->D) * act, most};
    list[n++] = (struct entry){(void **)&y->lse, rows * (size_t)m->part.H * sizeof(float), most};
    list[n++] = (struct entry){&y->resid2, rows * C * act, most};
    list[n++] = (struct entry){&y->normed2, rows * C * act, all};
    list[n++] = (struct entry){(void **)&y->rstd2, rows * sizeof(float), most};
    list[n++] = (struct entry){&y->gu, rows * (size_t)(2 * m->part.F) * act, most};
    list[n++] = (struct entry){&y->hidden, rows * (size_t)m->part.F * act, all};
    return n;
}

struct kern_attention model_attention(const struct model *m)
{
    return (struct kern_attention){.B = m->B, .T = m->T, .H = m->part.H, .G = m->part.G, .D = m->D};
}

void model_attention_by(const struct model *model, bool backward, char *text, size_t bytes)
{
    struct kern_attention dims = model_attention(model);
    model->kern->attention_by(model->dev, &dims, backward, text, bytes);
}

static enum err alloc_entry(struct model *m, const struct entry *entry)
{
    return m->kern->alloc(m->dev, entry->bytes, "activations", entry->place);
}

static enum err alloc_layer(struct model *m, int64_t l)
{
    struct entry first[LAYER_ENTRIES];
    struct entry list[LAYER_ENTRIES];
    size_t count = list_layer(m, l, list);
    list_layer(m, 0, first);
    for (size_t i = 0; i < count; i++) {
        if (l == 0 || list[i].own)
            TRY(alloc_entry(m, &list[i]));
        else
            *list[i].place = *first[i].place;
    }
    return ERR_OK;
}

void model_work_outline(struct model *m, const struct model_conf *conf)
{
    struct model_work *w = m->work;
    w->train = conf->train;
    w->recompute = conf->recompute;
    m->kern->logits_shape(m->B * m->T, m->part.V_most, &w->chunk, &w->logits_ld);
}

enum err model_work_new(struct model *m)
{
    struct model_work *w = m->work;
    struct entry list[SHARED_ENTRIES];
    size_t count = list_shared(m, list);
    for (size_t i = 0; i < count; i++)
        TRY(alloc_entry(m, &list[i]));
    for (int64_t l = 0; l < m->L; l++)
        TRY(alloc_layer(m, l));
    for (int i = 0; i < MODEL_FEEDS; i++)
        TRY(kern_host_new(m->kern, m->dev, 2 * (size_t)(m->B * m->T) * sizeof *w->tokens, "a batch",
                          &w->feeds[i].host));
    return ERR_OK;
}

void model_work_memory(struct model *m, struct model_memory *memory)
{
    struct entry list[SHARED_ENTRIES];
    struct entry layer[LAYER_ENTRIES];
    size_t count = list_shared(m, list);
    for (size_t i = 0; i < count; i++) {
        if (list[i].place == &m->work->logits)
            memory->logits += list[i].bytes;
        else if (list[i].place == &m->work->scratch)
            memory->scratch += list[i].bytes;
        else
            memory->activations += list[i].bytes;
    }
    count = list_layer(m, 0, layer);
    for (size_t i = 0; i < count; i++)
        memory->activations += (layer[i].own ? (uint64_t)m->L : 1) * layer[i].bytes;
}

void model_work_free(struct model *m)
{
    struct model_work *w = m->work;
    struct entry list[SHARED_ENTRIES];
    struct entry layer[LAYER_ENTRIES];
    size_t count = list_shared(m, list);
    m->kern->sync(m->dev); /* batches may still be on their way out of the host's memory */
    for (size_t i = 0; i < count; i++)
        m->kern->free(m->dev, *list[i].place);
    for (int64_t l = 0; w->layers != NULL && l < m->L; l++) {
        count = list_layer(m, l, layer);
        for (size_t i = 0; i < count; i++)
            if (l == 0 || layer[i].own)
                m->kern->free(m->dev, *layer[i].place);
        m->kern->free(m->dev, w->layers[l].cache);
    }
    m->kern->free(m->dev, w->logits_float);
    for (int i = 0; i < MODEL_FEEDS; i++)
        kern_host_free(m->kern, m->dev, &w->feeds[i].host);
    mem_free(w->layers);
    mem_free(w);
}
