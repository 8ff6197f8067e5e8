/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ctl_ways: the ways to synchronise that dilococtl plan compares, and the run specs it may recommend, each with what it
 * was measured to cost in loss.
 *
 * The losses are those of docs/QUALITY.md: held-out, in percent over data-parallel training on as many tokens, of a
 * model of a few hundred thousand parameters on two islands, to within 3 %. Tables and text; no state.
 */
#ifndef DAEMON_CTL_CTL_WAYS_H
#define DAEMON_CTL_CTL_WAYS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "outer_opt/codec.h"

struct way {
    const char *name, *codec_name;
    struct codec_choice codec;
    double bits; /* per parameter, behind zstd on Gaussian data (tests/num/test_codec.c); data-parallel: before it */
    bool every_step, stream, overlap, error_feedback;
};
enum { WAYS = 8 };
extern const struct way ctl_ways[WAYS];

/* A run spec that may be recommended. */
struct proposal {
    uint64_t interval;
    size_t way;
    const char *codec_lines, *outer_lines; /* of [sync] and [outer] */
    const char *row;                       /* of docs/QUALITY.md, measured with an overlap of one step */
    double loss_percent;                   /* there */
};

/* From the mildest on. */
size_t ctl_ways_proposals(void);
const struct proposal *ctl_ways_proposal(size_t which);
/* The longest overlap that may be recommended with it. */
uint64_t ctl_ways_overlap_max(size_t which);
/* One of them, whole: it loads as it is. */
enum { CTL_WAYS_SPEC_BYTES = 400 };
void ctl_ways_spec(size_t which, uint64_t overlap, char text[CTL_WAYS_SPEC_BYTES]);

/* What an overlap of this part of the interval was measured to cost besides; `*row` is where. 0, NULL: one step, with
 * which all was measured. */
double ctl_ways_overlap_loss(uint64_t interval, uint64_t overlap, const char **row);

#endif
