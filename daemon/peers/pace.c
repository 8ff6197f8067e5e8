/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/peers/pace.h"

#include <math.h>
#include <stdlib.h>

/* A pace is measured over at least so long, but the first one. STILL: a trainer stands still that has taken no step for
 * so long, nor in a time in which it took so many. */
enum { WINDOW_MS = 10000, FIRST_MS = 1000, STILL_MS = 20000, STILL_STEPS = 4 };

void pace_note(struct pace *pace, uint64_t trained, uint64_t now_ms)
{
    if (pace->begun_ms == 0 || trained < pace->trained || pace->trained == 0)
        *pace = (struct pace){.begun_ms = now_ms, .begun = trained};
    pace->trained = trained;
    uint64_t steps = trained - pace->begun, ms = now_ms - pace->begun_ms;
    if (ms < WINDOW_MS || steps == 0)
        return;
    *pace =
        (struct pace){.begun_ms = now_ms, .begun = trained, .trained = trained, .per_ms = (double)steps / (double)ms};
}

double pace_now(const struct pace *pace, uint64_t now_ms)
{
    uint64_t steps = pace->trained - pace->begun, ms = now_ms - pace->begun_ms;
    if (pace->begun_ms == 0 || (pace->per_ms <= 0 && ms < FIRST_MS))
        return 0;
    if (pace->per_ms <= 0)
        return (double)steps / (double)ms;
    if (steps == 0 && ms >= STILL_MS && (double)ms * pace->per_ms >= STILL_STEPS)
        return PACE_STILL;
    return fmin(pace->per_ms, ms > 0 ? (double)(steps + 1) / (double)ms : pace->per_ms); /* one is under way */
}

static int by_pace(const void *a, const void *b)
{
    const struct pace_said *left = a, *right = b;
    return (left->per_ms > right->per_ms) - (left->per_ms < right->per_ms);
}

/* Were owners that stand still left out of `all`, contributors could become the measure. */
double pace_usual(struct pace_said *said, size_t count)
{
    size_t owners = 0, moving = 0, place = 0;
    for (size_t i = 0; i < count; i++)
        owners += said[i].owner;
    bool all = owners < 2;
    for (size_t i = 0; i < count; i++)
        moving += (all || said[i].owner) && said[i].per_ms >= 0;
    if (moving == 0)
        return 0;
    qsort(said, count, sizeof *said, by_pace);
    for (size_t i = 0; i < count; i++)
        if ((all || said[i].owner) && said[i].per_ms >= 0 && place++ == (moving - 1) / 2)
            return said[i].per_ms;
    return 0;
}

uint64_t step_line_move(struct step_line *line, uint64_t sure, uint64_t most, double per_ms, uint64_t now_ms)
{
    double on = line->ms != 0 ? per_ms * (double)(now_ms - line->ms) : 0;
    line->ms = now_ms;
    line->at = fmin(fmax(line->at + on, (double)sure), (double)most);
    return (uint64_t)line->at;
}
