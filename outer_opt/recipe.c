/* SPDX-License-Identifier: Apache-2.0 */
#include "outer_opt/recipe.h"

#include <stdlib.h>

#include "common/mem.h"

struct piece {
    uint32_t tensor;
    struct codec_choice choice[RECIPE_ROLES];
    float *factor[RECIPE_ROLES];
};

struct recipe {
    const struct plan *plan;
    struct piece *pieces; /* by fragment, then offset */
    uint32_t *first;      /* fragments_count + 1: where a fragment's pieces begin */
    bool apart;
    uint32_t pieces_most; /* of a fragment */
};

static uint64_t cols_of(const struct plan_tensor *tensor)
{
    return tensor->count / tensor->rows;
}

/* Thin factors pay only where they are much smaller than the matrix. */
static bool low_rank(const struct plan_tensor *tensor, uint32_t rank)
{
    return tensor->rows > 1 && (tensor->rows + cols_of(tensor)) * rank <= tensor->count / 2;
}

static struct codec_choice choice_of(const struct plan_tensor *tensor, const struct codec_choice *wanted)
{
    bool plain = tensor->sensitive && wanted->id != CODEC_FP32;
    if (plain || (wanted->id == CODEC_POWERSGD && !low_rank(tensor, wanted->rank)))
        return (struct codec_choice){.id = CODEC_BF16};
    return *wanted;
}

static int by_offset(const void *left, const void *right, void *plan)
{
    const struct plan_tensor *tensors = ((const struct plan *)plan)->tensors;
    const struct plan_tensor *a = &tensors[((const struct piece *)left)->tensor];
    const struct plan_tensor *b = &tensors[((const struct piece *)right)->tensor];
    if (a->fragment != b->fragment)
        return a->fragment < b->fragment ? -1 : 1;
    return a->offset < b->offset ? -1 : a->offset > b->offset;
}

static enum err fill(struct recipe *recipe, const struct codec_choice *choice)
{
    const struct plan *plan = recipe->plan;
    TRY(mem_new(plan->tensors_count, sizeof *recipe->pieces, "the recipe", &recipe->pieces));
    TRY(mem_new((size_t)plan->fragments_count + 1, sizeof *recipe->first, "the recipe", &recipe->first));
    for (uint32_t i = 0; i < plan->tensors_count; i++)
        recipe->pieces[i].tensor = i;
    qsort_r(recipe->pieces, plan->tensors_count, sizeof *recipe->pieces, by_offset, (void *)(uintptr_t)plan);
    for (uint32_t i = 0; i < plan->tensors_count; i++) {
        struct piece *piece = &recipe->pieces[i];
        const struct plan_tensor *tensor = &plan->tensors[piece->tensor];
        recipe->first[tensor->fragment + 1] = i + 1;
        for (int role = 0; role < RECIPE_ROLES; role++) {
            piece->choice[role] = choice_of(tensor, choice);
            if (piece->choice[role].id == CODEC_POWERSGD)
                TRY(mem_new((size_t)cols_of(tensor), choice->rank * sizeof(float), "the factors",
                            &piece->factor[role]));
        }
    }
    for (uint32_t f = 0; f < plan->fragments_count; f++)
        if (recipe->first[f + 1] - recipe->first[f] > recipe->pieces_most)
            recipe->pieces_most = recipe->first[f + 1] - recipe->first[f];
    return ERR_OK;
}

enum err recipe_new(const struct plan *plan, const struct codec_choice *choice, bool apart, struct recipe **out)
{
    enum err err;
    struct recipe *recipe = NULL;
    *out = NULL;
    TRY(codec_choice_check(choice));
    TRY_OUT(mem_new(1, sizeof *recipe, "the recipe", &recipe));
    recipe->plan = plan;
    recipe->apart = apart;
    TRY_OUT(fill(recipe, choice));
out:
    if (err != ERR_OK)
        recipe_free(recipe);
    else
        *out = recipe;
    return err;
}

void recipe_free(struct recipe *recipe)
{
    if (recipe == NULL)
        return;
    for (uint32_t i = 0; recipe->pieces != NULL && i < recipe->plan->tensors_count; i++)
        for (int role = 0; role < RECIPE_ROLES; role++)
            mem_free(recipe->pieces[i].factor[role]);
    mem_free(recipe->pieces);
    mem_free(recipe->first);
    mem_free(recipe);
}

uint64_t recipe_bytes(const struct plan *plan, const struct codec_choice *choice)
{
    uint64_t bytes = plan->tensors_count * sizeof(struct piece);
    for (uint32_t i = 0; i < plan->tensors_count; i++)
        if (choice_of(&plan->tensors[i], choice).id == CODEC_POWERSGD)
            bytes += RECIPE_ROLES * cols_of(&plan->tensors[i]) * choice->rank * sizeof(float);
    return bytes;
}

size_t recipe_factor_values_max(const struct plan *plan, const struct codec_choice *choice)
{
    uint64_t most = 0;
    for (uint32_t i = 0; i < plan->tensors_count; i++) {
        const struct plan_tensor *tensor = &plan->tensors[i];
        if (choice_of(tensor, choice).id != CODEC_POWERSGD)
            continue;
        uint64_t values = (tensor->rows + cols_of(tensor)) * choice->rank;
        most = values > most ? values : most;
    }
    return (size_t)most;
}

static uint64_t padded(uint64_t count)
{
    return (count + PLAN_BLOCK - 1) / PLAN_BLOCK * PLAN_BLOCK;
}

size_t recipe_segment_values_max(const struct plan *plan, const struct codec_choice *choice)
{
    uint64_t most = CODEC_SEGMENT;
    for (uint32_t i = 0; i < plan->tensors_count; i++) {
        const struct plan_tensor *tensor = &plan->tensors[i];
        if (codec_on_tensors(choice_of(tensor, choice).id) && padded(tensor->count) > most)
            most = padded(tensor->count);
    }
    return (size_t)most;
}

static bool same_choice(const struct codec_choice *a, const struct codec_choice *b)
{
    return a->id == b->id && a->ratio == b->ratio && a->rank == b->rank;
}

/* Tensors under the same block codec are one part. */
static size_t add_part(struct codec_part *parts, size_t count, const struct codec_part *part, bool apart)
{
    if (part->count == 0)
        return count;
    struct codec_part *last = count > 0 ? &parts[count - 1] : NULL;
    bool joins = last != NULL && !apart && !codec_on_tensors(part->choice.id) && last->at + last->count == part->at &&
                 same_choice(&last->choice, &part->choice) && last->count + part->count <= UINT32_MAX - CODEC_SEGMENT;
    if (joins)
        last->count += part->count;
    else
        parts[count++] = *part;
    return count;
}

/* The part of one tensor that lies in a run; its padded last block apart where zeros would not stay. `shift`: from a
 * value's place in the fragment to its place in the arrays. */
static size_t add_tensor(const struct plan_tensor *tensor, const struct codec_choice *choice, float *factor,
                         struct plan_shard run, int64_t shift, bool apart, struct codec_part *parts, size_t count)
{
    uint64_t from = tensor->offset;
    uint64_t to = from + padded(tensor->count);
    uint64_t whole = from + tensor->count / PLAN_BLOCK * PLAN_BLOCK;
    from = from > run.begin ? from : run.begin;
    to = to < run.end ? to : run.end;
    if (from >= to)
        return count;
    struct codec_part part = {.at = from + (uint64_t)shift, .count = to - from, .choice = *choice, .factor = factor};
    if (codec_on_tensors(choice->id)) {
        part.rows = (uint32_t)tensor->rows;
        part.cols = (uint32_t)cols_of(tensor);
        return add_part(parts, count, &part, apart);
    }
    if (choice->id == CODEC_INT2 && to > whole) {
        part.count = whole > from ? whole - from : 0;
        count = add_part(parts, count, &part, apart);
        from = whole > from ? whole : from;
        part = (struct codec_part){.at = from + (uint64_t)shift, .count = to - from, .choice = {.id = CODEC_BF16}};
    }
    return add_part(parts, count, &part, apart);
}

size_t recipe_parts_max(const struct recipe *recipe)
{
    return 2 * ((size_t)recipe->pieces_most + PLAN_SHARDS_MAX); /* every run cuts one more */
}

size_t recipe_parts(const struct recipe *recipe, enum recipe_role role, uint32_t f, const struct plan_share *share,
                    struct codec_part *parts)
{
    size_t count = 0;
    uint64_t before = 0; /* values of the runs so far */
    for (uint32_t r = 0; r < share->runs_count; r++) {
        struct plan_shard run = share->run[r];
        int64_t shift = role == RECIPE_RESULT ? (int64_t)before - (int64_t)run.begin : 0;
        for (uint32_t i = recipe->first[f]; i < recipe->first[f + 1]; i++) {
            const struct piece *piece = &recipe->pieces[i];
            count = add_tensor(&recipe->plan->tensors[piece->tensor], &piece->choice[role], piece->factor[role], run,
                               shift, recipe->apart, parts, count);
        }
        before += run.end - run.begin;
    }
    return count;
}

size_t recipe_frame_bytes_max(const struct plan *plan, const struct codec_choice *choice, uint32_t f,
                              const struct plan_share *share)
{
    /* Tensor by tensor, as if none joined its neighbour: never less than what they make together. */
    size_t bytes = CODEC_HEADER_BYTES;
    for (uint32_t r = 0; r < share->runs_count; r++)
        for (uint32_t i = 0; i < plan->tensors_count; i++) {
            const struct plan_tensor *tensor = &plan->tensors[i];
            struct codec_part parts[2];
            struct codec_choice own = choice_of(tensor, choice);
            if (tensor->fragment == f)
                bytes +=
                    codec_frame_bytes_max(parts, add_tensor(tensor, &own, NULL, share->run[r], 0, true, parts, 0)) -
                    CODEC_HEADER_BYTES;
        }
    return bytes;
}
