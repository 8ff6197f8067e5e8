/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/state/replica.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "common/mem.h"
#include "outer_opt/recipe.h"
#include "outer_opt/vhash.h"

/* ---- packed: the values of some shards of a fragment, one behind the other in one array ---- */

/* Owns the array. Empty when zeroed, as where there are no shards. */
struct packed {
    uint64_t shards; /* mask */
    size_t count;    /* of values */
    float *values;   /* NULL where there are none */
};

/* Zeros for these shards. ERR_NOMEM: `*out` is empty. */
static enum err packed_new(const struct plan *plan, uint32_t f, uint64_t shards, const char *what, struct packed *out)
{
    struct plan_share share;
    *out = (struct packed){0};
    plan_share(plan, f, shards, &share);
    if (share.values_count > 0)
        TRY(mem_pages_new((size_t)share.values_count, sizeof(float), what, &out->values));
    out->count = (size_t)share.values_count;
    out->shards = shards;
    return ERR_OK;
}

/* Leaves it empty. */
static void packed_deinit(struct packed *packed)
{
    mem_pages_free(packed->values, packed->count, sizeof(float));
    *packed = (struct packed){0};
}

/* The values of the shards that both have. */
static void packed_copy(const struct plan *plan, uint32_t f, const struct packed *from, struct packed *to)
{
    size_t from_at = 0, to_at = 0;
    for (uint32_t s = 0; s < plan->fragments[f].shards_count; s++) {
        struct plan_shard shard = plan_shard(plan, f, s);
        size_t count = (size_t)(shard.end - shard.begin);
        bool in_from = (from->shards >> s & 1) != 0, in_to = (to->shards >> s & 1) != 0;
        if (in_from && in_to && count > 0)
            memcpy(to->values + to_at, from->values + from_at, count * sizeof *to->values);
        from_at += in_from ? count : 0;
        to_at += in_to ? count : 0;
    }
}

/* Likewise; afterwards `from` holds what its values were before, or `to`'s. */
static void packed_move(const struct plan *plan, uint32_t f, struct packed *from, struct packed *to)
{
    if (from->shards != to->shards) {
        packed_copy(plan, f, from, to);
        return;
    }
    float *old = to->values;
    to->values = from->values;
    from->values = old;
}

/* Zeros in the place of these shards' values, as far as it has them. */
static void packed_clear(const struct plan *plan, uint32_t f, struct packed *packed, uint64_t shards)
{
    uint64_t at = 0;
    for (uint32_t s = 0; packed->values != NULL && s < PLAN_SHARDS_MAX; s++) {
        if ((packed->shards >> s & 1) == 0)
            continue;
        struct plan_shard shard = plan_shard(plan, f, s);
        size_t count = (size_t)(shard.end - shard.begin);
        if ((shards >> s & 1) != 0)
            mem_pages_clear(packed->values + at, count * sizeof(float));
        at += count;
    }
}

/* ---- a replica ---- */

struct replica_fragment {
    struct part_cut *cuts; /* of our contributions, one a part */
    uint32_t cuts_count;
    struct part_cut own; /* of our results */
    float *anchor, *momentum, *residual, *pending;
    struct packed owner_residual; /* of at least our own shards */
    struct packed owner_pending;  /* of exactly these */
    struct dedup counted;
    bool owner_made;           /* what is pending is of a mean that this cut made, not committed yet */
    _Atomic bool settled;      /* the run's warm-up is over */
    _Atomic uint64_t cut_down; /* residuals; jobs of several parts count */
    struct mean mean;          /* of contributions to our own shards */
};

struct replica {
    struct replica_conf conf;
    struct recipe *recipe;
    struct replica_fragment *fragments;
};

/* What encoding these shards takes; NULL: they are no part. */
static struct part_cut *find_cut(const struct replica_fragment *fragment, uint64_t shards)
{
    for (uint32_t p = 0; p < fragment->cuts_count; p++)
        if (fragment->cuts[p].shards == shards)
            return &fragment->cuts[p];
    return NULL;
}

/* What holds a fragment's residuals down. */
static struct restraint restraint_of(const struct replica *replica, const struct replica_fragment *fragment)
{
    return (struct restraint){.decay = (double)replica->conf.feedback_decay,
                              .limit = (double)replica->conf.feedback_limit,
                              .settled = atomic_load(&fragment->settled)};
}

static bool has_momentum(const struct replica_conf *conf)
{
    return conf->outer.kind != OUTER_AVERAGE;
}

static size_t share_values(const struct replica_conf *conf, uint32_t f, uint64_t shards)
{
    struct plan_share share;
    plan_share(conf->plan, f, shards, &share);
    return (size_t)share.values_count;
}

static size_t run_values(const struct plan_shard *run)
{
    return (size_t)(run->end - run->begin);
}

/* ---- life ---- */

uint64_t replica_bytes(const struct replica_conf *conf)
{
    uint64_t values = 0;
    for (uint32_t f = 0; f < conf->plan->fragments_count; f++)
        values += conf->plan->fragments[f].values_count * (1 + has_momentum(conf) + 2 * conf->error_feedback);
    return values * sizeof(float) + conf->plan->fragments_count * sizeof(struct replica_fragment) +
           recipe_bytes(conf->plan, &conf->choice);
}

static enum err alloc_state(struct replica *replica, uint32_t f)
{
    struct replica_fragment *fragment = &replica->fragments[f];
    size_t count = (size_t)replica->conf.plan->fragments[f].values_count;
    TRY(mem_pages_new(count, sizeof(float), "the anchor", &fragment->anchor));
    return has_momentum(&replica->conf) ? mem_pages_new(count, sizeof(float), "the outer momentum", &fragment->momentum)
                                        : ERR_OK;
}

static enum err alloc_fragment(struct replica *replica, uint32_t f)
{
    struct replica_fragment *fragment = &replica->fragments[f];
    size_t count = (size_t)replica->conf.plan->fragments[f].values_count;
    TRY(alloc_state(replica, f));
    if (!replica->conf.error_feedback)
        return ERR_OK;
    TRY(mem_pages_new(count, sizeof(float), "the residual", &fragment->residual));
    return mem_pages_new(count, sizeof(float), "the pending residual", &fragment->pending);
}

static enum err new_empty(const struct replica_conf *conf, struct replica **out)
{
    TRY(mem_new(1, sizeof **out, "the replica", out));
    struct replica *replica = *out;
    replica->conf = *conf;
    return mem_new(conf->plan->fragments_count, sizeof *replica->fragments, "the replica", &replica->fragments);
}

enum err replica_shadow(const struct replica *replica, uint32_t f, struct replica **out)
{
    *out = NULL;
    enum err err = new_empty(&replica->conf, out);
    if (err == ERR_OK)
        err = alloc_state(*out, f);
    if (err != ERR_OK) {
        replica_free(*out);
        *out = NULL;
    }
    return err;
}

enum err replica_new(const struct replica_conf *conf, struct replica **out)
{
    enum err err;
    struct replica *replica = NULL;
    *out = NULL;
    TRY_OUT(new_empty(conf, &replica));
    for (uint32_t f = 0; f < conf->plan->fragments_count; f++)
        TRY_OUT(alloc_fragment(replica, f));
    TRY_OUT(recipe_new(conf->plan, &conf->choice, conf->adaptive, &replica->recipe));
out:
    if (err != ERR_OK)
        replica_free(replica);
    else
        *out = replica;
    return err;
}

static void free_cuts(struct part_cut *cuts, uint32_t count)
{
    for (uint32_t p = 0; cuts != NULL && p < count; p++)
        part_cut_deinit(&cuts[p]);
    mem_free(cuts);
}

void replica_free(struct replica *replica)
{
    if (replica == NULL)
        return;
    for (uint32_t f = 0; replica->fragments != NULL && f < replica->conf.plan->fragments_count; f++) {
        struct replica_fragment *fragment = &replica->fragments[f];
        size_t count = (size_t)replica->conf.plan->fragments[f].values_count;
        mem_pages_free(fragment->anchor, count, sizeof(float));
        mem_pages_free(fragment->momentum, count, sizeof(float));
        mem_pages_free(fragment->residual, count, sizeof(float));
        mem_pages_free(fragment->pending, count, sizeof(float));
        packed_deinit(&fragment->owner_residual);
        packed_deinit(&fragment->owner_pending);
        dedup_clear(&fragment->counted);
        mean_deinit(&fragment->mean);
        part_cut_deinit(&fragment->own);
        free_cuts(fragment->cuts, fragment->cuts_count);
    }
    recipe_free(replica->recipe);
    mem_free(replica->fragments);
    mem_free(replica);
}

/* ---- the present parts ---- */

uint64_t replica_cut_bytes(const struct replica_conf *conf, uint32_t f, const uint64_t *masks, uint32_t count,
                           uint64_t own, uint32_t inputs)
{
    uint64_t bytes = part_cut_bytes(conf->plan, f, own, conf->adaptive), values = share_values(conf, f, own);
    for (uint32_t p = 0; p < count; p++)
        bytes += part_cut_bytes(conf->plan, f, masks[p], conf->adaptive);
    bytes += (uint64_t)(2 * conf->error_feedback) * values * sizeof(float);
    uint64_t piece = replica_piece_values(conf);
    return bytes + mean_bytes(&conf->outliers, values < piece ? values : piece, inputs);
}

bool replica_cut_is(const struct replica *replica, uint32_t f, const uint64_t *masks, uint32_t count, uint64_t own)
{
    const struct replica_fragment *fragment = &replica->fragments[f];
    uint32_t same = 0;
    while (same < count && same < fragment->cuts_count && fragment->cuts[same].shards == masks[same])
        same++;
    return same == count && fragment->cuts_count == count && fragment->own.shards == own;
}

/* What a new cut adds; what it takes over from the one before stays there until nothing can fail any more. */
struct recut {
    struct part_cut *cuts; /* [count]; empty where the one before has it */
    struct part_cut own;   /* likewise */
    uint64_t kept;         /* shards that the owner's residual is of */
    struct packed residual, pending;
};

/* Shards in no part were made in the epoch before: whose they are now is seen by the next version's parts. */
static uint64_t kept_shards(const struct replica_fragment *fragment, const uint64_t *masks, uint32_t count,
                            uint64_t own)
{
    uint64_t all = 0;
    for (uint32_t p = 0; p < count; p++) {
        assert(masks[p] != 0 && (all & masks[p]) == 0);
        all |= masks[p];
    }
    return own | (fragment->owner_residual.shards & ~all);
}

static enum err make_recut(const struct replica *replica, uint32_t f, const uint64_t *masks, uint32_t count,
                           uint64_t own, struct recut *out)
{
    const struct replica_conf *conf = &replica->conf;
    const struct replica_fragment *fragment = &replica->fragments[f];
    TRY(mem_new(count, sizeof *out->cuts, "the recipe", &out->cuts));
    for (uint32_t p = 0; p < count; p++)
        if (find_cut(fragment, masks[p]) == NULL)
            TRY(part_cut_new(replica->recipe, RECIPE_CONTRIBUTION, conf->plan, f, masks[p], conf->adaptive,
                             &out->cuts[p]));
    if (own != fragment->own.shards)
        TRY(part_cut_new(replica->recipe, RECIPE_RESULT, conf->plan, f, own, conf->adaptive, &out->own));
    if (!conf->error_feedback)
        return ERR_OK;
    if (own != fragment->own.shards)
        TRY(packed_new(conf->plan, f, own, "the owner's pending residual", &out->pending));
    out->kept = kept_shards(fragment, masks, count, own);
    return out->kept != fragment->owner_residual.shards
               ? packed_new(conf->plan, f, out->kept, "the owner's residual", &out->residual)
               : ERR_OK;
}

static void take_own(struct replica *replica, uint32_t f, uint64_t own, struct recut *recut)
{
    struct replica_fragment *fragment = &replica->fragments[f];
    if (own == fragment->own.shards)
        return;
    part_cut_deinit(&fragment->own);
    fragment->own = recut->own;
    packed_deinit(&fragment->owner_pending);
    fragment->owner_pending = recut->pending;
    fragment->owner_made = false;
    recut->own = (struct part_cut){0};
    recut->pending = (struct packed){0};
}

static void take_residual(struct replica *replica, uint32_t f, struct recut *recut)
{
    struct replica_fragment *fragment = &replica->fragments[f];
    if (recut->kept == fragment->owner_residual.shards)
        return;
    packed_copy(replica->conf.plan, f, &fragment->owner_residual, &recut->residual);
    packed_deinit(&fragment->owner_residual);
    fragment->owner_residual = recut->residual;
    recut->residual = (struct packed){0};
}

enum err replica_cut(struct replica *replica, uint32_t f, const uint64_t *masks, uint32_t count, uint64_t own)
{
    enum err err;
    struct replica_fragment *fragment = &replica->fragments[f];
    struct recut recut = {0};
    if (replica_cut_is(replica, f, masks, count, own))
        return ERR_OK;
    TRY_OUT(make_recut(replica, f, masks, count, own, &recut));
    for (uint32_t p = 0; p < count; p++) {
        struct part_cut *before = find_cut(fragment, masks[p]);
        if (before == NULL)
            continue;
        recut.cuts[p] = *before;
        *before = (struct part_cut){0};
    }
    free_cuts(fragment->cuts, fragment->cuts_count);
    fragment->cuts = recut.cuts;
    fragment->cuts_count = count;
    recut.cuts = NULL;
    take_own(replica, f, own, &recut);
    take_residual(replica, f, &recut);
out:
    free_cuts(recut.cuts, count);
    part_cut_deinit(&recut.own);
    packed_deinit(&recut.pending);
    packed_deinit(&recut.residual);
    return err;
}

size_t replica_values(const struct replica *replica, uint32_t f, uint64_t shards)
{
    return share_values(&replica->conf, f, shards);
}

uint64_t replica_state_bytes(const struct replica *replica, uint32_t f)
{
    return (uint64_t)(1 + has_momentum(&replica->conf)) * replica->conf.plan->fragments[f].values_count * sizeof(float);
}

size_t replica_frame_bytes_max(const struct replica *replica, uint32_t f, uint64_t shards)
{
    struct plan_share share;
    plan_share(replica->conf.plan, f, shards, &share);
    return recipe_frame_bytes_max(replica->conf.plan, &replica->conf.choice, f, &share);
}

size_t replica_factor_values(const struct replica *replica)
{
    return recipe_factor_values_max(replica->conf.plan, &replica->conf.choice);
}

size_t replica_segment_values(const struct replica *replica)
{
    return recipe_segment_values_max(replica->conf.plan, &replica->conf.choice);
}

const struct replica_conf *replica_conf(const struct replica *replica)
{
    return &replica->conf;
}

size_t replica_piece_values(const struct replica_conf *conf)
{
    size_t segment = recipe_segment_values_max(conf->plan, &conf->choice);
    size_t all = (size_t)conf->plan->values_count_max;
    return conf->adaptive || all < segment ? all : segment;
}

float *replica_anchor(struct replica *replica, uint32_t f)
{
    return replica->fragments[f].anchor;
}

float *replica_momentum(struct replica *replica, uint32_t f)
{
    return replica->fragments[f].momentum;
}

float *replica_residual(struct replica *replica, uint32_t f)
{
    return replica->fragments[f].residual;
}

uint64_t replica_owner_shards(const struct replica *replica, uint32_t f)
{
    return replica->fragments[f].owner_residual.shards;
}

float *replica_owner_residual(struct replica *replica, uint32_t f)
{
    return replica->fragments[f].owner_residual.values;
}

enum err replica_set_owner_residual(struct replica *replica, uint32_t f, uint64_t shards, const float *values)
{
    struct replica_fragment *fragment = &replica->fragments[f];
    const struct packed saved = {.shards = shards, .values = (float *)(uintptr_t)values};
    struct packed residual;
    uint64_t others = 0;
    if (fragment->residual == NULL)
        return ERR_OK;
    for (uint32_t p = 0; p < fragment->cuts_count; p++)
        others |= fragment->cuts[p].shards & ~fragment->own.shards;
    TRY(packed_new(replica->conf.plan, f, (shards & ~others) | fragment->own.shards, "the owner's residual",
                   &residual));
    packed_copy(replica->conf.plan, f, &saved, &residual);
    packed_deinit(&fragment->owner_residual);
    fragment->owner_residual = residual;
    return ERR_OK;
}

/* ---- encoding ---- */

void replica_settle(struct replica *replica, uint32_t f)
{
    atomic_store(&replica->fragments[f].settled, true);
}

uint64_t replica_feedback_cuts(const struct replica *replica, uint32_t f)
{
    return atomic_load(&replica->fragments[f].cut_down);
}

/* ---- what results say ---- */

/* All of it: the two change places. */
static bool swap_residual(struct replica_fragment *fragment, uint64_t shards, uint32_t shards_count)
{
    uint64_t all = shards_count < PLAN_SHARDS_MAX ? ((uint64_t)1 << shards_count) - 1 : UINT64_MAX;
    if (fragment->residual == NULL || (shards & all) != all)
        return false;
    float *residual = fragment->residual;
    fragment->residual = fragment->pending;
    fragment->pending = residual;
    return true;
}

/* To what is pending, or to zero. */
static void move_residual(struct replica *replica, uint32_t f, uint64_t shards, bool pending)
{
    struct replica_fragment *fragment = &replica->fragments[f];
    struct plan_share share;
    if (pending && swap_residual(fragment, shards, replica->conf.plan->fragments[f].shards_count))
        return;
    plan_share(replica->conf.plan, f, shards, &share);
    for (uint32_t r = 0; fragment->residual != NULL && r < share.runs_count; r++) {
        uint64_t begin = share.run[r].begin, count = run_values(&share.run[r]);
        if (pending)
            memcpy(fragment->residual + begin, fragment->pending + begin, count * sizeof(float));
        else
            mem_pages_clear(fragment->residual + begin, count * sizeof(float));
    }
}

void replica_commit(struct replica *replica, uint32_t f, uint64_t shards)
{
    move_residual(replica, f, shards, true);
}

void replica_forget(struct replica *replica, uint32_t f, uint64_t shards)
{
    move_residual(replica, f, shards, false);
}

bool replica_owner_pending(const struct replica *replica, uint32_t f)
{
    return replica->fragments[f].owner_made;
}

void replica_forget_owner(struct replica *replica, uint32_t f, uint64_t shards)
{
    packed_clear(replica->conf.plan, f, &replica->fragments[f].owner_residual, shards);
}

void replica_commit_owner(struct replica *replica, uint32_t f)
{
    struct replica_fragment *fragment = &replica->fragments[f];
    if (!fragment->owner_made)
        return;
    fragment->owner_made = false;
    packed_move(replica->conf.plan, f, &fragment->owner_pending, &fragment->owner_residual);
}

enum err replica_measure(struct replica *replica, uint32_t f, uint64_t shards, const uint8_t *frame, size_t frame_bytes,
                         struct codec *codec, struct replica_size *size)
{
    const float *momentum = replica->fragments[f].momentum;
    struct plan_share share;
    struct codec_reader reader;
    float *delta;
    size_t count;
    plan_share(replica->conf.plan, f, shards, &share);
    *size = (struct replica_size){0};
    TRY(codec_read_begin(frame, frame_bytes, (size_t)share.values_count, &reader));
    do {
        TRY(codec_read_segment(codec, &reader, &delta, &count));
        size->delta += outer_square_sum(delta, NULL, count);
    } while (count > 0);
    if (momentum != NULL)
        size->momentum = part_cut_square_sum(&(struct vec_source){.minuend = momentum}, &share);
    return ERR_OK;
}

double replica_norm(const struct replica *replica, uint32_t f)
{
    return sqrt(
        outer_square_sum(replica->fragments[f].anchor, NULL, (size_t)replica->conf.plan->fragments[f].values_count));
}

enum { LEAVES_A_PIECE = 32 };

enum err replica_hash_begin(struct replica *replica, uint32_t f, struct replica_hashing *h)
{
    const struct replica_fragment *fragment = &replica->fragments[f];
    const struct dedup *counted = &fragment->counted;
    const size_t values_bytes = (size_t)replica->conf.plan->fragments[f].values_count * sizeof(float);
    *h = (struct replica_hashing){.fragment = f, .values_bytes = values_bytes, .rows_count = counted->count};
    TRY(mem_new(dedup_bytes(counted), 1, "a version hash", &h->rows));
    dedup_pack(counted, h->rows);
    h->spans[0] = (struct digest_span){fragment->anchor, values_bytes};
    h->spans[1] = (struct digest_span){fragment->momentum, fragment->momentum != NULL ? values_bytes : 0};
    h->spans[2] = (struct digest_span){h->rows, dedup_bytes(counted)};
    h->bytes = h->spans[0].bytes + h->spans[1].bytes + h->spans[2].bytes;
    h->leaves_count = digest_tree_leaves(h->bytes);
    h->pieces = (h->leaves_count + LEAVES_A_PIECE - 1) / LEAVES_A_PIECE;
    return mem_new(h->leaves_count, sizeof *h->leaves, "a version hash", &h->leaves);
}

void replica_hash_piece(struct replica_hashing *h, size_t i)
{
    size_t first = i * LEAVES_A_PIECE, left = h->leaves_count - first;
    digest_tree_spans(h->spans, sizeof h->spans / sizeof *h->spans, first,
                      left < LEAVES_A_PIECE ? left : LEAVES_A_PIECE, h->leaves + first);
}

struct digest replica_hash_end(struct replica_hashing *h, uint64_t version, uint64_t step)
{
    const struct vhash_subject subject = {h->fragment, h->spans[1].bytes > 0,           version,
                                          step,        h->values_bytes / sizeof(float), h->rows_count};
    const struct digest root = digest_tree_root(h->leaves, h->leaves_count, h->bytes);
    return vhash_root(&subject, &root);
}

void replica_hash_deinit(struct replica_hashing *h)
{
    mem_free(h->rows);
    mem_free(h->leaves);
}

enum err replica_hash(struct replica *replica, uint32_t f, uint64_t version, uint64_t step, struct digest *hash)
{
    struct replica_hashing h;
    enum err err = replica_hash_begin(replica, f, &h);
    for (size_t i = 0; err == ERR_OK && i < h.pieces; i++)
        replica_hash_piece(&h, i);
    if (err == ERR_OK)
        *hash = replica_hash_end(&h, version, step);
    replica_hash_deinit(&h);
    return err;
}

struct dedup *replica_counted(struct replica *replica, uint32_t f)
{
    return &replica->fragments[f].counted;
}

void replica_judge(struct replica *replica, uint32_t f, uint64_t version)
{
    uint64_t values[PLAN_SHARDS_MAX] = {0};
    for (uint32_t s = 0; s < replica->conf.plan->fragments[f].shards_count; s++) {
        struct plan_shard shard = plan_shard(replica->conf.plan, f, s);
        values[s] = shard.end - shard.begin;
    }
    dedup_judge(replica_counted(replica, f), version, values);
}

void replica_clear_residuals(struct replica *replica, uint32_t f)
{
    struct replica_fragment *fragment = &replica->fragments[f];
    if (fragment->residual != NULL)
        mem_pages_clear(fragment->residual, (size_t)replica->conf.plan->fragments[f].values_count * sizeof(float));
    if (fragment->owner_residual.values != NULL)
        mem_pages_clear(fragment->owner_residual.values, fragment->owner_residual.count * sizeof(float));
}

void replica_clear(struct replica *replica, uint32_t f)
{
    struct replica_fragment *fragment = &replica->fragments[f];
    size_t bytes = (size_t)replica->conf.plan->fragments[f].values_count * sizeof(float);
    mem_pages_clear(fragment->anchor, bytes);
    if (fragment->momentum != NULL)
        mem_pages_clear(fragment->momentum, bytes);
    dedup_clear(&fragment->counted);
    replica_clear_residuals(replica, f);
}

/* ---- our contribution to one part, in pieces ---- */

void replica_encode_begin(struct replica *replica, uint32_t f, uint64_t shards, const float *base, const float *theta,
                          struct codec *codec, uint8_t *frame, struct replica_encoding *out)
{
    struct replica_fragment *fragment = &replica->fragments[f];
    *out = (struct replica_encoding){.replica = replica,
                                     .fragment = f,
                                     .cut = find_cut(fragment, shards),
                                     .source = {.minuend = base, .subtrahend = theta, .residual = fragment->residual},
                                     .left = fragment->pending,
                                     .writer = codec_write_begin(frame)};
    assert(out->cut != NULL); /* replica_cut() was not told of it */
    part_cut_adapt(out->cut, &replica->conf.choice, &out->source, codec);
}

/* Each piece is encoded into a place of its own, as far behind what is written as those before it can get. Adaptive
 * codecs are chosen by what they make of the values, and may get further than a frame has room for with others: one
 * after the other. */
void replica_encode_next(struct replica_encoding *e)
{
    for (size_t i = 0; i < e->pieces; i++)
        codec_write_take(&e->writer, &e->piece[i].writer);
    size_t place = e->writer.at, most = e->replica->conf.adaptive ? 1 : REPLICA_PIECES;
    for (e->pieces = 0; e->pieces < most; e->pieces++) {
        struct encoding_piece *piece = &e->piece[e->pieces];
        *piece = (struct encoding_piece){.failed = false};
        if (!part_cut_next(e->cut, &e->place, &piece->part))
            return;
        piece->writer = codec_write_at(e->writer.frame, place);
        place += codec_part_bytes_max(&piece->part);
    }
}

enum err replica_encode_piece(struct replica_encoding *e, size_t i, struct codec *codec)
{
    struct encoding_piece *piece = &e->piece[i];
    enum err err = codec_write(codec, &piece->writer, &piece->part, &e->source, e->left, &piece->fault);
    piece->failed = err != ERR_OK;
    return err;
}

/* The first piece that something is wrong with. */
static enum err tell_fault(const struct replica_encoding *e, enum err err)
{
    size_t i = 0;
    while (i + 1 < e->pieces && !e->piece[i].failed)
        i++;
    size_t fault = e->piece[i].fault;
    const struct plan_tensor *tensor = plan_tensor_at(e->replica->conf.plan, e->fragment, fault);
    return err_set(err,
                   "tensor %s holds NaN or Inf (near value %" PRIu64 "): fragment %" PRIu32
                   " is not contributed and will be reset to the next anchor; lower the learning rate",
                   tensor != NULL ? tensor->name : "(padding)", tensor != NULL ? fault - tensor->offset : 0,
                   e->fragment);
}

static void restrain(struct replica_encoding *e, uint64_t tokens)
{
    struct replica_fragment *fragment = &e->replica->fragments[e->fragment];
    const struct restraint rule = restraint_of(e->replica, fragment);
    struct plan_share share;
    plan_share(e->replica->conf.plan, e->fragment, e->cut->shards, &share);
    double norm = rule.limit > 0 ? sqrt(part_cut_square_sum(&e->source, &share)) : 0;
    if (part_cut_restrain(e->cut, &rule, norm, (double)tokens, &share, e->left))
        atomic_fetch_add(&fragment->cut_down, 1);
}

enum err replica_encode_end(struct replica_encoding *e, enum err err, uint64_t tokens, size_t *frame_bytes)
{
    if (err == ERR_NONFINITE)
        return tell_fault(e, err);
    if (err != ERR_OK)
        return err;
    *frame_bytes = codec_write_end(&e->writer);
    if (e->left != NULL)
        restrain(e, tokens);
    return ERR_OK;
}

enum err replica_encode(struct replica *replica, uint32_t f, uint64_t shards, const float *base, const float *theta,
                        uint64_t tokens, struct codec *codec, uint8_t *frame, size_t *frame_bytes)
{
    struct replica_encoding e;
    enum err err = ERR_OK;
    replica_encode_begin(replica, f, shards, base, theta, codec, frame, &e);
    for (replica_encode_next(&e); err == ERR_OK && e.pieces > 0;) {
        for (size_t i = 0; err == ERR_OK && i < e.pieces; i++)
            err = replica_encode_piece(&e, i, codec);
        if (err == ERR_OK)
            replica_encode_next(&e);
    }
    return replica_encode_end(&e, err, tokens, frame_bytes);
}

/* ---- the mean of contributions to our own part, and its encoding, in pieces ---- */

static struct replica_fragment *fragment_of(const struct replica_reducing *r)
{
    return &r->replica->fragments[r->fragment];
}

enum err replica_reduce_begin(struct replica *replica, uint32_t f, struct mean_input *inputs, size_t inputs_count,
                              uint8_t *frame, struct replica_reducing *out)
{
    struct replica_fragment *fragment = &replica->fragments[f];
    struct packed *left = &fragment->owner_pending;
    assert(fragment->own.shards != 0);
    *out = (struct replica_reducing){.replica = replica,
                                     .fragment = f,
                                     .stage = REDUCING_BEGUN,
                                     .inputs = inputs,
                                     .inputs_count = inputs_count,
                                     .count = replica_values(replica, f, fragment->own.shards),
                                     .residual = fragment->owner_residual.values,
                                     .left = left->values,
                                     .writer = codec_write_begin(frame)};
    fragment->owner_made = false;
    TRY(mean_begin(&fragment->mean, &replica->conf.outliers, inputs, inputs_count, out->count, &out->bad));
    if (inputs_count > 0 && inputs[0].by_shard != NULL)
        mean_weigh_shards(&fragment->mean, replica->conf.plan, f, fragment->own.shards);
    if (fragment->owner_residual.shards != fragment->own.shards) { /* it has others between them */
        packed_copy(replica->conf.plan, f, &fragment->owner_residual, left);
        out->residual = left->values;
    }
    return ERR_OK;
}

/* ---- cutting ---- */

static bool cut_reducing(struct replica_reducing *r, struct reducing_piece *piece)
{
    *piece = (struct reducing_piece){.bad = 0};
    if (!part_cut_next(&fragment_of(r)->own, &r->place, &piece->part))
        return false;
    piece->at = piece->part.at;
    piece->part.at = 0;
    return true;
}

/* The next pieces. Each is encoded into a place of its own, as far behind what is written as those before it can get.
 */
static enum err cut_pieces(struct replica_reducing *r)
{
    struct mean *mean = &fragment_of(r)->mean;
    size_t place = r->writer.at;
    for (r->pieces = 0; r->pieces < mean_places(mean) && cut_reducing(r, &r->piece[r->pieces]); r->pieces++) {
        struct reducing_piece *piece = &r->piece[r->pieces];
        TRY(mean_place(mean, r->pieces, (size_t)piece->part.count, &r->bad));
        piece->writer = codec_write_at(r->writer.frame, place);
        place += codec_part_bytes_max(&piece->part);
    }
    return ERR_OK;
}

/* What was made of the last ones, in their order, so that its bits do not depend on threads. */
static void gather_pieces(struct replica_reducing *r)
{
    for (size_t i = 0; i < r->pieces; i++) {
        r->square_sum += r->piece[i].square_sum;
        codec_write_take(&r->writer, &r->piece[i].writer);
    }
    mean_gather(&fragment_of(r)->mean);
}

enum err replica_reduce_next(struct replica_reducing *r)
{
    struct mean *mean = &fragment_of(r)->mean;
    if (r->stage == REDUCING_BEGUN) {
        r->stage = REDUCING_LOOKS;
        r->pieces = mean_looks(mean);
        if (r->pieces > 0)
            return ERR_OK;
    }
    if (r->stage == REDUCING_LOOKS) {
        mean_judge(mean);
        r->stage = REDUCING_MAKES;
        r->pieces = 0;
        if (r->replica->conf.adaptive) { /* codecs are chosen by all of it */
            r->pieces = 1;
            return mean_place(mean, 0, r->count, &r->bad);
        }
    }
    if (r->replica->conf.adaptive)
        r->pieces = 0;
    else {
        gather_pieces(r);
        return cut_pieces(r);
    }
    return ERR_OK;
}

/* ---- making ---- */

static enum err encode_piece(const struct replica_reducing *r, struct reducing_piece *piece, const float *mean,
                             struct codec *codec, struct codec_writer *writer)
{
    size_t fault;
    const struct vec_source source = {.minuend = mean,
                                      .residual = r->residual != NULL ? r->residual + piece->at : NULL};
    piece->square_sum = outer_square_sum(mean, NULL, (size_t)piece->part.count);
    return codec_write(codec, writer, &piece->part, &source, r->left != NULL ? r->left + piece->at : NULL, &fault);
}

/* Adaptive: the mean whole, and its parts one after the other. */
static enum err make_whole(struct replica_reducing *r, struct codec *codec, float *scratch)
{
    struct replica_fragment *fragment = fragment_of(r);
    struct reducing_piece piece;
    TRY(mean_read(&fragment->mean, 0, codec, scratch, r->count, &r->piece[0].bad));
    const struct vec_source source = {.minuend = scratch, .residual = r->residual};
    part_cut_adapt(&fragment->own, &r->replica->conf.choice, &source, codec);
    while (cut_reducing(r, &piece)) {
        TRY(encode_piece(r, &piece, scratch + piece.at, codec, &r->writer));
        r->square_sum += piece.square_sum;
    }
    return ERR_OK;
}

static enum err make_piece(struct replica_reducing *r, size_t i, struct codec *codec, float *scratch)
{
    struct reducing_piece *piece = &r->piece[i];
    TRY(mean_read(&fragment_of(r)->mean, i, codec, scratch, (size_t)piece->part.count, &piece->bad));
    return encode_piece(r, piece, scratch, codec, &piece->writer);
}

enum err replica_reduce_piece(struct replica_reducing *r, size_t i, struct codec *codec, float *scratch)
{
    if (r->stage == REDUCING_LOOKS)
        return mean_look(&fragment_of(r)->mean, i, codec);
    enum err err = r->replica->conf.adaptive ? make_whole(r, codec, scratch) : make_piece(r, i, codec, scratch);
    r->piece[i].failed = err != ERR_OK;
    return err;
}

/* ---- the end ---- */

/* The first input that something is wrong with. */
static size_t first_bad(const struct replica_reducing *r)
{
    if (r->stage == REDUCING_LOOKS)
        return mean_looked_bad(&fragment_of(r)->mean);
    for (size_t i = 0; r->stage == REDUCING_MAKES && i < r->pieces; i++)
        if (r->piece[i].failed)
            return r->piece[i].bad;
    return r->bad;
}

enum err replica_reduce_end(struct replica_reducing *r, enum err err, struct codec *codec, size_t *frame_bytes,
                            size_t *bad)
{
    struct replica_fragment *fragment = fragment_of(r);
    struct plan_share all = {.runs_count = r->count > 0, .values_count = r->count, .run = {{.end = r->count}}};
    if (err == ERR_NONFINITE) {
        *bad = mean_culprit(r->inputs, r->inputs_count, r->count, codec);
        return err_set(err, "it holds NaN, Inf or numbers that make the mean larger than the codec can hold");
    }
    if (err != ERR_OK) {
        *bad = first_bad(r);
        return err;
    }
    *frame_bytes = codec_write_end(&r->writer);
    mean_gather(&fragment->mean); /* with adaptive codecs it is one piece */
    mean_cosines(&fragment->mean);
    const struct restraint rule = restraint_of(r->replica, fragment);
    double tokens = mean_weight(r->inputs, r->inputs_count);
    if (r->left != NULL && part_cut_restrain(&fragment->own, &rule, sqrt(r->square_sum), tokens, &all, r->left))
        atomic_fetch_add(&fragment->cut_down, 1);
    fragment->owner_made = r->left != NULL;
    return ERR_OK;
}

enum err replica_reduce(struct replica *replica, uint32_t f, struct mean_input *inputs, size_t inputs_count,
                        struct codec *codec, float *scratch, uint8_t *frame, size_t *frame_bytes, size_t *bad)
{
    struct replica_reducing r;
    enum err err = replica_reduce_begin(replica, f, inputs, inputs_count, frame, &r);
    while (err == ERR_OK && (err = replica_reduce_next(&r)) == ERR_OK && r.pieces > 0)
        for (size_t i = 0; err == ERR_OK && i < r.pieces; i++)
            err = replica_reduce_piece(&r, i, codec, scratch);
    return replica_reduce_end(&r, err, codec, frame_bytes, bad);
}

/* ---- one outer step on some shards, in pieces ---- */

enum err replica_apply_begin(struct replica *replica, uint32_t f, uint64_t shards, const struct outer_round *round,
                             const uint8_t *frame, size_t frame_bytes, struct replica_applying *out)
{
    *out = (struct replica_applying){.replica = replica, .fragment = f, .round = *round};
    plan_share(replica->conf.plan, f, shards, &out->share);
    /* It could be decoded when it came; if these are the same bytes, no part of it stays undone. */
    TRY(codec_intact(frame, frame_bytes));
    return codec_read_begin(frame, frame_bytes, (size_t)out->share.values_count, &out->reader);
}

/* A piece ends with a segment, so that none is decoded twice. */
static enum err cut_applying(struct replica_applying *a, struct applying_piece *piece)
{
    size_t count;
    *piece = (struct applying_piece){.reader = a->reader, .at = a->at};
    while (a->reader.values_left > 0 && piece->count < CODEC_SEGMENT) {
        TRY(codec_read_skip_segment(&a->reader, &count));
        piece->count += count;
    }
    a->at += piece->count;
    return ERR_OK;
}

enum err replica_apply_next(struct replica_applying *a)
{
    for (a->pieces = 0; a->pieces < REPLICA_PIECES && a->reader.values_left > 0; a->pieces++)
        TRY(cut_applying(a, &a->piece[a->pieces]));
    return a->pieces == 0 ? codec_read_end(&a->reader) : ERR_OK;
}

/* The run that value `*at` of the share lies in; `*at` becomes its place in the fragment. */
static const struct plan_shard *run_of(const struct plan_share *share, uint64_t *at)
{
    const struct plan_shard *run = share->run;
    uint64_t before = 0;
    for (; *at - before >= run->end - run->begin; run++)
        before += run->end - run->begin;
    *at = run->begin + (*at - before);
    return run;
}

enum err replica_apply_piece(struct replica_applying *a, size_t i, struct codec *codec)
{
    const struct replica_fragment *fragment = &a->replica->fragments[a->fragment];
    struct codec_reader reader = a->piece[i].reader;
    uint64_t at = a->piece[i].at;
    const struct plan_shard *run = run_of(&a->share, &at), *last = &a->share.run[a->share.runs_count - 1];
    for (size_t left = a->piece[i].count; left > 0;) {
        float *delta;
        size_t count;
        TRY(codec_read_segment(codec, &reader, &delta, &count));
        left -= count;
        while (count > 0) {
            size_t take = run->end - at < count ? (size_t)(run->end - at) : count;
            float *momentum = fragment->momentum != NULL ? fragment->momentum + at : NULL;
            outer_step(&a->replica->conf.outer, &a->round, fragment->anchor + at, momentum, delta, take);
            delta += take;
            count -= take;
            at += take;
            if (at == run->end && run != last)
                at = (++run)->begin;
        }
    }
    return ERR_OK;
}

enum err replica_apply(struct replica *replica, uint32_t f, uint64_t shards, const struct outer_round *round,
                       const uint8_t *frame, size_t frame_bytes, struct codec *codec)
{
    struct replica_applying a;
    enum err err = replica_apply_begin(replica, f, shards, round, frame, frame_bytes, &a);
    while (err == ERR_OK && (err = replica_apply_next(&a)) == ERR_OK && a.pieces > 0)
        for (size_t i = 0; err == ERR_OK && i < a.pieces; i++)
            err = replica_apply_piece(&a, i, codec);
    return err;
}
