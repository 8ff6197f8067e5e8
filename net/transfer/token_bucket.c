/* SPDX-License-Identifier: Apache-2.0 */
#include "net/transfer/token_bucket.h"

enum { UNIT = 1000, BITS = 8, US = 1000000 };

struct token_bucket token_bucket_init(uint64_t rate_bits, uint64_t burst_bytes, uint64_t now_us)
{
    return (struct token_bucket){
        .rate_bits = rate_bits, .burst_bytes = burst_bytes, .tokens = (int64_t)burst_bytes * UNIT, .last_us = now_us};
}

static int64_t tokens_at(const struct token_bucket *pace, uint64_t now_us)
{
    uint64_t passed_us = now_us > pace->last_us ? now_us - pace->last_us : 0;
    __int128 tokens = pace->tokens + (__int128)passed_us * pace->rate_bits * UNIT / BITS / US;
    int64_t full = (int64_t)pace->burst_bytes * UNIT;
    return tokens > full ? full : (int64_t)tokens;
}

void token_bucket_spend(struct token_bucket *pace, uint64_t bytes, uint64_t now_us)
{
    if (pace->rate_bits == 0 || bytes == 0)
        return;
    pace->tokens = tokens_at(pace, now_us) - (int64_t)bytes * UNIT;
    pace->last_us = now_us > pace->last_us ? now_us : pace->last_us;
}

uint64_t token_bucket_wait_us(const struct token_bucket *pace, uint64_t bytes, uint64_t now_us)
{
    if (pace->rate_bits == 0)
        return 0;
    int64_t need = (int64_t)(bytes < pace->burst_bytes ? bytes : pace->burst_bytes) * UNIT;
    int64_t tokens = tokens_at(pace, now_us);
    if (tokens >= need)
        return 0;
    __int128 missing = (__int128)need - tokens;
    return (uint64_t)(missing * BITS * US / UNIT / (__int128)pace->rate_bits) + 1;
}

/* ---- the meter ---- */

/* Shorter or smaller than this says more about delay than about rate. */
enum { SAMPLE_US_MIN = 20000, SAMPLE_US_MAX = 1000000, SAMPLE_BYTES_MIN = 65536 };

static void begin(struct rate_estimator *meter, uint64_t arrived, uint64_t now_us)
{
    meter->busy = true;
    meter->since_us = now_us;
    meter->bytes_then = arrived;
}

void rate_estimator_update(struct rate_estimator *meter, uint64_t arrived, uint64_t outstanding, uint64_t now_us)
{
    if (!meter->busy) {
        if (outstanding > 0)
            begin(meter, arrived, now_us);
        return;
    }
    uint64_t took_us = now_us - meter->since_us;
    uint64_t bytes = arrived - meter->bytes_then;
    if (outstanding > 0 && took_us < SAMPLE_US_MAX)
        return;
    if (took_us >= SAMPLE_US_MIN && bytes >= SAMPLE_BYTES_MIN) {
        uint64_t rate = (uint64_t)((unsigned __int128)bytes * 8000000 / took_us);
        meter->bits_per_s = meter->bits_per_s > 0 ? (7 * meter->bits_per_s + 3 * rate) / 10 : rate;
    }
    meter->busy = false;
    if (outstanding > 0)
        begin(meter, arrived, now_us);
}
