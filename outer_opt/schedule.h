/*
 * schedule: which inner step a fragment is due at (Streaming DiLoCo, 2501.18512, Algorithm 2).
 *
 * Fragment p of P is due after steps t with (t - t_p) mod H == 0 and t >= t_p + H; t_p = p * floor(H / P) when the
 * fragments take turns, 0 when all go at once. With more fragments than steps (P > H) t_p = floor(p * H / P).
 * Steps are numbered from 1. Pure.
 */
#ifndef OUTER_OPT_SCHEDULE_H
#define OUTER_OPT_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>

struct schedule {
    uint64_t interval;  /* H, steps, >= 1 */
    uint32_t fragments; /* P, >= 1 */
    bool spread;        /* false: all offsets are 0 */
};

uint64_t schedule_offset(const struct schedule *schedule, uint32_t fragment);

/* The first due step of a fragment that is later than `step`. */
uint64_t schedule_next_due(const struct schedule *schedule, uint32_t fragment, uint64_t step);

#endif
