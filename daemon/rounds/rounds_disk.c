/* Checkpoints, recovery by replay, states from peers, and the exported anchor. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/bytes.h"
#include "common/mem.h"
#include "daemon/rounds/rounds.h"
#include "daemon/state/state_object.h"

enum { EXPORT_QUIET_MS = 1000, EXPORT_AGAIN_MS = 60000 };

/* ---- checkpoints ---- */

static enum err run_checkpoint(struct job *job, struct jobs_scratch *scratch)
{
    struct round_job *r = (struct round_job *)(void *)job;
    struct engine *engine = r->engine;
    (void)scratch;
    return store_save_fragment(engine->conf->state_folder, &engine->spec, engine->plan, engine->replica, r->f,
                               &r->state);
}

static void prune_ledger(struct engine *engine)
{
    uint64_t *versions;
    if (mem_new(engine_fragments(engine), sizeof *versions, "versions", &versions) != ERR_OK)
        return;
    for (uint32_t f = 0; f < engine_fragments(engine); f++)
        versions[f] =
            engine->fragments[f].checkpoint_version != UINT64_MAX ? engine->fragments[f].checkpoint_version : 0;
    ledger_prune(engine->ledger, versions, engine_fragments(engine));
    mem_free(versions);
}

static void done_checkpoint(struct job *job, void *user)
{
    struct engine *engine = user;
    struct round_job *r = (struct round_job *)(void *)job;
    struct engine_fragment *fragment = &engine->fragments[r->f];
    uint32_t f = r->f;
    fragment->checkpointing = false;
    if (job->err != ERR_OK) {
        char text[400];
        snprintf(text, sizeof text, "checkpoint of fragment %" PRIu32 " failed: %s", f, job->text);
        rounds_disk_failed(engine, text);
    } else {
        rounds_disk_works(engine);
        fragment->checkpoint_version = r->state.version;
    }
    rounds_recycle(engine, r);
    if (f + 1 == engine_fragments(engine))
        prune_ledger(engine);
    rounds_read_end(engine, f);
}

void rounds_checkpoint(struct engine *engine, uint32_t f)
{
    struct engine_fragment *fragment = &engine->fragments[f];
    enum sync_state state = sync_state(engine->sync, f);
    bool steady = sync_known(engine->sync, f) && state != SYNC_APPLYING && state != SYNC_REPAIR;
    bool saved = fragment->checkpoint_version == fragment->state.version;
    if (!steady || fragment->checkpointing || saved)
        return;
    struct round_job *r = rounds_job(engine, f, 0, 0);
    if (r == NULL)
        return;
    r->state = fragment->state;
    fragment->checkpointing = true;
    rounds_read_begin(engine, f);
    rounds_submit(engine, r, run_checkpoint, done_checkpoint);
}

/* ---- the anchor for people ---- */

static enum err run_export(struct job *job, struct jobs_scratch *scratch)
{
    struct round_job *r = (struct round_job *)(void *)job;
    struct engine *engine = r->engine;
    (void)scratch;
    return store_export(engine->conf->state_folder, &engine->spec, engine->plan, engine->replica, r->states);
}

static void done_export(struct job *job, void *user)
{
    struct engine *engine = user;
    struct round_job *r = (struct round_job *)(void *)job;
    engine->exporting = false;
    if (job->err != ERR_OK) {
        snprintf(engine->export_note, sizeof engine->export_note, "failed: %.300s", job->text);
        log_error("the anchor could not be written: %s", job->text);
        engine->exported_versions = UINT64_MAX;
        engine->versions_seen_ms = engine->now_ms + EXPORT_AGAIN_MS;
    } else {
        snprintf(engine->export_note, sizeof engine->export_note, "%.280s/anchor.safetensors",
                 engine->conf->state_folder);
        log_info("the anchor is in %s", engine->export_note);
    }
    mem_free(r->states);
    rounds_recycle(engine, r);
    for (uint32_t f = 0; f < engine_fragments(engine); f++)
        rounds_read_end(engine, f);
}

static uint64_t versions_sum(const struct engine *engine)
{
    uint64_t sum = 0;
    for (uint32_t f = 0; f < engine_fragments(engine); f++)
        sum += engine->fragments[f].state.version;
    return sum;
}

/* The other islands may go on for long: the file follows when nothing has changed for a while, and now and then. */
void rounds_export_follow(struct engine *engine)
{
    uint64_t sum = versions_sum(engine);
    if (sum != engine->versions_seen) {
        engine->versions_seen = sum;
        engine->versions_seen_ms = engine->now_ms;
    }
    bool quiet = engine->now_ms >= engine->versions_seen_ms + EXPORT_QUIET_MS;
    bool due = engine->now_ms >= engine->export_ms + EXPORT_AGAIN_MS;
    if (engine->export_follows && !engine->exporting && sum != engine->exported_versions && (quiet || due))
        rounds_export(engine);
}

/* Anchors must not change while they are written: changes wait for readers, and this waits for what is under way. */
void rounds_export(struct engine *engine)
{
    engine->export_wanted = true;
    if (engine->exporting || engine->sync == NULL)
        return;
    for (uint32_t f = 0; f < engine_fragments(engine); f++) {
        enum sync_state state = sync_state(engine->sync, f);
        if (!sync_known(engine->sync, f) || state == SYNC_REPAIR ||
            (state == SYNC_APPLYING && engine->fragments[f].apply_waits == 0))
            return; /* tried again by the tick */
    }
    struct round_job *r = rounds_job(engine, 0, 0, 0);
    if (r == NULL)
        return;
    if (mem_new(engine_fragments(engine), sizeof *r->states, "versions", &r->states) != ERR_OK) {
        rounds_recycle(engine, r);
        return;
    }
    for (uint32_t f = 0; f < engine_fragments(engine); f++) {
        r->states[f] = engine->fragments[f].state;
        rounds_read_begin(engine, f);
    }
    engine->exported_versions = versions_sum(engine);
    engine->export_ms = engine->now_ms;
    engine->export_wanted = false;
    engine->exporting = true;
    engine->export_note[0] = '\0';
    rounds_submit(engine, r, run_export, done_export);
}

/* ---- a peer's state ---- */

static enum err run_install(struct job *job, struct jobs_scratch *scratch)
{
    struct round_job *r = (struct round_job *)(void *)job;
    struct engine *engine = r->engine;
    const struct engine_fragment *fragment = &engine->fragments[r->f];
    (void)scratch;
    return state_object_install(engine->replica, engine->plan->plan, r->f, r->version, r->expects ? &r->hash : NULL,
                                fragment->state_in, r->bytes, &r->state);
}

static void done_install(struct job *job, void *user)
{
    struct engine *engine = user;
    struct round_job *r = (struct round_job *)(void *)job;
    struct engine_fragment *fragment = &engine->fragments[r->f];
    mem_free(fragment->state_in);
    fragment->state_in = NULL;
    if (job->err != ERR_OK) {
        log_error("the state of fragment %" PRIu32 " from island %s cannot be used: %s; asking again", r->f,
                  engine->view.members[r->peer].name, job->text);
        xfer_finish(engine->xfer, r->peer, &r->key, WIRE_REFUSED);
        engine_event(engine, &(struct sync_event){
                                 .type = SYNC_EV_NOT_AVAILABLE, .member = r->peer, .key = r->key, .fragment = r->f});
    } else {
        /* What of ours it counts is not known; counting twice would be worse than losing a round's left-over. */
        bool in_flight = fragment->encoded_version > fragment->state.version;
        fragment->state = r->state;
        replica_clear_residuals(engine->replica, r->f);
        if (in_flight)
            port_counted(engine, r->f, UINT64_MAX);
        else
            port_counted(engine, r->f, 0);
        xfer_finish(engine->xfer, r->peer, &r->key, WIRE_RECEIVED);
        engine_event(engine, &(struct sync_event){.type = SYNC_EV_INSTALLED,
                                                  .fragment = r->f,
                                                  .version = r->state.version,
                                                  .hash = r->state.hash});
        /* The ledger does not lead here from any earlier checkpoint. */
        fragment->checkpoint_version = UINT64_MAX;
        rounds_checkpoint(engine, r->f);
    }
    rounds_recycle(engine, r);
}

void rounds_install(struct engine *engine, struct round_job *r)
{
    struct engine_fragment *fragment = &engine->fragments[r->f];
    fragment->install_waits = fragment->readers > 0 ? r : NULL;
    if (fragment->readers == 0)
        rounds_submit(engine, r, run_install, done_install);
}

void rounds_state_in(struct engine *engine, uint32_t peer, const struct wire_key *key, uint64_t bytes)
{
    struct round_job *r = rounds_job(engine, key->fragment, 0, key->version);
    if (r == NULL) {
        xfer_finish(engine->xfer, peer, key, WIRE_NOT_YET);
        return;
    }
    r->peer = peer;
    r->key = *key;
    r->bytes = bytes;
    struct sync_peer_fragment said = sync_heard(engine->sync, peer, key->fragment);
    r->expects = said.hash_known && said.version == key->version;
    r->hash = said.hash;
    rounds_install(engine, r);
}

/* ---- recovery ---- */

/* The ledger's results for the version after `version`, as a mask of shards. */
static uint64_t results_after(struct engine *engine, uint32_t f, uint64_t version)
{
    uint64_t mask = 0;
    for (uint32_t s = 0; s < engine->view.count; s++)
        if (ledger_has(engine->ledger, f, version + 1, s))
            mask |= (uint64_t)1 << s;
    return mask;
}

/* One shard's result from the ledger: looked at, or applied. */
static enum err replay_shard(struct engine *engine, uint32_t f, uint64_t version, uint32_t s, bool apply,
                             struct jobs_scratch *scratch)
{
    struct plan_shard range = replica_shard(engine->replica, f, s);
    struct ledger_map map = {0};
    struct wire_meta meta;
    const uint8_t *frame;
    size_t frame_bytes;
    if (range.end == range.begin)
        return ERR_OK;
    TRY(ledger_map(engine->ledger, f, version, s, &map));
    enum err err = wire_object_open(WIRE_RESULT, map.object, map.bytes, &meta, &frame, &frame_bytes);
    if (err == ERR_OK && apply) {
        struct outer_round round = rounds_penalised(engine, f, rounds_outer(engine, version, &meta));
        err = replica_apply(engine->replica, f, s, &round, frame, frame_bytes, REPLICA_CLEAR, scratch->codec,
                            scratch->values);
    } else if (err == ERR_OK)
        err = replica_measure(engine->replica, f, s, frame, frame_bytes, scratch->codec, scratch->values,
                              &engine->fragments[f].sizes[s]);
    if (err == ERR_OK && apply && meta.step > engine->fragments[f].state.step)
        engine->fragments[f].state.step = meta.step;
    ledger_unmap(&map);
    return err;
}

/* Applies one version from the ledger; ERR_NOTFOUND if the result of a shard is missing or of no use, which is found
 * before anything is changed. */
static enum err replay_version(struct engine *engine, uint32_t f, uint64_t version, struct jobs_scratch *scratch)
{
    for (uint32_t s = 0; s < engine->view.count; s++) {
        enum err err = replay_shard(engine, f, version, s, false, scratch);
        if (err == ERR_OK)
            continue;
        if (err == ERR_NOTFOUND)
            return err;
        log_error("the ledger's result of fragment %" PRIu32 ", version %" PRIu64 ", shard %" PRIu32
                  " cannot be used: %s; what follows is fetched from other islands",
                  f, version, s, err_text());
        return err_set(ERR_NOTFOUND, "a result of no use");
    }
    for (uint32_t s = 0; s < engine->view.count; s++)
        TRY(replay_shard(engine, f, version, s, true, scratch));
    return ERR_OK;
}

static enum err replay(struct engine *engine, uint32_t f, bool *replayed)
{
    enum err err;
    struct engine_fragment *fragment = &engine->fragments[f];
    struct jobs_scratch scratch = {0};
    *replayed = false;
    TRY_OUT(codec_new(0, &scratch.codec));
    TRY_OUT(
        mem_new(replica_shard_max(engine->replica), sizeof *scratch.values, "replaying the ledger", &scratch.values));
    while ((err = replay_version(engine, f, fragment->state.version + 1, &scratch)) == ERR_OK) {
        fragment->state.version++;
        *replayed = true;
    }
    err = err == ERR_NOTFOUND ? ERR_OK : err;
out:
    codec_free(scratch.codec);
    mem_free(scratch.values);
    return err;
}

enum err rounds_recover(struct engine *engine, uint32_t f, bool *known, uint64_t *results)
{
    struct engine_fragment *fragment = &engine->fragments[f];
    bool replayed;
    enum err err = store_load_fragment(engine->conf->state_folder, &engine->spec, engine->plan, engine->replica, f,
                                       &fragment->state);
    *known = err == ERR_OK;
    *results = 0;
    if (err == ERR_CORRUPT) {
        log_warn("%s; the fragment is fetched from another island", err_text());
        fragment->state = (struct store_fragment){0};
        replica_clear(engine->replica, f);
        return ERR_OK;
    }
    if (err == ERR_NOTFOUND)
        return ERR_OK;
    TRY(err);
    fragment->checkpoint_version = fragment->state.version;
    TRY(replay(engine, f, &replayed));
    *results = results_after(engine, f, fragment->state.version);
    /* What the checkpoint holds as left over is older than results made from it. */
    if (replayed || (*results >> engine->view.self & 1) != 0)
        replica_clear_residuals(engine->replica, f);
    if (replayed) {
        TRY(replica_hash(engine->replica, f, fragment->state.version, &fragment->state.hash));
    }
    return ERR_OK;
}
