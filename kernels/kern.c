/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/kern.h"

#include <string.h>

#include "common/isa.h"
#include "common/log.h"
#include "kernels/kern_cuda.h"

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
    if (strcmp(name, "cuda") == 0)
        return kern_cuda_find(out);
    if (strcmp(name, "auto") == 0) {
        /* The driver first: most machines without a GPU have none, and the library is then not even looked for. */
        if (kern_cuda_present() == ERR_OK && kern_cuda_find(out) == ERR_OK)
            return ERR_OK;
        log_info("device auto: cpu; %s", err_text());
    } else if (strcmp(name, "cpu") != 0) {
        return err_set(ERR_NOTFOUND, "no device \"%s\"; there are: cpu, cuda, auto", name);
    }
    *out = tables[count - 1];
    return ERR_OK;
}
