/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vec: which of the tables of vec_ops.h this processor runs. Pure but for the choice, which is made once; any thread.
 */
#ifndef OUTER_OPT_VEC_H
#define OUTER_OPT_VEC_H

#include <stddef.h>

#include "outer_opt/vec_ops.h"

/* The widest table this processor runs; chosen once. */
const struct vec_ops *vec_best(void);

/* Every table this processor runs, narrowest first; for tests. */
size_t vec_all(const struct vec_ops **tables, size_t tables_max);

#endif
