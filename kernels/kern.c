#include "kernels/kern.h"

#include <string.h>

extern const struct kern kern_cpu_base;
#if defined(__x86_64__)
extern const struct kern kern_cpu_avx2;
extern const struct kern kern_cpu_avx512;
#endif

size_t kern_all(const struct kern **tables, size_t tables_max)
{
    const struct kern *found[3];
    size_t count = 0;
    found[count++] = &kern_cpu_base;
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        found[count++] = &kern_cpu_avx2;
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512dq"))
        found[count++] = &kern_cpu_avx512;
#endif
    if (count > tables_max)
        count = tables_max;
    for (size_t i = 0; i < count; i++)
        tables[i] = found[i];
    return count;
}

enum err kern_find(const char *name, const struct kern **out)
{
    const struct kern *tables[3];
    size_t count = kern_all(tables, 3);
    *out = NULL;
    if (strcmp(name, "cpu") != 0)
        return err_set(ERR_NOTFOUND, "no device \"%s\"; this program was built with: cpu", name);
    *out = tables[count - 1];
    return ERR_OK;
}
