#include "daemon/rounds/rounds.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/mem.h"

enum { STORE_AGAIN_MS = 2000 };

/* ---- jobs and slots ---- */

struct round_job *rounds_job(struct engine *engine, uint32_t f, uint32_t shard, uint64_t version)
{
    struct round_job *r = engine->free_jobs;
    if (r != NULL) {
        engine->free_jobs = (struct round_job *)(void *)r->job.next;
    } else if (mem_new(1, sizeof *r, "a job", &r) != ERR_OK) {
        /* A round that one cannot go on with would stand for ever; after a restart it goes on from the ledger. */
        engine_fail(engine, err_text());
        return NULL;
    }
    *r = (struct round_job){.engine = engine, .f = f, .shard = shard, .version = version};
    return r;
}

void rounds_recycle(struct engine *engine, struct round_job *r)
{
    r->job.next = (struct job *)(void *)engine->free_jobs;
    engine->free_jobs = r;
}

void rounds_free_jobs(struct engine *engine)
{
    while (engine->free_jobs != NULL) {
        struct round_job *r = engine->free_jobs;
        engine->free_jobs = (struct round_job *)(void *)r->job.next;
        mem_free(r);
    }
}

void rounds_submit(struct engine *engine, struct round_job *r, job_run *run, job_done *done)
{
    r->job.run = run;
    r->job.done = done;
    jobs_submit(engine->jobs, &r->job);
}

enum err rounds_slot_room(struct engine *engine, struct slot *slot, uint32_t f, uint32_t shard)
{
    if (slot->data != NULL)
        return ERR_OK;
    size_t bytes = wire_object_bytes_max(replica_frame_bytes_max(engine->replica, f, shard));
    TRY(mem_new(bytes, 1, "an encoded shard", &slot->data));
    slot->bytes_max = bytes;
    return ERR_OK;
}

uint64_t rounds_shard_values(struct engine *engine, uint32_t f, uint32_t shard)
{
    struct plan_shard range = replica_shard(engine->replica, f, shard);
    return range.end - range.begin;
}

static uint32_t self_of(const struct engine *engine)
{
    return engine->view.self;
}

void rounds_disk_failed(struct engine *engine, const char *text)
{
    static struct log_limit limit;
    snprintf(engine->disk_note, sizeof engine->disk_note, "%s", text);
    if (log_limit_pass(&limit, engine->now_ms, 10000))
        log_error("%s", text);
}

void rounds_disk_works(struct engine *engine)
{
    if (engine->disk_note[0] != '\0')
        log_info("the disk can be written again");
    engine->disk_note[0] = '\0';
}

/* ---- encode: one job per shard ---- */

/* Around an encoding: with or without zstd, as the link asks for, and measured. */
static void decide_compression(struct engine *engine, struct round_job *r, bool measured)
{
    double bits_per_s = (double)engine->meter.bits_per_s;
    bool worth = true;
    if (engine->conf->compress_auto)
        worth = measured ? squeeze_next(&engine->squeeze, bits_per_s) : squeeze_best(&engine->squeeze, bits_per_s);
    r->compress = engine->spec.zstd_level > 0 && worth;
}

static enum err set_compression(const struct round_job *r, struct codec *codec)
{
    return codec_set_zstd(codec, r->compress ? (int)r->engine->spec.zstd_level : 0);
}

static void note_compression(struct engine *engine, const struct round_job *r)
{
    uint64_t values = rounds_shard_values(engine, r->f, r->shard);
    squeeze_note(&engine->squeeze, r->compress, values, r->seconds, r->slot->bytes);
}

static enum err run_encode(struct job *job, struct jobs_scratch *scratch)
{
    struct round_job *r = (struct round_job *)(void *)job;
    size_t frame_bytes;
    double begin_s = env_mono_s();
    TRY(set_compression(r, scratch->codec));
    TRY(replica_encode(r->engine->replica, r->f, r->shard, r->base, r->theta, scratch->codec,
                       wire_object_frame(r->slot->data), &frame_bytes));
    r->seconds = env_mono_s() - begin_s;
    return wire_object_seal(WIRE_CONTRIBUTION, &r->meta, r->slot->data, frame_bytes, &r->slot->bytes);
}

static void encode_ended(struct engine *engine, uint32_t f)
{
    struct engine_fragment *fragment = &engine->fragments[f];
    if (fragment->parts_err != ERR_OK) {
        fragment->void_work = true;
        engine_event(engine, &(struct sync_event){.type = SYNC_EV_REFUSED, .fragment = f});
        return;
    }
    fragment->void_work = false; /* whatever was wrong with the one before */
    engine_event(engine, &(struct sync_event){.type = SYNC_EV_ENCODED, .fragment = f});
}

static void tell_feedback(struct engine *engine, uint32_t f)
{
    uint64_t cuts = replica_feedback_cuts(engine->replica, f);
    if (cuts > 0 && log_limit_pass(&engine->feedback_said, engine->now_ms, 3600000))
        log_info("fragment %" PRIu32
                 ": what encoding leaves over has reached %g of the outer gradient and is cut down to "
                 "that; a finer codec would lose less",
                 f, engine->spec.feedback_limit);
}

static void done_encode(struct job *job, void *user)
{
    struct engine *engine = user;
    struct round_job *r = (struct round_job *)(void *)job;
    struct engine_fragment *fragment = &engine->fragments[r->f];
    uint32_t f = r->f;
    port_unpin(engine);
    r->slot->busy = false;
    r->slot->version = r->version;
    if (job->err != ERR_OK) {
        log_error("%s", job->text);
        fragment->parts_err = job->err;
    } else {
        note_compression(engine, r);
        tell_feedback(engine, f);
    }
    rounds_recycle(engine, r);
    if (--fragment->parts_left == 0)
        encode_ended(engine, f);
}

static bool submit_encode(struct engine *engine, uint32_t f, uint32_t shard, uint64_t version,
                          const struct port_snapshot *snapshot)
{
    struct slot *slot = &engine->fragments[f].out[shard];
    struct round_job *r = rounds_job(engine, f, shard, version);
    if (r == NULL)
        return false;
    if (rounds_slot_room(engine, slot, f, shard) != ERR_OK) {
        engine_fail(engine, err_text());
        rounds_recycle(engine, r);
        return false;
    }
    uint64_t counted = snapshot->counted_tokens[shard];
    r->slot = slot;
    r->base = snapshot->base;
    r->theta = snapshot->theta;
    /* A shard that is sent again with nothing new in it weighs as little as possible, not nothing. */
    r->meta.tokens = snapshot->tokens > counted ? snapshot->tokens - counted : 1;
    r->meta.step = snapshot->step;
    r->meta.base_hash = engine->fragments[f].state.hash;
    slot->busy = true;
    decide_compression(engine, r, true);
    port_pin(engine);
    rounds_submit(engine, r, run_encode, done_encode);
    return true;
}

void rounds_encode(struct engine *engine, uint32_t f, uint64_t version)
{
    struct engine_fragment *fragment = &engine->fragments[f];
    struct port_snapshot snapshot;
    fragment->parts_left = 1; /* holds the end back until all are submitted */
    fragment->parts_err = ERR_OK;
    fragment->encoded_version = version;
    if (!port_snapshot(engine, f, &snapshot))
        fragment->parts_err = ERR_STATE;
    for (uint32_t s = 0; fragment->parts_err == ERR_OK && s < engine->view.count; s++) {
        if (rounds_shard_values(engine, f, s) == 0)
            continue;
        fragment->parts_left++;
        if (!submit_encode(engine, f, s, version, &snapshot)) {
            fragment->parts_left--;
            fragment->parts_err = ERR_NOMEM;
        }
    }
    if (--fragment->parts_left == 0)
        encode_ended(engine, f);
}

/* ---- a contribution to our shard came in ---- */

/* An object is whole in its slot: a job looks at it, and then its sender is told what became of it. */
static void object_in(struct engine *engine, uint32_t peer, const struct wire_key *key, uint64_t bytes,
                      struct slot *slot, job_run *run, job_done *done)
{
    struct round_job *r = rounds_job(engine, key->fragment, key->shard, key->version);
    if (r == NULL) {
        xfer_finish(engine->xfer, peer, key, WIRE_NOT_YET);
        return;
    }
    slot->bytes = (size_t)bytes;
    slot->busy = true;
    r->slot = slot;
    r->peer = peer;
    r->key = *key;
    rounds_submit(engine, r, run, done);
}

/* Schedules count on it. */
static enum err check_step(const struct engine *engine, const struct wire_meta *meta)
{
    if (meta->step > (uint64_t)engine->spec.steps)
        return err_set(ERR_PROTO, "step %" PRIu64 " of a run of %" PRId64, meta->step, engine->spec.steps);
    return ERR_OK;
}

static enum err run_check_contribution(struct job *job, struct jobs_scratch *scratch)
{
    struct round_job *r = (struct round_job *)(void *)job;
    const uint8_t *frame;
    size_t frame_bytes;
    (void)scratch;
    TRY(wire_object_open(WIRE_CONTRIBUTION, r->slot->data, r->slot->bytes, &r->meta, &frame, &frame_bytes));
    TRY(check_step(r->engine, &r->meta));
    struct plan_shard range = replica_own_shard(r->engine->replica, r->f);
    return codec_check(frame, frame_bytes, (size_t)(range.end - range.begin));
}

static void done_check_contribution(struct job *job, void *user)
{
    struct engine *engine = user;
    struct round_job *r = (struct round_job *)(void *)job;
    struct sync_event event = {
        .type = SYNC_EV_CONTRIBUTION, .fragment = r->f, .version = r->version, .member = r->peer};
    enum wire_done status = WIRE_RECEIVED;
    r->slot->busy = false;
    r->slot->version = r->version;
    if (job->err != ERR_OK) {
        log_error("the contribution of island %s to fragment %" PRIu32 ", version %" PRIu64
                  " is damaged and not counted: %s",
                  engine->view.members[r->peer].name, r->f, r->version, job->text);
        event.type = SYNC_EV_CONTRIBUTION_REFUSED;
        status = WIRE_REFUSED;
    } else if (!sync_base_agrees(engine->sync, r->f, r->version, &r->meta.base_hash)) {
        log_error("island %s contributes to fragment %" PRIu32 " from another version %" PRIu64
                  " than ours; not counted, one of us has to repair",
                  engine->view.members[r->peer].name, r->f, r->version - 1);
        event.type = SYNC_EV_CONTRIBUTION_REFUSED;
        status = WIRE_REFUSED;
    }
    xfer_finish(engine->xfer, r->peer, &r->key, status);
    engine_event(engine, &event);
    rounds_recycle(engine, r);
}

void rounds_contribution_in(struct engine *engine, uint32_t peer, const struct wire_key *key, uint64_t bytes)
{
    object_in(engine, peer, key, bytes, &engine->fragments[key->fragment].in[peer], run_check_contribution,
              done_check_contribution);
}

/* ---- reduce: the mean over our shard ---- */

static enum err run_reduce(struct job *job, struct jobs_scratch *scratch)
{
    struct round_job *r = (struct round_job *)(void *)job;
    size_t frame_bytes;
    TRY(set_compression(r, scratch->codec));
    TRY(replica_reduce(r->engine->replica, r->f, r->inputs, r->inputs_count, scratch->codec, scratch->values,
                       wire_object_frame(r->slot->data), &frame_bytes, &r->bad));
    for (size_t i = 0; i < r->inputs_count; i++)
        if (r->inputs[i].factor == 0)
            r->meta.contributors[i].tokens = 0; /* counted, with no weight */
    return wire_object_seal(WIRE_RESULT, &r->meta, r->slot->data, frame_bytes, &r->slot->bytes);
}

static void tell_outliers(struct engine *engine, const struct round_job *r)
{
    for (size_t i = 0; i < r->inputs_count; i++) {
        if (r->inputs[i].factor == 1)
            continue;
        struct engine_peer *peer = &engine->peers[r->members[i]];
        peer->outliers++;
        if (log_limit_pass(&peer->outlier_said, engine->now_ms, 10000))
            log_warn("fragment %" PRIu32 ", version %" PRIu64
                     ": the contribution of island %s is far larger than usual; "
                     "%s (the %" PRIu64 ". time). Look at its loss and learning rate",
                     r->f, r->version, engine->view.members[r->members[i]].name,
                     r->inputs[i].factor == 0 ? "left out" : "scaled down", peer->outliers);
    }
}

static void done_reduce(struct job *job, void *user)
{
    struct engine *engine = user;
    struct round_job *r = (struct round_job *)(void *)job;
    struct sync_event event = {.type = SYNC_EV_REDUCED, .fragment = r->f};
    r->slot->busy = false;
    r->slot->version = r->version;
    if (job->err != ERR_OK) {
        event.type = SYNC_EV_DROPPED;
        event.member = r->members[r->bad];
        log_error("fragment %" PRIu32 ", version %" PRIu64 ": the contribution of island %s cannot be used: %s", r->f,
                  r->version, engine->view.members[event.member].name, job->text);
    } else {
        tell_outliers(engine, r);
    }
    rounds_recycle(engine, r);
    engine_event(engine, &event);
}

/* Adds a member's contribution to the inputs. It was checked when it came; opening it again only finds the places. */
static void add_input(struct round_job *r, const struct slot *slot, uint32_t member)
{
    struct wire_meta meta;
    const uint8_t *frame;
    size_t frame_bytes;
    if (wire_object_open(WIRE_CONTRIBUTION, slot->data, slot->bytes, &meta, &frame, &frame_bytes) != ERR_OK)
        return;
    size_t i = r->inputs_count++;
    r->inputs[i] =
        (struct replica_input){.frame = frame, .bytes = frame_bytes, .weight = (float)meta.tokens, .member = member};
    r->members[i] = member;
    r->meta.contributors[i] = (struct wire_contributor){.island = member, .tokens = meta.tokens};
    r->meta.contributors_count = (uint32_t)r->inputs_count;
    r->meta.step = meta.step > r->meta.step ? meta.step : r->meta.step;
}

void rounds_reduce(struct engine *engine, uint32_t f, uint64_t version)
{
    const struct bitset *have = &sync_owner(engine->sync, f)->have;
    struct engine_fragment *fragment = &engine->fragments[f];
    struct slot *slot = &fragment->own;
    struct round_job *r = rounds_job(engine, f, self_of(engine), version);
    exchange_retire_results(engine, f, version - 1);
    if (r == NULL)
        return;
    if (rounds_slot_room(engine, slot, f, self_of(engine)) != ERR_OK) {
        engine_fail(engine, err_text());
        rounds_recycle(engine, r);
        return;
    }
    for (uint32_t i = 0; i < engine->view.count; i++)
        if (bitset_has(have, i))
            add_input(r, i == self_of(engine) ? &fragment->out[i] : &fragment->in[i], i);
    struct outer_round round =
        rules_round(&engine->spec, engine_fragments(engine), f, version, fragment->state.step, r->meta.step);
    memcpy(r->meta.outer, (float[]){round.scale, round.momentum, round.lr}, sizeof r->meta.outer);
    r->meta.outer_known = true;
    decide_compression(engine, r, false);
    r->slot = slot;
    slot->busy = true;
    rounds_submit(engine, r, run_reduce, done_reduce);
}

/* ---- store: results into the ledger ---- */

static enum err run_store_own(struct job *job, struct jobs_scratch *scratch)
{
    struct round_job *r = (struct round_job *)(void *)job;
    (void)scratch;
    return ledger_append(r->engine->ledger, r->f, r->version, r->shard, r->slot->data, r->slot->bytes, true);
}

/* Our result is durable: the left-over of it counts, unless a checkpoint is just reading the one before. */
static void end_store(struct engine *engine, uint32_t f)
{
    struct engine_fragment *fragment = &engine->fragments[f];
    uint64_t version = fragment->stored_waits;
    if (version == 0 || fragment->readers > 0)
        return;
    fragment->stored_waits = 0;
    replica_commit_owner(engine->replica, f);
    engine_event(engine, &(struct sync_event){
                             .type = SYNC_EV_STORED, .fragment = f, .version = version, .shard = self_of(engine)});
}

static void done_store_own(struct job *job, void *user)
{
    struct engine *engine = user;
    struct round_job *r = (struct round_job *)(void *)job;
    uint32_t f = r->f;
    uint64_t version = r->version;
    enum err err = job->err;
    r->slot->busy = false;
    if (err != ERR_OK) {
        rounds_disk_failed(engine, job->text);
        engine->fragments[f].store_again_ms = engine->now_ms + STORE_AGAIN_MS;
    } else {
        rounds_disk_works(engine);
        engine->fragments[f].store_again_ms = 0;
        engine->fragments[f].stored_waits = version;
    }
    rounds_recycle(engine, r);
    end_store(engine, f);
}

void rounds_store(struct engine *engine, uint32_t f, uint64_t version)
{
    struct round_job *r = rounds_job(engine, f, self_of(engine), version);
    if (r == NULL) {
        engine->fragments[f].store_again_ms = engine->now_ms + STORE_AGAIN_MS;
        return;
    }
    r->slot = &engine->fragments[f].own;
    r->slot->busy = true;
    rounds_submit(engine, r, run_store_own, done_store_own);
}

static enum err run_store_received(struct job *job, struct jobs_scratch *scratch)
{
    struct round_job *r = (struct round_job *)(void *)job;
    const uint8_t *frame;
    size_t frame_bytes;
    struct plan_shard range = replica_shard(r->engine->replica, r->f, r->shard);
    size_t count = (size_t)(range.end - range.begin);
    TRY(wire_object_open(WIRE_RESULT, r->slot->data, r->slot->bytes, &r->meta, &frame, &frame_bytes));
    TRY(check_step(r->engine, &r->meta));
    TRY(rounds_check_outer(r->engine, r->version, &r->meta));
    TRY(codec_check(frame, frame_bytes, count));
    /* Nothing enters the ledger that a restart could not apply. */
    TRY(codec_decode(scratch->codec, frame, frame_bytes, scratch->values, count));
    return ledger_append(r->engine->ledger, r->f, r->version, r->shard, r->slot->data, r->slot->bytes, false);
}

static void done_store_received(struct job *job, void *user)
{
    struct engine *engine = user;
    struct round_job *r = (struct round_job *)(void *)job;
    enum wire_done status = WIRE_RECEIVED;
    r->slot->busy = false;
    if (job->err == ERR_PROTO) {
        log_error("the result of fragment %" PRIu32 ", version %" PRIu64 ", shard %" PRIu32
                  " from island %s is damaged and not used: %s; it is fetched again",
                  r->f, r->version, r->shard, engine->view.members[r->peer].name, job->text);
        status = WIRE_REFUSED;
    } else if (job->err != ERR_OK) {
        rounds_disk_failed(engine, job->text);
        status = WIRE_NOT_YET; /* it is sent again until there is room */
    } else {
        rounds_disk_works(engine);
    }
    xfer_finish(engine->xfer, r->peer, &r->key, status);
    if (job->err == ERR_OK)
        engine_event(engine, &(struct sync_event){
                                 .type = SYNC_EV_STORED, .fragment = r->f, .version = r->version, .shard = r->shard});
    rounds_recycle(engine, r);
}

void rounds_result_in(struct engine *engine, uint32_t peer, const struct wire_key *key, uint64_t bytes)
{
    object_in(engine, peer, key, bytes, &engine->fragments[key->fragment].result[key->shard], run_store_received,
              done_store_received);
}

/* ---- readers of an anchor ---- */

void rounds_read_begin(struct engine *engine, uint32_t f)
{
    engine->fragments[f].readers++;
}

void rounds_read_end(struct engine *engine, uint32_t f)
{
    struct engine_fragment *fragment = &engine->fragments[f];
    if (--fragment->readers > 0)
        return;
    end_store(engine, f);
    if (fragment->install_waits != NULL)
        rounds_install(engine, fragment->install_waits);
    else if (fragment->apply_waits != 0)
        rounds_apply(engine, f, fragment->apply_waits);
}

/* ---- give: the anchor into the trainer's area ---- */

static enum err run_give(struct job *job, struct jobs_scratch *scratch)
{
    struct round_job *r = (struct round_job *)(void *)job;
    (void)scratch;
    memcpy(r->area, replica_anchor(r->engine->replica, r->f),
           r->engine->plan->plan->fragments[r->f].values_count * sizeof(float));
    return ERR_OK;
}

static void done_give(struct job *job, void *user)
{
    struct engine *engine = user;
    struct round_job *r = (struct round_job *)(void *)job;
    uint32_t f = r->f;
    rounds_recycle(engine, r);
    port_unpin(engine);
    port_given(engine, f);
    rounds_read_end(engine, f);
}

void rounds_give(struct engine *engine, uint32_t f, float *area)
{
    struct round_job *r = rounds_job(engine, f, 0, 0);
    if (r == NULL)
        return;
    r->area = area;
    port_pin(engine);
    rounds_read_begin(engine, f);
    rounds_submit(engine, r, run_give, done_give);
}

/* ---- start: a trainer begins from the anchor, or the run from its tensors ---- */

static enum err run_start(struct job *job, struct jobs_scratch *scratch)
{
    struct round_job *r = (struct round_job *)(void *)job;
    uint64_t count = r->engine->plan->plan->fragments[r->f].values_count;
    if (!r->included)
        return run_give(job, scratch);
    memcpy(replica_anchor(r->engine->replica, r->f), r->area, count * sizeof(float));
    return replica_hash(r->engine->replica, r->f, 0, &r->hash);
}

static void done_start(struct job *job, void *user)
{
    struct engine *engine = user;
    struct round_job *r = (struct round_job *)(void *)job;
    uint32_t f = r->f;
    bool initial = r->included;
    struct digest hash = r->hash;
    rounds_recycle(engine, r);
    port_unpin(engine);
    port_started(engine, f, initial, &hash);
    rounds_read_end(engine, f);
}

void rounds_start(struct engine *engine, uint32_t f, float *base, bool initial)
{
    struct round_job *r = rounds_job(engine, f, 0, 0);
    if (r == NULL)
        return;
    r->area = base;
    r->included = initial;
    port_pin(engine);
    rounds_read_begin(engine, f);
    rounds_submit(engine, r, run_start, done_start);
}
