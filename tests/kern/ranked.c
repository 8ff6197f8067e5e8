/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/kern/ranked.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "common/env.h"
#include "tests/lib/ranks.h"
#include "worker/inner.h"
#include "worker/model/model_shares.h"

enum { BATCH = 4, CONTEXT = 8, ACCUMULATE = 2, VOCAB = 53, PATH_BYTES = 512 };

static struct runspec spec_of(const struct ranked_story *story)
{
    return (struct runspec){.vocab = VOCAB,
                            .width = 64,
                            .layers = 2,
                            .heads = 4,
                            .kv_heads = 2,
                            .ff = 40,
                            .context = CONTEXT,
                            .rope_theta = 10000,
                            .norm_eps = 1e-5,
                            .init_std = 0.1,
                            .tied = story->tied,
                            .inner = story->muon ? RUNSPEC_MUON : RUNSPEC_ADAMW,
                            .lr = 1e-2,
                            .lr_final = 1,
                            .beta1 = 0.9,
                            .beta2 = 0.99,
                            .eps = 1e-8,
                            .weight_decay = 0.1,
                            .clip = 0.5,
                            .steps = 1000,
                            .batch = BATCH,
                            .accumulate = ACCUMULATE};
}

struct ranked_result *ranked_memory(void)
{
    void *memory = mmap(NULL, GROUP_RANKS_MAX * sizeof(struct ranked_result), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return memory != MAP_FAILED ? memory : NULL;
}

struct pupil {
    const struct ranked_story *story;
    struct kern_dev *dev;
    struct crew crew;
    struct model *model;
    struct inner *inner;
    struct ranked_result *result;
};

/* Rank `rank`'s part of micro-batch `micro` of a step. */
static enum err learn(struct pupil *p, uint64_t step, int micro, int rank, double scale)
{
    enum { ROWS = BATCH * CONTEXT };
    int32_t tokens[ROWS], targets[ROWS];
    struct env_rng rng = env_rng_init(5, step * ACCUMULATE + (uint64_t)micro);
    int rows = ROWS / p->story->rows;
    for (int i = 0; i < ROWS; i++) {
        tokens[i] = (int32_t)env_rng_below(&rng, VOCAB);
        targets[i] = (tokens[i] * 5 + 1) % VOCAB;
    }
    return model_train(p->model, tokens + rank * rows, targets + rank * rows, scale);
}

static enum err as_one_rank(struct pupil *p, uint64_t step)
{
    for (int micro = 0; micro < ACCUMULATE; micro++) {
        if (micro == ACCUMULATE - 1)
            model_sum_next(p->model);
        TRY(learn(p, step, micro, p->model->grid.row, 1.0 / ACCUMULATE));
    }
    return ERR_OK;
}

/* Gradients of each rank by itself, added up on the host. */
static enum err as_all_ranks(struct pupil *p, uint64_t step)
{
    size_t bytes = (size_t)p->model->flat_count * sizeof(float);
    float *sum = calloc(1, bytes), *own = calloc(1, bytes);
    const struct kern *kern = p->model->kern;
    for (int rank = 0; rank < p->story->rows; rank++) {
        kern->zero(p->model->dev, p->model->grad, bytes);
        for (int micro = 0; micro < ACCUMULATE; micro++)
            TRY(learn(p, step, micro, rank, 1.0 / ACCUMULATE / p->story->rows));
        kern->copy(p->model->dev, KERN_MAIN, own, p->model->grad, bytes);
        TRY(kern->sync(p->model->dev));
        for (int64_t i = 0; i < p->model->flat_count; i++)
            sum[i] = rank == 0 ? own[i] : sum[i] + own[i];
    }
    kern->copy(p->model->dev, KERN_MAIN, p->model->grad, sum, bytes);
    TRY(kern->sync(p->model->dev));
    free(sum);
    free(own);
    return ERR_OK;
}

static enum err take_step(struct pupil *p, uint64_t step)
{
    struct inner_result result;
    TRY(p->crew.count == 1 ? as_all_ranks(p, step) : as_one_rank(p, step));
    TRY(inner_step(p->inner, step));
    TRY(model_spread(p->model));
    TRY(inner_result(p->inner, &result));
    p->result->loss[step - 1] = result.loss;
    p->result->norm[step - 1] = result.grad_norm;
    return ERR_OK;
}

/* Tensor after tensor, whole, without what lies between them: the layout of the flat arrays depends on the ranks. */
static enum err read_all(struct pupil *p, const float *own, float *to)
{
    int64_t at = 0;
    for (int i = 0; i < p->model->tensors_count; i++) {
        CHECK(at + p->model->tensors[i].count <= RANKED_VALUES);
        TRY(model_read(p->model, &p->model->tensors[i], own, to + at));
        at += p->model->tensors[i].count;
    }
    p->result->count = at;
    return ERR_OK;
}

static enum err finish(struct pupil *p)
{
    int32_t tokens[BATCH * CONTEXT], targets[BATCH * CONTEXT];
    TRY(read_all(p, p->model->w, p->result->w));
    TRY(read_all(p, p->inner->m, p->result->m));
    TRY(read_all(p, p->inner->v, p->result->v));
    for (int i = 0; i < BATCH * CONTEXT; i++) {
        tokens[i] = i % VOCAB;
        targets[i] = (i * 5 + 1) % VOCAB;
    }
    return model_loss(p->model, tokens, targets, &p->result->end_loss);
}

enum err ranked_train(void *user, const struct launch_rank *rank)
{
    const struct ranked_story *story = user;
    struct pupil p = {.story = story, .result = &story->result[rank->rank]};
    struct runspec spec = spec_of(story);
    int tp = rank->count > 1 && story->tp > 1 ? story->tp : 1;
    char choices[PATH_BYTES];
    snprintf(choices, sizeof choices, "%s/algorithms-%d.txt", story->folder != NULL ? story->folder : "", rank->rank);
    struct kern_place place = {
        .device = rank->device, .threads = 1, .bf16 = story->bf16, .choices = story->folder != NULL ? choices : NULL};
    TRY(story->kern->open(&place, &p.dev));
    TRY(crew_init(&p.crew, rank, tp, story->kern, p.dev));
    struct model_conf conf = {
        .batch = BATCH / story->rows, .train = true, .recompute = story->recompute, .grid = p.crew.grid};
    TRY(model_new(&spec, story->kern, p.dev, &conf, &p.model));
    TRY(model_init(p.model, 9));
    TRY(inner_new(p.model, &spec, &p.inner));
    inner_round(p.inner, story->stochastic);
    CHECK(tp > 1 || p.model->own_count * rank->count == p.model->flat_count);
    for (uint64_t step = 1; step <= RANKED_STEPS; step++)
        TRY(take_step(&p, step));
    TRY(finish(&p));
    inner_free(p.inner);
    model_free(p.model);
    crew_deinit(&p.crew);
    story->kern->close(p.dev);
    return ERR_OK;
}

double ranked_loss_distance(const struct ranked_result *want, const struct ranked_result *got)
{
    double most = fabs(got->end_loss / want->end_loss - 1);
    for (int i = 0; i < RANKED_STEPS; i++)
        most = fmax(most, fabs(got->loss[i] / want->loss[i] - 1));
    return most;
}

double ranked_distance(const struct ranked_result *want, const struct ranked_result *got)
{
    double apart = 0, all = 0;
    for (int64_t i = 0; i < want->count; i++) {
        double difference = (double)got->w[i] - (double)want->w[i];
        apart += difference * difference;
        all += (double)want->w[i] * (double)want->w[i];
    }
    return want->count == got->count ? sqrt(apart / all) : INFINITY;
}
