/* SPDX-License-Identifier: Apache-2.0 */
#include "outer_opt/vec.h"

#include <stdatomic.h>
#include <string.h>

#include "common/isa.h"

#if defined(__x86_64__)
static const struct vec_ops *const compiled[ISA_LEVELS_MAX] = {&vec_ops_base, &vec_ops_avx2, &vec_ops_avx512};
#else
static const struct vec_ops *const compiled[ISA_LEVELS_MAX] = {&vec_ops_base};
#endif

size_t vec_all(const struct vec_ops **tables, size_t tables_max)
{
    size_t count = isa_levels() < tables_max ? isa_levels() : tables_max;
    memcpy(tables, compiled, count * sizeof *tables);
    return count;
}

const struct vec_ops *vec_best(void)
{
    static const struct vec_ops *_Atomic chosen;
    const struct vec_ops *best = chosen;
    if (best == NULL) {
        const struct vec_ops *tables[ISA_LEVELS_MAX];
        best = tables[vec_all(tables, ISA_LEVELS_MAX) - 1];
        chosen = best;
    }
    return best;
}
