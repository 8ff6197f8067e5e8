#include "daemon/rounds/desk.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/mem.h"
#include "daemon/state/results.h"

enum { DISK_SAID_MS = 10000 };

enum err desk_init(struct desk *desk, const struct rounds_conf *conf)
{
    *desk = (struct desk){.conf = *conf};
    return mem_new(desk_fragments(desk), sizeof *desk->fragments, "rounds", &desk->fragments);
}

void desk_deinit(struct desk *desk)
{
    mem_free(desk->fragments);
}

uint32_t desk_self(const struct desk *desk)
{
    return desk->conf.view->self;
}

uint32_t desk_fragments(const struct desk *desk)
{
    return desk->conf.plan->plan->fragments_count;
}

const char *desk_name(const struct desk *desk, uint32_t member)
{
    return desk->conf.view->members[member].name;
}

uint64_t desk_values(const struct desk *desk, uint32_t f, uint32_t shard)
{
    return replica_share_values(desk->conf.replica, f, shard);
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

/* ---- the disk ---- */

void desk_disk_failed(struct desk *desk, const char *text)
{
    snprintf(desk->disk_note, sizeof desk->disk_note, "%s", text);
    if (log_limit_pass(&desk->disk_said, desk->now_ms, DISK_SAID_MS))
        log_error("%s", text);
}

void desk_disk_works(struct desk *desk)
{
    if (desk->disk_note[0] != '\0')
        log_info("the disk can be written again");
    desk->disk_note[0] = '\0';
}

/* ---- jobs ---- */

void *desk_job(struct desk *desk, struct job_pool *pool)
{
    void *job = job_pool_take(pool);
    if (job == NULL)
        event_post_fatal(desk->conf.events, err_text());
    return job;
}

bool desk_room(struct desk *desk, struct slot *slot, uint32_t f, uint32_t shard)
{
    if (slots_room(desk->conf.slots, slot, f, shard) == ERR_OK)
        return true;
    event_post_fatal(desk->conf.events, err_text());
    return false;
}

void desk_submit(struct desk *desk, struct job *job, job_run *run, job_done *done)
{
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

uint64_t desk_shards(const struct desk *desk, uint32_t f, uint32_t owner)
{
    struct plan_share share;
    replica_share(desk->conf.replica, f, owner, &share);
    return bitset_word(&share.shards);
}

struct wire_object desk_object(const struct desk *desk, enum wire_kind kind, uint32_t f, uint64_t version,
                               uint32_t owner)
{
    struct wire_object what = {.shards = desk_shards(desk, f, owner)};
    what.key =
        (struct wire_key){.kind = kind, .fragment = f, .version = version, .owner = owner, .island = desk_self(desk)};
    memcpy(what.nonce, desk->conf.nonce, sizeof what.nonce);
    return what;
}

enum err desk_check_object(const struct desk *desk, const struct wire_object *what, const struct wire_key *key)
{
    TRY(wire_object_is(what, key, desk->conf.nonce));
    if (what->key.owner >= desk->conf.view->count || what->shards != desk_shards(desk, key->fragment, key->owner))
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

void desk_post_held(struct desk *desk, uint32_t f)
{
    uint64_t next = desk->fragments[f].state.version + 1;
    struct bitset held = results_held(desk->conf.ledger, f, next, desk->conf.view->count);
    for (uint32_t s = 0; s < desk->conf.view->count; s++)
        if (bitset_has(&held, s))
            desk_post(desk,
                      &(struct sync_event){
                          .type = SYNC_EV_STORED, .fragment = f, .version = next, .owner = s, .member = SYNC_NOBODY});
}
