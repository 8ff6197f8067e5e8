/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/rounds/keep.h"

#include <inttypes.h>
#include <stdio.h>

#include "common/env.h"
#include "common/mem.h"
#include "daemon/rules.h"
#include "daemon/state/store.h"

/* The exported file follows when nothing has changed for QUIET, and every AGAIN while something does. */
enum { EXPORT_QUIET_MS = 1000, EXPORT_AGAIN_MS = 60000, CHECKPOINT_AGAIN_MS = 10000 };
/* After a checkpoint none is written for REST times as long as it took: a 25th of the time, of the disk as of a core.
 */
enum { REST = 24 };

struct keep_fragment {
    bool busy;         /* a job writes its checkpoint */
    bool again;        /* one more is ordered, with residuals, when that has ended */
    bool left;         /* the ledger does not lead on any more from the one that is being written */
    bool whole;        /* the one on disk has its residuals */
    bool tells;        /* EVENT_ON_DISK when what it holds now is there */
    uint64_t on_disk;  /* version; KEEP_NONE: none that the ledger leads on from */
    uint64_t since_ms; /* when that was written */
    uint64_t bytes;    /* of a checkpoint, without residuals */
    uint64_t results;  /* bytes of the newest version's */
    uint64_t behind;   /* bytes of those that a restart replays, up to version `counted` */
    uint64_t counted;
};

struct keep {
    struct round_context *context;
    const struct apply *apply;
    struct keep_fragment *fragments;
    struct job_pool checkpoints, exports;
    uint32_t busy;     /* fragments */
    bool resting;      /* no checkpoint begins by itself any more */
    uint64_t next_ms;  /* nor one before this, but one that is pressing */
    uint64_t retry_ms; /* nor any */

    enum rounds_export_state saving;
    struct store_export *export; /* being filled; NULL: not begun */
    bool *in_file;               /* [fragments]: it is in there */
    uint32_t missing;            /* fragments that are not */
    bool writing, wanted;
    bool export_job; /* one is under way */
    bool follows;
    uint64_t written_versions, written_ms; /* sum of the versions in the file; when it was begun */
    uint64_t seen_versions, seen_ms;       /* the sum, and since when it stands */
    char saved[320];
};

struct checkpoint_job {
    struct job job;
    struct keep *keep;
    uint32_t f;
    bool residuals;
    struct store_fragment state;
    struct tensorfile_writer *writer; /* between the two jobs */
    uint64_t took_ms;                 /* out */
};

/* A fragment into the file, or its end. */
struct export_job {
    struct job job;
    struct keep *keep;
    uint32_t f;
    struct store_fragment state;
};

enum err keep_new(struct round_context *context, const struct apply *apply, struct keep **out)
{
    const struct rounds_conf *conf = &context->conf;
    TRY(mem_new(1, sizeof **out, "rounds", out));
    struct keep *keep = *out;
    keep->context = context;
    keep->apply = apply;
    keep->checkpoints.job_bytes = sizeof(struct checkpoint_job);
    keep->exports.job_bytes = sizeof(struct export_job);
    TRY(mem_new(round_context_fragments(context), sizeof *keep->in_file, "rounds", &keep->in_file));
    TRY(mem_new(round_context_fragments(context), sizeof *keep->fragments, "rounds", &keep->fragments));
    for (uint32_t f = 0; f < round_context_fragments(context); f++) {
        keep->fragments[f].on_disk = KEEP_NONE;
        keep->fragments[f].bytes = store_fragment_bytes(conf->replica, conf->plan, f);
    }
    return ERR_OK;
}

void keep_free(struct keep *keep)
{
    if (keep == NULL)
        return;
    store_export_free(keep->export);
    job_pool_deinit(&keep->checkpoints);
    job_pool_deinit(&keep->exports);
    mem_free(keep->in_file);
    mem_free(keep->fragments);
    mem_free(keep);
}

enum rounds_export_state keep_saving(const struct keep *keep)
{
    return keep->saving;
}

const char *keep_saved(const struct keep *keep)
{
    return keep->saved;
}

/* A restart begins with this version. */
static void start_from(struct keep_fragment *fragment, uint64_t version)
{
    fragment->on_disk = version;
    fragment->behind = 0;
    fragment->counted = version;
}

void keep_on_disk(struct keep *keep, uint32_t f, uint64_t version)
{
    struct keep_fragment *fragment = &keep->fragments[f];
    start_from(fragment, version);
    fragment->left = fragment->busy;
    fragment->whole = version != KEEP_NONE; /* as it was loaded: what it lacks is gone */
}

uint64_t keep_first_epoch(const struct keep *keep)
{
    const struct config_log *config_log = keep->context->conf.parts->config_log;
    uint64_t first = config_log_last(config_log)->epoch, epoch;
    for (uint32_t f = 0; f < round_context_fragments(keep->context); f++) {
        uint64_t version = keep->fragments[f].on_disk;
        if (version == KEEP_NONE || !config_log_epoch(config_log, f, version + 1, &epoch))
            return 0;
        first = epoch < first ? epoch : first;
    }
    return first;
}

/* ---- checkpoints: written while the fragment stands still, then flushed and named while it may change ---- */

static enum err run_write(struct job *job, struct jobs_scratch *scratch)
{
    struct checkpoint_job *j = (struct checkpoint_job *)(void *)job;
    const struct rounds_conf *conf = &j->keep->context->conf;
    const struct store_at at = {conf->folder, conf->spec, &conf->view->nonce_id, conf->plan};
    uint64_t begin_ms = env_mono_ms();
    (void)scratch;
    enum err err = store_write_fragment(&at, conf->replica, j->f, &j->state, j->residuals, &j->writer);
    j->took_ms = env_mono_ms() - begin_ms;
    return err;
}

static enum err run_flush(struct job *job, struct jobs_scratch *scratch)
{
    struct checkpoint_job *j = (struct checkpoint_job *)(void *)job;
    uint64_t begin_ms = env_mono_ms();
    (void)scratch;
    enum err err = tensorfile_commit(j->writer);
    j->took_ms += env_mono_ms() - begin_ms;
    return err;
}

/* Of how many versions results are kept for others. */
static uint64_t versions_kept(const struct keep *keep, const struct keep_fragment *fragment)
{
    uint64_t asked = keep->context->conf.ledger_versions;
    return asked > 0 ? asked : rules_versions(fragment->bytes, fragment->results);
}

/* As many bytes as all states have are there before a checkpoint anyway. Who fetches a state needs the results since,
 * and while that comes over a line that carries the rounds these are fewer bytes than the state. */
static void prune_ledger(struct keep *keep)
{
    uint32_t fragments = round_context_fragments(keep->context);
    struct ledger_reach *reach;
    uint64_t states = 0;
    if (mem_new(fragments, sizeof *reach, "versions", &reach) != ERR_OK)
        return;
    for (uint32_t f = 0; f < fragments; f++) {
        const struct keep_fragment *fragment = &keep->fragments[f];
        uint64_t version = keep->context->fragments[f].state.version;
        reach[f].saved = fragment->on_disk != KEEP_NONE ? fragment->on_disk : 0;
        uint64_t kept = versions_kept(keep, fragment);
        reach[f].served = version > kept ? version - kept : 0;
        states += fragment->bytes;
    }
    ledger_prune(keep->context->conf.ledger, reach, fragments, states);
    mem_free(reach);
}

static void begin_checkpoint(struct keep *keep, uint32_t f, bool residuals);

static void told(struct keep *keep, uint32_t f)
{
    keep->fragments[f].tells = false;
    event_post(keep->context->conf.events, &(struct event){.type = EVENT_ON_DISK, .fragment = f});
}

static void end_checkpoint(struct checkpoint_job *j, enum err err)
{
    struct keep *keep = j->keep;
    struct keep_fragment *fragment = &keep->fragments[j->f];
    uint32_t f = j->f;
    bool again = fragment->again;
    keep->next_ms = keep->context->now_ms + REST * j->took_ms;
    keep->busy--;
    if (err != ERR_OK) {
        keep->retry_ms = keep->context->now_ms + CHECKPOINT_AGAIN_MS;
    } else if (!fragment->left) {
        start_from(fragment, j->state.version);
        fragment->whole = j->residuals;
        fragment->since_ms = keep->context->now_ms;
    }
    bool left = fragment->left;
    fragment->busy = fragment->left = fragment->again = false;
    job_pool_give(&keep->checkpoints, j);
    if (fragment->tells && left)
        begin_checkpoint(keep, f, false);
    else if (fragment->tells)
        told(keep, f);
    if (again)
        keep_checkpoint(keep, f);
}

static void failed(const struct checkpoint_job *j)
{
    char text[400];
    snprintf(text, sizeof text, "checkpoint of fragment %" PRIu32 " failed: %s", j->f, j->job.text);
    round_context_disk_failed(j->keep->context, text);
}

static void done_flush(struct job *job)
{
    struct checkpoint_job *j = (struct checkpoint_job *)(void *)job;
    struct keep *keep = j->keep;
    if (job->err != ERR_OK)
        failed(j);
    else
        round_context_disk_works(keep->context);
    end_checkpoint(j, job->err);
    prune_ledger(keep);
}

static void done_write(struct job *job)
{
    struct checkpoint_job *j = (struct checkpoint_job *)(void *)job;
    struct round_context *context = j->keep->context;
    uint32_t f = j->f;
    if (job->err == ERR_OK) {
        round_context_submit(context, &j->job, JOBS_SAVE, run_flush, done_flush);
    } else {
        failed(j);
        end_checkpoint(j, job->err);
    }
    round_context_read_end(context, f);
}

/* One in doubt would certify itself from then on. */
static bool stands_still(const struct keep *keep, uint32_t f)
{
    const struct sync *sync = keep->context->conf.sync;
    enum sync_state doing = sync_state(sync, f);
    return sync_known(sync, f) && doing != SYNC_APPLYING && doing != SYNC_REPAIR && !sync_in_doubt(sync, f);
}

static void begin_checkpoint(struct keep *keep, uint32_t f, bool residuals)
{
    struct round_context *context = keep->context;
    struct checkpoint_job *j = round_context_job(context, &keep->checkpoints);
    if (j == NULL)
        return;
    j->keep = keep;
    j->f = f;
    j->residuals = residuals;
    j->state = context->fragments[f].state;
    keep->fragments[f].busy = true;
    keep->busy++;
    round_context_read_begin(context, f);
    round_context_submit(context, &j->job, JOBS_SAVE, run_write, done_write);
}

void keep_now(struct keep *keep, uint32_t f)
{
    keep->fragments[f].tells = true;
    if (!keep->fragments[f].busy)
        begin_checkpoint(keep, f, false);
}

void keep_checkpoint(struct keep *keep, uint32_t f)
{
    struct keep_fragment *fragment = &keep->fragments[f];
    bool residuals = store_has_residuals(keep->context->conf.replica, f);
    bool there = fragment->on_disk == keep->context->fragments[f].state.version && (fragment->whole || !residuals);
    if (fragment->busy)
        fragment->again = true;
    else if (!there && stands_still(keep, f))
        begin_checkpoint(keep, f, true);
}

/* ---- when: those that a restart would replay the longest first, one at a time ---- */

/* Results of versions that have come since. */
static void count_behind(struct keep *keep, uint32_t f)
{
    struct keep_fragment *fragment = &keep->fragments[f];
    uint64_t version = keep->context->fragments[f].state.version;
    while (fragment->counted < version) {
        fragment->results = ledger_version_bytes(keep->context->conf.ledger, f, ++fragment->counted);
        fragment->behind += fragment->results;
    }
}

/* What replaying costs, against writing a checkpoint of so many bytes. */
static uint64_t replay_bytes(const struct keep *keep, uint32_t f)
{
    const struct keep_fragment *fragment = &keep->fragments[f];
    uint64_t versions = keep->context->fragments[f].state.version - fragment->on_disk;
    uint64_t outer_steps = versions * (fragment->bytes / RULES_REPLAYED_MAX + 1);
    return fragment->behind > outer_steps ? fragment->behind : outer_steps;
}

static bool is_due(const struct keep *keep, uint32_t f)
{
    const struct keep_fragment *fragment = &keep->fragments[f];
    const struct round_context *context = keep->context;
    if (fragment->on_disk == KEEP_NONE)
        return true;
    return fragment->on_disk != context->fragments[f].state.version &&
           (replay_bytes(keep, f) >= fragment->bytes ||
            context->now_ms >= fragment->since_ms + context->conf.checkpoint_ms);
}

/* The ledger may let nothing go before checkpoints cover it: it has outgrown both what it is to keep, and what
 * checkpoints of all fragments take. From then on it is checkpoints that cost less. */
static bool is_pressing(const struct keep *keep)
{
    uint64_t results = 0, checkpoints = 0;
    for (uint32_t f = 0; f < round_context_fragments(keep->context); f++) {
        results += keep->fragments[f].behind;
        checkpoints += keep->fragments[f].bytes;
    }
    return results > checkpoints && results > keep->context->conf.ledger_keep;
}

static void pace(struct keep *keep)
{
    const struct round_context *context = keep->context;
    uint32_t fragments = round_context_fragments(context), next = fragments;
    uint64_t most = 0;
    bool none = false;
    if (context->conf.checkpoint_ms == 0 || keep->resting || keep->busy > 0 || context->now_ms < keep->retry_ms)
        return;
    for (uint32_t f = 0; f < fragments; f++)
        count_behind(keep, f);
    for (uint32_t f = 0; f < fragments && !none; f++) {
        if (!is_due(keep, f) || !stands_still(keep, f))
            continue;
        none = keep->fragments[f].on_disk == KEEP_NONE;
        if (none || next == fragments || replay_bytes(keep, f) > most) {
            most = replay_bytes(keep, f);
            next = f;
        }
    }
    if (next < fragments && (none || context->now_ms >= keep->next_ms || is_pressing(keep)))
        begin_checkpoint(keep, next, false);
}

void keep_checkpoint_all(struct keep *keep)
{
    keep->resting = true;
    for (uint32_t f = 0; f < round_context_fragments(keep->context); f++)
        keep_checkpoint(keep, f);
}

/* ---- the anchors for people: one fragment after the other, each held while it is copied to the kernel ---- */

static enum err run_export(struct job *job, struct jobs_scratch *scratch)
{
    struct export_job *j = (struct export_job *)(void *)job;
    struct keep *keep = j->keep;
    const struct rounds_conf *conf = &keep->context->conf;
    (void)scratch;
    if (keep->export == NULL)
        TRY(store_export_begin(conf->folder, conf->spec, conf->plan, &keep->export));
    return store_export_fragment(keep->export, conf->replica, j->f, &j->state);
}

static enum err run_export_end(struct job *job, struct jobs_scratch *scratch)
{
    struct export_job *j = (struct export_job *)(void *)job;
    (void)scratch;
    return store_export_end(j->keep->export);
}

static void export_ended(struct keep *keep, enum err err, const char *text)
{
    struct round_context *context = keep->context;
    keep->writing = false;
    store_export_free(keep->export);
    keep->export = NULL;
    if (err != ERR_OK) {
        keep->saving = ROUNDS_EXPORT_FAILED;
        snprintf(keep->saved, sizeof keep->saved, "failed: %.300s", text);
        log_error("the anchor could not be written: %s", text);
        keep->written_versions = UINT64_MAX;
        keep->seen_ms = context->now_ms + EXPORT_AGAIN_MS;
    } else {
        keep->saving = ROUNDS_EXPORT_DONE;
        snprintf(keep->saved, sizeof keep->saved, "%.280s/anchor.safetensors", context->conf.folder);
        log_info("the anchor is in %s", keep->saved);
    }
    if (keep->wanted) { /* again, meanwhile: the answer to that is still to come */
        keep->saving = ROUNDS_EXPORT_WRITING;
        keep->saved[0] = '\0';
    }
}

static void done_export_end(struct job *job)
{
    struct export_job *j = (struct export_job *)(void *)job;
    struct keep *keep = j->keep;
    keep->export_job = false;
    export_ended(keep, job->err, job->text);
    job_pool_give(&keep->exports, j);
}

static void export_more(struct keep *keep);

static void done_export(struct job *job)
{
    struct export_job *j = (struct export_job *)(void *)job;
    struct keep *keep = j->keep;
    uint32_t f = j->f;
    enum err err = job->err;
    keep->export_job = false;
    if (err == ERR_OK) {
        keep->in_file[f] = true;
        keep->missing--;
        keep->written_versions += j->state.version;
    } else {
        export_ended(keep, err, job->text);
    }
    job_pool_give(&keep->exports, j);
    if (err == ERR_OK)
        export_more(keep);
    round_context_read_end(keep->context, f);
}

static uint64_t versions_sum(const struct round_context *context)
{
    uint64_t sum = 0;
    for (uint32_t f = 0; f < round_context_fragments(context); f++)
        sum += context->fragments[f].state.version;
    return sum;
}

/* A step that is ordered and waits for readers has changed nothing yet. */
static bool may_export(const struct keep *keep, uint32_t f)
{
    enum sync_state doing = sync_state(keep->context->conf.sync, f);
    bool applying = doing == SYNC_APPLYING && !apply_waits(keep->apply, f);
    return sync_known(keep->context->conf.sync, f) && doing != SYNC_REPAIR && !applying;
}

static bool all_known(const struct keep *keep)
{
    for (uint32_t f = 0; f < round_context_fragments(keep->context); f++)
        if (!sync_known(keep->context->conf.sync, f) || sync_state(keep->context->conf.sync, f) == SYNC_REPAIR)
            return false;
    return true;
}

static void submit_export(struct keep *keep, uint32_t f, job_run *run, job_done *done)
{
    struct round_context *context = keep->context;
    struct export_job *j = round_context_job(context, &keep->exports);
    if (j == NULL)
        return;
    j->keep = keep;
    j->f = f;
    keep->export_job = true;
    if (done == done_export) {
        j->state = context->fragments[f].state;
        round_context_read_begin(context, f);
    }
    round_context_submit(context, &j->job, JOBS_SAVE, run, done);
}

/* The next fragment that stands still goes into the file; when all are there, it ends. */
static void export_more(struct keep *keep)
{
    if (!keep->writing || keep->export_job)
        return;
    if (keep->missing == 0) {
        submit_export(keep, 0, run_export_end, done_export_end);
        return;
    }
    for (uint32_t f = 0; f < round_context_fragments(keep->context); f++)
        if (!keep->in_file[f] && may_export(keep, f)) {
            submit_export(keep, f, run_export, done_export);
            return;
        }
}

static void begin_export(struct keep *keep)
{
    for (uint32_t f = 0; f < round_context_fragments(keep->context); f++)
        keep->in_file[f] = false;
    keep->missing = round_context_fragments(keep->context);
    keep->written_versions = 0;
    keep->written_ms = keep->context->now_ms;
    keep->wanted = false;
    keep->writing = true;
    keep->saving = ROUNDS_EXPORT_WRITING;
    keep->saved[0] = '\0';
    export_more(keep);
}

void keep_export(struct keep *keep)
{
    keep->wanted = true;
    if (keep->saving != ROUNDS_EXPORT_WRITING) {
        keep->saving = ROUNDS_EXPORT_WRITING;
        keep->saved[0] = '\0';
    }
    if (!keep->writing && all_known(keep))
        begin_export(keep); /* else the tick tries again */
}

void keep_follow(struct keep *keep)
{
    keep->follows = true;
}

/* The other islands may go on for long after our trainer is done: the file is written again when nothing has changed
 * for a while, and now and then. */
static void follow(struct keep *keep)
{
    uint64_t now_ms = keep->context->now_ms;
    uint64_t sum = versions_sum(keep->context);
    if (sum != keep->seen_versions) {
        keep->seen_versions = sum;
        keep->seen_ms = now_ms;
    }
    bool quiet = now_ms >= keep->seen_ms + EXPORT_QUIET_MS;
    bool due = now_ms >= keep->written_ms + EXPORT_AGAIN_MS;
    if (keep->follows && !keep->writing && sum != keep->written_versions && (quiet || due))
        keep_export(keep);
}

void keep_tick(struct keep *keep)
{
    pace(keep);
    export_more(keep);
    if (keep->wanted)
        keep_export(keep);
    follow(keep);
}
