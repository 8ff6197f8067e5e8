/*
 * pace: a token bucket that holds bulk traffic to a rate. Pure: the caller brings the time. Integers only.
 */
#ifndef NET_PACE_H
#define NET_PACE_H

#include <stdbool.h>
#include <stdint.h>

struct pace {
    uint64_t rate_bits;   /* per second; 0: no limit */
    uint64_t burst_bytes; /* what may go at once after a rest */
    uint64_t tokens;      /* bytes, in units of 1/1000 */
    uint64_t last_us;
};

struct pace pace_init(uint64_t rate_bits, uint64_t burst_bytes, uint64_t now_us);

/* Takes `bytes` out of the bucket if they may go now. Sizes beyond the burst go when the bucket is full. */
bool pace_take(struct pace *pace, uint64_t bytes, uint64_t now_us);

/* Microseconds until `bytes` may go; 0: now. */
uint64_t pace_wait_us(const struct pace *pace, uint64_t bytes, uint64_t now_us);

#endif
