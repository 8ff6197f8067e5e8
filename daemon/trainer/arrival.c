/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/trainer/arrival.h"

#include <inttypes.h>
#include <stdio.h>

#include "daemon/as_typed.h"
#include "common/log.h"
#include "common/mem.h"
#include "daemon/state/counted.h"
#include "daemon/trainer/attachment_core.h"

/* How long a first trainer waits for the peers to be heard, so that a run under way is not begun anew. */
enum { PEERS_PATIENCE_MS = 3000 };
/* How long one waits for versions that others have and that do not come. */
enum { STANDS_STILL_MS = 5000 };

static struct ipc_message welcome_of(const struct attachment *a, bool need_initial, bool resumed)
{
    struct ipc_message message = {.type = IPC_WELCOME};
    message.welcome = (struct ipc_welcome){.session = shared_session(a->shared),
                                           .bytes = shared_bytes(a->shared),
                                           .need_initial = need_initial,
                                           .island_index = view_islands(a->conf.view, a->conf.view->self),
                                           .islands_count = view_islands(a->conf.view, a->conf.view->count),
                                           .resumed = resumed};
    snprintf(message.welcome.island, sizeof message.welcome.island, "%s", a->conf.conf->name);
    return message;
}

static struct shared_conf shared_conf_of(const struct attachment *a)
{
    return (struct shared_conf){.spec = a->conf.spec, .view = a->conf.view, .plan = a->plan.plan};
}

/* ---- attaching again ---- */

/* Whether it is too early to say that nobody is there. */
static bool others_may_come(const struct attachment *a)
{
    uint64_t since_ms = a->plan.listens_ms > a->conf.start_ms ? a->plan.listens_ms : a->conf.start_ms;
    return a->now_ms < since_ms + PEERS_PATIENCE_MS;
}

/* Whether anyone has, or is expected to have, the state of a fragment that is blank here. */
static bool to_be_had(const struct attachment *a, uint32_t f)
{
    for (uint32_t i = 0; i < a->conf.view->count; i++)
        if (i != a->conf.view->self && sync_heard(a->plan.sync, i, f).hash_known)
            return true;
    return others_may_come(a);
}

/* The shards in which the anchor counts work of ours that was contributed to versions after this one. */
static uint64_t counted_since_then(const struct attachment *a, uint32_t f, uint64_t version)
{
    uint32_t id = a->conf.view->members[a->conf.view->self].id;
    return counted_since(replica_counted(a->plan.replica, f), id, version);
}

/* What was in flight from `base` may have been counted by a round that closed while nobody was attached; or before, and
 * what a checkpoint kept knows nothing of it. */
static void count_what_was_closed(struct attachment *a, uint32_t f, uint64_t base)
{
    uint64_t closed = counted_since_then(a, f, base), noted = tally_noted(&a->tally, f, base + 1);
    a->tally.counted += shared_counted(a->shared, f, closed & ~noted);
    (void)shared_counted(a->shared, f, closed & noted);
    tally_note(&a->tally, f, base + 1, closed);
}

/* Brings the core and the words of a trainer that kept its memory together. */
static enum err resume_fragment(struct attachment *a, uint32_t f)
{
    struct shared_resumed resumed;
    TRY(shared_resume(a->shared, f, sync_own(a->plan.sync, f).version, &resumed));
    a->fragments[f].up = true;
    /* Its snapshot may have been counted by the round that closed while we were away. */
    if (resumed.in_flight)
        count_what_was_closed(a, f, resumed.base_version);
    attachment_core_post_sync(a, SYNC_EV_TRAINER_UP, f, resumed.base_version);
    if (resumed.snapshot)
        attachment_core_post_sync(a, SYNC_EV_SNAPSHOT, f, 0);
    return ERR_OK;
}

/* Whether all fragments stand still here; refuses a trainer that there is nothing to go on with for. */
static bool ready_to_resume(struct attachment *a)
{
    bool ready = true;
    for (uint32_t f = 0; f < attachment_core_fragments(a); f++) {
        bool known = sync_known(a->plan.sync, f);
        ready &= known && sync_state(a->plan.sync, f) == SYNC_LISTENING;
        if (known || to_be_had(a, f))
            continue;
        attachment_core_refuse(a, "this daemon has no state to go on from; start the trainer anew");
        return false;
    }
    return ready;
}

static enum err take_over_memory(struct attachment *a)
{
    struct shared_conf conf = shared_conf_of(a);
    int fd = introduction_take_memory(&a->introduction);
    TRY(shared_adopt(&conf, fd, a->introduction.hello.session, &a->shared));
    return mem_new(attachment_core_fragments(a), sizeof *a->fragments, "the trainer's fragments", &a->fragments);
}

/* Its trainer trains on meanwhile: what is being applied, fetched or repaired comes first. */
static void resume_trainer(struct attachment *a)
{
    if (!ready_to_resume(a))
        return;
    if (take_over_memory(a) != ERR_OK) {
        attachment_core_refuse(a, err_text());
        return;
    }
    const struct ipc_hello *hello = &a->introduction.hello;
    a->report.step = attachment_core_step(a, hello->step);
    a->report.tokens = hello->tokens; /* these among them */
    tally_resume(&a->tally);
    log_info("trainer %s (pid %" PRIu32 ") is attached again at step %" PRIu64, hello->trainer, a->pid, hello->step);
    for (uint32_t f = 0; f < attachment_core_fragments(a) && a->phase == RESUMING; f++)
        if (resume_fragment(a, f) != ERR_OK)
            attachment_core_refuse(a, err_text());
    if (a->phase != RESUMING)
        return;
    /* Not before: until then it moves no word, so that they are as they were read. */
    struct ipc_message message = welcome_of(a, false, true);
    attachment_core_send(a, &message, -1);
    a->phase = TRAINING;
    a->ready_ms = a->now_ms;
}

/* ---- attaching for the first time ---- */

/* Whether the run's initial tensors are others' to bring: it was there before us, and our trainer may begin from other
 * ones. Who takes part from the beginning brings its own, which should be the same. */
static bool joins(const struct attachment *a)
{
    uint8_t role = a->conf.view->members[a->conf.view->self].role;
    return role != RECORD_OWNER && role != RECORD_CONTRIBUTOR;
}

/* Whether there is a state to start from. A peer at version 0 has no more than its trainer's initial tensors, which are
 * the run's to who joins. */
static bool run_has_begun(const struct attachment *a)
{
    for (uint32_t f = 0; f < attachment_core_fragments(a); f++) {
        if (sync_known(a->plan.sync, f))
            return true;
        for (uint32_t i = 0; i < a->conf.view->count; i++) {
            struct wire_standing heard = sync_heard(a->plan.sync, i, f);
            if (i != a->conf.view->self && (heard.version > 0 || (joins(a) && heard.hash_known)))
                return true;
        }
    }
    return false;
}

static enum err make_memory(struct attachment *a)
{
    struct shared_conf conf = shared_conf_of(a);
    TRY(shared_make(&conf, &a->shared));
    return mem_new(attachment_core_fragments(a), sizeof *a->fragments, "the trainer's fragments", &a->fragments);
}

/* One that has nothing to begin a run from: what it would bring must not be taken for the run's. */
static bool waits_for_state(struct attachment *a)
{
    bool lacks = a->introduction.hello.without_initial != 0;
    if (!lacks && !joins(a))
        return false;
    if (!lacks && a->now_ms < a->conf.start_ms + PEERS_PATIENCE_MS) /* those who have them may only not be heard yet */
        return true;
    if (!a->wait_said && !lacks)
        log_warn("this island has joined the run, so its trainer brings no parameters, and none are here yet: it waits "
                 "until an island that has them can be heard");
    else if (!a->wait_said)
        log_warn(
            "the trainer has no parameters to begin with, and none are here yet: it waits until an island with the "
            "model that the run begins from has trained, or can be heard; where no island has it, set [run] init in "
            "the run spec of one");
    a->wait_said = true;
    return true;
}

static void welcome(struct attachment *a)
{
    bool begun = run_has_begun(a);
    if (!begun && waits_for_state(a))
        return;
    if (!begun && !a->peers_heard && others_may_come(a))
        return;
    if (make_memory(a) != ERR_OK) {
        attachment_core_refuse(a, err_text());
        return;
    }
    struct ipc_message message = welcome_of(a, !begun, false);
    bool kept = begun && a->introduction.hello.kept != 0;
    message.welcome.need_kept = kept;
    a->report.tokens = kept ? a->introduction.hello.tokens : 0;
    tally_begin(&a->tally, a->report.tokens);
    tally_save(&a->tally, a->report.tokens);
    a->phase = kept ? KEEPING : begun ? STARTING : INITIAL;
    attachment_core_send(a, &message, shared_fd(a->shared));
}

void arrival_accept(struct attachment *a, const char *other_base)
{
    if (a->phase != REGISTERED)
        return;
    snprintf(a->introduction.other_base, sizeof a->introduction.other_base, "%s", other_base);
    if (a->plan.plan == NULL) {
        attachment_core_refuse(a, "this daemon does not know the run's tensors");
        return;
    }
    if (introduction_again(&a->introduction)) {
        a->phase = RESUMING;
        resume_trainer(a);
        return;
    }
    log_info("trainer %s (pid %" PRIu32 ") registered %" PRIu32 " tensors", a->introduction.hello.trainer, a->pid,
             a->plan.plan->tensors_count);
    if (other_base[0] != '\0')
        log_warn("it trains upon another base than the run's, as [worker] allow_other_base lets it: %s", other_base);
    a->phase = WELCOMING;
    welcome(a);
}

static void post_start(struct attachment *a, uint32_t f, bool initial)
{
    shared_pin(a->shared);
    event_post(a->conf.events, &(struct event){.type = EVENT_START, .fragment = f, .start = {.initial = initial}});
}

void arrival_initial(struct attachment *a)
{
    if (a->phase == KEEPING)
        a->phase = STARTING;
    if (a->phase != INITIAL || a->initial_left > 0)
        return;
    a->phase = STARTING;
    for (uint32_t f = 0; f < attachment_core_fragments(a); f++) {
        /* A peer's state may have come, or be on its way: the run has begun there, and that one counts. */
        if (sync_known(a->plan.sync, f) || sync_state(a->plan.sync, f) == SYNC_REPAIR)
            continue;
        a->initial_left++;
        post_start(a, f, true);
    }
}

bool arrival_without_initial(const struct attachment *a)
{
    return a->introduction.hello.without_initial != 0 || joins(a);
}

bool arrival_initialising(const struct attachment *a)
{
    return a->initial_left > 0;
}

/* ---- starting: fragments are brought as they become known; then the trainer goes ---- */

void arrival_started(struct attachment *a, uint32_t f, bool initial)
{
    if (initial) {
        a->initial_left--;
        return;
    }
    if (a->shared == NULL || a->closing || a->phase != STARTING)
        return;
    a->fragments[f].starting = false;
    shared_forget(a->shared, f); /* of a trainer before this one */
    if (sync_state(a->plan.sync, f) != SYNC_LISTENING)
        return; /* it moved on meanwhile: brought again */
    uint64_t version = sync_own(a->plan.sync, f).version;
    shared_based(a->shared, f, version);
    a->fragments[f].up = true;
    attachment_core_post_sync(a, SYNC_EV_TRAINER_UP, f, version);
}

/* Whether what the trainer kept of a fragment goes on. */
static bool goes_on(const struct attachment *a, uint32_t f)
{
    struct shared_keeps keeps;
    uint64_t own = sync_own(a->plan.sync, f).version;
    /* Values that are gone cannot be sent again; that is all right where the round they were for is closed. */
    if (!shared_kept(a->shared, f, &keeps) || keeps.version + (keeps.lost ? 1 : 0) > own)
        return false;
    /* Work that begins from before what is counted is counted, or partly, and nobody can tell which. */
    return counted_since_then(a, f, keeps.version + (keeps.on_its_way ? 1 : 0)) == 0;
}

static void start_fragment(struct attachment *a, uint32_t f)
{
    struct attachment_fragment *fragment = &a->fragments[f];
    if (goes_on(a, f)) {
        fragment->kept = true;
        if (resume_fragment(a, f) != ERR_OK)
            attachment_core_refuse(a, err_text());
        return;
    }
    shared_drop_kept(a->shared, f, a->report.tokens);
    fragment->starting = true;
    post_start(a, f, false);
}

/* Whether nothing is left to do before a fragment's training goes on: newer anchors than it kept are mixed in first. */
static bool is_ready(const struct attachment *a, uint32_t f)
{
    enum sync_state state = sync_state(a->plan.sync, f);
    if (!a->fragments[f].kept)
        return a->fragments[f].up;
    if (state == SYNC_MIXING)
        return shared_mixes_later(a->shared, f, a->introduction.hello.step);
    return state != SYNC_LISTENING && state != SYNC_APPLYING;
}

/* Whether what the others have is not to be had: without a majority nobody vouches for it. Then training goes on from
 * what is here, as that of an island that is cut off, and what comes later is taken in as it comes. */
static bool stands_still(struct attachment *a, uint32_t f)
{
    struct attachment_fragment *fragment = &a->fragments[f];
    uint64_t own = sync_own(a->plan.sync, f).version;
    if (fragment->stands_ms == 0 || fragment->stands_at != own) {
        fragment->stands_at = own;
        fragment->stands_ms = a->now_ms;
    }
    return a->now_ms >= fragment->stands_ms + STANDS_STILL_MS;
}

static void start_fragments(struct attachment *a)
{
    const struct sync *sync = a->plan.sync;
    bool all = true;
    for (uint32_t f = 0; f < attachment_core_fragments(a); f++) {
        struct attachment_fragment *fragment = &a->fragments[f];
        all &= is_ready(a, f);
        if (fragment->up)
            continue;
        bool near = sync_own(sync, f).version + 1 >= sync_version_max(sync, f) || stands_still(a, f);
        if (fragment->starting || !near || !sync_known(sync, f) || sync_state(sync, f) != SYNC_LISTENING)
            continue;
        start_fragment(a, f);
        if (a->phase != STARTING)
            return; /* it was refused */
    }
    if (all && !a->ready_said)
        attachment_core_post(a, EVENT_READY, 0);
    a->ready_said |= all;
}

static void tell_absent(const struct attachment *a)
{
    for (uint32_t i = 0; i < a->conf.view->count; i++)
        if (i != a->conf.view->self && sync_awaits(a->plan.sync, i) && !sync_up(a->plan.sync, i))
            log_warn("island %s is not here; no round closes without it, and what is trained meanwhile goes out when "
                     "it comes (%s status says what is known)",
                     a->conf.view->members[i].name, as_typed());
}

static bool keeps_any(const struct attachment *a)
{
    for (uint32_t f = 0; f < attachment_core_fragments(a); f++)
        if (a->fragments[f].kept)
            return true;
    return false;
}

void arrival_go(struct attachment *a, uint64_t step)
{
    struct ipc_message message = {.type = IPC_GO};
    uint64_t version = 0;
    if (a->phase != STARTING)
        return;
    for (uint32_t f = 0; f < attachment_core_fragments(a); f++) {
        uint64_t own = sync_own(a->plan.sync, f).version;
        version = own > version ? own : version;
    }
    /* Before the first result everyone is at the beginning; later, where this island was or the run is. */
    if (version > 0 && a->own_step > step)
        step = a->own_step;
    uint64_t kept_step = attachment_core_step(a, a->introduction.hello.step);
    if (keeps_any(a) && kept_step > step)
        step = kept_step;
    shared_go(a->shared, step);
    message.go = (struct ipc_go){.step = step,
                                 .version = version,
                                 .tokens = tally_trained(&a->tally, a->report.tokens),
                                 .tokens_counted = tally_counted(&a->tally)};
    attachment_core_send(a, &message, -1);
    a->phase = TRAINING;
    a->ready_ms = a->now_ms;
    a->report.step = step;
    attachment_core_post(a, EVENT_ANNOUNCE, 0);
    log_info("training goes on after step %" PRIu64 " from version %" PRIu64 "%s", step, version,
             keeps_any(a) ? ", with what it had kept" : "");
    tell_absent(a);
}

void arrival_tick(struct attachment *a)
{
    if (a->phase == RESUMING)
        resume_trainer(a);
    else if (a->phase == WELCOMING)
        welcome(a);
    else if (a->phase == STARTING && a->initial_left == 0)
        start_fragments(a);
}
