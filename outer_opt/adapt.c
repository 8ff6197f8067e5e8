/* SPDX-License-Identifier: Apache-2.0 */
#include "outer_opt/adapt.h"

#include <stdbool.h>

#include "common/mem.h"

enum { GRID = 1024, SAMPLE = 1 << 15 };

/* None that makes something of a zero: padding stays zero. Those from FIRST_WIDE on leave out all of a block of one
 * magnitude, round after round: they are for a source with a residual, which brings it later. */
static const struct codec_choice candidates[] = {
    {CODEC_UNIFORM, 0.25f, 0}, {CODEC_UNIFORM, 0.35f, 0}, {CODEC_UNIFORM, 0.5f, 0}, {CODEC_UNIFORM, 0.7f, 0},
    {CODEC_UNIFORM, 1.0f, 0},  {CODEC_UNIFORM, 1.4f, 0},  {CODEC_UNIFORM, 1.7f, 0}, {CODEC_E3M0, 0, 0},
    {CODEC_INT4, 0, 0},        {CODEC_TERNARY, 0, 0},     {CODEC_INT8, 0, 0},       {CODEC_UNIFORM, 2.0f, 0},
    {CODEC_UNIFORM, 2.4f, 0},  {CODEC_UNIFORM, 2.8f, 0},  {CODEC_UNIFORM, 4.0f, 0},
};
enum { CANDIDATES = sizeof candidates / sizeof candidates[0], FIRST_WIDE = 11 };

struct adapt {
    size_t parts_max;
    struct adapt_cost *costs; /* parts_max x (CANDIDATES + the reference) */
    double *bytes;            /* (GRID + parts_max + 1) x 2 rows: fewest so far at each error */
    uint8_t *taken;           /* parts_max x the grid: what led there */
    size_t *chosen;
    size_t *which; /* parts that take part */
};

static size_t grid_of(const struct adapt *adapt)
{
    return GRID + adapt->parts_max + 1;
}

uint64_t adapt_bytes(uint64_t parts_max)
{
    uint64_t grid = GRID + parts_max + 1;
    uint64_t part = (CANDIDATES + 1) * sizeof(struct adapt_cost) + grid + 2 * sizeof(size_t);
    return sizeof(struct adapt) + parts_max * part + 2 * grid * sizeof(double);
}

enum err adapt_new(size_t parts_max, struct adapt **out)
{
    enum err err;
    struct adapt *adapt = NULL;
    *out = NULL;
    TRY_OUT(mem_new(1, sizeof *adapt, "the choice of codecs", &adapt));
    adapt->parts_max = parts_max;
    TRY_OUT(mem_new(parts_max * (CANDIDATES + 1), sizeof *adapt->costs, "the choice of codecs", &adapt->costs));
    TRY_OUT(mem_new(grid_of(adapt) * 2, sizeof *adapt->bytes, "the choice of codecs", &adapt->bytes));
    TRY_OUT(mem_new(grid_of(adapt), parts_max > 0 ? parts_max : 1, "the choice of codecs", &adapt->taken));
    TRY_OUT(mem_new(parts_max, sizeof *adapt->chosen, "the choice of codecs", &adapt->chosen));
    TRY_OUT(mem_new(parts_max, sizeof *adapt->which, "the choice of codecs", &adapt->which));
out:
    if (err != ERR_OK)
        adapt_free(adapt);
    else
        *out = adapt;
    return err;
}

void adapt_free(struct adapt *adapt)
{
    if (adapt == NULL)
        return;
    mem_free(adapt->costs);
    mem_free(adapt->bytes);
    mem_free(adapt->taken);
    mem_free(adapt->chosen);
    mem_free(adapt->which);
    mem_free(adapt);
}

/* An error in steps of the grid, rounded up: what fits on the grid fits. */
static size_t units_of(double error, double budget, size_t grid)
{
    double units = error / budget * GRID;
    if (!(units < (double)grid))
        return grid;
    size_t whole = (size_t)units;
    return whole + ((double)whole < units);
}

void adapt_solve(struct adapt *adapt, const struct adapt_cost *costs, size_t tensors_count, size_t candidates_count,
                 double budget, size_t fallback, size_t *chosen)
{
    /* Rounding up may cost a step for each tensor; the fallback must still fit. */
    size_t grid = GRID + tensors_count + 1;
    double *before = adapt->bytes, *now = adapt->bytes + grid_of(adapt);
    const double never = 1e300;
    for (size_t e = 0; e < grid; e++)
        before[e] = e == 0 ? 0 : never;
    for (size_t t = 0; t < tensors_count; t++) {
        uint8_t *taken = adapt->taken + t * grid_of(adapt);
        for (size_t e = 0; e < grid; e++)
            now[e] = never;
        for (size_t c = 0; c < candidates_count; c++) {
            const struct adapt_cost *cost = &costs[t * candidates_count + c];
            size_t units = budget > 0 ? units_of(cost->error, budget, grid) : cost->error > 0 ? grid : 0;
            for (size_t e = units; e < grid; e++)
                if (before[e - units] + cost->bytes < now[e]) {
                    now[e] = before[e - units] + cost->bytes;
                    taken[e] = (uint8_t)c;
                }
        }
        double *swap = before;
        before = now;
        now = swap;
    }
    size_t best = 0;
    for (size_t e = 1; e < grid; e++)
        if (before[e] < before[best])
            best = e;
    bool fits = before[best] < never;
    for (size_t t = tensors_count; t-- > 0;) {
        chosen[t] = fits ? adapt->taken[t * grid_of(adapt) + best] : fallback;
        if (fits && budget > 0)
            best -= units_of(costs[t * candidates_count + chosen[t]].error, budget, grid);
    }
}

/* A stretch from the middle of a part, and what each candidate makes of it, for the whole part. */
static enum err measure(struct codec *codec, const struct codec_choice *choice, const struct vec_source *source,
                        const struct codec_part *part, struct adapt_cost *cost)
{
    uint64_t stretch = part->count < SAMPLE ? part->count : SAMPLE;
    uint64_t from = part->at + (part->count - stretch) / 2 / CODEC_BLOCK * CODEC_BLOCK;
    struct vec_source sample = {.minuend = source->minuend + from,
                                .subtrahend = source->subtrahend != NULL ? source->subtrahend + from : NULL,
                                .residual = source->residual != NULL ? source->residual + from : NULL};
    size_t bytes;
    double error;
    TRY(codec_try(codec, choice, &sample, (size_t)stretch, &bytes, &error));
    double whole = (double)part->count / (double)stretch;
    *cost = (struct adapt_cost){(double)bytes * whole, error * whole};
    return ERR_OK;
}

enum err adapt_parts(struct adapt *adapt, struct codec *codec, const struct codec_choice *reference,
                     const struct vec_source *source, struct codec_part *parts, size_t parts_count)
{
    const size_t usable = source->residual != NULL ? CANDIDATES : FIRST_WIDE;
    size_t count = 0;
    double budget = 0;
    for (size_t i = 0; i < parts_count; i++) {
        if (parts[i].choice.id == CODEC_BF16)
            continue;
        struct adapt_cost *costs = adapt->costs + count * (usable + 1);
        for (size_t c = 0; c < usable; c++)
            TRY(measure(codec, &candidates[c], source, &parts[i], &costs[c]));
        TRY(measure(codec, reference, source, &parts[i], &costs[usable]));
        budget += costs[usable].error;
        adapt->which[count++] = i;
    }
    adapt_solve(adapt, adapt->costs, count, usable + 1, budget, usable, adapt->chosen);
    for (size_t k = 0; k < count; k++)
        parts[adapt->which[k]].choice = adapt->chosen[k] < usable ? candidates[adapt->chosen[k]] : *reference;
    return ERR_OK;
}
