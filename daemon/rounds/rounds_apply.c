/* What a version's results do to the anchor: one job per shard, then the hash. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "daemon/rounds/rounds.h"

static uint64_t bit(uint32_t i)
{
    return (uint64_t)1 << i;
}

static uint32_t self_of(const struct engine *engine)
{
    return engine->view.self;
}

/* ---- the numbers of an outer step ---- */

struct outer_round rounds_outer(const struct engine *engine, uint64_t version, const struct wire_meta *meta)
{
    float number[WIRE_OUTER_NUMBERS];
    if (!meta->outer_known)
        return rules_round(&engine->spec, 1, 0, version, 0, 0);
    memcpy(number, meta->outer, sizeof number);
    return (struct outer_round){.scale = number[0], .momentum = number[1], .lr = number[2]};
}

struct outer_round rounds_penalised(const struct engine *engine, uint32_t f, struct outer_round round)
{
    const struct engine_fragment *fragment = &engine->fragments[f];
    double delta = 0, momentum = 0;
    if (!engine->spec.staleness_penalty)
        return round;
    for (uint32_t s = 0; s < engine->view.count; s++) {
        delta += fragment->sizes[s].delta;
        momentum += fragment->sizes[s].momentum;
    }
    return outer_round_penalised(round, (double)round.lr * sqrt(momentum), sqrt(delta));
}

enum err rounds_check_outer(const struct engine *engine, uint64_t version, const struct wire_meta *meta)
{
    struct outer_round round = rounds_outer(engine, version, meta);
    bool good = round.scale > 0 && round.scale <= 1e6f && round.momentum >= 0 && round.momentum < 1 && round.lr >= 0 &&
                round.lr <= 1e6f;
    return good ? ERR_OK : err_set(ERR_PROTO, "its outer step has numbers that make no sense");
}

/* ---- apply: one job per shard, then the hash ---- */

/* CO2's penalty wants the norms over all shards before the first is applied. */
static enum err run_measure(struct job *job, struct jobs_scratch *scratch)
{
    struct round_job *r = (struct round_job *)(void *)job;
    struct ledger_map map = {0};
    const uint8_t *frame;
    size_t frame_bytes;
    TRY(ledger_map(r->engine->ledger, r->f, r->version, r->shard, &map));
    enum err err = wire_object_open(WIRE_RESULT, map.object, map.bytes, &r->meta, &frame, &frame_bytes);
    if (err == ERR_OK)
        err = replica_measure(r->engine->replica, r->f, r->shard, frame, frame_bytes, scratch->codec, scratch->values,
                              &r->engine->fragments[r->f].sizes[r->shard]);
    ledger_unmap(&map);
    return err;
}

static enum err run_apply(struct job *job, struct jobs_scratch *scratch)
{
    struct round_job *r = (struct round_job *)(void *)job;
    struct engine *engine = r->engine;
    struct ledger_map map = {0};
    const uint8_t *frame;
    size_t frame_bytes;
    TRY(ledger_map(engine->ledger, r->f, r->version, r->shard, &map));
    enum err err = wire_object_open(WIRE_RESULT, map.object, map.bytes, &r->meta, &frame, &frame_bytes);
    if (err == ERR_OK) {
        for (uint32_t i = 0; i < r->meta.contributors_count; i++)
            r->included |= r->meta.contributors[i].island == self_of(engine);
        enum replica_residual_rule rule = !r->included ? REPLICA_KEEP : r->own_encoding ? REPLICA_MOVE : REPLICA_CLEAR;
        struct outer_round round = rounds_penalised(engine, r->f, rounds_outer(engine, r->version, &r->meta));
        err = replica_apply(engine->replica, r->f, r->shard, &round, frame, frame_bytes, rule, scratch->codec,
                            scratch->values);
    }
    ledger_unmap(&map);
    return err;
}

static enum err run_hash(struct job *job, struct jobs_scratch *scratch)
{
    struct round_job *r = (struct round_job *)(void *)job;
    (void)scratch;
    return replica_hash(r->engine->replica, r->f, r->version, &r->hash);
}

static void done_hash(struct job *job, void *user)
{
    struct engine *engine = user;
    struct round_job *r = (struct round_job *)(void *)job;
    struct engine_fragment *fragment = &engine->fragments[r->f];
    struct sync_event event = {.type = SYNC_EV_APPLIED, .fragment = r->f, .hash = r->hash};
    char hex[DIGEST_HEX_BYTES];
    fragment->state.version = r->version;
    fragment->state.hash = r->hash;
    log_debug("fragment %" PRIu32 " version %" PRIu64 " hash %s", r->f, r->version, digest_hex(&r->hash, hex));
    port_counted(engine, r->f, fragment->apply_included);
    rounds_recycle(engine, r);
    engine_event(engine, &event);
}

static void apply_ended(struct engine *engine, uint32_t f, uint64_t version)
{
    struct round_job *r = rounds_job(engine, f, 0, version);
    if (r != NULL)
        rounds_submit(engine, r, run_hash, done_hash);
}

static void done_apply(struct job *job, void *user)
{
    struct engine *engine = user;
    struct round_job *r = (struct round_job *)(void *)job;
    struct engine_fragment *fragment = &engine->fragments[r->f];
    uint32_t f = r->f;
    uint64_t version = r->version;
    /* A result in our own ledger that cannot be applied leaves the shard behind: its hash will differ, and the
     * comparison with the others mends it. */
    if (job->err != ERR_OK)
        log_error("fragment %" PRIu32 ", version %" PRIu64 ", shard %" PRIu32 " cannot be applied: %s", f, version,
                  r->shard, job->text);
    if (r->included)
        fragment->apply_included |= bit(r->shard);
    if (r->meta.step > fragment->state.step)
        fragment->state.step = r->meta.step;
    rounds_recycle(engine, r);
    if (--fragment->parts_left == 0)
        apply_ended(engine, f, version);
}

static void apply_shards(struct engine *engine, uint32_t f, uint64_t version)
{
    struct engine_fragment *fragment = &engine->fragments[f];
    fragment->parts_left = 1;
    for (uint32_t s = 0; s < engine->view.count; s++) {
        if (rounds_shard_values(engine, f, s) == 0)
            continue;
        struct round_job *r = rounds_job(engine, f, s, version);
        if (r == NULL)
            continue; /* as a result that cannot be applied */
        r->own_encoding = fragment->encoded_version == version;
        fragment->parts_left++;
        rounds_submit(engine, r, run_apply, done_apply);
    }
    if (--fragment->parts_left == 0)
        apply_ended(engine, f, version);
}

static void done_measure(struct job *job, void *user)
{
    struct engine *engine = user;
    struct round_job *r = (struct round_job *)(void *)job;
    uint32_t f = r->f;
    uint64_t version = r->version;
    rounds_recycle(engine, r); /* one that failed fails again when it is applied, and is reported then */
    if (--engine->fragments[f].parts_left == 0)
        apply_shards(engine, f, version);
}

static void measure_shards(struct engine *engine, uint32_t f, uint64_t version)
{
    struct engine_fragment *fragment = &engine->fragments[f];
    fragment->parts_left = 1;
    for (uint32_t s = 0; s < engine->view.count; s++) {
        fragment->sizes[s] = (struct replica_size){0};
        struct round_job *r = rounds_shard_values(engine, f, s) > 0 ? rounds_job(engine, f, s, version) : NULL;
        if (r == NULL)
            continue;
        fragment->parts_left++;
        rounds_submit(engine, r, run_measure, done_measure);
    }
    if (--fragment->parts_left == 0)
        apply_shards(engine, f, version);
}

void rounds_apply(struct engine *engine, uint32_t f, uint64_t version)
{
    struct engine_fragment *fragment = &engine->fragments[f];
    if (fragment->readers > 0) {
        fragment->apply_waits = version;
        return;
    }
    fragment->apply_waits = 0;
    fragment->apply_included = 0;
    if (engine->spec.staleness_penalty)
        measure_shards(engine, f, version);
    else
        apply_shards(engine, f, version);
}

uint64_t rounds_included(struct engine *engine, uint32_t f, uint64_t version)
{
    uint64_t mask = 0;
    for (uint32_t s = 0; s < engine->view.count; s++) {
        struct ledger_map map = {0};
        struct wire_meta meta;
        const uint8_t *frame;
        size_t frame_bytes;
        if (rounds_shard_values(engine, f, s) == 0)
            continue;
        /* Not known any more: to count it twice would be worse than to give it up. */
        if (ledger_map(engine->ledger, f, version, s, &map) != ERR_OK) {
            mask |= bit(s);
            continue;
        }
        if (wire_object_open(WIRE_RESULT, map.object, map.bytes, &meta, &frame, &frame_bytes) == ERR_OK)
            for (uint32_t i = 0; i < meta.contributors_count; i++)
                if (meta.contributors[i].island == self_of(engine))
                    mask |= bit(s);
        ledger_unmap(&map);
    }
    return mask;
}
