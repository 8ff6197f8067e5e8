#include "outer_opt/vec.h"

#include <stdatomic.h>

extern const struct vec_ops vec_ops_base;
#if defined(__x86_64__)
extern const struct vec_ops vec_ops_avx2;
extern const struct vec_ops vec_ops_avx512;
#endif

size_t vec_all(const struct vec_ops **tables, size_t tables_max)
{
    const struct vec_ops *found[3];
    size_t count = 0;
    found[count++] = &vec_ops_base;
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2"))
        found[count++] = &vec_ops_avx2;
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512dq"))
        found[count++] = &vec_ops_avx512;
#endif
    if (count > tables_max)
        count = tables_max;
    for (size_t i = 0; i < count; i++)
        tables[i] = found[i];
    return count;
}

const struct vec_ops *vec_best(void)
{
    static const struct vec_ops *_Atomic chosen;
    const struct vec_ops *best = chosen;
    if (best == NULL) {
        const struct vec_ops *tables[3];
        best = tables[vec_all(tables, 3) - 1];
        chosen = best;
    }
    return best;
}
