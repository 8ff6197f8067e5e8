/* SPDX-License-Identifier: Apache-2.0 */
#include "net/membership/key_turns.h"

/* With the key of its newest configuration twice as long each time, up to MOST, or so long where somebody is heard;
 * with the other one always ALONE. */
enum { ALONE_MS = 5000, MOST_MS = 8 * ALONE_MS };

static uint64_t pause_ms(const struct key_turns *turns, const struct key_turns_facts *facts)
{
    uint64_t pause = ALONE_MS;
    if (!facts->by_other && facts->heard.any)
        return MOST_MS;
    for (uint32_t i = 0; !facts->by_other && i < turns->tries && pause < MOST_MS; i++)
        pause *= 2;
    return pause;
}

bool key_turns_due(struct key_turns *turns, const struct key_turns_facts *facts, uint64_t now_ms)
{
    bool back = facts->by_other && (!facts->two || facts->heard.most_know_ours);
    if (!facts->two || facts->heard.most || turns->alone_ms == 0)
        *turns = (struct key_turns){.alone_ms = now_ms};
    if (!back && now_ms < turns->alone_ms + pause_ms(turns, facts))
        return false;
    turns->alone_ms = now_ms;
    turns->tries += !facts->by_other;
    return true;
}
