/* SPDX-License-Identifier: Apache-2.0 */
#include "net/membership/key_turns.h"

enum { ALONE_MS = 5000 };

bool key_turns_due(struct key_turns *turns, const struct key_turns_facts *facts, uint64_t now_ms)
{
    bool back = facts->by_other && (!facts->two || facts->hears_knows_own);
    if (!facts->two || facts->hears || turns->alone_ms == 0)
        turns->alone_ms = now_ms;
    if (!back && now_ms < turns->alone_ms + ALONE_MS)
        return false;
    turns->alone_ms = now_ms;
    return true;
}
