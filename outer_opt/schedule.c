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

/* The due steps around `step`: the last one not later, or the offset, and the first one later. */
static void grown_around(const struct schedule *schedule, uint32_t fragment, uint64_t step, uint64_t *last,
                         uint64_t *next)
{
    uint64_t at = schedule_offset(schedule, fragment);
    for (;;) {
        uint64_t due = at + grown_interval(schedule, at);
        if (at < schedule->steps && due > schedule->steps)
            due = schedule->steps;
        *last = at;
        *next = due;
        if (due > step)
            return;
        at = due;
    }
}

/* ---- all ---- */

uint64_t schedule_next_due(const struct schedule *schedule, uint32_t fragment, uint64_t step)
{
    if (schedule->growth > 0) {
        uint64_t last, next;
        grown_around(schedule, fragment, step, &last, &next);
        return next;
    }
    if (step < schedule->warm_until) {
        uint64_t due =
            fixed_next(offset_within(schedule, fragment, schedule->warm_interval), schedule->warm_interval, step);
        if (due <= schedule->warm_until)
            return due;
        step = schedule->warm_until;
    }
    return fixed_next(schedule_offset(schedule, fragment), schedule->interval, step);
}

uint64_t schedule_last_due(const struct schedule *schedule, uint32_t fragment, uint64_t due)
{
    uint64_t last = schedule_offset(schedule, fragment);
    if (schedule->growth > 0) {
        uint64_t next;
        grown_around(schedule, fragment, due > 0 ? due - 1 : 0, &last, &next);
        return last;
    }
    if (schedule->warm_until > 0 && due <= schedule->warm_until) {
        uint64_t offset = offset_within(schedule, fragment, schedule->warm_interval);
        return due > offset + schedule->warm_interval ? due - schedule->warm_interval : offset;
    }
    if (due < last + 2 * schedule->interval)
        last = due >= last + schedule->interval ? due - schedule->interval : 0;
    else
        last = due - schedule->interval;
    if (schedule->warm_until > last) { /* the last one of the warm start was later */
        uint64_t offset = offset_within(schedule, fragment, schedule->warm_interval);
        uint64_t span = schedule->warm_until - offset;
        if (schedule->warm_until >= offset + schedule->warm_interval)
            last = offset + span / schedule->warm_interval * schedule->warm_interval;
    }
    return last;
}
