/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/ctl/ctl_ways.h"

#include <inttypes.h>
#include <stdio.h>

enum { RUN_ROUNDS = 100 };
/* Of a recommended overlap: so many of them fit into the interval. */
enum { OVERLAPS_AN_INTERVAL = 3 };
enum { UNIFORM = 6, TOPK };

const struct way ctl_ways[WAYS] = {
    {"data-parallel, bf16", "bf16", {.id = CODEC_BF16}, 16, true, false, false, false},
    {"DiLoCo, bf16", "bf16", {.id = CODEC_BF16}, 10.6, false, false, false, false},
    {"streaming, bf16", "bf16", {.id = CODEC_BF16}, 10.6, false, true, false, false},
    {"+ overlap, bf16", "bf16", {.id = CODEC_BF16}, 10.6, false, true, true, false},
    {"+ overlap, int8", "int8", {.id = CODEC_INT8}, 7.5, false, true, true, false},
    {"+ overlap, e3m0", "e3m0", {.id = CODEC_E3M0}, 3.6, false, true, true, false},
    [UNIFORM] =
        {"+ overlap, uniform 1.4", "uniform", {.id = CODEC_UNIFORM, .ratio = 1.4f}, 1.74, false, true, true, false},
    {"+ overlap, topk 1/64", "topk", {.id = CODEC_TOPK, .ratio = 0.015625f}, 0.17, false, true, true, true},
};

#define UNIFORM_LINES "codec = uniform\nstep = 1.4\n"
#define TOPK_LINES "codec = topk\nkeep = 0.015625\nerror_feedback = yes\n"
#define OUTER_LINES "[outer]\nlr = 0.7\n"

/* The default codec: finer ones were not seen to cost less. What sends least costs most, and comes last. Figures as
 * committed in tests/bench/results (tests/unit/test_ctl_plan.c holds them against it). */
static const struct proposal proposals[] = {
    {30, UNIFORM, UNIFORM_LINES, "", "uniform 1.4", 0.5815943},
    {50, UNIFORM, UNIFORM_LINES, "", "interval 50, uniform 1.4", 0.8277837},
    {100, UNIFORM, UNIFORM_LINES, OUTER_LINES, "interval 100, outer lr 0.7, uniform 1.4", 1.217698},
    {150, UNIFORM, UNIFORM_LINES, OUTER_LINES, "interval 150, outer lr 0.7, uniform 1.4", 0.4311939},
    {200, UNIFORM, UNIFORM_LINES, OUTER_LINES, "interval 200, outer lr 0.7, uniform 1.4", 1.075464},
    {30, TOPK, TOPK_LINES, "", "topk 1/64 feedback", 7.563788},
    {500, UNIFORM, UNIFORM_LINES, OUTER_LINES, "interval 500, outer lr 0.7, uniform 1.4", 11.06109},
};

size_t ctl_ways_proposals(void)
{
    return sizeof proposals / sizeof proposals[0];
}

const struct proposal *ctl_ways_proposal(size_t which)
{
    return &proposals[which];
}

uint64_t ctl_ways_overlap_max(size_t which)
{
    return proposals[which].interval / OVERLAPS_AN_INTERVAL;
}

void ctl_ways_spec(size_t which, uint64_t overlap, char text[CTL_WAYS_SPEC_BYTES])
{
    const struct proposal *proposal = &proposals[which];
    snprintf(text, CTL_WAYS_SPEC_BYTES,
             "[run]\nname = planned\nsteps = %" PRIu64 "\n[sync]\ninterval = %" PRIu64 "\noverlap = %" PRIu64 "\n%s%s",
             RUN_ROUNDS * proposal->interval, proposal->interval, overlap, proposal->codec_lines,
             proposal->outer_lines);
}

double ctl_ways_overlap_loss(uint64_t interval, uint64_t overlap, const char **row)
{
    /* Of rows with an interval of 30 and fp32; what they have over "streaming fp32". */
    static const struct {
        uint64_t part; /* of an interval: 1 / part */
        const char *row;
        double loss_percent;
    } rows[] = {{6, "streaming tau 5", 0.3091379}, {OVERLAPS_AN_INTERVAL, "streaming tau 10", 1.379378}};
    const size_t last = sizeof rows / sizeof rows[0] - 1;
    *row = NULL;
    if (overlap <= 1)
        return 0;
    size_t at = 0;
    while (at < last && overlap * rows[at].part > interval)
        at++;
    *row = rows[at].row;
    return rows[at].loss_percent;
}
