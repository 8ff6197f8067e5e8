#include "daemon/engine.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>
#include <zmq.h>

#include "common/mem.h"
#include "daemon/rules.h"
#include "outer_opt/recipe.h"

/* TICK: time for timers of the protocol. The loop wakes for messages, jobs and signals by itself. */
enum { TICK_MS = 100, SAMPLE_MS = 500, STOP_PATIENCE_MS = 20000, POLL_MAX = 4 * WIRE_MEMBERS_MAX + 64 };

void engine_fail(struct engine *engine, const char *text)
{
    if (!engine->failed)
        snprintf(engine->fatal_note, sizeof engine->fatal_note, "%s", text);
    engine->failed = true;
}

/* ---- the plan ---- */

uint32_t engine_fragments(const struct engine *engine)
{
    return engine->plan != NULL ? engine->plan->plan->fragments_count : 0;
}

uint64_t engine_step(const struct engine *engine)
{
    uint64_t step = 0;
    for (uint32_t f = 0; f < engine_fragments(engine); f++)
        if (engine->fragments[f].state.step > step)
            step = engine->fragments[f].state.step;
    return step;
}

static struct replica_conf replica_conf_of(const struct engine *engine, const struct plan *plan,
                                           const uint64_t *weights)
{
    return (struct replica_conf){.plan = plan,
                                 .outer = rules_outer(&engine->spec),
                                 .choice = rules_codec(&engine->spec),
                                 .adaptive = engine->spec.codec == RUNSPEC_ADAPTIVE,
                                 .error_feedback = engine->spec.error_feedback,
                                 .feedback_decay = (float)engine->spec.feedback_decay,
                                 .feedback_limit = (float)engine->spec.feedback_limit,
                                 .outliers = rules_outliers(&engine->spec),
                                 .weights = weights,
                                 .members_count = engine->view.count,
                                 .self = engine->view.self};
}

static enum err alloc_fragments(struct engine *engine)
{
    uint32_t members = engine->view.count;
    TRY(mem_new(engine_fragments(engine), sizeof *engine->fragments, "fragments", &engine->fragments));
    for (uint32_t f = 0; f < engine_fragments(engine); f++) {
        struct engine_fragment *fragment = &engine->fragments[f];
        fragment->checkpoint_version = UINT64_MAX;
        TRY(mem_new(members, sizeof *fragment->out, "fragments", &fragment->out));
        TRY(mem_new(members, sizeof *fragment->in, "fragments", &fragment->in));
        TRY(mem_new(members, sizeof *fragment->result, "fragments", &fragment->result));
        TRY(mem_new(members, sizeof *fragment->sizes, "fragments", &fragment->sizes));
    }
    return ERR_OK;
}

static enum err start_sync(struct engine *engine)
{
    uint32_t fragments = engine_fragments(engine);
    struct bitset *shards;
    TRY(mem_new(fragments, sizeof *shards, "the protocol", &shards));
    for (uint32_t f = 0; f < fragments; f++) {
        for (uint32_t s = 0; s < engine->view.count; s++) {
            struct plan_shard shard = replica_shard(engine->replica, f, s);
            if (shard.end > shard.begin)
                bitset_add(&shards[f], s);
        }
    }
    struct sync_conf conf = {.self = engine->view.self,
                             .members_count = engine->view.count,
                             .fragments_count = fragments,
                             .shards = shards,
                             .rule = {.quorum = (uint32_t)engine->spec.quorum, .grace_ms = engine->spec.grace_ms}};
    enum err err = sync_new(&conf, &engine->sync);
    mem_free(shards);
    return err;
}

static enum err recover_all(struct engine *engine)
{
    uint64_t versions = 0;
    for (uint32_t f = 0; f < engine_fragments(engine); f++) {
        bool known;
        uint64_t results;
        TRY(rounds_recover(engine, f, &known, &results));
        if (!known)
            continue;
        struct engine_fragment *fragment = &engine->fragments[f];
        struct bitset known_results = bitset_of_word(results);
        sync_restore(engine->sync, f, fragment->state.version, &fragment->state.hash, &known_results);
        versions += fragment->state.version;
    }
    if (versions > 0)
        log_info("recovered %" PRIu32 " fragments, %" PRIu64 " versions in all, up to step %" PRIu64,
                 engine_fragments(engine), versions, engine_step(engine));
    return ERR_OK;
}

/* What a plan takes, in bytes, at most. */
struct memory {
    uint64_t replica; /* anchors, momentum, residuals */
    uint64_t shared;  /* with the trainer */
    uint64_t frames;  /* encoded: contributions out and in, results, our own; and job threads' scratch */
    uint64_t states;  /* a blank island's states on their way in, and copies for others */
};

static struct memory memory_of(const struct engine *engine, const struct replica_conf *conf)
{
    const struct plan *plan = conf->plan;
    struct memory memory = {.replica = replica_bytes(conf)};
    uint64_t shard_most = 0;
    for (uint32_t f = 0; f < plan->fragments_count; f++) {
        uint64_t values = plan->fragments[f].values_count;
        struct plan_shard own = plan_shard(plan, f, conf->weights, conf->members_count, conf->self);
        memory.shared += 2 * values * sizeof(float);
        for (uint32_t s = 0; s < conf->members_count; s++) {
            struct plan_shard shard = plan_shard(plan, f, conf->weights, conf->members_count, s);
            shard_most = shard.end - shard.begin > shard_most ? shard.end - shard.begin : shard_most;
            /* what we send for it and its result; and for our own what everyone sends, too */
            memory.frames +=
                2 * wire_object_bytes_max(recipe_frame_bytes_max(plan, &conf->choice, f, shard.begin, shard.end)) +
                wire_object_bytes_max(recipe_frame_bytes_max(plan, &conf->choice, f, own.begin, own.end));
        }
        memory.states += 2 * values * sizeof(float);
    }
    memory.frames += (uint64_t)engine->conf->job_threads * shard_most * sizeof(float);
    memory.states += 2 * 2 * plan->values_count_max * sizeof(float);
    return memory;
}

/* Before anything is allocated: a model that does not fit is refused, whoever names it. */
static enum err check_memory(struct engine *engine, const struct replica_conf *conf)
{
    struct memory memory = memory_of(engine, conf);
    uint64_t needed = memory.replica + memory.shared + memory.frames;
    uint64_t there = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    if (needed > there)
        return err_set(ERR_NOMEM,
                       "the model's %" PRIu64 " parameters need %.1f GiB here, and this machine has %.1f GiB",
                       conf->plan->params_count, (double)needed / 1073741824, (double)there / 1073741824);
    engine->memory_bytes = needed + memory.states;
    log_info("%" PRIu64 " parameters in %" PRIu32 " fragments; memory at most: %.1f MiB for anchors, momentum and "
             "residuals, %.1f MiB shared with the trainer, %.1f MiB for encoded frames and jobs, %.1f MiB while states "
             "are fetched or sent",
             conf->plan->params_count, conf->plan->fragments_count, (double)memory.replica / 1048576,
             (double)memory.shared / 1048576, (double)memory.frames / 1048576, (double)memory.states / 1048576);
    return ERR_OK;
}

enum err engine_set_plan(struct engine *engine, struct model_plan *plan)
{
    uint64_t weights[WIRE_MEMBERS_MAX];
    for (uint32_t i = 0; i < engine->view.count; i++)
        weights[i] = engine->view.members[i].uplink;
    struct replica_conf conf = replica_conf_of(engine, plan->plan, weights);
    TRY(check_memory(engine, &conf));
    engine->plan = plan;
    TRY(replica_new(&conf, &engine->replica));
    TRY(jobs_set_scratch(engine->jobs, replica_shard_max(engine->replica), replica_factor_values(engine->replica)));
    TRY(alloc_fragments(engine));
    TRY(start_sync(engine));
    TRY(store_save_plan(engine->conf->state_folder, plan));
    TRY(recover_all(engine));
    return exchange_plan_known(engine);
}

static void free_slots(struct slot *slots, uint32_t count)
{
    for (uint32_t i = 0; slots != NULL && i < count; i++)
        mem_free(slots[i].data);
    mem_free(slots);
}

static void free_fragments(struct engine *engine)
{
    for (uint32_t f = 0; engine->fragments != NULL && f < engine_fragments(engine); f++) {
        struct engine_fragment *fragment = &engine->fragments[f];
        free_slots(fragment->out, engine->view.count);
        free_slots(fragment->in, engine->view.count);
        free_slots(fragment->result, engine->view.count);
        mem_free(fragment->sizes);
        mem_free(fragment->own.data);
        mem_free(fragment->state_in);
    }
    mem_free(engine->fragments);
}

/* ---- the sync core's orders ---- */

static void carry_report(struct engine *engine, const struct sync_action *action)
{
    const char *peer = engine->view.members[action->member].name;
    switch (action->report) {
    case SYNC_REPORT_DIVERGED:
        if (action->version == 0)
            log_warn("fragment %" PRIu32 ": our initial tensors differ from island %s's; taking over theirs",
                     action->fragment, peer);
        else
            log_error("fragment %" PRIu32 " has DIVERGED at version %" PRIu64
                      ": our hash differs from island %s's; fetching its state",
                      action->fragment, action->version, peer);
        break;
    case SYNC_REPORT_PEER_DIVERGED:
        if (log_limit_pass(&engine->peers[action->member].trouble, engine->now_ms, 5000))
            log_warn("island %s has diverged in fragment %" PRIu32 "; it repairs from the others", peer,
                     action->fragment);
        break;
    case SYNC_REPORT_BEHIND:
        log_warn("fragment %" PRIu32 ": too far behind for results; fetching island %s's state", action->fragment,
                 peer);
        break;
    case SYNC_REPORT_REPAIRED:
        log_info("fragment %" PRIu32 " now holds island %s's state", action->fragment, peer);
        break;
    case SYNC_REPORT_ILLEGAL:
        log_error("fragment %" PRIu32 ": an event had no place in state %s; please report this", action->fragment,
                  sync_state_name(sync_state(engine->sync, action->fragment)));
        break;
    }
}

static void carry_out(struct engine *engine, const struct sync_action *action)
{
    uint32_t f = action->fragment;
    switch (action->type) {
    case SYNC_DO_ENCODE: rounds_encode(engine, f, action->version); break;
    case SYNC_DO_RELEASE: port_release(engine, f); break;
    case SYNC_DO_SEND: exchange_send(engine, &action->key, action->member); break;
    case SYNC_DO_REDUCE: rounds_reduce(engine, f, action->version); break;
    case SYNC_DO_STORE: rounds_store(engine, f, action->version); break;
    case SYNC_DO_APPLY: rounds_apply(engine, f, action->version); break;
    case SYNC_DO_GIVE: port_give(engine, f); break;
    case SYNC_DO_TAKE_BACK: port_take_back(engine, f); break;
    case SYNC_DO_FETCH: exchange_fetch(engine, &action->key, action->member); break;
    case SYNC_DO_RETIRE: exchange_retire(engine, f, action->version); break;
    case SYNC_DO_ANNOUNCE: engine->announce = true; break;
    case SYNC_DO_REPORT: carry_report(engine, action); break;
    }
}

void engine_event(struct engine *engine, const struct sync_event *event)
{
    struct sync_action action;
    if (engine->sync == NULL)
        return;
    sync_step(engine->sync, event, engine->now_ms);
    while (sync_action(engine->sync, &action))
        carry_out(engine, &action);
}

/* ---- start and end ---- */

static enum err load_plan(struct engine *engine)
{
    struct model_plan *plan;
    enum err err = store_load_plan(engine->conf->state_folder, &engine->spec, &plan);
    if (err == ERR_NOTFOUND)
        return ERR_OK; /* the first trainer, or a peer, brings it */
    TRY(err);
    err = engine_set_plan(engine, plan);
    if (engine->plan == NULL)
        model_plan_free(plan);
    return err;
}

static enum err open_parts(struct engine *engine)
{
    const struct dconf *conf = engine->conf;
    struct ledger_conf ledger = {.folder = conf->state_folder,
                                 .run_id = engine->spec.digest,
                                 .segment_bytes = conf->ledger_segment,
                                 .keep_bytes = conf->ledger_keep};
    TRY(ledger_open(&ledger, &engine->ledger));
    TRY(jobs_new((int)conf->job_threads, (int)engine->spec.zstd_level, &engine->jobs));
    TRY(exchange_new(engine));
    TRY(port_new(engine));
    TRY(control_new(engine));
    TRY(load_plan(engine));
    return workers_new(engine);
}

enum err engine_new(const struct dconf *conf, struct engine **out)
{
    enum err err;
    struct engine *engine = NULL;
    *out = NULL;
    TRY_OUT(mem_new(1, sizeof *engine, "the engine", &engine));
    engine->conf = conf;
    engine->now_ms = env_mono_ms();
    engine->start_ms = engine->now_ms;
    engine->checkpoint_ms = engine->now_ms + conf->checkpoint_ms;
    engine->session = env_random_u64() | 1;
    TRY_OUT(ident_load(conf->key_path, &engine->ident));
    TRY_OUT(runspec_load(conf->run_path, NULL, 0, &engine->spec));
    TRY_OUT(dconf_view(conf, &engine->ident, &engine->view));
    if (engine->spec.quorum > engine->view.count) {
        err = err_set(ERR_CONF, "%s: [sync] quorum: %" PRId64 " is more than the %" PRIu32 " islands of the run",
                      conf->run_path, engine->spec.quorum, engine->view.count);
        goto out;
    }
    TRY_OUT(open_parts(engine));
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
    workers_free(engine);
    control_free(engine);
    port_free(engine);
    exchange_free(engine);
    rounds_free_jobs(engine);
    sync_free(engine->sync);
    free_fragments(engine);
    replica_free(engine->replica);
    model_plan_free(engine->plan);
    mem_free(engine->plan_in);
    ledger_close(engine->ledger);
    view_free(&engine->view);
    runspec_deinit(&engine->spec);
    mem_free(engine);
}

/* ---- the loop ---- */

static void checkpoint_if_due(struct engine *engine)
{
    if (engine->sync == NULL || engine->now_ms < engine->checkpoint_ms)
        return;
    engine->checkpoint_ms = engine->now_ms + engine->conf->checkpoint_ms;
    for (uint32_t f = 0; f < engine_fragments(engine); f++)
        rounds_checkpoint(engine, f);
}

/* What could not be done at once and is tried again. */
static void retry(struct engine *engine)
{
    for (uint32_t f = 0; f < engine_fragments(engine); f++) {
        struct engine_fragment *fragment = &engine->fragments[f];
        if (fragment->store_again_ms == 0 || engine->now_ms < fragment->store_again_ms)
            continue;
        fragment->store_again_ms = 0;
        rounds_store(engine, f, fragment->own.version);
    }
    if (engine->export_wanted)
        rounds_export(engine);
    rounds_export_follow(engine);
}

static void tick(struct engine *engine)
{
    char line[256];
    if (engine->now_ms >= engine->tick_ms) {
        engine->tick_ms = engine->now_ms + TICK_MS;
        engine_event(engine, &(struct sync_event){.type = SYNC_EV_TICK});
        exchange_tick(engine);
        port_tick(engine);
        workers_tick(engine);
        checkpoint_if_due(engine);
        retry(engine);
    }
    if (engine->now_ms >= engine->sample_ms) {
        engine->sample_ms = engine->now_ms + SAMPLE_MS;
        link_sample(engine->link);
        status_line(engine, line, sizeof line);
        sd_notifyf(0, "WATCHDOG=1\nSTATUS=%s", line);
    }
}

static size_t gather(struct engine *engine, int signal_fd, zmq_pollitem_t *items)
{
    struct pollfd fds[64];
    size_t count = link_poll_items(engine->link, items, POLL_MAX - 64);
    size_t fds_count = 0;
    fds[fds_count++] = (struct pollfd){.fd = signal_fd, .events = POLLIN};
    fds[fds_count++] = (struct pollfd){.fd = jobs_fd(engine->jobs), .events = POLLIN};
    fds_count += port_poll(engine, fds + fds_count, 4);
    fds_count += workers_poll(engine, fds + fds_count, 4);
    fds_count += control_poll(engine, fds + fds_count, 40);
    for (size_t i = 0; i < fds_count; i++)
        items[count++] = (zmq_pollitem_t){.fd = fds[i].fd,
                                          .events = fds[i].events & POLLOUT ? ZMQ_POLLIN | ZMQ_POLLOUT : ZMQ_POLLIN};
    return count;
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

static enum err turn(struct engine *engine, int signal_fd)
{
    zmq_pollitem_t items[POLL_MAX];
    size_t count = gather(engine, signal_fd, items);
    uint64_t now_ms = env_mono_ms();
    long wait_ms = engine->tick_ms > now_ms ? (long)(engine->tick_ms - now_ms) : 0;
    if (engine->chunk_wait_us > 0 && engine->chunk_wait_us / 1000 + 1 < (uint64_t)wait_ms)
        wait_ms = (long)(engine->chunk_wait_us / 1000 + 1);
    if (zmq_poll(items, (int)count, wait_ms) < 0 && zmq_errno() != EINTR)
        return err_set(ERR_IO, "waiting for events: %s", zmq_strerror(zmq_errno()));
    engine->now_ms = env_mono_ms();
    jobs_finished(engine->jobs, engine);
    port_run(engine);
    workers_run(engine);
    exchange_run(engine);
    control_run(engine);
    tick(engine);
    return ERR_OK;
}

static bool jobs_or_trainer_left(const struct engine *engine)
{
    return jobs_pending(engine->jobs) > 0 || workers_running(engine);
}

/* In reverse of the start: the trainer saves and goes, jobs end, the state is written, peers are told. */
static enum err stop_in_order(struct engine *engine, int signal_fd)
{
    uint64_t deadline_ms = env_mono_ms() + STOP_PATIENCE_MS;
    engine->stopping = true;
    sd_notify(0, "STOPPING=1");
    log_info("stopping");
    workers_stop(engine);
    while (jobs_or_trainer_left(engine) && env_mono_ms() < deadline_ms)
        TRY(turn(engine, signal_fd));
    for (uint32_t f = 0; engine->sync != NULL && f < engine_fragments(engine); f++)
        rounds_checkpoint(engine, f);
    while (jobs_pending(engine->jobs) > 0 && env_mono_ms() < deadline_ms)
        TRY(turn(engine, signal_fd));
    exchange_bye(engine, "it is being stopped");
    return ledger_sync(engine->ledger);
}

enum err engine_run(struct engine *engine, int signal_fd)
{
    sd_notify(0, "READY=1");
    log_info("island %s of %" PRIu32 " is ready; control socket %s/control.sock", engine->conf->name,
             engine->view.count, engine->conf->run_folder);
    while (!engine->failed && !read_signals(signal_fd))
        TRY(turn(engine, signal_fd));
    TRY(stop_in_order(engine, signal_fd));
    return engine->failed ? err_set(ERR_STATE, "%s", engine->fatal_note) : ERR_OK;
}
