/* SPDX-License-Identifier: Apache-2.0 */
#include "net/sync/grace.h"

enum { PROBE_ROUNDS = 8, MARGIN_MS = 50 };
/* Lateness doubles with every round missed; from here on it stays: later than any grace, and no sum of it overflows. */
static const uint64_t late_ms_max = (uint64_t)1 << 40;

void grace_arrived(struct grace *grace, uint64_t late_ms)
{
    uint64_t off = late_ms > grace->late_ms ? late_ms - grace->late_ms : grace->late_ms - late_ms;
    /* What was assumed while it stayed away says nothing of it. */
    if (!grace->known || grace->missed > 0) {
        *grace = (struct grace){.known = true, .late_ms = late_ms, .deviation_ms = late_ms / 2};
        return;
    }
    grace->deviation_ms = (3 * grace->deviation_ms + off) / 4;
    grace->late_ms = (7 * grace->late_ms + late_ms) / 8;
}

void grace_missed(struct grace *grace, uint64_t waited_ms)
{
    uint64_t at_least = waited_ms > MARGIN_MS ? waited_ms : MARGIN_MS;
    grace->known = true;
    grace->missed++;
    grace->late_ms = 2 * (grace->late_ms > at_least ? grace->late_ms : at_least);
    if (grace->late_ms > late_ms_max)
        grace->late_ms = late_ms_max;
}

bool grace_probes(uint32_t fragment, uint64_t round)
{
    return (round + fragment) % PROBE_ROUNDS == 0;
}

uint64_t grace_wait(const struct grace *grace, uint64_t most_ms, bool probe)
{
    uint64_t usual_ms = grace->late_ms + 4 * grace->deviation_ms + MARGIN_MS;
    if (!grace->known || (probe && grace->missed > 0))
        return most_ms;
    if (grace->late_ms > most_ms)
        return 0;
    return usual_ms < most_ms ? usual_ms : most_ms;
}
