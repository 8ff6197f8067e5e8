/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/kern_host.h"

#include <unistd.h>

#include "common/mem.h"

enum err kern_host_new(const struct kern *kern, struct kern_dev *dev, size_t bytes, const char *what,
                       struct kern_host *out)
{
    /* Pages of its own: memory is pinned by the page, and a page can be pinned only once. */
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t whole = (bytes + page - 1) / page * page;
    *out = (struct kern_host){0};
    TRY(mem_new(whole + page, 1, what, &out->memory));
    out->bytes = (void *)(((uintptr_t)out->memory + page - 1) / page * page);
    out->pinned = kern->pin(dev, out->bytes, whole) == ERR_OK;
    return ERR_OK;
}

void kern_host_free(const struct kern *kern, struct kern_dev *dev, struct kern_host *host)
{
    if (host->pinned)
        kern->unpin(dev, host->bytes);
    mem_free(host->memory);
    *host = (struct kern_host){0};
}
