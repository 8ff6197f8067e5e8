/* SPDX-License-Identifier: Apache-2.0 */
/* Whole training steps of three models: tokens a second, and their share of the measured product rate. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/env.h"
#include "common/mem.h"
#include "tests/gpu/bench_gpu.h"
#include "worker/inner.h"
#include "worker/model/model.h"

enum { WARM_STEPS = 3 };

/* The largest first: that is the size this is for. */
static const struct bench_shape shapes[] = {
    {"1.3B", 2048, 24, 16, 5504, 2048, 8, 0.55, false},
    {"350M", 1024, 24, 16, 2816, 1024, 32, 0.45, true},
    {"124M", 768, 12, 12, 2048, 1024, 32, 0.40, true},
};
static const struct bench_shape small_shapes[] = {{"tiny", 64, 2, 2, 176, 64, 2, 0, true}};

const struct bench_shape *bench_gpu_shapes(const struct bench_gpu *b, size_t *count)
{
    *count = b->small ? 1 : sizeof shapes / sizeof shapes[0];
    return b->small ? small_shapes : shapes;
}

int64_t bench_gpu_vocab(const struct bench_gpu *b)
{
    return b->small ? 1001 : 50304;
}

double bench_gpu_measured_s(const struct bench_gpu *b)
{
    return b->small ? 0.2 : 5;
}

static struct runspec spec_of(const struct bench_shape *shape, int64_t vocab)
{
    return (struct runspec){.vocab = vocab,
                            .width = shape->width,
                            .layers = shape->layers,
                            .heads = shape->heads,
                            .kv_heads = shape->heads,
                            .ff = shape->ff,
                            .context = shape->context,
                            .rope_theta = 10000,
                            .norm_eps = 1e-5,
                            .init_std = 0.02,
                            .tied = true,
                            .inner = RUNSPEC_ADAMW,
                            .lr = 1e-4,
                            .lr_final = 1,
                            .beta1 = 0.9,
                            .beta2 = 0.95,
                            .eps = 1e-8,
                            .weight_decay = 0.1,
                            .clip = 1,
                            .steps = 1000000,
                            .batch = shape->batch,
                            .accumulate = 1};
}

/* As model_init(), but on the device: drawn on the host, 1.3 billion values would take longer than what is measured. */
static enum err init_weights(struct bench_gpu *b, struct model *model)
{
    for (int i = 0; i < model->tensors_count; i++) {
        const struct model_tensor *tensor = &model->tensors[i];
        bench_gpu_fill_float(b, model->w + tensor->offset, tensor->init_std > 0 ? b->weights : b->ones, tensor->count);
    }
    return model_refresh(model);
}

struct timed {
    int64_t steps, params;
    double seconds, flops; /* of a step */
    double memory_gb;
};

static enum err read_one(struct bench_run *run)
{
    struct inner_result result;
    TRY(inner_result(run->inner, &result));
    run->loss = result.loss;
    return ERR_OK;
}

enum err bench_gpu_step(struct bench_run *run)
{
    struct model *model = run->model;
    size_t rows = (size_t)(model->B * model->T);
    for (size_t i = 0; i < rows + 1; i++)
        run->tokens[i] = (int32_t)env_rng_below(run->rng, (uint64_t)model->V);
    TRY(model_train(model, run->tokens, run->tokens + 1, 1));
    TRY(inner_step(run->inner, (uint64_t)++run->step));
    while (inner_pending(run->inner) > model->kern->ahead)
        TRY(read_one(run));
    return ERR_OK;
}

enum err bench_gpu_settle(struct bench_run *run)
{
    while (inner_pending(run->inner) > 0)
        TRY(read_one(run));
    return ERR_OK;
}

static enum err steps(struct bench_run *run, double until_s, int64_t least)
{
    int64_t first = run->step;
    while (run->step - first < least || env_mono_s() < until_s)
        TRY(bench_gpu_step(run));
    return bench_gpu_settle(run);
}

static enum err time_model(struct bench_gpu *b, struct bench_run *run, struct timed *timed)
{
    size_t free_bytes, total;
    TRY(init_weights(b, run->model));
    TRY(steps(run, 0, WARM_STEPS));
    double begin_s = env_mono_s();
    TRY(steps(run, begin_s + bench_gpu_measured_s(b), 2));
    timed->steps = run->step - WARM_STEPS;
    timed->seconds = (env_mono_s() - begin_s) / (double)timed->steps;
    timed->flops = model_train_flops(run->model, run->model->B * run->model->T);
    timed->params = run->model->params_count;
    TRY(b->kern->memory(b->dev, &free_bytes, &total));
    timed->memory_gb = (double)(total - free_bytes) / 1e9;
    return isfinite(run->loss) ? ERR_OK : err_set(ERR_NONFINITE, "the loss is not finite");
}

/* ---- the table ---- */

static enum err add_row(struct bench_gpu *b, const struct bench_shape *shape, const struct timed *timed, json_t *rows)
{
    double tokens_per_s = (double)(shape->batch * shape->context) / timed->seconds;
    double share = timed->flops / timed->seconds / b->product_rate;
    printf(
        "  %-12s %.0f M parameters, batch %lld x %lld: %.1f ms a step (of %lld), %.0f tokens/s, %.1f TFLOP/s, %.1f %% "
        "of the product rate (aim %.0f %%), %.1f GB\n",
        shape->name, (double)timed->params / 1e6, (long long)shape->batch, (long long)shape->context,
        timed->seconds * 1e3, (long long)timed->steps, tokens_per_s, timed->flops / timed->seconds / 1e12, 100 * share,
        100 * shape->aim, timed->memory_gb);
    fflush(stdout);
    json_array_append_new(rows, json_pack("{s:s, s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:f, s:f}", "name",
                                          shape->name, "params", (json_int_t)timed->params, "batch",
                                          (json_int_t)shape->batch, "context", (json_int_t)shape->context, "steps",
                                          (json_int_t)timed->steps, "ms_per_step", timed->seconds * 1e3, "tokens_per_s",
                                          tokens_per_s, "tflops", timed->flops / timed->seconds / 1e12,
                                          "share_of_product", share, "aim", shape->aim, "memory_gb", timed->memory_gb));
    return bench_gpu_keep(b);
}

static enum err skip_row(struct bench_gpu *b, const struct bench_shape *shape, const char *why, json_t *rows)
{
    printf("  %-12s skipped: %s\n", shape->name, why);
    fflush(stdout);
    json_array_append_new(rows, json_pack("{s:s, s:s}", "name", shape->name, "skipped", why));
    return bench_gpu_keep(b);
}

/* Whose kernels it goes by, which is known after its first steps. */
static void tell_attention(struct bench_gpu *b, const struct bench_shape *shape)
{
    const struct kern_attention dims = {
        .B = shape->batch, .T = shape->context, .H = shape->heads, .G = shape->heads, .D = shape->width / shape->heads};
    for (int i = 0; i < 2; i++) {
        char text[512];
        b->kern->attention_by(b->dev, &dims, i == 1, text, sizeof text);
        printf("    attention_%s by %s\n", i == 1 ? "bwd" : "fwd", text);
    }
    fflush(stdout);
}

/* With its row, before anything else is measured of it. */
static enum err run_model(struct bench_gpu *b, const struct bench_shape *shape, struct bench_run *run, json_t *rows)
{
    struct timed timed = {0};
    TRY(time_model(b, run, &timed));
    TRY(add_row(b, shape, &timed, rows));
    tell_attention(b, shape);
    return shape->exchange ? bench_gpu_exchange(b, shape->name, run, timed.seconds) : ERR_OK;
}

static enum err one(struct bench_gpu *b, const struct bench_shape *shape, json_t *rows)
{
    struct runspec spec = spec_of(shape, bench_gpu_vocab(b));
    struct model_conf conf = {.batch = spec.batch, .train = true};
    struct env_rng rng = env_rng_init(9, 0);
    struct bench_run run = {.rng = &rng};
    if (bench_gpu_left(b) <= 0)
        return skip_row(b, shape, "no time left", rows);
    enum err err = mem_new((size_t)(spec.batch * spec.context + 1), sizeof *run.tokens, "tokens", &run.tokens);
    if (err == ERR_OK)
        err = model_new(&spec, b->kern, b->dev, &conf, &run.model);
    if (err == ERR_OK)
        err = inner_new(run.model, &spec, &run.inner);
    bool fits = err != ERR_NOMEM;
    if (err == ERR_OK)
        err = run_model(b, shape, &run, rows);
    inner_free(run.inner);
    model_free(run.model);
    mem_free(run.tokens);
    if (!fits)
        return skip_row(b, shape, err_text(), rows);
    return err != ERR_OK ? err_prefix(err, "%s", shape->name) : ERR_OK;
}

enum err bench_gpu_models(struct bench_gpu *b)
{
    size_t count;
    const struct bench_shape *list = bench_gpu_shapes(b, &count);
    json_t *rows = bench_gpu_rows(b, "models");
    bench_gpu_rows(b, "exchange");
    printf("models       AdamW, bf16 with fp32 masters, tied head, vocabulary %lld; causal attention counted half\n",
           (long long)bench_gpu_vocab(b));
    for (size_t i = 0; i < count; i++)
        if (b->only == NULL || strstr(list[i].name, b->only) != NULL)
            TRY(one(b, &list[i], rows));
    return ERR_OK;
}
