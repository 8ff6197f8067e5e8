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

/* A member without a trainer has nothing to contribute; one whose trainer is started again has. */
static bool takes_part(uint32_t trainer)
{
    return trainer != WIRE_TRAINER_NONE && trainer != WIRE_TRAINER_FINISHED;
}

bool run_end_waits_for(const struct sync *sync, const struct view *view, uint32_t fragments_count, uint32_t member)
{
    const struct view_member *one = &view->members[member];
    bool part = one->as.role == CONFIG_OWNER || one->as.role == CONFIG_CONTRIBUTOR || one->as.role == CONFIG_DRAINING;
    return member != view->self && one->used && !one->leaving && part && !settled(sync, fragments_count, member);
}

enum run_end run_end_of(const struct sync *sync, const struct view *view, uint32_t fragments_count,
                        const uint32_t *trainers, bool gone)
{
    bool away = false;
    for (uint32_t f = 0; f < fragments_count; f++)
        if (!at_rest(sync, view, f, gone))
            return RUN_GOES_ON;
    for (uint32_t i = 0; i < view->count; i++) {
        if (!run_end_waits_for(sync, view, fragments_count, i))
            continue;
        if (sync_up(sync, i) && takes_part(trainers[i]))
            return RUN_GOES_ON;
        away |= !sync_up(sync, i);
    }
    return away ? RUN_OPEN : RUN_OVER;
}

bool run_close_due(struct run_close *close, enum run_end end, bool finished, const struct sync *sync,
                   const struct view *view, const uint32_t *trainers, uint64_t now_ms)
{
    bool needed = end == RUN_GOES_ON || !finished;
    for (uint32_t i = 0; i < view->count; i++)
        needed |= i != view->self && view->members[i].used && sync_up(sync, i) && takes_part(trainers[i]);
    if (needed || close->since_ms == 0 || close->end != end)
        *close = (struct run_close){.since_ms = needed ? 0 : now_ms, .end = end};
    return !needed && now_ms >= close->since_ms + (end == RUN_OVER ? OVER_MS : OPEN_MS);
}
