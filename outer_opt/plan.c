/* SPDX-License-Identifier: Apache-2.0 */
#include "outer_opt/plan.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/bytes.h"
#include "common/mem.h"

static uint64_t padded(uint64_t count)
{
    return (count + PLAN_BLOCK - 1) / PLAN_BLOCK * PLAN_BLOCK;
}

static enum err copy_tensors(struct plan *plan, const struct plan_tensor *tensors, uint32_t tensors_count)
{
    TRY(mem_new(tensors_count, sizeof *plan->tensors, "the plan's tensors", &plan->tensors));
    for (uint32_t i = 0; i < tensors_count; i++) {
        char *name;
        if (tensors[i].name == NULL || tensors[i].name[0] == '\0')
            return err_set(ERR_ARG, "tensor %u has no name", i);
        if (tensors[i].count == 0 || tensors[i].count > PLAN_TENSOR_VALUES_MAX)
            return err_set(ERR_ARG, "tensor %s has %" PRIu64 " values", tensors[i].name, tensors[i].count);
        if (tensors[i].rows != 0 && tensors[i].count % tensors[i].rows != 0)
            return err_set(ERR_ARG, "tensor %s: %" PRIu64 " values are not %" PRIu64 " rows", tensors[i].name,
                           tensors[i].count, tensors[i].rows);
        TRY(mem_strdup(tensors[i].name, &name));
        plan->tensors[i] = (struct plan_tensor){.name = name,
                                                .layer = tensors[i].layer,
                                                .count = tensors[i].count,
                                                .rows = tensors[i].rows,
                                                .sensitive = tensors[i].sensitive};
        plan->tensors_count = i + 1;
        plan->params_count += tensors[i].count;
    }
    return ERR_OK;
}

static int by_name(const void *left, const void *right)
{
    return strcmp(*(const char *const *)left, *(const char *const *)right);
}

static enum err check_names_differ(const struct plan *plan)
{
    const char **names;
    enum err err = ERR_OK;
    TRY(mem_new(plan->tensors_count, sizeof *names, "the plan's tensors", &names));
    for (uint32_t i = 0; i < plan->tensors_count; i++)
        names[i] = plan->tensors[i].name;
    qsort(names, plan->tensors_count, sizeof *names, by_name);
    for (uint32_t i = 1; i < plan->tensors_count && err == ERR_OK; i++)
        if (strcmp(names[i - 1], names[i]) == 0)
            err = err_set(ERR_ARG, "two tensors are called %s", names[i]);
    mem_free(names);
    return err;
}

/* ---- assignment of tensors to fragments ---- */

/* Fragment 0 holds everything outside the layers; the layers follow in groups. */
static enum err assign_by_layer(struct plan *plan, const struct plan_conf *conf)
{
    int64_t layers = 0;
    uint32_t first = 0; /* fragment of the first group: 1, or 0 when nothing stands outside the layers */
    for (uint32_t i = 0; i < plan->tensors_count; i++) {
        if (plan->tensors[i].layer < 0)
            first = 1;
        else if (plan->tensors[i].layer >= layers)
            layers = (int64_t)plan->tensors[i].layer + 1;
    }
    uint32_t per = conf->layers_per_fragment > 0 ? conf->layers_per_fragment : 1;
    uint64_t groups = ((uint64_t)layers + per - 1) / per;
    if (first + groups > PLAN_FRAGMENTS_MAX)
        return err_set(ERR_ARG, "%" PRIu64 " fragments; at most %d are possible: raise layers_per_fragment",
                       first + groups, PLAN_FRAGMENTS_MAX);
    for (uint32_t i = 0; i < plan->tensors_count; i++) {
        struct plan_tensor *tensor = &plan->tensors[i];
        if (tensor->layer < 0)
            tensor->fragment = 0;
        else if (conf->pattern == PLAN_STRIDED)
            tensor->fragment = first + (uint32_t)((uint64_t)tensor->layer % groups);
        else
            tensor->fragment = first + (uint32_t)tensor->layer / per;
    }
    plan->fragments_count = first + (uint32_t)groups;
    return ERR_OK;
}

struct sized {
    uint64_t count;
    uint32_t index;
};

static int larger_first(const void *left, const void *right)
{
    const struct sized *a = left;
    const struct sized *b = right;
    if (a->count != b->count)
        return a->count > b->count ? -1 : 1;
    return a->index < b->index ? -1 : 1; /* total order: the same plan everywhere */
}

static enum err assign_balanced(struct plan *plan, const struct plan_conf *conf)
{
    enum err err;
    struct sized *order = NULL;
    uint64_t *load = NULL;
    uint32_t fragments = conf->fragments;
    if (fragments == 0 || fragments > PLAN_FRAGMENTS_MAX)
        return err_set(ERR_ARG, "%u fragments; 1 to %d are possible", fragments, PLAN_FRAGMENTS_MAX);
    if (fragments > plan->tensors_count)
        fragments = plan->tensors_count;
    TRY_OUT(mem_new(plan->tensors_count, sizeof *order, "the plan", &order));
    TRY_OUT(mem_new(fragments, sizeof *load, "the plan", &load));
    for (uint32_t i = 0; i < plan->tensors_count; i++)
        order[i] = (struct sized){plan->tensors[i].count, i};
    qsort(order, plan->tensors_count, sizeof *order, larger_first);
    for (uint32_t i = 0; i < plan->tensors_count; i++) {
        uint32_t smallest = 0;
        for (uint32_t f = 1; f < fragments; f++)
            if (load[f] < load[smallest])
                smallest = f;
        plan->tensors[order[i].index].fragment = smallest;
        load[smallest] += padded(order[i].count);
    }
    plan->fragments_count = fragments;
out:
    mem_free(order);
    mem_free(load);
    return err;
}

/* ---- layout ---- */

static uint32_t shards_of(uint64_t values_count)
{
    uint64_t blocks = values_count / PLAN_BLOCK;
    return blocks < PLAN_SHARDS_MAX ? (uint32_t)blocks : PLAN_SHARDS_MAX;
}

static enum err lay_out(struct plan *plan)
{
    TRY(mem_new(plan->fragments_count, sizeof *plan->fragments, "the plan's fragments", &plan->fragments));
    for (uint32_t i = 0; i < plan->tensors_count; i++) {
        struct plan_tensor *tensor = &plan->tensors[i];
        struct plan_fragment *fragment = &plan->fragments[tensor->fragment];
        tensor->offset = fragment->values_count;
        fragment->values_count += padded(tensor->count);
        if (fragment->values_count > (uint64_t)1 << 50)
            return err_set(ERR_ARG, "fragment %u would have more values than any machine holds", tensor->fragment);
        fragment->params_count += tensor->count;
        fragment->tensors_count++;
    }
    for (uint32_t f = 0; f < plan->fragments_count; f++) {
        if (plan->fragments[f].tensors_count == 0)
            return err_set(ERR_ARG, "fragment %u would be empty: layer numbers have gaps", f);
        if (plan->fragments[f].values_count > plan->values_count_max)
            plan->values_count_max = plan->fragments[f].values_count;
        plan->fragments[f].shards_count = shards_of(plan->fragments[f].values_count);
    }
    return ERR_OK;
}

static void digest_plan(struct plan *plan)
{
    struct digest_state state;
    digest_begin(&state);
    for (uint32_t i = 0; i < plan->tensors_count; i++) {
        const struct plan_tensor *tensor = &plan->tensors[i];
        uint8_t row[29];
        struct bytes_writer writer = bytes_writer_init(row, sizeof row);
        bytes_put_u32(&writer, tensor->fragment);
        bytes_put_u64(&writer, tensor->offset);
        bytes_put_u64(&writer, tensor->count);
        bytes_put_u64(&writer, tensor->rows);
        bytes_put_u8(&writer, tensor->sensitive);
        digest_add(&state, tensor->name, strlen(tensor->name) + 1);
        digest_add(&state, row, sizeof row);
    }
    plan->digest = digest_end(&state);
}

enum err plan_new(const struct plan_tensor *tensors, uint32_t tensors_count, const struct plan_conf *conf,
                  struct plan **out)
{
    enum err err;
    struct plan *plan = NULL;
    *out = NULL;
    if (tensors_count == 0)
        return err_set(ERR_ARG, "no tensors were registered");
    TRY_OUT(mem_new(1, sizeof *plan, "the plan", &plan));
    TRY_OUT(copy_tensors(plan, tensors, tensors_count));
    TRY_OUT(check_names_differ(plan));
    if (conf->pattern == PLAN_BALANCED)
        TRY_OUT(assign_balanced(plan, conf));
    else
        TRY_OUT(assign_by_layer(plan, conf));
    TRY_OUT(lay_out(plan));
    plan->whole_tensors = conf->whole_tensors;
    digest_plan(plan);
    *out = plan;
out:
    if (err != ERR_OK)
        plan_free(plan);
    return err;
}

void plan_free(struct plan *plan)
{
    if (plan == NULL)
        return;
    for (uint32_t i = 0; i < plan->tensors_count; i++)
        mem_free((void *)(uintptr_t)plan->tensors[i].name);
    mem_free(plan->tensors);
    mem_free(plan->fragments);
    mem_free(plan);
}

/* The border between tensors that is nearest to block `wanted`; the lower of two. */
static uint64_t nearest_border(const struct plan *plan, uint32_t fragment, uint64_t wanted)
{
    uint64_t blocks = plan->fragments[fragment].values_count / PLAN_BLOCK;
    uint64_t best = 0;
    uint64_t distance = wanted;
    if (blocks - wanted < distance) {
        best = blocks;
        distance = blocks - wanted;
    }
    for (uint32_t i = 0; i < plan->tensors_count; i++) {
        uint64_t border = plan->tensors[i].offset / PLAN_BLOCK;
        uint64_t away = border > wanted ? border - wanted : wanted - border;
        if (plan->tensors[i].fragment == fragment && (away < distance || (away == distance && border < best))) {
            best = border;
            distance = away;
        }
    }
    return best;
}

static uint64_t border(const struct plan *plan, uint32_t fragment, uint32_t shard)
{
    const struct plan_fragment *cut = &plan->fragments[fragment];
    uint64_t block = (uint64_t)((unsigned __int128)(cut->values_count / PLAN_BLOCK) * shard / cut->shards_count);
    return PLAN_BLOCK * (plan->whole_tensors ? nearest_border(plan, fragment, block) : block);
}

struct plan_shard plan_shard(const struct plan *plan, uint32_t fragment, uint32_t shard)
{
    return (struct plan_shard){.begin = border(plan, fragment, shard), .end = border(plan, fragment, shard + 1)};
}

uint64_t plan_shards(const struct plan *plan, uint32_t fragment)
{
    return UINT64_MAX >> (PLAN_SHARDS_MAX - plan->fragments[fragment].shards_count);
}

void plan_share(const struct plan *plan, uint32_t fragment, uint64_t shards, struct plan_share *out)
{
    out->runs_count = 0;
    out->values_count = 0;
    out->shards = 0;
    for (uint32_t s = 0; s < plan->fragments[fragment].shards_count; s++) {
        struct plan_shard shard = plan_shard(plan, fragment, s);
        if ((shards >> s & 1) == 0 || shard.begin == shard.end)
            continue;
        out->shards |= (uint64_t)1 << s;
        out->values_count += shard.end - shard.begin;
        struct plan_shard *last = out->runs_count > 0 ? &out->run[out->runs_count - 1] : NULL;
        if (last != NULL && last->end == shard.begin)
            last->end = shard.end;
        else
            out->run[out->runs_count++] = shard;
    }
}

const struct plan_tensor *plan_tensor_at(const struct plan *plan, uint32_t fragment, uint64_t offset)
{
    for (uint32_t i = 0; i < plan->tensors_count; i++) {
        const struct plan_tensor *tensor = &plan->tensors[i];
        if (tensor->fragment == fragment && offset >= tensor->offset && offset < tensor->offset + tensor->count)
            return tensor;
    }
    return NULL;
}
