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

/* The default codec: finer ones were not seen to cost less. What sends least comes last. */
static const struct proposal proposals[] = {
    {30, UNIFORM, UNIFORM_LINES, ""},           {50, UNIFORM, UNIFORM_LINES, ""},
    {100, UNIFORM, UNIFORM_LINES, OUTER_LINES}, {150, UNIFORM, UNIFORM_LINES, OUTER_LINES},
    {200, UNIFORM, UNIFORM_LINES, OUTER_LINES}, {30, TOPK, TOPK_LINES, ""},
    {500, UNIFORM, UNIFORM_LINES, OUTER_LINES},
};

/* The table of docs/QUALITY.md, "What is known" (tests/unit/test_ctl_plan.c holds them against it). */
static const struct known_loss known[] = {
    {.islands = 2, .rounds = 100, .interval = 30, .way = UNIFORM, .least = 1.0, .most = 1.9, .differing = 4.5},
    {.islands = 8, .rounds = 50, .interval = 30, .way = UNIFORM, .least = 19.7, .most = 19.7, .differing = -1},
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

size_t ctl_ways_losses(size_t which, const struct known_loss *out[CTL_WAYS_LOSSES_MAX])
{
    _Static_assert(sizeof known / sizeof known[0] <= CTL_WAYS_LOSSES_MAX, "all of them have a place");
    const struct proposal *proposal = &proposals[which];
    size_t count = 0;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (known[i].interval == proposal->interval && known[i].way == proposal->way)
            out[count++] = &known[i];
    return count;
}
