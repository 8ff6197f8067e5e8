#include "daemon/trainer/attachment.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/log.h"
#include "common/mem.h"
#include "daemon/state/results.h"
#include "daemon/trainer/door.h"
#include "daemon/trainer/introduction.h"
#include "daemon/trainer/shared.h"

/* PEERS_PATIENCE: how long a first trainer waits for the peers to be heard, so that a run under way is not begun anew.
 */
enum { PEERS_PATIENCE_MS = 3000, TURNED_AWAY_MS = 2000, POLLED = 2 };
/* How long somebody who is away may take to come back before a trainer that is done goes without knowing the end. */
enum { OPEN_PATIENCE_MS = 30000 };

enum attachment_phase { NONE, REGISTERING, REGISTERED, RESUMING, WELCOMING, INITIAL, STARTING, TRAINING };

struct attachment_fragment {
    bool up;       /* the core knows of the trainer */
    bool starting; /* its base is being brought */
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
    struct introduction introduction;
    struct shared *shared;
    struct attachment_fragment *fragments; /* [fragments of the plan] */
    bool closing;                          /* the trainer is gone; the memory goes when nothing is pinned */
    uint32_t initial_left;                 /* jobs that take its initial tensors over */
    bool ready_said;
    bool leave, finishing, counted;
    bool end_said;
    uint64_t open_ms;  /* since when nobody but those who are away is waited for; 0: others are */
    uint64_t own_step; /* highest step a trainer of ours reported */
    struct ipc_report report;
    uint64_t report_ms;
    uint64_t tokens_before; /* by trainers before this one since the daemon started */
    uint64_t tokens_last;   /* by the last of them, while it is not known whether this one is the same */
};

static uint32_t fragments_of(const struct attachment *a)
{
    return a->plan.plan != NULL ? a->plan.plan->plan->fragments_count : 0;
}

/* ---- set-up ---- */

enum err attachment_new(const struct trainer_conf *conf, struct attachment **out)
{
    struct attachment *a;
    *out = NULL;
    TRY(mem_new(1, sizeof *a, "the trainer's socket", &a));
    a->conf = *conf;
    a->now_ms = conf->start_ms;
    a->listen_fd = a->socket = a->turned_away = -1;
    introduction_init(&a->introduction);
    enum err err = door_open(conf->conf, &a->path, &a->listen_fd);
    if (err != ERR_OK)
        attachment_free(a);
    else
        *out = a;
    return err;
}

static void close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

static void drop_shared(struct attachment *a)
{
    shared_free(a->shared);
    mem_free(a->fragments);
    a->shared = NULL;
    a->fragments = NULL;
}

void attachment_free(struct attachment *a)
{
    if (a == NULL)
        return;
    drop_shared(a);
    introduction_deinit(&a->introduction);
    close_fd(&a->socket);
    close_fd(&a->turned_away);
    if (a->listen_fd >= 0 && a->path != NULL)
        unlink(a->path);
    close_fd(&a->listen_fd);
    mem_free(a->path);
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
    if (a->socket >= 0 ? a->turned_away < 0 : !pinned(a))
        items[count++] = (struct pollfd){.fd = a->listen_fd, .events = POLLIN};
    return count;
}

/* ---- saying ---- */

static void send_message(struct attachment *a, const struct ipc_message *message, int fd)
{
    if (a->socket >= 0 && ipc_send(a->socket, message, fd) == ERR_AGAIN)
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

static void close_attachment(struct attachment *a)
{
    bool was_training = a->phase == TRAINING;
    close_fd(&a->socket);
    introduction_close_memory(&a->introduction);
    a->phase = NONE;
    a->closing = true;
    for (uint32_t f = 0; a->fragments != NULL && f < fragments_of(a); f++) {
        if (!a->fragments[f].up)
            continue;
        a->fragments[f].up = false;
        post_sync(a, SYNC_EV_TRAINER_DOWN, f, 0);
    }
    if (was_training && !a->counted)
        log_warn("the trainer (pid %" PRIu32 ") is gone; rounds go on without it", a->pid);
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
    a->closing = a->finishing = a->counted = a->leave = a->ready_said = a->end_said = false;
    a->open_ms = 0;
    introduction_forget(&a->introduction);
    a->tokens_last += a->report.tokens;
    a->report_ms = 0;
    a->report = (struct ipc_report){0};
    if (!door_admits(a->conf.conf, fd, &a->pid))
        attachment_refuse(a, "only root, the daemon's own user and the group that [worker] group names may attach a "
                             "trainer");
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
             "(dilococtl leave)",
             a->pid);
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

static struct ipc_message welcome_of(const struct attachment *a, bool need_initial, bool resumed)
{
    struct ipc_message message = {.type = IPC_WELCOME};
    message.welcome = (struct ipc_welcome){.session = shared_session(a->shared),
                                           .bytes = shared_bytes(a->shared),
                                           .need_initial = need_initial,
                                           .island_index = a->conf.view->self,
                                           .islands_count = a->conf.view->count,
                                           .resumed = resumed};
    snprintf(message.welcome.island, sizeof message.welcome.island, "%s", a->conf.conf->name);
    return message;
}

static struct shared_conf shared_conf_of(const struct attachment *a)
{
    return (struct shared_conf){
        .spec = a->conf.spec, .view = a->conf.view, .plan = a->plan.plan, .replica = a->plan.replica};
}

/* ---- attaching again ---- */

/* Whether anyone has, or is expected to have, the state of a fragment that is blank here. */
static bool to_be_had(const struct attachment *a, uint32_t f)
{
    for (uint32_t i = 0; i < a->conf.view->count; i++)
        if (i != a->conf.view->self && sync_heard(a->plan.sync, i, f).hash_known)
            return true;
    return a->now_ms < a->conf.start_ms + PEERS_PATIENCE_MS;
}

/* Brings the core and the words of a trainer that kept its memory together. */
static enum err resume_fragment(struct attachment *a, uint32_t f)
{
    struct shared_resumed resumed;
    TRY(shared_resume(a->shared, f, sync_own(a->plan.sync, f).version, &resumed));
    a->fragments[f].up = true;
    /* Its snapshot may have been counted by the round that closed while we were away. */
    if (resumed.in_flight) {
        struct bitset shards = replica_shards(a->plan.replica, f);
        struct bitset counted =
            results_counting(a->plan.ledger, f, resumed.base_version + 1, &shards, a->conf.view->self);
        shared_counted(a->shared, f, &counted);
    }
    post_sync(a, SYNC_EV_TRAINER_UP, f, resumed.base_version);
    if (resumed.snapshot)
        post_sync(a, SYNC_EV_SNAPSHOT, f, 0);
    attachment_wake(a, f);
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
    struct ipc_message message = welcome_of(a, false, true);
    send_message(a, &message, -1);
    a->phase = TRAINING;
    const struct ipc_hello *hello = &a->introduction.hello;
    a->report.step = hello->step;
    a->report.tokens = hello->tokens; /* these among them */
    a->tokens_last = 0;
    log_info("trainer %s (pid %" PRIu32 ") is attached again at step %" PRIu64, hello->trainer, a->pid, hello->step);
    for (uint32_t f = 0; f < fragments_of(a) && a->phase == TRAINING; f++)
        if (resume_fragment(a, f) != ERR_OK)
            attachment_refuse(a, err_text());
}

/* ---- attaching for the first time ---- */

/* Whether there is a state to start from. A peer at version 0 has no more than its trainer's initial tensors; ours
 * brings its own, which should be the same. */
static bool run_has_begun(const struct attachment *a)
{
    for (uint32_t f = 0; f < fragments_of(a); f++) {
        if (sync_known(a->plan.sync, f))
            return true;
        for (uint32_t i = 0; i < a->conf.view->count; i++)
            if (i != a->conf.view->self && sync_heard(a->plan.sync, i, f).version > 0)
                return true;
    }
    return false;
}

static enum err make_memory(struct attachment *a)
{
    struct shared_conf conf = shared_conf_of(a);
    TRY(shared_make(&conf, &a->shared));
    return mem_new(fragments_of(a), sizeof *a->fragments, "the trainer's fragments", &a->fragments);
}

static void welcome(struct attachment *a)
{
    bool begun = run_has_begun(a);
    if (!begun && !a->peers_heard && a->now_ms < a->conf.start_ms + PEERS_PATIENCE_MS)
        return;
    if (make_memory(a) != ERR_OK) {
        attachment_refuse(a, err_text());
        return;
    }
    struct ipc_message message = welcome_of(a, !begun, false);
    a->phase = begun ? STARTING : INITIAL;
    send_message(a, &message, shared_fd(a->shared));
}

void attachment_accept(struct attachment *a)
{
    if (a->phase != REGISTERED)
        return;
    if (a->plan.plan == NULL) {
        attachment_refuse(a, "this daemon does not know the run's tensors");
        return;
    }
    if (introduction_again(&a->introduction)) {
        a->phase = RESUMING;
        resume_trainer(a);
        return;
    }
    a->tokens_before += a->tokens_last; /* a new process counts from 0 */
    a->tokens_last = 0;
    log_info("trainer %s (pid %" PRIu32 ") registered %" PRIu32 " tensors", a->introduction.hello.trainer, a->pid,
             a->introduction.tensors_count);
    a->phase = WELCOMING;
    welcome(a);
}

static void post_start(struct attachment *a, uint32_t f, bool initial)
{
    shared_pin(a->shared);
    event_post(a->conf.events, &(struct event){.type = EVENT_START, .fragment = f, .start = {.initial = initial}});
}

static void initial_in(struct attachment *a)
{
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
    if (attachment_shared(a) == NULL || a->phase != STARTING)
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

static void start_fragments(struct attachment *a)
{
    const struct sync *sync = a->plan.sync;
    bool all = true;
    for (uint32_t f = 0; f < fragments_of(a); f++) {
        struct attachment_fragment *fragment = &a->fragments[f];
        if (fragment->up)
            continue;
        all = false;
        bool near = sync_own(sync, f).version + 1 >= sync_version_max(sync, f);
        if (fragment->starting || !near || !sync_known(sync, f) || sync_state(sync, f) != SYNC_LISTENING)
            continue;
        fragment->starting = true;
        post_start(a, f, false);
    }
    if (all && !a->ready_said)
        post(a, EVENT_READY, 0);
    a->ready_said |= all;
}

static void tell_absent(const struct attachment *a)
{
    for (uint32_t i = 0; i < a->conf.view->count; i++)
        if (i != a->conf.view->self && !sync_up(a->plan.sync, i))
            log_warn("island %s is not here; no round closes without it, and what is trained meanwhile goes out when "
                     "it comes (dilococtl status says what is known)",
                     a->conf.view->members[i].name);
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
    shared_go(a->shared, step);
    message.go = (struct ipc_go){.step = step, .version = version};
    send_message(a, &message, -1);
    a->phase = TRAINING;
    a->report.step = step;
    post(a, EVENT_ANNOUNCE, 0);
    log_info("training goes on after step %" PRIu64 " from version %" PRIu64, step, version);
    tell_absent(a);
}

/* ---- what a training trainer says ---- */

static void report_in(struct attachment *a, const struct ipc_report *report)
{
    a->report = *report;
    /* JSON has no NaN; a loss below zero says the same to whoever looks. */
    if (!isfinite(report->loss))
        a->report.loss = -1;
    if (!isfinite(report->grad_norm))
        a->report.grad_norm = -1;
    if (!isfinite(report->tokens_per_s) || !isfinite(report->lr))
        a->report.tokens_per_s = a->report.lr = 0;
    a->report_ms = a->now_ms;
    if (report->step > a->own_step)
        a->own_step = report->step;
}

void attachment_give(struct attachment *a, uint32_t f)
{
    switch (shared_give(a->shared, f, sync_own(a->plan.sync, f).version)) {
    case SHARED_FILL:
        shared_pin(a->shared);
        post(a, EVENT_FILL, f);
        break;
    case SHARED_THERE: attachment_wake(a, f); break;
    case SHARED_LATER: break;
    }
}

static void word_said(struct attachment *a, uint32_t f, enum shared_news news)
{
    switch (news) {
    case SHARED_NOTHING: break;
    case SHARED_GIVE: attachment_give(a, f); break;
    case SHARED_MIXED: post_sync(a, SYNC_EV_MIXED, f, 0); break;
    case SHARED_SNAPSHOT:
        if (a->fragments[f].up)
            post_sync(a, SYNC_EV_SNAPSHOT, f, 0);
        break;
    }
}

static void counted_in(struct attachment *a)
{
    a->counted = true;
    log_info("the trainer is done: its last contributions are counted");
    post(a, EVENT_FINISHED, 0);
    post(a, EVENT_ANNOUNCE, 0);
}

static void settled_in(struct attachment *a, uint32_t f)
{
    a->finishing = true;
    if (a->phase == TRAINING && a->fragments[f].up)
        post_sync(a, SYNC_EV_SETTLED, f, 0);
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
    case IPC_SETTLED: settled_in(a, f); return;
    case IPC_TAKEN:
    case IPC_MIXED:
    case IPC_REPORT:
    case IPC_FINISHED: break;
    default: attachment_refuse(a, "a message that a trainer does not send"); return;
    }
    if (!training)
        return;
    if (message->type == IPC_REPORT)
        report_in(a, &message->report);
    else if (message->type == IPC_FINISHED)
        counted_in(a);
    else
        word_said(a, f, message->type == IPC_TAKEN ? shared_taken(a->shared, f) : shared_mixed(a->shared, f));
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
        turn_away_second(a);
        return false;
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

static void name_absent(const struct attachment *a, char *text, size_t text_bytes)
{
    snprintf(text, text_bytes, "away, and not done when last heard:");
    for (uint32_t i = 0; i < a->conf.view->count; i++)
        if (i != a->conf.view->self && !sync_up(a->plan.sync, i))
            snprintf(text + strlen(text), text_bytes - strlen(text), " %s", a->conf.view->members[i].name);
}

/* A trainer that is done waits for this, and so takes in what comes of rounds that others still make. */
static void tell_end(struct attachment *a, enum run_end end)
{
    struct ipc_message message = {.type = IPC_END, .end = {.over = end == RUN_OVER}};
    if (end != RUN_OPEN)
        a->open_ms = 0;
    else if (a->open_ms == 0)
        a->open_ms = a->now_ms;
    if (end == RUN_GOES_ON || (end == RUN_OPEN && a->now_ms < a->open_ms + OPEN_PATIENCE_MS))
        return;
    if (end == RUN_OPEN)
        name_absent(a, message.end.why, sizeof message.end.why);
    a->end_said = ipc_send(a->socket, &message, -1) == ERR_OK; /* else again: it waits for this */
}

void attachment_tick(struct attachment *a, uint64_t now_ms, bool peers_heard, enum run_end end)
{
    a->now_ms = now_ms;
    a->peers_heard = peers_heard;
    if (a->closing && !pinned(a)) {
        drop_shared(a);
        a->closing = false;
    }
    if (a->turned_away >= 0 && now_ms >= a->turned_away_ms + TURNED_AWAY_MS)
        close_fd(&a->turned_away);
    if (a->phase == RESUMING)
        resume_trainer(a);
    else if (a->phase == WELCOMING)
        welcome(a);
    else if (a->phase == STARTING && a->initial_left == 0)
        start_fragments(a);
    else if (a->phase == TRAINING && !a->end_said)
        tell_end(a, end);
}

void attachment_expect(struct attachment *a)
{
    if (a->phase == NONE)
        a->counted = false;
}

bool attachment_leave(struct attachment *a)
{
    struct ipc_message message = {.type = IPC_LEAVE};
    if (a->phase != TRAINING || a->counted)
        return false;
    a->leave = a->finishing = true;
    shared_leave(a->shared);
    send_message(a, &message, -1);
    return true;
}

/* ---- looking in ---- */

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

struct trainer_info attachment_info(const struct attachment *a)
{
    return (struct trainer_info){.attached = a->phase != NONE,
                                 .left = a->leave,
                                 .counted = a->counted,
                                 .training = a->phase == TRAINING && !a->counted,
                                 .finishing = a->finishing || a->leave,
                                 .pid = a->pid,
                                 .step = a->report.step,
                                 .tokens = a->tokens_before + a->tokens_last + a->report.tokens,
                                 .loss = a->report.loss,
                                 .tokens_per_s = a->report.tokens_per_s,
                                 .lr = a->report.lr,
                                 .grad_norm = a->report.grad_norm,
                                 .report_ms = a->report_ms};
}
