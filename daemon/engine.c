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
#include "daemon/charter.h"
#include "daemon/control/control.h"
#include "daemon/ground.h"
#include "daemon/lag.h"
#include "daemon/peers/council.h"
#include "daemon/peers/peers.h"
#include "daemon/rounds/rounds.h"
#include "daemon/rules.h"
#include "daemon/runplan.h"
#include "daemon/tidings.h"
#include "daemon/trainer/trainer.h"
#include "daemon/waits.h"

/* TICK: time for timers of the protocol. The loop wakes for messages, jobs and signals by itself. */
enum { TICK_MS = 100, SAMPLE_MS = 500, STOP_PATIENCE_MS = 20000, KILLED_MS = 5000 };
enum { PEER_MESSAGES_PER_TURN = 512, TRAINER_MESSAGES_PER_TURN = 4096 };
/* Of a trainer, for a plan that others have. */
enum { PLAN_PATIENCE_MS = 10000 };

struct engine {
    const struct dconf *conf;
    struct runspec spec;
    struct ident ident;
    struct charter charter;
    uint64_t now_ms, start_ms, tick_ms, sample_ms;

    /* from the ground up */
    struct events *events;
    struct jobs *jobs;
    struct ledger *ledger;
    struct vote *vote;
    struct trainer *trainer;
    struct peers *peers;
    struct control *control;
    struct ground ground;
    struct runplan run; /* once the plan is known */
    bool told;          /* the parts above know the plan */
    uint64_t judge_ms;  /* when a trainer that waits for the run's plan is judged without it; 0: none does */
    struct waits *waits;
    struct lag lag;
    uint64_t turn_cpu_ns; /* what the loop's thread had taken of a processor when the turn began */
};

static struct council *council_of(const struct engine *engine)
{
    return peers_council(engine->peers);
}

/* ---- how long a turn takes ---- */

static void begin_turn(struct engine *engine)
{
    lag_turn(&engine->lag, env_mono_ns());
    engine->turn_cpu_ns = env_thread_cpu_ns();
}

static void stepped(struct engine *engine, const char *name)
{
    lag_step(&engine->lag, name, env_mono_ns());
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

/* ---- the plan ---- */

/* No island has more than initial tensors: a trainer that is on its way brings the same, or says that it has none. */
static void tell_expectation(struct engine *engine)
{
    bool begun = false;
    bool expecting = trainer_phase(engine->trainer) == TRAINER_STARTING;
    for (uint32_t f = 0; f < runplan_fragments(&engine->run); f++)
        for (uint32_t i = 0; i < engine->charter.view.count; i++)
            begun |= i != engine->charter.view.self && sync_heard(engine->run.sync, i, f).version > 0;
    sync_expect(engine->run.sync, expecting, expecting && !begun && !trainer_without_initial(engine->trainer));
}

/* Everyone above the rounds learns of the plan. */
static enum err tell_plan(struct engine *engine)
{
    struct trainer_plan trainer = {.plan = engine->run.plan, .replica = engine->run.replica, .sync = engine->run.sync};
    struct peers_plan peers = {.plan = engine->run.plan,
                               .replica = engine->run.replica,
                               .parts = &engine->run.parts,
                               .ledger = engine->ledger,
                               .slots = engine->run.slots,
                               .sync = engine->run.sync,
                               .shards_counts = engine->run.shards_counts,
                               .rounds = engine->run.rounds};
    struct control_plan control = {.plan = engine->run.plan,
                                   .sync = engine->run.sync,
                                   .rounds = engine->run.rounds,
                                   .replica = engine->run.replica,
                                   .parts = &engine->run.parts,
                                   .memory_bytes = engine->run.memory_bytes};
    engine->told = true;
    if (engine->run.rounds != NULL)
        trainer_plan_known(engine->trainer, &trainer);
    control_plan_known(engine->control, &control);
    tell_expectation(engine); /* before any peer's word is taken in */
    return peers_plan_known(engine->peers, &peers);
}

/* As runplan_make(); and makes it known. */
static enum err set_plan(struct engine *engine, struct model_plan *plan, bool saved)
{
    struct runplan_conf conf = {.conf = engine->conf,
                                .spec = &engine->spec,
                                .ident = &engine->ident,
                                .charter = &engine->charter,
                                .ledger = engine->ledger,
                                .jobs = engine->jobs,
                                .events = engine->events,
                                .votes = council_votes(council_of(engine))};
    TRY(runplan_make(&conf, plan, saved, &engine->run));
    return tell_plan(engine);
}

/* ---- what the trainer wants ---- */

/* Who joined takes the plan from others, so that a trainer of another model hears which tensor differs. */
static bool waits_for_plan(struct engine *engine)
{
    if (engine->run.plan != NULL || chain_last(engine->charter.chain)->epoch == 0)
        return false;
    engine->judge_ms = engine->judge_ms != 0 ? engine->judge_ms : engine->now_ms + PLAN_PATIENCE_MS;
    return engine->now_ms < engine->judge_ms;
}

static void judge_trainer(struct engine *engine)
{
    uint32_t count;
    char text[IPC_TEXT_BYTES];
    struct model_plan *plan = NULL;
    static const char witness[] = "this is the run's witness, which trains nothing: attach at another island";
    const char *no = view_is_witness(&engine->charter.view) ? witness : NULL;
    if (engine->run.plan != NULL && !engine->told) /* it could not be set: the daemon ends */
        no = events_fatal(engine->events);
    if (no != NULL) {
        trainer_refuse(engine->trainer, no);
        return;
    }
    if (waits_for_plan(engine))
        return;
    const struct ipc_tensor *tensors = trainer_tensors(engine->trainer, &count);
    enum err err = model_plan_new(&engine->spec, tensors, count, &plan);
    if (err == ERR_OK && engine->run.plan == NULL) {
        err = set_plan(engine, plan, false);
        if (err != ERR_OK && engine->run.plan != NULL)
            event_post_fatal(engine->events, err_text());
    } else if (err == ERR_OK && !digest_equal(&plan->plan->digest, &engine->run.plan->plan->digest)) {
        model_plan_difference(engine->run.plan, plan, text, sizeof text);
        err = err_set(ERR_CONF, "its tensors are not those of the run: %s", text);
    }
    if (plan != engine->run.plan)
        model_plan_free(plan);
    if (err == ERR_OK)
        trainer_accept(engine->trainer);
    else
        trainer_refuse(engine->trainer, err_text());
}

/* The plan has come, or does not. */
static void judge_late(struct engine *engine)
{
    if (engine->judge_ms == 0 || (engine->run.plan == NULL && engine->now_ms < engine->judge_ms))
        return;
    if (trainer_registered(engine->trainer))
        judge_trainer(engine);
    engine->judge_ms = 0;
}

static void started(struct engine *engine, const struct event *event)
{
    uint32_t f = event->fragment;
    trainer_started(engine->trainer, f, event->start.initial);
    if (!event->start.initial || sync_known(engine->run.sync, f))
        return;
    rounds_begin(engine->run.rounds, f, &event->start.hash);
    sync_restore(engine->run.sync, f, 0, &event->start.hash);
    peers_announce(engine->peers);
}

static void finished(struct engine *engine)
{
    trainer_finished(engine->trainer);
    if (trainer_info(engine->trainer).left)
        return;
    rounds_export_follow(engine->run.rounds);
    rounds_export(engine->run.rounds);
}

/* ---- what peers bring ---- */

static void plan_in(struct engine *engine, uint32_t peer, const struct event *event)
{
    struct model_plan *plan;
    enum err err = peers_take_plan(engine->peers, peer, &event->object.key, event->object.bytes, &plan);
    if (err == ERR_STATE)
        return;                     /* our trainer brought one meanwhile */
    if (engine->run.plan != NULL) { /* it could not be set: the daemon ends */
        model_plan_free(plan);
        return;
    }
    if (err == ERR_OK)
        err = set_plan(engine, plan, false);
    if (err == ERR_OK) {
        log_info("the model's plan came from island %s", engine->charter.view.members[peer].name);
    } else if (engine->run.plan != NULL) {
        event_post_fatal(engine->events, err_text());
    } else {
        peers_plan_refused(engine->peers, peer, err_text());
        model_plan_free(plan);
    }
}

static void object_in(struct engine *engine, const struct event *event)
{
    if (event->object.key.kind == WIRE_PLAN)
        plan_in(engine, event->member, event);
    else
        rounds_object_in(engine->run.rounds, event->member, &event->object.key, event->object.bytes);
}

/* ---- the core's orders ---- */

static void carry_report(struct engine *engine, const struct sync_action *action)
{
    const struct view *view = &engine->charter.view;
    if (action->report == SYNC_REPORT_PEER_DIVERGED)
        peers_diverged(engine->peers, action->member, action->fragment);
    else
        tidings_tell(engine->run.sync, action,
                     action->member == view->self ? NULL : view->members[action->member].name);
}

static void order_encode(struct engine *engine, uint32_t f, uint64_t version)
{
    struct replica_snapshot snapshot;
    struct chain_part parts[CHAIN_PARTS_MAX];
    /* Who has just joined may hold less than the oldest record it knows begins with: that round is over. */
    bool known = parts_of(&engine->run.parts, f, version, parts) > 0;
    if (known && trainer_snapshot(engine->trainer, f, &snapshot))
        rounds_encode(engine->run.rounds, f, version, &snapshot);
    else
        event_post_sync(engine->events, &(struct sync_event){.type = SYNC_EV_REFUSED, .fragment = f});
}

/* The result takes the memory of the one before it, which is not to be sent from there any more. */
static void order_reduce(struct engine *engine, uint32_t f, uint64_t version)
{
    peers_retire_results(engine->peers, f, version);
    rounds_reduce(engine->run.rounds, f, version, &sync_owner(engine->run.sync, f)->have);
}

static void carry_out(struct engine *engine, const struct sync_action *action)
{
    uint32_t f = action->fragment;
    switch (action->type) {
    case SYNC_DO_ENCODE: order_encode(engine, f, action->version); break;
    case SYNC_DO_RELEASE: trainer_release(engine->trainer, f); break;
    case SYNC_DO_SEND: peers_send(engine->peers, &action->key, action->member); break;
    case SYNC_DO_REDUCE: order_reduce(engine, f, action->version); break;
    case SYNC_DO_STORE: rounds_store(engine->run.rounds, f, action->version); break;
    case SYNC_DO_APPLY: rounds_apply(engine->run.rounds, f, action->version); break;
    case SYNC_DO_GIVE: trainer_give(engine->trainer, f); break;
    case SYNC_DO_TAKE_BACK: trainer_take_back(engine->trainer, f); break;
    case SYNC_DO_FETCH: peers_fetch(engine->peers, &action->key, action->member); break;
    case SYNC_DO_REPLAY: rounds_replay(engine->run.rounds, f, action->version); break;
    case SYNC_DO_MEND: rounds_mend(engine->run.rounds, f, action->version); break;
    case SYNC_DO_RETIRE: peers_retire(engine->peers, f, action->version); break;
    case SYNC_DO_ANNOUNCE: peers_announce(engine->peers); break;
    case SYNC_DO_REPORT: carry_report(engine, action); break;
    }
}

static void carry_out_all(struct engine *engine)
{
    struct sync_action action;
    while (sync_action(engine->run.sync, &action)) {
        carry_out(engine, &action);
        stepped(engine, "an order of the protocol's core");
    }
}

static void step_sync(struct engine *engine, const struct sync_event *event)
{
    if (engine->run.sync == NULL)
        return;
    sync_step(engine->run.sync, event, engine->now_ms);
    carry_out_all(engine);
}

static void encoded(struct engine *engine, const struct event *event)
{
    trainer_encoded(engine->trainer, event->fragment, event->err);
    step_sync(engine, &(struct sync_event){.type = event->err == ERR_OK ? SYNC_EV_ENCODED : SYNC_EV_REFUSED,
                                           .fragment = event->fragment});
}

/* ---- a new epoch ---- */

static enum err switch_epoch(struct engine *engine, struct record *record, const struct digest *digest)
{
    struct view_changes changes;
    TRY(charter_adopt(&engine->charter, record, digest, &changes));
    TRY(peers_members(engine->peers, &changes));
    if (engine->run.sync != NULL) {
        TRY(events_reserve(engine->events, runplan_fragments(&engine->run), engine->charter.view.count));
        if (engine->run.rounds != NULL)
            TRY(rounds_members(engine->run.rounds, engine->charter.view.count));
        struct sync_view view = charter_sync_view(&engine->charter, council_votes(council_of(engine)));
        TRY(sync_begin_epoch(engine->run.sync, &view, engine->now_ms));
        carry_out_all(engine);
        for (uint32_t f = 0; f < runplan_fragments(&engine->run); f++)
            rounds_post_held(engine->run.rounds, f);
    }
    for (uint32_t i = 0; i < engine->charter.view.count; i++)
        if (bitset_has(&changes.removed, i))
            view_release(&engine->charter.view, i);
    return peers_begin_epoch(engine->peers);
}

static void begin_epoch(struct engine *engine)
{
    struct record record;
    struct digest digest;
    if (!council_take(council_of(engine), &record, &digest))
        return;
    if (switch_epoch(engine, &record, &digest) != ERR_OK)
        event_post_fatal(engine->events, err_text());
    else if (engine->run.rounds != NULL || view_is_witness(&engine->charter.view)) /* else it is not known yet */
        charter_tidy(&engine->charter,
                     engine->run.rounds != NULL ? rounds_first_epoch(engine->run.rounds) : UINT64_MAX);
    record_deinit(&record);
}

/* ---- events ---- */

/* Before anyone is told that a result is held here, the mark says so. */
static void mark_stored(struct engine *engine, const struct sync_event *event)
{
    if (event->type != SYNC_EV_STORED)
        return;
    if (vote_mark(engine->vote, ledger_at(engine->ledger)) != ERR_OK)
        event_post_fatal(engine->events, err_text());
    log_debug("fragment %" PRIu32 " version %" PRIu64 ": the result of island %" PRIu32 " is durable", event->fragment,
              event->version, event->owner);
}

static void sync_event_in(struct engine *engine, const struct sync_event *event)
{
    mark_stored(engine, event);
    step_sync(engine, event);
}

static void handle(struct engine *engine, const struct event *event)
{
    uint32_t f = event->fragment;
    log_debug("event %s of fragment %" PRIu32 ", member %" PRIu32, event_name(event->type), f, event->member);
    switch (event->type) {
    case EVENT_SYNC: sync_event_in(engine, &event->sync); break;
    case EVENT_EPOCH: begin_epoch(engine); break;
    case EVENT_ANNOUNCE: peers_announce(engine->peers); break;
    case EVENT_FATAL: break; /* the loop looks at it */
    case EVENT_REGISTERED: judge_trainer(engine); break;
    case EVENT_START:
        rounds_start(engine->run.rounds, f, trainer_base(engine->trainer, f), event->start.initial);
        break;
    case EVENT_READY: trainer_go(engine->trainer, rounds_step(engine->run.rounds)); break;
    case EVENT_FILL: rounds_give(engine->run.rounds, f, trainer_area(engine->trainer, f)); break;
    case EVENT_FINISHED: finished(engine); break;
    case EVENT_ENCODED: encoded(engine, event); break;
    case EVENT_COUNTED: trainer_counted(engine->trainer, f, event->shards, event->share); break;
    case EVENT_GIVEN: trainer_given(engine->trainer, f); break;
    case EVENT_STARTED: started(engine, event); break;
    case EVENT_UNREAD: rounds_unread(engine->run.rounds, f); break;
    case EVENT_JUDGED: peers_judged(engine->peers, event->member, &event->object.key, event->object.done); break;
    case EVENT_LEND: rounds_lend(engine->run.rounds, event->lend.loan); break;
    case EVENT_LENT: peers_lent(engine->peers, event->lend.loan, event->lend.err); break;
    case EVENT_RIVALS: council_rivals(council_of(engine), event->rivals.owner, f, event->rivals.version); break;
    case EVENT_OBJECT: object_in(engine, event); break;
    case EVENT_TYPES: break;
    }
}

static void drain(struct engine *engine)
{
    struct event event;
    while (event_take(engine->events, &event)) {
        handle(engine, &event);
        stepped(engine, event_name(event.type));
    }
}

/* ---- start and end ---- */

static enum err load_plan(struct engine *engine)
{
    struct model_plan *plan;
    TRY(runplan_find(engine->conf, &engine->spec, &engine->charter.view, &plan));
    if (plan == NULL)
        return ERR_OK;
    enum err err = set_plan(engine, plan, true);
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
                                   .start_ms = engine->start_ms};
    TRY(trainer_new(&trainer, &engine->trainer));
    struct peers_conf peers = {.conf = engine->conf,
                               .spec = &engine->spec,
                               .view = &engine->charter.view,
                               .chain = engine->charter.chain,
                               .vote = engine->vote,
                               .ident = &engine->ident,
                               .events = engine->events,
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
    engine->now_ms = engine->start_ms = env_mono_ms();
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
    for (uint32_t f = 0; f < runplan_fragments(&engine->run); f++) {
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
    return engine->run.sync != NULL
               ? run_end_of(engine->run.sync, &engine->charter.view, runplan_fragments(&engine->run), trainers)
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
    step_sync(engine, &(struct sync_event){.type = SYNC_EV_TICK});
    drain(engine);
    if (engine->run.sync != NULL)
        tell_expectation(engine);
    watch_states(engine);
    peers_tick(engine->peers, engine->now_ms);
    stepped(engine, "the tick of the other islands");
    drain(engine);
    judge_late(engine);
    stepped(engine, "judging a trainer");
    trainer_run_step(engine->trainer, peers_furthest(engine->peers, trainer_info(engine->trainer).step));
    trainer_tick(engine->trainer, engine->now_ms, peers_heard(engine->peers), end_of_run(engine));
    stepped(engine, "the tick of the trainer");
    drain(engine);
    if (engine->run.rounds != NULL)
        rounds_tick(engine->run.rounds, engine->now_ms, peers_uplink_bits(engine->peers));
    stepped(engine, "the tick of the rounds");
    look_at_ground(engine);
    stepped(engine, "looking at the state folder");
    drain(engine);
}

static void tell_systemd(struct engine *engine)
{
    char line[256];
    engine->sample_ms = engine->now_ms + SAMPLE_MS;
    control_sample(engine->control, engine->now_ms);
    control_line(engine->control, engine->now_ms, line, sizeof line);
    sd_notifyf(0, "WATCHDOG=1\nSTATUS=%s", line);
    stepped(engine, "a sample of the status");
}

static enum err wait_for_input(struct engine *engine, int signal_fd)
{
    end_turn(engine);
    enum err err = waits_wait(engine->waits, signal_fd, engine->tick_ms);
    begin_turn(engine);
    engine->now_ms = env_mono_ms();
    return err;
}

/* One turn: every part takes in what has happened, one thing at a time, and after each the events are dealt with. */
static enum err turn(struct engine *engine, int signal_fd)
{
    TRY(wait_for_input(engine, signal_fd));
    for (size_t left = jobs_pending(engine->jobs); left > 0 && jobs_take_back(engine->jobs); left--) {
        stepped(engine, jobs_work_name(jobs_taken(engine->jobs)));
        drain(engine);
    }
    for (int i = 0; i < TRAINER_MESSAGES_PER_TURN && trainer_take(engine->trainer, engine->now_ms); i++) {
        stepped(engine, "a message of the trainer");
        drain(engine);
    }
    peers_look(engine->peers, engine->now_ms);
    for (int i = 0; i < PEER_MESSAGES_PER_TURN && peers_take(engine->peers, engine->now_ms); i++) {
        stepped(engine, "a message of another island");
        drain(engine);
    }
    peers_flush(engine->peers, engine->now_ms);
    stepped(engine, "sending to other islands");
    control_run(engine->control, engine->now_ms);
    stepped(engine, "a question at the control socket");
    drain(engine);
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
    while ((jobs_pending(engine->jobs) > 0 || trainer_running(engine->trainer)) && env_mono_ms() < deadline_ms)
        TRY(turn(engine, signal_fd));
    if (engine->run.rounds != NULL)
        rounds_checkpoint_all(engine->run.rounds);
    while (jobs_pending(engine->jobs) > 0 && env_mono_ms() < deadline_ms)
        TRY(turn(engine, signal_fd));
    peers_bye(engine->peers, "it is being stopped");
    return ledger_sync(engine->ledger);
}

enum err engine_run(struct engine *engine, int signal_fd)
{
    const char *fatal = events_fatal(engine->events);
    sd_notify(0, "READY=1");
    log_info("island %s of %" PRIu32 " is ready; control socket %s/control.sock", engine->conf->name,
             engine->charter.view.count, engine->conf->run_folder);
    begin_turn(engine);
    drain(engine);
    while (fatal[0] == '\0' && !read_signals(signal_fd))
        TRY(turn(engine, signal_fd));
    enum err err = stop_in_order(engine, signal_fd);
    if (ledger_stats(engine->ledger).lost && (err != ERR_OK || fatal[0] != '\0')) /* a start would find nothing saved */
        return err_set(ERR_NOTFOUND, "%s", fatal[0] != '\0' ? fatal : err_text());
    TRY(err);
    return fatal[0] != '\0' ? err_set(ERR_STATE, "%s", fatal) : ERR_OK;
}
