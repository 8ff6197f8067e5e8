/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/blend.h"

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#include "common/mem.h"

/*
 * In whole numbers, so that every machine finds the same: time goes in ticks of 1/256 window, shares are parts of 2^32,
 * so a window is 2^40. Between two points at x and x + L ticks the share goes linearly from u to v; its integral after
 * `a` ticks is u (a - b) + v b with b = a^2 / 2L. Rounded down, b and a - b both never fall, and neither does the
 * integral; and with shares that add up to 2^32 the integrals of all sources add up to a 2^32, exactly.
 */
enum { TICK_BITS = 8, SHARE_BITS = 32, WINDOW_BITS = TICK_BITS + SHARE_BITS };
static const uint64_t ALL = (uint64_t)1 << SHARE_BITS;
static const uint64_t POSITIONS = (uint64_t)1 << 48;

typedef unsigned __int128 integral;

struct part {
    uint64_t begin, length; /* ticks; the last one's length is 0: it has no end, and shares stay */
    uint64_t from[MIXTURE_SOURCES_MAX], to[MIXTURE_SOURCES_MAX]; /* shares */
    integral before[MIXTURE_SOURCES_MAX];                        /* up to `begin` */
};

struct blend {
    size_t sources, parts_count;
    struct part parts[];
};

/* ---- shares ---- */

/* To parts of ALL, exactly all of it: what rounding down leaves goes to the largest. */
static void to_shares(const double *weights, size_t count, uint64_t *shares)
{
    double sum = 0;
    uint64_t given = 0;
    size_t largest = 0;
    for (size_t i = 0; i < count; i++)
        sum += weights[i];
    for (size_t i = 0; i < count; i++) {
        shares[i] = (uint64_t)floor(weights[i] / sum * (double)ALL);
        given += shares[i];
        largest = weights[i] > weights[largest] ? i : largest;
    }
    shares[largest] += ALL - given; /* a wrap and its undoing, where rounding gave too much */
}

static integral integral_at(const struct part *part, size_t source, uint64_t tick)
{
    uint64_t a = tick - part->begin;
    uint64_t b = part->length > 0 ? (uint64_t)((integral)a * a / (2 * (integral)part->length)) : 0;
    return part->before[source] + (integral)part->from[source] * (a - b) + (integral)part->to[source] * b;
}

/* ---- making ---- */

static int ascending(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return (a > b) - (a < b);
}

/* All steps at which a weight is given, and 0, each once. */
static size_t steps_of(const struct mixture *mixture, uint64_t *steps)
{
    size_t count = 1, kept = 1;
    steps[0] = 0;
    for (size_t i = 0; i < mixture->count; i++)
        for (size_t p = 0; p < mixture->sources[i].points_count; p++)
            steps[count++] = mixture->sources[i].points[p].step;
    qsort(steps, count, sizeof *steps, ascending);
    for (size_t i = 1; i < count; i++)
        if (steps[i] != steps[kept - 1])
            steps[kept++] = steps[i];
    return kept;
}

static enum err new_of(size_t sources, size_t parts, struct blend **out)
{
    TRY(mem_new(1, sizeof **out + parts * sizeof(*out)->parts[0], "the order of the sources", out));
    (*out)->sources = sources;
    (*out)->parts_count = parts;
    return ERR_OK;
}

static void fill(struct blend *blend, const struct mixture *mixture, const uint64_t *steps, uint64_t windows_per_step)
{
    double weights[MIXTURE_SOURCES_MAX];
    for (size_t p = 0; p < blend->parts_count; p++) {
        struct part *part = &blend->parts[p];
        bool last = p + 1 == blend->parts_count;
        part->begin = (steps[p] * windows_per_step) << TICK_BITS;
        part->length = last ? 0 : ((steps[p + 1] - steps[p]) * windows_per_step) << TICK_BITS;
        for (size_t i = 0; i < blend->sources; i++)
            weights[i] = mixture_weight(&mixture->sources[i], steps[p]);
        to_shares(weights, blend->sources, part->from);
        for (size_t i = 0; i < blend->sources; i++) {
            if (p > 0)
                blend->parts[p - 1].to[i] = part->from[i];
            part->before[i] = p > 0 ? integral_at(&blend->parts[p - 1], i, part->begin) : 0;
        }
    }
}

enum err blend_new(const struct mixture *mixture, uint64_t windows_per_step, struct blend **out)
{
    uint64_t steps[MIXTURE_SOURCES_MAX * MIXTURE_POINTS_MAX + 1];
    size_t parts = steps_of(mixture, steps);
    *out = NULL;
    if (steps[parts - 1] >= POSITIONS / windows_per_step)
        return err_set(ERR_CONF,
                       "weights at step %" PRIu64 " of the run, of %" PRIu64 " windows each: no run is so long",
                       steps[parts - 1], windows_per_step);
    TRY(new_of(mixture->count, parts, out));
    fill(*out, mixture, steps, windows_per_step);
    return ERR_OK;
}

enum err blend_even(const double *weights, size_t count, struct blend **out)
{
    *out = NULL;
    TRY(new_of(count, 1, out));
    to_shares(weights, count, (*out)->parts[0].from);
    return ERR_OK;
}

void blend_free(struct blend *blend)
{
    mem_free(blend);
}

/* ---- asking ---- */

static const struct part *part_at(const struct blend *blend, uint64_t tick)
{
    const struct part *part = blend->parts;
    while (part + 1 < blend->parts + blend->parts_count && part[1].begin <= tick)
        part++;
    return part;
}

void blend_shares(const struct blend *blend, uint64_t position, double *shares)
{
    uint64_t tick = position << TICK_BITS;
    const struct part *part = part_at(blend, tick);
    for (size_t i = 0; i < blend->sources; i++)
        shares[i] = (double)integral_at(part, i, tick) / ((double)tick * (double)ALL);
}

/* Windows of each source that are due by this tick; returns how many in all. */
static uint64_t due_by(const struct blend *blend, uint64_t tick, uint64_t *due)
{
    const struct part *part = part_at(blend, tick);
    uint64_t sum = 0;
    for (size_t i = 0; i < blend->sources; i++) {
        due[i] = (uint64_t)((integral_at(part, i, tick) + ((integral)1 << (WINDOW_BITS - 1))) >> WINDOW_BITS);
        sum += due[i];
    }
    return sum;
}

/* `counts`: windows of each source before `position`; returns the source of the one there. Of those that fall due in
 * one tick, of each source at most one, the first source's goes first. */
static size_t look_up(const struct blend *blend, uint64_t position, uint64_t *counts)
{
    uint64_t due[MIXTURE_SOURCES_MAX], slack = blend->sources;
    uint64_t low = position + 1 > slack ? (position + 1 - slack) << TICK_BITS : 0; /* too early for it, or tick 0 */
    uint64_t high = (position + 1 + slack) << TICK_BITS;                           /* it is due by then */
    while (high - low > 1) {
        uint64_t middle = low + (high - low) / 2;
        if (due_by(blend, middle, due) > position)
            high = middle;
        else
            low = middle;
    }
    uint64_t left = position - due_by(blend, low, counts);
    due_by(blend, high, due);
    for (size_t i = 0; i < blend->sources; i++) {
        if (due[i] == counts[i])
            continue;
        if (left == 0)
            return i;
        counts[i]++;
        left--;
    }
    return 0; /* not reached: so many are due in this tick */
}

struct blend_place blend_at(const struct blend *blend, uint64_t position)
{
    uint64_t counts[MIXTURE_SOURCES_MAX];
    if (blend->sources == 1)
        return (struct blend_place){.source = 0, .index = position};
    size_t source = look_up(blend, position, counts);
    return (struct blend_place){.source = source, .index = counts[source]};
}

void blend_counts(const struct blend *blend, uint64_t position, uint64_t *counts)
{
    if (blend->sources == 1)
        counts[0] = position;
    else
        look_up(blend, position, counts);
}
