/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ctl_ways: the ways to synchronise that dilococtl plan compares, the run specs it may recommend, and their measured
 * cost in loss.
 *
 * The losses are those of docs/QUALITY.md, "What is known": held-out, over data-parallel training with a tuned learning
 * rate on as many tokens. Most of what may be recommended was not measured so. Tables and text; no state.
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
};

/* Measured with small models and an overlap of one step: percent over data-parallel training. */
struct known_loss {
    uint64_t islands, rounds, interval;
    size_t way;
    double least, most; /* of several seeds, where all islands have the same kind of data */
    double differing;   /* where they have not; below 0: not measured */
};

/* From those that send most on. */
size_t ctl_ways_proposals(void);
const struct proposal *ctl_ways_proposal(size_t which);
/* The longest overlap that may be recommended with it. */
uint64_t ctl_ways_overlap_max(size_t which);
/* One of them, whole: it loads as it is. */
enum { CTL_WAYS_SPEC_BYTES = 400 };
void ctl_ways_spec(size_t which, uint64_t overlap, char text[CTL_WAYS_SPEC_BYTES]);

/* The measurements of a proposal, in order of islands; returns their number. */
enum { CTL_WAYS_LOSSES_MAX = 4 };
size_t ctl_ways_losses(size_t which, const struct known_loss *out[CTL_WAYS_LOSSES_MAX]);

#endif
