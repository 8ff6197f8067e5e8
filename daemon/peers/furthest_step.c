/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/peers/furthest_step.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "common/mem.h"
#include "daemon/rules.h"

/* ---- what one island says ---- */

enum { DOUBT_SAID_MS = 60000 };

/* As the heartbeat says. */
static void report_take(struct report *report, const struct wire_heartbeat *beat, uint64_t own_step)
{
    double loss;
    memcpy(&loss, &beat->loss, sizeof loss);
    report->step = beat->step;
    report->own_step = own_step;
    report->tokens = beat->tokens;
    report->loss = isfinite(loss) ? loss : NAN;
    report->tokens_per_s = beat->tokens_per_s;
    report->trainer = beat->trainer;
    report->unfinished = beat->unfinished;
}

/* What it said is void; for how long it was doubted is not. */
static void report_restart(struct report *report)
{
    report->step = report->own_step = report->tokens = 0;
    report->loss = 0;
    report->tokens_per_s = report->trainer = 0;
}

/* True: it has lasted, and is to be logged now. */
static bool lasts(struct report_doubt *doubt, bool is, uint64_t now_ms)
{
    if (!is)
        doubt->since_ms = 0;
    else if (doubt->since_ms == 0)
        doubt->since_ms = now_ms;
    doubt->lasts = doubt->since_ms != 0 && now_ms >= doubt->since_ms + DOUBT_SAID_MS;
    bool now = doubt->lasts && !doubt->said;
    doubt->said |= now;
    return now;
}

/* `furthest`, or as much of its step as is followed if that is further. What is not is logged once, under its `name`,
 * when it has lasted. `up`: it can be heard. */
static uint64_t report_furthest(struct report *report, const char *name, bool up, const struct report_bounds *bounds,
                                uint64_t furthest, uint64_t now_ms)
{
    bool too_far = up && report->step > bounds->most, too_fast = up && !too_far && report->step > bounds->line;
    if (lasts(&report->too_far, too_far && bounds->judges, now_ms))
        log_warn("island %s says that it is at step %" PRIu64 ", further than the rounds that we know of can have "
                 "brought it: not followed",
                 name, report->step);
    if (lasts(&report->too_fast, too_fast && bounds->judges, now_ms))
        log_warn("island %s says that it is at step %" PRIu64 ", by more than %g times (weight_max) the pace at which "
                 "most owners train: followed at that pace",
                 name, report->step, bounds->fast_most);
    uint64_t followed = report->step < bounds->line ? report->step : bounds->line;
    return up && !too_far && followed > furthest ? followed : furthest;
}

const char *report_doubted(const struct report *report)
{
    return report->too_far.lasts ? "it says that it is further than it can be: not followed" : "";
}

bool report_too_fast(const struct report *report)
{
    return report->too_fast.lasts;
}

/* ---- of all ---- */

void furthest_step_init(struct furthest_step *furthest, const struct furthest_step_conf *conf)
{
    furthest->conf = *conf;
}

void furthest_step_deinit(struct furthest_step *furthest)
{
    mem_free(furthest->of);
    furthest->of = NULL;
}

enum err furthest_step_reserve(struct furthest_step *furthest, uint32_t room)
{
    if (room > furthest->room) {
        TRY(mem_grow(&furthest->of, furthest->room, room, sizeof *furthest->of, "peers"));
        furthest->room = room;
    }
    return ERR_OK;
}

void furthest_step_heard(struct furthest_step *furthest, uint32_t slot, const struct wire_heartbeat *beat,
                         uint64_t now_ms)
{
    struct island_step *of = &furthest->of[slot];
    report_take(&of->report, beat, trainer_info(furthest->conf.trainer).step);
    pace_note(&of->pace, beat->trained, now_ms);
}

void furthest_step_restart(struct furthest_step *furthest, uint32_t slot)
{
    report_restart(&furthest->of[slot].report);
    furthest->of[slot].pace = (struct pace){0};
}

void furthest_step_forget(struct furthest_step *furthest, uint32_t slot)
{
    furthest->of[slot] = (struct island_step){0};
}

static uint32_t fragments_of(const struct transfer_plan *plan)
{
    return plan->plan != NULL ? plan->plan->plan->fragments_count : 0;
}

static bool is_other(const struct view *view, uint32_t slot)
{
    return slot != view->self && view->members[slot].used;
}

/* A witness never does, nor who waits for its state: neither can tell how far rounds bring anybody. */
static bool knows_rounds(const struct furthest_step *furthest)
{
    const struct sync *sync = furthest->conf.plan->sync;
    bool knows = !view_is_witness(furthest->conf.view);
    for (uint32_t f = 0; knows && sync != NULL && f < fragments_of(furthest->conf.plan); f++)
        knows = sync_known(sync, f);
    return knows;
}

/* Rounds that we lack have brought the others further than those that we know of. A few are on their way to everybody.
 */
static bool is_behind(const struct furthest_step *furthest)
{
    enum { ON_THEIR_WAY = 3 };
    const struct sync *sync = furthest->conf.plan->sync;
    bool behind = false;
    for (uint32_t f = 0; sync != NULL && f < fragments_of(furthest->conf.plan) && !behind; f++)
        behind = sync_own(sync, f).version + ON_THEIR_WAY < sync_version_max(sync, f);
    return behind;
}

/* Of all that train, as they say: how fast most owners do. */
static double usual_pace(struct furthest_step *furthest, const struct bitset *up, uint64_t now_ms)
{
    const struct view *view = furthest->conf.view;
    struct trainer_info own = trainer_info(furthest->conf.trainer);
    size_t count = 0;
    for (uint32_t i = 0; i < view->count; i++) {
        const struct island_step *of = &furthest->of[i];
        bool self = i == view->self, owner = view->members[i].as.role == CONFIG_OWNER;
        if (self)
            pace_note(&furthest->own, own.trained, now_ms);
        bool trains =
            self ? own.training : is_other(view, i) && bitset_has(up, i) && of->report.trainer == WIRE_TRAINER_TRAINING;
        if (trains)
            furthest->paces[count++] = (struct pace_said){pace_now(self ? &furthest->own : &of->pace, now_ms), owner};
    }
    return pace_usual(furthest->paces, count);
}

static void set_bounds(struct furthest_step *furthest, uint64_t own_step, const struct bitset *up, uint64_t now_ms)
{
    const struct runspec *spec = furthest->conf.spec;
    const struct transfer_plan *plan = furthest->conf.plan;
    uint64_t last = runspec_length(spec);
    uint64_t known = plan->rounds != NULL ? rounds_step(plan->rounds) : 0;
    known = known < last ? known : last; /* a result may be of before the run was made shorter */
    uint64_t sure = known > own_step ? known : own_step;
    double fast_most = spec->weight_max;
    furthest->bounds =
        (struct report_bounds){.most = rules_furthest(spec, fragments_of(plan), sure), .fast_most = fast_most};
    furthest->bounds.line = step_line_move(&furthest->line, sure, furthest->bounds.most,
                                           fast_most * usual_pace(furthest, up, now_ms), now_ms);
}

uint64_t furthest_step_look(struct furthest_step *furthest, uint64_t own_step, const struct bitset *up, uint64_t now_ms)
{
    const struct view *view = furthest->conf.view;
    uint64_t last = runspec_length(furthest->conf.spec), step = own_step;
    bool knows = knows_rounds(furthest);
    set_bounds(furthest, own_step, up, now_ms);
    furthest->bounds.judges = knows && !is_behind(furthest);
    for (uint32_t i = 0; i < view->count; i++)
        if (is_other(view, i) && knows)
            step = report_furthest(&furthest->of[i].report, view->members[i].as.name, bitset_has(up, i),
                                   &furthest->bounds, step, now_ms);
    return step < last ? step : last;
}

uint64_t furthest_step_said(const struct furthest_step *furthest, uint64_t own_step, const struct bitset *up)
{
    const struct view *view = furthest->conf.view;
    uint64_t last = runspec_length(furthest->conf.spec), step = own_step;
    for (uint32_t i = 0; i < view->count; i++)
        if (is_other(view, i) && bitset_has(up, i) && furthest->of[i].report.step > step)
            step = furthest->of[i].report.step;
    return step < last ? step : last;
}

uint64_t furthest_step_line(const struct furthest_step *furthest)
{
    return furthest->bounds.line;
}

const struct report *furthest_step_report(const struct furthest_step *furthest, uint32_t slot)
{
    return &furthest->of[slot].report;
}
