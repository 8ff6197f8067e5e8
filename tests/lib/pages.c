/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/pages.h"

#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/mem.h"
#include "tests/lib/testlib.h"

size_t pages_resident(const void *array, size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), before = (uintptr_t)array % page, count = 0;
    size_t pages = (before + bytes + page - 1) / page;
    unsigned char *there = malloc(pages);
    assert_non_null(there);
    assert_int_equal(mincore((char *)(uintptr_t)array - before, before + bytes, there), 0);
    for (size_t i = 0; i < pages; i++)
        count += there[i] & 1;
    free(there);
    return count;
}

bool pages_cleared_at_once(void)
{
    enum { BYTES = 8 << 20 };
    char *bytes;
    size_t before = mem_pages_bytes();
    assert_ok(mem_pages_new(BYTES, 1, "an array", &bytes));
    bool cleared = mem_pages_bytes() == before;
    mem_pages_free(bytes, BYTES, 1);
    return cleared;
}
