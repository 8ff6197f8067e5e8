/* SPDX-License-Identifier: Apache-2.0 */
/* A training step in fp32 and in bf16, against what the machine's products reach, and against PyTorch: all in turns, so
 * that each ratio is of neighbours in time; medians of these. */
#include <dnnl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/env.h"
#include "common/fsio.h"
#include "common/mem.h"
#include "tests/bench/bench.h"
#include "tests/lib/proc.h"
#include "worker/inner.h"
#include "worker/model/model.h"

enum {
    ROUNDS = 9,
    SIZE = 2048,
    PRECISIONS = 2,
    LOSS_STEPS = 300,
    LOSS_LAST = 50,
    LOSS_SEEDS = 5,
    SEND_SCHEDULER_MAX = 4,
    LINE_BYTES = 512
};
#define LOG "build/bench/train_torch.log"
#define OWN "build/python/bin/python3" /* make check-python makes it */

static const char *const precisions[PRECISIONS] = {"fp32", "bf16"};

static struct runspec shape(void)
{
    return (struct runspec){.vocab = 256,
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
}

/* ---- the machine's own rates ---- */

struct rates {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    dnnl_primitive_t half; /* NULL: this machine has no bf16 */
    dnnl_memory_t x, y, z;
    float *a, *b, *c;
};

static void fill(float *values, size_t count)
{
    for (size_t i = 0; i < count; i++)
        values[i] = (float)(i % 13) * 0.1f;
}

/* (SIZE,SIZE) of both operands in bf16, the second as the library likes it, into fp32. */
static bool rates_half(struct rates *r)
{
    const dnnl_dims_t dims = {SIZE, SIZE};
    dnnl_memory_desc_t plain, any, out;
    dnnl_matmul_desc_t matmul;
    dnnl_primitive_desc_t desc;
    unsigned bf16 = (unsigned)dnnl_cpu_isa_avx512_core_bf16;
    if (((unsigned)dnnl_get_effective_cpu_isa() & bf16) != bf16 ||
        dnnl_memory_desc_init_by_tag(&plain, 2, dims, dnnl_bf16, dnnl_ab) != dnnl_success ||
        dnnl_memory_desc_init_by_tag(&any, 2, dims, dnnl_bf16, dnnl_format_tag_any) != dnnl_success ||
        dnnl_memory_desc_init_by_tag(&out, 2, dims, dnnl_f32, dnnl_ab) != dnnl_success ||
        dnnl_matmul_desc_init(&matmul, &plain, &any, NULL, &out) != dnnl_success ||
        dnnl_primitive_desc_create(&desc, &matmul, NULL, r->engine, NULL) != dnnl_success)
        return false;
    bool made = dnnl_primitive_create(&r->half, desc) == dnnl_success &&
                dnnl_memory_create(&r->x, &plain, r->engine, DNNL_MEMORY_ALLOCATE) == dnnl_success &&
                dnnl_memory_create(&r->y, dnnl_primitive_desc_query_md(desc, dnnl_query_weights_md, 0), r->engine,
                                   DNNL_MEMORY_ALLOCATE) == dnnl_success &&
                dnnl_memory_create(&r->z, &out, r->engine, DNNL_MEMORY_ALLOCATE) == dnnl_success;
    dnnl_memory_t both[2] = {r->x, r->y};
    for (int i = 0; made && i < 2; i++) {
        void *bytes;
        dnnl_memory_get_data_handle(both[i], &bytes);
        memset(bytes, 0x3c, (size_t)SIZE * SIZE * 2); /* .0115, which is bf16 in any layout */
    }
    dnnl_primitive_desc_destroy(desc);
    return made;
}

static enum err rates_new(struct rates *r)
{
    size_t count = (size_t)SIZE * SIZE;
    *r = (struct rates){0};
    TRY(mem_new(count, sizeof *r->a, "a", &r->a));
    TRY(mem_new(count, sizeof *r->b, "b", &r->b));
    TRY(mem_new(count, sizeof *r->c, "c", &r->c));
    fill(r->a, count);
    fill(r->b, count);
    if (dnnl_engine_create(&r->engine, dnnl_cpu, 0) != dnnl_success ||
        dnnl_stream_create(&r->stream, r->engine, dnnl_stream_default_flags) != dnnl_success)
        return err_set(ERR_STATE, "oneDNN opens no engine");
    if (!rates_half(r))
        r->half = NULL;
    return ERR_OK;
}

static double gflops(double begin_s)
{
    return 2.0 * SIZE * SIZE * SIZE / (env_mono_s() - begin_s) / 1e9;
}

/* Best of two: the limit, not what neighbours leave of it. */
static double best_rate(const struct rates *r, bool half)
{
    double best = 0;
    for (int i = 0; i < 2; i++) {
        const dnnl_exec_arg_t args[] = {{DNNL_ARG_SRC, r->x}, {DNNL_ARG_WEIGHTS, r->y}, {DNNL_ARG_DST, r->z}};
        double begin_s = env_mono_s();
        if (half)
            dnnl_primitive_execute(r->half, r->stream, 3, args);
        else
            dnnl_sgemm('N', 'N', SIZE, SIZE, SIZE, 1, r->a, SIZE, r->b, SIZE, 0, r->c, SIZE);
        double rate = gflops(begin_s);
        best = rate > best ? rate : best;
    }
    return best;
}

static void rates_free(struct rates *r)
{
    dnnl_memory_destroy(r->x);
    dnnl_memory_destroy(r->y);
    dnnl_memory_destroy(r->z);
    dnnl_primitive_destroy(r->half);
    dnnl_stream_destroy(r->stream);
    dnnl_engine_destroy(r->engine);
    mem_free(r->a);
    mem_free(r->b);
    mem_free(r->c);
}

/* ---- our trainer ---- */

struct ours {
    const struct kern *kern;
    struct kern_dev *dev;
    struct model *model;
    struct inner *inner;
    int32_t *tokens, *targets;
    int64_t rows;
    uint64_t steps;
    bool half; /* its products are in bf16 */
};

static enum err ours_new(const struct runspec *spec, bool bf16, struct ours *o)
{
    *o = (struct ours){.rows = spec->batch * spec->context};
    TRY(kern_find("cpu", &o->kern));
    TRY(o->kern->open(&(struct kern_place){.bf16 = bf16}, &o->dev));
    o->half = o->kern->bf16(o->dev);
    TRY(model_new(spec, o->kern, o->dev, &(struct model_conf){.batch = spec->batch, .train = true}, &o->model));
    TRY(model_init(o->model, 1));
    TRY(inner_new(o->model, spec, &o->inner));
    TRY(mem_new((size_t)o->rows, sizeof *o->tokens, "tokens", &o->tokens));
    TRY(mem_new((size_t)o->rows, sizeof *o->targets, "targets", &o->targets));
    for (int64_t i = 0; i < o->rows; i++) {
        o->tokens[i] = (int32_t)(i * 7919 % spec->vocab);
        o->targets[i] = (int32_t)(i * 104729 % spec->vocab);
    }
    return ERR_OK;
}

static void ours_free(struct ours *o)
{
    inner_free(o->inner);
    model_free(o->model);
    if (o->dev != NULL)
        o->kern->close(o->dev);
    mem_free(o->tokens);
    mem_free(o->targets);
}

static enum err ours_step(struct ours *o, double *seconds, double *loss)
{
    struct inner_result result;
    double begin_s = env_mono_s();
    TRY(model_train(o->model, o->tokens, o->targets, 1));
    TRY(inner_step(o->inner, ++o->steps));
    TRY(inner_result(o->inner, &result));
    *seconds = env_mono_s() - begin_s;
    *loss = result.loss;
    return ERR_OK;
}

/* ---- PyTorch ---- */

struct torch {
    pid_t pid;
    FILE *to, *from;
    json_t *about; /* version, params, ways */
    char why[LINE_BYTES];
};

static pid_t torch_spawn(const char *const *argv, FILE **to, FILE **from)
{
    int in[2], out[2];
    if (pipe(in) != 0 || pipe(out) != 0)
        return -1;
    pid_t pid = fork();
    if (pid == 0) {
        dup2(in[0], 0);
        dup2(out[1], 1);
        if (freopen(LOG, "w", stderr) == NULL)
            _exit(126);
        close(in[1]);
        close(out[0]);
        execv(argv[0], (char *const *)(uintptr_t)argv);
        _exit(127);
    }
    close(in[0]);
    close(out[1]);
    *to = fdopen(in[1], "w");
    *from = fdopen(out[0], "r");
    return pid;
}

static void torch_open(const struct runspec *spec, struct torch *t)
{
    static char numbers[8][24], line[LINE_BYTES];
    const char *python = getenv("PYTHON");
    python = python != NULL && python[0] != '\0' ? python : OWN;
    const char *look[] = {"/usr/bin/env", python, "-c", "import torch", NULL};
    *t = (struct torch){.pid = -1};
    if (proc_run(look, LOG, line, sizeof line) != 0) {
        snprintf(t->why, sizeof t->why, "%s has no PyTorch; make check-python installs it, or PYTHON=... names one",
                 python);
        return;
    }
    const int64_t values[] = {spec->width,   spec->layers, spec->heads, spec->ff,
                              spec->context, spec->batch,  spec->vocab, sysconf(_SC_NPROCESSORS_ONLN)};
    for (int i = 0; i < 8; i++)
        snprintf(numbers[i], sizeof numbers[i], "%lld", (long long)values[i]);
    const char *argv[] = {"/usr/bin/env", python,     "tests/bench/train_torch.py",
                          "--width",      numbers[0], "--layers",
                          numbers[1],     "--heads",  numbers[2],
                          "--ff",         numbers[3], "--context",
                          numbers[4],     "--batch",  numbers[5],
                          "--vocab",      numbers[6], "--threads",
                          numbers[7],     NULL};
    t->pid = torch_spawn(argv, &t->to, &t->from);
    if (t->pid < 0 || fgets(line, sizeof line, t->from) == NULL || (t->about = json_loads(line, 0, NULL)) == NULL)
        snprintf(t->why, sizeof t->why, "train_torch.py failed; see " LOG);
}

static void torch_close(struct torch *t)
{
    if (t->to != NULL)
        fclose(t->to); /* which ends it */
    if (t->from != NULL)
        fclose(t->from);
    if (t->pid > 0)
        waitpid(t->pid, NULL, 0);
    json_decref(t->about);
}

static size_t torch_ways(const struct torch *t)
{
    size_t count = json_array_size(json_object_get(t->about, "ways"));
    return count < SEND_SCHEDULER_MAX ? count : SEND_SCHEDULER_MAX;
}

static const char *torch_way(const struct torch *t, size_t way)
{
    return json_string_value(json_array_get(json_object_get(t->about, "ways"), way));
}

/* Seconds; 0: it has ended. */
static double torch_step(struct torch *t, size_t way)
{
    char line[64];
    fprintf(t->to, "%s\n", torch_way(t, way));
    if (fflush(t->to) != 0 || fgets(line, sizeof line, t->from) == NULL)
        return 0;
    proc_sleep_ms(30); /* its threads go to sleep */
    return atof(line);
}

/* ---- rounds ---- */

struct figures {
    double rate[PRECISIONS][ROUNDS];    /* GFLOP/s of products */
    double seconds[PRECISIONS][ROUNDS]; /* of a step */
    double torch[SEND_SCHEDULER_MAX][ROUNDS];
    int rounds;
};

static enum err play(struct rates *rates, struct ours *ours, struct torch *torch, struct figures *f)
{
    double loss, unused;
    for (int p = 0; p < PRECISIONS; p++)
        TRY(ours_step(&ours[p], &unused, &loss)); /* the first one touches the memory */
    for (f->rounds = 0; f->rounds < ROUNDS; f->rounds++) {
        for (int p = 0; p < PRECISIONS; p++) {
            f->rate[p][f->rounds] = p == 0 || rates->half != NULL ? best_rate(rates, p == 1) : 0;
            TRY(ours_step(&ours[p], &f->seconds[p][f->rounds], &loss));
        }
        proc_sleep_ms(30);
        for (size_t w = 0; w < torch_ways(torch); w++) {
            f->torch[w][f->rounds] = torch_step(torch, w);
            if (f->torch[w][f->rounds] == 0)
                return err_set(ERR_IO, "PyTorch has ended; see " LOG);
        }
    }
    return ERR_OK;
}

/* The median of a / b, round by round. */
static double median_ratio(const double *a, const double *b, int rounds)
{
    double ratio[ROUNDS];
    for (int i = 0; i < rounds; i++)
        ratio[i] = a[i] / b[i];
    return bench_median(ratio, rounds);
}

static double median_of(const double *values, int rounds)
{
    double copy[ROUNDS];
    memcpy(copy, values, (size_t)rounds * sizeof *copy);
    return bench_median(copy, rounds);
}

static void tell_precision(json_t *summary, const struct figures *f, int p, double flops, double tokens)
{
    char key[64];
    double seconds = median_of(f->seconds[p], f->rounds), fraction[ROUNDS];
    for (int i = 0; i < f->rounds; i++)
        fraction[i] = flops / f->seconds[p][i] / 1e9 / f->rate[p][i];
    double part = bench_median(fraction, f->rounds);
    printf("training     %s: %.0f GFLOP/s, products reach %.0f: %.0f %%, %.0f tokens/s\n", precisions[p],
           flops / seconds / 1e9, median_of(f->rate[p], f->rounds), 100 * part, tokens / seconds);
    snprintf(key, sizeof key, "train_%sgemm_fraction", p == 0 ? "" : "bf16_");
    json_object_set_new(summary, key, json_real(part));
    snprintf(key, sizeof key, "train_%sgflops", p == 0 ? "" : "bf16_");
    json_object_set_new(summary, key, json_real(flops / seconds / 1e9));
    json_object_set_new(summary, p == 0 ? "sgemm_gflops" : "bf16_gemm_gflops",
                        json_real(median_of(f->rate[p], f->rounds)));
    snprintf(key, sizeof key, "train_%stokens_per_s", p == 0 ? "" : "bf16_");
    json_object_set_new(summary, key, json_real(tokens / seconds));
}

/* Against the faster of its two ways with autocast. */
static void tell_torch(json_t *summary, const struct figures *f, const struct torch *t, bool half, double tokens)
{
    json_t *ways = json_object();
    double over = 0;
    for (size_t w = 0; w < torch_ways(t); w++) {
        bool autocast = strstr(torch_way(t, w), "autocast") != NULL;
        double faster = median_ratio(f->torch[w], f->seconds[autocast && half], f->rounds);
        double rate = tokens / median_of(f->torch[w], f->rounds);
        printf("             PyTorch %s, %s: %.0f tokens/s; ours in %s is %.2f times as fast\n",
               json_string_value(json_object_get(t->about, "version")), torch_way(t, w), rate,
               precisions[autocast && half], faster);
        json_object_set_new(ways, torch_way(t, w), json_real(rate));
        if (autocast && half && (over == 0 || faster < over))
            over = faster;
    }
    json_object_set_new(summary, "train_bf16_over_torch", over > 0 ? json_real(over) : json_null());
    json_object_set_new(summary, "train_torch_tokens_per_s", ways);
}

/* ---- the loss ---- */

/* Windows of a document of ours: text with something to learn. */
static void next_batch(struct ours *o, struct env_rng *rng, const char *text, size_t bytes, int64_t T)
{
    for (int64_t b = 0; b < o->rows / T; b++) {
        size_t at = env_rng_below(rng, bytes - (size_t)T - 1);
        for (int64_t i = 0; i < T; i++) {
            o->tokens[b * T + i] = (unsigned char)text[at + (size_t)i];
            o->targets[b * T + i] = (unsigned char)text[at + (size_t)i + 1];
        }
    }
}

static enum err last_losses(const struct runspec *spec, bool bf16, uint64_t seed, const char *text, size_t bytes,
                            double *mean)
{
    enum err err;
    struct ours ours = {0};
    struct env_rng rng = env_rng_init(5, seed);
    double seconds, loss;
    *mean = 0;
    TRY_OUT(ours_new(spec, bf16, &ours));
    TRY_OUT(model_init(ours.model, seed));
    for (int s = 0; s < LOSS_STEPS; s++) {
        next_batch(&ours, &rng, text, bytes, spec->context);
        TRY_OUT(ours_step(&ours, &seconds, &loss));
        *mean += s >= LOSS_STEPS - LOSS_LAST ? loss / LOSS_LAST : 0;
    }
    err = ERR_OK;
out:
    ours_free(&ours);
    return err;
}

/* How far the loss in bf16 is from that in fp32 at the end of LOSS_STEPS steps of a smaller model. Over several seeds:
 * in fp32 alone a change of the initial weights by a millionth moves a single run's by half a percent. */
static enum err compare_loss(double *apart)
{
    enum err err = ERR_OK;
    struct runspec spec = shape();
    double sum[PRECISIONS] = {0}, one;
    char *text = NULL;
    size_t bytes;
    spec.width = 256;
    spec.layers = 4;
    spec.heads = spec.kv_heads = 4;
    spec.ff = 704;
    spec.context = 128;
    spec.warmup = 50;
    TRY(fsio_read("docs/PROTOCOL.md", (size_t)1 << 24, &text, &bytes));
    for (int i = 0; err == ERR_OK && i < PRECISIONS * LOSS_SEEDS; i++) {
        err = last_losses(&spec, i % PRECISIONS == 1, 1 + (uint64_t)i / PRECISIONS, text, bytes, &one);
        sum[i % PRECISIONS] += one / LOSS_SEEDS;
    }
    mem_free(text);
    TRY(err);
    *apart = sum[1] / sum[0] - 1;
    printf("             loss after %d steps of a smaller model, %d seeds: %.4f in fp32, %.4f in bf16 (%+.2f %%, aim "
           ".5 %%)\n",
           LOSS_STEPS, LOSS_SEEDS, sum[0], sum[1], 100 * *apart);
    return ERR_OK;
}

/* ---- all of it ---- */

static enum err compare(json_t *summary, struct rates *rates, struct ours *ours, struct torch *torch)
{
    static struct figures f;
    struct runspec spec = shape();
    double apart, tokens = (double)(spec.batch * spec.context);
    TRY(rates_new(rates));
    for (int p = 0; p < PRECISIONS; p++)
        TRY(ours_new(&spec, p == 1, &ours[p]));
    torch_open(&spec, torch);
    TRY(play(rates, ours, torch, &f));
    bool half = ours[1].half && rates->half != NULL;
    double flops = model_train_flops(ours[0].model, ours[0].rows);
    printf("training     %.1f M parameters, width %lld, %.0f tokens a step, %d rounds in turns\n",
           (double)ours[0].model->params_count / 1e6, (long long)spec.width, tokens, f.rounds);
    for (int p = 0; p < (half ? PRECISIONS : 1); p++)
        tell_precision(summary, &f, p, flops, tokens);
    double over = median_ratio(f.seconds[0], f.seconds[1], f.rounds);
    if (half)
        printf("             bf16 is %.2f times as fast as fp32 (aim 1.9)\n", over);
    else
        printf("             bf16 skipped: this CPU has neither AVX512-BF16 nor AMX\n");
    json_object_set_new(summary, "train_bf16_over_fp32", half ? json_real(over) : json_null());
    if (torch->why[0] != '\0')
        printf("             PyTorch skipped: %s\n", torch->why);
    tell_torch(summary, &f, torch, half, tokens);
    if (half) {
        TRY(compare_loss(&apart));
        json_object_set_new(summary, "train_bf16_loss_apart", json_real(apart));
    }
    return ERR_OK;
}

void bench_train(json_t *summary)
{
    struct rates rates = {0};
    struct ours ours[PRECISIONS] = {{0}};
    struct torch torch = {.pid = -1};
    signal(SIGPIPE, SIG_IGN);
    if (compare(summary, &rates, ours, &torch) != ERR_OK)
        fprintf(stderr, "bench: %s\n", err_text());
    torch_close(&torch);
    for (int p = 0; p < PRECISIONS; p++)
        ours_free(&ours[p]);
    rates_free(&rates);
}
