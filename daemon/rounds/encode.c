#include "daemon/rounds/encode.h"

#include <inttypes.h>

#include "common/env.h"
#include "common/mem.h"

enum { FEEDBACK_SAID_MS = 3600 * 1000 };

struct encode_fragment {
    uint32_t parts_left; /* jobs of the encoding under way */
    enum err err;        /* of the first that failed */
};

struct encode {
    struct desk *desk;
    struct encode_fragment *fragments;
    struct job_pool jobs;
    struct log_limit feedback_said;
};

/* One shard. */
struct encode_job {
    struct job job;
    struct encode *encode;
    uint32_t f, shard;
    uint64_t version;
    struct slot *slot;
    const float *base, *theta;
    struct wire_meta meta;
    bool compress;
    double seconds;
};

enum err encode_new(struct desk *desk, struct encode **out)
{
    TRY(mem_new(1, sizeof **out, "rounds", out));
    (*out)->desk = desk;
    (*out)->jobs.job_bytes = sizeof(struct encode_job);
    return mem_new(desk_fragments(desk), sizeof *(*out)->fragments, "rounds", &(*out)->fragments);
}

void encode_free(struct encode *encode)
{
    if (encode == NULL)
        return;
    job_pool_deinit(&encode->jobs);
    mem_free(encode->fragments);
    mem_free(encode);
}

static enum err run_encode(struct job *job, struct jobs_scratch *scratch)
{
    struct encode_job *j = (struct encode_job *)(void *)job;
    const struct desk *desk = j->encode->desk;
    size_t frame_bytes;
    double begin_s = env_mono_s();
    TRY(desk_set_compression(desk, j->compress, scratch->codec));
    TRY(replica_encode(desk->conf.replica, j->f, j->shard, j->base, j->theta, j->meta.tokens, scratch->codec,
                       wire_object_frame(j->slot->data), &frame_bytes));
    j->seconds = env_mono_s() - begin_s;
    const struct wire_object what = desk_object(desk, WIRE_CONTRIBUTION, j->f, j->version, j->shard);
    struct digest digest;
    return wire_object_seal(&what, &j->meta, NULL, j->slot->data, frame_bytes, &j->slot->bytes, &digest);
}

static void part_ended(struct encode *encode, uint32_t f)
{
    struct encode_fragment *fragment = &encode->fragments[f];
    if (--fragment->parts_left == 0)
        event_post(encode->desk->conf.events,
                   &(struct event){.type = EVENT_ENCODED, .fragment = f, .err = fragment->err});
}

static void tell_feedback(struct encode *encode, uint32_t f)
{
    struct desk *desk = encode->desk;
    uint64_t cuts = replica_feedback_cuts(desk->conf.replica, f);
    if (cuts > 0 && log_limit_pass(&encode->feedback_said, desk->now_ms, FEEDBACK_SAID_MS))
        log_info("fragment %" PRIu32 ": the residual has reached %g of the outer gradient and is cut down to that; a "
                 "finer codec would lose less",
                 f, desk->conf.spec->feedback_limit);
}

static void done_encode(struct job *job)
{
    struct encode_job *j = (struct encode_job *)(void *)job;
    struct encode *encode = j->encode;
    struct desk *desk = encode->desk;
    uint32_t f = j->f;
    j->slot->busy = false;
    j->slot->version = j->version;
    if (job->err != ERR_OK) {
        log_error("%s", job->text);
        encode->fragments[f].err = job->err;
    } else {
        squeeze_note(&desk->squeeze, j->compress, desk_values(desk, f, j->shard), j->seconds, j->slot->bytes);
        tell_feedback(encode, f);
    }
    job_pool_give(&encode->jobs, j);
    part_ended(encode, f);
}

/* Of the tokens of a snapshot those that results count already: of a share, as its shards say in the mean. */
static uint64_t counted_tokens(const struct desk *desk, uint32_t f, uint32_t member,
                               const struct replica_snapshot *snapshot)
{
    const struct plan *plan = desk->conf.plan->plan;
    double sum = 0;
    for (uint32_t s = 0; s < plan->fragments[f].shards_count; s++) {
        struct plan_shard shard = plan_shard(plan, f, s);
        if (replica_owner(desk->conf.replica, f, s) == member)
            sum += (double)snapshot->counted_tokens[s] * (double)(shard.end - shard.begin);
    }
    return (uint64_t)(sum / (double)desk_values(desk, f, member) + 0.5);
}

static bool submit(struct encode *encode, uint32_t f, uint32_t shard, uint64_t version,
                   const struct replica_snapshot *snapshot)
{
    struct desk *desk = encode->desk;
    struct slot *slot = slots_out(desk->conf.slots, f, shard);
    struct encode_job *j = desk_room(desk, slot, f, shard) ? desk_job(desk, &encode->jobs) : NULL;
    if (j == NULL)
        return false;
    uint64_t counted = counted_tokens(desk, f, shard, snapshot);
    j->encode = encode;
    j->f = f;
    j->shard = shard;
    j->version = version;
    j->slot = slot;
    j->base = snapshot->base;
    j->theta = snapshot->theta;
    /* A shard that is sent again with nothing new in it weighs as little as possible, not nothing. */
    j->meta.tokens = snapshot->tokens > counted ? snapshot->tokens - counted : 1;
    j->meta.step = snapshot->step;
    j->meta.base_hash = desk->fragments[f].state.hash;
    j->compress = desk_compress(desk, true);
    slot->busy = true;
    desk_submit(desk, &j->job, run_encode, done_encode);
    return true;
}

void encode_begin(struct encode *encode, uint32_t f, uint64_t version, const struct replica_snapshot *snapshot)
{
    struct desk *desk = encode->desk;
    struct encode_fragment *fragment = &encode->fragments[f];
    *fragment = (struct encode_fragment){.parts_left = 1}; /* holds the end back until all are submitted */
    desk->fragments[f].encoded_version = version;
    for (uint32_t s = 0; fragment->err == ERR_OK && s < desk->conf.view->count; s++) {
        if (desk_values(desk, f, s) == 0)
            continue;
        if (submit(encode, f, s, version, snapshot))
            fragment->parts_left++;
        else
            fragment->err = ERR_NOMEM;
    }
    part_ended(encode, f);
}
