#include "daemon/rounds/apply.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "common/mem.h"
#include "daemon/rules.h"
#include "outer_opt/runaway.h"

/* No run spec leads to larger numbers of an outer step. */
static const float outer_most = 1e6f;
enum { SAVE_AGAIN_MS = 2000 };

struct apply_fragment {
    uint64_t waits;             /* version to apply when nobody reads the anchor; 0: none */
    uint32_t parts_left;        /* jobs of the step under way */
    struct replica_size *sizes; /* [members]: of the results being applied, by shard */
    struct bitset counted;      /* of the step under way: shards that count us */
    struct ledger_part *parts;  /* [members]: of the step under way: which results, by owner */
    bool failed;                /* of the step under way: a part could not be applied */
    struct hash_job *unsaved;   /* applied and hashed, and the disk refused to note it; NULL: none */
    uint64_t save_again_ms;
    struct runaway runaway;
    double grown; /* as runaway_note() said last */
};

struct apply {
    struct desk *desk;
    struct apply_fragment *fragments;
    struct job_pool receives, shards, hashes;
};

/* A result that came in. */
struct receive_job {
    struct job job;
    struct apply *apply;
    struct wire_key key;
    uint32_t peer;
    struct slot *slot;
};

/* One shard's part of an outer step, or of the measuring before it. */
struct shard_job {
    struct job job;
    struct apply *apply;
    uint32_t f, shard;
    uint64_t version;
    bool own_encoding; /* `own` is the contribution that this process encoded for the version */
    struct digest own;
    bool counts_us;          /* out */
    uint64_t step;           /* out: the result's */
    struct ledger_part part; /* out: which result it was */
};

/* The hash of a version. */
struct hash_job {
    struct job job;
    struct apply *apply;
    uint32_t f;
    uint64_t version;
    struct ledger_commit commit; /* of no parts if a part could not be applied: then nothing is noted */
    bool hashed;                 /* out */
    double norm;
};

enum err apply_new(struct desk *desk, struct apply **out)
{
    TRY(mem_new(1, sizeof **out, "rounds", out));
    struct apply *apply = *out;
    apply->desk = desk;
    apply->receives.job_bytes = sizeof(struct receive_job);
    apply->shards.job_bytes = sizeof(struct shard_job);
    apply->hashes.job_bytes = sizeof(struct hash_job);
    TRY(mem_new(desk_fragments(desk), sizeof *apply->fragments, "rounds", &apply->fragments));
    for (uint32_t f = 0; f < desk_fragments(desk); f++) {
        TRY(mem_new(desk->conf.view->count, sizeof(struct replica_size), "rounds", &apply->fragments[f].sizes));
        TRY(mem_new(desk->conf.view->count, sizeof(struct ledger_part), "rounds", &apply->fragments[f].parts));
    }
    return ERR_OK;
}

void apply_free(struct apply *apply)
{
    if (apply == NULL)
        return;
    job_pool_deinit(&apply->receives);
    job_pool_deinit(&apply->shards);
    job_pool_deinit(&apply->hashes);
    for (uint32_t f = 0; apply->fragments != NULL && f < desk_fragments(apply->desk); f++) {
        mem_free(apply->fragments[f].sizes);
        mem_free(apply->fragments[f].parts);
    }
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

struct outer_round apply_numbers(const struct desk *desk, const struct wire_meta *meta,
                                 const struct replica_size *sizes)
{
    struct outer_round round = numbers_of(meta);
    double delta = 0, momentum = 0;
    if (!desk->conf.spec->staleness_penalty)
        return round;
    for (uint32_t s = 0; s < desk->conf.view->count; s++) {
        delta += sizes[s].delta;
        momentum += sizes[s].momentum;
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

enum err apply_check(const struct desk *desk, const struct wire_meta *meta)
{
    TRY(desk_check_step(desk, meta));
    return check_numbers(meta);
}

enum err apply_open(const struct desk *desk, const struct ledger_key *key, struct result *out)
{
    TRY(result_open(desk->conf.ledger, key, out));
    enum err err = desk_check_object(desk, &out->what, &out->what.key);
    if (err == ERR_OK)
        err = apply_check(desk, &out->meta);
    if (err != ERR_OK)
        result_close(out);
    return err;
}

enum err apply_open_first(const struct desk *desk, uint32_t f, uint64_t version, uint32_t owner, struct result *out)
{
    struct ledger_key keys[LEDGER_RESULTS_MAX];
    size_t count = ledger_list(desk->conf.ledger, f, version, keys, LEDGER_RESULTS_MAX);
    enum err err = ERR_NOTFOUND;
    for (size_t i = 0; i < count && err != ERR_OK; i++)
        if (keys[i].owner == owner)
            err = apply_open(desk, &keys[i], out);
    return err == ERR_NOTFOUND ? err_set(err, "the ledger has no such result (any more)") : err;
}

/* ---- a result came in ---- */

static enum err run_receive(struct job *job, struct jobs_scratch *scratch)
{
    struct receive_job *j = (struct receive_job *)(void *)job;
    const struct desk *desk = j->apply->desk;
    const struct wire_key *key = &j->key;
    struct wire_object what;
    struct wire_meta meta;
    const uint8_t *frame;
    size_t frame_bytes;
    size_t count = (size_t)desk_values(desk, key->fragment, key->owner);
    TRY(wire_object_open(j->slot->data, j->slot->bytes, &what, &meta, &frame, &frame_bytes));
    TRY(desk_check_object(desk, &what, key));
    TRY(wire_object_signed(&what, desk->conf.view->members[key->owner].key));
    TRY(apply_check(desk, &meta));
    TRY(codec_check(frame, frame_bytes, count));
    /* Nothing enters the ledger that a restart could not apply. */
    TRY(codec_decode(scratch->codec, frame, frame_bytes, scratch->values, count));
    struct ledger_key there = result_key(&what);
    return ledger_append(desk->conf.ledger, &there, j->slot->data, j->slot->bytes, false);
}

static void done_receive(struct job *job)
{
    struct receive_job *j = (struct receive_job *)(void *)job;
    struct desk *desk = j->apply->desk;
    const struct wire_key *key = &j->key;
    enum wire_done status = WIRE_RECEIVED;
    j->slot->busy = false;
    if (job->err == ERR_PROTO) {
        log_error("the result of fragment %" PRIu32 ", version %" PRIu64 ", shard %" PRIu32
                  " from island %s is damaged and not used: %s; it is fetched again",
                  key->fragment, key->version, key->owner, desk_name(desk, j->peer), job->text);
        status = WIRE_REFUSED;
    } else if (job->err != ERR_OK) {
        desk_disk_failed(desk, job->text);
        status = WIRE_NOT_YET; /* it is sent again until there is room */
    } else {
        desk_disk_works(desk);
    }
    desk_judged(desk, j->peer, key, status);
    if (job->err == ERR_OK)
        desk_post(desk, &(struct sync_event){.type = SYNC_EV_STORED,
                                             .fragment = key->fragment,
                                             .version = key->version,
                                             .owner = key->owner,
                                             .member = j->peer});
    job_pool_give(&j->apply->receives, j);
}

void apply_result_in(struct apply *apply, uint32_t peer, const struct wire_key *key, uint64_t bytes)
{
    struct desk *desk = apply->desk;
    struct receive_job *j = desk_job(desk, &apply->receives);
    if (j == NULL) {
        desk_judged(desk, peer, key, WIRE_NOT_YET);
        return;
    }
    j->apply = apply;
    j->key = *key;
    j->peer = peer;
    j->slot = slots_result(desk->conf.slots, key->fragment, key->owner);
    j->slot->bytes = (size_t)bytes;
    j->slot->busy = true;
    desk_submit(desk, &j->job, run_receive, done_receive);
}

/* ---- the hash, when all shards are done, and what the version was made of ---- */

static enum err run_hash(struct job *job, struct jobs_scratch *scratch)
{
    struct hash_job *j = (struct hash_job *)(void *)job;
    const struct rounds_conf *conf = &j->apply->desk->conf;
    (void)scratch;
    if (!j->hashed) {
        j->norm = replica_norm(conf->replica, j->f);
        TRY(replica_hash(conf->replica, j->f, j->version, &j->commit.hash));
        j->hashed = true;
    }
    return j->commit.parts_count > 0 ? ledger_append_commit(conf->ledger, &j->commit, true) : ERR_OK;
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
    struct desk *desk = apply->desk;
    struct store_fragment *state = &desk->fragments[j->f].state;
    char hex[DIGEST_HEX_BYTES];
    if (job->err != ERR_OK && !j->hashed) { /* out of memory: the daemon ends, and goes on from the ledger */
        event_post_fatal(desk->conf.events, job->text);
        job_pool_give(&apply->hashes, j);
        return;
    }
    if (job->err != ERR_OK) { /* nobody hears of a version that a restart would not come back to */
        desk_disk_failed(desk, job->text);
        apply->fragments[j->f].unsaved = j;
        apply->fragments[j->f].save_again_ms = desk->now_ms + SAVE_AGAIN_MS;
        return;
    }
    if (j->commit.parts_count > 0)
        desk_disk_works(desk);
    state->version = j->version;
    state->hash = j->commit.hash;
    note_norm(&apply->fragments[j->f], j);
    if (state->step >= rules_warm_until(desk->conf.spec))
        replica_settle(desk->conf.replica, j->f);
    log_debug("fragment %" PRIu32 " version %" PRIu64 " hash %s", j->f, j->version, digest_hex(&state->hash, hex));
    event_post(desk->conf.events,
               &(struct event){.type = EVENT_COUNTED, .fragment = j->f, .shards = apply->fragments[j->f].counted});
    desk_post(desk, &(struct sync_event){.type = SYNC_EV_APPLIED, .fragment = j->f, .hash = state->hash});
    desk_post_held(desk, j->f);
    job_pool_give(&apply->hashes, j);
}

static void all_applied(struct apply *apply, uint32_t f, uint64_t version)
{
    struct hash_job *j = desk_job(apply->desk, &apply->hashes);
    if (j == NULL)
        return;
    const struct apply_fragment *fragment = &apply->fragments[f];
    j->apply = apply;
    j->f = f;
    j->version = version;
    j->commit.fragment = f;
    j->commit.version = version;
    for (uint32_t s = 0; !fragment->failed && s < apply->desk->conf.view->count; s++)
        if (desk_values(apply->desk, f, s) > 0)
            j->commit.parts[j->commit.parts_count++] = fragment->parts[s];
    desk_submit(apply->desk, &j->job, run_hash, done_hash);
}

void apply_tick(struct apply *apply)
{
    for (uint32_t f = 0; f < desk_fragments(apply->desk); f++) {
        struct apply_fragment *fragment = &apply->fragments[f];
        struct hash_job *j = fragment->unsaved;
        if (j == NULL || apply->desk->now_ms < fragment->save_again_ms)
            continue;
        fragment->unsaved = NULL;
        desk_submit(apply->desk, &j->job, run_hash, done_hash);
    }
}

/* ---- the outer step: one job per shard ---- */

static struct shard_job *shard_job(struct apply *apply, uint32_t f, uint32_t shard, uint64_t version)
{
    struct shard_job *j = desk_job(apply->desk, &apply->shards);
    if (j == NULL)
        return NULL;
    j->apply = apply;
    j->f = f;
    j->shard = shard;
    j->version = version;
    return j;
}

static enum err run_apply(struct job *job, struct jobs_scratch *scratch)
{
    struct shard_job *j = (struct shard_job *)(void *)job;
    const struct desk *desk = j->apply->desk;
    struct result result;
    TRY(apply_open_first(desk, j->f, j->version, j->shard, &result));
    j->counts_us = result_counts(&result.meta, desk_self(desk), NULL);
    j->step = result.meta.step;
    j->part = (struct ledger_part){
        .epoch = result.what.key.epoch, .owner = result.what.key.owner, .digest = result.what.digest};
    bool own = j->own_encoding && result_counts(&result.meta, desk_self(desk), &j->own);
    enum replica_residual_rule rule = !j->counts_us ? REPLICA_KEEP : own ? REPLICA_MOVE : REPLICA_CLEAR;
    struct outer_round round = apply_numbers(desk, &result.meta, j->apply->fragments[j->f].sizes);
    enum err err = replica_apply(desk->conf.replica, j->f, j->shard, &round, result.frame, result.frame_bytes, rule,
                                 scratch->codec, scratch->values);
    result_close(&result);
    return err;
}

static void done_apply(struct job *job)
{
    struct shard_job *j = (struct shard_job *)(void *)job;
    struct apply *apply = j->apply;
    struct apply_fragment *fragment = &apply->fragments[j->f];
    struct store_fragment *state = &apply->desk->fragments[j->f].state;
    uint32_t f = j->f;
    uint64_t version = j->version;
    /* A result in our own ledger that cannot be applied leaves the shard as it was: its hash will differ, and the
     * comparison with the others mends it. */
    if (job->err != ERR_OK)
        log_error("fragment %" PRIu32 ", version %" PRIu64 ", shard %" PRIu32 " cannot be applied: %s", f, version,
                  j->shard, job->text);
    fragment->failed |= job->err != ERR_OK;
    fragment->parts[j->shard] = j->part;
    if (j->counts_us)
        bitset_add(&fragment->counted, j->shard);
    if (j->step > state->step)
        state->step = j->step;
    job_pool_give(&apply->shards, j);
    if (--fragment->parts_left == 0)
        all_applied(apply, f, version);
}

/* Our contribution to a part, if this process encoded it for the version: its residual is the one that is pending. */
static bool own_contribution(const struct desk *desk, uint32_t f, uint64_t version, uint32_t owner, struct digest *out)
{
    const struct slot *slot = slots_out(desk->conf.slots, f, owner);
    struct wire_object what;
    if (desk->fragments[f].encoded_version != version || slot->busy || slot->version != version ||
        wire_object_peek(slot->data, slot->bytes, &what) != ERR_OK)
        return false;
    *out = what.digest;
    return true;
}

static void apply_shards(struct apply *apply, uint32_t f, uint64_t version)
{
    struct desk *desk = apply->desk;
    struct apply_fragment *fragment = &apply->fragments[f];
    fragment->parts_left = 1; /* holds the end back until all are submitted */
    for (uint32_t s = 0; s < desk->conf.view->count; s++) {
        if (desk_values(desk, f, s) == 0)
            continue;
        struct shard_job *j = shard_job(apply, f, s, version);
        if (j == NULL)
            return; /* the daemon ends; without this shard the version is never taken for applied */
        j->own_encoding = own_contribution(desk, f, version, s, &j->own);
        fragment->parts_left++;
        desk_submit(desk, &j->job, run_apply, done_apply);
    }
    if (--fragment->parts_left == 0)
        all_applied(apply, f, version);
}

/* ---- before it, with CO2's penalty: the norms over all shards ---- */

static enum err run_measure(struct job *job, struct jobs_scratch *scratch)
{
    struct shard_job *j = (struct shard_job *)(void *)job;
    const struct desk *desk = j->apply->desk;
    struct result result;
    TRY(apply_open_first(desk, j->f, j->version, j->shard, &result));
    enum err err = replica_measure(desk->conf.replica, j->f, j->shard, result.frame, result.frame_bytes, scratch->codec,
                                   scratch->values, &j->apply->fragments[j->f].sizes[j->shard]);
    result_close(&result);
    return err;
}

static void done_measure(struct job *job)
{
    struct shard_job *j = (struct shard_job *)(void *)job;
    struct apply *apply = j->apply;
    uint32_t f = j->f;
    uint64_t version = j->version;
    job_pool_give(&apply->shards, j); /* one that failed fails again when it is applied, and is reported then */
    if (--apply->fragments[f].parts_left == 0)
        apply_shards(apply, f, version);
}

static void measure_shards(struct apply *apply, uint32_t f, uint64_t version)
{
    struct apply_fragment *fragment = &apply->fragments[f];
    fragment->parts_left = 1;
    for (uint32_t s = 0; s < apply->desk->conf.view->count; s++) {
        fragment->sizes[s] = (struct replica_size){0};
        if (desk_values(apply->desk, f, s) == 0)
            continue;
        struct shard_job *j = shard_job(apply, f, s, version);
        if (j == NULL)
            return;
        fragment->parts_left++;
        desk_submit(apply->desk, &j->job, run_measure, done_measure);
    }
    if (--fragment->parts_left == 0)
        apply_shards(apply, f, version);
}

/* ---- the order ---- */

void apply_begin(struct apply *apply, uint32_t f, uint64_t version)
{
    struct apply_fragment *fragment = &apply->fragments[f];
    if (apply->desk->fragments[f].readers > 0) {
        fragment->waits = version;
        return;
    }
    fragment->waits = 0;
    fragment->counted = (struct bitset){{0}};
    fragment->failed = false;
    if (apply->desk->conf.spec->staleness_penalty)
        measure_shards(apply, f, version);
    else
        apply_shards(apply, f, version);
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
