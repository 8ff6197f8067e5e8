/* SPDX-License-Identifier: Apache-2.0 */
/*
 * report: what an island last said of its trainer, and how far the run is by what all of them say. Private to peers/.
 *
 * A step that no outstanding round can have brought an island to is not believed. Only the loop's thread.
 */
#ifndef DAEMON_PEERS_REPORT_H
#define DAEMON_PEERS_REPORT_H

#include <stdbool.h>
#include <stdint.h>

#include "net/transport/wire.h"

/* All zero at first. */
struct report {
    uint64_t step, tokens;
    uint64_t own_step; /* our trainer's when it said so */
    double loss;       /* as in struct trainer_info */
    uint32_t tokens_per_s, trainer;
    uint64_t too_far_ms; /* since when it says that it is further than it can be; 0: it does not */
    bool too_far_said;
};

/* As the heartbeat says. */
void report_take(struct report *report, const struct wire_heartbeat *beat, uint64_t own_step);
/* It restarted: what it said is void. */
void report_restart(struct report *report);

/* `furthest`, or its step if that is further and no more than `most`. What is beyond is logged once, under its `name`,
 * when it has lasted: who was away for long does not know the rounds yet that brought the others so far. `up`: it can
 * be heard. */
uint64_t report_furthest(struct report *report, const char *name, bool up, uint64_t furthest, uint64_t most,
                         uint64_t now_ms);

#endif
