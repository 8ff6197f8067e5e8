/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/gpu/bench_gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/args.h"
#include "common/digest.h"
#include "common/env.h"
#include "common/fsio.h"
#include "common/log.h"
#include "common/mem.h"
#include "kernels/kern.h"
#include "tests/gpu/gpu.h"

enum { GROUPS = 5, CALLS_MIN = 2, CALLS_MAX = 300 };

/* ---- values ---- */

enum tile { TILE_NORMAL, TILE_WEIGHTS, TILE_ONES, TILES };

static float value_of(enum tile kind, struct env_rng *rng)
{
    if (kind == TILE_ONES)
        return 1;
    return (float)(env_rng_normal(rng) * (kind == TILE_WEIGHTS ? 0.02 : 1));
}

static enum err make_tiles(struct bench_gpu *b)
{
    struct env_rng rng = env_rng_init(5, 0);
    float **const places[TILES] = {&b->tile, &b->weights, &b->ones};
    float *host;
    enum err err = ERR_OK;
    TRY(mem_new(BENCH_TILE, sizeof *host, "values", &host));
    for (int kind = 0; kind < TILES && err == ERR_OK; kind++) {
        err = b->kern->alloc(b->dev, BENCH_TILE * sizeof *host, "values", (void **)places[kind]);
        for (int i = 0; i < BENCH_TILE && err == ERR_OK; i++)
            host[i] = value_of((enum tile)kind, &rng);
        if (err == ERR_OK)
            b->kern->copy(b->dev, KERN_MAIN, *places[kind], host, BENCH_TILE * sizeof *host);
    }
    mem_free(host);
    return err;
}

enum err bench_gpu_fill(struct bench_gpu *b, kern_act *to, int64_t count)
{
    for (int64_t at = 0; at < count; at += BENCH_TILE)
        b->kern->to_act(b->dev, (char *)to + (size_t)at * b->kern->act_bytes, b->tile,
                        count - at < BENCH_TILE ? count - at : BENCH_TILE);
    return b->kern->fault(b->dev);
}

void bench_gpu_fill_float(struct bench_gpu *b, float *to, const float *tile, int64_t count)
{
    for (int64_t at = 0; at < count; at += BENCH_TILE) {
        int64_t n = count - at < BENCH_TILE ? count - at : BENCH_TILE;
        b->kern->copy(b->dev, KERN_MAIN, to + at, tile, (size_t)n * sizeof *to);
    }
}

/* ---- time ---- */

static enum err time_calls(struct bench_gpu *b, bench_call *call, void *context, int count, double *seconds)
{
    double begin_s = env_mono_s();
    for (int i = 0; i < count; i++)
        call(b, context);
    TRY(b->kern->wait(b->dev, b->kern->mark(b->dev, KERN_MAIN)));
    *seconds = (env_mono_s() - begin_s) / count;
    return ERR_OK;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

enum err bench_gpu_time(struct bench_gpu *b, bench_call *call, void *context, double *seconds)
{
    const double group_s = b->small ? 0.002 : 0.04;
    double took[GROUPS], one;
    TRY(time_calls(b, call, context, 1, &one)); /* loads kernels, finds plans */
    TRY(time_calls(b, call, context, 1, &one));
    double wanted = one > 0 ? group_s / one : CALLS_MAX;
    int count = wanted > CALLS_MAX ? CALLS_MAX : wanted < CALLS_MIN ? CALLS_MIN : (int)wanted;
    for (int i = 0; i < GROUPS; i++)
        TRY(time_calls(b, call, context, count, &took[i]));
    qsort(took, GROUPS, sizeof took[0], by_value);
    *seconds = took[GROUPS / 2];
    return ERR_OK;
}

/* ---- ceilings ---- */

struct square {
    int64_t side;
    kern_act *a, *b, *c;
};

static void multiply(struct bench_gpu *b, void *context)
{
    const struct square *s = context;
    struct kern_linear shape = {.R = s->side, .K = s->side, .N = s->side, .ld = s->side};
    b->kern->linear_fwd(b->dev, s->c, s->a, s->b, shape);
}

static void copy(struct bench_gpu *b, void *context)
{
    const struct square *s = context;
    size_t bytes = (size_t)(s->side * s->side) * b->kern->act_bytes;
    b->kern->copy(b->dev, KERN_MAIN, s->c, s->a, bytes);
}

static enum err measure(struct bench_gpu *b, struct square *s)
{
    size_t bytes = (size_t)(s->side * s->side) * b->kern->act_bytes;
    double seconds;
    TRY(b->kern->alloc(b->dev, bytes, "a matrix", &s->a));
    TRY(b->kern->alloc(b->dev, bytes, "a matrix", &s->b));
    TRY(b->kern->alloc(b->dev, bytes, "a matrix", &s->c));
    TRY(bench_gpu_fill(b, s->a, s->side * s->side));
    TRY(bench_gpu_fill(b, s->b, s->side * s->side));
    /* First of all, and long enough that clocks are what they are under load. */
    for (int i = 0; i < (b->small ? 1 : 8); i++)
        TRY(bench_gpu_time(b, multiply, s, &seconds));
    b->product_rate = 2.0 * (double)s->side * (double)s->side * (double)s->side / seconds;
    TRY(bench_gpu_time(b, copy, s, &seconds));
    b->copy_rate = 2.0 * (double)bytes / seconds;
    return ERR_OK;
}

enum err bench_gpu_ceilings(struct bench_gpu *b)
{
    struct square s = {.side = b->small ? 128 : 8192};
    enum err err = measure(b, &s);
    b->kern->free(b->dev, s.a);
    b->kern->free(b->dev, s.b);
    b->kern->free(b->dev, s.c);
    TRY(err);
    printf("ceilings     product of %lld^3, random data: %.1f TFLOP/s; copy: %.0f GB/s, read and written\n",
           (long long)s.side, b->product_rate / 1e12, b->copy_rate / 1e9);
    fflush(stdout);
    json_object_set_new(b->summary, "ceilings",
                        json_pack("{s:I, s:f, s:f}", "product_side", (json_int_t)s.side, "product_tflops",
                                  b->product_rate / 1e12, "copy_gb_per_s", b->copy_rate / 1e9));
    return bench_gpu_keep(b);
}

/* ---- results ---- */

double bench_gpu_left(const struct bench_gpu *b)
{
    return b->end_s - env_mono_s();
}

json_t *bench_gpu_rows(struct bench_gpu *b, const char *name)
{
    json_t *rows = json_array();
    json_object_set_new(b->summary, name, rows);
    return rows;
}

enum err bench_gpu_keep(struct bench_gpu *b)
{
    if (b->out == NULL)
        return ERR_OK;
    char *text = json_dumps(b->summary, JSON_INDENT(1) | JSON_REAL_PRECISION(6));
    enum err err = text != NULL ? fsio_replace(b->out, text, strlen(text), 0644)
                                : err_set(ERR_NOMEM, "the results do not become JSON");
    free(text);
    return err;
}

/* ---- all of it ---- */

static enum err run_all(struct bench_gpu *b)
{
    char device[160];
    b->kern->describe(b->dev, device, sizeof device);
    json_object_set_new(b->summary, "device", json_string(device));
    TRY(make_tiles(b));
    /* What tells most comes first, and what may take longest last. */
    TRY(bench_gpu_ceilings(b));
    TRY(bench_gpu_models(b));
    TRY(bench_gpu_operations(b));
    return bench_gpu_torch(b);
}

static int finish(struct bench_gpu *b, enum err err)
{
    int status = err != ERR_OK;
    if (err != ERR_OK) {
        fprintf(stderr, "bench_gpu: %s\n", err_text());
        json_object_set_new(b->summary, "failed", json_string(err_text()));
    }
    json_object_set_new(b->summary, "complete", json_boolean(err == ERR_OK));
    b->kern->free(b->dev, b->tile);
    b->kern->free(b->dev, b->weights);
    b->kern->free(b->dev, b->ones);
    b->kern->close(b->dev);
    if (bench_gpu_keep(b) != ERR_OK) {
        fprintf(stderr, "bench_gpu: %s\n", err_text());
        status = 1;
    } else if (b->out != NULL) {
        printf("written to   %s\n", b->out);
    }
    return status;
}

static int open_device(struct bench_gpu *b, const char *device)
{
    if (strcmp(device, "cuda") == 0)
        return gpu_open(&b->kern, &b->dev);
    enum err err = kern_find(device, &b->kern);
    if (err == ERR_OK)
        err = b->kern->open(&(struct kern_place){0}, &b->dev);
    if (err == ERR_OK)
        return 0;
    fprintf(stderr, "bench_gpu: %s\n", err_text());
    return 2;
}

int main(int argc, char **argv)
{
    struct bench_gpu b = {0};
    const char *device = "cuda", *commit = "unknown";
    double seconds = 460;
    bool help = false;
    const struct args_option options[] = {
        {"out", ARGS_STRING, &b.out, "FILE", "where the results go, as JSON, after each row"},
        {"seconds", ARGS_REAL, &seconds, "S", "no row is begun after so many; PyTorch gets what is left (default 460)"},
        {"commit", ARGS_STRING, &commit, "TEXT", "of this build, for the results"},
        {"torch", ARGS_STRING, &b.torch, "SCRIPT", "torch_model.py, for the same models in PyTorch"},
        {"only", ARGS_STRING, &b.only, "NAME", "models whose name contains it"},
        {"device", ARGS_STRING, &device, "NAME", "cuda, or cpu to try this program (default cuda)"},
        {"small", ARGS_FLAG, &b.small, NULL, "sizes that a CPU can do, which measure nothing"},
        {"help", ARGS_FLAG, &help, NULL, "print this"},
    };
    const size_t count = sizeof options / sizeof options[0];
    log_init("bench_gpu", LOG_LEVEL_INFO);
    enum err err = args_parse(argc, argv, options, count, NULL);
    if (err == ERR_OK && help) {
        args_help(options, count, stdout);
        return 0;
    }
    if (err == ERR_OK)
        err = digest_init();
    if (err != ERR_OK) {
        fprintf(stderr, "bench_gpu: %s\n", err_text());
        return 2;
    }
    b.end_s = env_mono_s() + seconds;
    int status = open_device(&b, device);
    if (status != 0)
        return status;
    b.summary = json_pack("{s:s, s:b, s:b}", "commit", commit, "complete", false, "small", b.small);
    status = finish(&b, run_all(&b));
    json_decref(b.summary);
    return status;
}
