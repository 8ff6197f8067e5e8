#include "kernels/kern.h"

#include <string.h>

#include "common/isa.h"

#if defined(__x86_64__)
static const struct kern *const compiled[ISA_LEVELS_MAX] = {&kern_cpu_base, &kern_cpu_avx2, &kern_cpu_avx512};
#else
static const struct kern *const compiled[ISA_LEVELS_MAX] = {&kern_cpu_base};
#endif

size_t kern_all(const struct kern **tables, size_t tables_max)
{
    size_t count = isa_levels() < tables_max ? isa_levels() : tables_max;
    memcpy(tables, compiled, count * sizeof *tables);
    return count;
}

enum err kern_find(const char *name, const struct kern **out)
{
    const struct kern *tables[ISA_LEVELS_MAX];
    size_t count = kern_all(tables, ISA_LEVELS_MAX);
    *out = NULL;
    if (strcmp(name, "cpu") != 0)
        return err_set(ERR_NOTFOUND, "no device \"%s\"; this program was built with: cpu", name);
    *out = tables[count - 1];
    return ERR_OK;
}
