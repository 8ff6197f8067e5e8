/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/trainer/attachment.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/as_typed.h"
#include "common/log.h"
#include "common/mem.h"
#include "daemon/trainer/arrival.h"
#include "daemon/trainer/attachment_core.h"
#include "daemon/trainer/door.h"

/* How long a second trainer has to read why it is turned away; how long somebody who is away may take to come back
 * before a trainer that is done goes without knowing the end. */
enum { TURNED_AWAY_MS = 2000, OPEN_PATIENCE_MS = 30000, POLLED = 3 };
/* A rate is none any more after so long without a step, if that is so many times as long as one takes. */
enum { STILL_MS = 3000, STEPS_STILL = 10 };

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
    attachment_core_close_fd(&a->socket);
    attachment_core_close_fd(&a->pidfd);
    attachment_core_close_fd(&a->turned_away);
    if (a->listen_fd >= 0 && a->path != NULL)
        unlink(a->path);
    attachment_core_close_fd(&a->listen_fd);
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

/* ---- saying ---- */

void attachment_wake(struct attachment *a, uint32_t f)
{
    attachment_core_wake(a, f);
}

void attachment_refuse(struct attachment *a, const char *reason)
{
    attachment_core_refuse(a, reason);
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
    tally_end(&a->tally, a->report.tokens);
    a->report_ms = a->ready_ms = a->waits_ms = 0;
    a->step_s = 0;
    a->slowest_ms = 0;
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
    attachment_core_post(a, EVENT_REGISTERED, 0);
}

/* ---- what a training trainer says ---- */

/* What one report adds to the smoothed time of a step. */
static const double step_share = 0.1;

/* The first one, in which a program may be compiled, too. */
static void note_slowest(struct attachment *a, uint64_t step)
{
    uint64_t since_ms = a->report_ms > 0 ? a->report_ms : a->ready_ms;
    if (since_ms == 0 || a->waits_ms > 0 || step <= a->report.step)
        return;
    uint64_t ms = (a->now_ms - since_ms) / (step - a->report.step);
    a->slowest_ms = ms > a->slowest_ms ? ms : a->slowest_ms;
}

static void measure_step(struct attachment *a, uint64_t step)
{
    if (a->report_ms == 0 || step <= a->report.step)
        return;
    double step_s = (double)(a->now_ms - a->report_ms) / 1000 / (double)(step - a->report.step);
    a->step_s = a->step_s > 0 ? a->step_s + step_share * (step_s - a->step_s) : step_s;
}

static void report_in(struct attachment *a, const struct ipc_report *report)
{
    uint64_t step = attachment_core_step(a, report->step);
    note_slowest(a, step);
    measure_step(a, step);
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
    if (step > a->own_step)
        a->own_step = step;
}

void attachment_give(struct attachment *a, uint32_t f)
{
    if (!shared_give(a->shared, f))
        return;
    shared_pin(a->shared);
    attachment_core_post(a, EVENT_FILL, f);
}

/* A trainer that attached again may say what its words have told already, and one that means harm says anything at any
 * time: what has no place in a fragment's state is not heard. */
static void post_in_turn(struct attachment *a, enum sync_event_type type, uint32_t f)
{
    enum sync_state state = sync_state(a->plan.sync, f);
    bool out_of_turn = state == SYNC_LISTENING || (type == SYNC_EV_SNAPSHOT && state == SYNC_MIXING) ||
                       (type == SYNC_EV_SETTLED && (state == SYNC_ENCODING || state == SYNC_CONTRIBUTED));
    if (!out_of_turn)
        attachment_core_post_sync(a, type, f, 0);
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
    case SHARED_GIVE: attachment_give(a, f); break;
    case SHARED_MIXED: post_in_turn(a, SYNC_EV_MIXED, f); break;
    case SHARED_SNAPSHOT:
        note_tokens(a, f);
        if (a->fragments[f].up)
            post_in_turn(a, SYNC_EV_SNAPSHOT, f);
        break;
    }
}

static void counted_in(struct attachment *a)
{
    a->counted = true;
    log_info("the trainer is done: its last contributions are counted");
    attachment_core_post(a, EVENT_FINISHED, 0);
    attachment_core_post(a, EVENT_ANNOUNCE, 0);
}

static void settled_in(struct attachment *a, uint32_t f)
{
    a->finishing = true;
    if (a->phase == TRAINING && a->fragments[f].up)
        post_in_turn(a, SYNC_EV_SETTLED, f);
}

static void dispatch(struct attachment *a, const struct ipc_message *message, int fd)
{
    bool training = a->phase == TRAINING;
    uint32_t f = message->fragment;
    if (f >= attachment_core_fragments(a) && f != 0) {
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
    case IPC_INITIAL: arrival_initial(a); return;
    case IPC_SETTLED: settled_in(a, f); return;
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
        counted_in(a);
    else
        word_said(a, f, message->type == IPC_TAKEN ? shared_taken(a->shared, f) : shared_mixed(a->shared, f));
}

/* All that it has said was read: it is gone, though a process that it has forked may still hold its socket. */
static bool has_ended(struct attachment *a)
{
    struct pollfd item = {.fd = a->pidfd, .events = POLLIN};
    if (a->pidfd < 0 || poll(&item, 1, 0) != 1)
        return false;
    attachment_core_close(a);
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
        attachment_core_close(a);
    else
        dispatch(a, &message, fd);
    if (fd >= 0)
        close(fd);
    return true;
}

/* Who leaves the end of the run open. */
static void name_absent(const struct attachment *a, char *text, size_t text_bytes)
{
    uint32_t fragments_count = attachment_core_fragments(a);
    snprintf(text, text_bytes, "away, and not done when last heard:");
    for (uint32_t i = 0; i < a->conf.view->count; i++)
        if (run_end_waits_for(a->plan.sync, a->conf.view, fragments_count, i) && !sync_up(a->plan.sync, i))
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

bool attachment_stands(const struct attachment *a, uint32_t f)
{
    return a->phase == TRAINING && !a->closing && a->report_ms > 0 && shared_stands(a->shared, f, a->report.step);
}

/* From its last report on, which it sends before it waits. */
static void note_waiting(struct attachment *a)
{
    bool stands = false;
    for (uint32_t f = 0; a->phase == TRAINING && !stands && f < attachment_core_fragments(a); f++)
        stands = attachment_stands(a, f);
    a->waits_ms = stands ? a->report_ms : 0;
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
        attachment_core_close_fd(&a->turned_away);
    if (a->phase == TRAINING && !a->end_said)
        tell_end(a, end);
    arrival_tick(a);
    note_waiting(a);
    tally_tick(&a->tally, a->report.tokens, now_ms);
}

void attachment_expect(struct attachment *a)
{
    if (a->phase == NONE)
        a->counted = false;
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
    attachment_core_send(a, &message, -1);
    return true;
}

/* ---- looking in ---- */

bool attachment_loss_at(const struct attachment *a, uint64_t step, double *loss)
{
    return losses_at(&a->losses, step, loss);
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
    for (uint32_t f = 0; a->phase == TRAINING && f < attachment_core_fragments(a); f++) {
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

struct trainer_info attachment_info(const struct attachment *a)
{
    struct trainer_info info = {.attached = a->phase != NONE,
                                .left = a->leave,
                                .counted = a->counted,
                                .training = a->phase == TRAINING && !a->counted,
                                .finishing = a->finishing || a->leave,
                                .pid = a->pid,
                                .step = a->report.step,
                                .tokens = tally_trained(&a->tally, a->report.tokens),
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
                                .waits_ms = a->waits_ms};
    count_bad(a, &info);
    rate_machine(&info);
    return info;
}
