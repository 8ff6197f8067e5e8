/* Whole training steps of three models: tokens a second, their share of the measured product rate, and the same model
 * in PyTorch right after each. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/env.h"
#include "common/mem.h"
#include "tests/gpu/bench_gpu.h"
#include "worker/inner.h"
#include "worker/model/model.h"

enum { WARM_STEPS = 3, ANSWER_BYTES = 4096 };

static const double measured_s = 5;

struct shape {
    const char *name;
    int64_t width, layers, heads, ff, context, batch;
    double aim; /* share of the measured product rate */
};

static const struct shape shapes[] = {
    {"124M", 768, 12, 12, 2048, 1024, 32, 0.40},
    {"350M", 1024, 24, 16, 2816, 1024, 32, 0.45},
    {"1.3B", 2048, 24, 16, 5504, 2048, 8, 0.55},
};
static const struct shape small_shapes[] = {{"tiny", 64, 2, 2, 176, 64, 2, 0}};

static struct runspec spec_of(const struct shape *shape, int64_t vocab)
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
    double seconds, flops, loss; /* seconds and flops of a step */
    double memory_gb;
};

/* As our trainer does it: a batch, a step, and results as late as the device may be. */
static enum err steps(struct model *model, struct inner *inner, int32_t *tokens, struct env_rng *rng, int64_t *step,
                      double until_s, int64_t least, struct timed *timed)
{
    size_t rows = (size_t)(model->B * model->T);
    int64_t first = *step;
    struct inner_result result;
    while (*step - first < least || env_mono_s() < until_s) {
        for (size_t i = 0; i < rows + 1; i++)
            tokens[i] = (int32_t)env_rng_below(rng, (uint64_t)model->V);
        TRY(model_train(model, tokens, tokens + 1, 1));
        TRY(inner_step(inner, (uint64_t)++ * step));
        while (inner_pending(inner) > model->kern->ahead) {
            TRY(inner_result(inner, &result));
            timed->loss = result.loss;
        }
    }
    while (inner_pending(inner) > 0) {
        TRY(inner_result(inner, &result));
        timed->loss = result.loss;
    }
    timed->steps = *step - first;
    return ERR_OK;
}

static enum err time_model(struct bench_gpu *b, struct model *model, struct inner *inner, struct timed *timed)
{
    int64_t rows = model->B * model->T, step = 0;
    struct env_rng rng = env_rng_init(9, 0);
    int32_t *tokens;
    size_t free_bytes, total;
    TRY(mem_new((size_t)rows + 1, sizeof *tokens, "tokens", &tokens));
    TRY(init_weights(b, model));
    enum err err = steps(model, inner, tokens, &rng, &step, 0, WARM_STEPS, timed);
    double begin_s = env_mono_s();
    if (err == ERR_OK)
        err = steps(model, inner, tokens, &rng, &step, begin_s + (b->small ? 0.2 : measured_s), 2, timed);
    timed->seconds = (env_mono_s() - begin_s) / (double)(timed->steps > 0 ? timed->steps : 1);
    timed->flops = model_train_flops(model, rows);
    timed->params = model->params_count;
    mem_free(tokens);
    TRY(err);
    TRY(b->kern->memory(b->dev, &free_bytes, &total));
    timed->memory_gb = (double)(total - free_bytes) / 1e9;
    return isfinite(timed->loss) ? ERR_OK : err_set(ERR_NONFINITE, "the loss is not finite");
}

static enum err run_ours(struct bench_gpu *b, const struct runspec *spec, struct timed *timed)
{
    struct model *model = NULL;
    struct inner *inner = NULL;
    struct model_conf conf = {.batch = spec->batch, .train = true};
    enum err err = model_new(spec, b->kern, b->dev, &conf, &model);
    if (err == ERR_OK)
        err = inner_new(model, spec, &inner);
    if (err == ERR_OK)
        err = time_model(b, model, inner, timed);
    inner_free(inner);
    model_free(model);
    return err;
}

/* ---- PyTorch ---- */

/* What the script has printed; NULL: not run, and `why` says the reason. The caller decrefs. */
static json_t *run_torch(struct bench_gpu *b, const struct shape *shape, int64_t vocab, char *why, size_t why_bytes)
{
    char command[1024], line[ANSWER_BYTES], last[ANSWER_BYTES] = "";
    snprintf(why, why_bytes, "not asked for");
    if (b->torch == NULL)
        return NULL;
    /* With the libraries of the machine, not with those that our programs may have brought along. */
    snprintf(command, sizeof command,
             "LD_LIBRARY_PATH=\"$DILOCO_GPU_LIBRARY_PATH\" timeout 130 python3 '%s' --width %lld --layers %lld --heads "
             "%lld --ff %lld --context %lld --batch %lld --vocab %lld --seconds %.1f 2>&1",
             b->torch, (long long)shape->width, (long long)shape->layers, (long long)shape->heads, (long long)shape->ff,
             (long long)shape->context, (long long)shape->batch, (long long)vocab, measured_s);
    fflush(stdout);
    FILE *pipe = popen(command, "re");
    if (pipe == NULL)
        return NULL;
    while (fgets(line, sizeof line, pipe) != NULL)
        if (strspn(line, " \n") != strlen(line))
            snprintf(last, sizeof last, "%s", line);
    int status = pclose(pipe);
    last[strcspn(last, "\n")] = '\0';
    json_t *answer = status == 0 ? json_loads(last, 0, NULL) : NULL;
    if (answer == NULL)
        snprintf(why, why_bytes, "%.200s", last[0] != '\0' ? last : "it has said nothing");
    return answer;
}

static void compare(struct bench_gpu *b, const struct shape *shape, int64_t vocab, double ours, json_t *row)
{
    char why[256];
    json_t *answer = run_torch(b, shape, vocab, why, sizeof why);
    double theirs = json_number_value(json_object_get(answer, "tokens_per_s"));
    if (theirs > 0) {
        printf("               PyTorch: %.0f tokens/s at batch %lld, by %s: ours is %.2f of it (aim 1.0)\n", theirs,
               (long long)json_integer_value(json_object_get(answer, "batch")),
               json_string_value(json_object_get(answer, "version")), ours / theirs);
        json_object_set_new(row, "ratio_to_torch", json_real(ours / theirs));
        json_object_set(row, "torch", answer);
    } else {
        printf("               PyTorch: skipped: %s\n", why);
        json_object_set_new(row, "torch_skipped", json_string(why));
    }
    json_decref(answer);
    fflush(stdout);
}

/* ---- the table ---- */

static enum err one(struct bench_gpu *b, const struct shape *shape, json_t *rows)
{
    int64_t vocab = b->small ? 1001 : 50304;
    struct runspec spec = spec_of(shape, vocab);
    struct timed timed = {0};
    enum err err = run_ours(b, &spec, &timed);
    if (err == ERR_NOMEM) {
        printf("  %-12s skipped: %s\n", shape->name, err_text());
        json_array_append_new(rows, json_pack("{s:s, s:s}", "name", shape->name, "skipped", err_text()));
        return ERR_OK;
    }
    if (err != ERR_OK)
        return err_prefix(err, "%s", shape->name);
    double tokens_per_s = (double)(spec.batch * spec.context) / timed.seconds;
    double share = timed.flops / timed.seconds / b->product_rate;
    printf(
        "  %-12s %.0f M parameters, batch %lld x %lld: %.1f ms a step (of %lld), %.0f tokens/s, %.1f TFLOP/s, %.1f %% "
        "of the product rate (aim %.0f %%), %.1f GB\n",
        shape->name, (double)timed.params / 1e6, (long long)spec.batch, (long long)spec.context, timed.seconds * 1e3,
        (long long)timed.steps, tokens_per_s, timed.flops / timed.seconds / 1e12, 100 * share, 100 * shape->aim,
        timed.memory_gb);
    json_t *row = json_pack(
        "{s:s, s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:f, s:f}", "name", shape->name, "params",
        (json_int_t)timed.params, "batch", (json_int_t)spec.batch, "context", (json_int_t)spec.context, "steps",
        (json_int_t)timed.steps, "ms_per_step", timed.seconds * 1e3, "tokens_per_s", tokens_per_s, "tflops",
        timed.flops / timed.seconds / 1e12, "share_of_product", share, "aim", shape->aim, "memory_gb", timed.memory_gb);
    compare(b, shape, vocab, tokens_per_s, row);
    json_array_append_new(rows, row);
    return ERR_OK;
}

enum err bench_gpu_models(struct bench_gpu *b)
{
    const struct shape *list = b->small ? small_shapes : shapes;
    size_t count = b->small ? 1 : sizeof shapes / sizeof shapes[0];
    json_t *rows = json_array();
    enum err err = ERR_OK;
    printf("models       AdamW, bf16 with fp32 masters, tied head, vocabulary %d; causal attention counted half\n",
           b->small ? 1001 : 50304);
    for (size_t i = 0; i < count && err == ERR_OK; i++)
        if (b->only == NULL || strstr(list[i].name, b->only) != NULL)
            err = one(b, &list[i], rows);
    json_object_set_new(b->summary, "models", rows);
    return err;
}
