#include "net/pace.h"

enum { UNIT = 1000 };

struct pace pace_init(uint64_t rate_bits, uint64_t burst_bytes, uint64_t now_us)
{
    return (struct pace){
        .rate_bits = rate_bits, .burst_bytes = burst_bytes, .tokens = burst_bytes * UNIT, .last_us = now_us};
}

static uint64_t tokens_at(const struct pace *pace, uint64_t now_us)
{
    uint64_t passed_us = now_us > pace->last_us ? now_us - pace->last_us : 0;
    unsigned __int128 gained = (unsigned __int128)passed_us * pace->rate_bits * UNIT / 8 / 1000000;
    uint64_t full = pace->burst_bytes * UNIT;
    return gained > full - pace->tokens ? full : pace->tokens + (uint64_t)gained;
}

static uint64_t need_of(const struct pace *pace, uint64_t bytes)
{
    return (bytes < pace->burst_bytes ? bytes : pace->burst_bytes) * UNIT;
}

bool pace_take(struct pace *pace, uint64_t bytes, uint64_t now_us)
{
    if (pace->rate_bits == 0)
        return true;
    uint64_t tokens = tokens_at(pace, now_us);
    uint64_t need = need_of(pace, bytes);
    if (tokens < need)
        return false;
    pace->tokens = tokens - need;
    pace->last_us = now_us;
    return true;
}

uint64_t pace_wait_us(const struct pace *pace, uint64_t bytes, uint64_t now_us)
{
    if (pace->rate_bits == 0)
        return 0;
    uint64_t tokens = tokens_at(pace, now_us);
    uint64_t need = need_of(pace, bytes);
    if (tokens >= need)
        return 0;
    unsigned __int128 missing = need - tokens;
    return (uint64_t)(missing * 8 * 1000000 / UNIT / pace->rate_bits) + 1;
}
