/* SPDX-License-Identifier: Apache-2.0 */
/*
 * quota: how often something may happen: so many at once, and then one in so many milliseconds (GCRA, ITU-T I.371).
 * Plain memory, all zero at first; the clock is the caller's.
 */
#ifndef COMMON_QUOTA_H
#define COMMON_QUOTA_H

#include <stdbool.h>
#include <stdint.h>

struct quota {
    uint64_t used_up_ms; /* until then what may happen has happened */
};

struct quota_rule {
    uint64_t every_ms;
    uint32_t at_once;
};

/* Whether it may happen now; then it has. */
static inline bool quota_take(struct quota *quota, struct quota_rule rule, uint64_t now_ms)
{
    uint64_t from_ms = quota->used_up_ms > now_ms ? quota->used_up_ms : now_ms;
    if (from_ms + rule.every_ms > now_ms + rule.at_once * rule.every_ms)
        return false;
    quota->used_up_ms = from_ms + rule.every_ms;
    return true;
}

#endif
