/* SPDX-License-Identifier: Apache-2.0 */
/*
 * schedule: which inner step a fragment is due at.
 *
 * Fixed (Streaming DiLoCo, 2501.18512, Algorithm 2): fragment p of P is due after steps t with (t - t_p) mod H == 0 and
 * t >= t_p + H; t_p = p * floor(H / P) when the fragments take turns, 0 when all go at once. With more fragments than
 * steps (P > H) t_p = floor(p * H / P).
 *
 * Warm start: up to step warm_until the same rule with H = warm_interval; behind it the fragments go on at the steps of
 * the fixed rule, t_p itself among them.
 *
 * Growing (Quadratic Synchronization Rule, 2310.14423): from one due step d to the next it is
 * max(H, floor((growth / lr(d))^2)) steps, H while the learning rate warms up, and the last interval ends with the run.
 * It begins at t_p.
 *
 * Steps are numbered from 1. Pure; no allocation.
 */
#ifndef OUTER_OPT_SCHEDULE_H
#define OUTER_OPT_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>

struct schedule {
    uint64_t interval;  /* H, steps, >= 1 */
    uint32_t fragments; /* P, >= 1 */
    bool spread;        /* false: all offsets are 0 */

    uint64_t warm_interval, warm_until; /* steps; 0, 0: no warm start */

    double growth;                                 /* 0: the interval is fixed */
    uint64_t steps;                                /* of the run; for growth alone */
    uint64_t lr_warmup;                            /* steps */
    double (*lr)(const void *user, uint64_t step); /* inner learning rate behind `step` steps; for growth alone */
    const void *user;
};

uint64_t schedule_offset(const struct schedule *schedule, uint32_t fragment);

/* The first due step of a fragment that is later than `step`. */
uint64_t schedule_next_due(const struct schedule *schedule, uint32_t fragment, uint64_t step);

#endif
