/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/engine.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>
#include <zmq.h>

#include "common/env.h"
#include "common/fsio.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/processors.h"
#include "daemon/control/control.h"
#include "daemon/dealing.h"
#include "daemon/ground.h"
#include "daemon/lag.h"
#include "daemon/membership/config_store.h"
#include "daemon/membership/membership_host.h"
#include "daemon/peers/peers.h"
#include "daemon/rounds/apply.h"
#include "daemon/rounds/copy.h"
#include "daemon/rounds/round_context.h"
#include "daemon/rounds/encode.h"
#include "daemon/rounds/install.h"
#include "daemon/rounds/keep.h"
#include "daemon/rounds/recover.h"
#include "daemon/rounds/reduce.h"
#include "daemon/rounds/rounds.h"
#include "daemon/rules.h"
#include "daemon/runplan.h"
#include "daemon/trainer/attachment.h"
#include "daemon/trainer/process.h"
#include "daemon/trainer/trainer.h"
#include "daemon/transfer/objects.h"
#include "net/membership/key_turns.h"

/* TICK: time for timers of the protocol. The loop wakes for messages, jobs and signals by itself. */
enum { TICK_MS = 100, SAMPLE_MS = 500, STOP_PATIENCE_MS = 20000, KILLED_MS = 5000 };
enum { PEER_MESSAGES_PER_TURN = 512, TRAINER_MESSAGES_PER_TURN = 4096 };
/* What the loop waits for, besides the other islands' sockets. */
enum { FDS_MAX = 64 };
/* Of a trainer, for a plan that others have. */
enum { PLAN_PATIENCE_MS = 10000 };

struct engine {
    const struct dconf *conf;
    struct runspec spec;
    struct keyring keyring;
    struct config_store configs;
    struct dealing dealing;
    uint64_t now_ms, start_ms, tick_ms, sample_ms;

    /* from the ground up */
    struct events *events;
    struct jobs *jobs;
    struct ledger *ledger;
    struct vote *vote;
    struct trainer *trainer;
    struct link *link;
    struct objects *objects;
    struct membership_host *host;
    struct membership *membership; /* of the host */
    struct peers *peers;
    struct control *control;
    struct ground ground;
    struct runplan run;     /* once the plan is known */
    struct run_close close; /* of --until-over */
    bool told;              /* the parts above know the plan, and what this island holds */
    uint64_t listens_ms;    /* since when other islands are heard and told things; 0: not before that is known */
    bool epoch_waits;       /* one is decided, and begins when that is known */
    enum err failed;        /* why the daemon ends, if no other error says so */
    uint64_t judge_ms;      /* when a trainer that waits for the run's plan is judged without it; 0: none does */
    zmq_pollitem_t *items;  /* what the loop waits for */
    size_t items_room;
    struct key_turns key_turns;
    struct lag lag;
    uint64_t turn_cpu_ns; /* what the loop's thread had taken of a processor when the turn began */
};

/* What has been done of the loop's turn since the last of these calls. */
static void stepped(struct engine *engine, const char *name)
{
    lag_step(&engine->lag, name, env_mono_ns());
}

/* ---- the run ---- */

/* How long the run is, and whether it goes on. */
static void take_length(struct engine *engine)
{
    const struct config *config = config_log_last(engine->configs.config_log);
    engine->spec.length = (int64_t)config->steps;
    if (engine->run.rounds != NULL)
        rounds_steps_most(engine->run.rounds, config_steps_most(config));
    trainer_run(engine->trainer, config->paused);
}

/* ---- the plan ---- */

/* No island has more than initial tensors: a trainer that is on its way brings the same, or says that it has none. */
static void tell_expectation(struct engine *engine)
{
    bool begun = false;
    bool expecting = trainer_phase(engine->trainer) == TRAINER_STARTING;
    for (uint32_t f = 0; f < runplan_fragments(&engine->run); f++)
        for (uint32_t i = 0; i < engine->configs.view.count; i++)
            begun |= i != engine->configs.view.self && sync_heard(engine->run.sync, i, f).version > 0;
    sync_expect(engine->run.sync, expecting,
                expecting && !begun && !attachment_without_initial(engine->trainer->attachment));
}

/* Everyone above the rounds learns of the plan; transfer and membership before peers, which brings them messages. */
static enum err tell_plan(struct engine *engine)
{
    struct trainer_plan trainer = {.plan = engine->run.plan,
                                   .replica = engine->run.replica,
                                   .sync = engine->run.sync,
                                   .listens_ms = engine->listens_ms};
    struct transfer_plan transfer = {.plan = engine->run.plan,
                                     .replica = engine->run.replica,
                                     .parts = &engine->run.parts,
                                     .ledger = engine->ledger,
                                     .slots = engine->run.slots,
                                     .sync = engine->run.sync,
                                     .shards_counts = engine->run.shards_counts,
                                     .rounds = engine->run.rounds,
                                     .certificates = engine->run.certificates};
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
    TRY(objects_plan_known(engine->objects, &transfer));
    TRY(membership_host_plan_known(engine->host, engine->run.sync, engine->run.plan->plan->fragments_count,
                                   engine->run.shards_counts));
    return peers_plan_known(engine->peers, &transfer);
}

/* As runplan_make(); it is made known when what the disk has is read. */
static enum err set_plan(struct engine *engine, struct model_plan *plan, bool saved)
{
    struct runplan_conf conf = {.conf = engine->conf,
                                .spec = &engine->spec,
                                .ident = &engine->keyring.ident,
                                .configs = &engine->configs,
                                .ledger = engine->ledger,
                                .jobs = engine->jobs,
                                .events = engine->events,
                                .votes = membership_votes(engine->membership)};
    TRY(runplan_make(&conf, plan, saved, &engine->run));
    take_length(engine);
    control_recovers(engine->control, engine->run.rounds);
    return ERR_OK;
}

/* ---- what the trainer wants ---- */

/* Whether somebody may still say which plan the run has: not if all others are heard and none of them knows one, as
 * where islands joined before the first of them trained. */
static bool plan_may_come(const struct engine *engine)
{
    struct bitset with_plan = peers_with_plan(engine->peers);
    bool none = peers_heard(engine->peers) && bitset_empty(&with_plan);
    return engine->now_ms < engine->judge_ms && (engine->conf->allow_other_base || !none);
}

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
    if (config_log_last(engine->configs.config_log)->epoch == 0)
        return false;
    engine->judge_ms = engine->judge_ms != 0 ? engine->judge_ms : engine->now_ms + PLAN_PATIENCE_MS;
    return plan_may_come(engine);
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
    const char *no = view_is_witness(&engine->configs.view) ? witness : NULL;
    if (events_fatal(engine->events)[0] != '\0') /* the daemon ends */
        no = events_fatal(engine->events);
    if (no != NULL) {
        attachment_refuse(engine->trainer->attachment, no);
        return;
    }
    if (waits_for_plan(engine))
        return;
    const struct ipc_tensor *tensors = attachment_tensors(engine->trainer->attachment, &count);
    enum err err = model_plan_new(&engine->spec, tensors, count, &plan);
    if (err == ERR_OK && engine->run.plan == NULL) {
        err = set_plan(engine, plan, false);
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
        attachment_refuse(engine->trainer->attachment, err_text());
    else if (engine->told)
        attachment_accept(engine->trainer->attachment, other_base);
}

/* The plan has come, and what the disk has of it; or neither does. */
static void judge_late(struct engine *engine)
{
    bool waits = engine->run.plan != NULL ? !engine->told : plan_may_come(engine);
    if (engine->judge_ms == 0 || (waits && events_fatal(engine->events)[0] == '\0'))
        return;
    if (attachment_registered(engine->trainer->attachment))
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
    sync_restore(engine->run.sync, f, 0, &event->start.hash);
    peers_announce(engine->peers);
}

static void finished(struct engine *engine)
{
    process_finished(engine->trainer->process);
    if (trainer_info(engine->trainer).left || trainer_outgrown(engine->trainer))
        return;
    keep_follow(engine->run.rounds->keep);
    keep_export(engine->run.rounds->keep);
}

/* ---- what peers bring ---- */

static void plan_in(struct engine *engine, uint32_t peer, const struct event *event)
{
    struct model_plan *plan;
    struct bitset holders = peers_plan_holders(engine->peers);
    enum err err = objects_take_plan(engine->objects, peer, &event->object.key, event->object.bytes,
                                     peers_plan_id(engine->peers, peer), &plan);
    if (err == ERR_STATE)
        return; /* our trainer brought one meanwhile */
    if (err == ERR_OK && !bitset_has(&holders, peer)) {
        model_plan_free(plan);
        plan = NULL;
        err = err_set(ERR_PROTO, "it is not the one that most voters announce");
    }
    if (engine->run.plan != NULL) { /* it is being made, or the daemon ends */
        model_plan_free(plan);
        return;
    }
    if (err == ERR_OK)
        err = set_plan(engine, plan, false);
    if (err == ERR_OK) {
        log_info("the model's plan came from island %s", engine->configs.view.members[peer].as.name);
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
        rounds_object_in(engine->run.rounds, event->member, &event->object.key, event->object.bytes,
                         event->object.excused);
}

/* ---- what the core reports of our own fragments, in words ---- */

static void tell_diverged(const struct sync_action *action, const char *peer)
{
    if (action->version == 0)
        log_warn("fragment %" PRIu32 ": our initial tensors differ from island %s's; taking over theirs",
                 action->fragment, peer);
    else
        log_error("fragment %" PRIu32 " has DIVERGED at version %" PRIu64
                  ": our hash differs from island %s's; fetching its state",
                  action->fragment, action->version, peer);
}

/* `peer`: the name of the member it is about; NULL: ourselves, or one that has left. */
static void tell_report(const struct sync *sync, const struct sync_action *action, const char *peer)
{
    switch (action->report) {
    case SYNC_REPORT_DIVERGED: tell_diverged(action, peer); break;
    case SYNC_REPORT_PEER_DIVERGED: break; /* peers says that, now and then only */
    case SYNC_REPORT_DAMAGED:
        log_error("fragment %" PRIu32 " has DIVERGED at version %" PRIu64
                  ": our memory does not hold what our own ledger leads to; mending it from there. Look at this "
                  "machine's memory",
                  action->fragment, action->version);
        break;
    case SYNC_REPORT_BEHIND:
        log_warn("fragment %" PRIu32 ": too far behind for results; fetching island %s's state", action->fragment,
                 peer);
        break;
    case SYNC_REPORT_REPAIRED:
        if (action->member == SYNC_NOBODY)
            log_info("fragment %" PRIu32 " now holds the state of an island that has left", action->fragment);
        else if (peer == NULL)
            log_info("fragment %" PRIu32 " now holds what our ledger leads to", action->fragment);
        else
            log_info("fragment %" PRIu32 " now holds island %s's state", action->fragment, peer);
        break;
    case SYNC_REPORT_ILLEGAL:
        log_error("fragment %" PRIu32 ": an event had no place in state %s; please report this", action->fragment,
                  sync_state_name(sync_state(sync, action->fragment)));
        break;
    }
}

/* ---- the core's orders ---- */

static void carry_report(struct engine *engine, const struct sync_action *action)
{
    const struct view *view = &engine->configs.view;
    if (action->report == SYNC_REPORT_PEER_DIVERGED)
        peers_diverged(engine->peers, action->member, action->fragment);
    else
        tell_report(engine->run.sync, action,
                    action->member == view->self || action->member == SYNC_NOBODY
                        ? NULL
                        : view->members[action->member].as.name);
}

static void order_encode(struct engine *engine, uint32_t f, uint64_t version)
{
    struct replica_snapshot snapshot;
    struct version_part parts[VERSION_PARTS_MAX];
    /* Who has just joined may hold less than the oldest configuration it knows begins with: that round is over. */
    bool known = parts_of(&engine->run.parts, f, version, parts) > 0;
    if (known && trainer_snapshot(engine->trainer, f, &snapshot))
        encode_begin(engine->run.rounds->encode, f, version, &snapshot);
    else
        event_post_sync(engine->events, &(struct sync_event){.type = SYNC_EV_REFUSED, .fragment = f});
}

/* The result takes the memory of the one before it, which is not to be sent from there any more. */
static void order_reduce(struct engine *engine, uint32_t f, uint64_t version)
{
    objects_retire_results(engine->objects, f, version);
    reduce_begin(engine->run.rounds->reduce, f, version, &sync_owner(engine->run.sync, f)->have);
}

static void carry_out(struct engine *engine, const struct sync_action *action)
{
    uint32_t f = action->fragment;
    switch (action->type) {
    case SYNC_DO_ENCODE: order_encode(engine, f, action->version); break;
    case SYNC_DO_RELEASE: trainer_release(engine->trainer, f); break;
    case SYNC_DO_SEND: objects_send(engine->objects, &action->key, action->member, engine->now_ms); break;
    case SYNC_DO_REDUCE: order_reduce(engine, f, action->version); break;
    case SYNC_DO_STORE: reduce_store(engine->run.rounds->reduce, f, action->version); break;
    case SYNC_DO_APPLY: apply_begin(engine->run.rounds->apply, f, action->version); break;
    case SYNC_DO_PUBLISH: trainer_publish(engine->trainer, f); break;
    case SYNC_DO_WITHDRAW: trainer_withdraw(engine->trainer, f); break;
    case SYNC_DO_FETCH: objects_fetch(engine->objects, &action->key, action->member); break;
    case SYNC_DO_REPLAY: install_replay(engine->run.rounds->install, f, action->version); break;
    case SYNC_DO_REPAIR: install_repair(engine->run.rounds->install, f, action->version); break;
    case SYNC_DO_RETIRE: objects_retire(engine->objects, f, action->version); break;
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
    if (!engine->told)
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

/* ---- another key of this island ---- */

static const struct ident *key_before(const struct keyring *keyring)
{
    return keyring_has(&keyring->before) ? &keyring->before : NULL;
}

/* The others know it by the newest configuration; or by the one that is tried, while others come that we lack. */
static void follow_key(struct engine *engine)
{
    const struct keyring *keyring = &engine->keyring;
    const struct ident *other = keyring_other(keyring);
    const uint8_t *key = link_key(engine->link);
    bool own = memcmp(key, keyring->ident.key, IDENT_KEY_BYTES) == 0;
    if (!own && other != NULL && memcmp(key, other->key, IDENT_KEY_BYTES) == 0)
        return;
    link_rekey(engine->link, &keyring->ident, key_before(keyring)); /* one that was tried has another before now */
    if (!own)
        engine->key_turns = (struct key_turns){0};
}

static void drop_key(struct engine *engine)
{
    const struct view *view = &engine->configs.view;
    const struct keyring *keyring = &engine->keyring;
    if (view->self == VIEW_NOBODY)
        return;
    const struct config_member *as = &view->members[view->self].as;
    if (!keyring_dropped_is_over(keyring, as, membership_own_word(engine->membership)->number))
        return;
    log_info("the key %s, which was taken back, can be given to this island no more", keyring->dropped.public_text);
    keyring_forget_dropped(&engine->keyring);
}

static void look_for_others(struct engine *engine)
{
    const struct keyring *keyring = &engine->keyring;
    const struct ident *own = &keyring->ident, *other = keyring_other(keyring);
    const uint8_t *key = link_key(engine->link);
    struct key_turns_facts facts = {.two =
                                        other != NULL && config_log_last(engine->configs.config_log)->members_count > 1,
                                    .by_other = memcmp(key, own->key, sizeof own->key) != 0};
    facts.heard = membership_hears(engine->membership);
    if (!key_turns_due(&engine->key_turns, &facts, engine->now_ms))
        return;
    const struct ident *to = facts.by_other ? own : other;
    if (facts.by_other && facts.heard.most)
        log_info("this island is heard, and has its key %s again", own->public_text);
    else if (!facts.by_other && engine->key_turns.tries == 1)
        log_info("most of those that vote are not heard with the key %s: trying %s, and both by turns until they are",
                 own->public_text, other->public_text);
    link_rekey(engine->link, to, key_before(keyring));
}

/* ---- a new epoch ---- */

static enum err switch_epoch(struct engine *engine, struct config *config, const struct digest *digest)
{
    struct view_changes changes;
    TRY(config_store_adopt(&engine->configs, config, digest, &changes));
    follow_key(engine);
    take_length(engine);
    TRY(objects_members(engine->objects, &changes));
    TRY(peers_members(engine->peers, &changes));
    if (engine->told) {
        TRY(events_reserve(engine->events, runplan_fragments(&engine->run), engine->configs.view.count));
        if (engine->run.rounds != NULL)
            TRY(rounds_members(engine->run.rounds, engine->configs.view.count));
        struct sync_view view = config_store_sync_view(&engine->configs, membership_votes(engine->membership));
        TRY(sync_begin_epoch(engine->run.sync, &view, engine->now_ms));
        carry_out_all(engine);
        for (uint32_t f = 0; f < runplan_fragments(&engine->run); f++)
            apply_post_held(engine->run.rounds->context, f);
    }
    for (uint32_t i = 0; i < engine->configs.view.count; i++) {
        if (!bitset_has(&changes.removed, i))
            continue;
        if (engine->told && engine->run.rounds != NULL)
            rounds_forget(engine->run.rounds, i);
        view_release(&engine->configs.view, i);
    }
    if (engine->run.certificates != NULL)
        certificates_begin_epoch(engine->run.certificates);
    return membership_host_begin(engine->host, engine->now_ms);
}

static void begin_epoch(struct engine *engine)
{
    struct config config;
    struct digest digest;
    engine->epoch_waits = engine->run.plan != NULL && !engine->told;
    if (engine->epoch_waits || !membership_take(engine->membership, &config, &digest))
        return;
    if (switch_epoch(engine, &config, &digest) != ERR_OK)
        event_post_fatal(engine->events, err_text());
    else if (engine->run.rounds != NULL || view_is_witness(&engine->configs.view)) /* else it is not known yet */
        membership_host_tidy(engine->host,
                             config_store_old(&engine->configs, engine->run.rounds != NULL
                                                                    ? keep_first_epoch(engine->run.rounds->keep)
                                                                    : UINT64_MAX));
    config_deinit(&config);
}

/* ---- what the disk has is known ---- */

/* Not before this do other islands hear anything: what a voter says that it holds has to be all of it. */
static enum err make_known(struct engine *engine)
{
    if (engine->run.rounds != NULL && recover_damaged(engine->run.rounds->recover))
        TRY(ground_lost(engine->vote, "a checkpoint was damaged"));
    TRY(runplan_restore(&engine->run));
    sync_set_votes(engine->run.sync, membership_votes(engine->membership));
    if (engine->listens_ms == 0) {
        engine->listens_ms = engine->now_ms;
        peers_begin(engine->peers, engine->now_ms);
        TRY(membership_host_begin(engine->host, engine->now_ms));
        log_info("island %s of %" PRIu32 " is ready", engine->conf->name, engine->configs.view.count);
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
    judge_late(engine);
}

/* What a trainer is to draw; not where its data is its island's own. */
static void tell_deal(struct engine *engine)
{
    const struct view *view = &engine->configs.view;
    uint64_t applied = engine->run.sync != NULL ? sync_steps(engine->run.sync).applied : 0;
    if (engine->conf->stream[0] != '\0' || view->self == VIEW_NOBODY)
        return;
    if (dealing_follow(&engine->dealing, engine->configs.config_log, view->members[view->self].as.id, applied) !=
        ERR_OK)
        event_post_fatal(engine->events, err_text());
    trainer_deal(engine->trainer, &engine->dealing.deal);
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
    if (event->type == SYNC_EV_APPLIED)
        tell_deal(engine);
}

static void handle(struct engine *engine, const struct event *event)
{
    uint32_t f = event->fragment;
    log_debug("event %s of fragment %" PRIu32 ", member %" PRIu32, event_name(event->type), f, event->member);
    switch (event->type) {
    case EVENT_SYNC: sync_event_in(engine, &event->sync); break;
    case EVENT_EPOCH: begin_epoch(engine); break;
    case EVENT_ANNOUNCE: peers_announce(engine->peers); break;
    case EVENT_FATAL: judge_late(engine); break; /* who waits hears why; and the loop looks at it */
    case EVENT_REGISTERED: judge_trainer(engine); break;
    case EVENT_START:
        copy_start(engine->run.rounds->copy, f, trainer_base(engine->trainer, f), event->start.initial);
        break;
    case EVENT_READY:
        tell_deal(engine);
        attachment_go(engine->trainer->attachment, rounds_step(engine->run.rounds));
        break;
    case EVENT_FILL: copy_publish(engine->run.rounds->copy, f, trainer_area(engine->trainer, f)); break;
    case EVENT_FINISHED: finished(engine); break;
    case EVENT_ENCODED: encoded(engine, event); break;
    case EVENT_COUNTED: trainer_counted(engine->trainer, f, event->version, event->shards, event->share); break;
    case EVENT_PUBLISHED: trainer_published(engine->trainer, f); break;
    case EVENT_STARTED: started(engine, event); break;
    case EVENT_UNREAD: rounds_unread(engine->run.rounds, f); break;
    case EVENT_ON_DISK: rounds_on_disk(engine->run.rounds, f); break;
    case EVENT_JUDGED: objects_judged(engine->objects, event->member, &event->object.key, event->object.done); break;
    case EVENT_SERVE_STATE: copy_serve(engine->run.rounds->copy, event->server.served); break;
    case EVENT_STATE_SERVED:
        objects_state_served(engine->objects, event->server.served, event->server.err, engine->now_ms);
        break;
    case EVENT_RECOVERED: recovered(engine); break;
    case EVENT_KEPT: membership_host_kept(engine->host, engine->now_ms); break;
    case EVENT_EQUIVOCATION:
        membership_equivocation(engine->membership, event->equivocation.owner, f, event->equivocation.version);
        break;
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
    bool damaged;
    TRY(runplan_find(engine->conf, &engine->spec, &engine->configs.view, &plan, &damaged));
    if (damaged) /* what it holds of the run is not known until the plan is: it would say that it holds nothing */
        TRY(ground_lost(engine->vote, "the plan of its fragments was damaged"));
    if (plan == NULL)
        return ERR_OK;
    engine->listens_ms = 0;
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
                                 .nonce = engine->configs.view.nonce,
                                 .segment_bytes = conf->ledger_segment,
                                 .keep_bytes = conf->ledger_keep};
    TRY(events_new(&engine->events));
    TRY(ledger_open(&ledger, &engine->ledger));
    TRY(ground_open_vote(conf, engine->keyring.ident.public_text, engine->ledger, &engine->vote));
    struct jobs_conf jobs = {processors_jobs(conf->job_threads), (int)engine->spec.zstd_level, (int)conf->job_nice};
    return jobs_new(&jobs, &engine->jobs);
}

static enum err open_link(struct engine *engine)
{
    const struct dconf *from = engine->conf;
    struct link_conf conf = {.ident = &engine->keyring.ident,
                             .before = key_before(&engine->keyring),
                             .listen = from->listen,
                             .run_tag = wire_run_tag(engine->configs.view.nonce, &engine->spec.digest),
                             .rate_limit = from->rate_limit,
                             .congestion = from->congestion,
                             .io_threads = (int)from->io_threads};
    return link_new(&conf, &engine->link);
}

static enum err open_membership(struct engine *engine)
{
    struct membership_host_conf conf = {.folder = engine->conf->state_folder,
                                        .spec = &engine->spec,
                                        .view = &engine->configs.view,
                                        .config_log = engine->configs.config_log,
                                        .keyring = &engine->keyring,
                                        .vote = engine->vote,
                                        .events = engine->events,
                                        .jobs = engine->jobs,
                                        .link = engine->link,
                                        .trainer = engine->trainer,
                                        .start_ms = engine->start_ms};
    TRY(membership_host_new(&conf, &engine->host));
    engine->membership = membership_host_membership(engine->host);
    return ERR_OK;
}

/* All that has to do with other islands: one link, which transfer, membership and peers send on, and peers hears. */
static enum err open_islands(struct engine *engine)
{
    TRY(open_link(engine));
    struct objects_conf objects = {.spec = &engine->spec,
                                   .view = &engine->configs.view,
                                   .config_log = engine->configs.config_log,
                                   .events = engine->events,
                                   .trainer = engine->trainer,
                                   .link = engine->link,
                                   .rate_limit = engine->conf->rate_limit};
    TRY(objects_new(&objects, &engine->objects));
    TRY(open_membership(engine));
    struct peers_conf peers = {.conf = engine->conf,
                               .spec = &engine->spec,
                               .view = &engine->configs.view,
                               .config_log = engine->configs.config_log,
                               .vote = engine->vote,
                               .link = engine->link,
                               .objects = engine->objects,
                               .host = engine->host,
                               .events = engine->events,
                               .trainer = engine->trainer,
                               .session = env_random_u64() | 1,
                               .start_ms = engine->start_ms};
    return peers_new(&peers, &engine->peers);
}

static enum err open_parts(struct engine *engine)
{
    struct trainer_conf trainer = {.conf = engine->conf,
                                   .spec = &engine->spec,
                                   .view = &engine->configs.view,
                                   .events = engine->events,
                                   .jobs = engine->jobs,
                                   .start_ms = engine->start_ms};
    TRY(trainer_new(&trainer, &engine->trainer));
    TRY(open_islands(engine));
    struct control_conf control = {.folder = engine->conf->run_folder,
                                   .keyring = &engine->keyring,
                                   .trainer = engine->trainer,
                                   .peers = engine->peers,
                                   .join_server = membership_host_join_server(engine->host),
                                   .membership = membership_host_membership(engine->host),
                                   .status = {.conf = engine->conf,
                                              .spec = &engine->spec,
                                              .view = &engine->configs.view,
                                              .configs = &engine->configs,
                                              .vote = engine->vote,
                                              .ledger = engine->ledger,
                                              .link = engine->link,
                                              .objects = engine->objects,
                                              .host = engine->host,
                                              .membership = engine->membership,
                                              .peers = engine->peers,
                                              .trainer = engine->trainer,
                                              .start_ms = engine->start_ms,
                                              .lag = &engine->lag}};
    return control_new(&control, &engine->control);
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
    TRY_OUT(keyring_open(conf, &engine->keyring));
    TRY_OUT(runspec_load(conf->run_path, NULL, 0, &engine->spec));
    TRY_OUT(config_store_open(conf, &engine->keyring, &engine->spec, &engine->configs));
    TRY_OUT(check_run(engine));
    TRY_OUT(open_ground(engine));
    TRY_OUT(open_parts(engine));
    take_length(engine);
    TRY_OUT(load_plan(engine));
    TRY_OUT(process_autostart(engine->trainer->process, engine->now_ms));
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
    membership_host_free(engine->host);
    objects_free(engine->objects);
    link_free(engine->link);
    trainer_free(engine->trainer);
    runplan_free(&engine->run);
    ledger_close(engine->ledger);
    events_free(engine->events);
    vote_close(engine->vote);
    config_store_close(&engine->configs);
    keyring_close(&engine->keyring);
    runspec_deinit(&engine->spec);
    mem_free(engine->items);
    mem_free(engine);
}

/* ---- the loop ---- */

/* A state that is on its way is not asked for again. */
static void watch_states(struct engine *engine)
{
    for (uint32_t f = 0; engine->told && f < runplan_fragments(&engine->run); f++) {
        struct wire_key key;
        if (sync_fetching_state(engine->run.sync, f, &key) && objects_receiving(engine->objects, &key))
            sync_state_moves(engine->run.sync, f, objects_state_comes(engine->objects, &key));
    }
}

static void heard_trainers(const struct engine *engine, struct run_said said[VIEW_SLOTS_MAX])
{
    for (uint32_t i = 0; i < engine->configs.view.count; i++) {
        struct peer_info peer = peers_info(engine->peers, i);
        said[i] = (struct run_said){.trainer = peer.trainer, .unfinished = peer.unfinished};
    }
}

static struct run_end_found end_of_run(const struct engine *engine, bool gone)
{
    struct run_said said[VIEW_SLOTS_MAX];
    if (!engine->told)
        return (struct run_end_found){.end = RUN_GOES_ON};
    heard_trainers(engine, said);
    return run_end_of(engine->run.sync, &engine->configs.view, runplan_fragments(&engine->run), said, gone);
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

static void tick_islands(struct engine *engine)
{
    look_for_others(engine);
    drop_key(engine);
    peers_tick(engine->peers, objects_uplink_bits(engine->objects), engine->now_ms);
    struct bitset holders = peers_plan_holders(engine->peers);
    objects_tick(engine->objects, &holders, engine->now_ms);
    membership_host_tick(engine->host, peers_silent(engine->peers), peers_shut_out(engine->peers), engine->now_ms);
}

static void tick(struct engine *engine)
{
    engine->tick_ms = engine->now_ms + TICK_MS;
    watch_states(engine); /* before the core looks: of a state that is half here another version is not asked for */
    step_sync(engine, &(struct sync_event){.type = SYNC_EV_TICK});
    drain(engine);
    if (engine->told)
        tell_expectation(engine);
    if (engine->listens_ms != 0)
        tick_islands(engine);
    stepped(engine, "the tick of the other islands");
    drain(engine);
    judge_late(engine);
    stepped(engine, "judging a trainer");
    tell_deal(engine);
    trainer_run_step(engine->trainer, peers_furthest(engine->peers, trainer_info(engine->trainer).step));
    struct run_end_found end = end_of_run(engine, false);
    trainer_tick(engine->trainer, engine->now_ms, peers_heard(engine->peers), &end);
    stepped(engine, "the tick of the trainer");
    drain(engine);
    if (engine->told && engine->run.rounds != NULL)
        rounds_tick(engine->run.rounds, engine->now_ms, objects_uplink_bits(engine->objects),
                    peers_step_line(engine->peers));
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

/* ---- waiting: for the other islands' sockets, the trainer, the control socket, finished jobs and signals ---- */

static enum err make_room_for_items(struct engine *engine)
{
    size_t room = link_poll_items(engine->link, NULL, 0) + FDS_MAX;
    if (room <= engine->items_room)
        return ERR_OK;
    TRY(mem_grow(&engine->items, engine->items_room, room, sizeof *engine->items, "events"));
    engine->items_room = room;
    return ERR_OK;
}

static size_t gather_items(struct engine *engine, int signal_fd)
{
    zmq_pollitem_t *items = engine->items;
    struct pollfd fds[FDS_MAX];
    size_t count = engine->listens_ms != 0 ? link_poll_items(engine->link, items, engine->items_room - FDS_MAX) : 0;
    size_t fds_count = 0;
    fds[fds_count++] = (struct pollfd){.fd = signal_fd, .events = POLLIN};
    fds[fds_count++] = (struct pollfd){.fd = jobs_fd(engine->jobs), .events = POLLIN};
    fds_count += trainer_poll(engine->trainer, fds + fds_count, FDS_MAX - fds_count);
    fds_count += control_poll(engine->control, fds + fds_count, FDS_MAX - fds_count);
    for (size_t i = 0; i < fds_count; i++)
        items[count++] =
            (zmq_pollitem_t){.fd = fds[i].fd, .events = fds[i].events & POLLOUT ? ZMQ_POLLOUT : ZMQ_POLLIN};
    return count;
}

/* Until a tick is due, or what may be sent to other islands has its turn. */
static long patience_ms(const struct engine *engine)
{
    uint64_t now_ms = env_mono_ms(), waits_us[] = {peers_wait_us(engine->peers), objects_wait_us(engine->objects)};
    long wait_ms = engine->tick_ms > now_ms ? (long)(engine->tick_ms - now_ms) : 0;
    for (size_t i = 0; i < 2 && engine->listens_ms != 0; i++)
        if (waits_us[i] > 0 && waits_us[i] / 1000 + 1 < (uint64_t)wait_ms)
            wait_ms = (long)(waits_us[i] / 1000 + 1);
    return wait_ms;
}

static enum err wait_for_input(struct engine *engine, int signal_fd)
{
    end_turn(engine);
    TRY(make_room_for_items(engine));
    size_t count = gather_items(engine, signal_fd);
    int failed = zmq_poll(engine->items, (int)count, patience_ms(engine)) < 0 ? zmq_errno() : 0;
    begin_turn(engine);
    engine->now_ms = env_mono_ms();
    if (failed != 0 && failed != EINTR)
        return err_set(ERR_IO, "waiting for events: %s", zmq_strerror(failed));
    return ERR_OK;
}

/* ---- a turn ---- */

/* Whether one more of a kind of message is taken in: at least one is, in each turn. */
static bool has_time(const struct engine *engine, int taken, int most)
{
    return taken < most && (taken == 0 || !lag_is_up(&engine->lag, env_mono_ns()));
}

static void hear_peers(struct engine *engine)
{
    peers_look(engine->peers, engine->now_ms);
    for (int i = 0; has_time(engine, i, PEER_MESSAGES_PER_TURN) && peers_take(engine->peers, engine->now_ms); i++) {
        stepped(engine, "a message of another island");
        drain(engine);
    }
    peers_flush(engine->peers, engine->now_ms);
    membership_host_look(engine->host, engine->now_ms);
    objects_flush(engine->objects, engine->now_ms);
    stepped(engine, "sending to other islands");
}

/* One turn: every part takes in what has happened, one thing at a time, and after each the events are dealt with. */
static enum err turn(struct engine *engine, int signal_fd)
{
    TRY(wait_for_input(engine, signal_fd));
    for (size_t left = jobs_pending(engine->jobs); left > 0 && jobs_take_back(engine->jobs); left--) {
        stepped(engine, jobs_work_name(jobs_taken(engine->jobs)));
        drain(engine);
    }
    for (int i = 0; has_time(engine, i, TRAINER_MESSAGES_PER_TURN) && trainer_take(engine->trainer, engine->now_ms);
         i++) {
        stepped(engine, "a message of the trainer");
        drain(engine);
    }
    if (engine->listens_ms != 0)
        hear_peers(engine);
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

/* True if the daemon ends with its run, and that is over. */
static bool is_over(struct engine *engine)
{
    struct run_said said[VIEW_SLOTS_MAX];
    bool finished = trainer_phase(engine->trainer) == TRAINER_FINISHED && !process_running(engine->trainer->process);
    if (!engine->conf->until_over || !engine->told)
        return false;
    heard_trainers(engine, said);
    struct run_end_found end = end_of_run(engine, true);
    if (!run_close_due(&engine->close, &end, finished, engine->run.sync, &engine->configs.view, said, engine->now_ms))
        return false;
    log_info("the run is over%s, and so is this daemon (--until-over)",
             engine->close.end == RUN_OPEN ? " but for islands that were not done and have not come back for minutes"
                                           : "");
    return true;
}

/* In reverse of the start: the trainer saves and goes, jobs end, the state is written, peers are told. */
static enum err stop_in_order(struct engine *engine, int signal_fd)
{
    uint64_t trainer_ms = engine->conf->stop_ms + KILLED_MS; /* a trainer that hangs is killed, and seen to end */
    uint64_t deadline_ms = env_mono_ms() + (trainer_ms > STOP_PATIENCE_MS ? trainer_ms : STOP_PATIENCE_MS);
    sd_notify(0, "STOPPING=1");
    log_info("stopping");
    process_stop(engine->trainer->process);
    if (engine->run.rounds != NULL && !engine->told)
        recover_stop(engine->run.rounds->recover);
    dial_server_stop(membership_host_dial_server(engine->host)); /* a line that swallows all would use up the time */
    while ((jobs_pending(engine->jobs) > 0 || process_running(engine->trainer->process)) && env_mono_ms() < deadline_ms)
        TRY(turn(engine, signal_fd));
    if (engine->told && engine->run.rounds != NULL)
        keep_checkpoint_all(engine->run.rounds->keep);
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
             engine->configs.view.count, engine->listens_ms != 0 ? "is ready" : "is up, and reads what it has saved",
             engine->conf->run_folder);
    advise(&engine->spec);
    begin_turn(engine);
    drain(engine);
    while (fatal[0] == '\0' && !read_signals(signal_fd) && !is_over(engine))
        TRY(turn(engine, signal_fd));
    enum err err = stop_in_order(engine, signal_fd);
    if (ledger_stats(engine->ledger).lost && (err != ERR_OK || fatal[0] != '\0')) /* a start would find nothing saved */
        return err_set(ERR_NOTFOUND, "%s", fatal[0] != '\0' ? fatal : err_text());
    TRY(err);
    enum err failed = engine->failed != ERR_OK ? engine->failed : ERR_STATE;
    return fatal[0] != '\0' ? err_set(failed, "%s", fatal) : ERR_OK;
}
