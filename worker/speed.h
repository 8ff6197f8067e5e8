/* SPDX-License-Identifier: Apache-2.0 */
/*
 * speed: how many tokens a second a trainer makes, by the clock on the wall.
 *
 * Tokens by the seconds in which they were made, both counted of late: what lies SPEED_MEMORY_S back weighs 1/e. All
 * time counts, that between steps too: exchanging, evaluating, saving, and waiting for a processor. So a thousand
 * quick steps and one that stands still for long come out as what they are together. (The mean of steps' own speeds
 * would be that of the quick ones.) Pure: the caller brings the time.
 */
#ifndef WORKER_SPEED_H
#define WORKER_SPEED_H

#include <stdint.h>

#define SPEED_MEMORY_S 10.0

/* In the caller's storage. */
struct speed {
    double tokens, seconds; /* of late */
    double until_s;         /* up to when they are counted */
};

/* Nothing is counted yet; time runs from now on. */
struct speed speed_init(double now_s);
/* So many tokens more were made by now. Returns tokens a second. */
double speed_count(struct speed *speed, uint64_t tokens, double now_s);

#endif
