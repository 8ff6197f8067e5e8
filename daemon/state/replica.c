#include "daemon/state/replica.h"

#include <inttypes.h>
#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "common/mem.h"
#include "outer_opt/adapt.h"
#include "outer_opt/recipe.h"
#include "outer_opt/vhash.h"

enum { ADAPT_ROUNDS = 16 };

/* The usual size of an outer gradient: how many rounds are looked at first, how much of a fall is followed at once, and
 * the most that a rise is followed by. */
enum { USUAL_ROUNDS = 8 };
static const double usual_fall = 0.1, usual_rise = 1.01;

/* A share cut into parts, made once. */
struct share_parts {
    struct codec_part *parts;
    size_t parts_count;
    struct adapt *adapt; /* adaptive: chooses their codecs anew now and then */
    uint64_t encodings;
};

/* What residuals are held against: the norm of an outer gradient over the tokens behind it. */
struct usual {
    double norm_per_token;
    uint32_t rounds; /* of those looked at first */
};

struct fragment {
    struct share_parts *shares; /* of our contributions, by owner */
    struct share_parts result;  /* of our results */
    float *anchor, *momentum, *residual, *pending;
    float *owner_residual, *owner_pending;
    struct usual *usual;          /* of our contributions, by owner; then of our results */
    _Atomic bool settled;         /* the run's warm-up is over */
    _Atomic uint64_t cuts;        /* of residuals; jobs of several shares count */
    struct outlier_score *scores; /* of the members, on our share */
    float *decoded;               /* trimmed means and medians: every member's contribution to our share */
};

struct replica {
    struct replica_conf conf;
    struct recipe *recipe;
    struct fragment *fragments;
};

static bool has_momentum(const struct replica_conf *conf)
{
    return conf->outer.kind != OUTER_AVERAGE;
}

/* Whether means are taken value by value over all contributions at once. */
static bool by_value(const struct replica_conf *conf)
{
    return conf->outliers.action == OUTLIER_TRIMMED || conf->outliers.action == OUTLIER_MEDIAN;
}

static size_t share_values(const struct replica_conf *conf, uint32_t f, uint32_t member)
{
    struct plan_share share;
    plan_share(conf->plan, f, &conf->map, member, &share);
    return (size_t)share.values_count;
}

static size_t run_values(const struct plan_shard *run)
{
    return (size_t)(run->end - run->begin);
}

/* Of our contributions to every share, and of our results. */
static size_t usual_count(const struct replica_conf *conf)
{
    return (size_t)conf->members_count + 1;
}

/* Parts that a share is cut into: tensors, whose last block may lie apart, as far as they lie in each run. */
static size_t share_tensors(const struct replica_conf *conf, uint32_t f, uint32_t member)
{
    struct plan_share share;
    size_t count = 0;
    plan_share(conf->plan, f, &conf->map, member, &share);
    for (uint32_t i = 0; i < conf->plan->tensors_count; i++) {
        const struct plan_tensor *tensor = &conf->plan->tensors[i];
        uint64_t end = tensor->offset + (tensor->count + PLAN_BLOCK - 1) / PLAN_BLOCK * PLAN_BLOCK;
        for (uint32_t r = 0; tensor->fragment == f && r < share.runs_count; r++)
            count += tensor->offset < share.run[r].end && end > share.run[r].begin;
    }
    return count;
}

/* Every share, and our result, chooses codecs for the tensors it holds. */
static uint64_t choices_bytes(const struct replica_conf *conf, uint32_t f)
{
    uint64_t bytes = adapt_bytes(share_tensors(conf, f, conf->self));
    for (uint32_t i = 0; i < conf->members_count; i++)
        bytes += adapt_bytes(share_tensors(conf, f, i));
    return bytes;
}

uint64_t replica_bytes(const struct replica_conf *conf)
{
    uint64_t values = 0, rest = 0;
    for (uint32_t f = 0; f < conf->plan->fragments_count; f++) {
        uint64_t count = conf->plan->fragments[f].values_count;
        values += count * (1 + has_momentum(conf) + 2 * conf->error_feedback);
        if (conf->error_feedback)
            values += 2 * share_values(conf, f, conf->self);
        if (by_value(conf))
            values += conf->members_count * share_values(conf, f, conf->self);
        if (conf->adaptive)
            rest += choices_bytes(conf, f);
        if (conf->error_feedback)
            rest += usual_count(conf) * sizeof(struct usual);
    }
    return values * sizeof(float) + rest + recipe_bytes(conf->plan, &conf->choice);
}

static enum err cut_parts(struct replica *replica, enum recipe_role role, uint32_t f, uint32_t member,
                          struct codec_part *scratch, struct share_parts *out)
{
    struct plan_share share;
    replica_share(replica, f, member, &share);
    out->parts_count = recipe_parts(replica->recipe, role, f, &share, scratch);
    if (out->parts_count == 0)
        return ERR_OK;
    TRY(mem_new(out->parts_count, sizeof *out->parts, "the recipe", &out->parts));
    if (replica->conf.adaptive)
        TRY(adapt_new(out->parts_count, &out->adapt));
    memcpy(out->parts, scratch, out->parts_count * sizeof *out->parts);
    return ERR_OK;
}

static enum err cut_fragment(struct replica *replica, uint32_t f, struct codec_part *scratch)
{
    struct fragment *fragment = &replica->fragments[f];
    TRY(mem_new(replica->conf.members_count, sizeof *fragment->shares, "the recipe", &fragment->shares));
    for (uint32_t i = 0; i < replica->conf.members_count; i++)
        TRY(cut_parts(replica, RECIPE_CONTRIBUTION, f, i, scratch, &fragment->shares[i]));
    return cut_parts(replica, RECIPE_RESULT, f, replica->conf.self, scratch, &fragment->result);
}

static enum err cut_all(struct replica *replica)
{
    enum err err = ERR_OK;
    struct codec_part *scratch;
    TRY(recipe_new(replica->conf.plan, &replica->conf.choice, replica->conf.adaptive, &replica->recipe));
    TRY(mem_new(recipe_parts_max(replica->recipe), sizeof *scratch, "the recipe", &scratch));
    for (uint32_t f = 0; err == ERR_OK && f < replica->conf.plan->fragments_count; f++)
        err = cut_fragment(replica, f, scratch);
    mem_free(scratch);
    return err;
}

static enum err alloc_state(struct replica *replica, uint32_t f)
{
    struct fragment *fragment = &replica->fragments[f];
    size_t count = (size_t)replica->conf.plan->fragments[f].values_count;
    TRY(mem_new(count, sizeof(float), "the anchor", &fragment->anchor));
    return has_momentum(&replica->conf) ? mem_new(count, sizeof(float), "the outer momentum", &fragment->momentum)
                                        : ERR_OK;
}

static enum err alloc_fragment(struct replica *replica, uint32_t f)
{
    const struct replica_conf *conf = &replica->conf;
    struct fragment *fragment = &replica->fragments[f];
    size_t count = (size_t)conf->plan->fragments[f].values_count;
    size_t owned = share_values(conf, f, conf->self);
    TRY(alloc_state(replica, f));
    TRY(mem_new(conf->members_count, sizeof *fragment->scores, "scores", &fragment->scores));
    if (by_value(conf))
        TRY(mem_new(owned * conf->members_count, sizeof(float), "contributions", &fragment->decoded));
    if (!conf->error_feedback)
        return ERR_OK;
    TRY(mem_new(usual_count(conf), sizeof *fragment->usual, "usual sizes", &fragment->usual));
    TRY(mem_new(count, sizeof(float), "the residual", &fragment->residual));
    TRY(mem_new(count, sizeof(float), "the pending residual", &fragment->pending));
    TRY(mem_new(owned, sizeof(float), "the owner's residual", &fragment->owner_residual));
    return mem_new(owned, sizeof(float), "the owner's pending residual", &fragment->owner_pending);
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
    TRY_OUT(cut_all(replica));
out:
    if (err != ERR_OK)
        replica_free(replica);
    else
        *out = replica;
    return err;
}

static void free_parts(struct share_parts *cut)
{
    mem_free(cut->parts);
    adapt_free(cut->adapt);
}

void replica_free(struct replica *replica)
{
    if (replica == NULL)
        return;
    for (uint32_t f = 0; replica->fragments != NULL && f < replica->conf.plan->fragments_count; f++) {
        struct fragment *fragment = &replica->fragments[f];
        mem_free(fragment->anchor);
        mem_free(fragment->momentum);
        mem_free(fragment->residual);
        mem_free(fragment->pending);
        mem_free(fragment->owner_residual);
        mem_free(fragment->owner_pending);
        mem_free(fragment->scores);
        mem_free(fragment->usual);
        mem_free(fragment->decoded);
        free_parts(&fragment->result);
        for (uint32_t i = 0; fragment->shares != NULL && i < replica->conf.members_count; i++)
            free_parts(&fragment->shares[i]);
        mem_free(fragment->shares);
    }
    recipe_free(replica->recipe);
    mem_free(replica->fragments);
    mem_free(replica);
}

void replica_share(const struct replica *replica, uint32_t f, uint32_t member, struct plan_share *out)
{
    plan_share(replica->conf.plan, f, &replica->conf.map, member, out);
}

size_t replica_share_values(const struct replica *replica, uint32_t f, uint32_t member)
{
    return share_values(&replica->conf, f, member);
}

size_t replica_own_values(const struct replica *replica, uint32_t f)
{
    return share_values(&replica->conf, f, replica->conf.self);
}

uint32_t replica_owner(const struct replica *replica, uint32_t f, uint32_t shard)
{
    return replica->conf.map.owner[shardmap_slot(f, replica->conf.plan->fragments[f].shards_count, shard)];
}

struct bitset replica_owners(const struct replica *replica, uint32_t f)
{
    struct bitset owners = {{0}};
    for (uint32_t i = 0; i < replica->conf.members_count; i++)
        if (share_values(&replica->conf, f, i) > 0)
            bitset_add(&owners, i);
    return owners;
}

size_t replica_share_max(const struct replica *replica)
{
    size_t most = 0;
    for (uint32_t f = 0; f < replica->conf.plan->fragments_count; f++) {
        for (uint32_t i = 0; i < replica->conf.members_count; i++) {
            size_t count = share_values(&replica->conf, f, i);
            most = count > most ? count : most;
        }
    }
    return most;
}

size_t replica_frame_bytes_max(const struct replica *replica, uint32_t f, uint32_t member)
{
    struct plan_share share;
    replica_share(replica, f, member, &share);
    return recipe_frame_bytes_max(replica->conf.plan, &replica->conf.choice, f, &share);
}

size_t replica_factor_values(const struct replica *replica)
{
    return recipe_factor_values_max(replica->conf.plan, &replica->conf.choice);
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

float *replica_owner_residual(struct replica *replica, uint32_t f)
{
    return replica->fragments[f].owner_residual;
}

/* Sum of squares of what is encoded, before residuals. */
static double square_sum(const struct vec_source *source, const struct plan_share *share)
{
    double sum = 0;
    for (uint32_t r = 0; r < share->runs_count; r++) {
        const struct plan_shard *run = &share->run[r];
        sum += outer_square_sum(source->minuend + run->begin,
                                source->subtrahend != NULL ? source->subtrahend + run->begin : NULL, run_values(run));
    }
    return sum;
}

/* An array of our share's values alone. */
static struct plan_share packed(size_t count)
{
    return (struct plan_share){.runs_count = count > 0, .values_count = count, .run = {{.end = count}}};
}

static enum err encode(const struct replica *replica, struct share_parts *cut, const struct vec_source *source,
                       struct codec *codec, float *left, uint8_t *frame, size_t *frame_bytes, size_t *fault)
{
    /* A choice that could not be made (NaN) leaves the one before; encoding then says what is wrong. */
    if (cut->adapt != NULL && cut->encodings++ % ADAPT_ROUNDS == 0)
        (void)!adapt_parts(cut->adapt, codec, &replica->conf.choice, source, cut->parts, cut->parts_count);
    return codec_encode(codec, cut->parts, cut->parts_count, source, left, frame, frame_bytes, fault);
}

/* Takes note of an outer gradient of this norm, and returns the norm that residuals are held against. It is never more
 * than either the outer gradient itself or what is usual for these tokens. While residuals are cut it does not rise: in
 * a run that diverges, residual and outer gradient drive each other up. */
static double note_usual(struct usual *usual, bool settled, double norm, double tokens, bool cut)
{
    double rate = norm / tokens;
    if (tokens <= 1) /* nothing new was trained */
        return norm;
    if (!settled || usual->rounds < USUAL_ROUNDS)
        usual->norm_per_token = rate;
    else if (rate < usual->norm_per_token)
        usual->norm_per_token += usual_fall * (rate - usual->norm_per_token);
    else if (!cut)
        usual->norm_per_token = fmin(rate, usual_rise * usual->norm_per_token);
    usual->rounds += settled && usual->rounds < USUAL_ROUNDS;
    return fmin(norm, usual->norm_per_token * tokens);
}

/* A residual that is large beside the outer gradient is mostly old: with outer momentum it feeds itself (measured,
 * docs/ARCHITECTURE.md). It is cut down, and less of it kept. */
static void restrain(const struct replica_conf *conf, struct fragment *fragment, struct usual *usual, float *left,
                     const struct vec_source *meant, double tokens, const struct plan_share *share)
{
    double factor = (double)conf->feedback_decay;
    if (conf->feedback_limit > 0) {
        double limit = (double)conf->feedback_limit;
        double norm = sqrt(square_sum(meant, share));
        double residual = factor * sqrt(square_sum(&(struct vec_source){.minuend = left}, share));
        double most = limit * note_usual(usual, atomic_load(&fragment->settled), norm, tokens, residual > limit * norm);
        if (residual > most) {
            factor *= most / residual;
            atomic_fetch_add(&fragment->cuts, 1);
        }
    }
    for (uint32_t r = 0; factor < 1 && r < share->runs_count; r++)
        outer_scale(left + share->run[r].begin, run_values(&share->run[r]), (float)factor);
}

void replica_settle(struct replica *replica, uint32_t f)
{
    atomic_store(&replica->fragments[f].settled, true);
}

uint64_t replica_feedback_cuts(const struct replica *replica, uint32_t f)
{
    return atomic_load(&replica->fragments[f].cuts);
}

enum err replica_encode(struct replica *replica, uint32_t f, uint32_t member, const float *base, const float *theta,
                        uint64_t tokens, struct codec *codec, uint8_t *frame, size_t *frame_bytes)
{
    struct fragment *fragment = &replica->fragments[f];
    struct plan_share share;
    size_t fault = 0;
    struct vec_source source = {.minuend = base, .subtrahend = theta, .residual = fragment->residual};
    replica_share(replica, f, member, &share);
    enum err err =
        encode(replica, &fragment->shares[member], &source, codec, fragment->pending, frame, frame_bytes, &fault);
    if (err == ERR_OK && fragment->pending != NULL)
        restrain(&replica->conf, fragment, &fragment->usual[member], fragment->pending, &source, (double)tokens,
                 &share);
    if (err == ERR_NONFINITE) {
        const struct plan_tensor *tensor = plan_tensor_at(replica->conf.plan, f, fault);
        return err_set(err,
                       "tensor %s holds NaN or Inf (near value %" PRIu64 "): fragment %" PRIu32
                       " is not contributed and will be reset to the next anchor; lower the learning rate",
                       tensor != NULL ? tensor->name : "(padding)", tensor != NULL ? fault - tensor->offset : 0, f);
    }
    return err;
}

/* Which input made the mean too large to encode: the one with the largest magnitude, NaN and Inf above all. */
static size_t largest_input(const struct replica_input *inputs, size_t inputs_count, struct codec *codec,
                            float *scratch, size_t count)
{
    size_t worst = 0;
    float most = -1;
    for (size_t i = 0; i < inputs_count; i++) {
        if (codec_decode(codec, inputs[i].frame, inputs[i].bytes, scratch, count) != ERR_OK)
            return i;
        for (size_t k = 0; k < count; k++) {
            if (!isfinite(scratch[k]))
                return i;
            if (fabsf(scratch[k]) > most) {
                most = fabsf(scratch[k]);
                worst = i;
            }
        }
    }
    return worst;
}

/* Trimmed mean or median; no weights. */
static enum err mean_by_value(const struct replica *replica, struct fragment *fragment, struct replica_input *inputs,
                              size_t inputs_count, size_t count, struct codec *codec, float *mean, size_t *bad)
{
    const struct outlier_conf *conf = &replica->conf.outliers;
    const float *decoded[PLAN_SHARDS_MAX];
    for (size_t i = 0; i < inputs_count; i++) {
        float *values = fragment->decoded + i * count;
        *bad = i;
        TRY(codec_decode(codec, inputs[i].frame, inputs[i].bytes, values, count));
        decoded[i] = values;
        inputs[i].factor = 1;
    }
    uint32_t trim = conf->action == OUTLIER_MEDIAN ? PLAN_SHARDS_MAX : conf->trim;
    outlier_trimmed_mean(decoded, inputs_count, trim, mean, count);
    return ERR_OK;
}

/* The median of the inputs' weights. */
static float usual_weight(const struct replica_input *inputs, size_t inputs_count)
{
    float usual = 0;
    for (size_t i = 0; i < inputs_count; i++) {
        size_t lighter = 0;
        for (size_t k = 0; k < inputs_count; k++)
            lighter += inputs[k].weight < inputs[i].weight || (inputs[k].weight == inputs[i].weight && k < i);
        if (lighter == inputs_count / 2)
            usual = inputs[i].weight;
    }
    return usual;
}

/* Looks at every contribution by itself first. One that comes after an absence holds the work of several rounds: it may
 * be that many times larger, and is no outlier for it. */
static enum err judge(const struct replica *replica, struct fragment *fragment, struct replica_input *inputs,
                      size_t inputs_count, size_t count, struct codec *codec, float *scratch, size_t *bad)
{
    struct outlier_score *scores[PLAN_SHARDS_MAX];
    double squares[PLAN_SHARDS_MAX] = {0};
    float factors[PLAN_SHARDS_MAX];
    float usual = usual_weight(inputs, inputs_count);
    for (size_t i = 0; i < inputs_count; i++) {
        *bad = i;
        TRY(codec_decode(codec, inputs[i].frame, inputs[i].bytes, scratch, count));
        double rounds = inputs[i].weight > usual && usual > 0 ? (double)(inputs[i].weight / usual) : 1;
        squares[i] = outer_square_sum(scratch, NULL, count) / (rounds * rounds);
        scores[i] = &fragment->scores[inputs[i].member];
    }
    outlier_judge(&replica->conf.outliers, scores, squares, inputs_count, factors);
    for (size_t i = 0; i < inputs_count; i++)
        inputs[i].factor = factors[i];
    return ERR_OK;
}

static enum err weighted_mean(const struct replica *replica, struct fragment *fragment, struct replica_input *inputs,
                              size_t inputs_count, size_t count, struct codec *codec, float *mean, size_t *bad)
{
    float weights[PLAN_SHARDS_MAX];
    for (size_t i = 0; i < inputs_count; i++)
        inputs[i].factor = 1;
    if (replica->conf.outliers.action != OUTLIER_KEEP && inputs_count >= OUTLIER_INPUTS_MIN)
        TRY(judge(replica, fragment, inputs, inputs_count, count, codec, mean, bad));
    memset(mean, 0, count * sizeof *mean);
    for (size_t i = 0; i < inputs_count; i++) {
        *bad = i;
        /* One scaled down keeps its weight in the mean; one left out has none. */
        weights[i] = inputs[i].factor > 0 ? inputs[i].weight : 0;
        if (inputs[i].factor > 0)
            TRY(codec_decode_add(codec, inputs[i].frame, inputs[i].bytes, inputs[i].weight * inputs[i].factor, mean,
                                 count));
    }
    outer_mean_finish(mean, count, weights, inputs_count);
    return ERR_OK;
}

/* Tokens behind a mean, for one contribution. */
static double mean_weight(const struct replica_input *inputs, size_t inputs_count)
{
    double sum = 0;
    for (size_t i = 0; i < inputs_count; i++)
        sum += (double)inputs[i].weight;
    return sum / (double)inputs_count;
}

enum err replica_reduce(struct replica *replica, uint32_t f, struct replica_input *inputs, size_t inputs_count,
                        struct codec *codec, float *scratch, uint8_t *frame, size_t *frame_bytes, size_t *bad)
{
    struct fragment *fragment = &replica->fragments[f];
    size_t count = replica_own_values(replica, f);
    struct plan_share all = packed(count);
    size_t fault = 0;
    TRY((by_value(&replica->conf) ? mean_by_value : weighted_mean)(replica, fragment, inputs, inputs_count, count,
                                                                   codec, scratch, bad));
    struct vec_source source = {.minuend = scratch, .residual = fragment->owner_residual};
    enum err err =
        encode(replica, &fragment->result, &source, codec, fragment->owner_pending, frame, frame_bytes, &fault);
    if (err == ERR_OK && fragment->owner_pending != NULL)
        restrain(&replica->conf, fragment, &fragment->usual[replica->conf.members_count], fragment->owner_pending,
                 &source, mean_weight(inputs, inputs_count), &all);
    if (err != ERR_NONFINITE)
        return err;
    *bad = largest_input(inputs, inputs_count, codec, scratch, count);
    return err_set(err, "it holds NaN, Inf or numbers that make the mean larger than the codec can hold");
}

void replica_commit(struct replica *replica, uint32_t f, uint32_t member)
{
    struct fragment *fragment = &replica->fragments[f];
    struct plan_share share;
    replica_share(replica, f, member, &share);
    for (uint32_t r = 0; fragment->residual != NULL && r < share.runs_count; r++)
        memcpy(fragment->residual + share.run[r].begin, fragment->pending + share.run[r].begin,
               run_values(&share.run[r]) * sizeof(float));
}

void replica_commit_owner(struct replica *replica, uint32_t f)
{
    struct fragment *fragment = &replica->fragments[f];
    float *old = fragment->owner_residual;
    fragment->owner_residual = fragment->owner_pending;
    fragment->owner_pending = old;
}

enum err replica_apply(struct replica *replica, uint32_t f, uint32_t member, const struct outer_round *round,
                       const uint8_t *frame, size_t frame_bytes, enum replica_residual_rule rule, struct codec *codec,
                       float *scratch)
{
    struct fragment *fragment = &replica->fragments[f];
    struct plan_share share;
    replica_share(replica, f, member, &share);
    TRY(codec_decode(codec, frame, frame_bytes, scratch, (size_t)share.values_count));
    for (uint32_t r = 0; r < share.runs_count; r++) {
        uint64_t begin = share.run[r].begin;
        size_t count = run_values(&share.run[r]);
        float *momentum = fragment->momentum != NULL ? fragment->momentum + begin : NULL;
        outer_step(&replica->conf.outer, round, fragment->anchor + begin, momentum, scratch, count);
        if (rule == REPLICA_CLEAR && fragment->residual != NULL)
            memset(fragment->residual + begin, 0, count * sizeof(float));
        scratch += count;
    }
    if (rule == REPLICA_MOVE)
        replica_commit(replica, f, member);
    return ERR_OK;
}

enum err replica_measure(struct replica *replica, uint32_t f, uint32_t member, const uint8_t *frame, size_t frame_bytes,
                         struct codec *codec, float *scratch, struct replica_size *size)
{
    const float *momentum = replica->fragments[f].momentum;
    struct plan_share share;
    replica_share(replica, f, member, &share);
    *size = (struct replica_size){0};
    TRY(codec_decode(codec, frame, frame_bytes, scratch, (size_t)share.values_count));
    size->delta = outer_square_sum(scratch, NULL, (size_t)share.values_count);
    if (momentum != NULL)
        size->momentum = square_sum(&(struct vec_source){.minuend = momentum}, &share);
    return ERR_OK;
}

double replica_norm(const struct replica *replica, uint32_t f)
{
    return sqrt(
        outer_square_sum(replica->fragments[f].anchor, NULL, (size_t)replica->conf.plan->fragments[f].values_count));
}

enum err replica_hash(struct replica *replica, uint32_t f, uint64_t version, struct digest *hash)
{
    const struct fragment *fragment = &replica->fragments[f];
    size_t count = (size_t)replica->conf.plan->fragments[f].values_count;
    size_t leaves = vhash_leaves(count);
    struct digest *digests;
    TRY(mem_new(2 * leaves, sizeof *digests, "a version hash", &digests));
    for (size_t i = 0; i < leaves; i++) {
        digests[i] = vhash_leaf(fragment->anchor, count, i);
        if (fragment->momentum != NULL)
            digests[leaves + i] = vhash_leaf(fragment->momentum, count, i);
    }
    *hash = vhash_root(f, version, count, digests, fragment->momentum != NULL ? digests + leaves : NULL);
    mem_free(digests);
    return ERR_OK;
}

void replica_clear_residuals(struct replica *replica, uint32_t f)
{
    struct fragment *fragment = &replica->fragments[f];
    size_t count = (size_t)replica->conf.plan->fragments[f].values_count;
    if (fragment->residual != NULL)
        memset(fragment->residual, 0, count * sizeof(float));
    if (fragment->owner_residual != NULL)
        memset(fragment->owner_residual, 0, replica_own_values(replica, f) * sizeof(float));
}

void replica_clear(struct replica *replica, uint32_t f)
{
    struct fragment *fragment = &replica->fragments[f];
    size_t bytes = (size_t)replica->conf.plan->fragments[f].values_count * sizeof(float);
    memset(fragment->anchor, 0, bytes);
    if (fragment->momentum != NULL)
        memset(fragment->momentum, 0, bytes);
    replica_clear_residuals(replica, f);
}
