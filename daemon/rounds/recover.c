/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/rounds/recover.h"

#include <inttypes.h>

#include "common/mem.h"
#include "daemon/rounds/apply.h"

/* What replaying takes. */
enum { STANDING_VERSIONS = 8 };

struct replay {
    const struct desk *desk;
    uint32_t f;
    struct replica *replica; /* into which, and what it then holds */
    struct store_fragment *state;
    struct codec *codec;
    struct replica_size sizes[CHAIN_PARTS_MAX]; /* by part of the commit */
    struct ledger_commit commit;                /* of the version being replayed */
};

/* Whether a result that was opened can be decoded, and how large it is; then closes it. */
static enum err measure(struct replay *replay, struct result *result, struct replica_size *size)
{
    enum err err = replica_measure(replay->replica, replay->f, result->what.shards, result->frame, result->frame_bytes,
                                   replay->codec, size);
    result_close(result);
    return err;
}

static struct ledger_key key_of(const struct ledger_commit *commit, uint32_t part)
{
    return (struct ledger_key){.fragment = commit->fragment,
                               .owner = commit->parts[part].owner,
                               .version = commit->version,
                               .epoch = commit->parts[part].epoch,
                               .digest = commit->parts[part].digest};
}

static enum err look_at_part(struct replay *replay, uint32_t part, uint64_t *shards)
{
    const struct ledger_key key = key_of(&replay->commit, part);
    struct result result;
    TRY(apply_open(replay->desk, &key, &result));
    uint64_t mask = result.what.shards;
    bool again = (*shards & mask) != 0;
    *shards |= mask;
    TRY(measure(replay, &result, &replay->sizes[part]));
    return again ? err_set(ERR_PROTO, "another part of the version has the same shards") : ERR_OK;
}

/* Whether all results that made a version are there and can be used. */
static bool look_at_version(struct replay *replay)
{
    bool whole = true;
    uint64_t shards = 0;
    for (uint32_t i = 0; i < replay->commit.parts_count; i++) {
        enum err err = look_at_part(replay, i, &shards);
        whole &= err == ERR_OK;
        if (err != ERR_OK && err != ERR_NOTFOUND)
            log_error("the ledger's result of fragment %" PRIu32 ", version %" PRIu64 ", owner %" PRIu32
                      " cannot be used: %s; what follows is fetched from other islands",
                      replay->f, replay->commit.version, replay->commit.parts[i].owner, err_text());
    }
    uint64_t filled = parts_filled(replay->desk->conf.plan->plan, replay->f);
    return whole && (shards & filled) == filled;
}

static enum err apply_part(struct replay *replay, uint32_t part)
{
    const struct ledger_key key = key_of(&replay->commit, part);
    struct store_fragment *state = replay->state;
    struct result result;
    TRY(apply_open(replay->desk, &key, &result));
    struct outer_round round = apply_numbers(replay->desk, &result.meta, replay->sizes, replay->commit.parts_count);
    enum err err = replica_apply(replay->replica, replay->f, result.what.shards, &round, result.frame,
                                 result.frame_bytes, replay->codec);
    if (err == ERR_OK)
        err = counted_note(replica_counted(replay->replica, replay->f), result.what.shards, replay->commit.version,
                           &result.meta);
    if (err == ERR_OK && result.meta.step > state->step)
        state->step = result.meta.step;
    result_close(&result);
    return err;
}

/* Applies one version as the ledger says that it was made; ERR_NOTFOUND if it does not say so, or if a result is
 * missing or of no use, which is found before anything is changed. */
static enum err replay_version(struct replay *replay, uint64_t version)
{
    enum err err = ledger_commit_of(replay->desk->conf.ledger, replay->f, version, &replay->commit);
    if (err != ERR_OK || !look_at_version(replay))
        return err_set(ERR_NOTFOUND, "the ledger does not have all of version %" PRIu64, version);
    for (uint32_t i = 0; i < replay->commit.parts_count; i++)
        TRY(apply_part(replay, i));
    return ERR_OK;
}

/* On from `*state`, which `replica` holds, as far as the ledger says how versions were made, at most to version `upto`.
 */
static enum err replay_all(const struct desk *desk, uint32_t f, uint64_t upto, struct replica *replica,
                           struct store_fragment *state)
{
    enum err err = ERR_OK;
    struct replay replay = {.desk = desk, .f = f, .replica = replica, .state = state};
    TRY_OUT(codec_new(0, &replay.codec));
    TRY_OUT(codec_reserve(replay.codec, 0, replica_segment_values(replica)));
    while (state->version < upto && (err = replay_version(&replay, state->version + 1)) == ERR_OK)
        state->version++;
    err = err == ERR_NOTFOUND ? ERR_OK : err;
out:
    codec_free(replay.codec);
    return err;
}

/* Of what was replayed: its hash, which is what it was when the version was made. */
static enum err hash_replayed(struct desk *desk, uint32_t f, struct store_fragment *state)
{
    static const struct digest none;
    struct ledger_commit commit;
    TRY(replica_hash(desk->conf.replica, f, state->version, state->step, &state->hash));
    if (ledger_commit_of(desk->conf.ledger, f, state->version, &commit) == ERR_OK &&
        !digest_equal(&commit.hash, &none) && !digest_equal(&commit.hash, &state->hash))
        log_warn("fragment %" PRIu32 ": version %" PRIu64 " is another one, made from the checkpoint and the ledger's "
                 "results, than it was in memory before; the other islands' will tell which is right",
                 f, state->version);
    return ERR_OK;
}

static bool made_by_us(const struct desk *desk, uint32_t f, uint64_t version)
{
    struct ledger_key keys[LEDGER_RESULTS_MAX];
    size_t count = ledger_list(desk->conf.ledger, f, version, keys, LEDGER_RESULTS_MAX);
    for (size_t i = 0; i < count; i++)
        if (keys[i].owner == desk_id(desk))
            return true;
    return false;
}

/* Who was an outlier in the last versions, as far as the ledger still has their results. */
static void note_standing(struct desk *desk, uint32_t f, uint64_t upto)
{
    for (uint64_t version = upto > STANDING_VERSIONS ? upto - STANDING_VERSIONS + 1 : 1; version <= upto; version++) {
        struct ledger_commit commit;
        if (ledger_commit_of(desk->conf.ledger, f, version, &commit) != ERR_OK)
            continue;
        for (uint32_t i = 0; i < commit.parts_count; i++) {
            const struct ledger_key key = key_of(&commit, i);
            struct result result;
            if (result_open(desk->conf.ledger, &key, &result) != ERR_OK)
                continue;
            standing_note(&desk->standing, desk->conf.view, &result.meta, f, version, desk->now_ms, false);
            result_close(&result);
        }
    }
}

enum err recover_fragment(struct desk *desk, uint32_t f, bool *known, uint64_t *saved)
{
    const struct rounds_conf *conf = &desk->conf;
    struct store_fragment *state = &desk->fragments[f].state;
    enum err err =
        store_load_fragment(conf->folder, conf->spec, &conf->view->nonce_id, conf->plan, conf->replica, f, state);
    *known = err == ERR_OK;
    if (err == ERR_CORRUPT) {
        log_warn("%s; the fragment is fetched from another island", err_text());
        *state = (struct store_fragment){0};
        replica_clear(conf->replica, f);
        return ERR_OK;
    }
    if (err == ERR_NOTFOUND)
        return ERR_OK;
    TRY(err);
    *saved = state->version;
    TRY(replay_all(desk, f, UINT64_MAX, conf->replica, state));
    note_standing(desk, f, state->version);
    bool replayed = state->version > *saved;
    /* The checkpoint's residuals are older than results made from them, even than one that is of no use now. */
    if (replayed || made_by_us(desk, f, state->version + 1))
        replica_clear_residuals(conf->replica, f);
    return replayed ? hash_replayed(desk, f, state) : ERR_OK;
}

/* A checkpoint may be written, and results it covers let go of, between our looks at either: then once more. */
enum err recover_replay(const struct desk *desk, uint32_t f, uint64_t version, struct replica *shadow,
                        struct store_fragment *state)
{
    const struct rounds_conf *conf = &desk->conf;
    for (int attempt = 0; attempt < 2; attempt++) {
        TRY(store_load_fragment(conf->folder, conf->spec, &conf->view->nonce_id, conf->plan, shadow, f, state));
        TRY(replay_all(desk, f, version, shadow, state));
        if (state->version == version)
            return replica_hash(shadow, f, version, state->step, &state->hash);
    }
    return err_set(ERR_NOTFOUND, "checkpoint and ledger lead to version %" PRIu64 ", not to %" PRIu64, state->version,
                   version);
}
