/* SPDX-License-Identifier: Apache-2.0 */
#include "net/transfer/meter.h"

/* Shorter or smaller than this says more about delay than about rate. */
enum { SAMPLE_US_MIN = 20000, SAMPLE_US_MAX = 1000000, SAMPLE_BYTES_MIN = 65536 };

static void begin(struct meter *meter, uint64_t arrived, uint64_t now_us)
{
    meter->busy = true;
    meter->since_us = now_us;
    meter->bytes_then = arrived;
}

void meter_update(struct meter *meter, uint64_t arrived, uint64_t outstanding, uint64_t now_us)
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
