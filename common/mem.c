/* SPDX-License-Identifier: Apache-2.0 */
#include "common/mem.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static _Atomic long fail_after = -1;

static int must_fail(void)
{
    long left = fail_after;
    do { /* job threads count down together */
        if (left < 0)
            return 0;
    } while (!atomic_compare_exchange_weak(&fail_after, &left, left - 1));
    return left == 0;
}

void mem_fail_after(long n)
{
    fail_after = n;
}

enum err mem_new_unset(size_t count, size_t size, const char *what, void *out)
{
    void *pointer = NULL;
    memcpy(out, &pointer, sizeof pointer);
    if (size != 0 && count > (SIZE_MAX - MEM_ALIGN) / size)
        return err_set(ERR_NOMEM, "%s: %zu x %zu bytes is more than an address space holds", what, count, size);
    size_t bytes = (count * size + MEM_ALIGN - 1) / MEM_ALIGN * MEM_ALIGN;
    if (bytes == 0)
        bytes = MEM_ALIGN;
    if (!must_fail())
        pointer = aligned_alloc(MEM_ALIGN, bytes);
    if (pointer == NULL)
        return err_set(ERR_NOMEM, "out of memory: %zu bytes for %s", bytes, what);
    memcpy(out, &pointer, sizeof pointer);
    return ERR_OK;
}

enum err mem_new(size_t count, size_t size, const char *what, void *out)
{
    void *pointer;
    TRY(mem_new_unset(count, size, what, out));
    memcpy(&pointer, out, sizeof pointer);
    memset(pointer, 0, count * size);
    return ERR_OK;
}

enum err mem_grow(void *array, size_t count_old, size_t count_new, size_t size, const char *what)
{
    void *old = NULL;
    void *new = NULL;
    memcpy(&old, array, sizeof old);
    TRY(mem_new(count_new, size, what, &new));
    if (old != NULL)
        memcpy(new, old, (count_old < count_new ? count_old : count_new) * size);
    mem_free(old);
    memcpy(array, &new, sizeof new);
    return ERR_OK;
}

enum err mem_strdup(const char *text, char **out)
{
    size_t bytes = strlen(text) + 1;
    TRY(mem_new(bytes, 1, "a string", out));
    memcpy(*out, text, bytes);
    return ERR_OK;
}

enum err mem_printf(char **out, const char *format, ...)
{
    *out = NULL;
    va_list args;
    va_start(args, format);
    int length = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (length < 0)
        return err_set(ERR_ARG, "cannot format a string");
    TRY(mem_new((size_t)length + 1, 1, "a string", out));
    va_start(args, format);
    vsnprintf(*out, (size_t)length + 1, format, args);
    va_end(args);
    return ERR_OK;
}

size_t mem_available(void)
{
    char line[128];
    unsigned long long kib = 0;
    FILE *info = fopen("/proc/meminfo", "re");
    while (info != NULL && fgets(line, sizeof line, info) != NULL)
        if (sscanf(line, "MemAvailable: %llu kB", &kib) == 1)
            break;
    if (info != NULL)
        fclose(info);
    return kib > 0 ? (size_t)kib << 10 : (size_t)sysconf(_SC_AVPHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
}

void mem_free(void *pointer)
{
    free(pointer);
}
