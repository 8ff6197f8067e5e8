/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mixture: what an island trains on, in one line: a path, or several sources with weights.
 *
 *     /srv/text-*.txt                                              one source
 *     web=/srv/web-*.bin:0.7 code=/srv/code.bin:0.3                two, mixed 7 to 3
 *     web=/srv/web-*.bin:0.7@0,0.5@10000 code=/srv/code.bin:0.3    web from 0.7 to 0.5 in the first 10000 steps of the
 * run
 *
 * A line that begins with NAME= is a mixture; a file of such a name is written ./NAME=... Words are cut as by a shell
 * (common/words.h), so quotes hold a path with blanks together. Weights are relative; between two steps they change
 * linearly, before the first and after the last they stay. Owns the text alone: it opens no file, and knows no window
 * (worker/blend.h). Daemon, command line and trainer read the line through it. Any thread.
 */
#ifndef COMMON_MIXTURE_H
#define COMMON_MIXTURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"

enum { MIXTURE_SOURCES_MAX = 32, MIXTURE_POINTS_MAX = 32, MIXTURE_NAME_MAX = 63 };

struct mixture_point {
    uint64_t step; /* of the run */
    double weight; /* from there on to the next point */
};

struct mixture_source {
    char *name;                                      /* "" where there is but one, without a weight */
    char *path;                                      /* file or glob pattern */
    struct mixture_point points[MIXTURE_POINTS_MAX]; /* steps ascend */
    size_t points_count;                             /* at least 1 */
};

struct mixture {
    struct mixture_source *sources;
    size_t count; /* at least 1 */
};

/* Relative paths are taken from `folder`; NULL, "." or "" leaves them. ERR_CONF names the source and the fault: a name
 * twice, no weight, or one that does not parse. Free with mixture_free(). */
ERR_MUST_CHECK enum err mixture_parse(const char *text, const char *folder, struct mixture *mixture);
void mixture_free(struct mixture *mixture);

/* Of the whole of it, where it may have come in parts. ERR_CONF: at some step all weights are 0. */
ERR_MUST_CHECK enum err mixture_check(const struct mixture *mixture);

/* Whether a text is a mixture, and no path. */
bool mixture_is(const char *text);

/* What mixture_parse() reads the same mixture from, with `between` (blanks, for that) between two sources. Caller frees
 * with mem_free(). */
ERR_MUST_CHECK enum err mixture_text(const struct mixture *mixture, const char *between, char **text);

/* Weight of a source at a step of the run. */
double mixture_weight(const struct mixture_source *source, uint64_t step);

#endif
