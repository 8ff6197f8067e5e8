/* SPDX-License-Identifier: Apache-2.0 */
/*
 * squeeze: whether zstd behind the codec shortens a transfer on this link. Both ways are measured on what is really
 * encoded; the shorter one is used, and the other tried again now and then. Pure: the caller brings the measurements.
 */
#ifndef DAEMON_ROUNDS_SQUEEZE_H
#define DAEMON_ROUNDS_SQUEEZE_H

#include <stdbool.h>
#include <stdint.h>

struct squeeze {
    struct squeeze_side {
        double seconds, bytes; /* per value, smoothed */
        uint64_t samples;
    } side[2]; /* without, with */
    uint64_t asked;
};

/* The way found best on a link of `bits_per_s` (0: not known). */
bool squeeze_best(const struct squeeze *squeeze, double bits_per_s);
/* Whether the next range is to be compressed; squeeze_note() follows. Now and then the way that is not the best. */
bool squeeze_next(struct squeeze *squeeze, double bits_per_s);

/* What encoding `values` values took, and how large they became. */
void squeeze_note(struct squeeze *squeeze, bool with, uint64_t values, double seconds, uint64_t bytes);

#endif
