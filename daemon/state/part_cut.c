/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/state/part_cut.h"

#include <math.h>
#include <string.h>

#include "common/mem.h"
#include "outer_opt/outer.h"

enum { ADAPT_ROUNDS = 16 };

/* The usual size of an outer gradient: how many rounds are looked at first, how much of a fall is followed at once, and
 * the most that a rise is followed by. */
enum { USUAL_ROUNDS = 8 };
static const double usual_fall = 0.1, usual_rise = 1.01;

static enum err cut_into(const struct recipe *recipe, enum recipe_role role, const struct plan_share *share, uint32_t f,
                         bool adaptive, struct codec_part *scratch, struct part_cut *out)
{
    out->parts_count = recipe_parts(recipe, role, f, share, scratch);
    if (out->parts_count == 0)
        return ERR_OK;
    TRY(mem_new(out->parts_count, sizeof *out->parts, "the recipe", &out->parts));
    memcpy(out->parts, scratch, out->parts_count * sizeof *out->parts);
    return adaptive ? adapt_new(out->parts_count, &out->adapt) : ERR_OK;
}

enum err part_cut_new(const struct recipe *recipe, enum recipe_role role, const struct plan *plan, uint32_t f,
                      uint64_t shards, bool adaptive, struct part_cut *out)
{
    struct codec_part *scratch;
    struct plan_share share;
    *out = (struct part_cut){.shards = shards};
    TRY(mem_new(recipe_parts_max(recipe), sizeof *scratch, "the recipe", &scratch));
    plan_share(plan, f, shards, &share);
    enum err err = cut_into(recipe, role, &share, f, adaptive, scratch, out);
    if (err != ERR_OK)
        part_cut_deinit(out);
    mem_free(scratch);
    return err;
}

void part_cut_deinit(struct part_cut *cut)
{
    mem_free(cut->parts);
    adapt_free(cut->adapt);
    *cut = (struct part_cut){0};
}

/* Stretches of tensors: each tensor, whose last block may lie apart, as far as it lies in each run. */
static uint64_t stretches(const struct plan *plan, uint32_t f, uint64_t shards)
{
    struct plan_share share;
    uint64_t count = 0;
    plan_share(plan, f, shards, &share);
    for (uint32_t i = 0; i < plan->tensors_count; i++) {
        const struct plan_tensor *tensor = &plan->tensors[i];
        uint64_t end = tensor->offset + (tensor->count + PLAN_BLOCK - 1) / PLAN_BLOCK * PLAN_BLOCK;
        for (uint32_t r = 0; tensor->fragment == f && r < share.runs_count; r++)
            count += tensor->offset < share.run[r].end && end > share.run[r].begin;
    }
    return count;
}

uint64_t part_cut_bytes(const struct plan *plan, uint32_t f, uint64_t shards, bool adaptive)
{
    uint64_t count = stretches(plan, f, shards);
    return sizeof(struct part_cut) + count * sizeof(struct codec_part) + (adaptive ? adapt_bytes(count) : 0);
}

void part_cut_adapt(struct part_cut *cut, const struct codec_choice *choice, const struct vec_source *source,
                    struct codec *codec)
{
    /* A choice that could not be made (NaN) leaves the one before; encoding then says what is wrong. */
    if (cut->adapt != NULL && cut->encodings++ % ADAPT_ROUNDS == 0)
        (void)!adapt_parts(cut->adapt, codec, choice, source, cut->parts, cut->parts_count);
}

bool part_cut_next(const struct part_cut *cut, struct part_cut_place *place, struct codec_part *out)
{
    if (place->part == cut->parts_count)
        return false;
    const struct codec_part *part = &cut->parts[place->part];
    uint64_t at = place->inside ? place->at : part->at, left = part->at + part->count - at;
    uint64_t most = codec_on_tensors(part->choice.id) ? left : CODEC_SEGMENT;
    *out = *part;
    out->at = at;
    out->count = left < most ? left : most;
    place->at = at + out->count;
    place->inside = out->count < left;
    place->part += !place->inside;
    return true;
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

double part_cut_square_sum(const struct vec_source *source, const struct plan_share *share)
{
    double sum = 0;
    for (uint32_t r = 0; r < share->runs_count; r++) {
        const struct plan_shard *run = &share->run[r];
        sum += outer_square_sum(source->minuend + run->begin,
                                source->subtrahend != NULL ? source->subtrahend + run->begin : NULL,
                                (size_t)(run->end - run->begin));
    }
    return sum;
}

/* A residual that is large beside the outer gradient is mostly old: with outer momentum it feeds itself (measured,
 * docs/DECISIONS.md). It is cut down, and less of it kept. */
bool part_cut_restrain(struct part_cut *cut, const struct restraint *rule, double norm, double tokens,
                       const struct plan_share *share, float *left)
{
    double factor = rule->decay;
    bool passed = false;
    if (rule->limit > 0) {
        double residual = factor * sqrt(part_cut_square_sum(&(struct vec_source){.minuend = left}, share));
        double most = rule->limit * note_usual(&cut->usual, rule->settled, norm, tokens, residual > rule->limit * norm);
        passed = residual > most;
        factor *= passed ? most / residual : 1;
    }
    for (uint32_t r = 0; factor < 1 && r < share->runs_count; r++)
        outer_scale(left + share->run[r].begin, (size_t)(share->run[r].end - share->run[r].begin), (float)factor);
    return passed;
}
