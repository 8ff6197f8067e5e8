/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kept_bytes: a copy of bytes that somebody else owned. Plain memory, all zero at first; kept_drop() it in the end.
 */
#ifndef NET_MEMBERSHIP_KEPT_BYTES_H
#define NET_MEMBERSHIP_KEPT_BYTES_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "common/err.h"
#include "common/mem.h"

struct kept_bytes {
    uint8_t *bytes;
    size_t count;
};

static inline void kept_drop(struct kept_bytes *kept)
{
    mem_free(kept->bytes);
    *kept = (struct kept_bytes){0};
}

/* Replaces the kept bytes. ERR_NOMEM: these are still there. */
ERR_MUST_CHECK static inline enum err kept_set(struct kept_bytes *kept, const uint8_t *bytes, size_t count)
{
    uint8_t *copy = NULL;
    if (count > 0) {
        TRY(mem_new(count, 1, "bytes of a record", &copy));
        memcpy(copy, bytes, count);
    }
    kept_drop(kept);
    *kept = (struct kept_bytes){.bytes = copy, .count = count};
    return ERR_OK;
}

#endif
