/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/outofmem.h"

#include "tests/lib/testlib.h"

#include <malloc.h>

#include "common/mem.h"

enum { ALLOCATIONS_MAX = 100000 };

size_t outofmem_walk(outofmem_attempt *attempt, void *user)
{
    for (long n = 0; n < ALLOCATIONS_MAX; n++) {
        mem_fail_after(n);
        enum err err = attempt(user);
        mem_fail_after(-1);
        if (err == ERR_OK)
            return (size_t)n;
        if (err != ERR_NOMEM)
            fail_msg("allocation %ld failed, and this was said: %s (%s)", n, err_text(), err_name(err));
    }
    fail_msg("it still fails after %d allocations", ALLOCATIONS_MAX);
    return 0;
}

/* Of the sanitizers, whose allocator mallinfo2() does not see. */
extern size_t __sanitizer_get_current_allocated_bytes(void) __attribute__((weak));

size_t outofmem_allocated(void)
{
#ifdef __SANITIZE_THREAD__
    return 0;
#endif
    if (__sanitizer_get_current_allocated_bytes != NULL)
        return __sanitizer_get_current_allocated_bytes() + mem_pages_bytes();
    struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd + mem_pages_bytes();
}
