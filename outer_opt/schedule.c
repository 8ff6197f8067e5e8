/* SPDX-License-Identifier: Apache-2.0 */
#include "outer_opt/schedule.h"

static uint64_t offset_within(const struct schedule *schedule, uint32_t fragment, uint64_t interval)
{
    if (!schedule->spread)
        return 0;
    if (schedule->fragments > interval)
        return fragment * interval / schedule->fragments;
    return fragment * (interval / schedule->fragments);
}

uint64_t schedule_offset(const struct schedule *schedule, uint32_t fragment)
{
    return offset_within(schedule, fragment, schedule->interval);
}

static uint64_t fixed_next(uint64_t offset, uint64_t interval, uint64_t step)
{
    uint64_t first = offset + interval;
    if (step < first)
        return first;
    return first + ((step - first) / interval + 1) * interval;
}

/* ---- growing intervals ---- */

static uint64_t grown_interval(const struct schedule *schedule, uint64_t at)
{
    double ratio = at < schedule->lr_warmup ? 0 : schedule->growth / schedule->lr(schedule->user, at);
    double square = ratio * ratio;
    if (!(square > (double)schedule->interval)) /* also where the learning rate is 0 / 0 */
        return schedule->interval;
    return square < 1e18 ? (uint64_t)square : (uint64_t)1e18;
}

static uint64_t grown_next(const struct schedule *schedule, uint32_t fragment, uint64_t step)
{
    uint64_t at = schedule_offset(schedule, fragment);
    for (;;) {
        uint64_t due = at + grown_interval(schedule, at);
        if (at < schedule->steps && due > schedule->steps)
            due = schedule->steps;
        if (due > step)
            return due;
        at = due;
    }
}

/* ---- all ---- */

uint64_t schedule_next_due(const struct schedule *schedule, uint32_t fragment, uint64_t step)
{
    if (schedule->growth > 0)
        return grown_next(schedule, fragment, step);
    if (step < schedule->warm_until) {
        uint64_t due =
            fixed_next(offset_within(schedule, fragment, schedule->warm_interval), schedule->warm_interval, step);
        if (due <= schedule->warm_until)
            return due;
        step = schedule->warm_until;
    }
    /* What follows a warm start is no first interval: the pattern goes on. */
    if (schedule->warm_until > 0 && step < schedule_offset(schedule, fragment))
        return schedule_offset(schedule, fragment);
    return fixed_next(schedule_offset(schedule, fragment), schedule->interval, step);
}
