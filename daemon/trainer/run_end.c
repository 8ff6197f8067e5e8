/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/trainer/run_end.h"

#include "net/transport/wire.h"

enum { OVER_MS = 10000, OPEN_MS = 600000 };

/* Our trainer is done with the fragment, or, `gone`, was when it went, and we hold the newest anchor that anyone has:
 * the word of one is enough to go on waiting, as it is where somebody does not say that he has contributed all. */
static bool at_rest(const struct sync *sync, const struct view *view, uint32_t f, bool gone)
{
    struct wire_standing own = sync_own(sync, f);
    for (uint32_t i = 0; i < view->count; i++)
        if (i != view->self && sync_heard(sync, i, f).version > own.version)
            return false;
    return own.abstained == UINT64_MAX && sync_state(sync, f) == (gone ? SYNC_LISTENING : SYNC_IDLE);
}

static bool settled(const struct sync *sync, uint32_t fragments_count, uint32_t member)
{
    for (uint32_t f = 0; f < fragments_count; f++)
        if (sync_heard(sync, member, f).abstained != UINT64_MAX)
            return false;
    return true;
}

/* A member without a trainer contributes nothing now; one whose trainer is started again does. */
static bool trains(uint32_t trainer)
{
    return trainer != WIRE_TRAINER_NONE && trainer != WIRE_TRAINER_FINISHED;
}

static bool in_rounds(const struct view_member *one)
{
    return one->as.role == CONFIG_OWNER || one->as.role == CONFIG_CONTRIBUTOR || one->as.role == CONFIG_DRAINING;
}

/* What is to come of a member. Whose trainer ended before it was done may contribute again, whatever it has said of its
 * fragments; but one that drains leaves the run, and one that was lost, and is not here, takes no part any more. */
static enum run_end end_of(const struct sync *sync, const struct view *view, uint32_t fragments_count,
                           const struct run_said *said, uint32_t member)
{
    const struct view_member *one = &view->members[member];
    bool comes_again = said->unfinished && one->as.role != CONFIG_DRAINING;
    if (member == view->self || !one->used || one->leaving)
        return RUN_OVER;
    if (said->trainer == WIRE_TRAINER_FINISHED)
        return RUN_OVER;
    if (!in_rounds(one))
        return comes_again && sync_up(sync, member) ? RUN_OPEN : RUN_OVER;
    if (settled(sync, fragments_count, member))
        return comes_again ? RUN_OPEN : RUN_OVER;
    if (!sync_up(sync, member))
        return RUN_OPEN;
    return trains(said->trainer) ? RUN_GOES_ON : comes_again ? RUN_OPEN : RUN_OVER;
}

struct run_end_found run_end_of(const struct sync *sync, const struct view *view, uint32_t fragments_count,
                                const struct run_said *said, bool gone)
{
    struct run_end_found found = {.end = RUN_OVER};
    for (uint32_t f = 0; f < fragments_count; f++)
        if (!at_rest(sync, view, f, gone))
            return (struct run_end_found){.end = RUN_GOES_ON};
    for (uint32_t i = 0; i < view->count; i++) {
        enum run_end end = end_of(sync, view, fragments_count, &said[i], i);
        if (end == RUN_GOES_ON)
            return (struct run_end_found){.end = RUN_GOES_ON};
        if (end == RUN_OPEN) {
            found.end = RUN_OPEN;
            bitset_add(&found.open, i);
        }
    }
    return found;
}

bool run_close_due(struct run_close *close, const struct run_end_found *found, bool finished, const struct sync *sync,
                   const struct view *view, const struct run_said *said, uint64_t now_ms)
{
    bool needed = found->end == RUN_GOES_ON || !finished;
    for (uint32_t i = 0; i < view->count; i++)
        needed |= i != view->self && view->members[i].used && sync_up(sync, i) && trains(said[i].trainer);
    if (needed || close->since_ms == 0 || close->end != found->end)
        *close = (struct run_close){.since_ms = needed ? 0 : now_ms, .end = found->end};
    return !needed && now_ms >= close->since_ms + (found->end == RUN_OPEN ? OPEN_MS : OVER_MS);
}
