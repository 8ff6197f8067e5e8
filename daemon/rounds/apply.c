/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/rounds/apply.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "common/log.h"
#include "common/mem.h"
#include "common/quota.h"
#include "daemon/rules.h"
#include "daemon/state/results.h"
#include "outer_opt/runaway.h"

/* No run spec leads to larger numbers of an outer step. */
static const float outer_most = 1e6f;
enum { SAVE_AGAIN_MS = 2000 };

struct apply_fragment {
    uint64_t waits; /* version to apply when nobody reads the anchor; 0: none */
    /* of the step under way */
    struct version_part parts[VERSION_PARTS_MAX];
    struct replica_size sizes[VERSION_PARTS_MAX]; /* of the results, by part */
    struct result_id results[VERSION_PARTS_MAX];  /* which one of each part */
    uint32_t parts_count;
    uint32_t parts_left;      /* jobs */
    uint64_t moved, cleared;  /* masks: shards that count us, by what becomes of their residuals */
    bool failed;              /* a part could not be applied */
    double ours, values;      /* of the parts that count us: values, times our share in their means; and values */
    struct hash_job *unsaved; /* applied, and the disk refused to note of what; NULL: none */
    uint64_t save_again_ms;
    struct runaway runaway;
    double grown; /* as runaway_note() said last */
};

struct apply {
    struct round_context *context;
    struct apply_fragment *fragments;
    struct job_pool receives, parts, hashes;
    struct quota lines[VIEW_SLOTS_MAX]; /* in the log, about what a member sends */
};

/* A result that came in. */
struct receive_job {
    struct job job;
    struct apply *apply;
    struct wire_key key;
    uint32_t peer;
    struct slot *slot;
    uint64_t shards;
    size_t values_count;
    bool owner_known;
    uint8_t owner_key[IDENT_KEY_BYTES];
    struct digest carried; /* of the result that the configuration names; zeros: none */
    struct digest digest;  /* out */
    uint64_t step;         /* out: run step that it names */
    bool equivocated;      /* out: its owner has signed another one, too */
};

/* One part of an outer step, or of the measuring before it. */
struct part_job {
    struct job job;
    struct apply *apply;
    uint32_t f, p;
    uint64_t version;
    uint64_t moved, cleared; /* out: masks: its shards that count us, by what becomes of their residuals */
    struct wire_meta meta;   /* out: whom it counts; its list is the job's to free */
    uint64_t step;           /* out: the result's */
    struct replica_applying applying;
};

/* What follows when all parts are done: what the version is made of is noted, then residuals move, and it is hashed. */
struct hash_job {
    struct job job;
    struct apply *apply;
    uint32_t f;
    uint64_t version, step;
    uint64_t moved, cleared;     /* masks */
    struct ledger_commit commit; /* of no parts if a part could not be applied: then nothing is noted */
    enum err noted;              /* out: whether its hash is in the ledger, too; `text` says why not */
    char text[320];
    double norm;
};

enum err apply_new(struct round_context *context, struct apply **out)
{
    TRY(mem_new(1, sizeof **out, "rounds", out));
    struct apply *apply = *out;
    apply->context = context;
    apply->receives.job_bytes = sizeof(struct receive_job);
    apply->parts.job_bytes = sizeof(struct part_job);
    apply->hashes.job_bytes = sizeof(struct hash_job);
    return mem_new(round_context_fragments(context), sizeof *apply->fragments, "rounds", &apply->fragments);
}

void apply_free(struct apply *apply)
{
    if (apply == NULL)
        return;
    job_pool_deinit(&apply->receives);
    job_pool_deinit(&apply->parts);
    job_pool_deinit(&apply->hashes);
    mem_free(apply->fragments);
    mem_free(apply);
}

/* ---- the numbers of an outer step ---- */

static struct outer_round numbers_of(const struct wire_meta *meta)
{
    float number[WIRE_OUTER_NUMBERS];
    memcpy(number, meta->outer, sizeof number);
    return (struct outer_round){.scale = number[0], .momentum = number[1], .lr = number[2]};
}

struct outer_round apply_numbers(const struct round_context *context, const struct wire_meta *meta,
                                 const struct replica_size *sizes, uint32_t sizes_count)
{
    struct outer_round round = numbers_of(meta);
    double delta = 0, momentum = 0;
    if (!context->conf.spec->staleness_penalty)
        return round;
    for (uint32_t p = 0; p < sizes_count; p++) {
        delta += sizes[p].delta;
        momentum += sizes[p].momentum;
    }
    return outer_round_penalised(round, (double)round.lr * sqrt(momentum), sqrt(delta));
}

/* Numbers that no run spec leads to are refused before they reach an anchor. */
static enum err check_numbers(const struct wire_meta *meta)
{
    struct outer_round round = numbers_of(meta);
    bool good = round.scale > 0 && round.scale <= outer_most && round.momentum >= 0 && round.momentum < 1 &&
                round.lr >= 0 && round.lr <= outer_most;
    return good ? ERR_OK : err_set(ERR_PROTO, "its outer step has numbers that make no sense");
}

enum err apply_check(const struct round_context *context, const struct wire_meta *meta)
{
    TRY(round_context_check_step(context, meta));
    return check_numbers(meta);
}

enum err apply_open(const struct round_context *context, const struct result_id *key, struct result *out)
{
    TRY(result_open(context->conf.ledger, key, out));
    enum err err = apply_check(context, &out->meta);
    if (err != ERR_OK)
        result_close(out);
    return err;
}

/* ---- what the ledger has already ---- */

/* The result of a part that the configuration names, or the first that can be applied. */
static bool find_held(const struct round_context *context, const struct version_part *part, struct held_result *out)
{
    struct result_id keys[LEDGER_RESULTS_MAX];
    size_t count = ledger_list(context->conf.ledger, part->id.fragment, part->id.version, keys, LEDGER_RESULTS_MAX);
    for (size_t i = 0; i < count; i++) {
        struct result result;
        if (!result_id_same_part(&keys[i], &part->id) ||
            (part->carried && !digest_equal(&keys[i].digest, &part->id.digest)) ||
            apply_open(context, &keys[i], &result) != ERR_OK)
            continue;
        *out = (struct held_result){.id = keys[i], .step = result.meta.step};
        result_close(&result);
        return true;
    }
    return false;
}

uint32_t apply_find_held(const struct round_context *context, uint32_t f, uint64_t version,
                         struct held_result held[VERSION_PARTS_MAX])
{
    struct version_part parts[VERSION_PARTS_MAX];
    uint32_t count = round_context_parts(context, f, version, parts), found = 0;
    for (uint32_t p = 0; p < count; p++)
        found += find_held(context, &parts[p], &held[found]);
    return found;
}

/* A new epoch, or a start, tells of all parts of all fragments before any is taken in. */
void apply_tell_held(struct round_context *context, const struct held_result *held, uint32_t count)
{
    if (events_more(context->conf.events, count) != ERR_OK) {
        event_post_fatal(context->conf.events, err_text());
        return;
    }
    for (uint32_t i = 0; i < count; i++)
        round_context_post(context, &(struct sync_event){.type = SYNC_EV_STORED,
                                                         .fragment = held[i].id.fragment,
                                                         .version = held[i].id.version,
                                                         .epoch = held[i].id.epoch,
                                                         .owner = held[i].id.owner,
                                                         .step = held[i].step,
                                                         .hash = held[i].id.digest,
                                                         .member = SYNC_NOBODY});
}

void apply_post_held(struct round_context *context, uint32_t f)
{
    struct held_result held[VERSION_PARTS_MAX];
    apply_tell_held(context, held, apply_find_held(context, f, context->fragments[f].state.version + 1, held));
}

void apply_post_listed(struct round_context *context, uint32_t f)
{
    apply_post_held(context, f);
    round_context_post(context, &(struct sync_event){.type = SYNC_EV_LISTED, .fragment = f});
}

/* ---- a result came in ---- */

/* Two signed results of one part: kept, so that it outlasts this process. */
static void keep_evidence(const struct round_context *context, const struct result_id *one,
                          const struct result_id *other)
{
    uint8_t *bytes = NULL;
    size_t count;
    enum err err = results_evidence(context->conf.ledger, other, one, &bytes, &count);
    if (err == ERR_OK)
        err = context->conf.save_evidence(context->conf.folder, one->owner, bytes, count);
    if (err != ERR_OK)
        log_error("the evidence that island id %" PRIu32 " signed two results of one part cannot be kept: %s",
                  one->owner, err_text());
    mem_free(bytes);
}

/* Of who owned before our configurations begin no key is known here. What is carried from there the voters have named
 * by its digest, which is as good. */
static enum err check_owner(const struct receive_job *j, const struct wire_object *what)
{
    if (j->owner_known)
        return wire_object_signed(what, j->owner_key);
    if (!digest_equal(&what->digest, &j->carried))
        return err_set(ERR_PROTO, "another one than the configuration carries");
    return ERR_OK;
}

static enum err run_receive(struct job *job, struct jobs_scratch *scratch)
{
    struct receive_job *j = (struct receive_job *)(void *)job;
    const struct round_context *context = j->apply->context;
    const struct wire_key *key = &j->key;
    struct wire_object what;
    struct wire_meta meta;
    const uint8_t *frame;
    size_t frame_bytes;
    TRY(wire_object_open(j->slot->data, j->slot->bytes, &what, &meta, &frame, &frame_bytes));
    TRY(round_context_check_object(context, &what, key, j->shards));
    TRY(check_owner(j, &what));
    TRY(apply_check(context, &meta));
    TRY(codec_check(frame, frame_bytes, j->values_count));
    /* Nothing enters the ledger that a restart could not apply. */
    TRY(codec_decodable(scratch->codec, frame, frame_bytes, j->values_count));
    struct result_id there = wire_object_result(&what), other;
    j->digest = what.digest;
    j->step = meta.step;
    TRY(ledger_append(context->conf.ledger, &there, j->slot->data, j->slot->bytes));
    j->equivocated = j->owner_known && results_equivocation(context->conf.ledger, &there, j->owner_key, &other);
    if (j->equivocated)
        keep_evidence(context, &there, &other);
    return ERR_OK;
}

static void done_receive(struct job *job)
{
    struct receive_job *j = (struct receive_job *)(void *)job;
    struct round_context *context = j->apply->context;
    const struct wire_key *key = &j->key;
    enum wire_done status = WIRE_RECEIVED;
    j->slot->busy = false;
    if (job->err == ERR_PROTO) {
        if (log_line_of_one(&j->apply->lines[j->peer], context->now_ms))
            log_error("the result of fragment %" PRIu32 ", version %" PRIu64 ", owner %" PRIu32
                      " from island %s is damaged and not used: %s; it is fetched again",
                      key->fragment, key->version, key->owner, round_context_name(context, j->peer), job->text);
        status = WIRE_REFUSED;
    } else if (job->err != ERR_OK) {
        round_context_round_refused(context, j->slot->bytes, job->text);
        status = WIRE_NOT_YET; /* it is sent again until there is room */
    } else {
        round_context_disk_works(context);
    }
    round_context_judged(context, j->peer, key, status);
    if (job->err == ERR_OK)
        round_context_post(context, &(struct sync_event){.type = SYNC_EV_STORED,
                                                         .fragment = key->fragment,
                                                         .version = key->version,
                                                         .epoch = key->epoch,
                                                         .owner = key->owner,
                                                         .step = j->step,
                                                         .hash = j->digest,
                                                         .member = j->peer});
    if (job->err == ERR_OK && j->equivocated)
        event_post(context->conf.events,
                   &(struct event){.type = EVENT_EQUIVOCATION,
                                   .fragment = key->fragment,
                                   .equivocation = {.owner = key->owner, .version = key->version}});
    job_pool_give(&j->apply->receives, j);
}

void apply_result_in(struct apply *apply, uint32_t peer, const struct wire_key *key, uint64_t bytes)
{
    struct round_context *context = apply->context;
    struct version_part part;
    uint32_t p = round_context_part(context, key, &part);
    const uint8_t *owner_key = parts_owner_key(context->conf.parts, key->epoch, key->owner);
    if (p == VERSION_PARTS_MAX || (owner_key == NULL && !part.carried)) {
        /* An epoch has begun meanwhile, and it counts nowhere. */
        round_context_judged(context, peer, key, WIRE_NOT_NEEDED);
        return;
    }
    struct receive_job *j = round_context_job(context, &apply->receives);
    if (j == NULL) {
        round_context_judged(context, peer, key, WIRE_NOT_YET);
        return;
    }
    j->apply = apply;
    j->key = *key;
    j->peer = peer;
    j->shards = part.shards;
    j->owner_known = owner_key != NULL;
    if (j->owner_known)
        memcpy(j->owner_key, owner_key, sizeof j->owner_key);
    j->carried = part.id.digest;
    j->values_count = (size_t)round_context_values(context, key->fragment, part.shards);
    j->slot = slots_result(context->conf.slots, key->fragment, p);
    j->slot->bytes = (size_t)bytes;
    j->slot->busy = true;
    round_context_submit(context, &j->job, JOBS_RECEIVE, run_receive, done_receive);
}

/* ---- the hash, when all parts are done, and what the version was made of ---- */

/* Until then nobody hears of the version, since a restart would not come back to it. */
static enum err run_note(struct job *job, struct jobs_scratch *scratch)
{
    struct hash_job *j = (struct hash_job *)(void *)job;
    (void)scratch;
    return ledger_append_commit(j->apply->context->conf.ledger, &j->commit, true);
}

/* The hash in the ledger is only to find damage by: a restart makes it again. */
static enum err run_hash(struct job *job, struct jobs_scratch *scratch)
{
    struct hash_job *j = (struct hash_job *)(void *)job;
    const struct rounds_conf *conf = &j->apply->context->conf;
    replica_commit(conf->replica, j->f, j->moved);
    replica_forget(conf->replica, j->f, j->cleared);
    j->norm = replica_norm(conf->replica, j->f);
    TRY(round_context_hash(j->apply->context, j->f, j->version, j->step, scratch, &j->commit.hash));
    if (j->commit.parts_count > 0)
        j->noted = ledger_append_commit(conf->ledger, &j->commit, false);
    if (j->noted != ERR_OK)
        snprintf(j->text, sizeof j->text, "%s", err_text());
    return ERR_OK;
}

static void note_norm(struct apply_fragment *fragment, const struct hash_job *j)
{
    bool known = fragment->grown > 0;
    fragment->grown = runaway_note(&fragment->runaway, j->version, j->norm);
    if (fragment->grown > 0 && !known)
        log_error("fragment %" PRIu32 ", version %" PRIu64
                  ": the anchor runs away: its norm is %.3g, %.3g times what it was. The run diverges; stop it, and "
                  "begin again from an earlier anchor with lower learning rates or a finer codec",
                  j->f, j->version, j->norm, fragment->grown);
}

double apply_grown(const struct apply *apply, uint32_t f)
{
    return apply->fragments[f].grown;
}

static void done_hash(struct job *job)
{
    struct hash_job *j = (struct hash_job *)(void *)job;
    struct apply *apply = j->apply;
    struct round_context *context = apply->context;
    struct store_fragment *state = &context->fragments[j->f].state;
    char hex[DIGEST_HEX_BYTES];
    if (job->err != ERR_OK) { /* out of memory: the daemon ends, and goes on from the ledger */
        event_post_fatal(context->conf.events, job->text);
        job_pool_give(&apply->hashes, j);
        return;
    }
    if (j->noted != ERR_OK)
        round_context_disk_failed(context, j->text);
    state->version = j->version;
    state->hash = j->commit.hash;
    note_norm(&apply->fragments[j->f], j);
    if (state->step >= rules_warm_until(context->conf.spec))
        replica_settle(context->conf.replica, j->f);
    log_debug("fragment %" PRIu32 " version %" PRIu64 " hash %s", j->f, j->version, digest_hex(&state->hash, hex));
    round_context_post(
        context,
        &(struct sync_event){.type = SYNC_EV_APPLIED, .fragment = j->f, .step = state->step, .hash = state->hash});
    apply_post_listed(context, j->f);
    job_pool_give(&apply->hashes, j);
}

static void hash(struct hash_job *j)
{
    struct round_context *context = j->apply->context;
    const struct apply_fragment *fragment = &j->apply->fragments[j->f];
    event_post(context->conf.events,
               &(struct event){.type = EVENT_COUNTED,
                               .fragment = j->f,
                               .version = j->version,
                               .shards = j->moved | j->cleared,
                               .share = fragment->values > 0 ? fragment->ours / fragment->values : 0});
    if (j->commit.parts_count > 0)
        round_context_post(context, &(struct sync_event){.type = SYNC_EV_MADE, .fragment = j->f});
    round_context_submit(context, &j->job, JOBS_HASH, run_hash, done_hash);
}

static void done_note(struct job *job)
{
    struct hash_job *j = (struct hash_job *)(void *)job;
    struct apply *apply = j->apply;
    if (job->err == ERR_OK) {
        round_context_disk_works(apply->context);
        hash(j);
        return;
    }
    round_context_round_refused(apply->context, 0, job->text);
    apply->fragments[j->f].unsaved = j;
    apply->fragments[j->f].save_again_ms = apply->context->now_ms + SAVE_AGAIN_MS;
}

/* What our own results left over. */
static void move_owner_residual(struct apply *apply, uint32_t f)
{
    struct round_context *context = apply->context;
    const struct apply_fragment *fragment = &apply->fragments[f];
    struct replica *replica = context->conf.replica;
    for (uint32_t p = 0; p < fragment->parts_count; p++) {
        if (fragment->parts[p].id.owner != round_context_id(context))
            continue;
        if (replica_owner_pending(replica, f) &&
            digest_equal(&fragment->results[p].digest, &context->fragments[f].made))
            replica_commit_owner(replica, f);
        else
            replica_forget_owner(replica, f, fragment->parts[p].shards);
    }
}

static void all_applied(struct apply *apply, uint32_t f, uint64_t version)
{
    if (!apply->fragments[f].failed)
        move_owner_residual(apply, f);
    replica_judge(apply->context->conf.replica, f, version);
    round_context_counted(apply->context, f, true);
    struct hash_job *j = round_context_job(apply->context, &apply->hashes);
    if (j == NULL)
        return;
    const struct apply_fragment *fragment = &apply->fragments[f];
    j->apply = apply;
    j->f = f;
    j->version = version;
    j->step = apply->context->fragments[f].state.step;
    j->moved = fragment->moved;
    j->cleared = fragment->cleared;
    j->commit.fragment = f;
    j->commit.version = version;
    for (uint32_t p = 0; !fragment->failed && p < fragment->parts_count; p++)
        j->commit.parts[j->commit.parts_count++] = fragment->results[p];
    if (j->commit.parts_count > 0)
        round_context_submit(apply->context, &j->job, JOBS_APPLY, run_note, done_note);
    else /* what others have will tell that it is not right */
        hash(j);
}

void apply_tick(struct apply *apply)
{
    for (uint32_t f = 0; f < round_context_fragments(apply->context); f++) {
        struct apply_fragment *fragment = &apply->fragments[f];
        struct hash_job *j = fragment->unsaved;
        if (j == NULL || apply->context->now_ms < fragment->save_again_ms)
            continue;
        fragment->unsaved = NULL;
        round_context_submit(apply->context, &j->job, JOBS_APPLY, run_note, done_note);
    }
}

/* ---- the outer step: one job per part ---- */

/* What becomes of a shard's residual when a result is applied. */
enum residual_rule {
    RESIDUAL_KEEP,  /* the result does not count us */
    RESIDUAL_MOVE,  /* it counts the contribution we encoded last */
    RESIDUAL_CLEAR, /* it counts one whose residual is not known any more */
};

/* `sent`: what this process encoded last for the shard. `ours`: the contribution of ours that is counted. */
static enum residual_rule counts_ours(const struct wire_contributor *ours, uint64_t version,
                                      const struct round_context_sent *sent)
{
    if (ours == NULL)
        return RESIDUAL_KEEP;
    return sent->version == version && digest_equal(&sent->digest, &ours->digest) ? RESIDUAL_MOVE : RESIDUAL_CLEAR;
}

/* Residuals move shard by shard: those of a carried part may be of an encoding before the last. They do when all parts
 * are done, since then it is mostly all of them, and nothing need be copied. */
static void judge_residuals(struct part_job *j, uint64_t shards, const struct wire_meta *meta)
{
    const struct round_context *context = j->apply->context;
    uint64_t mask[RESIDUAL_CLEAR + 1] = {0};
    struct wire_contributor found, *ours = wire_meta_find(meta, round_context_id(context), &found) ? &found : NULL;
    for (uint32_t s = 0; s < PLAN_SHARDS_MAX; s++)
        if ((shards >> s & 1) != 0)
            mask[counts_ours(ours, j->version, &context->fragments[j->f].sent[s])] |= (uint64_t)1 << s;
    j->moved = mask[RESIDUAL_MOVE];
    j->cleared = mask[RESIDUAL_CLEAR];
}

static enum err keep_contributors(struct part_job *j, const struct wire_meta *meta)
{
    uint8_t *rows;
    size_t bytes = (size_t)meta->contributors_count * WIRE_CONTRIBUTOR_BYTES;
    TRY(mem_new(bytes, 1, "what is counted", &rows));
    memcpy(rows, meta->contributors, bytes);
    j->meta = *meta;
    j->meta.contributors = rows;
    return ERR_OK;
}

/* On whichever thread. */
static enum err apply_piece(void *user, size_t i, struct jobs_scratch *scratch)
{
    return replica_apply_piece(user, i, scratch->codec);
}

static enum err apply_shared(struct part_job *j, uint64_t shards, const struct result *result,
                             struct jobs_scratch *scratch)
{
    const struct apply_fragment *fragment = &j->apply->fragments[j->f];
    const struct round_context *context = j->apply->context;
    struct outer_round round = apply_numbers(context, &result->meta, fragment->sizes, fragment->parts_count);
    enum err err = replica_apply_begin(context->conf.replica, j->f, shards, &round, result->frame, result->frame_bytes,
                                       &j->applying);
    while (err == ERR_OK && (err = replica_apply_next(&j->applying)) == ERR_OK && j->applying.pieces > 0)
        err = jobs_share(scratch, j->applying.pieces, apply_piece, &j->applying);
    return err;
}

static enum err run_apply(struct job *job, struct jobs_scratch *scratch)
{
    struct part_job *j = (struct part_job *)(void *)job;
    const struct round_context *context = j->apply->context;
    const struct apply_fragment *fragment = &j->apply->fragments[j->f];
    const struct version_part *part = &fragment->parts[j->p];
    struct result result;
    TRY(apply_open(context, &fragment->results[j->p], &result));
    j->step = result.meta.step;
    enum err err = apply_shared(j, part->shards, &result, scratch);
    if (err == ERR_OK)
        err = keep_contributors(j, &result.meta);
    if (err == ERR_OK)
        judge_residuals(j, part->shards, &result.meta);
    result_close(&result);
    return err;
}

/* Whom the anchor counts now. ERR_NOMEM has been said. */
static enum err note_counted(const struct part_job *j)
{
    const struct round_context *context = j->apply->context;
    const struct version_part *part = &j->apply->fragments[j->f].parts[j->p];
    enum err err = j->job.err;
    if (err == ERR_NOMEM)
        event_post_fatal(context->conf.events, j->job.text);
    if (err != ERR_OK)
        return err;
    err = dedup_note(replica_counted(context->conf.replica, j->f), part->shards, j->version, &j->meta);
    if (err != ERR_OK)
        event_post_fatal(context->conf.events, err_text());
    return err;
}

static void note_share(struct apply_fragment *fragment, const struct part_job *j)
{
    const struct round_context *context = j->apply->context;
    double values = (double)round_context_values(context, j->f, fragment->parts[j->p].shards),
           share = result_share(&j->meta, round_context_id(context), rules_by_value(context->conf.spec));
    fragment->ours += share * values;
    fragment->values += share > 0 ? values : 0;
}

static void done_apply(struct job *job)
{
    struct part_job *j = (struct part_job *)(void *)job;
    struct apply *apply = j->apply;
    struct apply_fragment *fragment = &apply->fragments[j->f];
    struct store_fragment *state = &apply->context->fragments[j->f].state;
    uint32_t f = j->f;
    uint64_t version = j->version;
    /* A result in our own ledger that cannot be applied leaves its shards as they were: the hash will differ, and the
     * comparison with the others mends it. */
    if (job->err != ERR_OK)
        log_error("fragment %" PRIu32 ", version %" PRIu64 ", owner %" PRIu32 " cannot be applied: %s", f, version,
                  fragment->parts[j->p].id.owner, job->text);
    enum err err = note_counted(j);
    if (err == ERR_OK)
        note_share(fragment, j);
    if (err == ERR_OK)
        standing_note(&apply->context->standing, apply->context->conf.view, &j->meta, f, version,
                      apply->context->now_ms, true);
    mem_free((void *)(uintptr_t)j->meta.contributors);
    if (err == ERR_NOMEM) { /* it would be another version: the daemon ends, and goes on from the ledger */
        job_pool_give(&apply->parts, j);
        return;
    }
    fragment->failed |= err != ERR_OK;
    fragment->moved |= j->moved;
    fragment->cleared |= j->cleared;
    if (j->step > state->step)
        state->step = j->step;
    job_pool_give(&apply->parts, j);
    if (--fragment->parts_left == 0)
        all_applied(apply, f, version);
}

/* One job for each part; false: no memory, and the daemon ends; without this part the version is never taken for
 * applied. The caller holds the end back until all are submitted. */
static bool submit_parts(struct apply *apply, uint32_t f, uint64_t version, job_run *run, job_done *done)
{
    struct apply_fragment *fragment = &apply->fragments[f];
    fragment->parts_left = 1;
    for (uint32_t p = 0; p < fragment->parts_count; p++) {
        struct part_job *j = round_context_job(apply->context, &apply->parts);
        if (j == NULL)
            return false;
        j->apply = apply;
        j->f = f;
        j->p = p;
        j->version = version;
        fragment->parts_left++;
        round_context_submit(apply->context, &j->job, JOBS_APPLY, run, done);
    }
    fragment->parts_left--;
    return true;
}

static void apply_parts(struct apply *apply, uint32_t f, uint64_t version)
{
    if (submit_parts(apply, f, version, run_apply, done_apply) && apply->fragments[f].parts_left == 0)
        all_applied(apply, f, version);
}

/* ---- before it, with CO2's penalty: the norms over all parts ---- */

static enum err run_measure(struct job *job, struct jobs_scratch *scratch)
{
    struct part_job *j = (struct part_job *)(void *)job;
    const struct round_context *context = j->apply->context;
    struct apply_fragment *fragment = &j->apply->fragments[j->f];
    const struct version_part *part = &fragment->parts[j->p];
    struct result result;
    TRY(apply_open(context, &fragment->results[j->p], &result));
    enum err err = replica_measure(context->conf.replica, j->f, part->shards, result.frame, result.frame_bytes,
                                   scratch->codec, &fragment->sizes[j->p]);
    result_close(&result);
    return err;
}

static void done_measure(struct job *job)
{
    struct part_job *j = (struct part_job *)(void *)job;
    struct apply *apply = j->apply;
    uint32_t f = j->f;
    uint64_t version = j->version;
    job_pool_give(&apply->parts, j); /* one that failed fails again when it is applied, and is reported then */
    if (--apply->fragments[f].parts_left == 0)
        apply_parts(apply, f, version);
}

static void measure_parts(struct apply *apply, uint32_t f, uint64_t version)
{
    memset(apply->fragments[f].sizes, 0, sizeof apply->fragments[f].sizes);
    if (submit_parts(apply, f, version, run_measure, done_measure) && apply->fragments[f].parts_left == 0)
        apply_parts(apply, f, version);
}

/* ---- the order ---- */

void apply_begin(struct apply *apply, uint32_t f, uint64_t version)
{
    struct round_context *context = apply->context;
    struct apply_fragment *fragment = &apply->fragments[f];
    if (round_context_used(context, f) || context->fragments[f].readers > 0) {
        fragment->waits = version;
        return;
    }
    fragment->waits = 0;
    fragment->moved = fragment->cleared = 0;
    fragment->ours = fragment->values = 0;
    fragment->failed = false;
    fragment->parts_count = round_context_parts(context, f, version, fragment->parts);
    for (uint32_t p = 0; p < fragment->parts_count; p++)
        fragment->results[p] = round_context_result(context, &fragment->parts[p]);
    assert(fragment->parts_count > 0); /* else a version would come of nothing */
    if (context->conf.spec->staleness_penalty)
        measure_parts(apply, f, version);
    else
        apply_parts(apply, f, version);
}

void apply_unread(struct apply *apply, uint32_t f)
{
    if (apply->fragments[f].waits != 0)
        apply_begin(apply, f, apply->fragments[f].waits);
}

bool apply_waits(const struct apply *apply, uint32_t f)
{
    return apply->fragments[f].waits != 0;
}
