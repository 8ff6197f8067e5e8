#include "daemon/rounds/recover.h"

#include <inttypes.h>

#include "common/mem.h"
#include "daemon/rounds/apply.h"
#include "daemon/state/results.h"

/* What replaying takes. */
struct replay {
    const struct desk *desk;
    uint32_t f;
    struct replica *replica; /* into which, and what it then holds */
    struct store_fragment *state;
    struct codec *codec;
    float *values;                            /* of the fragment */
    struct chain_part parts[CHAIN_PARTS_MAX]; /* of the version looked at last */
    struct replica_size sizes[CHAIN_PARTS_MAX];
    uint32_t parts_count;
    struct bitset useless; /* owners whose result of that version cannot be used */
};

/* One part's result from the ledger: looked at, or applied. */
static enum err replay_part(struct replay *replay, uint64_t version, uint32_t p, bool apply)
{
    const struct desk *desk = replay->desk;
    struct replica *replica = replay->replica;
    struct store_fragment *state = replay->state;
    const struct chain_part *part = &replay->parts[p];
    struct result result;
    TRY(result_open(desk->conf.ledger, replay->f, version, part->owner, &result));
    enum err err = apply_check(desk, &result.meta);
    if (err == ERR_OK && apply) {
        struct outer_round round = apply_numbers(desk, &result.meta, replay->sizes, replay->parts_count);
        err = replica_apply(replica, replay->f, part->shards, &round, result.frame, result.frame_bytes, replay->codec,
                            replay->values);
        if (err == ERR_OK && result.meta.step > state->step)
            state->step = result.meta.step;
    } else if (err == ERR_OK) {
        err = replica_measure(replica, replay->f, part->shards, result.frame, result.frame_bytes, replay->codec,
                              replay->values, &replay->sizes[p]);
    }
    result_close(&result);
    return err;
}

/* Whether all results of a version are there and can be used; notes which cannot. */
static bool look_at_version(struct replay *replay, uint64_t version)
{
    replay->useless = (struct bitset){{0}};
    replay->parts_count = desk_parts(replay->desk, replay->f, version, replay->parts);
    bool whole = replay->parts_count > 0;
    for (uint32_t p = 0; p < replay->parts_count; p++) {
        enum err err = replay_part(replay, version, p, false);
        whole &= err == ERR_OK;
        if (err == ERR_OK || err == ERR_NOTFOUND)
            continue;
        log_error("the ledger's result of fragment %" PRIu32 ", version %" PRIu64 ", owner %" PRIu32
                  " cannot be used: %s; what follows is fetched from other islands",
                  replay->f, version, replay->parts[p].owner, err_text());
        bitset_add(&replay->useless, replay->parts[p].owner);
    }
    return whole;
}

/* Applies one version from the ledger; ERR_NOTFOUND if the result of a part is missing or of no use, which is found
 * before anything is changed. */
static enum err replay_version(struct replay *replay, uint64_t version)
{
    if (!look_at_version(replay, version))
        return err_set(ERR_NOTFOUND, "the ledger does not have all of version %" PRIu64, version);
    for (uint32_t p = 0; p < replay->parts_count; p++)
        TRY(replay_part(replay, version, p, true));
    return ERR_OK;
}

/* On from `*state`, which `replica` holds, as far as the ledger leads, at most to version `upto`. `*useless`: owners
 * whose result of the version after the last the ledger has, but not in a form that can be used. */
static enum err replay_all(const struct desk *desk, uint32_t f, uint64_t upto, struct replica *replica,
                           struct store_fragment *state, struct bitset *useless)
{
    enum err err = ERR_OK;
    struct replay replay = {.desk = desk, .f = f, .replica = replica, .state = state};
    TRY_OUT(codec_new(0, &replay.codec));
    TRY_OUT(mem_new((size_t)desk->conf.plan->plan->fragments[f].values_count, sizeof *replay.values,
                    "replaying the ledger", &replay.values));
    while (state->version < upto && (err = replay_version(&replay, state->version + 1)) == ERR_OK)
        state->version++;
    err = err == ERR_NOTFOUND ? ERR_OK : err;
    *useless = replay.useless;
out:
    codec_free(replay.codec);
    mem_free(replay.values);
    return err;
}

enum err recover_fragment(struct desk *desk, uint32_t f, bool *known, uint64_t *saved, struct bitset *results)
{
    const struct rounds_conf *conf = &desk->conf;
    struct store_fragment *state = &desk->fragments[f].state;
    struct bitset useless;
    enum err err =
        store_load_fragment(conf->folder, conf->spec, &conf->view->shares, conf->plan, conf->replica, f, state);
    *known = err == ERR_OK;
    *results = (struct bitset){{0}};
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
    TRY(replay_all(desk, f, UINT64_MAX, conf->replica, state, &useless));
    bool replayed = state->version > *saved;
    *results = desk_held(desk, f, state->version + 1);
    /* The checkpoint's residuals are older than results made from them. */
    if (replayed || bitset_has(results, desk_self(desk)))
        replica_clear_residuals(conf->replica, f);
    bitset_remove_all(results, &useless); /* else nobody would fetch them */
    return replayed ? replica_hash(conf->replica, f, state->version, &state->hash) : ERR_OK;
}

/* A checkpoint may be written, and results it covers let go of, between our looks at either: then once more. */
enum err recover_replay(const struct desk *desk, uint32_t f, uint64_t version, struct replica *shadow,
                        struct store_fragment *state)
{
    const struct rounds_conf *conf = &desk->conf;
    struct bitset useless;
    for (int attempt = 0; attempt < 2; attempt++) {
        TRY(store_load_fragment(conf->folder, conf->spec, &conf->view->shares, conf->plan, shadow, f, state));
        TRY(replay_all(desk, f, version, shadow, state, &useless));
        if (state->version == version)
            return replica_hash(shadow, f, version, &state->hash);
    }
    return err_set(ERR_NOTFOUND, "checkpoint and ledger lead to version %" PRIu64 ", not to %" PRIu64, state->version,
                   version);
}
