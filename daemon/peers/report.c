/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/peers/report.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "common/log.h"

enum { TOO_FAR_SAID_MS = 60000 };

void report_take(struct report *report, const struct wire_heartbeat *beat, uint64_t own_step)
{
    double loss;
    memcpy(&loss, &beat->loss, sizeof loss);
    report->step = beat->step;
    report->own_step = own_step;
    report->tokens = beat->tokens;
    report->loss = isfinite(loss) ? loss : NAN;
    report->tokens_per_s = beat->tokens_per_s;
    report->trainer = beat->trainer;
}

void report_restart(struct report *report)
{
    report->step = report->own_step = report->tokens = 0;
    report->loss = 0;
    report->tokens_per_s = report->trainer = 0;
}

static void judge(struct report *report, const char *name, bool too_far, uint64_t now_ms)
{
    if (!too_far)
        report->too_far_ms = 0;
    else if (report->too_far_ms == 0)
        report->too_far_ms = now_ms;
    if (report->too_far_ms == 0 || report->too_far_said || now_ms < report->too_far_ms + TOO_FAR_SAID_MS)
        return;
    report->too_far_said = true;
    log_warn("island %s says that it is at step %" PRIu64 ", further than the rounds that we know of can have brought "
             "it: not followed",
             name, report->step);
}

uint64_t report_furthest(struct report *report, const char *name, bool up, uint64_t furthest, uint64_t most,
                         uint64_t now_ms)
{
    bool too_far = up && report->step > most;
    judge(report, name, too_far, now_ms);
    return up && !too_far && report->step > furthest ? report->step : furthest;
}
