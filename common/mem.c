/* SPDX-License-Identifier: Apache-2.0 */
#include "common/mem.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* LAZY: smaller arrays are cleared at once, in less than a tenth of a millisecond. HUGE: what a page of the larger kind
 * holds; with 512 times fewer of them an array is given back, or cleared, in a twentieth of the time (340 MiB: 1 ms,
 * and not 21). */
enum { LAZY_BYTES = 1 << 20, HUGE_BYTES = 2 << 20 };

static _Atomic long fail_after = -1;
static _Atomic size_t lazy_bytes;

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

/* An address sanitizer watches the bounds of what the allocator gives, and looks for what nobody freed. */
#if defined(__SANITIZE_ADDRESS__)
enum { WATCHED = 1 };
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
enum { WATCHED = 1 };
#else
enum { WATCHED = 0 };
#endif
#else
enum { WATCHED = 0 };
#endif

static int is_lazy(size_t count, size_t size)
{
    return !WATCHED && size != 0 && count <= SIZE_MAX / size && count * size >= LAZY_BYTES;
}

enum err mem_pages_new(size_t count, size_t size, const char *what, void *out)
{
    void *map = NULL;
    if (!is_lazy(count, size))
        return mem_new(count, size, what, out);
    size_t bytes = count * size;
    memcpy(out, &map, sizeof map);
    if (!must_fail())
        map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == NULL || map == MAP_FAILED)
        return err_set(ERR_NOMEM, "out of memory: %zu bytes for %s", bytes, what);
    if (bytes >= HUGE_BYTES) /* only a hint: a kernel without them, or told not to, takes small ones */
        (void)madvise(map, bytes, MADV_HUGEPAGE);
    lazy_bytes += bytes;
    memcpy(out, &map, sizeof map);
    return ERR_OK;
}

void mem_pages_free(void *pointer, size_t count, size_t size)
{
    if (pointer == NULL || !is_lazy(count, size)) {
        mem_free(pointer);
        return;
    }
    munmap(pointer, count * size);
    lazy_bytes -= count * size;
}

void mem_pages_clear(void *first, size_t bytes)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), at = (uintptr_t)first;
    uintptr_t begin = (at + page - 1) / page * page, end = (at + bytes) / page * page;
    char *base = first;
    /* Pages that are given back are found cleared when they are touched again; locked ones are not. */
    if (!is_lazy(bytes, 1) || madvise(base + (begin - at), end - begin, MADV_DONTNEED) != 0) {
        memset(base, 0, bytes);
        return;
    }
    memset(base, 0, begin - at);
    memset(base + (end - at), 0, at + bytes - end);
}

size_t mem_pages_bytes(void)
{
    return lazy_bytes;
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
