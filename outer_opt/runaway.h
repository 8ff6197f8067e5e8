/* SPDX-License-Identifier: Apache-2.0 */
/*
 * runaway: whether an anchor grows without bound, told from the norms of its versions.
 *
 * A run that diverges multiplies its anchor within rounds; one that trains does not double it in one, nor quadruple it
 * in sixteen. Only at a run's beginning does it, when parameters leave their small initial values. Pure.
 */
#ifndef OUTER_OPT_RUNAWAY_H
#define OUTER_OPT_RUNAWAY_H

#include <stdint.h>

enum { RUNAWAY_ROUNDS = 16 };
static const double runaway_most = 1e300; /* stands for NaN */

/* Of one fragment; zeros at first. */
struct runaway {
    uint64_t version; /* noted last */
    uint32_t known;   /* versions in a row that were noted, up to it */
    double norm[RUNAWAY_ROUNDS];
    double calm; /* norm before it ran away; 0: it does not */
};

/* Takes note of a version's norm, which may be no number at all. Returns how many times as large the anchor is as
 * before it ran away, at most runaway_most; 0 if it does not, or has come back to less than twice that. A version that
 * does not follow the one before is another state, and judged anew. */
double runaway_note(struct runaway *runaway, uint64_t version, double norm);

#endif
