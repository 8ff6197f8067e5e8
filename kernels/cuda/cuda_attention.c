/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cuda/cuda_attention.h"

#include <cuda_runtime_api.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/mem.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/cuda_choices.h"
#include "kernels/cuda/cuda_dev.h"
#include "kernels/cuda/cuda_dnn.h"

#define VARIABLE "DILOCO_ATTENTION"

enum { TRIALS = 3, WAYS = 2, DIGEST_PARTS_MAX = 1024, REASON_BYTES = 600 };
/* Products of two values, of all scores: for less, making the library's plans takes longer than it could ever save. */
#define WORK_LEAST ((int64_t)1 << 31)
/* Scratch of cuDNN's may be this share of the device's memory: backward keeps the scores' gradients of all heads. */
#define SHARE_OF_MEMORY 32

enum { UNDECIDED = -2, OURS = -1 }; /* else the number of cuDNN's plan */

/* Forward or backward of a shape. */
struct way {
    struct cuda_dnn_graph graph;
    int chosen;
    bool before;           /* chosen by a process before */
    float ours_ms, dnn_ms; /* of a trial; 0: there was none */
};

struct shape {
    struct kern_attention dims;
    struct way ways[WAYS]; /* forward, backward */
};

struct cuda_attention {
    enum { BY_TRIAL, BY_OURS, BY_DNN } rule;
    bool tried;                 /* to open the library */
    char missing[REASON_BYTES]; /* why it is not there, once tried; "": it is */
    size_t version, limit;      /* of the library; bytes of scratch */
    struct cuda_dnn_calls calls;
    struct cuda_dnn_target target;
    struct shape **shapes; /* in the order they came up: a few in a process */
    size_t shapes_count, shapes_room;
};

/* One call of the table's. */
struct job {
    struct cuda_dnn_arrays arrays;
    const struct kern_attention *dims;
    bool backward;
};

/* ---- the library ---- */

enum err cuda_attention_open(struct kern_dev *dev)
{
    struct cuda_attention *a;
    const char *rule = getenv(VARIABLE);
    TRY(mem_new(1, sizeof *a, "the choice of attention", &a));
    dev->attention = a;
    if (rule == NULL || rule[0] == '\0')
        return ERR_OK;
    if (strcmp(rule, "ours") != 0 && strcmp(rule, "cudnn") != 0)
        return err_set(ERR_CONF, VARIABLE "=%s: take ours, cudnn, or none for the faster one", rule);
    a->rule = rule[0] == 'o' ? BY_OURS : BY_DNN;
    return ERR_OK;
}

static void start_library(struct kern_dev *dev, struct cuda_attention *a)
{
    size_t free_bytes = 0, total = 0;
    cudnnStatus_t status = a->calls.create(&a->target.handle);
    if (status == CUDNN_STATUS_SUCCESS)
        status = a->calls.set_stream(a->target.handle, dev->stream[KERN_MAIN]);
    if (status != CUDNN_STATUS_SUCCESS) {
        char words[256] = "";
        a->calls.last_error(words, sizeof words);
        snprintf(a->missing, sizeof a->missing, "cuDNN does not start: %s: %s", a->calls.error_string(status), words);
    }
    if (cudaMemGetInfo(&free_bytes, &total) != cudaSuccess)
        cudaGetLastError();
    a->limit = total / SHARE_OF_MEMORY;
}

/* Whether the library is there; asked for the first time, it is opened. */
static bool has_library(struct kern_dev *dev)
{
    struct cuda_attention *a = dev->attention;
    if (!a->tried) {
        a->tried = true;
        a->target.calls = &a->calls;
        cuda_use(dev);
        if (cuda_dnn_load(&a->calls, &a->version, a->missing, sizeof a->missing))
            start_library(dev, a);
    }
    return a->missing[0] == '\0';
}

void cuda_attention_close(struct kern_dev *dev)
{
    struct cuda_attention *a = dev->attention;
    if (a == NULL)
        return;
    for (size_t i = 0; i < a->shapes_count; i++) {
        for (int w = 0; w < WAYS; w++)
            if (a->target.calls != NULL)
                cuda_dnn_graph_free(&a->target, &a->shapes[i]->ways[w].graph);
        mem_free(a->shapes[i]);
    }
    mem_free(a->shapes);
    if (a->target.handle != NULL)
        a->calls.destroy(a->target.handle);
    mem_free(a);
    dev->attention = NULL;
}

/* ---- shapes ---- */

static struct shape *find_shape(const struct cuda_attention *a, const struct kern_attention *dims)
{
    for (size_t i = 0; i < a->shapes_count; i++)
        if (memcmp(&a->shapes[i]->dims, dims, sizeof *dims) == 0)
            return a->shapes[i];
    return NULL;
}

/* Whether cuDNN is to be asked for it at all. */
static bool worth_asking(const struct cuda_attention *a, const struct kern_attention *dims)
{
    if (a->rule == BY_OURS || dims->T < 2) /* one position it refuses */
        return false;
    return a->rule == BY_DNN || dims->B * dims->H * dims->T * dims->T * dims->D >= WORK_LEAST;
}

/* NULL: no memory; then ours do it. */
static struct shape *add_shape(struct kern_dev *dev, const struct kern_attention *dims)
{
    struct cuda_attention *a = dev->attention;
    struct shape *shape;
    if (a->shapes_count == a->shapes_room) {
        size_t room = 2 * a->shapes_room + 8;
        if (mem_grow(&a->shapes, a->shapes_count, room, sizeof *a->shapes, "shapes of attention") != ERR_OK)
            return NULL;
        a->shapes_room = room;
    }
    if (mem_new(1, sizeof *shape, "a shape of attention", &shape) != ERR_OK)
        return NULL;
    shape->dims = *dims;
    a->shapes[a->shapes_count++] = shape;
    for (int w = 0; w < WAYS; w++) {
        struct way *way = &shape->ways[w];
        way->chosen = OURS;
        if (!worth_asking(a, dims) || !has_library(dev))
            continue;
        cuda_dnn_graph_new(&a->target, dims, w == 1, a->rule == BY_DNN ? 1 : CUDA_DNN_PLANS, &way->graph);
        cudaGetLastError(); /* no fault: ours are there */
        if (cuda_dnn_graph_scratch(&way->graph) > a->limit) {
            snprintf(way->graph.text, sizeof way->graph.text, "it would take %zu MiB of scratch memory, and may %zu",
                     cuda_dnn_graph_scratch(&way->graph) >> 20, a->limit >> 20);
            cuda_dnn_graph_drop(&a->target, &way->graph);
        }
        if (way->graph.plans_count > 0)
            way->chosen = a->rule == BY_DNN ? 0 : UNDECIDED;
    }
    return shape;
}

size_t cuda_chosen_scratch(const struct kern_dev *dev, const struct kern_attention *dims)
{
    struct cuda_attention *a = dev->attention;
    size_t most = cuda_attention_scratch(dev, dims);
    struct shape *shape = find_shape(a, dims);
    if (shape == NULL)
        shape = add_shape((struct kern_dev *)dev, dims); /* the table keeps what it has found out in the device */
    for (int w = 0; shape != NULL && w < WAYS; w++) {
        size_t bytes = cuda_dnn_graph_scratch(&shape->ways[w].graph);
        if (shape->ways[w].graph.plans_count > 0 && bytes < cuda_digest_parts() * sizeof(uint64_t))
            bytes = cuda_digest_parts() * sizeof(uint64_t);
        most = bytes > most ? bytes : most;
    }
    return most;
}

/* ---- the choice ---- */

static void run_ours(struct kern_dev *dev, const struct job *job)
{
    const struct cuda_dnn_arrays *on = &job->arrays;
    if (job->backward)
        cuda_attention_bwd(dev, on->dqkv, on->dout, on->out, on->qkv, on->lse, job->dims, on->scratch);
    else
        cuda_attention_fwd(dev, on->out, on->lse, on->qkv, job->dims, on->scratch);
}

/* Plan number `plan` of cuDNN's, or OURS; whether it could be queued. */
static bool run(struct kern_dev *dev, struct way *way, int plan, const struct job *job)
{
    if (plan != OURS)
        return cuda_dnn_graph_run(&dev->attention->target, &way->graph, plan, job->dims, &job->arrays);
    run_ours(dev, job);
    return cuda_kept_fault(dev) == ERR_OK;
}

/* Of the bits that a run has left. The scratch memory is free again then. */
static bool digest(struct kern_dev *dev, const struct job *job, uint64_t *out)
{
    uint64_t parts[DIGEST_PARTS_MAX];
    const struct kern_attention *d = job->dims;
    size_t count = cuda_digest_parts(), rows = (size_t)(d->B * d->T);
    size_t bytes = rows * (size_t)((job->backward ? d->H + 2 * d->G : d->H) * d->D) * sizeof(uint16_t);
    *out = 0;
    for (int i = 0; i < (job->backward ? 1 : 2); i++) {
        const void *array = job->backward ? job->arrays.dqkv : i == 0 ? job->arrays.out : job->arrays.lse;
        if (i == 1)
            bytes = rows * (size_t)d->H * sizeof(float);
        cuda_digest(dev, job->arrays.scratch, array, bytes);
        if (cudaMemcpyAsync(parts, job->arrays.scratch, count * sizeof parts[0], cudaMemcpyDeviceToHost,
                            dev->stream[KERN_MAIN]) != cudaSuccess ||
            cudaStreamSynchronize(dev->stream[KERN_MAIN]) != cudaSuccess)
            return false;
        for (size_t p = 0; p < count; p++)
            *out += parts[p];
    }
    return true;
}

/* Milliseconds, the shortest of a few trials; negative: it does not work, or gives other bits each time, and the
 * graph's text says so. */
static float time_one(struct kern_dev *dev, struct way *way, int plan, const struct job *job, cudaEvent_t begin,
                      cudaEvent_t end)
{
    float best = -1;
    uint64_t first, again;
    if (!run(dev, way, plan, job)) /* not counted: it loads the kernels */
        return -1;
    if (plan != OURS && !digest(dev, job, &first))
        return -1;
    for (int i = 0; i < TRIALS; i++) {
        float took;
        if (cudaEventRecord(begin, dev->stream[KERN_MAIN]) != cudaSuccess || !run(dev, way, plan, job) ||
            cudaEventRecord(end, dev->stream[KERN_MAIN]) != cudaSuccess || cudaEventSynchronize(end) != cudaSuccess ||
            cudaEventElapsedTime(&took, begin, end) != cudaSuccess)
            return -1;
        best = best < 0 || took < best ? took : best;
        if (plan != OURS && !digest(dev, job, &again))
            return -1;
        if (plan != OURS && again != first) {
            snprintf(way->graph.text, sizeof way->graph.text, "engine %" PRId64 " gave other bits the second time",
                     way->graph.plans[plan].engine);
            return -1;
        }
    }
    return best;
}

/* The fastest, tried on the call's own arrays: nothing is lost, as each run writes all of its results anew. */
static void try_all(struct kern_dev *dev, struct way *way, const struct job *job)
{
    cudaEvent_t begin = NULL, end = NULL;
    way->chosen = OURS;
    if (cudaEventCreate(&begin) == cudaSuccess && cudaEventCreate(&end) == cudaSuccess) {
        float ours = time_one(dev, way, OURS, job, begin, end), best = ours;
        way->ours_ms = ours > 0 ? ours : 0;
        for (int i = 0; ours >= 0 && i < way->graph.plans_count; i++) {
            float ms = time_one(dev, way, i, job, begin, end);
            if (ms >= 0 && (way->dnn_ms <= 0 || ms < way->dnn_ms))
                way->dnn_ms = ms;
            if (ms >= 0 && ms < best) {
                best = ms;
                way->chosen = i;
            }
        }
    }
    if (begin != NULL)
        cudaEventDestroy(begin);
    if (end != NULL)
        cudaEventDestroy(end);
    cudaGetLastError(); /* a fault of the device comes back at the next call */
}

/* As it is kept: 0, ours; or the number of the plan among those that cuDNN has proposed, from 1 on, and its engine. */
static void put_choice(const struct way *way, unsigned char *chosen)
{
    chosen[0] = (unsigned char)(way->chosen + 1);
    if (way->chosen != OURS)
        memcpy(chosen + 1, &way->graph.plans[way->chosen].engine, sizeof way->graph.plans[0].engine);
}

/* False: it is not what is proposed now, as where there is less memory; a trial says anew. */
static bool take_choice(struct way *way, const unsigned char *chosen)
{
    int plan = (int)chosen[0] - 1;
    if (plan >= way->graph.plans_count)
        return false;
    if (plan != OURS && memcmp(chosen + 1, &way->graph.plans[plan].engine, sizeof way->graph.plans[0].engine) != 0)
        return false;
    way->chosen = plan;
    return true;
}

static void decide(struct kern_dev *dev, struct way *way, const struct job *job)
{
    const struct kern_attention *d = job->dims;
    const int64_t kind = job->backward ? -2 : -1; /* products' are not negative */
    const int64_t key[CUDA_CHOICE_KEYS] = {d->B, d->T, d->H, d->G, d->D, (int64_t)dev->attention->version, kind};
    unsigned char chosen[CUDA_CHOICE_BYTES] = {0};
    if (cuda_choices_find(dev->choices, key, chosen) && take_choice(way, chosen)) {
        way->before = true;
        return;
    }
    try_all(dev, way, job);
    memset(chosen, 0, sizeof chosen);
    put_choice(way, chosen);
    cuda_choices_add(dev->choices, key, chosen);
}

static void attend(struct kern_dev *dev, const struct job *job)
{
    struct shape *shape = find_shape(dev->attention, job->dims);
    struct way *way = shape != NULL ? &shape->ways[job->backward ? 1 : 0] : NULL;
    if (job->dims->B <= 0 || job->dims->T <= 0)
        return;
    cuda_use(dev);
    if (way != NULL && way->chosen == UNDECIDED)
        decide(dev, way, job);
    if (way == NULL || way->chosen == OURS) {
        run_ours(dev, job);
        return;
    }
    dev->operation = job->backward ? "cuDNN's attention_bwd" : "cuDNN's attention_fwd";
    if (!run(dev, way, way->chosen, job))
        cuda_fault_set(dev, "%s, plan %d: %s; " VARIABLE "=ours goes without it", dev->operation, way->chosen,
                       way->graph.text);
    cuda_failed(dev, cudaGetLastError(), dev->operation);
}

void cuda_chosen_fwd(struct kern_dev *dev, kern_act *out, float *lse, const kern_act *qkv,
                     const struct kern_attention *dims, void *scratch)
{
    attend(dev, &(struct job){.arrays = {.out = out, .lse = lse, .qkv = qkv, .scratch = scratch}, .dims = dims});
}

void cuda_chosen_bwd(struct kern_dev *dev, kern_act *dqkv, const kern_act *dout, const kern_act *out,
                     const kern_act *qkv, const float *lse, const struct kern_attention *dims, void *scratch)
{
    attend(dev, &(struct job){.arrays = {.out = (kern_act *)out,
                                         .lse = (float *)lse,
                                         .qkv = qkv,
                                         .dout = dout,
                                         .dqkv = dqkv,
                                         .scratch = scratch},
                              .dims = dims,
                              .backward = true});
}

/* ---- for people ---- */

static void version_text(const struct cuda_attention *a, char text[32])
{
    snprintf(text, 32, "cuDNN %zu.%zu.%zu", a->version / 10000, a->version / 100 % 100, a->version % 100);
}

static void tell_way(const struct cuda_attention *a, const struct way *way, char *text, size_t bytes)
{
    const struct cuda_dnn_graph *graph = &way->graph;
    char name[32];
    version_text(a, name);
    if (way->chosen >= 0) {
        int length = snprintf(text, bytes, "%s, engine %" PRId64 " (plan %d of %d, %zu MiB of scratch%s)", name,
                              graph->plans[way->chosen].engine, way->chosen + 1, graph->plans_count,
                              cuda_dnn_graph_scratch(graph) >> 20, way->before ? ", chosen before" : "");
        if (way->ours_ms > 0 && length > 0 && (size_t)length < bytes)
            snprintf(text + length, bytes - (size_t)length, ": %.0f us, ours %.0f", (double)way->dnn_ms * 1e3,
                     (double)way->ours_ms * 1e3);
        return;
    }
    if (way->chosen == UNDECIDED)
        snprintf(text, bytes, "ours or %s: the first call tries", name);
    else if (graph->plans_count == 0)
        snprintf(text, bytes, "ours; %s: %s", name, graph->text);
    else if (way->dnn_ms > 0)
        snprintf(text, bytes, "ours: %.0f us; %s %.0f", (double)way->ours_ms * 1e3, name, (double)way->dnn_ms * 1e3);
    else
        snprintf(text, bytes, "ours%s%s%s", way->before ? ", chosen before" : "", graph->text[0] != '\0' ? "; " : "",
                 graph->text);
}

void cuda_chosen_by(struct kern_dev *dev, const struct kern_attention *dims, bool backward, char *text, size_t bytes)
{
    const struct cuda_attention *a = dev->attention;
    const struct shape *shape = find_shape(a, dims);
    if (a->rule == BY_OURS)
        snprintf(text, bytes, "ours, by " VARIABLE);
    else if (shape == NULL || !worth_asking(a, dims))
        snprintf(text, bytes, "ours: too little for a trial");
    else if (a->missing[0] != '\0')
        snprintf(text, bytes, "ours: %s", a->missing);
    else
        tell_way(a, &shape->ways[backward ? 1 : 0], text, bytes);
}
