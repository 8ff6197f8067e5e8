/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/trainer/trainer.h"

#include <inttypes.h>

#include "common/log.h"
#include "common/mem.h"
#include "daemon/trainer/attachment.h"
#include "daemon/trainer/process.h"
#include "daemon/trainer/shared.h"

enum err trainer_new(const struct trainer_conf *conf, struct trainer **out)
{
    struct trainer *trainer;
    *out = NULL;
    TRY(mem_new(1, sizeof *trainer, "the trainer", &trainer));
    trainer->conf = *conf;
    enum err err = attachment_new(conf, &trainer->attachment);
    if (err == ERR_OK)
        err = process_new(conf->conf, &trainer->process);
    if (err != ERR_OK)
        trainer_free(trainer);
    else
        *out = trainer;
    return err;
}

void trainer_free(struct trainer *trainer)
{
    if (trainer == NULL)
        return;
    process_free(trainer->process);
    attachment_free(trainer->attachment);
    mem_free(trainer);
}

void trainer_plan_known(struct trainer *trainer, const struct trainer_plan *plan)
{
    trainer->plan = *plan;
    attachment_plan_known(trainer->attachment, plan);
}

size_t trainer_poll(const struct trainer *trainer, struct pollfd *items, size_t items_max)
{
    size_t count = attachment_poll(trainer->attachment, items, items_max);
    return count + process_poll(trainer->process, items + count, items_max - count);
}

bool trainer_take(struct trainer *trainer, uint64_t now_ms)
{
    if (attachment_take(trainer->attachment, now_ms))
        return true;
    process_run(trainer->process, now_ms); /* after all it has said */
    return false;
}

/* Only one that was started here can be started again. */
static void look_for_hang(struct trainer *trainer, uint64_t now_ms)
{
    struct trainer_info info = attachment_info(trainer->attachment);
    uint64_t hang_ms = trainer->conf.conf->hang_ms;
    bool should_move =
        info.training && !info.finishing && !info.paused && info.waits_ms == 0 && process_running(trainer->process);
    if (!should_move || info.step != trainer->step || trainer->moved_ms == 0) {
        trainer->step = info.step;
        trainer->moved_ms = now_ms;
    } else if (hang_ms > 0 && now_ms > trainer->moved_ms + hang_ms) {
        process_hung(trainer->process, (double)(now_ms - trainer->moved_ms) / 1000);
        trainer->moved_ms = now_ms;
    }
}

bool trainer_outgrown(const struct trainer *trainer)
{
    struct trainer_info info = attachment_info(trainer->attachment);
    return info.counted && !info.left && info.done_step > 0 && info.done_step < runspec_length(trainer->conf.spec);
}

/* One that was done before the run was made longer. */
static void go_on(struct trainer *trainer, uint64_t now_ms)
{
    if (process_info(trainer->process).state != PROCESS_FINISHED || !trainer_outgrown(trainer))
        return;
    log_info("the run is %" PRIu64 " steps long now: the trainer goes on", runspec_length(trainer->conf.spec));
    if (trainer_join(trainer, now_ms) != ERR_OK)
        log_error("the trainer is not started: %s", err_text());
}

void trainer_run(struct trainer *trainer, bool paused)
{
    attachment_run(trainer->attachment, paused);
}

void trainer_tick(struct trainer *trainer, uint64_t now_ms, bool peers_heard, const struct run_end_found *end)
{
    attachment_tick(trainer->attachment, now_ms, peers_heard, end);
    process_tick(trainer->process, now_ms);
    look_for_hang(trainer, now_ms);
    go_on(trainer, now_ms);
    bool missing = process_running(trainer->process) && !attachment_info(trainer->attachment).attached;
    if (!missing)
        trainer->unattached_ms = 0;
    else if (trainer->unattached_ms == 0)
        trainer->unattached_ms = now_ms;
}

/* ---- answers ---- */

float *trainer_base(struct trainer *trainer, uint32_t f)
{
    return shared_base(attachment_pinned(trainer->attachment), f);
}

float *trainer_area(struct trainer *trainer, uint32_t f)
{
    return shared_area(attachment_pinned(trainer->attachment), f);
}

void trainer_started(struct trainer *trainer, uint32_t f, bool initial)
{
    shared_unpin(attachment_pinned(trainer->attachment));
    attachment_started(trainer->attachment, f, initial);
}

/* ---- the core's orders, and what rounds say ---- */

bool trainer_snapshot(struct trainer *trainer, uint32_t f, struct replica_snapshot *out)
{
    struct shared *shared = attachment_shared(trainer->attachment);
    if (shared == NULL)
        return false;
    shared_snapshot(shared, f, out);
    shared_pin(shared);
    return true;
}

void trainer_encoded(struct trainer *trainer, uint32_t f, enum err err)
{
    struct shared *shared = attachment_pinned(trainer->attachment);
    /* A good one makes up for whatever was wrong with the one before. */
    shared_void(shared, f, err != ERR_OK);
    attachment_judged(trainer->attachment, f, err == ERR_OK);
    shared_unpin(shared);
}

void trainer_counted(struct trainer *trainer, uint32_t f, uint64_t version, uint64_t shards, double share)
{
    struct shared *shared = attachment_shared(trainer->attachment);
    if (shared != NULL && attachment_up(trainer->attachment, f)) /* else whose work it was is gone */
        attachment_counted(trainer->attachment, f, version, shards, share);
}

void trainer_release(struct trainer *trainer, uint32_t f)
{
    struct shared *shared = attachment_shared(trainer->attachment);
    bool wake = false;
    if (shared == NULL)
        return;
    if (shared_release(shared, f, &wake) != ERR_OK)
        attachment_refuse(trainer->attachment, err_text());
    else if (wake)
        attachment_wake(trainer->attachment, f);
}

void trainer_publish(struct trainer *trainer, uint32_t f)
{
    if (attachment_shared(trainer->attachment) != NULL)
        attachment_publish(trainer->attachment, f);
}

void trainer_published(struct trainer *trainer, uint32_t f)
{
    shared_unpin(attachment_pinned(trainer->attachment));
    struct shared *shared = attachment_shared(trainer->attachment);
    if (shared == NULL)
        return;
    if (shared_published(shared, f, sync_anchor_version(trainer->plan.sync, f)) != ERR_OK)
        attachment_refuse(trainer->attachment, err_text());
    else
        attachment_wake(trainer->attachment, f);
}

void trainer_withdraw(struct trainer *trainer, uint32_t f)
{
    struct shared *shared = attachment_shared(trainer->attachment);
    if (shared != NULL && shared_withdraw(shared, f))
        event_post_sync(trainer->conf.events, &(struct sync_event){.type = SYNC_EV_WITHDRAWN, .fragment = f});
}

void trainer_run_step(struct trainer *trainer, uint64_t step)
{
    struct shared *shared = attachment_shared(trainer->attachment);
    if (shared != NULL)
        shared_run_step(shared, step);
}

void trainer_deal(struct trainer *trainer, const struct deal *deal)
{
    struct shared *shared = attachment_shared(trainer->attachment);
    if (shared != NULL)
        shared_deal(shared, deal);
}

/* ---- commands ---- */

enum err trainer_join(struct trainer *trainer, uint64_t now_ms)
{
    TRY(process_start(trainer->process, now_ms));
    attachment_expect(trainer->attachment);
    return ERR_OK;
}

enum err trainer_leave(struct trainer *trainer, struct trainer_leaving *leaving)
{
    *leaving = (struct trainer_leaving){0};
    struct trainer_info info = attachment_info(trainer->attachment);
    bool waiting = process_info(trainer->process).state == PROCESS_WAITING;
    if (info.paused && info.training && !info.finishing)
        return err_set(ERR_STATE,
                       "the run is paused, so the trainer stands still, and its last contributions do not become due; "
                       "--now ends it all the same");
    if (!waiting && !info.attached && !process_running(trainer->process))
        return err_set(ERR_STATE, "no trainer is running");
    process_leave(trainer->process);
    bool asked = attachment_leave(trainer->attachment, leaving);
    if (!asked)
        asked = process_end(trainer->process); /* it has contributed nothing yet, or all */
    if (!asked && !waiting && !info.counted)
        return err_set(ERR_STATE,
                       "the trainer (pid %" PRIu32
                       ") does not train yet, and this daemon did not start it; end it where it was started",
                       info.pid);
    return ERR_OK;
}

enum err trainer_leave_now(struct trainer *trainer, bool *killed)
{
    *killed = false;
    if (!process_running(trainer->process))
        return err_set(ERR_STATE, "no trainer that this daemon started is running");
    /* Who says it again has seen that it does not end. */
    *killed = process_info(trainer->process).ending;
    process_leave(trainer->process);
    if (*killed)
        process_kill(trainer->process);
    else
        process_end(trainer->process);
    return ERR_OK;
}

/* ---- looking in ---- */

static enum trainer_phase phase_of_process(enum process_state state)
{
    switch (state) {
    case PROCESS_NONE: return TRAINER_NONE;
    case PROCESS_STOPPED: return TRAINER_STOPPED;
    case PROCESS_RUNNING: return TRAINER_STARTING;
    case PROCESS_LEAVING: return TRAINER_LEAVING;
    case PROCESS_WAITING: return TRAINER_RESTARTING;
    case PROCESS_ENDED: return TRAINER_ENDED;
    case PROCESS_FINISHED: return TRAINER_FINISHED;
    }
    return TRAINER_NONE;
}

enum trainer_phase trainer_phase(const struct trainer *trainer)
{
    struct trainer_info info = attachment_info(trainer->attachment);
    struct process_info started = process_info(trainer->process);
    enum process_state process = started.state;
    bool outgrown = trainer_outgrown(trainer);
    if (info.counted && !info.left && !outgrown)
        return TRAINER_FINISHED;
    if (!info.attached)
        return outgrown && process == PROCESS_FINISHED ? TRAINER_STARTING : phase_of_process(process);
    if (info.counted || (started.ending && process == PROCESS_LEAVING))
        return TRAINER_LEAVING;
    if (!info.training)
        return process == PROCESS_LEAVING ? TRAINER_LEAVING : TRAINER_STARTING;
    return info.finishing ? TRAINER_FINISHING : TRAINER_TRAINING;
}

const char *trainer_phase_name(enum trainer_phase phase)
{
    static const char *const names[TRAINER_PHASES] = {
        [TRAINER_NONE] = "none",         [TRAINER_STOPPED] = "stopped",       [TRAINER_STARTING] = "starting",
        [TRAINER_TRAINING] = "training", [TRAINER_FINISHING] = "finishing",   [TRAINER_FINISHED] = "finished",
        [TRAINER_LEAVING] = "leaving",   [TRAINER_RESTARTING] = "restarting", [TRAINER_ENDED] = "ended"};
    return (unsigned)phase < TRAINER_PHASES ? names[phase] : "unknown";
}

struct trainer_info trainer_info(const struct trainer *trainer)
{
    struct trainer_info info = attachment_info(trainer->attachment);
    struct process_info process = process_info(trainer->process);
    info.process_name = process_state_name(process.state);
    info.process_note = process.note;
    info.process_path = process.path;
    info.process_left = process.left;
    info.ended_badly = process.ended_badly;
    info.failures = process.failures;
    info.unattached_ms = trainer->unattached_ms;
    if (!info.attached || info.pid == 0)
        info.pid = (uint32_t)process.pid;
    return info;
}
