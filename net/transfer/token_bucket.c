/* SPDX-License-Identifier: Apache-2.0 */
#include "net/transfer/token_bucket.h"

enum { UNIT = 1000, BITS = 8, US = 1000000 };

struct token_bucket token_bucket_init(uint64_t rate_bits, uint64_t burst_bytes, uint64_t now_us)
{
    return (struct token_bucket){
        .rate_bits = rate_bits, .burst_bytes = burst_bytes, .tokens = (int64_t)burst_bytes * UNIT, .last_us = now_us};
}

static int64_t tokens_at(const struct token_bucket *bucket, uint64_t now_us)
{
    uint64_t passed_us = now_us > bucket->last_us ? now_us - bucket->last_us : 0;
    __int128 tokens = bucket->tokens + (__int128)passed_us * bucket->rate_bits * UNIT / BITS / US;
    int64_t full = (int64_t)bucket->burst_bytes * UNIT;
    return tokens > full ? full : (int64_t)tokens;
}

void token_bucket_spend(struct token_bucket *bucket, uint64_t bytes, uint64_t now_us)
{
    if (bucket->rate_bits == 0 || bytes == 0)
        return;
    bucket->tokens = tokens_at(bucket, now_us) - (int64_t)bytes * UNIT;
    bucket->last_us = now_us > bucket->last_us ? now_us : bucket->last_us;
}

uint64_t token_bucket_wait_us(const struct token_bucket *bucket, uint64_t bytes, uint64_t now_us)
{
    if (bucket->rate_bits == 0)
        return 0;
    int64_t need = (int64_t)(bytes < bucket->burst_bytes ? bytes : bucket->burst_bytes) * UNIT;
    int64_t tokens = tokens_at(bucket, now_us);
    if (tokens >= need)
        return 0;
    __int128 missing = (__int128)need - tokens;
    return (uint64_t)(missing * BITS * US / UNIT / (__int128)bucket->rate_bits) + 1;
}

/* ---- the estimator ---- */

/* Shorter or smaller than this says more about delay than about rate. */
enum { SAMPLE_US_MIN = 20000, SAMPLE_US_MAX = 1000000, SAMPLE_BYTES_MIN = 65536 };

static void begin(struct rate_estimator *estimator, uint64_t arrived, uint64_t now_us)
{
    estimator->busy = true;
    estimator->since_us = now_us;
    estimator->bytes_then = arrived;
}

void rate_estimator_update(struct rate_estimator *estimator, uint64_t arrived, uint64_t outstanding, uint64_t now_us)
{
    if (!estimator->busy) {
        if (outstanding > 0)
            begin(estimator, arrived, now_us);
        return;
    }
    uint64_t took_us = now_us - estimator->since_us;
    uint64_t bytes = arrived - estimator->bytes_then;
    if (outstanding > 0 && took_us < SAMPLE_US_MAX)
        return;
    if (took_us >= SAMPLE_US_MIN && bytes >= SAMPLE_BYTES_MIN) {
        uint64_t rate = (uint64_t)((unsigned __int128)bytes * 8000000 / took_us);
        estimator->bits_per_s = estimator->bits_per_s > 0 ? (7 * estimator->bits_per_s + 3 * rate) / 10 : rate;
    }
    estimator->busy = false;
    if (outstanding > 0)
        begin(estimator, arrived, now_us);
}
