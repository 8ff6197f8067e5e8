/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/lag.h"

static const uint64_t ms_ns = 1000000;

void lag_turn(struct lag *lag, uint64_t now_ns)
{
    lag->turn_ns = lag->step_ns = now_ns;
    lag->slowest = NULL;
    lag->slowest_ns = 0;
}

void lag_step(struct lag *lag, const char *name, uint64_t now_ns)
{
    uint64_t took_ns = now_ns - lag->step_ns;
    lag->step_ns = now_ns;
    if (lag->slowest != NULL && took_ns <= lag->slowest_ns)
        return;
    lag->slowest = name;
    lag->slowest_ns = took_ns;
}

bool lag_is_up(const struct lag *lag, uint64_t now_ns)
{
    return now_ns - lag->turn_ns >= LAG_SHARE_MS * ms_ns;
}

static uint64_t span_of(uint64_t now_ms)
{
    return now_ms / LAG_SPAN_MS + 1;
}

uint64_t lag_end(struct lag *lag, uint64_t now_ns)
{
    uint64_t took_ms = (now_ns - lag->turn_ns) / ms_ns, number = span_of(now_ns / ms_ns);
    struct lag_span *span = &lag->spans[number % LAG_SPANS];
    if (span->number != number)
        *span = (struct lag_span){.number = number};
    span->most_ms = took_ms > span->most_ms ? took_ms : span->most_ms;
    lag->most_ms = took_ms > lag->most_ms ? took_ms : lag->most_ms;
    return took_ms;
}

uint64_t lag_lately_ms(const struct lag *lag, uint64_t now_ms)
{
    uint64_t most_ms = 0, number = span_of(now_ms);
    for (size_t i = 0; i < LAG_SPANS; i++) {
        const struct lag_span *span = &lag->spans[i];
        if (span->number + LAG_SPANS > number && span->most_ms > most_ms)
            most_ms = span->most_ms;
    }
    return most_ms;
}

/* ---- processors ---- */

void load_note(struct load *load, uint64_t now_ms, uint64_t cpu_ns)
{
    if (load->count > 0 && now_ms < load->at_ms[(load->count - 1) % LOAD_SAMPLES] + LOAD_EVERY_MS)
        return;
    load->at_ms[load->count % LOAD_SAMPLES] = now_ms;
    load->cpu_ns[load->count % LOAD_SAMPLES] = cpu_ns;
    load->count++;
}

double load_cores(const struct load *load)
{
    if (load->count < 2)
        return 0;
    size_t newest = (load->count - 1) % LOAD_SAMPLES;
    size_t oldest = load->count > LOAD_SAMPLES ? load->count % LOAD_SAMPLES : 0;
    double took_ns = (double)(load->cpu_ns[newest] - load->cpu_ns[oldest]);
    return took_ns / ((double)(load->at_ms[newest] - load->at_ms[oldest]) * 1e6);
}
