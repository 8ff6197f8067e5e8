/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/peers/pulse.h"

void pulse_restart(struct pulse *pulse)
{
    pulse->in = pulse->in_ms = 0;
}

void pulse_out(struct pulse *pulse, struct wire_heartbeat *beat, uint64_t now_ms)
{
    beat->sequence = ++pulse->out;
    beat->echo = pulse->in;
    beat->echo_delay_ms = (uint32_t)(now_ms - pulse->in_ms);
    pulse->sent_ms[pulse->out % PULSE_KEPT] = now_ms;
}

bool pulse_in(struct pulse *pulse, const struct wire_heartbeat *beat, uint64_t now_ms)
{
    if (beat->sequence <= pulse->in)
        return false;
    pulse->in = beat->sequence;
    pulse->in_ms = now_ms;
    uint64_t ago = pulse->out - beat->echo; /* many are on their way at a time where that is long */
    uint64_t sent_ms = pulse->sent_ms[beat->echo % PULSE_KEPT];
    if (beat->echo > 0 && ago < PULSE_KEPT && now_ms >= sent_ms + beat->echo_delay_ms)
        pulse->rtt_ms = (uint32_t)(now_ms - sent_ms - beat->echo_delay_ms);
    return true;
}
