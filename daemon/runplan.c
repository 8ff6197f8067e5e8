/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/membership/config_store.h"
#include "daemon/runplan.h"

#include <inttypes.h>

#include "common/log.h"
#include "common/mem.h"
#include "common/mem_limit.h"
#include "common/processors.h"
#include "daemon/jobs.h"
#include "daemon/rounds/keep.h"
#include "daemon/rounds/recover.h"
#include "daemon/rules.h"
#include "daemon/state/memory.h"
#include "daemon/state/store.h"

/* An island that can be heard and does not do its part is waited for so many times as long as one that is silent. */
enum { PATIENCE_AWAYS = 4 };

/* No plan leads to what is saved. Where it holds no version of others, the first trainer, or a peer, brings one. */
static enum err go_on_without_plan(const char *folder, const struct runspec *spec, const struct view *view,
                                   enum err err)
{
    if (err == ERR_CORRUPT)
        log_warn("%s; it is put aside as .damaged, and a trainer or another island brings it again", err_text());
    TRY(store_check(folder, spec, &view->nonce_id));
    if (err == ERR_NOTFOUND)
        return ERR_OK;
    if (err == ERR_CONF)
        log_warn("the run spec is not the one of the last start. No round was saved under that one, so this one is "
                 "taken; what its trainer saved is put aside in %s/worker.1, or a higher number",
                 folder);
    return store_put_aside(folder, err == ERR_CONF);
}

enum err runplan_find(const struct dconf *conf, const struct runspec *spec, const struct view *view,
                      struct model_plan **out, bool *damaged)
{
    enum err err = store_load_plan(conf->state_folder, spec, out);
    *damaged = err == ERR_CORRUPT;
    if (err == ERR_NOTFOUND || err == ERR_CORRUPT || err == ERR_CONF)
        return go_on_without_plan(conf->state_folder, spec, view, err);
    return err;
}

uint32_t runplan_fragments(const struct runplan *run)
{
    return run->rounds != NULL ? run->plan->plan->fragments_count : 0;
}

static struct replica_conf replica_conf_of(const struct runplan_conf *from, const struct plan *plan)
{
    const struct runspec *spec = from->spec;
    return (struct replica_conf){.plan = plan,
                                 .outer = rules_outer(spec),
                                 .choice = rules_codec(spec),
                                 .adaptive = spec->codec == CODEC_ADAPTIVE,
                                 .error_feedback = spec->error_feedback,
                                 .feedback_decay = (float)spec->feedback_decay,
                                 .feedback_limit = (float)spec->feedback_limit,
                                 .outliers = rules_outliers(spec)};
}

static enum err new_sync(const struct runplan_conf *from, struct runplan *run)
{
    const struct plan *plan = run->plan->plan;
    TRY(mem_new(plan->fragments_count, sizeof *run->shards_counts, "the plan", &run->shards_counts));
    TRY(mem_new(plan->fragments_count, sizeof *run->filled, "the plan", &run->filled));
    for (uint32_t f = 0; f < plan->fragments_count; f++) {
        run->shards_counts[f] = plan->fragments[f].shards_count;
        run->filled[f] = parts_filled(plan, f);
    }
    struct sync_conf conf = {.config_log = from->configs->config_log,
                             .fragments_count = plan->fragments_count,
                             .shards_counts = run->shards_counts,
                             .filled = run->filled,
                             .rule = {.quorum = (uint32_t)from->spec->quorum, .grace_ms = from->spec->grace_ms},
                             .patience_ms = PATIENCE_AWAYS * from->conf->away_ms,
                             .view = config_store_sync_view(from->configs, from->votes)};
    return sync_new(&conf, &run->sync);
}

static enum err new_rounds(const struct runplan_conf *from, struct runplan *run)
{
    struct slots_conf slots = {.replica = run->replica,
                               .fragments_count = run->plan->plan->fragments_count,
                               .members_count = from->configs->view.count};
    TRY(slots_new(&slots, &run->slots));
    struct rounds_conf conf = {.spec = from->spec,
                               .view = &from->configs->view,
                               .ident = from->ident,
                               .nonce = from->configs->view.nonce,
                               .plan = run->plan,
                               .parts = &run->parts,
                               .folder = from->conf->state_folder,
                               .save_evidence = config_store_save_evidence,
                               .compress_auto = from->conf->compress_auto,
                               .checkpoint_ms = from->conf->checkpoint_ms,
                               .ledger_keep = from->conf->ledger_keep,
                               .ledger_versions = (uint64_t)from->conf->ledger_versions,
                               .replica = run->replica,
                               .ledger = from->ledger,
                               .slots = run->slots,
                               .jobs = from->jobs,
                               .events = from->events,
                               .sync = run->sync};
    return rounds_new(&conf, &run->rounds);
}

static enum err new_certificates(const struct runplan_conf *from, struct runplan *run)
{
    const struct view *view = &from->configs->view;
    struct certificates_conf certificates = {.config_log = from->configs->config_log,
                                             .ident = from->ident,
                                             .nonce = view->nonce,
                                             .id = view->members[view->self].as.id,
                                             .fragments_count = run->plan->plan->fragments_count};
    return certificates_new(&certificates, &run->certificates);
}

/* ---- what the disk has ---- */

/* A checkpoint of another run is a matter for people, who are told at the start, and not when all of it was read. One
 * that only looks like that, since it is damaged, is not. */
static enum err check_checkpoints(const struct runplan_conf *from, struct runplan *run)
{
    const char *folder = from->conf->state_folder;
    const struct digest *nonce_id = &from->configs->view.nonce_id;
    for (uint32_t f = 0; f < runplan_fragments(run); f++) {
        struct store_fragment state;
        if (store_check_fragment(folder, from->spec, nonce_id, run->plan, f) != ERR_CONF)
            continue;
        enum err err = store_load_fragment(folder, from->spec, nonce_id, run->plan, run->replica, f, &state);
        replica_clear(run->replica, f);
        if (err == ERR_CONF)
            return err;
    }
    return ERR_OK;
}

/* Then the rest: a plan that is new is kept before anything else is done by it. */
struct runplan_saving {
    struct job job;
    struct runplan_conf from;
    struct runplan *run;
};

static enum err recover(const struct runplan_conf *from, struct runplan *run)
{
    if (run->rounds != NULL)
        return recover_begin(run->rounds->recover);
    event_post(from->events, &(struct event){.type = EVENT_RECOVERED}); /* a witness has nothing to read */
    return ERR_OK;
}

static enum err run_saving(struct job *job, struct jobs_scratch *scratch)
{
    const struct runplan_saving *j = (const struct runplan_saving *)(const void *)job;
    (void)scratch;
    return store_save_plan(j->from.conf->state_folder, j->from.spec, j->run->plan);
}

static void done_saving(struct job *job)
{
    const struct runplan_saving *j = (const struct runplan_saving *)(const void *)job;
    if (job->err != ERR_OK)
        event_post_fatal(j->from.events, job->text);
    else if (recover(&j->from, j->run) != ERR_OK)
        event_post_fatal(j->from.events, err_text());
}

static enum err save_first(const struct runplan_conf *from, struct runplan *run)
{
    TRY(mem_new(1, sizeof *run->saving, "the plan", &run->saving));
    *run->saving = (struct runplan_saving){
        .job = {.work = JOBS_SAVE, .run = run_saving, .done = done_saving}, .from = *from, .run = run};
    jobs_submit(from->jobs, &run->saving->job);
    return ERR_OK;
}

enum err runplan_restore(struct runplan *run)
{
    uint64_t versions = 0;
    if (run->rounds == NULL)
        return ERR_OK;
    TRY(recover_end(run->rounds->recover, run->rounds->keep));
    for (uint32_t f = 0; f < runplan_fragments(run); f++) {
        if (!recover_known(run->rounds->recover, f))
            continue;
        const struct store_fragment *state = rounds_state(run->rounds, f);
        sync_restore(run->sync, f, state->version, &state->hash);
        sync_restore_steps(run->sync, state->step, recover_applied_step(run->rounds->recover, f));
        recover_tell_held(run->rounds->recover, f);
        versions += state->version;
    }
    if (versions > 0)
        log_info("recovered %" PRIu32 " fragments, %" PRIu64 " versions in all, up to step %" PRIu64,
                 runplan_fragments(run), versions, rounds_step(run->rounds));
    return ERR_OK;
}

/* ---- making it ---- */

static void tell_memory(const struct plan *plan, const struct memory *memory)
{
    const double mib = 1048576;
    log_info("%" PRIu64 " parameters in %" PRIu32 " fragments; memory at most: %.1f MiB for anchors, momentum and "
             "residuals, %.1f MiB shared with the trainer, %.1f MiB for encoded frames and jobs, %.1f MiB while states "
             "are fetched or sent",
             plan->params_count, plan->fragments_count, (double)memory->replica / mib, (double)memory->shared / mib,
             (double)memory->frames / mib, (double)memory->states / mib);
}

/* Before anything is allocated: a model that does not fit is refused, whoever names it. */
static enum err check_memory(const struct runplan_conf *from, const struct replica_conf *replica, struct runplan *run)
{
    const struct view *view = &from->configs->view;
    const struct plan *plan = replica->plan;
    const struct memory_conf taking = {.replica = replica,
                                       .parts = &run->parts,
                                       .members_count = view->count,
                                       .self = view->members[view->self].as.id,
                                       .job_threads = (uint32_t)processors_jobs(from->conf->job_threads)};
    struct memory memory = memory_of(&taking);
    const struct mem_limit there = mem_limit();
    TRY(memory_check(&memory, plan->params_count, &there));
    tell_memory(plan, &memory);
    run->memory_bytes = memory_sum(&memory);
    return ERR_OK;
}

/* Nor does a run begin that the disk has no room for. One that has begun goes on, and waits where the disk is full. */
static enum err check_disk(const struct runplan_conf *from, const struct replica_conf *replica)
{
    const struct dconf *conf = from->conf;
    const double mib = 1048576;
    struct memory_disk disk = memory_disk_of(replica, conf->ledger_keep, (uint64_t)conf->ledger_versions);
    TRY(memory_disk_check(&disk, replica->plan->params_count, conf->state_folder));
    log_info("disk: %.1f MiB for checkpoints, %.1f MiB for results, %.1f MiB for exported anchors",
             (double)disk.checkpoints / mib, (double)disk.ledger / mib, (double)disk.exported / mib);
    return ERR_OK;
}

/* What it takes to vote: nothing that grows with the model. */
static enum err make_witness(const struct runplan_conf *from, struct model_plan *plan, bool saved, struct runplan *run)
{
    run->plan = plan;
    TRY(events_reserve(from->events, plan->plan->fragments_count, from->configs->view.count));
    TRY(new_sync(from, run));
    return saved ? recover(from, run) : save_first(from, run);
}

enum err runplan_make(const struct runplan_conf *from, struct model_plan *plan, bool saved, struct runplan *run)
{
    run->parts = (struct parts){.plan = plan->plan, .config_log = from->configs->config_log};
    if (view_is_witness(&from->configs->view))
        return make_witness(from, plan, saved, run);
    struct replica_conf replica = replica_conf_of(from, plan->plan);
    TRY(check_memory(from, &replica, run));
    if (!saved)
        TRY(check_disk(from, &replica));
    run->plan = plan;
    TRY(events_reserve(from->events, plan->plan->fragments_count, from->configs->view.count));
    TRY(replica_new(&replica, &run->replica));
    TRY(new_sync(from, run));
    TRY(new_rounds(from, run));
    TRY(new_certificates(from, run));
    TRY(check_checkpoints(from, run));
    return saved ? recover(from, run) : save_first(from, run);
}

void runplan_free(struct runplan *run)
{
    certificates_free(run->certificates);
    rounds_free(run->rounds);
    sync_free(run->sync);
    slots_free(run->slots);
    replica_free(run->replica);
    model_plan_free(run->plan);
    mem_free(run->shards_counts);
    mem_free(run->filled);
    mem_free(run->saving);
    *run = (struct runplan){0};
}
