/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/peers/peer.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* ---- heartbeats ---- */

void beats_restart(struct beats *beats)
{
    beats->in = beats->in_ms = 0;
}

void beats_out(struct beats *beats, struct wire_heartbeat *beat, uint64_t now_ms)
{
    beat->sequence = ++beats->out;
    beat->echo = beats->in;
    beat->echo_delay_ms = (uint32_t)(now_ms - beats->in_ms);
    beats->sent_ms[beats->out % BEATS_KEPT] = now_ms;
}

bool beats_in(struct beats *beats, const struct wire_heartbeat *beat, uint64_t now_ms)
{
    if (beat->sequence <= beats->in)
        return false;
    beats->in = beat->sequence;
    beats->in_ms = now_ms;
    uint64_t ago = beats->out - beat->echo; /* many are on their way at a time where that is long */
    uint64_t sent_ms = beats->sent_ms[beat->echo % BEATS_KEPT];
    if (beat->echo > 0 && ago < BEATS_KEPT && now_ms >= sent_ms + beat->echo_delay_ms)
        beats->rtt_ms = (uint32_t)(now_ms - sent_ms - beat->echo_delay_ms);
    return true;
}

/* ---- reports ---- */

enum { DOUBT_SAID_MS = 60000 };

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

uint64_t report_furthest(struct report *report, const char *name, bool up, const struct report_bounds *bounds,
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

/* ---- one key on two machines ---- */

enum { DUPLICATE_KEY_SAID_MS = 60000 };
/* A greeting of the session before may have been on its way for long, and be answered by one of the new; more than that
 * does not happen to one machine. */
enum { TURNS_TOLD = 4, TURNS_WITHIN_MS = 60000 };

void duplicate_key_note(struct duplicate_key *duplicate_key, const char *name, uint64_t session, uint64_t now_ms)
{
    if (session == duplicate_key->session)
        return;
    bool back = session == duplicate_key->before;
    duplicate_key->before = duplicate_key->session;
    duplicate_key->session = session;
    if (!back || now_ms >= duplicate_key->turned_ms + TURNS_WITHIN_MS)
        duplicate_key->turns = 0;
    if (!back)
        return;
    duplicate_key->turned_ms = now_ms;
    if (++duplicate_key->turns < TURNS_TOLD)
        return;
    duplicate_key->seen_ms = now_ms;
    if (log_limit_pass(&duplicate_key->said, now_ms, DUPLICATE_KEY_SAID_MS))
        log_error("two machines speak with the key of island %s, in turn; stop one, and give it a key of its own",
                  name);
}

/* ---- plans ---- */

struct support {
    uint32_t voters, members, lowest;
};

static struct support support_of(const struct plan_said *said, uint32_t count, const struct digest *plan)
{
    struct support support = {.lowest = UINT32_MAX};
    for (uint32_t i = 0; i < count; i++) {
        if (!digest_equal(&said[i].plan, plan))
            continue;
        support.voters += said[i].voter;
        support.members++;
        support.lowest = said[i].id < support.lowest ? said[i].id : support.lowest;
    }
    return support;
}

static bool is_more(const struct support *left, const struct support *right)
{
    if (left->voters != right->voters)
        return left->voters > right->voters;
    if (left->members != right->members)
        return left->members > right->members;
    return left->lowest < right->lowest;
}

uint32_t plan_of_most(const struct plan_said *said, uint32_t count)
{
    uint32_t best = count;
    struct support most = {.lowest = UINT32_MAX};
    for (uint32_t i = 0; i < count; i++) {
        if (best < count && digest_equal(&said[i].plan, &said[best].plan))
            continue;
        struct support support = support_of(said, count, &said[i].plan);
        if (best < count && !is_more(&support, &most))
            continue;
        best = i;
        most = support;
    }
    return best;
}

/* ---- faults ---- */

enum { FAULT_SAID_MS = 30000, DROPPED_MS = 60000 };

static const char *text_of(enum sync_fault fault)
{
    static const char *const texts[] = {
        [SYNC_FAULT_NONE] = "",
        [SYNC_FAULT_LATE] = ("its contributions do not come in time: rounds go on without them, and its work is "
                             "counted later"),
        [SYNC_FAULT_NO_RESULT] = "it makes no result of its shards: to be taken for lost, if a majority says the same",
        [SYNC_FAULT_UNPROVEN] = "it says that it has what it does not show: that is believed no more",
        [SYNC_FAULT_HASH] = "its state is another than ours, which most have",
    };
    return texts[fault];
}

bool faults_look(struct faults *faults, const struct sync *sync, uint32_t member, const char *name, uint64_t now_ms)
{
    enum sync_fault fault = sync_fault(sync, member), before = faults->now;
    faults->now = fault;
    /* That its state is another is said by peers_diverged(). */
    if (fault != before && fault != SYNC_FAULT_HASH && log_limit_pass(&faults->said, now_ms, FAULT_SAID_MS)) {
        if (fault == SYNC_FAULT_NONE)
            log_info("island %s does its part again", name);
        else
            log_warn("island %s: %s", name, text_of(fault));
    }
    return fault == SYNC_FAULT_NO_RESULT;
}

void faults_dropped(struct faults *faults, uint64_t now_ms)
{
    faults->dropped_ms = now_ms;
}

enum sync_fault faults_now(const struct faults *faults)
{
    return faults->now;
}

const char *faults_text(const struct faults *faults, uint64_t now_ms)
{
    if (faults->now != SYNC_FAULT_NONE)
        return text_of(faults->now);
    return faults->dropped_ms != 0 && now_ms < faults->dropped_ms + DROPPED_MS ? "it sends what nobody can use" : "";
}
