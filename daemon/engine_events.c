/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/engine_events.h"

#include <inttypes.h>
#include <stdio.h>

#include "common/log.h"
#include "daemon/membership/membership_host.h"
#include "daemon/tidings.h"

/* Of a trainer, for a plan that others have. */
enum { PLAN_PATIENCE_MS = 10000 };

static struct membership_host *host_of(const struct engine *engine)
{
    return peers_membership_host(engine->peers);
}

/* ---- the plan ---- */

/* No island has more than initial tensors: a trainer that is on its way brings the same, or says that it has none. */
void engine_tell_expectation(struct engine *engine)
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
    struct trainer_plan trainer = {.plan = engine->run.plan,
                                   .replica = engine->run.replica,
                                   .sync = engine->run.sync,
                                   .listens_ms = engine->listens_ms};
    struct transfer_plan peers = {.plan = engine->run.plan,
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
    engine_tell_expectation(engine); /* before any peer's word is taken in */
    return peers_plan_known(engine->peers, &peers);
}

/* As runplan_make(); it is made known when what the disk has is read. */
enum err engine_set_plan(struct engine *engine, struct model_plan *plan, bool saved)
{
    struct runplan_conf conf = {.conf = engine->conf,
                                .spec = &engine->spec,
                                .ident = &engine->ident,
                                .charter = &engine->charter,
                                .ledger = engine->ledger,
                                .jobs = engine->jobs,
                                .events = engine->events,
                                .votes = membership_votes(peers_membership(engine->peers))};
    TRY(runplan_make(&conf, plan, saved, &engine->run));
    control_recovers(engine->control, engine->run.rounds);
    return ERR_OK;
}

/* ---- what the trainer wants ---- */

/* Who joined takes the plan from others, so that a trainer of another model hears which tensor differs. */
static bool waits_for_plan(struct engine *engine)
{
    if (engine->run.plan != NULL && !engine->told) { /* nor does anybody know yet what there is to go on from */
        engine->judge_ms = engine->now_ms;
        return true;
    }
    if (engine->run.plan != NULL)
        return false;
    if (engine->conf->allow_other_base) { /* its trainer's base is not to become the run's */
        engine->judge_ms = UINT64_MAX;
        return true;
    }
    if (chain_last(engine->charter.chain)->epoch == 0)
        return false;
    engine->judge_ms = engine->judge_ms != 0 ? engine->judge_ms : engine->now_ms + PLAN_PATIENCE_MS;
    return engine->now_ms < engine->judge_ms;
}

/* Whether a trainer's tensors are the run's; `other_base` becomes what is to be said of them where they need not be. */
static enum err compare_plans(const struct engine *engine, const struct model_plan *plan,
                              char other_base[IPC_TEXT_BYTES])
{
    char text[IPC_TEXT_BYTES];
    if (digest_equal(&plan->id, &engine->run.plan->id))
        return ERR_OK;
    model_plan_difference(engine->run.plan, plan, text, sizeof text);
    if (!model_plan_same_but_base(engine->run.plan, plan))
        return err_set(ERR_CONF, "its tensors are not those of the run: %s", text);
    if (!engine->conf->allow_other_base)
        return err_set(
            ERR_CONF,
            "it trains upon another base than the run: %s; load the same one, or, where another is meant, as "
            "a quantised copy, set [worker] allow_other_base = yes",
            text);
    snprintf(other_base, IPC_TEXT_BYTES, "%s", text);
    return ERR_OK;
}

static void judge_trainer(struct engine *engine)
{
    uint32_t count;
    char other_base[IPC_TEXT_BYTES] = "";
    struct model_plan *plan = NULL;
    static const char witness[] = "this is the run's witness, which trains nothing: attach at another island";
    const char *no = view_is_witness(&engine->charter.view) ? witness : NULL;
    if (events_fatal(engine->events)[0] != '\0') /* the daemon ends */
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
        err = engine_set_plan(engine, plan, false);
        if (err == ERR_OK)
            engine->judge_ms = engine->now_ms;
        else if (engine->run.plan != NULL)
            event_post_fatal(engine->events, err_text());
    } else if (err == ERR_OK) {
        err = compare_plans(engine, plan, other_base);
    }
    if (plan != engine->run.plan)
        model_plan_free(plan);
    if (err != ERR_OK)
        trainer_refuse(engine->trainer, err_text());
    else if (engine->told)
        trainer_accept(engine->trainer, other_base);
}

/* The plan has come, and what the disk has of it; or neither does. */
void engine_judge_late(struct engine *engine)
{
    bool waits = engine->run.plan != NULL ? !engine->told : engine->now_ms < engine->judge_ms;
    if (engine->judge_ms == 0 || (waits && events_fatal(engine->events)[0] == '\0'))
        return;
    if (trainer_registered(engine->trainer))
        judge_trainer(engine);
    if (engine->run.plan == NULL || engine->told) /* else it has brought the plan, and waits until that is told */
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
    if (engine->run.plan != NULL) { /* it is being made, or the daemon ends */
        model_plan_free(plan);
        return;
    }
    if (err == ERR_OK)
        err = engine_set_plan(engine, plan, false);
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
        engine_stepped(engine, "an order of the protocol's core");
    }
}

void engine_step_sync(struct engine *engine, const struct sync_event *event)
{
    if (!engine->told)
        return;
    sync_step(engine->run.sync, event, engine->now_ms);
    carry_out_all(engine);
}

static void encoded(struct engine *engine, const struct event *event)
{
    trainer_encoded(engine->trainer, event->fragment, event->err);
    engine_step_sync(engine, &(struct sync_event){.type = event->err == ERR_OK ? SYNC_EV_ENCODED : SYNC_EV_REFUSED,
                                                  .fragment = event->fragment});
}

/* ---- a new epoch ---- */

static enum err switch_epoch(struct engine *engine, struct record *record, const struct digest *digest)
{
    struct view_changes changes;
    TRY(charter_adopt(&engine->charter, record, digest, &changes));
    TRY(peers_members(engine->peers, &changes));
    if (engine->told) {
        TRY(events_reserve(engine->events, runplan_fragments(&engine->run), engine->charter.view.count));
        if (engine->run.rounds != NULL)
            TRY(rounds_members(engine->run.rounds, engine->charter.view.count));
        struct sync_view view = charter_sync_view(&engine->charter, membership_votes(peers_membership(engine->peers)));
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
    engine->epoch_waits = engine->run.plan != NULL && !engine->told;
    if (engine->epoch_waits || !membership_take(peers_membership(engine->peers), &record, &digest))
        return;
    if (switch_epoch(engine, &record, &digest) != ERR_OK)
        event_post_fatal(engine->events, err_text());
    else if (engine->run.rounds != NULL || view_is_witness(&engine->charter.view)) /* else it is not known yet */
        membership_host_tidy(host_of(engine), charter_old(&engine->charter, engine->run.rounds != NULL
                                                                                ? rounds_first_epoch(engine->run.rounds)
                                                                                : UINT64_MAX));
    record_deinit(&record);
}

/* ---- what the disk has is known ---- */

/* Not before this do other islands hear anything: what a voter says that it holds has to be all of it. */
static enum err make_known(struct engine *engine)
{
    TRY(runplan_restore(&engine->run));
    sync_set_votes(engine->run.sync, membership_votes(peers_membership(engine->peers)));
    if (engine->listens_ms == 0) {
        engine->listens_ms = engine->now_ms;
        TRY(peers_begin(engine->peers, engine->now_ms));
        log_info("island %s of %" PRIu32 " is ready", engine->conf->name, engine->charter.view.count);
    }
    return tell_plan(engine);
}

static void recovered(struct engine *engine)
{
    enum err err = make_known(engine);
    if (err != ERR_OK) {
        engine->failed = err;
        event_post_fatal(engine->events, err_text());
    } else if (engine->epoch_waits) {
        begin_epoch(engine);
    }
    engine_judge_late(engine);
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
    engine_step_sync(engine, event);
}

static void handle(struct engine *engine, const struct event *event)
{
    uint32_t f = event->fragment;
    log_debug("event %s of fragment %" PRIu32 ", member %" PRIu32, event_name(event->type), f, event->member);
    switch (event->type) {
    case EVENT_SYNC: sync_event_in(engine, &event->sync); break;
    case EVENT_EPOCH: begin_epoch(engine); break;
    case EVENT_ANNOUNCE: peers_announce(engine->peers); break;
    case EVENT_FATAL: engine_judge_late(engine); break; /* who waits hears why; and the loop looks at it */
    case EVENT_REGISTERED: judge_trainer(engine); break;
    case EVENT_START:
        rounds_start(engine->run.rounds, f, trainer_base(engine->trainer, f), event->start.initial);
        break;
    case EVENT_READY: trainer_go(engine->trainer, rounds_step(engine->run.rounds)); break;
    case EVENT_FILL: rounds_give(engine->run.rounds, f, trainer_area(engine->trainer, f)); break;
    case EVENT_FINISHED: finished(engine); break;
    case EVENT_ENCODED: encoded(engine, event); break;
    case EVENT_COUNTED: trainer_counted(engine->trainer, f, event->version, event->shards, event->share); break;
    case EVENT_GIVEN: trainer_given(engine->trainer, f); break;
    case EVENT_STARTED: started(engine, event); break;
    case EVENT_UNREAD: rounds_unread(engine->run.rounds, f); break;
    case EVENT_JUDGED: peers_judged(engine->peers, event->member, &event->object.key, event->object.done); break;
    case EVENT_LEND: rounds_lend(engine->run.rounds, event->lend.loan); break;
    case EVENT_LENT: peers_lent(engine->peers, event->lend.loan, event->lend.err); break;
    case EVENT_RECOVERED: recovered(engine); break;
    case EVENT_KEPT: membership_host_kept(host_of(engine), engine->now_ms); break;
    case EVENT_RIVALS:
        membership_rivals(peers_membership(engine->peers), event->rivals.owner, f, event->rivals.version);
        break;
    case EVENT_OBJECT: object_in(engine, event); break;
    case EVENT_TYPES: break;
    }
}

void engine_drain(struct engine *engine)
{
    struct event event;
    while (event_take(engine->events, &event)) {
        handle(engine, &event);
        engine_stepped(engine, event_name(event.type));
    }
}
