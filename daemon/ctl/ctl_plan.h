/*
 * ctl_plan: dilococtl plan: what a link is good for. A table of how much of its time a run would train under each way
 * of synchronising, what bandwidth each needs, what it sends, and a run spec to begin with.
 */
#ifndef DAEMON_CTL_CTL_PLAN_H
#define DAEMON_CTL_CTL_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"

struct ctl_plan {
    double params, step_s;
    uint64_t layers, islands, interval, overlap;
    const char *bandwidth; /* as 100Mbit */
    double rtt_ms, loss;
    bool half_duplex, json;
    const char *plot; /* file for a picture; NULL: none */
};

/* The run specs that may be recommended, from the mildest on: how many there are, and the longest overlap of each. */
size_t ctl_plan_specs(void);
uint64_t ctl_plan_overlap_max(size_t which);
/* One of them, whole: it loads as it is. */
void ctl_plan_spec(size_t which, uint64_t overlap, char *text, size_t text_bytes);

/* Prints to stdout. ERR_ARG: a value that makes no sense. */
ERR_MUST_CHECK enum err ctl_plan(const struct ctl_plan *plan);

#endif
