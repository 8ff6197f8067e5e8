/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/rounds/round_context.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/fsio.h"
#include "common/mem.h"
#include "daemon/state/results.h"

enum { DISK_SAID_MS = 10000 };
/* REFUSED: a moment's lack of room costs nobody an epoch. PROBE: so often it is tried whether there is room again. */
enum { REFUSED_MS = 1000, PROBE_MS = 2000 };

struct probe_job {
    struct job job;
    struct round_context *context;
    size_t bytes;
};

enum err round_context_init(struct round_context *context, const struct rounds_conf *conf)
{
    *context = (struct round_context){.conf = *conf,
                                      .id = conf->view->members[conf->view->self].as.id,
                                      .steps_most = runspec_length(conf->spec),
                                      .probes = {.job_bytes = sizeof(struct probe_job)}};
    TRY(standing_init(&context->standing, conf->plan->plan));
    return mem_new(round_context_fragments(context), sizeof *context->fragments, "rounds", &context->fragments);
}

void round_context_deinit(struct round_context *context)
{
    job_pool_deinit(&context->probes);
    standing_deinit(&context->standing);
    mem_free(context->fragments);
}

void round_context_begin(struct round_context *context, uint32_t f, const struct digest *hash)
{
    context->fragments[f].state = (struct store_fragment){.hash = *hash};
}

void round_context_counted(struct round_context *context, uint32_t f, bool tell)
{
    standing_turned(&context->standing, context->conf.view, f, replica_counted(context->conf.replica, f),
                    context->now_ms, tell);
}

uint32_t round_context_self(const struct round_context *context)
{
    return context->conf.view->self;
}

uint32_t round_context_id(const struct round_context *context)
{
    return context->id;
}

uint32_t round_context_fragments(const struct round_context *context)
{
    return context->conf.plan->plan->fragments_count;
}

const char *round_context_name(const struct round_context *context, uint32_t member)
{
    return context->conf.view->members[member].as.name;
}

uint64_t round_context_values(const struct round_context *context, uint32_t f, uint64_t shards)
{
    return replica_values(context->conf.replica, f, shards);
}

double round_context_average(const struct round_context *context, uint32_t f, uint64_t shards,
                             const double by_shard[PLAN_SHARDS_MAX])
{
    const struct plan *plan = context->conf.plan->plan;
    double sum = 0;
    for (uint32_t s = 0; s < plan->fragments[f].shards_count; s++) {
        struct plan_shard shard = plan_shard(plan, f, s);
        if ((shards >> s & 1) != 0)
            sum += by_shard[s] * (double)(shard.end - shard.begin);
    }
    return sum / (double)round_context_values(context, f, shards);
}

uint64_t round_context_tokens(const struct round_context *context, uint32_t f, uint64_t shards, uint32_t id,
                              const struct wire_meta *meta, uint64_t by_shard[PLAN_SHARDS_MAX])
{
    double tokens[PLAN_SHARDS_MAX];
    struct wire_span span;
    for (uint32_t s = 0; s < PLAN_SHARDS_MAX; s++) {
        by_shard[s] = wire_meta_span(meta, id, s, &span) ? span.tokens : meta->tokens;
        tokens[s] = (double)by_shard[s];
    }
    return meta->spans_count > 0 ? (uint64_t)(round_context_average(context, f, shards, tokens) + 0.5) : meta->tokens;
}

/* ---- parts ---- */

uint32_t round_context_parts(const struct round_context *context, uint32_t f, uint64_t version,
                             struct version_part parts[VERSION_PARTS_MAX])
{
    return parts_of(context->conf.parts, f, version, parts);
}

uint32_t round_context_part(const struct round_context *context, const struct wire_key *key, struct version_part *part)
{
    return parts_find(context->conf.parts, key->fragment, key->version, key->epoch, key->owner, part);
}

uint32_t round_context_own_part(const struct round_context *context, uint32_t f, uint64_t version,
                                struct version_part *part)
{
    struct version_part parts[VERSION_PARTS_MAX];
    uint32_t count = round_context_parts(context, f, version, parts);
    for (uint32_t p = 0; p < count; p++)
        if (parts[p].id.owner == round_context_id(context) && parts[p].id.epoch == context->conf.view->epoch &&
            !parts[p].carried) {
            *part = parts[p];
            return p;
        }
    return VERSION_PARTS_MAX;
}

bool round_context_cut(struct round_context *context, uint32_t f, uint64_t version)
{
    struct version_part parts[VERSION_PARTS_MAX];
    uint64_t masks[VERSION_PARTS_MAX], own = 0;
    uint32_t count = round_context_parts(context, f, version, parts), masks_count = 0;
    if (count == 0) /* it waited, and an epoch came that begins beyond it: there is nothing to do, so nothing to cut */
        return true;
    for (uint32_t p = 0; p < count; p++) {
        if (parts[p].carried)
            continue;
        masks[masks_count++] = parts[p].shards;
        own |= parts[p].id.owner == round_context_id(context) && parts[p].id.epoch == context->conf.view->epoch
                   ? parts[p].shards
                   : 0;
    }
    if (replica_cut_is(context->conf.replica, f, masks, masks_count, own))
        return true;
    if (round_context_used(context, f) || context->fragments[f].readers > 0)
        return false;
    if (replica_cut(context->conf.replica, f, masks, masks_count, own) == ERR_OK)
        return true;
    event_post_fatal(context->conf.events, err_text());
    return false;
}

void round_context_use_begin(struct round_context *context, uint32_t f)
{
    context->fragments[f].users++;
}

void round_context_use_end(struct round_context *context, uint32_t f)
{
    struct round_context_fragment *fragment = &context->fragments[f];
    if (--fragment->users > 0 || !fragment->users_wanted)
        return;
    fragment->users_wanted = false;
    event_post(context->conf.events, &(struct event){.type = EVENT_UNREAD, .fragment = f});
}

bool round_context_used(struct round_context *context, uint32_t f)
{
    context->fragments[f].users_wanted = context->fragments[f].users > 0;
    return context->fragments[f].users_wanted;
}

uint64_t round_context_in_flight(const struct round_context *context, uint32_t f, uint64_t version)
{
    uint64_t shards = 0;
    for (uint32_t s = 0; s < PLAN_SHARDS_MAX; s++)
        if (context->fragments[f].sent[s].version > version)
            shards |= (uint64_t)1 << s;
    return shards;
}

/* ---- readers ---- */

void round_context_read_begin(struct round_context *context, uint32_t f)
{
    context->fragments[f].readers++;
}

void round_context_read_end(struct round_context *context, uint32_t f)
{
    if (--context->fragments[f].readers == 0)
        event_post(context->conf.events, &(struct event){.type = EVENT_UNREAD, .fragment = f});
}

/* ---- hashes ---- */

static enum err hash_piece(void *hashing, size_t i, struct jobs_scratch *scratch)
{
    (void)scratch;
    replica_hash_piece(hashing, i);
    return ERR_OK;
}

enum err round_context_hash(const struct round_context *context, uint32_t f, uint64_t version, uint64_t step,
                            struct jobs_scratch *scratch, struct digest *hash)
{
    struct replica_hashing hashing;
    enum err err = replica_hash_begin(context->conf.replica, f, &hashing);
    if (err == ERR_OK)
        err = jobs_share(scratch, hashing.pieces, hash_piece, &hashing);
    if (err == ERR_OK)
        *hash = replica_hash_end(&hashing, version, step);
    replica_hash_deinit(&hashing);
    return err;
}

/* ---- the disk ---- */

void round_context_disk_failed(struct round_context *context, const char *text)
{
    snprintf(context->disk_note, sizeof context->disk_note, "%s", text);
    if (log_limit_pass(&context->disk_said, context->now_ms, DISK_SAID_MS))
        log_error("%s", text);
}

void round_context_disk_works(struct round_context *context)
{
    /* Of what was refused a probe says so: meanwhile what is small may be kept. */
    if (context->disk_note[0] != '\0' && context->refused_since_ms == 0)
        log_info("the disk can be written again");
    context->disk_note[0] = '\0';
}

void round_context_round_refused(struct round_context *context, size_t bytes, const char *text)
{
    if (context->refused_since_ms == 0) {
        context->refused_since_ms = context->now_ms;
        context->probe_ms = context->now_ms + PROBE_MS;
        context->refused_bytes = 0;
    }
    context->refused_bytes = bytes > context->refused_bytes ? bytes : context->refused_bytes;
    round_context_disk_failed(context, text);
}

/* Whole pages, so that no file system keeps it in a corner. */
static enum err run_probe(struct job *job, struct jobs_scratch *scratch)
{
    enum { PAGE = 4096 };
    static const char page[PAGE];
    const struct probe_job *j = (const struct probe_job *)(const void *)job;
    struct fsio_writer writer;
    char *path;
    (void)scratch;
    TRY(mem_printf(&path, "%s/probe", j->context->conf.folder));
    enum err err = fsio_begin(&writer, path, 0600);
    if (err == ERR_OK) {
        for (size_t at = 0; err == ERR_OK && at < j->bytes + PAGE; at += PAGE)
            err = fsio_write(&writer, page, PAGE);
        if (err == ERR_OK)
            err = fsio_commit(&writer);
        else
            fsio_abort(&writer);
        unlink(path);
    }
    mem_free(path);
    return err;
}

static void done_probe(struct job *job)
{
    struct probe_job *j = (struct probe_job *)(void *)job;
    struct round_context *context = j->context;
    context->probing = false;
    context->probe_ms = context->now_ms + PROBE_MS;
    if (job->err == ERR_OK) {
        context->refused_since_ms = 0;
        context->disk_note[0] = '\0';
        log_info("the disk can be written again");
    } else {
        round_context_disk_failed(context, job->text);
    }
    job_pool_give(&context->probes, j);
}

void round_context_probe(struct round_context *context)
{
    if (context->refused_since_ms == 0 || context->probing || context->now_ms < context->probe_ms)
        return;
    struct probe_job *j = round_context_job(context, &context->probes);
    if (j == NULL)
        return;
    j->context = context;
    j->bytes = context->refused_bytes;
    context->probing = true;
    round_context_submit(context, &j->job, JOBS_SAVE, run_probe, done_probe);
}

bool round_context_refuses(const struct round_context *context)
{
    return context->refused_since_ms != 0 && context->now_ms >= context->refused_since_ms + REFUSED_MS;
}

/* ---- jobs ---- */

void *round_context_job(struct round_context *context, struct job_pool *pool)
{
    void *job = job_pool_take(pool);
    if (job == NULL)
        event_post_fatal(context->conf.events, err_text());
    return job;
}

bool round_context_room(struct round_context *context, struct slot *slot, uint32_t f, uint64_t shards)
{
    if (slots_room(context->conf.slots, slot, f, shards) == ERR_OK)
        return true;
    event_post_fatal(context->conf.events, err_text());
    return false;
}

void round_context_submit(struct round_context *context, struct job *job, enum jobs_work work, job_run *run,
                          job_done *done)
{
    job->work = work;
    job->run = run;
    job->done = done;
    jobs_submit(context->conf.jobs, job);
}

/* ---- compression ---- */

bool round_context_compress(struct round_context *context, bool measured)
{
    double bits_per_s = (double)context->uplink_bits;
    bool worth = true;
    if (context->conf.compress_auto)
        worth = measured ? zstd_choice_next(&context->zstd_choice, bits_per_s)
                         : zstd_choice_best(&context->zstd_choice, bits_per_s);
    return context->conf.spec->zstd_level > 0 && worth;
}

enum err round_context_set_compression(const struct round_context *context, bool compress, struct codec *codec)
{
    return codec_set_zstd(codec, compress ? (int)context->conf.spec->zstd_level : 0);
}

/* ---- objects ---- */

enum err round_context_check_step(const struct round_context *context, const struct wire_meta *meta)
{
    uint64_t most = atomic_load(&context->steps_most);
    if (meta->step > most)
        return err_set(ERR_PROTO, "step %" PRIu64 " of a run of %" PRIu64, meta->step, most);
    return ERR_OK;
}

struct wire_object round_context_object(const struct round_context *context, enum wire_kind kind,
                                        const struct version_part *part)
{
    struct wire_object what = {.shards = part->shards};
    what.key = (struct wire_key){.kind = kind,
                                 .fragment = part->id.fragment,
                                 .version = part->id.version,
                                 .epoch = part->id.epoch,
                                 .owner = part->id.owner,
                                 .island = round_context_id(context)};
    memcpy(what.nonce, context->conf.nonce, sizeof what.nonce);
    return what;
}

enum err round_context_check_object(const struct round_context *context, const struct wire_object *what,
                                    const struct wire_key *key, uint64_t shards)
{
    TRY(wire_object_is(what, key, context->conf.nonce));
    if (what->shards != shards)
        return err_set(ERR_PROTO, "it holds other shards than its owner has");
    return ERR_OK;
}

void round_context_judged(struct round_context *context, uint32_t peer, const struct wire_key *key, enum wire_done done)
{
    event_post(context->conf.events,
               &(struct event){.type = EVENT_JUDGED, .member = peer, .object = {.key = *key, .done = done}});
}

void round_context_post(struct round_context *context, const struct sync_event *event)
{
    event_post_sync(context->conf.events, event);
}

struct result_id round_context_result(const struct round_context *context, const struct version_part *part)
{
    const struct sync *sync = context->conf.sync;
    struct result_id id = part->id;
    const struct version_part *parts;
    bool acknowledged;
    uint32_t count = sync_own(sync, id.fragment).version + 1 == id.version ? sync_parts(sync, id.fragment, &parts) : 0;
    for (uint32_t p = 0; p < count; p++)
        if (result_id_same_part(&parts[p].id, &id) && sync_held(sync, id.fragment, p, &id.digest, &acknowledged))
            return id;
    return !part->carried && results_find(context->conf.ledger, &part->id, &id) ? id : part->id;
}

/* ---- whether zstd pays ---- */

enum { TRY_AGAIN = 32, VALUES_MIN = 4096 };

static double transfer_s(const struct zstd_choice_side *side, double bits_per_s)
{
    return side->seconds + 8 * side->bytes / bits_per_s;
}

bool zstd_choice_best(const struct zstd_choice *zstd_choice, double bits_per_s)
{
    /* On an unknown link, or before both were tried: fewer bytes are what one has a codec for. */
    if (bits_per_s <= 0 || zstd_choice->side[0].samples == 0 || zstd_choice->side[1].samples == 0)
        return true;
    return transfer_s(&zstd_choice->side[1], bits_per_s) <= transfer_s(&zstd_choice->side[0], bits_per_s);
}

bool zstd_choice_next(struct zstd_choice *zstd_choice, double bits_per_s)
{
    bool best = zstd_choice_best(zstd_choice, bits_per_s);
    zstd_choice->asked++;
    if (bits_per_s <= 0)
        return true;
    if (zstd_choice->side[1].samples == 0 || zstd_choice->side[0].samples == 0)
        return zstd_choice->side[1].samples <= zstd_choice->side[0].samples;
    return zstd_choice->asked % TRY_AGAIN == 0 ? !best : best;
}

void zstd_choice_note(struct zstd_choice *zstd_choice, bool with, uint64_t values, double seconds, uint64_t bytes)
{
    struct zstd_choice_side *side = &zstd_choice->side[with];
    if (values < VALUES_MIN)
        return; /* more about the clock than about the codec */
    double weight = side->samples == 0 ? 1 : 0.2;
    side->seconds += weight * (seconds / (double)values - side->seconds);
    side->bytes += weight * ((double)bytes / (double)values - side->bytes);
    side->samples++;
}
