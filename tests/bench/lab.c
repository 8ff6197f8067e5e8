/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/lab.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/env.h"
#include "common/fsio.h"
#include "common/mem.h"
#include "daemon/state/model_plan.h"
#include "daemon/state/replica.h"
#include "daemon/rules.h"
#include "kernels/kern.h"
#include "outer_opt/direction.h"
#include "worker/libdiloco/aside.h"
#include "worker/data.h"
#include "worker/inner.h"
#include "worker/model/model.h"
#include "tests/lib/shares.h"

struct island {
    struct model *model;
    struct inner *inner;
    struct data *data;
    struct replica *replica;
    float **base;          /* by fragment: the anchor its parameters began from */
    float **aside, **past; /* by fragment: see worker/libdiloco/aside.h */
    uint64_t *tokens;      /* by fragment: trained and not yet counted */
    uint64_t position, trained;
};

/* A round on its way: contributions made, not yet taken in. */
struct flight {
    bool used;
    uint64_t due, begin; /* steps */
    uint32_t counted;    /* islands, as bits */
    uint64_t weight[LAB_ISLANDS_MAX];
    /* Of an island, as direction.h has it, after the rounds so far; values in which it is below in this one. */
    uint32_t direction[LAB_ISLANDS_MAX];
    uint64_t below[LAB_ISLANDS_MAX];
    struct frame {
        uint8_t *bytes;
        size_t count;
    } frame[LAB_ISLANDS_MAX][LAB_ISLANDS_MAX]; /* island, shard */
};

struct lab {
    const struct lab_conf *conf;
    const struct kern *kern;
    struct kern_dev *dev;
    struct model_plan *plan;
    struct config_log *config_log;
    struct parts parts;
    struct codec *codec;
    struct island island[LAB_ISLANDS_MAX];
    struct flight *flight; /* by fragment */
    uint64_t *version, *last_due;
    float *theta, *scratch, *mean; /* a fragment */
    uint8_t *result;
    int32_t *tokens, *targets;
    struct env_rng rng;
    double bytes_sent;
    struct lab_result *out;
};

static uint32_t fragments_of(const struct lab *lab)
{
    return lab->plan->plan->fragments_count;
}

static size_t values_of(const struct lab *lab, uint32_t f)
{
    return (size_t)lab->plan->plan->fragments[f].values_count;
}

/* ---- set-up ---- */

/* The i-th part of the text as a file of its own; what the whole holds out is in none of them. */
static enum err part_of(const struct lab_conf *conf, uint32_t i, char *path, size_t path_bytes)
{
    char *text;
    size_t bytes;
    TRY(fsio_read(conf->data, (size_t)1 << 30, &text, &bytes));
    snprintf(path, path_bytes, "build/bench/part-%d-%u", (int)getpid(), i);
    bytes -= (size_t)((double)bytes * conf->spec.held_out) + 1;
    size_t begin = bytes / conf->islands * i;
    enum err err = fsio_replace(path, text + begin, bytes / conf->islands, 0644);
    mem_free(text);
    return err;
}

static enum err open_stream(const struct lab_conf *conf, uint32_t i, struct data **out)
{
    char path[128];
    struct data_conf data = {.path = conf->data,
                             .format = RUNSPEC_BYTES,
                             .vocab = conf->spec.vocab,
                             .context = conf->spec.context,
                             .held_out = conf->spec.held_out,
                             .seed = (uint64_t)conf->spec.seed,
                             .stream = conf->own_parts ? 0 : i,
                             .streams_count = conf->own_parts ? 1 : conf->islands};
    if (conf->own_parts) {
        TRY(part_of(conf, i, path, sizeof path));
        data.path = path;
    }
    enum err err = data_open(&data, out);
    if (conf->own_parts)
        unlink(path); /* it stays mapped */
    return err;
}

static enum err make_plan(struct lab *lab)
{
    const struct model *model = lab->island[0].model;
    struct ipc_tensor *rows;
    TRY(mem_new((size_t)model->tensors_count, sizeof *rows, "tensors", &rows));
    for (int i = 0; i < model->tensors_count; i++) {
        const struct model_tensor *tensor = &model->tensors[i];
        rows[i].layer = tensor->layer;
        rows[i].dims = tensor->dims;
        memcpy(rows[i].shape, tensor->shape, sizeof tensor->shape);
        snprintf(rows[i].name, sizeof rows[i].name, "%s", tensor->name);
    }
    static const uint64_t weights[LAB_ISLANDS_MAX] = {1, 1, 1, 1, 1, 1, 1, 1};
    enum err err = model_plan_new(&lab->conf->spec, rows, (uint32_t)model->tensors_count, &lab->plan);
    mem_free(rows);
    lab->config_log = err == ERR_OK ? shares_config_log(weights, lab->conf->islands) : NULL;
    if (err == ERR_OK)
        lab->parts = (struct parts){.plan = lab->plan->plan, .config_log = lab->config_log};
    return err;
}

static enum err open_replica(struct lab *lab, uint32_t i)
{
    struct island *island = &lab->island[i];
    struct replica_conf conf = {.plan = lab->plan->plan,
                                .outer = rules_outer(&lab->conf->spec),
                                .choice = rules_codec(&lab->conf->spec),
                                .adaptive = lab->conf->spec.codec == CODEC_ADAPTIVE,
                                .error_feedback = lab->conf->spec.error_feedback,
                                .feedback_decay = (float)lab->conf->spec.feedback_decay,
                                .feedback_limit = (float)lab->conf->spec.feedback_limit,
                                .outliers = rules_outliers(&lab->conf->spec)};
    uint32_t fragments = fragments_of(lab);
    TRY(replica_new(&conf, &island->replica));
    TRY(shares_cut(&lab->parts, island->replica, i));
    TRY(mem_new(fragments, sizeof *island->base, "bases", &island->base));
    TRY(mem_new(fragments, sizeof *island->aside, "bases", &island->aside));
    TRY(mem_new(fragments, sizeof *island->past, "bases", &island->past));
    TRY(mem_new(fragments, sizeof *island->tokens, "tokens", &island->tokens));
    for (uint32_t f = 0; f < fragments; f++) {
        TRY(mem_new(values_of(lab, f), sizeof(float), "a base", &island->base[f]));
        if (rules_set_aside(&lab->conf->spec))
            TRY(mem_new(values_of(lab, f), sizeof(float), "an outer gradient", &island->aside[f]));
        if (lab->conf->spec.eager)
            TRY(mem_new(values_of(lab, f), sizeof(float), "an outer gradient", &island->past[f]));
    }
    return ERR_OK;
}

static enum err alloc_flights(struct lab *lab)
{
    size_t largest = 0;
    TRY(mem_new(fragments_of(lab), sizeof *lab->flight, "rounds", &lab->flight));
    for (uint32_t f = 0; f < fragments_of(lab); f++)
        for (uint32_t s = 0; s < lab->conf->islands; s++) {
            size_t bytes = replica_frame_bytes_max(lab->island[0].replica, f, shares_mask(&lab->parts, f, s));
            largest = bytes > largest ? bytes : largest;
            for (uint32_t i = 0; i < lab->conf->islands; i++)
                TRY(mem_new(bytes, 1, "a frame", &lab->flight[f].frame[i][s].bytes));
        }
    return mem_new(largest, 1, "a frame", &lab->result);
}

/* ---- between tensors and fragments ---- */

static enum err gather(const struct lab *lab, struct island *island, uint32_t f, float *to)
{
    memset(to, 0, values_of(lab, f) * sizeof *to);
    for (uint32_t i = 0; i < lab->plan->plan->tensors_count; i++) {
        const struct plan_tensor *tensor = &lab->plan->plan->tensors[i];
        if (tensor->fragment == f)
            TRY(model_read(island->model, &island->model->tensors[i], island->model->w, to + tensor->offset));
    }
    return ERR_OK;
}

static enum err scatter(const struct lab *lab, struct model *model, uint32_t f, const float *from)
{
    for (uint32_t i = 0; i < lab->plan->plan->tensors_count; i++) {
        const struct plan_tensor *tensor = &lab->plan->plan->tensors[i];
        if (tensor->fragment == f)
            TRY(model_write(model, &model->tensors[i], model->w, from + tensor->offset));
    }
    TRY(model_refresh(model));
    return ERR_OK;
}

static enum err set_up(struct lab *lab)
{
    const struct runspec *spec = &lab->conf->spec;
    uint32_t models = lab->conf->data_parallel ? 1 : lab->conf->islands;
    size_t batch = (size_t)(spec->batch * spec->context);
    TRY(kern_find("cpu", &lab->kern));
    TRY(lab->kern->open(&(struct kern_place){.threads = 1}, &lab->dev));
    for (uint32_t i = 0; i < models; i++) {
        TRY(model_new(spec, lab->kern, lab->dev, &(struct model_conf){.batch = spec->batch, .train = true},
                      &lab->island[i].model));
        TRY(inner_new(lab->island[i].model, spec, &lab->island[i].inner));
        TRY(model_init(lab->island[i].model, (uint64_t)spec->seed));
    }
    for (uint32_t i = 0; i < lab->conf->islands; i++)
        TRY(open_stream(lab->conf, i, &lab->island[i].data));
    TRY(mem_new(batch, sizeof *lab->tokens, "a batch", &lab->tokens));
    TRY(mem_new(batch, sizeof *lab->targets, "a batch", &lab->targets));
    TRY(make_plan(lab));
    if (lab->conf->data_parallel)
        return ERR_OK;
    size_t most = (size_t)lab->plan->plan->values_count_max;
    TRY(codec_new((int)spec->zstd_level, &lab->codec));
    TRY(mem_new(most, sizeof(float), "a fragment", &lab->theta));
    TRY(mem_new(most, sizeof(float), "a fragment", &lab->scratch));
    TRY(mem_new(most, sizeof(float), "a fragment", &lab->mean));
    TRY(mem_new(fragments_of(lab), sizeof *lab->version, "versions", &lab->version));
    TRY(mem_new(fragments_of(lab), sizeof *lab->last_due, "versions", &lab->last_due));
    for (uint32_t i = 0; i < lab->conf->islands; i++)
        TRY(open_replica(lab, i));
    TRY(codec_reserve(lab->codec, replica_factor_values(lab->island[0].replica),
                      replica_segment_values(lab->island[0].replica)));
    TRY(alloc_flights(lab));
    for (uint32_t i = 0; i < lab->conf->islands; i++)
        for (uint32_t f = 0; f < fragments_of(lab); f++) {
            TRY(gather(lab, &lab->island[i], f, replica_anchor(lab->island[i].replica, f)));
            memcpy(lab->island[i].base[f], replica_anchor(lab->island[i].replica, f),
                   values_of(lab, f) * sizeof(float));
        }
    lab->rng = env_rng_init((uint64_t)spec->seed, 4711);
    return ERR_OK;
}

static void clean_up(struct lab *lab)
{
    uint32_t fragments = lab->plan != NULL ? fragments_of(lab) : 0;
    for (uint32_t f = 0; lab->flight != NULL && f < fragments; f++)
        for (int i = 0; i < LAB_ISLANDS_MAX; i++)
            for (int s = 0; s < LAB_ISLANDS_MAX; s++)
                mem_free(lab->flight[f].frame[i][s].bytes);
    for (uint32_t i = 0; i < LAB_ISLANDS_MAX; i++) {
        struct island *island = &lab->island[i];
        for (uint32_t f = 0; f < fragments; f++) {
            mem_free(island->base != NULL ? island->base[f] : NULL);
            mem_free(island->aside != NULL ? island->aside[f] : NULL);
            mem_free(island->past != NULL ? island->past[f] : NULL);
        }
        mem_free(island->base);
        mem_free(island->aside);
        mem_free(island->past);
        mem_free(island->tokens);
        replica_free(island->replica);
        data_close(island->data);
        inner_free(island->inner);
        model_free(island->model);
    }
    mem_free(lab->flight);
    mem_free(lab->version);
    mem_free(lab->last_due);
    mem_free(lab->theta);
    mem_free(lab->scratch);
    mem_free(lab->mean);
    mem_free(lab->result);
    mem_free(lab->tokens);
    mem_free(lab->targets);
    codec_free(lab->codec);
    config_log_free(lab->config_log);
    model_plan_free(lab->plan);
    if (lab->dev != NULL)
        lab->kern->close(lab->dev);
}

/* ---- inner steps ---- */

static enum err train_on(struct lab *lab, struct model *model, struct island *source, double scale)
{
    const struct runspec *spec = &lab->conf->spec;
    TRY(data_batch(source->data, source->position, spec->batch, lab->tokens, lab->targets));
    source->position += (uint64_t)spec->batch;
    source->trained += (uint64_t)(spec->batch * spec->context);
    return model_train(model, lab->tokens, lab->targets, scale);
}

static enum err take_step(struct island *island, uint64_t step)
{
    struct inner_result result;
    TRY(inner_step(island->inner, step));
    TRY(inner_result(island->inner, &result));
    if (result.skipped)
        return err_set(ERR_NONFINITE, "diverged at step %llu", (unsigned long long)step);
    return ERR_OK;
}

static enum err inner_steps(struct lab *lab, uint64_t step)
{
    const struct lab_conf *conf = lab->conf;
    if (conf->data_parallel) {
        for (uint32_t i = 0; i < conf->islands; i++)
            TRY(train_on(lab, lab->island[0].model, &lab->island[i], 1.0 / conf->islands));
        return take_step(&lab->island[0], step);
    }
    for (uint32_t i = 0; i < conf->islands; i++) {
        struct island *island = &lab->island[i];
        if (conf->slow > 0 && i + 1 == conf->islands && step % conf->slow != 0)
            continue;
        TRY(train_on(lab, island->model, island, 1));
        TRY(take_step(island, step));
        for (uint32_t f = 0; f < fragments_of(lab); f++)
            island->tokens[f] += (uint64_t)(conf->spec.batch * conf->spec.context);
    }
    return ERR_OK;
}

/* ---- rounds ---- */

static struct aside_rule aside_of(const struct lab *lab)
{
    const struct rules_eager eager = rules_eager(&lab->conf->spec);
    const double share = 1.0 / lab->conf->islands; /* all train as many tokens */
    return (struct aside_rule){.keep = (float)lab->conf->spec.mix,
                               .fresh = (float)(share * eager.fresh),
                               .past = (float)(share * eager.past),
                               .decay = (float)eager.decay};
}

/* What would have been the outer gradient, the other way round. */
static void turn_around(float *theta, const float *base, size_t count)
{
    for (size_t k = 0; k < count; k++)
        theta[k] = base[k] - (theta[k] - base[k]);
}

static enum err encode(struct lab *lab, struct flight *flight, uint32_t i, uint32_t f)
{
    struct island *island = &lab->island[i];
    for (uint32_t s = 0; s < lab->conf->islands; s++) {
        struct frame *frame = &flight->frame[i][s];
        struct plan_shard range = shares_run(&lab->parts, f, s);
        if (range.begin == range.end)
            continue;
        TRY(replica_encode(island->replica, f, shares_mask(&lab->parts, f, s), island->base[f], lab->theta,
                           island->tokens[f], lab->codec, frame->bytes, &frame->count));
        replica_commit(island->replica, f, shares_mask(&lab->parts, f, s));
        if (s != i)
            lab->bytes_sent += (double)frame->count / lab->conf->islands;
    }
    flight->weight[i] = island->tokens[f];
    island->tokens[f] = 0;
    return ERR_OK;
}

static enum err contribute(struct lab *lab, struct flight *flight, uint32_t i, uint32_t f)
{
    struct island *island = &lab->island[i];
    const struct aside_rule rule = aside_of(lab);
    TRY(gather(lab, island, f, lab->theta));
    const bool lies = i + lab->conf->liars >= lab->conf->islands;
    if (lies)
        turn_around(lab->theta, island->base[f], values_of(lab, f));
    if ((flight->counted >> i & 1) != 0)
        TRY(encode(lab, flight, i, f));
    if (lies)
        turn_around(lab->theta, island->base[f], values_of(lab, f));
    if (rules_set_aside(&lab->conf->spec)) {
        aside_out(&rule, lab->theta, island->base[f], island->aside[f], island->past[f], values_of(lab, f));
        TRY(scatter(lab, island->model, f, lab->theta));
    }
    return ERR_OK;
}

/* Who is counted: all that have something, but for those whose contributions are lost. */
static uint32_t draw_counted(struct lab *lab, uint32_t f)
{
    uint32_t counted = 0;
    for (uint32_t i = 0; i < lab->conf->islands; i++)
        if (i + lab->conf->without < lab->conf->islands && lab->island[i].tokens[f] > 0 &&
            env_rng_uniform(&lab->rng) >= lab->conf->drop)
            counted |= 1u << i;
    return counted;
}

static enum err begin_round(struct lab *lab, uint32_t f, uint64_t step)
{
    struct flight *flight = &lab->flight[f];
    if (flight->used)
        return err_set(ERR_STATE, "two rounds of fragment %u are on their way at step %llu", f,
                       (unsigned long long)step);
    flight->used = true;
    flight->begin = lab->last_due[f];
    flight->due = step;
    flight->counted = draw_counted(lab, f);
    lab->last_due[f] = step;
    for (uint32_t i = 0; i < lab->conf->islands; i++)
        TRY(contribute(lab, flight, i, f));
    return ERR_OK;
}

static bool turned_away(const struct lab *lab, uint32_t i)
{
    uint64_t turned = 0, all = 0;
    for (uint32_t f = 0; f < fragments_of(lab); f++) {
        all += values_of(lab, f);
        turned += direction_turned(lab->flight[f].direction[i]) ? values_of(lab, f) : 0;
    }
    return turned > all - turned;
}

/* By the directions so far. */
static void weigh(const struct lab *lab, struct mean_input *inputs, size_t inputs_count)
{
    struct direction_input makers[LAB_ISLANDS_MAX];
    bool weightless[LAB_ISLANDS_MAX];
    for (size_t k = 0; k < inputs_count; k++)
        makers[k] = (struct direction_input){.owner = true, .turned = turned_away(lab, inputs[k].member)};
    direction_weightless(makers, inputs_count, weightless);
    for (size_t k = 0; k < inputs_count; k++) {
        inputs[k].turned = weightless[k];
        inputs[k].weight = weightless[k] ? 0 : inputs[k].weight;
    }
}

static void note_directions(struct lab *lab, struct flight *flight, uint32_t f, uint32_t s,
                            const struct mean_input *inputs, size_t inputs_count)
{
    struct plan_shard range = shares_run(&lab->parts, f, s);
    for (size_t k = 0; k < inputs_count; k++) {
        uint32_t i = inputs[k].member;
        flight->below[i] += inputs[k].cosine < DIRECTION_LEAST ? range.end - range.begin : 0;
        lab->out->weightless[i] += inputs[k].turned;
        if (inputs[k].turned && lab->out->first_weightless[i] == 0)
            lab->out->first_weightless[i] = lab->version[f];
    }
    lab->out->shard_versions++;
}

/* When all owners have made their results. */
static void judge(struct lab *lab, struct flight *flight, uint32_t f)
{
    for (uint32_t i = 0; i < lab->conf->islands; i++) {
        if ((flight->counted >> i & 1) != 0)
            flight->direction[i] =
                direction_next(flight->direction[i], flight->below[i] > values_of(lab, f) - flight->below[i]);
        flight->below[i] = 0;
    }
}

/* Every owner makes its result, and every replica applies it. The decoded mean is left in lab->mean. */
static enum err reduce_shard(struct lab *lab, struct flight *flight, uint32_t f, uint32_t s, size_t *bytes)
{
    struct mean_input inputs[LAB_ISLANDS_MAX];
    size_t inputs_count = 0, bad;
    for (uint32_t i = 0; i < lab->conf->islands; i++)
        if ((flight->counted >> i & 1) != 0)
            inputs[inputs_count++] = (struct mean_input){.frame = flight->frame[i][s].bytes,
                                                         .bytes = flight->frame[i][s].count,
                                                         .weight = (float)flight->weight[i],
                                                         .owner = true,
                                                         .member = i};
    weigh(lab, inputs, inputs_count);
    TRY(replica_reduce(lab->island[s].replica, f, inputs, inputs_count, lab->codec, lab->scratch, lab->result, bytes,
                       &bad));
    note_directions(lab, flight, f, s, inputs, inputs_count);
    replica_commit_owner(lab->island[s].replica, f);
    lab->bytes_sent += (double)*bytes * (lab->conf->islands - 1) / lab->conf->islands;
    return ERR_OK;
}

static struct outer_round numbers_of(struct lab *lab, const struct flight *flight, uint32_t f)
{
    const struct runspec *spec = &lab->conf->spec;
    struct outer_round round = rules_round(spec, fragments_of(lab), f, lab->version[f], flight->begin, flight->due);
    const float *momentum = replica_momentum(lab->island[0].replica, f);
    if (!lab->conf->spec.staleness_penalty)
        return round;
    double moved = (double)round.lr * sqrt(outer_square_sum(momentum, NULL, values_of(lab, f)));
    return outer_round_penalised(round, moved, sqrt(outer_square_sum(lab->mean, NULL, values_of(lab, f))));
}

/* The penalty wants the whole mean before the first shard is applied, so results are kept decoded, as fp32 would be. */
static enum err outer_step_on_all(struct lab *lab, struct flight *flight, uint32_t f)
{
    uint32_t islands = lab->conf->islands;
    struct outer_conf outer = rules_outer(&lab->conf->spec);
    for (uint32_t s = 0; s < islands; s++) {
        struct plan_shard range = shares_run(&lab->parts, f, s);
        size_t bytes;
        if (range.begin == range.end)
            continue;
        TRY(reduce_shard(lab, flight, f, s, &bytes));
        TRY(codec_decode(lab->codec, lab->result, bytes, lab->mean + range.begin, (size_t)(range.end - range.begin)));
    }
    judge(lab, flight, f);
    struct outer_round round = numbers_of(lab, flight, f);
    for (uint32_t i = 0; i < islands; i++) {
        struct replica *replica = lab->island[i].replica;
        memcpy(lab->scratch, lab->mean, values_of(lab, f) * sizeof(float));
        outer_step(&outer, &round, replica_anchor(replica, f), replica_momentum(replica, f), lab->scratch,
                   values_of(lab, f));
    }
    return ERR_OK;
}

/* What a trainer could do that knows of a mix, and none of ours does. */
static enum err forget(struct lab *lab, struct island *island, uint32_t f)
{
    float *moments[] = {island->inner->m, island->inner->v};
    for (int k = 0; k < 2; k++)
        for (uint32_t i = 0; lab->conf->forget[k] > 0 && i < lab->plan->plan->tensors_count; i++) {
            const struct plan_tensor *tensor = &lab->plan->plan->tensors[i];
            const struct model_tensor *row = &island->model->tensors[i];
            if (tensor->fragment != f)
                continue;
            TRY(model_read(island->model, row, moments[k], lab->scratch));
            for (uint64_t j = 0; j < tensor->count; j++)
                lab->scratch[j] *= (float)(1 - lab->conf->forget[k]);
            TRY(model_write(island->model, row, moments[k], lab->scratch));
        }
    return ERR_OK;
}

/* Into the live parameters: mixed where the island was counted, shifted where it was not. */
static enum err take_in(struct lab *lab, const struct flight *flight, uint32_t i, uint32_t f)
{
    struct island *island = &lab->island[i];
    const float *anchor = replica_anchor(island->replica, f);
    const struct aside_rule rule = aside_of(lab);
    bool counted = (flight->counted >> i & 1) != 0;
    TRY(gather(lab, island, f, lab->theta));
    if (rules_set_aside(&lab->conf->spec))
        aside_in(&rule, lab->theta, island->base[f], anchor, island->aside[f], island->past[f], counted,
                 values_of(lab, f));
    else
        for (size_t k = 0; k < values_of(lab, f); k++)
            lab->theta[k] = counted ? rule.keep * lab->theta[k] + (1 - rule.keep) * anchor[k]
                                    : lab->theta[k] + (anchor[k] - island->base[f][k]);
    TRY(scatter(lab, island->model, f, lab->theta));
    TRY(forget(lab, island, f));
    memcpy(island->base[f], anchor, values_of(lab, f) * sizeof(float));
    return ERR_OK;
}

static enum err end_round(struct lab *lab, struct flight *flight, uint32_t f)
{
    flight->used = false;
    if (flight->counted != 0) {
        lab->version[f]++;
        TRY(outer_step_on_all(lab, flight, f));
    }
    for (uint32_t i = 0; i < lab->conf->islands; i++) {
        if (flight->due >= rules_warm_until(&lab->conf->spec))
            replica_settle(lab->island[i].replica, f);
        TRY(take_in(lab, flight, i, f));
    }
    return ERR_OK;
}

static enum err rounds(struct lab *lab, const struct schedule *schedule, uint64_t step)
{
    uint64_t overlap = (uint64_t)lab->conf->spec.overlap;
    bool last = step == (uint64_t)lab->conf->spec.steps;
    for (uint32_t f = 0; f < fragments_of(lab); f++) {
        struct flight *flight = &lab->flight[f];
        if (flight->used && (last || step >= flight->due + overlap))
            TRY(end_round(lab, flight, f));
        if (schedule_next_due(schedule, f, step - 1) == step)
            TRY(begin_round(lab, f, step));
        if (flight->used && (last || overlap == 0))
            TRY(end_round(lab, flight, f));
    }
    return ERR_OK;
}

static enum err flush(struct lab *lab, uint32_t f)
{
    uint64_t left = 0;
    for (uint32_t i = 0; i < lab->conf->islands; i++)
        left += lab->island[i].tokens[f];
    if (left == 0)
        return ERR_OK;
    TRY(begin_round(lab, f, (uint64_t)lab->conf->spec.steps));
    return end_round(lab, &lab->flight[f], f);
}

/* ---- the run ---- */

static enum err evaluate(struct lab *lab, double *loss)
{
    enum err err;
    const struct runspec *spec = &lab->conf->spec;
    struct data *whole = NULL;
    struct lab_conf plain = *lab->conf;
    plain.own_parts = false;
    *loss = 0;
    TRY(open_stream(&plain, 0, &whole));
    if (!lab->conf->data_parallel)
        for (uint32_t f = 0; f < fragments_of(lab); f++)
            TRY_OUT(scatter(lab, lab->island[0].model, f, replica_anchor(lab->island[0].replica, f)));
    uint64_t batches = LAB_EVAL_WINDOWS / (uint64_t)spec->batch;
    for (uint64_t i = 0; i < batches; i++) {
        double part;
        TRY_OUT(data_held_out(whole, i * (uint64_t)spec->batch, batches * (uint64_t)spec->batch, spec->batch,
                              lab->tokens, lab->targets));
        TRY_OUT(model_loss(lab->island[0].model, lab->tokens, lab->targets, &part));
        *loss += part / (double)batches;
    }
    err = ERR_OK;
out:
    data_close(whole);
    return err;
}

enum err lab_run(const struct lab_conf *conf, struct lab_result *result)
{
    enum err err;
    struct lab lab = {.conf = conf, .out = result};
    memset(result, 0, sizeof *result);
    TRY_OUT(set_up(&lab));
    struct schedule schedule = rules_schedule(&conf->spec, fragments_of(&lab));
    for (uint64_t step = 1; step <= (uint64_t)conf->spec.steps; step++) {
        TRY_OUT(inner_steps(&lab, step));
        if (!conf->data_parallel)
            TRY_OUT(rounds(&lab, &schedule, step));
    }
    for (uint32_t f = 0; conf->flush && f < fragments_of(&lab); f++)
        TRY_OUT(flush(&lab, f));
    TRY_OUT(evaluate(&lab, &result->val_loss));
    for (uint32_t i = 0; i < conf->islands; i++)
        result->tokens += lab.island[i].trained;
    result->rounds = lab.version != NULL ? lab.version[0] : (uint64_t)conf->spec.steps;
    result->bytes_data_parallel =
        2.0 * (double)lab.plan->plan->params_count * (double)conf->spec.steps * 2 * (conf->islands - 1) / conf->islands;
    result->bytes_sent = conf->data_parallel ? result->bytes_data_parallel : lab.bytes_sent;
out:
    clean_up(&lab);
    return err;
}
