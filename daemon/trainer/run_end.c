/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/trainer/run_end.h"

#include "net/transport/wire.h"

/* Our trainer is done with the fragment, and holds the newest anchor that anyone has: the word of one is enough to go
 * on waiting, as it is where somebody does not say that he has contributed all. */
static bool at_rest(const struct sync *sync, const struct view *view, uint32_t f)
{
    struct wire_standing own = sync_own(sync, f);
    for (uint32_t i = 0; i < view->count; i++)
        if (i != view->self && sync_heard(sync, i, f).version > own.version)
            return false;
    return own.abstained == UINT64_MAX && sync_state(sync, f) == SYNC_IDLE;
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
                        const uint32_t *trainers)
{
    bool away = false;
    for (uint32_t f = 0; f < fragments_count; f++)
        if (!at_rest(sync, view, f))
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
