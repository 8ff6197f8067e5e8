/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/control/load.h"

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
