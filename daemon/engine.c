/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/engine.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include "common/env.h"
#include "common/fsio.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/processors.h"
#include "daemon/engine_core.h"
#include "daemon/engine_events.h"
#include "daemon/rounds/rounds.h"
#include "daemon/rules.h"

/* TICK: time for timers of the protocol. The loop wakes for messages, jobs and signals by itself. */
enum { TICK_MS = 100, SAMPLE_MS = 500, STOP_PATIENCE_MS = 20000, KILLED_MS = 5000 };
enum { PEER_MESSAGES_PER_TURN = 512, TRAINER_MESSAGES_PER_TURN = 4096 };

/* ---- how long a turn takes ---- */

static void begin_turn(struct engine *engine)
{
    lag_turn(&engine->lag, env_mono_ns());
    engine->turn_cpu_ns = env_thread_cpu_ns();
}

/* Between the time that went by and what our thread had of it lies what a machine that is short of processors takes. */
static void end_turn(struct engine *engine)
{
    uint64_t took_ms = lag_end(&engine->lag, env_mono_ns());
    if (took_ms > LAG_LONG_MS && engine->lag.slowest != NULL)
        log_debug("the loop stood for %" PRIu64 " ms, %" PRIu64 " of them at work; the longest step was %s, %" PRIu64
                  " ms",
                  took_ms, (env_thread_cpu_ns() - engine->turn_cpu_ns) / 1000000, engine->lag.slowest,
                  engine->lag.slowest_ns / 1000000);
}

/* ---- start and end ---- */

static enum err load_plan(struct engine *engine)
{
    struct model_plan *plan;
    TRY(runplan_find(engine->conf, &engine->spec, &engine->charter.view, &plan));
    if (plan == NULL)
        return ERR_OK;
    engine->listens_ms = 0;
    enum err err = engine_set_plan(engine, plan, true);
    if (engine->run.plan == NULL)
        model_plan_free(plan);
    return err;
}

static enum err open_ground(struct engine *engine)
{
    const struct dconf *conf = engine->conf;
    struct ledger_conf ledger = {.folder = conf->state_folder,
                                 .run_id = engine->spec.digest,
                                 .nonce = engine->charter.view.nonce,
                                 .segment_bytes = conf->ledger_segment,
                                 .keep_bytes = conf->ledger_keep};
    TRY(events_new(&engine->events));
    TRY(ledger_open(&ledger, &engine->ledger));
    TRY(ground_open_vote(conf, engine->ident.public_text, engine->ledger, &engine->vote));
    struct jobs_conf jobs = {processors_jobs(conf->job_threads), (int)engine->spec.zstd_level, (int)conf->job_nice};
    return jobs_new(&jobs, &engine->jobs);
}

static enum err open_parts(struct engine *engine)
{
    struct trainer_conf trainer = {.conf = engine->conf,
                                   .spec = &engine->spec,
                                   .view = &engine->charter.view,
                                   .events = engine->events,
                                   .jobs = engine->jobs,
                                   .start_ms = engine->start_ms};
    TRY(trainer_new(&trainer, &engine->trainer));
    struct peers_conf peers = {.conf = engine->conf,
                               .spec = &engine->spec,
                               .view = &engine->charter.view,
                               .chain = engine->charter.chain,
                               .vote = engine->vote,
                               .ident = &engine->ident,
                               .events = engine->events,
                               .jobs = engine->jobs,
                               .trainer = engine->trainer,
                               .session = env_random_u64() | 1,
                               .start_ms = engine->start_ms};
    TRY(peers_new(&peers, &engine->peers));
    struct control_conf control = {.folder = engine->conf->run_folder,
                                   .trainer = engine->trainer,
                                   .status = {.conf = engine->conf,
                                              .spec = &engine->spec,
                                              .view = &engine->charter.view,
                                              .charter = &engine->charter,
                                              .vote = engine->vote,
                                              .ledger = engine->ledger,
                                              .peers = engine->peers,
                                              .trainer = engine->trainer,
                                              .start_ms = engine->start_ms,
                                              .lag = &engine->lag}};
    TRY(control_new(&control, &engine->control));
    struct waits_conf waits = {
        .peers = engine->peers, .trainer = engine->trainer, .control = engine->control, .jobs = engine->jobs};
    return waits_new(&waits, &engine->waits);
}

static enum err check_run(const struct engine *engine)
{
    enum err err = dconf_check_grid(engine->conf, &engine->spec);
    return err != ERR_OK ? err_prefix(err, "%s", engine->conf->run_path) : ERR_OK;
}

enum err engine_new(const struct dconf *conf, struct engine **out)
{
    enum err err;
    struct engine *engine = NULL;
    *out = NULL;
    TRY_OUT(mem_new(1, sizeof *engine, "the engine", &engine));
    engine->conf = conf;
    engine->now_ms = engine->start_ms = engine->listens_ms = env_mono_ms();
    TRY_OUT(ident_load(conf->key_path, &engine->ident));
    TRY_OUT(runspec_load(conf->run_path, NULL, 0, &engine->spec));
    TRY_OUT(charter_open(conf, &engine->ident, &engine->spec, &engine->charter));
    TRY_OUT(check_run(engine));
    TRY_OUT(open_ground(engine));
    TRY_OUT(open_parts(engine));
    TRY_OUT(load_plan(engine));
    TRY_OUT(trainer_autostart(engine->trainer, engine->now_ms));
out:
    if (err != ERR_OK)
        engine_free(engine);
    else
        *out = engine;
    return err;
}

void engine_free(struct engine *engine)
{
    if (engine == NULL)
        return;
    jobs_free(engine->jobs); /* nothing may be at work on what goes now */
    control_free(engine->control);
    peers_free(engine->peers);
    trainer_free(engine->trainer);
    runplan_free(&engine->run);
    ledger_close(engine->ledger);
    events_free(engine->events);
    vote_close(engine->vote);
    charter_close(&engine->charter);
    runspec_deinit(&engine->spec);
    waits_free(engine->waits);
    mem_free(engine);
}

/* ---- the loop ---- */

/* A state that is on its way is not asked for again. */
static void watch_states(struct engine *engine)
{
    for (uint32_t f = 0; engine->told && f < runplan_fragments(&engine->run); f++) {
        struct wire_key key;
        if (sync_fetching_state(engine->run.sync, f, &key) && peers_receiving(engine->peers, &key))
            sync_state_moves(engine->run.sync, f);
    }
}

static enum run_end end_of_run(const struct engine *engine)
{
    uint32_t trainers[VIEW_SLOTS_MAX];
    for (uint32_t i = 0; i < engine->charter.view.count; i++)
        trainers[i] = peers_info(engine->peers, i).trainer;
    return engine->told ? run_end_of(engine->run.sync, &engine->charter.view, runplan_fragments(&engine->run), trainers)
                        : RUN_GOES_ON;
}

/* Nothing that is saved from now on can be found again. */
static void look_at_ground(struct engine *engine)
{
    char text[600];
    if (!ground_is_gone(&engine->ground, engine->ledger, engine->now_ms))
        return;
    ground_text(engine->conf, text, sizeof text);
    event_post_fatal(engine->events, text);
}

static void tick(struct engine *engine)
{
    engine->tick_ms = engine->now_ms + TICK_MS;
    engine_step_sync(engine, &(struct sync_event){.type = SYNC_EV_TICK});
    engine_drain(engine);
    if (engine->told)
        engine_tell_expectation(engine);
    watch_states(engine);
    if (engine->listens_ms != 0)
        peers_tick(engine->peers, engine->now_ms);
    engine_stepped(engine, "the tick of the other islands");
    engine_drain(engine);
    engine_judge_late(engine);
    engine_stepped(engine, "judging a trainer");
    trainer_run_step(engine->trainer, peers_furthest(engine->peers, trainer_info(engine->trainer).step));
    trainer_tick(engine->trainer, engine->now_ms, peers_heard(engine->peers), end_of_run(engine));
    engine_stepped(engine, "the tick of the trainer");
    engine_drain(engine);
    if (engine->told && engine->run.rounds != NULL)
        rounds_tick(engine->run.rounds, engine->now_ms, peers_uplink_bits(engine->peers));
    engine_stepped(engine, "the tick of the rounds");
    look_at_ground(engine);
    engine_stepped(engine, "looking at the state folder");
    engine_drain(engine);
}

static void tell_systemd(struct engine *engine)
{
    char line[256];
    engine->sample_ms = engine->now_ms + SAMPLE_MS;
    control_sample(engine->control, engine->now_ms);
    control_line(engine->control, engine->now_ms, line, sizeof line);
    sd_notifyf(0, "WATCHDOG=1\nSTATUS=%s", line);
    engine_stepped(engine, "a sample of the status");
}

static enum err wait_for_input(struct engine *engine, int signal_fd)
{
    end_turn(engine);
    enum err err = waits_wait(engine->waits, signal_fd, engine->tick_ms, engine->listens_ms != 0);
    begin_turn(engine);
    engine->now_ms = env_mono_ms();
    return err;
}

/* Whether one more of a kind of message is taken in: at least one is, in each turn. */
static bool has_time(const struct engine *engine, int taken, int most)
{
    return taken < most && (taken == 0 || !lag_is_up(&engine->lag, env_mono_ns()));
}

static void hear_peers(struct engine *engine)
{
    peers_look(engine->peers, engine->now_ms);
    for (int i = 0; has_time(engine, i, PEER_MESSAGES_PER_TURN) && peers_take(engine->peers, engine->now_ms); i++) {
        engine_stepped(engine, "a message of another island");
        engine_drain(engine);
    }
    peers_flush(engine->peers, engine->now_ms);
    engine_stepped(engine, "sending to other islands");
}

/* One turn: every part takes in what has happened, one thing at a time, and after each the events are dealt with. */
static enum err turn(struct engine *engine, int signal_fd)
{
    TRY(wait_for_input(engine, signal_fd));
    for (size_t left = jobs_pending(engine->jobs); left > 0 && jobs_take_back(engine->jobs); left--) {
        engine_stepped(engine, jobs_work_name(jobs_taken(engine->jobs)));
        engine_drain(engine);
    }
    for (int i = 0; has_time(engine, i, TRAINER_MESSAGES_PER_TURN) && trainer_take(engine->trainer, engine->now_ms);
         i++) {
        engine_stepped(engine, "a message of the trainer");
        engine_drain(engine);
    }
    if (engine->listens_ms != 0)
        hear_peers(engine);
    control_run(engine->control, engine->now_ms);
    engine_stepped(engine, "a question at the control socket");
    engine_drain(engine);
    if (engine->now_ms >= engine->tick_ms)
        tick(engine);
    if (engine->now_ms >= engine->sample_ms)
        tell_systemd(engine);
    return ERR_OK;
}

/* True if a signal asked to stop. */
static bool read_signals(int signal_fd)
{
    struct signalfd_siginfo info;
    bool stop = false;
    while (read(signal_fd, &info, sizeof info) == sizeof info)
        stop |= info.ssi_signo == SIGTERM || info.ssi_signo == SIGINT;
    return stop;
}

/* In reverse of the start: the trainer saves and goes, jobs end, the state is written, peers are told. */
static enum err stop_in_order(struct engine *engine, int signal_fd)
{
    uint64_t trainer_ms = engine->conf->stop_ms + KILLED_MS; /* a trainer that hangs is killed, and seen to end */
    uint64_t deadline_ms = env_mono_ms() + (trainer_ms > STOP_PATIENCE_MS ? trainer_ms : STOP_PATIENCE_MS);
    sd_notify(0, "STOPPING=1");
    log_info("stopping");
    trainer_stop(engine->trainer);
    if (engine->run.rounds != NULL && !engine->told)
        rounds_recover_stop(engine->run.rounds);
    while ((jobs_pending(engine->jobs) > 0 || trainer_running(engine->trainer)) && env_mono_ms() < deadline_ms)
        TRY(turn(engine, signal_fd));
    if (engine->told && engine->run.rounds != NULL)
        rounds_checkpoint_all(engine->run.rounds);
    while (jobs_pending(engine->jobs) > 0 && env_mono_ms() < deadline_ms)
        TRY(turn(engine, signal_fd));
    peers_bye(engine->peers, "it is being stopped");
    return ledger_sync(engine->ledger);
}

static void advise(const struct runspec *spec)
{
    char text[RUNSPEC_ADVICE_BYTES];
    runspec_advice(spec, text);
    if (text[0] != '\0')
        log_info("%s", text);
}

enum err engine_run(struct engine *engine, int signal_fd)
{
    const char *fatal = events_fatal(engine->events);
    sd_notify(0, "READY=1");
    log_info("island %s of %" PRIu32 " %s; control socket %s/control.sock", engine->conf->name,
             engine->charter.view.count, engine->listens_ms != 0 ? "is ready" : "is up, and reads what it has saved",
             engine->conf->run_folder);
    advise(&engine->spec);
    begin_turn(engine);
    engine_drain(engine);
    while (fatal[0] == '\0' && !read_signals(signal_fd))
        TRY(turn(engine, signal_fd));
    enum err err = stop_in_order(engine, signal_fd);
    if (ledger_stats(engine->ledger).lost && (err != ERR_OK || fatal[0] != '\0')) /* a start would find nothing saved */
        return err_set(ERR_NOTFOUND, "%s", fatal[0] != '\0' ? fatal : err_text());
    TRY(err);
    enum err failed = engine->failed != ERR_OK ? engine->failed : ERR_STATE;
    return fatal[0] != '\0' ? err_set(failed, "%s", fatal) : ERR_OK;
}
