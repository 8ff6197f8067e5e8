/* SPDX-License-Identifier: Apache-2.0 */
/* Each operation at the shapes of the 1.3B model: time, and what it reaches of the ceiling that limits it. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/env.h"
#include "common/mem.h"
#include "tests/gpu/bench_gpu.h"
#include "tests/gpu/gpu.h"

enum { ARRAYS_MAX = 32 };

struct ops {
    int64_t B, T, C, H, D, F, V, R, heads, count; /* count: values of flat arrays */
    int64_t logits_rows, logits_ld;
    kern_act *x, *y, *z, *out;       /* (R,C) */
    kern_act *wide, *d_wide;         /* (R,2F) or (R,3C) */
    kern_act *narrow;                /* (R,F) */
    kern_act *weight, *logits, *act; /* (V,C); (logits_rows,V); (count) */
    float *rstd, *lse, *losses, *dw; /* dw(V,C) */
    float *cos_sin;                  /* (T,D/2,2) */
    float *flat[4];                  /* (count) each */
    int32_t *tokens, *bad;           /* (R); (1) */
    struct kern_step *step;
    struct kern_spans *spans;
    void *scratch;
    struct kern_attention attention;
    struct kern_linear shape; /* of the product that is being timed */
    void *taken[ARRAYS_MAX];
    size_t taken_count;
};

#define CALL(name) static void name(struct bench_gpu *b, void *context)
#define OPS struct ops *o = context

CALL(linear_fwd)
{
    OPS;
    kern_act *inp = o->shape.K == o->F ? o->narrow : o->x;
    kern_act *out = o->shape.N == o->V ? o->logits : o->shape.N == o->C ? o->out : o->wide;
    b->kern->linear_fwd(b->dev, out, inp, o->weight, o->shape);
}
CALL(linear_bwd_inp)
{
    OPS;
    kern_act *inp = o->shape.K == o->F ? o->narrow : o->out;
    kern_act *out = o->shape.N == o->V ? o->logits : o->shape.N == o->C ? o->y : o->wide;
    b->kern->linear_bwd_inp(b->dev, inp, out, o->weight, o->shape, false);
}
CALL(linear_bwd_w)
{
    OPS;
    kern_act *inp = o->shape.K == o->F ? o->narrow : o->x;
    kern_act *out = o->shape.N == o->V ? o->logits : o->shape.N == o->C ? o->y : o->wide;
    b->kern->linear_bwd_w(b->dev, o->dw, out, inp, o->shape);
}
CALL(attention_fwd)
{
    OPS;
    b->kern->attention_fwd(b->dev, o->out, o->lse, o->wide, &o->attention, o->scratch);
}
CALL(attention_bwd)
{
    OPS;
    b->kern->attention_bwd(b->dev, o->d_wide, o->x, o->out, o->wide, o->lse, &o->attention, o->scratch);
}
CALL(embed_fwd)
{
    OPS;
    b->kern->embed_fwd(b->dev, o->out, o->tokens, o->weight, o->R, o->C, 0, o->V);
}
CALL(embed_bwd)
{
    OPS;
    b->kern->embed_bwd(b->dev, o->dw, o->x, o->tokens, o->R, o->C, 0, o->V);
}
CALL(rmsnorm_fwd)
{
    OPS;
    b->kern->rmsnorm_fwd(b->dev, o->out, o->rstd, o->z, o->x, o->y, o->weight, o->R, o->C, 1e-5f);
}
CALL(rmsnorm_bwd)
{
    OPS;
    b->kern->rmsnorm_bwd(b->dev, o->out, o->dw, o->y, o->x, o->weight, o->rstd, o->R, o->C);
}
CALL(rope)
{
    OPS;
    b->kern->rope(b->dev, o->wide, o->cos_sin, o->R, o->T, 3 * o->C, 2 * o->H, o->D, false);
}
CALL(swiglu_fwd)
{
    OPS;
    b->kern->swiglu_fwd(b->dev, o->narrow, o->wide, o->R, o->F);
}
CALL(swiglu_bwd)
{
    OPS;
    b->kern->swiglu_bwd(b->dev, o->d_wide, o->narrow, o->wide, o->R, o->F);
}
CALL(cross_entropy)
{
    OPS;
    struct kern_logits shape = {.R = o->logits_rows, .V = o->V, .ld = o->logits_ld};
    b->kern->cross_entropy(b->dev, o->losses, o->logits, o->tokens, shape, 1e-4f);
}
CALL(sum_squares)
{
    OPS;
    b->kern->sum_squares(b->dev, o->step, o->flat[1], o->count);
}
CALL(adamw)
{
    OPS;
    struct kern_adamw conf = {.lr = 1e-4f, .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .weight_decay = 0.1f};
    kern_act *act = b->kern->on_host ? o->flat[0] : o->act;
    b->kern->adamw(b->dev, o->flat[0], act, o->flat[1], o->flat[2], o->flat[3], o->spans, o->step, conf);
}
CALL(to_act)
{
    OPS;
    b->kern->to_act(b->dev, o->act, o->flat[0], o->count);
}
CALL(from_act)
{
    OPS;
    b->kern->from_act(b->dev, o->flat[1], o->act, o->count);
}
CALL(mix)
{
    OPS;
    b->kern->mix(b->dev, o->flat[0], b->kern->on_host ? o->flat[0] : o->act, o->flat[1], o->count, 0.5f);
}
CALL(shift)
{
    OPS;
    kern_act *act = b->kern->on_host ? o->flat[0] : o->act;
    b->kern->shift(b->dev, o->flat[0], act, o->flat[1], o->flat[2], o->count);
}
CALL(find_bad)
{
    OPS;
    b->kern->find_bad(b->dev, o->bad, o->flat[1], o->count);
}

/* ---- arrays ---- */

static enum err take(struct bench_gpu *b, struct ops *o, size_t bytes, void *out)
{
    void *at;
    TRY(b->kern->alloc(b->dev, bytes, "an operation's arrays", &at));
    o->taken[o->taken_count++] = at;
    memcpy(out, &at, sizeof at);
    return ERR_OK;
}

static enum err take_act(struct bench_gpu *b, struct ops *o, int64_t count, void *out)
{
    TRY(take(b, o, (size_t)count * b->kern->act_bytes, out));
    return bench_gpu_fill(b, o->taken[o->taken_count - 1], count);
}

static enum err take_float(struct bench_gpu *b, struct ops *o, int64_t count, float **out)
{
    TRY(take(b, o, (size_t)count * sizeof(float), out));
    bench_gpu_fill_float(b, *out, b->tile, count);
    return ERR_OK;
}

static enum err upload(struct bench_gpu *b, struct ops *o)
{
    struct env_rng rng = env_rng_init(6, 0);
    int32_t *tokens;
    float *angles;
    TRY(mem_new((size_t)o->R, sizeof *tokens, "tokens", &tokens));
    enum err err = mem_new((size_t)(o->T * o->D), sizeof *angles, "angles", &angles);
    if (err == ERR_OK) {
        for (int64_t i = 0; i < o->R; i++)
            tokens[i] = (int32_t)env_rng_below(&rng, (uint64_t)o->V);
        for (int64_t i = 0; i < o->T * o->D / 2; i++) {
            angles[2 * i] = (float)cos((double)i);
            angles[2 * i + 1] = (float)sin((double)i);
        }
        b->kern->copy(b->dev, KERN_MAIN, o->tokens, tokens, (size_t)o->R * sizeof *tokens);
        b->kern->copy(b->dev, KERN_MAIN, o->cos_sin, angles, (size_t)(o->T * o->D) * sizeof *angles);
        mem_free(angles);
    }
    mem_free(tokens);
    return err;
}

static enum err set_up(struct bench_gpu *b, struct ops *o)
{
    int64_t wide = 2 * o->F > 3 * o->C ? 2 * o->F : 3 * o->C;
    const struct kern *k = b->kern;
    kern_act **narrow[] = {&o->x, &o->y, &o->z, &o->out};
    const struct kern_span all = {.count = o->count, .decay = true};
    k->logits_shape(o->R, o->V, &o->logits_rows, &o->logits_ld);
    TRY(k->reserve(b->dev, o->R, wide, 0));
    for (size_t i = 0; i < sizeof narrow / sizeof narrow[0]; i++)
        TRY(take_act(b, o, o->R * o->C, narrow[i]));
    TRY(take_act(b, o, o->R * wide, &o->wide));
    TRY(take_act(b, o, o->R * wide, &o->d_wide));
    TRY(take_act(b, o, o->R * o->F, &o->narrow));
    TRY(take_act(b, o, o->V * o->C > 2 * o->F * o->C ? o->V * o->C : 2 * o->F * o->C, &o->weight));
    TRY(take_act(b, o, o->logits_rows * o->logits_ld, &o->logits));
    TRY(take_act(b, o, o->count, &o->act));
    TRY(take_float(b, o, o->V * o->C > 2 * o->F * o->C ? o->V * o->C : 2 * o->F * o->C, &o->dw));
    for (int i = 0; i < 4; i++)
        TRY(take_float(b, o, o->count, &o->flat[i]));
    TRY(take(b, o, (size_t)o->R * sizeof(float), &o->rstd));
    TRY(take(b, o, (size_t)(o->R * o->H) * sizeof(float), &o->lse));
    TRY(take(b, o, (size_t)o->R * sizeof(float), &o->losses));
    TRY(take(b, o, (size_t)(o->T * o->D) * sizeof(float), &o->cos_sin));
    TRY(take(b, o, (size_t)o->R * sizeof(int32_t), &o->tokens));
    TRY(take(b, o, sizeof(int32_t), &o->bad));
    TRY(take(b, o, sizeof *o->step, &o->step));
    TRY(take(b, o, k->attention_scratch(b->dev, &o->attention), &o->scratch));
    TRY(k->spans_new(b->dev, &all, 1, &o->spans));
    TRY(upload(b, o));
    /* Moments are squares: not negative. */
    k->zero(b->dev, o->flat[3], (size_t)o->count * sizeof(float));
    k->sum_squares(b->dev, o->step, o->flat[1], o->count);
    k->judge(b->dev, o->step, (struct kern_judge){.norm_max = 1, .beta1 = 0.9, .beta2 = 0.95});
    return k->sync(b->dev);
}

static void take_down(struct bench_gpu *b, struct ops *o)
{
    if (o->spans != NULL)
        b->kern->spans_free(b->dev, o->spans);
    for (size_t i = 0; i < o->taken_count; i++)
        b->kern->free(b->dev, o->taken[i]);
}

/* ---- the table ---- */

/* `bytes`: what must be read and written once; 0 flops: bound by memory. */
static enum err row(struct bench_gpu *b, struct ops *o, json_t *rows, const char *name, bench_call *call, double bytes,
                    double flops)
{
    double seconds;
    if (bench_gpu_left(b) <= 0) {
        printf("  %-26s skipped: no time left\n", name);
        json_array_append_new(rows, json_pack("{s:s, s:s}", "name", name, "skipped", "no time left"));
        return bench_gpu_keep(b);
    }
    enum err err = bench_gpu_time(b, call, o, &seconds);
    if (err != ERR_OK)
        return err_prefix(err, "%s", name);
    double share = flops > 0 ? flops / seconds / b->product_rate : bytes / seconds / b->copy_rate;
    printf("  %-26s %9.1f us %8.1f MB %9.0f GB/s %8.1f TFLOP/s %6.1f %% of %s\n", name, seconds * 1e6, bytes / 1e6,
           bytes / seconds / 1e9, flops / seconds / 1e12, 100 * share, flops > 0 ? "product" : "copy");
    fflush(stdout);
    json_array_append_new(rows, json_pack("{s:s, s:f, s:f, s:f, s:s, s:f}", "name", name, "microseconds", seconds * 1e6,
                                          "bytes", bytes, "flops", flops, "bound", flops > 0 ? "product" : "copy",
                                          "share", share));
    return bench_gpu_keep(b);
}

static enum err products(struct bench_gpu *b, struct ops *o, json_t *rows)
{
    const struct {
        const char *name;
        int64_t R, K, N;
    } shapes[] = {{"qkv", o->R, o->C, 3 * o->C},
                  {"out", o->R, o->C, o->C},
                  {"gate_up", o->R, o->C, 2 * o->F},
                  {"down", o->R, o->F, o->C},
                  {"head", o->logits_rows, o->C, o->V}};
    const struct {
        const char *name;
        bench_call *call;
    } kinds[] = {{"fwd", linear_fwd}, {"bwd_inp", linear_bwd_inp}, {"bwd_w", linear_bwd_w}};
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++)
        for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
            char name[64];
            double R = (double)shapes[s].R, K = (double)shapes[s].K, N = (double)shapes[s].N;
            int64_t ld = shapes[s].N == o->V ? o->logits_ld : shapes[s].N;
            o->shape = (struct kern_linear){.R = shapes[s].R, .K = shapes[s].K, .N = shapes[s].N, .ld = ld};
            snprintf(name, sizeof name, "linear_%s %s", kinds[i].name, shapes[s].name);
            double act = (double)b->kern->act_bytes;
            double bytes =
                kinds[i].call == linear_bwd_w ? act * R * (K + N) + 8 * K * N : act * (R * K + R * N + K * N);
            TRY(row(b, o, rows, name, kinds[i].call, bytes, 2 * R * K * N));
        }
    return ERR_OK;
}

static enum err attention_rows(struct bench_gpu *b, struct ops *o, json_t *rows, const char *behind)
{
    const struct {
        const char *name;
        bench_call *call;
        double bytes, flops;
    } list[] = {{"attention_fwd", attention_fwd, 4, 2}, {"attention_bwd", attention_bwd, 8, 5}};
    double scores = (double)(o->B * o->H) * (double)o->T * (double)o->T * (double)o->D; /* 4 of it, halved: causal */
    double array = (double)b->kern->act_bytes * (double)(o->R * o->C);
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
        char name[64], text[512];
        snprintf(name, sizeof name, "%s%s", list[i].name, behind);
        TRY(row(b, o, rows, name, list[i].call, list[i].bytes * array, list[i].flops * scores));
        b->kern->attention_by(b->dev, &o->attention, i == 1, text, sizeof text);
        printf("    by %s\n", text);
    }
    return ERR_OK;
}

/* Ours and cuDNN's, whichever is the faster: each on a device of its own that is told which. */
static enum err both_attentions(struct bench_gpu *b, struct ops *o, json_t *rows)
{
    static const char *const rules[] = {"ours", "cudnn"};
    const struct kern_place place = {.device = gpu_number()};
    struct kern_dev *usual = b->dev;
    void *usual_scratch = o->scratch;
    enum err err = ERR_OK;
    for (size_t i = 0; err == ERR_OK && i < sizeof rules / sizeof rules[0] && bench_gpu_left(b) > 0; i++) {
        char behind[16];
        snprintf(behind, sizeof behind, ", %s", rules[i]);
        setenv("DILOCO_ATTENTION", rules[i], 1);
        err = b->kern->open(&place, &b->dev);
        unsetenv("DILOCO_ATTENTION");
        if (err == ERR_OK)
            err = b->kern->alloc(b->dev, b->kern->attention_scratch(b->dev, &o->attention), "scratch", &o->scratch);
        if (err == ERR_OK) {
            err = attention_rows(b, o, rows, behind);
            b->kern->free(b->dev, o->scratch);
        }
        if (b->dev != NULL)
            b->kern->close(b->dev);
        b->dev = usual;
        o->scratch = usual_scratch;
    }
    return err;
}

static enum err all_rows(struct bench_gpu *b, struct ops *o, json_t *rows)
{
    double act = (double)b->kern->act_bytes, RC = (double)(o->R * o->C), RF = (double)(o->R * o->F);
    double logits = (double)(o->logits_rows * o->V), n = (double)o->count;
    const struct {
        const char *name;
        bench_call *call;
        double bytes, flops;
    } list[] = {
        {"embed_fwd", embed_fwd, 2 * RC * act, 0},
        {"embed_bwd", embed_bwd, RC * (act + 8), 0},
        {"rmsnorm_fwd, with a sum", rmsnorm_fwd, 4 * RC * act, 0},
        {"rmsnorm_bwd", rmsnorm_bwd, 4 * RC * act, 0},
        {"rope", rope, 4 * RC * act, 0},
        {"swiglu_fwd", swiglu_fwd, 3 * RF * act, 0},
        {"swiglu_bwd", swiglu_bwd, 5 * RF * act, 0},
        {"cross_entropy", cross_entropy, 2 * logits * act, 0},
        {"sum_squares", sum_squares, 4 * n, 0},
        {"adamw", adamw, (28 + (b->kern->on_host ? 0 : act)) * n, 0},
        {"to_act", to_act, (4 + act) * n, 0},
        {"from_act", from_act, (4 + act) * n, 0},
        {"mix", mix, (12 + (b->kern->on_host ? 0 : act)) * n, 0},
        {"shift", shift, (16 + (b->kern->on_host ? 0 : act)) * n, 0},
        {"find_bad", find_bad, 4 * n, 0},
    };
    TRY(products(b, o, rows));
    TRY(attention_rows(b, o, rows, ""));
    if (strcmp(b->kern->name, "cuda") == 0)
        TRY(both_attentions(b, o, rows));
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++)
        TRY(row(b, o, rows, list[i].name, list[i].call, list[i].bytes, list[i].flops));
    return ERR_OK;
}

enum err bench_gpu_operations(struct bench_gpu *b)
{
    struct ops o = {.B = 8, .T = 2048, .C = 2048, .H = 16, .F = 5504, .V = 50304, .count = 1 << 26};
    if (b->small)
        o = (struct ops){.B = 2, .T = 64, .C = 64, .H = 2, .F = 176, .V = 1001, .count = 1 << 16};
    o.D = o.C / o.H;
    o.R = o.B * o.T;
    o.attention = (struct kern_attention){.B = o.B, .T = o.T, .H = o.H, .G = o.H, .D = o.D};
    printf("operations   at %lld rows, width %lld, hidden width %lld, vocabulary %lld, %lld heads of %lld; causal "
           "attention counted half; aim where memory binds: 80 %% of copy\n",
           (long long)o.R, (long long)o.C, (long long)o.F, (long long)o.V, (long long)o.H, (long long)o.D);
    json_t *rows = bench_gpu_rows(b, "operations");
    enum err err = set_up(b, &o);
    if (err == ERR_NOMEM)
        printf("  skipped: %s\n", err_text());
    else if (err == ERR_OK)
        err = all_rows(b, &o, rows);
    take_down(b, &o);
    return err == ERR_NOMEM ? ERR_OK : err;
}
