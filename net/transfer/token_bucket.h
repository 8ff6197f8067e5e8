/* SPDX-License-Identifier: Apache-2.0 */
/*
 * token_bucket: a token bucket that holds our uplink's traffic to a rate, and an estimator of the rate that gets
 * through. Pure: the caller brings the time and the counters. Integers only.
 *
 * Urgent bytes (heartbeats, answers) are spent whether or not there is room for them; what can wait, waits until that
 * debt is paid. So the sum keeps the rate.
 */
#ifndef NET_TRANSFER_TOKEN_BUCKET_H
#define NET_TRANSFER_TOKEN_BUCKET_H

#include <stdbool.h>
#include <stdint.h>

struct token_bucket {
    uint64_t rate_bits;   /* per second; 0: no limit */
    uint64_t burst_bytes; /* what may go at once after a rest */
    int64_t tokens;       /* bytes, in units of 1/1000; below 0: debt */
    uint64_t last_us;
};

struct token_bucket token_bucket_init(uint64_t rate_bits, uint64_t burst_bytes, uint64_t now_us);

/* `bytes` went. */
void token_bucket_spend(struct token_bucket *bucket, uint64_t bytes, uint64_t now_us);

/* Microseconds until `bytes` may go; 0: now. More than the burst goes when the bucket is full. */
uint64_t token_bucket_wait_us(const struct token_bucket *bucket, uint64_t bytes, uint64_t now_us);

/* How fast a link is, seen from what gets through while there is something to send. */
struct rate_estimator {
    uint64_t bits_per_s; /* smoothed; 0: not known yet */
    bool busy;
    uint64_t since_us, bytes_then;
};

/* `arrived`: bytes acknowledged by all peers since the start; `outstanding`: bytes on their way or waiting. */
void rate_estimator_update(struct rate_estimator *estimator, uint64_t arrived, uint64_t outstanding, uint64_t now_us);

#endif
