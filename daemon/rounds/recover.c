/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/rounds/recover.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/mem.h"
#include "daemon/rounds/apply.h"

/* What replaying takes. */
enum { STANDING_VERSIONS = 8 };

struct replay {
    const struct round_context *context;
    uint32_t f;
    struct replica *replica; /* into which, and what it then holds */
    struct store_fragment *state;
    struct codec *codec;
    struct replica_size sizes[VERSION_PARTS_MAX]; /* by part of the commit */
    struct ledger_commit commit;                  /* of the version being replayed */
};

/* Whether a result that was opened can be decoded, and how large it is; then closes it. */
static enum err measure(struct replay *replay, struct result *result, struct replica_size *size)
{
    enum err err = replica_measure(replay->replica, replay->f, result->what.shards, result->frame, result->frame_bytes,
                                   replay->codec, size);
    result_close(result);
    return err;
}

static enum err look_at_part(struct replay *replay, uint32_t part, uint64_t *shards)
{
    struct result result;
    TRY(apply_open(replay->context, &replay->commit.parts[part], &result));
    uint64_t mask = result.what.shards;
    bool again = (*shards & mask) != 0;
    *shards |= mask;
    TRY(measure(replay, &result, &replay->sizes[part]));
    return again ? err_set(ERR_PROTO, "another part of the version has the same shards") : ERR_OK;
}

/* Whether all results that made a version are there and can be used. */
static bool look_at_version(struct replay *replay)
{
    bool whole = true;
    uint64_t shards = 0;
    for (uint32_t i = 0; i < replay->commit.parts_count; i++) {
        enum err err = look_at_part(replay, i, &shards);
        whole &= err == ERR_OK;
        if (err != ERR_OK && err != ERR_NOTFOUND)
            log_error("the ledger's result of fragment %" PRIu32 ", version %" PRIu64 ", owner %" PRIu32
                      " cannot be used: %s; what follows is fetched from other islands",
                      replay->f, replay->commit.version, replay->commit.parts[i].owner, err_text());
    }
    uint64_t filled = parts_filled(replay->context->conf.plan->plan, replay->f);
    return whole && (shards & filled) == filled;
}

static enum err apply_part(struct replay *replay, uint32_t part)
{
    struct store_fragment *state = replay->state;
    struct result result;
    TRY(apply_open(replay->context, &replay->commit.parts[part], &result));
    struct outer_round round = apply_numbers(replay->context, &result.meta, replay->sizes, replay->commit.parts_count);
    enum err err = replica_apply(replay->replica, replay->f, result.what.shards, &round, result.frame,
                                 result.frame_bytes, replay->codec);
    if (err == ERR_OK)
        err = dedup_note(replica_counted(replay->replica, replay->f), result.what.shards, replay->commit.version,
                         &result.meta);
    if (err == ERR_OK && result.meta.step > state->step)
        state->step = result.meta.step;
    result_close(&result);
    return err;
}

/* Applies one version as the ledger says that it was made; ERR_NOTFOUND if it does not say so, or if a result is
 * missing or of no use, which is found before anything is changed. */
static enum err replay_version(struct replay *replay, uint64_t version)
{
    enum err err = ledger_commit_of(replay->context->conf.ledger, replay->f, version, &replay->commit);
    if (err != ERR_OK || !look_at_version(replay))
        return err_set(ERR_NOTFOUND, "the ledger does not have all of version %" PRIu64, version);
    for (uint32_t i = 0; i < replay->commit.parts_count; i++)
        TRY(apply_part(replay, i));
    replica_judge(replay->replica, replay->f, version);
    return ERR_OK;
}

/* On from `*state`, which `replica` holds, as far as the ledger says how versions were made, at most to version `upto`.
 */
static enum err replay_all(const struct round_context *context, uint32_t f, uint64_t upto, struct replica *replica,
                           struct codec *codec, struct store_fragment *state)
{
    enum err err = ERR_OK;
    struct replay replay = {.context = context, .f = f, .replica = replica, .state = state, .codec = codec};
    while (state->version < upto && (err = replay_version(&replay, state->version + 1)) == ERR_OK)
        state->version++;
    return err == ERR_NOTFOUND ? ERR_OK : err;
}

/* Of what was replayed: its hash, which is what it was when the version was made. */
static enum err hash_replayed(const struct round_context *context, uint32_t f, struct jobs_scratch *scratch,
                              struct store_fragment *state)
{
    static const struct digest none;
    struct ledger_commit commit;
    TRY(round_context_hash(context, f, state->version, state->step, scratch, &state->hash));
    if (ledger_commit_of(context->conf.ledger, f, state->version, &commit) == ERR_OK &&
        !digest_equal(&commit.hash, &none) && !digest_equal(&commit.hash, &state->hash))
        log_warn("fragment %" PRIu32 ": version %" PRIu64 " is another one, made from the checkpoint and the ledger's "
                 "results, than it was in memory before; the other islands' will tell which is right",
                 f, state->version);
    return ERR_OK;
}

static bool made_by_us(const struct round_context *context, uint32_t f, uint64_t version)
{
    struct result_id keys[LEDGER_RESULTS_MAX];
    size_t count = ledger_list(context->conf.ledger, f, version, keys, LEDGER_RESULTS_MAX);
    for (size_t i = 0; i < count; i++)
        if (keys[i].owner == round_context_id(context))
            return true;
    return false;
}

struct recover_fragment {
    struct store_fragment state;
    bool known;     /* it has one */
    bool damaged;   /* it had one, which cannot be read */
    uint64_t saved; /* the version that its checkpoint holds */
    bool replayed;  /* versions after that */
    struct standing standing;
    uint64_t applied_step;    /* largest that a result names of which the ledger says that it made a version */
    struct held_result *held; /* results of the version after it that the ledger has */
    uint32_t held_count;
};

/* Who was an outlier in the last versions, and how far their steps were, as far as the ledger still has their results.
 * It has those of a state that was taken over only where it was behind it again. */
static void note_standing(const struct round_context *context, uint32_t f, uint64_t upto,
                          struct recover_fragment *fragment)
{
    for (uint64_t version = upto > STANDING_VERSIONS ? upto - STANDING_VERSIONS + 1 : 1; version <= upto; version++) {
        struct ledger_commit commit;
        if (ledger_commit_of(context->conf.ledger, f, version, &commit) != ERR_OK)
            continue;
        for (uint32_t i = 0; i < commit.parts_count; i++) {
            struct result result;
            if (result_open(context->conf.ledger, &commit.parts[i], &result) != ERR_OK)
                continue;
            standing_note(&fragment->standing, context->conf.view, &result.meta, f, version, context->now_ms, false);
            if (fragment->applied_step < result.meta.step)
                fragment->applied_step = result.meta.step;
            result_close(&result);
        }
    }
}

/* ---- at start: a job for each fragment, a piece at a time ---- */

/* What the next piece of a fragment does. A stop is looked for, and what has been done is told, between two. */
enum stage {
    STAGE_LOAD,   /* the checkpoint */
    STAGE_REPLAY, /* one version */
    STAGE_END     /* its hash, and what follows from it */
};

struct recover_job {
    struct job job;
    struct recover *recover;
    uint32_t f;
    enum stage stage;
    uint64_t replayed; /* out: versions, by the last piece */
    bool ended;        /* out: that was the last one */
};

struct recover {
    struct round_context *context;
    struct recover_fragment *fragments; /* a job is at each, until it has ended */
    struct job_pool jobs;
    uint32_t ended;
    uint64_t replayed; /* versions, of all */
    bool stopped;      /* no further piece is begun */
    enum err err;      /* of the first fragment, by number, that could not be recovered */
    uint32_t err_fragment;
    char text[sizeof((struct job *)NULL)->text];
};

enum err recover_new(struct round_context *context, struct recover **out)
{
    TRY(mem_new(1, sizeof **out, "rounds", out));
    (*out)->context = context;
    (*out)->jobs.job_bytes = sizeof(struct recover_job);
    return mem_new(round_context_fragments(context), sizeof *(*out)->fragments, "rounds", &(*out)->fragments);
}

void recover_free(struct recover *recover)
{
    if (recover == NULL)
        return;
    for (uint32_t f = 0; recover->fragments != NULL && f < round_context_fragments(recover->context); f++) {
        standing_deinit(&recover->fragments[f].standing);
        mem_free(recover->fragments[f].held);
    }
    job_pool_deinit(&recover->jobs);
    mem_free(recover->fragments);
    mem_free(recover);
}

/* Without a checkpoint there is nothing that follows. */
static enum err load(struct recover_job *j)
{
    const struct rounds_conf *conf = &j->recover->context->conf;
    struct recover_fragment *fragment = &j->recover->fragments[j->f];
    struct store_fragment *state = &fragment->state;
    enum err err =
        store_load_fragment(conf->folder, conf->spec, &conf->view->nonce_id, conf->plan, conf->replica, j->f, state);
    fragment->known = err == ERR_OK;
    fragment->damaged = err == ERR_CORRUPT;
    fragment->saved = err == ERR_OK ? state->version : 0;
    j->stage = STAGE_REPLAY;
    j->ended = err != ERR_OK;
    if (err == ERR_CORRUPT) {
        log_warn("%s; the fragment is fetched from another island", err_text());
        replica_clear(conf->replica, j->f);
    }
    if (err == ERR_CORRUPT || err == ERR_NOTFOUND) {
        *state = (struct store_fragment){0};
        return ERR_OK;
    }
    return err;
}

static enum err replay_next(struct recover_job *j, struct codec *codec)
{
    const struct round_context *context = j->recover->context;
    struct recover_fragment *fragment = &j->recover->fragments[j->f];
    struct store_fragment *state = &fragment->state;
    uint64_t before = state->version;
    TRY(replay_all(context, j->f, before + 1, context->conf.replica, codec, state));
    j->replayed = state->version - before;
    fragment->replayed |= j->replayed > 0;
    j->stage = j->replayed > 0 ? STAGE_REPLAY : STAGE_END;
    return ERR_OK;
}

static enum err find_held(struct recover_job *j)
{
    struct recover_fragment *fragment = &j->recover->fragments[j->f];
    struct held_result held[VERSION_PARTS_MAX];
    uint32_t count = apply_find_held(j->recover->context, j->f, fragment->state.version + 1, held);
    TRY(mem_new(count, sizeof *held, "results that are there", &fragment->held));
    memcpy(fragment->held, held, count * sizeof *held);
    fragment->held_count = count;
    return ERR_OK;
}

static enum err end(struct recover_job *j, struct jobs_scratch *scratch)
{
    const struct round_context *context = j->recover->context;
    struct recover_fragment *fragment = &j->recover->fragments[j->f];
    struct store_fragment *state = &fragment->state;
    bool replayed = fragment->replayed;
    j->ended = true;
    j->replayed = 0;
    TRY(standing_members(&fragment->standing, context->standing.count));
    note_standing(context, j->f, state->version, fragment);
    /* The checkpoint's residuals are older than results made from them, even than one that is of no use now. */
    if (replayed || made_by_us(context, j->f, state->version + 1))
        replica_clear_residuals(context->conf.replica, j->f);
    if (replayed)
        TRY(hash_replayed(context, j->f, scratch, state));
    return find_held(j);
}

static enum err run_recover(struct job *job, struct jobs_scratch *scratch)
{
    struct recover_job *j = (struct recover_job *)(void *)job;
    switch (j->stage) {
    case STAGE_LOAD: return load(j);
    case STAGE_REPLAY: return replay_next(j, scratch->codec);
    case STAGE_END: return end(j, scratch);
    }
    return ERR_OK;
}

static void note_failure(struct recover *recover, const struct recover_job *j)
{
    if (j->job.err == ERR_OK || (recover->err != ERR_OK && recover->err_fragment < j->f))
        return;
    recover->err = j->job.err;
    recover->err_fragment = j->f;
    snprintf(recover->text, sizeof recover->text, "%s", j->job.text);
}

static void done_recover(struct job *job)
{
    struct recover_job *j = (struct recover_job *)(void *)job;
    struct recover *recover = j->recover;
    recover->replayed += j->replayed;
    note_failure(recover, j);
    if (job->err == ERR_OK && !j->ended && !recover->stopped) {
        round_context_submit(recover->context, job, JOBS_STATES, run_recover, done_recover);
        return;
    }
    job_pool_give(&recover->jobs, j);
    recover->ended++;
    if (recover->ended == round_context_fragments(recover->context) && !recover->stopped)
        event_post(recover->context->conf.events, &(struct event){.type = EVENT_RECOVERED});
}

enum err recover_begin(struct recover *recover)
{
    for (uint32_t f = 0; f < round_context_fragments(recover->context); f++) {
        struct recover_job *j = job_pool_take(&recover->jobs);
        if (j == NULL)
            return err_set(ERR_NOMEM, "out of memory for recovering fragment %" PRIu32, f);
        j->recover = recover;
        j->f = f;
        round_context_submit(recover->context, &j->job, JOBS_STATES, run_recover, done_recover);
    }
    return ERR_OK;
}

void recover_stop(struct recover *recover)
{
    recover->stopped = true;
}

struct rounds_recovery recover_info(const struct recover *recover)
{
    return (struct rounds_recovery){.fragments = round_context_fragments(recover->context),
                                    .fragments_done = recover->ended,
                                    .versions = recover->replayed};
}

enum err recover_end(struct recover *recover, struct keep *keep)
{
    struct round_context *context = recover->context;
    if (recover->err != ERR_OK)
        return err_set(recover->err, "%s", recover->text);
    for (uint32_t f = 0; f < round_context_fragments(context); f++) {
        const struct recover_fragment *fragment = &recover->fragments[f];
        context->fragments[f].state = fragment->state;
        standing_add(&context->standing, &fragment->standing);
        round_context_counted(context, f, true);
        keep_on_disk(keep, f, fragment->known ? fragment->saved : KEEP_NONE);
    }
    return ERR_OK;
}

bool recover_damaged(const struct recover *recover)
{
    bool damaged = false;
    for (uint32_t f = 0; f < round_context_fragments(recover->context); f++)
        damaged |= recover->fragments[f].damaged;
    return damaged;
}

bool recover_known(const struct recover *recover, uint32_t f)
{
    return recover->fragments[f].known;
}

uint64_t recover_applied_step(const struct recover *recover, uint32_t f)
{
    return recover->fragments[f].applied_step;
}

void recover_tell_held(struct recover *recover, uint32_t f)
{
    apply_tell_held(recover->context, recover->fragments[f].held, recover->fragments[f].held_count);
}

/* ---- beside what is in memory ---- */

/* A checkpoint may be written, and results it covers let go of, between our looks at either: then once more. */
enum err recover_replay(const struct round_context *context, uint32_t f, uint64_t version, struct replica *shadow,
                        struct codec *codec, struct store_fragment *state)
{
    const struct rounds_conf *conf = &context->conf;
    for (int attempt = 0; attempt < 2; attempt++) {
        TRY(store_load_fragment(conf->folder, conf->spec, &conf->view->nonce_id, conf->plan, shadow, f, state));
        TRY(replay_all(context, f, version, shadow, codec, state));
        if (state->version == version)
            return replica_hash(shadow, f, version, state->step, &state->hash);
    }
    return err_set(ERR_NOTFOUND, "checkpoint and ledger lead to version %" PRIu64 ", not to %" PRIu64, state->version,
                   version);
}
