/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/inner.h"

#include <math.h>

#include "common/env.h"
#include "common/mem.h"
#include "worker/model/model_layout.h"
#include "worker/model/model_shares.h"

/* Embedding and head stay with AdamW, as in Muon's own recipe. */
static bool for_muon(const struct runspec *spec, const struct model_tensor *tensor)
{
    return spec->inner == RUNSPEC_MUON && tensor->dims == 2 && tensor->layer >= 0;
}

/* Where a matrix is in parts: room for it whole, before the scratch memory, in which its parts come together first. */
static size_t muon_room(const struct model *model, const struct model_tensor *tensor)
{
    return model->grid.tp > 1 ? (size_t)tensor->count * sizeof(float) : 0;
}

/* Bytes for the largest of its matrices. */
static size_t muon_scratch(const struct model *model, const struct runspec *spec)
{
    size_t most = 0;
    for (int i = 0; i < model->tensors_count; i++) {
        const struct model_tensor *tensor = &model->tensors[i];
        size_t room = muon_room(model, tensor);
        if (!for_muon(spec, tensor))
            continue;
        size_t scratch = model->kern->muon_scratch((int64_t)tensor->shape[0], (int64_t)tensor->shape[1]);
        size_t count = room + (scratch > room ? scratch : room);
        most = count > most ? count : most;
    }
    return most;
}

/* All that Muon does not do. */
static enum err make_spans(struct inner *inner)
{
    enum err err = ERR_OK;
    const struct model *model = inner->model;
    struct kern_span *spans;
    TRY(mem_new((size_t)model_pieces(model), sizeof *inner->spans, "the optimizer's spans", &inner->spans));
    TRY(mem_new((size_t)model->tensors_count, sizeof *spans, "the optimizer's spans", &spans));
    for (int p = 0; err == ERR_OK && p < model_pieces(model); p++) {
        struct model_piece piece = model_piece(model, p);
        size_t count = 0;
        for (int i = 0; i < model->tensors_count; i++) {
            const struct model_tensor *tensor = &model->tensors[i];
            struct model_share share = model_share(model, tensor);
            if (share.count > 0 && share.at >= piece.at && share.at < piece.at + piece.count &&
                !for_muon(inner->spec, tensor))
                spans[count++] = (struct kern_span){share.at - piece.at, share.count, tensor->decay};
        }
        err = model->kern->spans_new(model->dev, spans, count, &inner->spans[p]);
    }
    mem_free(spans);
    return err;
}

/* What the device sends of a step. */
struct inner_arrival {
    struct kern_step step;
    double loss;
};

struct inner_memory inner_memory(const struct model *model, const struct runspec *spec)
{
    uint64_t flat = (uint64_t)model->own_count * sizeof(float);
    return (struct inner_memory){.moments = spec->inner != RUNSPEC_SGD ? 2 * flat : 0,
                                 .scratch = muon_scratch(model, spec)};
}

enum err inner_new(struct model *model, const struct runspec *spec, struct inner **out)
{
    enum err err;
    struct inner *inner = NULL;
    const struct kern *kern = model->kern;
    size_t bytes = (size_t)model->own_count * sizeof(float);
    *out = NULL;
    TRY_OUT(mem_new(1, sizeof *inner, "the inner optimizer", &inner));
    inner->model = model;
    inner->spec = spec;
    if (spec->inner != RUNSPEC_SGD) {
        TRY_OUT(kern->alloc(model->dev, bytes, "the optimizer's first moments", (void **)&inner->m));
        TRY_OUT(kern->alloc(model->dev, bytes, "the optimizer's second moments", (void **)&inner->v));
    }
    if (muon_scratch(model, spec) > 0)
        TRY_OUT(kern->alloc(model->dev, muon_scratch(model, spec), "Muon's matrices", &inner->scratch));
    TRY_OUT(kern->alloc(model->dev, sizeof *inner->step, "the gradient norm", (void **)&inner->step));
    TRY_OUT(make_spans(inner));
    TRY_OUT(kern_host_new(kern, model->dev, INNER_RESULTS * sizeof(struct inner_arrival), "results of steps",
                          &inner->results));
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
    struct kern_dev *dev = inner->model->dev;
    kern->sync(dev); /* results may still be on their way */
    kern->free(dev, inner->m);
    kern->free(dev, inner->v);
    kern->free(dev, inner->scratch);
    kern->free(dev, inner->step);
    for (int p = 0; inner->spans != NULL && p < model_pieces(inner->model); p++)
        kern->spans_free(dev, inner->spans[p]);
    mem_free(inner->spans);
    kern_host_free(kern, dev, &inner->results);
    mem_free(inner);
}

enum err inner_resume(struct inner *inner, uint64_t updates)
{
    const struct kern *kern = inner->model->kern;
    struct kern_step step = {.updates = updates};
    kern->copy(inner->model->dev, KERN_MAIN, inner->step, &step, sizeof step);
    inner->updates = updates;
    return kern->sync(inner->model->dev);
}

/* A matrix that the column has directions of. */
static enum err orthogonalise(struct inner *inner, const struct model_tensor *tensor)
{
    struct model *model = inner->model;
    float *whole;
    TRY(model_gather_whole(model, tensor, inner->scratch, &whole));
    model->kern->orthogonalise(model->dev, whole, (int64_t)tensor->shape[0], (int64_t)tensor->shape[1],
                               (char *)inner->scratch + muon_room(model, tensor));
    model_keep_part(model, tensor, whole);
    return ERR_OK;
}

static struct kern_rounding rounding_of(const struct inner *inner, uint64_t step, int64_t first)
{
    struct env_rng rng = env_rng_init((uint64_t)inner->spec->seed, step);
    return (struct kern_rounding){.stochastic = inner->stochastic,
                                  .seed = env_rng_u64(&rng) + (uint64_t)inner->model->grid.column,
                                  .first = first};
}

/* Along the direction that the gradients' memory holds: this rank's values of it. */
static void move_matrix(struct inner *inner, const struct model_tensor *tensor, uint64_t step, float lr,
                        float weight_decay)
{
    struct model *model = inner->model;
    struct model_share share = model_share(model, tensor);
    uint64_t longer = tensor->shape[0] > tensor->shape[1] ? tensor->shape[0] : tensor->shape[1];
    if (share.count == 0)
        return;
    int64_t first = model_flat_of(model, share.at);
    struct kern_muon muon = {lr, weight_decay, rounding_of(inner, step, first)};
    float *w = model->w + share.at;
    model->kern->muon_apply(model->dev, w, model_act_of(model, w), model->grad + first, share.count, (int64_t)longer,
                            inner->step, muon);
}

/* Momentum and update are each rank's, of its own values; a matrix is made orthogonal whole: they are dealt out to the
 * rows in turn, and all ranks of a row do the same. */
static enum err apply_muon(struct inner *inner, const struct kern_adamw *conf, uint64_t step)
{
    struct model *model = inner->model;
    const struct kern *kern = model->kern;
    int dealt = 0;
    for (int i = 0; i < model->tensors_count; i++) {
        struct model_share share = model_share(model, &model->tensors[i]);
        if (for_muon(inner->spec, &model->tensors[i]) && share.count > 0)
            kern->muon_aim(model->dev, model->grad + model_flat_of(model, share.at), inner->m + share.at, share.count,
                           inner->step, conf->beta1);
    }
    for (int l = 0; l < model->L; l++)
        TRY(model_gather_grads(model, MODEL_BUCKET_LAYERS + l));
    for (int i = 0; i < model->tensors_count; i++) {
        const struct model_tensor *tensor = &model->tensors[i];
        if (for_muon(inner->spec, tensor) && dealt++ % model->grid.dp == model->grid.row)
            TRY(orthogonalise(inner, tensor));
    }
    dealt = 0;
    for (int i = 0; i < model->tensors_count; i++) {
        const struct model_tensor *tensor = &model->tensors[i];
        if (!for_muon(inner->spec, tensor))
            continue;
        TRY(model_send_grads(model, tensor, dealt++ % model->grid.dp));
        move_matrix(inner, tensor, step, conf->lr, conf->weight_decay);
    }
    return ERR_OK;
}

static enum err apply(struct inner *inner, uint64_t step, double lr)
{
    struct model *model = inner->model;
    const struct kern *kern = model->kern;
    const struct runspec *spec = inner->spec;
    struct kern_adamw conf = {
        .lr = (float)lr,
        .beta1 = (float)spec->beta1,
        .beta2 = (float)spec->beta2,
        .eps = (float)spec->eps,
        .weight_decay = (float)spec->weight_decay,
    };
    for (int p = 0; p < model_pieces(model); p++) {
        struct model_piece piece = model_piece(model, p);
        float *w = model->w + piece.at;
        kern_act *act = model_act_of(model, w);
        const float *grad = model->grad + piece.begin;
        conf.rounding = rounding_of(inner, step, piece.begin);
        if (spec->inner == RUNSPEC_SGD)
            kern->sgd(model->dev, w, act, grad, inner->spans[p], inner->step, conf.lr, conf.rounding);
        else
            kern->adamw(model->dev, w, act, grad, inner->m + piece.at, inner->v + piece.at, inner->spans[p],
                        inner->step, conf);
    }
    return spec->inner == RUNSPEC_MUON ? apply_muon(inner, &conf, step) : ERR_OK;
}

void inner_round(struct inner *inner, bool stochastic)
{
    inner->stochastic = stochastic;
}

/* As a step that goes nowhere. */
enum err inner_round_again(struct inner *inner, uint64_t step)
{
    struct model *model = inner->model;
    if (!inner->stochastic)
        return ERR_OK;
    for (int p = 0; p < model_pieces(model); p++) {
        struct model_piece piece = model_piece(model, p);
        float *w = model->w + piece.at;
        model->kern->sgd(model->dev, w, model_act_of(model, w), model->grad + piece.begin, inner->spans[p], inner->step,
                         0, rounding_of(inner, step, piece.begin));
    }
    for (int i = 0; i < model->tensors_count; i++)
        if (for_muon(inner->spec, &model->tensors[i]))
            move_matrix(inner, &model->tensors[i], step, 0, 0);
    inner->updated = step;
    TRY(model_spread(model));
    return model->kern->fault(model->dev);
}

/* The squares of all gradients, and the loss, as all ranks have them. */
static enum err sum_up(struct inner *inner)
{
    struct model *model = inner->model;
    model_await_sums(model);
    for (int p = 0; p < model_pieces(model); p++) {
        struct model_piece piece = model_piece(model, p);
        model->kern->sum_squares(model->dev, inner->step, model->grad + piece.begin, piece.count);
    }
    TRY(model_sum_all(model, &inner->step->sum));
    return model_sum_rows(model, model->loss);
}

enum err inner_step(struct inner *inner, uint64_t step)
{
    struct model *model = inner->model;
    const struct kern *kern = model->kern;
    struct kern_judge judge = {(float)inner->spec->clip, inner->spec->beta1, inner->spec->beta2};
    uint64_t slot = inner->queued % INNER_RESULTS;
    struct inner_arrival *arrival = (struct inner_arrival *)inner->results.bytes + slot;
    if (inner_pending(inner) == INNER_RESULTS)
        return err_set(ERR_STATE, "%d steps wait for their results to be read", INNER_RESULTS);
    inner->lr[slot] = runspec_lr(inner->spec, step);
    inner->step_of[slot] = step;
    TRY(sum_up(inner));
    kern->judge(model->dev, inner->step, judge);
    TRY(apply(inner, step, inner->lr[slot]));
    kern->copy(model->dev, KERN_MAIN, &arrival->step, inner->step, sizeof arrival->step);
    kern->copy(model->dev, KERN_MAIN, &arrival->loss, model->loss, sizeof arrival->loss);
    inner->mark[slot] = kern->mark(model->dev, KERN_MAIN);
    kern->zero(model->dev, model->loss, sizeof *model->loss);
    kern->zero(model->dev, model->grad, (size_t)model->flat_count * sizeof *model->grad);
    inner->queued++;
    return kern->fault(model->dev);
}

uint64_t inner_pending(const struct inner *inner)
{
    return inner->queued - inner->read;
}

enum err inner_result(struct inner *inner, struct inner_result *result)
{
    uint64_t slot = inner->read % INNER_RESULTS;
    const struct inner_arrival *arrival = (const struct inner_arrival *)inner->results.bytes + slot;
    if (inner_pending(inner) == 0)
        return err_set(ERR_STATE, "no step waits for its result to be read");
    TRY(inner->model->kern->wait(inner->model->dev, inner->mark[slot]));
    TRY(model_check(inner->model));
    inner->read++;
    inner->updates = arrival->step.updates;
    if (arrival->step.skip == 0)
        inner->updated = inner->step_of[slot];
    *result = (struct inner_result){.loss = arrival->loss,
                                    .lr = inner->lr[slot],
                                    .grad_norm = arrival->step.norm,
                                    .skipped = arrival->step.skip != 0};
    return ERR_OK;
}
