/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/speed.h"

#include <math.h>

/* A clock that has not moved between two calls is no reason to divide by 0. */
static const double seconds_min = 1e-9;

struct speed speed_init(double now_s)
{
    return (struct speed){.until_s = now_s};
}

double speed_count(struct speed *speed, uint64_t tokens, double now_s)
{
    double took_s = now_s - speed->until_s;
    double keep = exp(-took_s / SPEED_MEMORY_S);
    /* Made evenly over the time that it took, of which the first is half forgotten already where that was long: a
     * minute's standstill weighs no more than what memory holds. */
    double part = took_s > 0 ? (1 - keep) * SPEED_MEMORY_S / took_s : 1;
    speed->tokens = keep * speed->tokens + part * (double)tokens;
    speed->seconds = keep * speed->seconds + part * took_s;
    speed->until_s = now_s;
    return speed->tokens / fmax(speed->seconds, seconds_min);
}
