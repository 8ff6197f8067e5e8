/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/rounds/keep.h"

#include <inttypes.h>
#include <stdio.h>

#include "common/mem.h"

/* The exported file follows when nothing has changed for QUIET, and every AGAIN while something does. */
enum { EXPORT_QUIET_MS = 1000, EXPORT_AGAIN_MS = 60000 };

struct keep_fragment {
    bool busy;        /* a job writes its checkpoint */
    uint64_t on_disk; /* version; KEEP_NONE: none that the ledger leads on from */
};

struct keep {
    struct desk *desk;
    const struct apply *apply;
    struct keep_fragment *fragments;
    struct job_pool checkpoints, exports;
    enum rounds_export_state saving;
    bool writing, wanted;
    bool follows;
    uint64_t written_versions, written_ms; /* sum of the versions in the file; when it was begun */
    uint64_t seen_versions, seen_ms;       /* the sum, and since when it stands */
    char saved[320];
};

struct checkpoint_job {
    struct job job;
    struct keep *keep;
    uint32_t f;
    struct store_fragment state;
};

struct export_job {
    struct job job;
    struct keep *keep;
    struct store_fragment *states; /* [fragments] */
};

enum err keep_new(struct desk *desk, const struct apply *apply, struct keep **out)
{
    TRY(mem_new(1, sizeof **out, "rounds", out));
    struct keep *keep = *out;
    keep->desk = desk;
    keep->apply = apply;
    keep->checkpoints.job_bytes = sizeof(struct checkpoint_job);
    keep->exports.job_bytes = sizeof(struct export_job);
    TRY(mem_new(desk_fragments(desk), sizeof *keep->fragments, "rounds", &keep->fragments));
    for (uint32_t f = 0; f < desk_fragments(desk); f++)
        keep->fragments[f].on_disk = KEEP_NONE;
    return ERR_OK;
}

void keep_free(struct keep *keep)
{
    if (keep == NULL)
        return;
    job_pool_deinit(&keep->checkpoints);
    job_pool_deinit(&keep->exports);
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

void keep_on_disk(struct keep *keep, uint32_t f, uint64_t version)
{
    keep->fragments[f].on_disk = version;
}

uint64_t keep_first_epoch(const struct keep *keep)
{
    const struct chain *chain = keep->desk->conf.parts->chain;
    uint64_t first = chain_last(chain)->epoch, epoch;
    for (uint32_t f = 0; f < desk_fragments(keep->desk); f++) {
        uint64_t version = keep->fragments[f].on_disk;
        if (version == KEEP_NONE || !chain_epoch(chain, f, version + 1, &epoch))
            return 0;
        first = epoch < first ? epoch : first;
    }
    return first;
}

/* ---- checkpoints ---- */

static enum err run_checkpoint(struct job *job, struct jobs_scratch *scratch)
{
    struct checkpoint_job *j = (struct checkpoint_job *)(void *)job;
    const struct rounds_conf *conf = &j->keep->desk->conf;
    (void)scratch;
    return store_save_fragment(conf->folder, conf->spec, &conf->view->nonce_id, conf->plan, conf->replica, j->f,
                               &j->state);
}

static void prune_ledger(struct keep *keep)
{
    uint32_t fragments = desk_fragments(keep->desk);
    uint64_t *versions;
    if (mem_new(fragments, sizeof *versions, "versions", &versions) != ERR_OK)
        return;
    for (uint32_t f = 0; f < fragments; f++)
        versions[f] = keep->fragments[f].on_disk != KEEP_NONE ? keep->fragments[f].on_disk : 0;
    ledger_prune(keep->desk->conf.ledger, versions, fragments);
    mem_free(versions);
}

static void done_checkpoint(struct job *job)
{
    struct checkpoint_job *j = (struct checkpoint_job *)(void *)job;
    struct keep *keep = j->keep;
    uint32_t f = j->f;
    keep->fragments[f].busy = false;
    if (job->err != ERR_OK) {
        char text[400];
        snprintf(text, sizeof text, "checkpoint of fragment %" PRIu32 " failed: %s", f, job->text);
        desk_disk_failed(keep->desk, text);
    } else {
        desk_disk_works(keep->desk);
        keep->fragments[f].on_disk = j->state.version;
    }
    job_pool_give(&keep->checkpoints, j);
    if (f + 1 == desk_fragments(keep->desk))
        prune_ledger(keep);
    desk_read_end(keep->desk, f);
}

void keep_checkpoint(struct keep *keep, uint32_t f)
{
    struct desk *desk = keep->desk;
    const struct store_fragment *state = &desk->fragments[f].state;
    enum sync_state doing = sync_state(desk->conf.sync, f);
    /* One in doubt would vouch for itself from then on. */
    bool steady = sync_known(desk->conf.sync, f) && doing != SYNC_APPLYING && doing != SYNC_REPAIR &&
                  !sync_in_doubt(desk->conf.sync, f);
    if (!steady || keep->fragments[f].busy || keep->fragments[f].on_disk == state->version)
        return;
    struct checkpoint_job *j = desk_job(desk, &keep->checkpoints);
    if (j == NULL)
        return;
    j->keep = keep;
    j->f = f;
    j->state = *state;
    keep->fragments[f].busy = true;
    desk_read_begin(desk, f);
    desk_submit(desk, &j->job, JOBS_SAVE, run_checkpoint, done_checkpoint);
}

/* ---- the anchors for people ---- */

static enum err run_export(struct job *job, struct jobs_scratch *scratch)
{
    struct export_job *j = (struct export_job *)(void *)job;
    const struct rounds_conf *conf = &j->keep->desk->conf;
    (void)scratch;
    return store_export(conf->folder, conf->spec, conf->plan, conf->replica, j->states);
}

static void done_export(struct job *job)
{
    struct export_job *j = (struct export_job *)(void *)job;
    struct keep *keep = j->keep;
    struct desk *desk = keep->desk;
    keep->writing = false;
    if (job->err != ERR_OK) {
        keep->saving = ROUNDS_EXPORT_FAILED;
        snprintf(keep->saved, sizeof keep->saved, "failed: %.300s", job->text);
        log_error("the anchor could not be written: %s", job->text);
        keep->written_versions = UINT64_MAX;
        keep->seen_ms = desk->now_ms + EXPORT_AGAIN_MS;
    } else {
        keep->saving = ROUNDS_EXPORT_DONE;
        snprintf(keep->saved, sizeof keep->saved, "%.280s/anchor.safetensors", desk->conf.folder);
        log_info("the anchor is in %s", keep->saved);
    }
    if (keep->wanted) { /* again, meanwhile: the answer to that is still to come */
        keep->saving = ROUNDS_EXPORT_WRITING;
        keep->saved[0] = '\0';
    }
    mem_free(j->states);
    job_pool_give(&keep->exports, j);
    for (uint32_t f = 0; f < desk_fragments(desk); f++)
        desk_read_end(desk, f);
}

static uint64_t versions_sum(const struct desk *desk)
{
    uint64_t sum = 0;
    for (uint32_t f = 0; f < desk_fragments(desk); f++)
        sum += desk->fragments[f].state.version;
    return sum;
}

/* Anchors must not change while they are written: changes wait for readers, and this waits for what is under way. */
static bool all_steady(const struct keep *keep)
{
    const struct sync *sync = keep->desk->conf.sync;
    for (uint32_t f = 0; f < desk_fragments(keep->desk); f++) {
        enum sync_state doing = sync_state(sync, f);
        bool applying = doing == SYNC_APPLYING && !apply_waits(keep->apply, f);
        if (!sync_known(sync, f) || doing == SYNC_REPAIR || applying)
            return false;
    }
    return true;
}

static void begin_export(struct keep *keep)
{
    struct desk *desk = keep->desk;
    struct export_job *j = desk_job(desk, &keep->exports);
    if (j == NULL)
        return;
    if (mem_new(desk_fragments(desk), sizeof *j->states, "versions", &j->states) != ERR_OK) {
        job_pool_give(&keep->exports, j);
        return;
    }
    j->keep = keep;
    for (uint32_t f = 0; f < desk_fragments(desk); f++) {
        j->states[f] = desk->fragments[f].state;
        desk_read_begin(desk, f);
    }
    keep->written_versions = versions_sum(desk);
    keep->written_ms = desk->now_ms;
    keep->wanted = false;
    keep->writing = true;
    keep->saving = ROUNDS_EXPORT_WRITING;
    keep->saved[0] = '\0';
    desk_submit(desk, &j->job, JOBS_SAVE, run_export, done_export);
}

void keep_export(struct keep *keep)
{
    keep->wanted = true;
    if (keep->saving != ROUNDS_EXPORT_WRITING) {
        keep->saving = ROUNDS_EXPORT_WRITING;
        keep->saved[0] = '\0';
    }
    if (!keep->writing && all_steady(keep))
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
    uint64_t now_ms = keep->desk->now_ms;
    uint64_t sum = versions_sum(keep->desk);
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
    if (keep->wanted)
        keep_export(keep);
    follow(keep);
}
