#include "outer_opt/schedule.h"

uint64_t schedule_offset(const struct schedule *schedule, uint32_t fragment)
{
    if (!schedule->spread)
        return 0;
    if (schedule->fragments > schedule->interval)
        return fragment * schedule->interval / schedule->fragments;
    return fragment * (schedule->interval / schedule->fragments);
}

uint64_t schedule_next_due(const struct schedule *schedule, uint32_t fragment, uint64_t step)
{
    uint64_t first = schedule_offset(schedule, fragment) + schedule->interval;
    if (step < first)
        return first;
    return first + ((step - first) / schedule->interval + 1) * schedule->interval;
}
