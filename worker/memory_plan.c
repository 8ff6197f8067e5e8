/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/memory_plan.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/log.h"
#include "worker/inner.h"
#include "worker/moves.h"

/* Of the exchange with the daemon, for `count` parameters: moves pass through memory aside, and where a contribution is
 * on its way for a whole interval its work is set aside, with Eager also that of the rounds before. */
static uint64_t exchange_memory(const struct runspec *spec, const struct kern *kern, int64_t count)
{
    uint64_t moves = kern->on_host ? 0 : moves_memory(count);
    uint64_t aside = spec->overlap == spec->interval ? (uint64_t)count * sizeof(float) : 0;
    return moves + (spec->eager ? 2 * aside : aside);
}

enum err memory_plan(const struct runspec *spec, const struct kern *kern, struct kern_dev *dev,
                     const struct memory_plan_conf *conf, struct memory_plan *out)
{
    struct model *model;
    TRY(model_outline(spec, kern, dev, &conf->model, &model));
    struct model_memory m;
    enum err err = model_memory(model, &m);
    struct inner_memory inner = conf->model.train ? inner_memory(model, spec) : (struct inner_memory){0};
    if (err == ERR_OK)
        *out = (struct memory_plan){.parameters = m.masters + m.copy,
                                    .gradients = m.gradients,
                                    .moments = inner.moments,
                                    .activations = m.activations,
                                    .logits = m.logits,
                                    .caches = conf->decodes ? model_decode_memory(model) : 0,
                                    .workspace = m.scratch + inner.scratch,
                                    .exchange = conf->attached ? exchange_memory(spec, kern, model->own_count) : 0};
    model_free(model);
    return err;
}

uint64_t memory_plan_sum(const struct memory_plan *plan)
{
    return plan->parameters + plan->gradients + plan->moments + plan->activations + plan->logits + plan->caches +
           plan->workspace + plan->exchange;
}

/* ---- in words ---- */

enum { TEXT_BYTES = 320, BATCH_BYTES = 120 };

struct unit {
    const char *name;
    double bytes;
};

/* One for all amounts of a line. */
static struct unit unit_for(uint64_t bytes)
{
    return bytes >> 30 ? (struct unit){"GiB", 1073741824.0} : (struct unit){"MiB", 1048576.0};
}

/* "5.1 GiB on device cuda (parameters 1.2, …)", without the parts that only others have. */
static void describe(const struct memory_plan *plan, struct unit unit, const char *device, char text[TEXT_BYTES])
{
    const struct {
        const char *name;
        uint64_t bytes;
        bool always;
    } parts[] = {
        {"parameters", plan->parameters, true},
        {"gradients", plan->gradients, false},
        {"moments", plan->moments, plan->gradients > 0},
        {"activations", plan->activations, true},
        {"logits", plan->logits, true},
        {"caches", plan->caches, false},
        {"workspace", plan->workspace, true},
        {"exchange", plan->exchange, false},
    };
    int n = snprintf(text, TEXT_BYTES, "%.1f %s on device %s (", (double)memory_plan_sum(plan) / unit.bytes, unit.name,
                     device);
    const char *between = "";
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        if (!parts[i].always && parts[i].bytes == 0)
            continue;
        n += snprintf(text + n, (size_t)(TEXT_BYTES - n), "%s%s %.1f", between, parts[i].name,
                      (double)parts[i].bytes / unit.bytes);
        between = ", ";
    }
    snprintf(text + n, (size_t)(TEXT_BYTES - n), ")");
}

/* ---- what would fit ---- */

struct search {
    const struct runspec *spec;
    const struct kern *kern;
    struct kern_dev *dev;
    const struct memory_plan_conf *conf; /* as asked for, and too much */
    uint64_t free_bytes;
};

static enum err fits(const struct search *s, int64_t batch, enum model_recompute recompute, bool *yes)
{
    struct memory_plan_conf conf = *s->conf;
    struct memory_plan plan;
    conf.model.batch = batch;
    conf.model.recompute = recompute;
    TRY(memory_plan(s->spec, s->kern, s->dev, &conf, &plan));
    *yes = memory_plan_sum(&plan) <= s->free_bytes;
    return ERR_OK;
}

/* The mode that makes the least again, of those that fit at the same batch; MODEL_RECOMPUTES: none does. */
static enum err find_recompute(const struct search *s, enum model_recompute *out)
{
    bool yes = false;
    int mode = (int)s->conf->model.recompute + 1;
    for (; mode < MODEL_RECOMPUTES; mode++) {
        TRY(fits(s, s->conf->model.batch, (enum model_recompute)mode, &yes));
        if (yes)
            break;
    }
    *out = (enum model_recompute)mode;
    return ERR_OK;
}

/* The largest batch of those that come by halving; 0: none fits. */
static enum err find_batch(const struct search *s, enum model_recompute recompute, int64_t *out)
{
    bool yes = false;
    int64_t batch = s->conf->model.batch / 2;
    for (; batch > 0; batch /= 2) {
        TRY(fits(s, batch, recompute, &yes));
        if (yes)
            break;
    }
    *out = batch;
    return ERR_OK;
}

/* "batch = 4 and accumulate = 8 in [train]": the same tokens a step where that comes out even. */
static void describe_batch(const struct search *s, int64_t batch, char text[BATCH_BYTES])
{
    int64_t all = s->conf->model.batch * s->spec->accumulate;
    int64_t of_rows = batch * (s->conf->model.grid.dp > 1 ? s->conf->model.grid.dp : 1);
    if (all % batch == 0)
        snprintf(text, BATCH_BYTES, "batch = %" PRId64 " and accumulate = %" PRId64 " in the run spec's [train]",
                 of_rows, all / batch);
    else
        snprintf(text, BATCH_BYTES, "batch = %" PRId64 " in the run spec's [train]", of_rows);
}

/* Where nothing is trained: the run spec's batch is taken as it is, and may be smaller. */
static enum err advise_batch(const struct search *s, char text[TEXT_BYTES])
{
    int64_t batch;
    TRY(find_batch(s, MODEL_RECOMPUTE_NONE, &batch));
    if (batch > 0)
        snprintf(text, TEXT_BYTES, "use batch = %" PRId64 " in the run spec's [train]", batch);
    else
        snprintf(text, TEXT_BYTES, "it takes a device with more memory");
    return ERR_OK;
}

static enum err advise(const struct search *s, char text[TEXT_BYTES])
{
    enum model_recompute recompute;
    int64_t batch;
    char smaller[BATCH_BYTES];
    TRY(find_recompute(s, &recompute));
    TRY(find_batch(s, s->conf->model.recompute, &batch));
    describe_batch(s, batch > 0 ? batch : 1, smaller);
    if (recompute < MODEL_RECOMPUTES) {
        int n = snprintf(text, TEXT_BYTES, "use --recompute %s", model_recompute_name(recompute));
        if (batch > 0)
            snprintf(text + n, (size_t)(TEXT_BYTES - n), ", or %s", smaller);
        return ERR_OK;
    }
    if (batch > 0) {
        snprintf(text, TEXT_BYTES, "use %s", smaller);
        return ERR_OK;
    }
    TRY(find_batch(s, MODEL_RECOMPUTE_LAYER, &batch));
    if (batch > 0) {
        describe_batch(s, batch, smaller);
        snprintf(text, TEXT_BYTES, "use --recompute %s with %s", model_recompute_name(MODEL_RECOMPUTE_LAYER), smaller);
        return ERR_OK;
    }
    snprintf(text, TEXT_BYTES,
             "neither a batch of 1 nor --recompute makes it fit: it takes %sa smaller model, or a device "
             "with more memory",
             s->kern->on_host ? "" : "more GPUs (--devices, --tensor-parallel), ");
    return ERR_OK;
}

enum err memory_plan_check(const struct runspec *spec, const struct kern *kern, struct kern_dev *dev,
                           const struct memory_plan_conf *conf, uint64_t *sum)
{
    struct memory_plan plan;
    size_t free_bytes, total;
    char what[TEXT_BYTES], advice[TEXT_BYTES];
    TRY(memory_plan(spec, kern, dev, conf, &plan));
    TRY(kern->memory(dev, &free_bytes, &total));
    uint64_t needed = memory_plan_sum(&plan);
    struct unit unit = unit_for(needed);
    size_t share = free_bytes / (size_t)(conf->sharing > 1 ? conf->sharing : 1);
    describe(&plan, unit, kern->name, what);
    if (conf->sharing > 1)
        snprintf(what + strlen(what), sizeof what - strlen(what), " for each of %d ranks that share it", conf->sharing);
    if (sum != NULL)
        *sum = needed;
    if (needed > share) {
        struct search search = {spec, kern, dev, conf, share};
        TRY(conf->model.train ? advise(&search, advice) : advise_batch(&search, advice));
        return err_set(ERR_NOMEM, "this model needs %s, which has %.1f of %.1f %s free; %s", what,
                       (double)free_bytes / unit.bytes, (double)total / unit.bytes, unit.name, advice);
    }
    log_line(conf->model.train ? LOG_LEVEL_INFO : LOG_LEVEL_DEBUG, "%s takes %s, which has %.1f of %.1f %s free",
             conf->model.train ? "training"
             : conf->decodes   ? "sampling"
                               : "evaluation",
             what, (double)free_bytes / unit.bytes, (double)total / unit.bytes, unit.name);
    return ERR_OK;
}
