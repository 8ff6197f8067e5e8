/* SPDX-License-Identifier: Apache-2.0 */
/*
 * grid: whether the ranks of a trainer can share out a run's model and batch. They stand in rows of `tensor_parallel`,
 * which share each layer; the rows share out each batch.
 *
 * The trainer asks before it begins, and the daemon before it starts one that would only be refused. Pure; any thread.
 */
#ifndef COMMON_GRID_H
#define COMMON_GRID_H

#include <stdint.h>

#include "common/err.h"
#include "common/runspec.h"

struct grid {
    int64_t ranks, tensor_parallel;
    /* What says so where the two come from, for an error: "--ranks or --devices", "--tensor-parallel". */
    const char *ranks_name, *tensor_parallel_name;
};

/* ERR_CONF: what cannot be shared out, and among how many. */
ERR_MUST_CHECK enum err grid_check(const struct grid *grid, const struct runspec *spec);

#endif
