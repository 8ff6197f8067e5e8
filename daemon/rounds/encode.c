/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/rounds/encode.h"

#include <inttypes.h>

#include "common/env.h"
#include "common/mem.h"

enum { FAILURE_SAID_MS = 30000, FEEDBACK_SAID_MS = 3600 * 1000 };

struct encode_fragment {
    uint32_t parts_left; /* jobs of the encoding under way */
    enum err err;        /* of the first that failed */
    /* what is ordered and waits for jobs that are under way; 0: nothing */
    uint64_t waits;
    struct replica_snapshot snapshot;
};

struct encode {
    struct round_context *context;
    struct encode_fragment *fragments;
    struct job_pool jobs;
    struct log_limit feedback_said, failure_said;
};

/* One part. */
struct encode_job {
    struct job job;
    struct encode *encode;
    uint32_t f;
    struct version_part part;
    struct digest digest; /* out: of the contribution */
    uint64_t version;
    struct slot *slot;
    const float *base, *theta;
    struct wire_meta meta;
    uint8_t spans[WIRE_SHARDS_MAX * WIRE_SPAN_BYTES]; /* of `meta` */
    uint64_t tokens;                                  /* behind it, on average of its shards */
    bool compress;
    double seconds;
    struct replica_encoding encoding;
};

enum err encode_new(struct round_context *context, struct encode **out)
{
    TRY(mem_new(1, sizeof **out, "rounds", out));
    (*out)->context = context;
    (*out)->jobs.job_bytes = sizeof(struct encode_job);
    return mem_new(round_context_fragments(context), sizeof *(*out)->fragments, "rounds", &(*out)->fragments);
}

void encode_free(struct encode *encode)
{
    if (encode == NULL)
        return;
    job_pool_deinit(&encode->jobs);
    mem_free(encode->fragments);
    mem_free(encode);
}

/* On whichever thread. */
static enum err encode_piece(void *user, size_t i, struct jobs_scratch *scratch)
{
    struct encode_job *j = user;
    TRY(round_context_set_compression(j->encode->context, j->compress, scratch->codec));
    return replica_encode_piece(&j->encoding, i, scratch->codec);
}

static enum err encode_shared(struct encode_job *j, struct jobs_scratch *scratch, size_t *frame_bytes)
{
    struct replica_encoding *e = &j->encoding;
    enum err err = round_context_set_compression(j->encode->context, j->compress, scratch->codec);
    replica_encode_begin(j->encode->context->conf.replica, j->f, j->part.shards, j->base, j->theta, scratch->codec,
                         wire_object_frame(j->slot->data), e);
    for (replica_encode_next(e); err == ERR_OK && e->pieces > 0;) {
        err = jobs_share(scratch, e->pieces, encode_piece, j);
        if (err == ERR_OK)
            replica_encode_next(e);
    }
    return replica_encode_end(e, err, j->tokens, frame_bytes);
}

static enum err run_encode(struct job *job, struct jobs_scratch *scratch)
{
    struct encode_job *j = (struct encode_job *)(void *)job;
    const struct round_context *context = j->encode->context;
    size_t frame_bytes;
    double begin_s = env_mono_s();
    TRY(encode_shared(j, scratch, &frame_bytes));
    j->seconds = env_mono_s() - begin_s;
    const struct wire_object what = round_context_object(context, WIRE_CONTRIBUTION, &j->part);
    return wire_object_seal(&what, &j->meta, NULL, j->slot->data, frame_bytes, &j->slot->bytes, &j->digest);
}

/* An encoding that another order overtook says nothing: the snapshot is still read. */
static void part_ended(struct encode *encode, uint32_t f)
{
    struct encode_fragment *fragment = &encode->fragments[f];
    if (--fragment->parts_left == 0 && fragment->waits == 0)
        event_post(encode->context->conf.events,
                   &(struct event){.type = EVENT_ENCODED, .fragment = f, .err = fragment->err});
}

/* What stands for these shards until it is known better: the pending residual is overwritten. */
static void note_sent(struct round_context *context, uint32_t f, uint64_t shards, const struct round_context_sent *sent)
{
    for (uint32_t s = 0; s < PLAN_SHARDS_MAX; s++)
        if ((shards >> s & 1) != 0)
            context->fragments[f].sent[s] = *sent;
}

static void tell_feedback(struct encode *encode, uint32_t f)
{
    struct round_context *context = encode->context;
    uint64_t cuts = replica_feedback_cuts(context->conf.replica, f);
    if (cuts > 0 && log_limit_pass(&encode->feedback_said, context->now_ms, FEEDBACK_SAID_MS))
        log_info("fragment %" PRIu32 ": the residual has reached %g of the outer gradient and is cut down to that; a "
                 "finer codec would lose less",
                 f, context->conf.spec->feedback_limit);
}

/* A trainer whose values are NaN fails in every fragment of every round; status counts them all. */
static void tell_failure(struct encode *encode, const char *text)
{
    uint64_t more = encode->failure_said.suppressed;
    if (!log_limit_pass(&encode->failure_said, encode->context->now_ms, FAILURE_SAID_MS))
        return;
    if (more > 0)
        log_error("%s (and %" PRIu64 " more times since that was last said)", text, more);
    else
        log_error("%s", text);
}

static void done_encode(struct job *job)
{
    struct encode_job *j = (struct encode_job *)(void *)job;
    struct encode *encode = j->encode;
    struct round_context *context = encode->context;
    uint32_t f = j->f;
    j->slot->busy = false;
    j->slot->version = j->version;
    j->slot->epoch = j->part.id.epoch;
    if (job->err != ERR_OK) {
        tell_failure(encode, job->text);
        encode->fragments[f].err = job->err;
    } else {
        const struct round_context_sent sent = {.version = j->version, .digest = j->digest};
        note_sent(context, f, j->part.shards, &sent);
        zstd_choice_note(&context->zstd_choice, j->compress, round_context_values(context, f, j->part.shards),
                         j->seconds, j->slot->bytes);
        tell_feedback(encode, f);
    }
    job_pool_give(&encode->jobs, j);
    part_ended(encode, f);
    round_context_use_end(context, f);
}

/* Of each shard of a part: of a snapshot's tokens, those that no result counts. Shards of one part need not have been
 * counted alike: in the epoch before, they were others'. What is sent again with nothing new in it weighs as little as
 * possible, not nothing. */
static void say_tokens(struct encode_job *j, const struct replica_snapshot *snapshot)
{
    const struct round_context *context = j->encode->context;
    uint64_t tokens[WIRE_SHARDS_MAX] = {0}, shards = j->part.shards;
    _Static_assert((int)WIRE_SHARDS_MAX == (int)PLAN_SHARDS_MAX, "a mask has a bit for each shard");
    for (uint32_t s = 0; s < PLAN_SHARDS_MAX; s++) {
        uint64_t counted = snapshot->counted_tokens[s];
        if ((shards >> s & 1) == 0)
            continue;
        tokens[s] = snapshot->tokens > counted ? snapshot->tokens - counted : 1;
        j->meta.tokens = tokens[s];
    }
    j->meta.spans_count = wire_spans_put(j->spans, 0, WIRE_SHARDS_MAX, round_context_id(context), shards, tokens, NULL);
    j->meta.spans = j->spans;
    j->meta.tokens = j->meta.spans_count > 0 ? 0 : j->meta.tokens;
    j->tokens = round_context_tokens(context, j->f, shards, round_context_id(context), &j->meta, tokens);
}

static bool submit(struct encode *encode, uint32_t f, uint32_t p, const struct version_part *part, uint64_t version,
                   const struct replica_snapshot *snapshot)
{
    struct round_context *context = encode->context;
    struct slot *slot = slots_out(context->conf.slots, f, p);
    struct encode_job *j =
        round_context_room(context, slot, f, part->shards) ? round_context_job(context, &encode->jobs) : NULL;
    if (j == NULL)
        return false;
    j->encode = encode;
    j->f = f;
    j->part = *part;
    j->version = version;
    j->slot = slot;
    j->base = snapshot->base;
    j->theta = snapshot->theta;
    say_tokens(j, snapshot);
    j->meta.step = snapshot->step;
    j->meta.base_hash = context->fragments[f].state.hash;
    j->compress = round_context_compress(context, true);
    slot->busy = true;
    note_sent(context, f, part->shards, &(struct round_context_sent){0});
    round_context_use_begin(context, f);
    round_context_submit(context, &j->job, JOBS_ENCODE, run_encode, done_encode);
    return true;
}

/* A carried part is not encoded: its contributions are counted or given up, and what is pending for it stays. Where a
 * process before this one sent ours, the snapshot is on its way there all the same: whoever counts it counts that. */
static void note_carried(struct round_context *context, uint32_t f, uint64_t version, uint64_t shards)
{
    for (uint32_t s = 0; s < PLAN_SHARDS_MAX; s++)
        if ((shards >> s & 1) != 0 && context->fragments[f].sent[s].version != version)
            context->fragments[f].sent[s] = (struct round_context_sent){.version = version};
}

static void begin(struct encode *encode, uint32_t f, uint64_t version, const struct replica_snapshot *snapshot)
{
    struct version_part parts[VERSION_PARTS_MAX];
    struct encode_fragment *fragment = &encode->fragments[f];
    uint32_t count = round_context_parts(encode->context, f, version, parts);
    fragment->parts_left = 1; /* holds the end back until all are submitted */
    fragment->err = ERR_OK;
    for (uint32_t p = 0; fragment->err == ERR_OK && p < count; p++) {
        if (parts[p].carried)
            note_carried(encode->context, f, version, parts[p].shards);
        else if (submit(encode, f, p, &parts[p], version, snapshot))
            fragment->parts_left++;
        else
            fragment->err = ERR_NOMEM;
    }
    part_ended(encode, f);
}

void encode_begin(struct encode *encode, uint32_t f, uint64_t version, const struct replica_snapshot *snapshot)
{
    encode->fragments[f].waits = version;
    encode->fragments[f].snapshot = *snapshot;
    encode_unread(encode, f);
}

void encode_unread(struct encode *encode, uint32_t f)
{
    struct encode_fragment *fragment = &encode->fragments[f];
    uint64_t version = fragment->waits;
    if (version == 0 || round_context_used(encode->context, f) || !round_context_cut(encode->context, f, version))
        return;
    fragment->waits = 0;
    begin(encode, f, version, &fragment->snapshot);
}
