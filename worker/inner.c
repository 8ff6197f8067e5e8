#include "worker/inner.h"

#include <math.h>

#include "common/mem.h"

/* Embedding and head stay with AdamW, as in Muon's own recipe. */
static bool for_muon(const struct runspec *spec, const struct model_tensor *tensor)
{
    return spec->inner == RUNSPEC_MUON && tensor->dims == 2 && tensor->layer >= 0;
}

/* Floats for the largest of its matrices. */
static size_t muon_scratch(const struct model *model, const struct runspec *spec)
{
    size_t most = 0;
    for (int i = 0; i < model->tensors_count; i++) {
        const struct model_tensor *tensor = &model->tensors[i];
        if (!for_muon(spec, tensor))
            continue;
        size_t count = model->kern->muon_scratch((int64_t)tensor->shape[0], (int64_t)tensor->shape[1]);
        most = count > most ? count : most;
    }
    return most;
}

enum err inner_new(struct model *model, const struct runspec *spec, struct inner **out)
{
    enum err err;
    struct inner *inner = NULL;
    const struct kern *kern = model->kern;
    size_t bytes = (size_t)model->flat_count * sizeof(float);
    *out = NULL;
    TRY_OUT(mem_new(1, sizeof *inner, "the inner optimizer", &inner));
    inner->model = model;
    inner->spec = spec;
    if (spec->inner != RUNSPEC_SGD) {
        TRY_OUT(kern->alloc(model->dev, bytes, "the optimizer's first moments", (void **)&inner->m));
        TRY_OUT(kern->alloc(model->dev, bytes, "the optimizer's second moments", (void **)&inner->v));
    }
    if (muon_scratch(model, spec) > 0)
        TRY_OUT(kern->alloc(model->dev, muon_scratch(model, spec) * sizeof(float), "Muon's matrices",
                            (void **)&inner->scratch));
    TRY_OUT(kern->alloc(model->dev, sizeof *inner->sum, "the gradient norm", (void **)&inner->sum));
    TRY_OUT(kern->alloc(model->dev, sizeof *inner->scale, "the clip factor", (void **)&inner->scale));
out:
    if (err != ERR_OK)
        inner_free(inner);
    else
        *out = inner;
    return err;
}

void inner_free(struct inner *inner)
{
    if (inner == NULL)
        return;
    const struct kern *kern = inner->model->kern;
    kern->free(inner->model->dev, inner->m);
    kern->free(inner->model->dev, inner->v);
    kern->free(inner->model->dev, inner->scratch);
    kern->free(inner->model->dev, inner->sum);
    kern->free(inner->model->dev, inner->scale);
    mem_free(inner);
}

static void apply(struct inner *inner, double lr)
{
    struct model *model = inner->model;
    const struct kern *kern = model->kern;
    const struct runspec *spec = inner->spec;
    inner->updates++;
    struct kern_adamw conf = {
        .lr = (float)lr,
        .beta1 = (float)spec->beta1,
        .beta2 = (float)spec->beta2,
        .eps = (float)spec->eps,
        .correction1 = (float)(1 - pow(spec->beta1, (double)inner->updates)),
        .correction2 = (float)(1 - pow(spec->beta2, (double)inner->updates)),
    };
    for (int i = 0; i < model->tensors_count; i++) {
        const struct model_tensor *tensor = &model->tensors[i];
        int64_t at = tensor->offset;
        kern_act *act = (char *)model->act + (size_t)at * kern->act_bytes;
        conf.weight_decay = tensor->decay ? (float)spec->weight_decay : 0;
        struct kern_muon muon = {conf.lr, conf.beta1, conf.weight_decay};
        if (for_muon(spec, tensor))
            kern->muon(model->dev, model->w + at, act, model->grad + at, inner->m + at, (int64_t)tensor->shape[0],
                       (int64_t)tensor->shape[1], inner->scale, &muon, inner->scratch);
        else if (spec->inner != RUNSPEC_SGD)
            kern->adamw(model->dev, model->w + at, act, model->grad + at, inner->m + at, inner->v + at, tensor->count,
                        inner->scale, &conf);
        else
            kern->sgd(model->dev, model->w + at, act, model->grad + at, tensor->count, inner->scale, conf.lr);
    }
}

enum err inner_step(struct inner *inner, uint64_t step, struct inner_result *result)
{
    struct model *model = inner->model;
    const struct kern *kern = model->kern;
    double sum;
    kern->zero(model->dev, inner->sum, sizeof *inner->sum);
    kern->sum_squares(model->dev, inner->sum, model->grad, model->flat_count);
    kern->clip_scale(model->dev, inner->scale, inner->sum, (float)inner->spec->clip);
    kern->download(model->dev, &sum, inner->sum, sizeof sum);
    TRY(kern->sync(model->dev));
    result->lr = runspec_lr(inner->spec, step);
    result->grad_norm = sqrt(sum);
    result->skipped = !isfinite(sum);
    if (!result->skipped)
        apply(inner, result->lr);
    kern->zero(model->dev, model->grad, (size_t)model->flat_count * sizeof *model->grad);
    return kern->sync(model->dev);
}
