/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/control/progress.h"

#include <stdbool.h>

#include "common/mem.h"
#include "outer_opt/plan.h"

/* A pace is measured over at least so long; one over which the run stood still counts as at most so many times the one
 * before. */
enum { WINDOW_MS = 10000, SLOWER_MAX = 4 };

struct waiting {
    uint64_t version, came_ms;
    uint64_t since_ms; /* 0: no round is under way */
    uint64_t least;    /* versions that it was behind when it was nearest, since it is behind; and since when */
    uint64_t least_ms; /* 0: it is not behind */
};

struct progress {
    uint64_t now_ms;             /* of the last note; 0: there was none */
    uint64_t moved_ms;           /* when a version last rose */
    uint64_t mark_ms, mark_step; /* where the present window began */
    double step_ms;
    struct waiting fragments[PLAN_FRAGMENTS_MAX];
};

enum err progress_new(struct progress **out)
{
    return mem_new(1, sizeof **out, "the status", out);
}

void progress_free(struct progress *progress)
{
    mem_free(progress);
}

static void note_pace(struct progress *progress, uint64_t furthest)
{
    bool back = furthest < progress->mark_step; /* an island that was ahead is away */
    if (progress->mark_ms == 0 || back) {
        progress->mark_ms = progress->now_ms;
        progress->mark_step = furthest;
        return;
    }
    if (furthest == progress->mark_step || progress->now_ms < progress->mark_ms + WINDOW_MS)
        return;
    double step_ms = (double)(progress->now_ms - progress->mark_ms) / (double)(furthest - progress->mark_step);
    bool stood = progress->step_ms > 0 && step_ms > SLOWER_MAX * progress->step_ms;
    progress->step_ms = stood ? SLOWER_MAX * progress->step_ms : step_ms;
    progress->mark_ms = progress->now_ms;
    progress->mark_step = furthest;
}

static bool is_under_way(const struct sync *sync, uint32_t f, uint32_t members_count)
{
    struct wire_standing own = sync_own(sync, f);
    bool begun = own.contributed > own.version;
    for (uint32_t i = 0; i < members_count && !begun; i++) {
        struct wire_standing theirs = sync_heard(sync, i, f);
        begun = theirs.contributed > own.version || theirs.version > own.version;
    }
    return begun;
}

/* One version is on its way in every round. */
static void note_behind(struct waiting *waiting, const struct sync *sync, uint32_t f, uint64_t now_ms)
{
    uint64_t own = sync_own(sync, f).version, newest = sync_version_max(sync, f);
    uint64_t behind = sync_known(sync, f) && newest > own + 1 ? newest - own : 0;
    if (behind == 0) {
        waiting->least_ms = 0;
    } else if (waiting->least_ms == 0 || behind < waiting->least) {
        waiting->least = behind;
        waiting->least_ms = now_ms;
    }
}

void progress_note(struct progress *progress, const struct sync *sync, uint32_t fragments_count, uint32_t members_count,
                   uint64_t furthest, uint64_t now_ms)
{
    bool first = progress->now_ms == 0;
    progress->now_ms = now_ms;
    note_pace(progress, furthest);
    for (uint32_t f = 0; f < fragments_count && f < PLAN_FRAGMENTS_MAX; f++) {
        struct waiting *waiting = &progress->fragments[f];
        uint64_t version = sync_own(sync, f).version;
        if (!first && version > waiting->version)
            progress->moved_ms = now_ms;
        if (first || waiting->came_ms == 0 || version != waiting->version)
            waiting->came_ms = now_ms;
        bool under_way = is_under_way(sync, f, members_count);
        if (!under_way)
            waiting->since_ms = 0;
        else if (waiting->since_ms == 0 || waiting->version != version)
            waiting->since_ms = now_ms;
        waiting->version = version;
        note_behind(waiting, sync, f, now_ms);
    }
}

uint64_t progress_waits_ms(const struct progress *progress, uint32_t f)
{
    uint64_t since_ms = progress->fragments[f].since_ms;
    return since_ms > 0 ? progress->now_ms - since_ms : 0;
}

uint64_t progress_stands_ms(const struct progress *progress, uint32_t f)
{
    uint64_t came_ms = progress->fragments[f].came_ms;
    return came_ms > 0 ? progress->now_ms - came_ms : 0;
}

uint64_t progress_no_nearer_ms(const struct progress *progress, uint32_t f)
{
    uint64_t least_ms = progress->fragments[f].least_ms;
    return least_ms > 0 ? progress->now_ms - least_ms : 0;
}

uint64_t progress_moved_ms(const struct progress *progress)
{
    return progress->moved_ms;
}

uint64_t progress_steps_ms(const struct progress *progress, uint64_t steps)
{
    return (uint64_t)(progress->step_ms * (double)steps);
}
