/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/trainer/attachment.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/log.h"
#include "common/mem.h"
#include "daemon/as_typed.h"
#include "daemon/state/dedup.h"
#include "daemon/trainer/door.h"
#include "daemon/trainer/shared.h"
#include "daemon/trainer/tally.h"

/* How long a second trainer has to read why it is turned away; how long somebody who is away may take to come back
 * before a trainer that is done goes without knowing the end. */
enum { TURNED_AWAY_MS = 2000, OPEN_PATIENCE_MS = 30000, POLLED = 3 };
/* A rate is none any more after so long without a step, if that is so many times as long as one takes. */
enum { STILL_MS = 3000, STEPS_STILL = 10 };

/* How long a first trainer waits for the peers to be heard, so that a run under way is not begun anew. */
enum { PEERS_PATIENCE_MS = 3000 };
/* How long one waits for versions that others have and that do not come. */
enum { STANDS_STILL_MS = 5000 };

/* What a trainer has said of its loss at each of its last steps. */
enum { LOSSES_KEPT = 4096 };

struct losses {
    struct {
        uint64_t step;
        double loss;
    } said[LOSSES_KEPT];
};

/* The picture is in attachment.h. */
enum attachment_phase { NONE, REGISTERING, REGISTERED, RESUMING, WELCOMING, INITIAL, KEEPING, STARTING, TRAINING };

struct attachment_fragment {
    bool up;       /* the core knows of the trainer */
    bool starting; /* its base is being brought */
    bool kept;     /* what its trainer kept from before goes on */
    uint64_t bad;  /* snapshots in a row that could not be sent */
    /* before it is up: the version that it was last seen at, and since when; 0: not yet */
    uint64_t stands_at, stands_ms;
};

struct attachment {
    struct trainer_conf conf;
    struct trainer_plan plan; /* .plan NULL: not known yet */
    char *path;
    int listen_fd, socket;
    int turned_away; /* a second trainer was told so; kept open for a moment for it to read that */
    uint64_t turned_away_ms;
    uint64_t now_ms;
    bool peers_heard;
    enum attachment_phase phase;
    uint32_t pid;
    int pidfd; /* of the process that attached; -1: it cannot be watched */
    struct introduction introduction;
    struct shared *shared;
    struct attachment_memory *left;        /* memory of trainers that are gone: jobs give it back */
    struct attachment_fragment *fragments; /* [fragments of the plan] */
    bool closing;                          /* the trainer is gone; the memory goes when nothing is pinned */
    uint32_t initial_left;                 /* jobs that take its initial tensors over */
    bool ready_said, wait_said;
    bool leave, finishing, counted;
    bool ends;           /* it is to end before the run does */
    bool paused;         /* the run is */
    bool stood;          /* it was, since the last report */
    uint64_t done_step;  /* as struct trainer_info has it */
    uint64_t leave_step; /* by which the last contributions of one that leaves are due */
    bool end_said;
    uint64_t open_ms;    /* since when nobody but those who are away is waited for; 0: others are */
    uint64_t own_step;   /* highest step a trainer of ours reported */
    double step_s;       /* that a step takes, smoothed; 0: not known yet */
    uint64_t slowest_ms; /* step of this trainer so far, without its waiting for others; 0: it has taken none */
    struct ipc_report report;
    uint64_t waits_ms; /* since when it stands still for a round; 0: it does not */
    uint64_t report_ms, ready_ms;
    struct log_limit unread_said; /* that it does not read */
    struct losses losses;         /* of trainers before this one, too */
    struct tally tally;
};

/* Of the plan; 0 before it is known. */
static uint32_t fragments_of(const struct attachment *a)
{
    return a->plan.plan != NULL ? a->plan.plan->plan->fragments_count : 0;
}

/* A step as the trainer says it; the run's last for those beyond. */
static uint64_t step_of(const struct attachment *a, uint64_t step)
{
    uint64_t steps = runspec_length(a->conf.spec);
    return step < steps ? step : steps;
}

static void close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

/* ---- saying ---- */

/* One that hangs is told of every anchor. */
enum { UNREAD_SAID_MS = 60000 };

/* A trainer that does not read loses messages, and finds the truth in the shared memory. */
static void send_message(struct attachment *a, const struct ipc_message *message, int fd)
{
    if (a->socket >= 0 && ipc_send(a->socket, message, fd) == ERR_AGAIN &&
        log_limit_pass(&a->unread_said, a->now_ms, UNREAD_SAID_MS))
        log_warn("the trainer does not read its messages (%s was dropped; the shared memory has the truth)",
                 ipc_type_name(message->type));
}

void attachment_wake(struct attachment *a, uint32_t f)
{
    struct ipc_message message = {.type = IPC_WAKE, .fragment = f};
    send_message(a, &message, -1);
}

static void post(struct attachment *a, enum event_type type, uint32_t f)
{
    event_post(a->conf.events, &(struct event){.type = type, .fragment = f});
}

static void post_sync(struct attachment *a, enum sync_event_type type, uint32_t f, uint64_t version)
{
    event_post_sync(a->conf.events, &(struct sync_event){.type = type, .fragment = f, .version = version});
}

/* ---- the end of an attachment ---- */

/* The trainer is gone; its memory goes when no job is at it. */
static void close_attachment(struct attachment *a)
{
    bool was_training = a->phase == TRAINING;
    close_fd(&a->socket);
    close_fd(&a->pidfd);
    introduction_close_memory(&a->introduction);
    a->phase = NONE;
    a->closing = true;
    a->wait_said = false;
    for (uint32_t f = 0; a->fragments != NULL && f < fragments_of(a); f++) {
        a->fragments[f].stands_ms = 0;
        if (!a->fragments[f].up)
            continue;
        a->fragments[f].up = false;
        post_sync(a, SYNC_EV_TRAINER_DOWN, f, 0);
    }
    if (was_training && !a->counted)
        log_warn("the trainer (pid %" PRIu32 ") is gone; rounds go on without it", a->pid);
    tally_save(&a->tally, a->report.tokens);
    post(a, EVENT_ANNOUNCE, 0);
}

void attachment_refuse(struct attachment *a, const char *reason)
{
    struct ipc_message message = {.type = IPC_REFUSED};
    snprintf(message.text, sizeof message.text, "%.*s", (int)sizeof message.text - 1, reason);
    log_error("the trainer is refused: %s", reason);
    send_message(a, &message, -1);
    close_attachment(a);
}

/* ---- set-up ---- */

enum err attachment_new(const struct trainer_conf *conf, struct attachment **out)
{
    struct attachment *a;
    *out = NULL;
    TRY(mem_new(1, sizeof *a, "the trainer's socket", &a));
    a->conf = *conf;
    a->now_ms = conf->start_ms;
    a->listen_fd = a->socket = a->turned_away = a->pidfd = -1;
    introduction_init(&a->introduction);
    enum err err = tally_init(&a->tally, conf->conf->state_folder);
    a->tally.jobs = conf->jobs;
    if (err == ERR_OK)
        err = door_open(conf->conf, &a->path, &a->listen_fd);
    if (err != ERR_OK)
        attachment_free(a);
    else
        *out = a;
    return err;
}

/* ---- memory of a trainer that is gone ---- */

struct attachment_memory {
    struct job job;
    struct attachment *attachment;
    struct shared *shared;
    struct attachment_memory *next;
};

static enum err run_unmap(struct job *job, struct jobs_scratch *scratch)
{
    struct attachment_memory *memory = (struct attachment_memory *)(void *)job;
    (void)scratch;
    shared_unmap(memory->shared);
    return ERR_OK;
}

static void free_memory(struct attachment_memory *memory)
{
    shared_free(memory->shared);
    mem_free(memory);
}

static void done_unmap(struct job *job)
{
    struct attachment_memory *memory = (struct attachment_memory *)(void *)job;
    struct attachment_memory **link = &memory->attachment->left;
    while (*link != memory)
        link = &(*link)->next;
    *link = memory->next;
    free_memory(memory);
}

/* By a job: the kernel clears page by page away, and the loop must not stand for it. */
static void unmap_later(struct attachment *a, struct shared *shared)
{
    struct attachment_memory *memory = NULL;
    if (shared == NULL || a->conf.jobs == NULL || mem_new(1, sizeof *memory, "a trainer's memory", &memory) != ERR_OK) {
        shared_free(shared);
        return;
    }
    *memory =
        (struct attachment_memory){.job = {.work = JOBS_STATES, .run = run_unmap, .done = done_unmap}, .attachment = a};
    memory->shared = shared;
    memory->next = a->left;
    a->left = memory;
    jobs_submit(a->conf.jobs, &memory->job);
}

static void drop_shared(struct attachment *a)
{
    unmap_later(a, a->shared);
    mem_free(a->fragments);
    a->shared = NULL;
    a->fragments = NULL;
}

void attachment_free(struct attachment *a)
{
    if (a == NULL)
        return;
    shared_free(a->shared);
    mem_free(a->fragments);
    while (a->left != NULL) { /* jobs have ended, or will not begin */
        struct attachment_memory *memory = a->left;
        a->left = memory->next;
        free_memory(memory);
    }
    introduction_deinit(&a->introduction);
    close_fd(&a->socket);
    close_fd(&a->pidfd);
    close_fd(&a->turned_away);
    if (a->listen_fd >= 0 && a->path != NULL)
        unlink(a->path);
    close_fd(&a->listen_fd);
    mem_free(a->path);
    tally_deinit(&a->tally);
    mem_free(a);
}

void attachment_plan_known(struct attachment *a, const struct trainer_plan *plan)
{
    a->plan = *plan;
}

static bool pinned(const struct attachment *a)
{
    return a->shared != NULL && shared_pinned(a->shared);
}

size_t attachment_poll(const struct attachment *a, struct pollfd *items, size_t items_max)
{
    size_t count = 0;
    if (items_max < POLLED)
        return 0;
    if (a->socket >= 0)
        items[count++] = (struct pollfd){.fd = a->socket, .events = POLLIN};
    if (a->pidfd >= 0)
        items[count++] = (struct pollfd){.fd = a->pidfd, .events = POLLIN};
    if (a->socket >= 0 ? a->turned_away < 0 : !pinned(a))
        items[count++] = (struct pollfd){.fd = a->listen_fd, .events = POLLIN};
    return count;
}

/* ---- from registered to training ---- */

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
    uint32_t id = a->conf.view->members[a->conf.view->self].as.id;
    return dedup_since(replica_counted(a->plan.replica, f), id, version);
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
    post_sync(a, SYNC_EV_TRAINER_UP, f, resumed.base_version);
    if (resumed.snapshot)
        post_sync(a, SYNC_EV_SNAPSHOT, f, 0);
    return ERR_OK;
}

/* Whether all fragments stand still here; refuses a trainer that there is nothing to go on with for. */
static bool ready_to_resume(struct attachment *a)
{
    bool ready = true;
    for (uint32_t f = 0; f < fragments_of(a); f++) {
        bool known = sync_known(a->plan.sync, f);
        ready &= known && sync_state(a->plan.sync, f) == SYNC_LISTENING;
        if (known || to_be_had(a, f))
            continue;
        attachment_refuse(a, "this daemon has no state to go on from; start the trainer anew");
        return false;
    }
    return ready;
}

static enum err take_over_memory(struct attachment *a)
{
    struct shared_conf conf = shared_conf_of(a);
    int fd = introduction_take_memory(&a->introduction);
    TRY(shared_adopt(&conf, fd, a->introduction.hello.session, &a->shared));
    shared_run(a->shared, a->paused);
    return mem_new(fragments_of(a), sizeof *a->fragments, "the trainer's fragments", &a->fragments);
}

/* Its trainer trains on meanwhile: what is being applied, fetched or repaired comes first. */
static void resume_trainer(struct attachment *a)
{
    if (!ready_to_resume(a))
        return;
    if (take_over_memory(a) != ERR_OK) {
        attachment_refuse(a, err_text());
        return;
    }
    const struct ipc_hello *hello = &a->introduction.hello;
    a->report.step = step_of(a, hello->step);
    a->report.tokens = hello->tokens; /* these among them */
    tally_resume(&a->tally);
    log_info("trainer %s (pid %" PRIu32 ") is attached again at step %" PRIu64, hello->trainer, a->pid, hello->step);
    for (uint32_t f = 0; f < fragments_of(a) && a->phase == RESUMING; f++)
        if (resume_fragment(a, f) != ERR_OK)
            attachment_refuse(a, err_text());
    if (a->phase != RESUMING)
        return;
    /* Not before: until then it moves no word, so that they are as they were read. */
    struct ipc_message message = welcome_of(a, false, true);
    send_message(a, &message, -1);
    a->phase = TRAINING;
    a->ready_ms = a->now_ms;
}

/* ---- attaching for the first time ---- */

/* Whether the run's initial tensors are others' to bring: it was there before us, and our trainer may begin from other
 * ones. Who takes part from the beginning brings its own, which should be the same. */
static bool joins(const struct attachment *a)
{
    uint8_t role = a->conf.view->members[a->conf.view->self].as.role;
    return role != CONFIG_OWNER && role != CONFIG_CONTRIBUTOR;
}

/* Whether there is a state to start from. A peer at version 0 has no more than its trainer's initial tensors, which are
 * the run's to who joins. */
static bool run_has_begun(const struct attachment *a)
{
    for (uint32_t f = 0; f < fragments_of(a); f++) {
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
    shared_run(a->shared, a->paused);
    return mem_new(fragments_of(a), sizeof *a->fragments, "the trainer's fragments", &a->fragments);
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
        attachment_refuse(a, err_text());
        return;
    }
    struct ipc_message message = welcome_of(a, !begun, false);
    bool kept = begun && a->introduction.hello.kept != 0;
    message.welcome.need_kept = kept;
    a->report.tokens = kept ? a->introduction.hello.tokens : 0;
    tally_begin(&a->tally, a->report.tokens);
    tally_save(&a->tally, a->report.tokens);
    a->phase = kept ? KEEPING : begun ? STARTING : INITIAL;
    send_message(a, &message, shared_fd(a->shared));
}

void attachment_accept(struct attachment *a, const char *other_base)
{
    if (a->phase != REGISTERED)
        return;
    snprintf(a->introduction.other_base, sizeof a->introduction.other_base, "%s", other_base);
    if (a->plan.plan == NULL) {
        attachment_refuse(a, "this daemon does not know the run's tensors");
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

/* IPC_INITIAL: its tensors are in the base areas. */
static void initial_in(struct attachment *a)
{
    if (a->phase == KEEPING)
        a->phase = STARTING;
    if (a->phase != INITIAL || a->initial_left > 0)
        return;
    a->phase = STARTING;
    for (uint32_t f = 0; f < fragments_of(a); f++) {
        /* A peer's state may have come, or be on its way: the run has begun there, and that one counts. */
        if (sync_known(a->plan.sync, f) || sync_state(a->plan.sync, f) == SYNC_REPAIR)
            continue;
        a->initial_left++;
        post_start(a, f, true);
    }
}

bool attachment_without_initial(const struct attachment *a)
{
    return a->introduction.hello.without_initial != 0 || joins(a);
}

bool attachment_initialising(const struct attachment *a)
{
    return a->initial_left > 0;
}

/* ---- starting: fragments are brought as they become known; then the trainer goes ---- */

void attachment_started(struct attachment *a, uint32_t f, bool initial)
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
    post_sync(a, SYNC_EV_TRAINER_UP, f, version);
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
            attachment_refuse(a, err_text());
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

/* Whether what the others have is not to be had: without a majority nobody certifies it. Then training goes on from
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
    for (uint32_t f = 0; f < fragments_of(a); f++) {
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
        post(a, EVENT_READY, 0);
    a->ready_said |= all;
}

static void tell_absent(const struct attachment *a)
{
    for (uint32_t i = 0; i < a->conf.view->count; i++)
        if (i != a->conf.view->self && sync_awaits(a->plan.sync, i) && !sync_up(a->plan.sync, i))
            log_warn("island %s is not here; no round closes without it, and what is trained meanwhile goes out when "
                     "it comes (%s status says what is known)",
                     a->conf.view->members[i].as.name, as_typed());
}

static bool keeps_any(const struct attachment *a)
{
    for (uint32_t f = 0; f < fragments_of(a); f++)
        if (a->fragments[f].kept)
            return true;
    return false;
}

void attachment_go(struct attachment *a, uint64_t step)
{
    struct ipc_message message = {.type = IPC_GO};
    uint64_t version = 0;
    if (a->phase != STARTING)
        return;
    for (uint32_t f = 0; f < fragments_of(a); f++) {
        uint64_t own = sync_own(a->plan.sync, f).version;
        version = own > version ? own : version;
    }
    /* Before the first result everyone is at the beginning; later, where this island was or the run is. */
    if (version > 0 && a->own_step > step)
        step = a->own_step;
    uint64_t kept_step = step_of(a, a->introduction.hello.step);
    if (keeps_any(a) && kept_step > step)
        step = kept_step;
    step = step_of(a, step); /* results may be of before the run was made shorter */
    shared_go(a->shared, step);
    message.go = (struct ipc_go){.step = step,
                                 .version = version,
                                 .tokens = tally_trained(&a->tally, a->report.tokens),
                                 .tokens_counted = tally_counted(&a->tally)};
    send_message(a, &message, -1);
    a->phase = TRAINING;
    a->ready_ms = a->now_ms;
    a->report.step = step;
    post(a, EVENT_ANNOUNCE, 0);
    log_info("training goes on after step %" PRIu64 " from version %" PRIu64 "%s", step, version,
             keeps_any(a) ? ", with what it had kept" : "");
    tell_absent(a);
}

static void go_on_arriving(struct attachment *a)
{
    if (a->phase == RESUMING)
        resume_trainer(a);
    else if (a->phase == WELCOMING)
        welcome(a);
    else if (a->phase == STARTING && a->initial_left == 0)
        start_fragments(a);
}

/* ---- coming ---- */

static bool accept_trainer(struct attachment *a)
{
    if (pinned(a))
        return false;
    int fd = accept4(a->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0)
        return false;
    drop_shared(a);
    a->socket = fd;
    a->phase = REGISTERING;
    a->closing = a->finishing = a->counted = a->leave = a->ends = a->ready_said = a->end_said = false;
    a->open_ms = 0;
    introduction_forget(&a->introduction);
    tally_end(&a->tally, a->report.tokens);
    a->report_ms = a->ready_ms = a->waits_ms = 0;
    a->step_s = 0;
    a->slowest_ms = a->done_step = 0;
    a->report = (struct ipc_report){0};
    if (!door_admits(a->conf.conf, fd, &a->pid))
        attachment_refuse(a, "only root, the daemon's own user and the group that [worker] group names may attach a "
                             "trainer");
    else
        a->pidfd = door_watch(a->pid);
    return true;
}

/* Two trainers on one socket are a mistake; the second is told so, rather than left waiting for the end of the first.
 */
static void turn_away_second(struct attachment *a)
{
    struct pollfd first = {.fd = a->socket};
    /* One that has just closed is still to be read to its end: whoever comes now may be the same trainer again. */
    if (a->turned_away >= 0 || (poll(&first, 1, 0) > 0 && first.revents != 0))
        return;
    int fd = accept4(a->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0)
        return;
    struct ipc_message message = {.type = IPC_REFUSED};
    snprintf(message.text, sizeof message.text,
             "the trainer with pid %" PRIu32 " is attached already, and an island has one; end that one first "
             "(%s pause)",
             a->pid, as_typed());
    log_warn("a second trainer is turned away: %s", message.text);
    if (ipc_send(fd, &message, -1) != ERR_OK)
        log_debug("a second trainer was gone before it was told: %s", err_text());
    a->turned_away = fd;
    a->turned_away_ms = a->now_ms;
}

const struct ipc_tensor *attachment_tensors(const struct attachment *a, uint32_t *count)
{
    *count = a->introduction.tensors_count;
    return a->introduction.tensors;
}

bool attachment_registered(const struct attachment *a)
{
    return a->phase == REGISTERED;
}

/* What makes no sense ends the attachment. */
static void refuse_unless(struct attachment *a, enum err err)
{
    if (err != ERR_OK)
        attachment_refuse(a, err_text());
}

static void registered_in(struct attachment *a)
{
    refuse_unless(a, introduction_end(&a->introduction));
    if (a->phase != REGISTERING)
        return;
    a->phase = REGISTERED;
    post(a, EVENT_REGISTERED, 0);
}

/* ---- what a training trainer says ---- */

/* What one report adds to the smoothed time of a step. */
static const double step_share = 0.1;

/* The first one, in which a program may be compiled, too. */
static void note_slowest(struct attachment *a, uint64_t step)
{
    uint64_t since_ms = a->report_ms > 0 ? a->report_ms : a->ready_ms;
    if (since_ms == 0 || a->waits_ms > 0 || a->stood || step <= a->report.step)
        return;
    uint64_t ms = (a->now_ms - since_ms) / (step - a->report.step);
    a->slowest_ms = ms > a->slowest_ms ? ms : a->slowest_ms;
}

static void measure_step(struct attachment *a, uint64_t step)
{
    if (a->report_ms == 0 || a->stood || step <= a->report.step)
        return;
    double step_s = (double)(a->now_ms - a->report_ms) / 1000 / (double)(step - a->report.step);
    a->step_s = a->step_s > 0 ? a->step_s + step_share * (step_s - a->step_s) : step_s;
}

/* A loss that is 0 or no number is not said. */
static void losses_note(struct losses *losses, uint64_t step, double loss)
{
    losses->said[step % LOSSES_KEPT].step = step;
    losses->said[step % LOSSES_KEPT].loss = isfinite(loss) ? loss : 0;
}

static void report_in(struct attachment *a, const struct ipc_report *report)
{
    uint64_t step = step_of(a, report->step);
    note_slowest(a, step);
    measure_step(a, step);
    a->stood = a->paused;
    a->report = *report;
    a->report.step = step;
    if (!isfinite(report->loss))
        a->report.loss = NAN;
    losses_note(&a->losses, step, report->loss);
    if (!isfinite(report->grad_norm))
        a->report.grad_norm = NAN;
    if (!isfinite(report->tokens_per_s) || !isfinite(report->lr))
        a->report.tokens_per_s = a->report.lr = 0;
    a->report_ms = a->now_ms;
    if (report->trained > 0)
        tally_unfinished(&a->tally, true, a->report.tokens);
    if (step > a->own_step)
        a->own_step = step;
}

void attachment_publish(struct attachment *a, uint32_t f)
{
    if (!shared_publish(a->shared, f))
        return;
    shared_pin(a->shared);
    post(a, EVENT_FILL, f);
}

/* A trainer that attached again may say what its words have told already, and one that means harm says anything at any
 * time: what has no place in a fragment's state is not heard. */
static void post_in_turn(struct attachment *a, enum sync_event_type type, uint32_t f)
{
    enum sync_state state = sync_state(a->plan.sync, f);
    bool out_of_turn = state == SYNC_LISTENING || (type == SYNC_EV_SNAPSHOT && state == SYNC_MIXING) ||
                       (type == SYNC_EV_SETTLED && (state == SYNC_ENCODING || state == SYNC_CONTRIBUTED));
    if (!out_of_turn)
        post_sync(a, type, f, 0);
}

/* A report may be lost where the socket is full, and what a snapshot holds may be counted before the next one comes:
 * its tokens are as much the trainer's word. */
static void note_tokens(struct attachment *a, uint32_t f)
{
    struct replica_snapshot snapshot;
    shared_snapshot(a->shared, f, &snapshot);
    if (snapshot.tokens > a->report.tokens)
        a->report.tokens = snapshot.tokens;
}

static void word_said(struct attachment *a, uint32_t f, enum shared_news news)
{
    switch (news) {
    case SHARED_NOTHING: break;
    case SHARED_PUBLISH: attachment_publish(a, f); break;
    case SHARED_MIXED: post_in_turn(a, SYNC_EV_MIXED, f); break;
    case SHARED_SNAPSHOT:
        note_tokens(a, f);
        if (a->fragments[f].up)
            post_in_turn(a, SYNC_EV_SNAPSHOT, f);
        break;
    }
}

static void counted_in(struct attachment *a, const struct ipc_report *report)
{
    a->counted = true;
    a->done_step = report->step;
    if (!a->leave) /* it may be started again */
        tally_unfinished(&a->tally, false, a->report.tokens);
    log_info("the trainer is done: its last contributions are counted");
    post(a, EVENT_FINISHED, 0);
    post(a, EVENT_ANNOUNCE, 0);
}

static void settled_in(struct attachment *a, uint32_t f, const struct ipc_settled *settled)
{
    a->finishing = true;
    a->ends |= settled->ends != 0;
    if (a->phase == TRAINING && a->fragments[f].up)
        post_in_turn(a, SYNC_EV_SETTLED, f);
}

static void dispatch(struct attachment *a, const struct ipc_message *message, int fd)
{
    bool training = a->phase == TRAINING;
    uint32_t f = message->fragment;
    if (f >= fragments_of(a) && f != 0) {
        attachment_refuse(a, "a message about a fragment that does not exist");
        return;
    }
    switch (message->type) {
    case IPC_HELLO: refuse_unless(a, introduction_hello(&a->introduction, &message->hello, fd)); return;
    case IPC_TENSOR:
        if (a->phase == REGISTERING)
            refuse_unless(a, introduction_tensor(&a->introduction, &message->tensor));
        return;
    case IPC_REGISTERED:
        if (a->phase == REGISTERING)
            registered_in(a);
        return;
    case IPC_INITIAL: initial_in(a); return;
    case IPC_SETTLED: settled_in(a, f, &message->settled); return;
    case IPC_TAKEN:
    case IPC_MIXED:
    case IPC_REPORT:
    case IPC_FINISHED: break;
    default: attachment_refuse(a, "a message that a trainer does not send"); return;
    }
    /* One that kept work mixes newer anchors in before it goes on. */
    bool mixes = a->phase == STARTING && message->type == IPC_MIXED && a->fragments[f].kept && a->fragments[f].up;
    if (!training && !mixes)
        return;
    if (message->type == IPC_REPORT)
        report_in(a, &message->report);
    else if (message->type == IPC_FINISHED)
        counted_in(a, &message->report);
    else
        word_said(a, f, message->type == IPC_TAKEN ? shared_taken(a->shared, f) : shared_mixed(a->shared, f));
}

/* All that it has said was read: it is gone, though a process that it has forked may still hold its socket. */
static bool has_ended(struct attachment *a)
{
    struct pollfd item = {.fd = a->pidfd, .events = POLLIN};
    if (a->pidfd < 0 || poll(&item, 1, 0) != 1)
        return false;
    close_attachment(a);
    return true;
}

bool attachment_take(struct attachment *a, uint64_t now_ms)
{
    struct ipc_message message;
    int fd;
    a->now_ms = now_ms;
    if (a->socket < 0)
        return accept_trainer(a);
    enum err err = ipc_recv(a->socket, &message, &fd);
    if (err == ERR_AGAIN) {
        if (!has_ended(a))
            turn_away_second(a);
        return a->socket < 0;
    }
    if (err == ERR_PROTO)
        attachment_refuse(a, err_text());
    else if (err != ERR_OK)
        close_attachment(a);
    else
        dispatch(a, &message, fd);
    if (fd >= 0)
        close(fd);
    return true;
}

/* Who leaves the end of the run open. */
static void name_open(const struct attachment *a, const struct bitset *open, char *text, size_t text_bytes)
{
    snprintf(text, text_bytes, "not done when last heard:");
    for (uint32_t i = 0; i < a->conf.view->count; i++)
        if (bitset_has(open, i))
            snprintf(text + strlen(text), text_bytes - strlen(text), " %s", a->conf.view->members[i].as.name);
}

/* A trainer that is done waits for this, and so takes in what comes of rounds that others still make. */
static void tell_end(struct attachment *a, const struct run_end_found *found)
{
    enum run_end end = found->end;
    struct ipc_message message = {.type = IPC_END, .end = {.over = end == RUN_OVER}};
    if (end != RUN_OPEN)
        a->open_ms = 0;
    else if (a->open_ms == 0)
        a->open_ms = a->now_ms;
    if (end == RUN_GOES_ON || (end == RUN_OPEN && a->now_ms < a->open_ms + OPEN_PATIENCE_MS))
        return;
    if (end == RUN_OPEN)
        name_open(a, &found->open, message.end.why, sizeof message.end.why);
    a->end_said = ipc_send(a->socket, &message, -1) == ERR_OK; /* else again: it waits for this */
}

bool attachment_stands(const struct attachment *a, uint32_t f)
{
    return a->phase == TRAINING && !a->closing && a->report_ms > 0 && shared_stands(a->shared, f, a->report.step);
}

/* From its last report on, which it sends before it waits. */
static void note_waiting(struct attachment *a)
{
    bool stands = false;
    for (uint32_t f = 0; a->phase == TRAINING && !stands && f < fragments_of(a); f++)
        stands = attachment_stands(a, f);
    a->waits_ms = stands ? a->report_ms : 0;
}

void attachment_tick(struct attachment *a, uint64_t now_ms, bool peers_heard, const struct run_end_found *end)
{
    a->now_ms = now_ms;
    a->peers_heard = peers_heard;
    if (a->closing && !pinned(a)) {
        drop_shared(a);
        a->closing = false;
    }
    if (a->turned_away >= 0 && now_ms >= a->turned_away_ms + TURNED_AWAY_MS)
        close_fd(&a->turned_away);
    if (a->phase == TRAINING && !a->end_said && !a->ends) /* of one that ends the run is not over */
        tell_end(a, end);
    go_on_arriving(a);
    note_waiting(a);
    tally_tick(&a->tally, a->report.tokens, now_ms);
}

void attachment_run(struct attachment *a, bool paused)
{
    a->paused = paused;
    a->stood = a->stood || paused;
    if (attachment_shared(a) != NULL)
        shared_run(a->shared, paused);
}

void attachment_expect(struct attachment *a)
{
    if (a->phase == NONE) {
        a->counted = false;
        a->done_step = 0;
    }
}

bool attachment_leave(struct attachment *a, struct trainer_leaving *leaving)
{
    struct ipc_message message = {.type = IPC_LEAVE};
    if (a->phase != TRAINING || a->counted)
        return false;
    if (!a->leave) /* said again, it has no more time */
        a->leave_step = shared_leave(a->shared, a->report.step);
    a->leave = a->finishing = true;
    leaving->steps = a->leave_step > a->report.step ? a->leave_step - a->report.step : 0;
    leaving->seconds = (double)leaving->steps * a->step_s;
    send_message(a, &message, -1);
    return true;
}

/* ---- looking in ---- */

bool attachment_loss_at(const struct attachment *a, uint64_t step, double *loss)
{
    const struct losses *losses = &a->losses;
    *loss = losses->said[step % LOSSES_KEPT].loss;
    return losses->said[step % LOSSES_KEPT].step == step && *loss != 0;
}

struct shared *attachment_shared(const struct attachment *a)
{
    return a->closing ? NULL : a->shared;
}

struct shared *attachment_pinned(const struct attachment *a)
{
    return a->shared;
}

bool attachment_up(const struct attachment *a, uint32_t f)
{
    return a->fragments != NULL && a->fragments[f].up;
}

void attachment_counted(struct attachment *a, uint32_t f, uint64_t version, uint64_t shards, double share)
{
    if (share > 0)
        shared_share(a->shared, f, share);
    a->tally.counted += shared_counted(a->shared, f, shards);
    tally_note(&a->tally, f, version, shards);
}

void attachment_judged(struct attachment *a, uint32_t f, bool good)
{
    a->fragments[f].bad = good ? 0 : a->fragments[f].bad + 1;
}

static void count_bad(const struct attachment *a, struct trainer_info *info)
{
    for (uint32_t f = 0; a->phase == TRAINING && f < fragments_of(a); f++) {
        info->bad_fragments += a->fragments[f].bad > 0;
        info->bad_most = a->fragments[f].bad > info->bad_most ? a->fragments[f].bad : info->bad_most;
    }
}

/* Both factors are the trainer's word: their product may be larger than any number. */
static void rate_machine(struct trainer_info *info)
{
    double flops_per_s = info->machine.flops_per_token * info->tokens_per_s;
    if (!isfinite(flops_per_s) || flops_per_s <= 0)
        return;
    info->flops_per_s = flops_per_s;
    double mfu = info->machine.peak_flops > 0 ? flops_per_s / info->machine.peak_flops : 0;
    info->mfu = isfinite(mfu) ? mfu : 0;
}

/* One that has taken many times as long as a step takes says nothing of now. */
static bool rate_is_old(const struct attachment *a)
{
    double since_ms = (double)(a->now_ms - a->report_ms), usual_ms = 1000 * a->step_s * STEPS_STILL;
    return since_ms > STILL_MS && (a->waits_ms > 0 || (a->step_s > 0 && since_ms > usual_ms));
}

/* One that finishes says of each fragment when it is at its end: then of all it has contributed what it will. */
static bool unfinished(const struct attachment *a)
{
    bool at_end = a->phase == TRAINING && a->finishing && !a->leave && !a->ends;
    return !at_end && a->tally.unfinished;
}

struct trainer_info attachment_info(const struct attachment *a)
{
    struct trainer_info info = {.attached = a->phase != NONE,
                                .left = a->leave,
                                .counted = a->counted,
                                .training = a->phase == TRAINING && !a->counted,
                                .finishing = a->finishing || a->leave,
                                .unfinished = unfinished(a),
                                .pid = a->pid,
                                /* Of one that is done, as far as the run goes by now: it may have been beyond. */
                                .step = a->done_step > 0 ? step_of(a, a->done_step) : a->report.step,
                                .tokens = tally_trained(&a->tally, a->report.tokens),
                                .trained = a->report.trained,
                                .tokens_counted = tally_counted(&a->tally),
                                .loss = a->report.loss,
                                .tokens_per_s = rate_is_old(a) ? 0 : a->report.tokens_per_s,
                                .lr = a->report.lr,
                                .grad_norm = a->report.grad_norm,
                                .machine = a->introduction.hello.machine,
                                .other_base = a->introduction.other_base,
                                .ready_ms = a->ready_ms,
                                .report_ms = a->report_ms,
                                .slowest_ms = a->slowest_ms,
                                .waits_ms = a->waits_ms,
                                .paused = a->paused,
                                .done_step = a->done_step};
    count_bad(a, &info);
    rate_machine(&info);
    return info;
}
