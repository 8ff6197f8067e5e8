/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/rounds/desk.h"

#include <inttypes.h>
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
    struct desk *desk;
    size_t bytes;
};

enum err desk_init(struct desk *desk, const struct rounds_conf *conf)
{
    *desk = (struct desk){.conf = *conf,
                          .id = conf->view->members[conf->view->self].as.id,
                          .probes = {.job_bytes = sizeof(struct probe_job)}};
    return mem_new(desk_fragments(desk), sizeof *desk->fragments, "rounds", &desk->fragments);
}

void desk_deinit(struct desk *desk)
{
    job_pool_deinit(&desk->probes);
    standing_deinit(&desk->standing);
    mem_free(desk->fragments);
}

uint32_t desk_self(const struct desk *desk)
{
    return desk->conf.view->self;
}

uint32_t desk_id(const struct desk *desk)
{
    return desk->id;
}

uint32_t desk_fragments(const struct desk *desk)
{
    return desk->conf.plan->plan->fragments_count;
}

const char *desk_name(const struct desk *desk, uint32_t member)
{
    return desk->conf.view->members[member].as.name;
}

uint64_t desk_values(const struct desk *desk, uint32_t f, uint64_t shards)
{
    return replica_values(desk->conf.replica, f, shards);
}

double desk_average(const struct desk *desk, uint32_t f, uint64_t shards, const double by_shard[PLAN_SHARDS_MAX])
{
    const struct plan *plan = desk->conf.plan->plan;
    double sum = 0;
    for (uint32_t s = 0; s < plan->fragments[f].shards_count; s++) {
        struct plan_shard shard = plan_shard(plan, f, s);
        if ((shards >> s & 1) != 0)
            sum += by_shard[s] * (double)(shard.end - shard.begin);
    }
    return sum / (double)desk_values(desk, f, shards);
}

uint64_t desk_tokens(const struct desk *desk, uint32_t f, uint64_t shards, uint32_t id, const struct wire_meta *meta,
                     uint64_t by_shard[PLAN_SHARDS_MAX])
{
    double tokens[PLAN_SHARDS_MAX];
    struct wire_span span;
    for (uint32_t s = 0; s < PLAN_SHARDS_MAX; s++) {
        by_shard[s] = wire_meta_span(meta, id, s, &span) ? span.tokens : meta->tokens;
        tokens[s] = (double)by_shard[s];
    }
    return meta->spans_count > 0 ? (uint64_t)(desk_average(desk, f, shards, tokens) + 0.5) : meta->tokens;
}

/* ---- parts ---- */

uint32_t desk_parts(const struct desk *desk, uint32_t f, uint64_t version, struct chain_part parts[CHAIN_PARTS_MAX])
{
    return parts_of(desk->conf.parts, f, version, parts);
}

uint32_t desk_part(const struct desk *desk, const struct wire_key *key, struct chain_part *part)
{
    return parts_find(desk->conf.parts, key->fragment, key->version, key->epoch, key->owner, part);
}

uint32_t desk_own_part(const struct desk *desk, uint32_t f, uint64_t version, struct chain_part *part)
{
    struct chain_part parts[CHAIN_PARTS_MAX];
    uint32_t count = desk_parts(desk, f, version, parts);
    for (uint32_t p = 0; p < count; p++)
        if (parts[p].id.owner == desk_id(desk) && parts[p].id.epoch == desk->conf.view->epoch && !parts[p].carried) {
            *part = parts[p];
            return p;
        }
    return CHAIN_PARTS_MAX;
}

bool desk_cut(struct desk *desk, uint32_t f, uint64_t version)
{
    struct chain_part parts[CHAIN_PARTS_MAX];
    uint64_t masks[CHAIN_PARTS_MAX], own = 0;
    uint32_t count = desk_parts(desk, f, version, parts), masks_count = 0;
    if (count == 0) /* it waited, and an epoch came that begins beyond it: there is nothing to do, so nothing to cut */
        return true;
    for (uint32_t p = 0; p < count; p++) {
        if (parts[p].carried)
            continue;
        masks[masks_count++] = parts[p].shards;
        own |= parts[p].id.owner == desk_id(desk) && parts[p].id.epoch == desk->conf.view->epoch ? parts[p].shards : 0;
    }
    if (replica_cut_is(desk->conf.replica, f, masks, masks_count, own))
        return true;
    if (desk_used(desk, f) || desk->fragments[f].readers > 0)
        return false;
    if (replica_cut(desk->conf.replica, f, masks, masks_count, own) == ERR_OK)
        return true;
    event_post_fatal(desk->conf.events, err_text());
    return false;
}

void desk_use_begin(struct desk *desk, uint32_t f)
{
    desk->fragments[f].users++;
}

void desk_use_end(struct desk *desk, uint32_t f)
{
    struct desk_fragment *fragment = &desk->fragments[f];
    if (--fragment->users > 0 || !fragment->users_wanted)
        return;
    fragment->users_wanted = false;
    event_post(desk->conf.events, &(struct event){.type = EVENT_UNREAD, .fragment = f});
}

bool desk_used(struct desk *desk, uint32_t f)
{
    desk->fragments[f].users_wanted = desk->fragments[f].users > 0;
    return desk->fragments[f].users_wanted;
}

uint64_t desk_in_flight(const struct desk *desk, uint32_t f, uint64_t version)
{
    uint64_t shards = 0;
    for (uint32_t s = 0; s < PLAN_SHARDS_MAX; s++)
        if (desk->fragments[f].sent[s].version > version)
            shards |= (uint64_t)1 << s;
    return shards;
}

/* ---- readers ---- */

void desk_read_begin(struct desk *desk, uint32_t f)
{
    desk->fragments[f].readers++;
}

void desk_read_end(struct desk *desk, uint32_t f)
{
    if (--desk->fragments[f].readers == 0)
        event_post(desk->conf.events, &(struct event){.type = EVENT_UNREAD, .fragment = f});
}

/* ---- hashes ---- */

static enum err hash_piece(void *hashing, size_t i, struct jobs_scratch *scratch)
{
    (void)scratch;
    replica_hash_piece(hashing, i);
    return ERR_OK;
}

enum err desk_hash(const struct desk *desk, uint32_t f, uint64_t version, uint64_t step, struct jobs_scratch *scratch,
                   struct digest *hash)
{
    struct replica_hashing hashing;
    enum err err = replica_hash_begin(desk->conf.replica, f, &hashing);
    if (err == ERR_OK)
        err = jobs_share(scratch, hashing.pieces, hash_piece, &hashing);
    if (err == ERR_OK)
        *hash = replica_hash_end(&hashing, version, step);
    replica_hash_deinit(&hashing);
    return err;
}

/* ---- the disk ---- */

void desk_disk_failed(struct desk *desk, const char *text)
{
    snprintf(desk->disk_note, sizeof desk->disk_note, "%s", text);
    if (log_limit_pass(&desk->disk_said, desk->now_ms, DISK_SAID_MS))
        log_error("%s", text);
}

void desk_disk_works(struct desk *desk)
{
    /* Of what was refused a probe says so: meanwhile what is small may be kept. */
    if (desk->disk_note[0] != '\0' && desk->refused_since_ms == 0)
        log_info("the disk can be written again");
    desk->disk_note[0] = '\0';
}

void desk_round_refused(struct desk *desk, size_t bytes, const char *text)
{
    if (desk->refused_since_ms == 0) {
        desk->refused_since_ms = desk->now_ms;
        desk->probe_ms = desk->now_ms + PROBE_MS;
        desk->refused_bytes = 0;
    }
    desk->refused_bytes = bytes > desk->refused_bytes ? bytes : desk->refused_bytes;
    desk_disk_failed(desk, text);
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
    TRY(mem_printf(&path, "%s/probe", j->desk->conf.folder));
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
    struct desk *desk = j->desk;
    desk->probing = false;
    desk->probe_ms = desk->now_ms + PROBE_MS;
    if (job->err == ERR_OK) {
        desk->refused_since_ms = 0;
        desk->disk_note[0] = '\0';
        log_info("the disk can be written again");
    } else {
        desk_disk_failed(desk, job->text);
    }
    job_pool_give(&desk->probes, j);
}

void desk_probe(struct desk *desk)
{
    if (desk->refused_since_ms == 0 || desk->probing || desk->now_ms < desk->probe_ms)
        return;
    struct probe_job *j = desk_job(desk, &desk->probes);
    if (j == NULL)
        return;
    j->desk = desk;
    j->bytes = desk->refused_bytes;
    desk->probing = true;
    desk_submit(desk, &j->job, JOBS_SAVE, run_probe, done_probe);
}

bool desk_refuses(const struct desk *desk)
{
    return desk->refused_since_ms != 0 && desk->now_ms >= desk->refused_since_ms + REFUSED_MS;
}

/* ---- jobs ---- */

void *desk_job(struct desk *desk, struct job_pool *pool)
{
    void *job = job_pool_take(pool);
    if (job == NULL)
        event_post_fatal(desk->conf.events, err_text());
    return job;
}

bool desk_room(struct desk *desk, struct slot *slot, uint32_t f, uint64_t shards)
{
    if (slots_room(desk->conf.slots, slot, f, shards) == ERR_OK)
        return true;
    event_post_fatal(desk->conf.events, err_text());
    return false;
}

void desk_submit(struct desk *desk, struct job *job, enum jobs_work work, job_run *run, job_done *done)
{
    job->work = work;
    job->run = run;
    job->done = done;
    jobs_submit(desk->conf.jobs, job);
}

/* ---- compression ---- */

bool desk_compress(struct desk *desk, bool measured)
{
    double bits_per_s = (double)desk->uplink_bits;
    bool worth = true;
    if (desk->conf.compress_auto)
        worth = measured ? squeeze_next(&desk->squeeze, bits_per_s) : squeeze_best(&desk->squeeze, bits_per_s);
    return desk->conf.spec->zstd_level > 0 && worth;
}

enum err desk_set_compression(const struct desk *desk, bool compress, struct codec *codec)
{
    return codec_set_zstd(codec, compress ? (int)desk->conf.spec->zstd_level : 0);
}

/* ---- objects ---- */

enum err desk_check_step(const struct desk *desk, const struct wire_meta *meta)
{
    if (meta->step > (uint64_t)desk->conf.spec->steps)
        return err_set(ERR_PROTO, "step %" PRIu64 " of a run of %" PRId64, meta->step, desk->conf.spec->steps);
    return ERR_OK;
}

struct wire_object desk_object(const struct desk *desk, enum wire_kind kind, const struct chain_part *part)
{
    struct wire_object what = {.shards = part->shards};
    what.key = (struct wire_key){.kind = kind,
                                 .fragment = part->id.fragment,
                                 .version = part->id.version,
                                 .epoch = part->id.epoch,
                                 .owner = part->id.owner,
                                 .island = desk_id(desk)};
    memcpy(what.nonce, desk->conf.nonce, sizeof what.nonce);
    return what;
}

enum err desk_check_object(const struct desk *desk, const struct wire_object *what, const struct wire_key *key,
                           uint64_t shards)
{
    TRY(wire_object_is(what, key, desk->conf.nonce));
    if (what->shards != shards)
        return err_set(ERR_PROTO, "it holds other shards than its owner has");
    return ERR_OK;
}

void desk_judged(struct desk *desk, uint32_t peer, const struct wire_key *key, enum wire_done done)
{
    event_post(desk->conf.events,
               &(struct event){.type = EVENT_JUDGED, .member = peer, .object = {.key = *key, .done = done}});
}

void desk_post(struct desk *desk, const struct sync_event *event)
{
    event_post_sync(desk->conf.events, event);
}

struct result_id desk_result(const struct desk *desk, const struct chain_part *part)
{
    const struct sync *sync = desk->conf.sync;
    struct result_id id = part->id;
    const struct chain_part *parts;
    bool acknowledged;
    uint32_t count = sync_own(sync, id.fragment).version + 1 == id.version ? sync_parts(sync, id.fragment, &parts) : 0;
    for (uint32_t p = 0; p < count; p++)
        if (result_id_same_part(&parts[p].id, &id) && sync_held(sync, id.fragment, p, &id.digest, &acknowledged))
            return id;
    return !part->carried && results_find(desk->conf.ledger, &part->id, &id) ? id : part->id;
}

/* ---- whether zstd pays ---- */

enum { TRY_AGAIN = 32, VALUES_MIN = 4096 };

static double transfer_s(const struct squeeze_side *side, double bits_per_s)
{
    return side->seconds + 8 * side->bytes / bits_per_s;
}

bool squeeze_best(const struct squeeze *squeeze, double bits_per_s)
{
    /* On an unknown link, or before both were tried: fewer bytes are what one has a codec for. */
    if (bits_per_s <= 0 || squeeze->side[0].samples == 0 || squeeze->side[1].samples == 0)
        return true;
    return transfer_s(&squeeze->side[1], bits_per_s) <= transfer_s(&squeeze->side[0], bits_per_s);
}

bool squeeze_next(struct squeeze *squeeze, double bits_per_s)
{
    bool best = squeeze_best(squeeze, bits_per_s);
    squeeze->asked++;
    if (bits_per_s <= 0)
        return true;
    if (squeeze->side[1].samples == 0 || squeeze->side[0].samples == 0)
        return squeeze->side[1].samples <= squeeze->side[0].samples;
    return squeeze->asked % TRY_AGAIN == 0 ? !best : best;
}

void squeeze_note(struct squeeze *squeeze, bool with, uint64_t values, double seconds, uint64_t bytes)
{
    struct squeeze_side *side = &squeeze->side[with];
    if (values < VALUES_MIN)
        return; /* more about the clock than about the codec */
    double weight = side->samples == 0 ? 1 : 0.2;
    side->seconds += weight * (seconds / (double)values - side->seconds);
    side->bytes += weight * ((double)bytes / (double)values - side->bytes);
    side->samples++;
}
