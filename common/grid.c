/* SPDX-License-Identifier: Apache-2.0 */
#include "common/grid.h"

#include <inttypes.h>
#include <stddef.h>

static enum err check_model(const struct grid *grid, const struct runspec *spec)
{
    const struct {
        const char *key;
        int64_t value;
    } parts[] = {{"heads", spec->heads}, {"kv_heads", spec->kv_heads}, {"ff", spec->ff}};
    int64_t tp = grid->tensor_parallel;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        if (parts[i].value % tp != 0)
            return err_set(ERR_CONF,
                           "[model] %s %" PRId64 " cannot be shared out evenly among %" PRId64
                           " tensor-parallel ranks; take a %s that divides it",
                           parts[i].key, parts[i].value, tp, grid->tensor_parallel_name);
    if (spec->vocab >= tp)
        return ERR_OK;
    return err_set(ERR_CONF,
                   "[model] vocab %" PRId64 " is less than %" PRId64 " tensor-parallel ranks; take a smaller %s",
                   spec->vocab, tp, grid->tensor_parallel_name);
}

enum err grid_check(const struct grid *grid, const struct runspec *spec)
{
    int64_t count = grid->ranks, tp = grid->tensor_parallel;
    if (tp < 1 || count < 1 || count % tp != 0)
        return err_set(ERR_CONF, "%s %" PRId64 " does not divide %" PRId64 " rank%s; %s say how many there are",
                       grid->tensor_parallel_name, tp, count, count != 1 ? "s" : "", grid->ranks_name);
    TRY(check_model(grid, spec));
    if (spec->batch % (count / tp) == 0)
        return ERR_OK;
    return err_set(ERR_CONF,
                   "[train] batch %" PRId64 " cannot be shared out evenly among %" PRId64 " ranks%s; make it a "
                   "multiple of that, or take another number of ranks",
                   spec->batch, count / tp, tp > 1 ? " of each column" : "");
}
