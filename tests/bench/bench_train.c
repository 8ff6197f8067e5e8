#include <dnnl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/env.h"
#include "common/mem.h"
#include "tests/bench/bench.h"
#include "worker/inner.h"
#include "worker/model/model.h"

enum { RUNS = 7, SIZE = 2048 };

/* Best of several: the limit, not the average of what neighbours leave of it. */
static double sgemm_gflops(void)
{
    size_t count = (size_t)SIZE * SIZE;
    float *a, *b, *c;
    double best = 0;
    if (mem_new(count, sizeof *a, "a", &a) != ERR_OK || mem_new(count, sizeof *b, "b", &b) != ERR_OK ||
        mem_new(count, sizeof *c, "c", &c) != ERR_OK)
        return 0;
    for (size_t i = 0; i < count; i++)
        a[i] = b[i] = (float)(i % 13) * 0.1f;
    for (int r = 0; r < RUNS; r++) {
        double begin_s = env_mono_s();
        dnnl_sgemm('N', 'N', SIZE, SIZE, SIZE, 1, a, SIZE, b, SIZE, 0, c, SIZE);
        double gflops = 2.0 * SIZE * SIZE * SIZE / (env_mono_s() - begin_s) / 1e9;
        best = gflops > best ? gflops : best;
    }
    mem_free(a);
    mem_free(b);
    mem_free(c);
    return best;
}

static enum err time_steps(struct model *model, struct inner *inner, int64_t rows, double *seconds)
{
    int32_t *tokens, *targets;
    double took[RUNS];
    TRY(mem_new((size_t)rows, sizeof *tokens, "tokens", &tokens));
    TRY(mem_new((size_t)rows, sizeof *targets, "targets", &targets));
    for (int64_t i = 0; i < rows; i++) {
        tokens[i] = (int32_t)(i * 7919 % model->V);
        targets[i] = (int32_t)(i * 104729 % model->V);
    }
    for (int r = 0; r < RUNS; r++) {
        struct inner_result result;
        double begin_s = env_mono_s();
        TRY(model_train(model, tokens, targets, 1));
        TRY(inner_step(inner, (uint64_t)r + 1));
        TRY(inner_result(inner, &result));
        took[r] = env_mono_s() - begin_s;
    }
    *seconds = bench_median(took + 1, RUNS - 1); /* the first one touches the memory */
    mem_free(tokens);
    mem_free(targets);
    return ERR_OK;
}

void bench_train(json_t *summary)
{
    struct runspec spec = {.vocab = 256,
                           .width = 768,
                           .layers = 6,
                           .heads = 12,
                           .kv_heads = 12,
                           .ff = 2048,
                           .context = 256,
                           .tied = true,
                           .rope_theta = 10000,
                           .norm_eps = 1e-5,
                           .init_std = 0.02,
                           .inner = RUNSPEC_ADAMW,
                           .lr = 1e-3,
                           .lr_final = 1,
                           .beta1 = 0.9,
                           .beta2 = 0.99,
                           .eps = 1e-8,
                           .weight_decay = 0.1,
                           .clip = 1,
                           .steps = 1000,
                           .batch = 4};
    const struct kern *kern;
    struct kern_dev *dev;
    struct model *model;
    struct inner *inner;
    double seconds = 0;
    int64_t rows = spec.batch * spec.context;
    if (kern_find("cpu", &kern) != ERR_OK || kern->open(&(struct kern_place){0}, &dev) != ERR_OK ||
        model_new(&spec, kern, dev, &(struct model_conf){.batch = spec.batch, .train = true}, &model) != ERR_OK ||
        model_init(model, 1) != ERR_OK || inner_new(model, &spec, &inner) != ERR_OK) {
        fprintf(stderr, "bench: %s\n", err_text());
        return;
    }
    double before = sgemm_gflops();
    if (time_steps(model, inner, rows, &seconds) != ERR_OK)
        fprintf(stderr, "bench: %s\n", err_text());
    double after = sgemm_gflops();
    double peak = after > before ? after : before;
    double gflops = model_train_flops(model, rows) / seconds / 1e9;
    printf("training     %.1f M parameters, width 768, %lld tokens a step: %.0f GFLOP/s, sgemm reaches %.0f: %.0f %% "
           "(aim 50 %%), %.0f tokens/s\n",
           (double)model->params_count / 1e6, (long long)rows, gflops, peak, 100 * gflops / peak,
           (double)rows / seconds);
    json_object_set_new(summary, "train_gemm_fraction", json_real(gflops / peak));
    json_object_set_new(summary, "train_gflops", json_real(gflops));
    json_object_set_new(summary, "sgemm_gflops", json_real(peak));
    json_object_set_new(summary, "train_tokens_per_s", json_real((double)rows / seconds));
    inner_free(inner);
    model_free(model);
    kern->close(dev);
}
