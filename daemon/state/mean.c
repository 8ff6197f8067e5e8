/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/state/mean.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "common/digest.h"
#include "common/mem.h"
#include "outer_opt/outer.h"

/* Whether means are taken value by value over all contributions at once. */
static bool by_value(const struct outlier_conf *conf)
{
    return conf->action == OUTLIER_TRIMMED || conf->action == OUTLIER_MEDIAN;
}

/* ---- life ---- */

void mean_deinit(struct mean *mean)
{
    mem_free(mean->decoded);
    mem_free(mean->readers);
    mem_free(mean->squares);
    mem_free(mean->directions);
    *mean = (struct mean){0};
}

static size_t places_of(const struct outlier_conf *conf)
{
    return by_value(conf) ? 1 : MEAN_PLACES;
}

/* Of what is kept for an input: readers, directions, and a square sum. */
static size_t input_bytes(const struct outlier_conf *conf)
{
    return (1 + places_of(conf)) * (sizeof(struct codec_reader) + sizeof(struct direction_sums)) + sizeof(double);
}

uint64_t mean_bytes(const struct outlier_conf *conf, uint64_t piece, uint32_t inputs)
{
    return inputs * ((by_value(conf) ? piece * sizeof(float) : 0) + input_bytes(conf));
}

/* ---- outliers ---- */

/* Sum of squares of what a frame holds. */
static enum err square_sum(const struct mean_input *input, size_t count, struct codec *codec, double *sum)
{
    struct codec_reader reader;
    float *values;
    size_t n;
    *sum = 0;
    TRY(codec_read_begin(input->frame, input->bytes, count, &reader));
    for (;;) {
        TRY(codec_read_segment(codec, &reader, &values, &n));
        if (n == 0)
            return ERR_OK;
        *sum += outer_square_sum(values, NULL, n);
    }
}

size_t mean_looks(const struct mean *mean)
{
    bool rule = !by_value(mean->conf) && mean->conf->action != OUTLIER_KEEP;
    return rule && mean->inputs_count >= OUTLIER_INPUTS_MIN ? mean->inputs_count : 0;
}

enum err mean_look(struct mean *mean, size_t i, struct codec *codec)
{
    enum err err = square_sum(&mean->inputs[i], mean->count, codec, &mean->squares[i]);
    if (err != ERR_OK)
        mean->squares[i] = -1;
    return err;
}

size_t mean_looked_bad(const struct mean *mean)
{
    size_t i = 0;
    while (i + 1 < mean->inputs_count && mean->squares[i] >= 0)
        i++;
    return i;
}

/* What an input weighs where its norm is looked at: norms add up by their squares. */
static float weight_of_norm(const struct mean *mean, const struct mean_input *input)
{
    double sum = 0, begin = 0;
    for (uint32_t k = 0; k < mean->spans_count; k++) {
        double weight = (double)input->by_shard[mean->spans[k].shard], end = (double)mean->spans[k].end;
        sum += (end - begin) * weight * weight;
        begin = end;
    }
    return mean->spans_count > 0 ? (float)sqrt(sum / (double)mean->count) : input->weight;
}

/* From the heads of all frames, which have the digests of what follows. */
static uint64_t seed_of(const struct mean *mean)
{
    struct digest_state state;
    uint64_t seed;
    digest_begin(&state);
    for (size_t i = 0; i < mean->inputs_count; i++)
        digest_add(&state, mean->inputs[i].frame, CODEC_HEADER_BYTES);
    struct digest digest = digest_end(&state);
    memcpy(&seed, digest.byte, sizeof seed); /* little-endian, as vec_ops.h has it */
    return seed;
}

/* Who weighs anything in this mean, and so who judges whose direction. */
static void choose_judges(struct mean *mean)
{
    struct direction_input makers[MEAN_MEMBERS_MAX];
    bool weighs[MEAN_MEMBERS_MAX], judges[MEAN_MEMBERS_MAX], judged[MEAN_MEMBERS_MAX];
    for (size_t i = 0; i < mean->inputs_count; i++) {
        const struct mean_input *input = &mean->inputs[i];
        makers[i] = (struct direction_input){.owner = input->owner, .turned = input->turned};
        weighs[i] = input->weight > 0 && input->factor > 0;
    }
    mean->directed = direction_judges(makers, weighs, mean->inputs_count, judges, judged);
    mean->seed = mean->directed ? seed_of(mean) : 0;
    for (size_t i = 0; i < mean->inputs_count; i++) {
        mean->inputs[i].judges = judges[i];
        mean->inputs[i].judged = judged[i];
    }
}

void mean_judge(struct mean *mean)
{
    struct mean_input *inputs = mean->inputs;
    double norms[MEAN_MEMBERS_MAX];
    float weights[MEAN_MEMBERS_MAX], factors[MEAN_MEMBERS_MAX];
    if (mean_looks(mean) == 0)
        return;
    for (size_t i = 0; i < mean->inputs_count; i++) {
        norms[i] = sqrt(mean->squares[i]);
        weights[i] = weight_of_norm(mean, &inputs[i]);
        inputs[i].norm = (float)norms[i];
    }
    outlier_judge(mean->conf, norms, weights, mean->inputs_count, factors);
    for (size_t i = 0; i < mean->inputs_count; i++)
        inputs[i].factor = factors[i];
    choose_judges(mean);
}

/* ---- means ---- */

/* Where there are more contributors than ever, or by another rule. */
static enum err room_for_inputs(struct mean *mean, size_t inputs)
{
    if (inputs <= mean->inputs_room)
        return ERR_OK;
    mem_free(mean->readers);
    mem_free(mean->squares);
    mem_free(mean->directions);
    mean->readers = NULL;
    mean->squares = NULL;
    mean->directions = NULL;
    mean->inputs_room = 0;
    TRY(mem_new(inputs * (1 + places_of(mean->conf)), sizeof *mean->readers, "contributions", &mean->readers));
    TRY(mem_new(inputs, sizeof *mean->squares, "contributions", &mean->squares));
    TRY(mem_new(inputs * (1 + places_of(mean->conf)), sizeof *mean->directions, "contributions", &mean->directions));
    mean->inputs_room = inputs;
    return ERR_OK;
}

enum err mean_begin(struct mean *mean, const struct outlier_conf *conf, struct mean_input *inputs, size_t inputs_count,
                    size_t count, size_t *bad)
{
    assert(inputs_count <= MEAN_MEMBERS_MAX);
    mean->conf = conf;
    mean->inputs = inputs;
    mean->inputs_count = inputs_count;
    mean->count = count;
    mean->placed = 0;
    mean->spans_count = 0;
    mean->directed = false;
    mean->pieces_count = 0;
    *bad = 0;
    TRY(room_for_inputs(mean, inputs_count));
    memset(mean->directions, 0, inputs_count * (1 + places_of(conf)) * sizeof *mean->directions);
    for (size_t i = 0; i < inputs_count; i++) {
        *bad = i;
        inputs[i].factor = 1;
        inputs[i].norm = 0;
        inputs[i].cosine = 0;
        mean->squares[i] = 0;
        TRY(codec_read_begin(inputs[i].frame, inputs[i].bytes, count, &mean->readers[i]));
    }
    return ERR_OK;
}

/* Whether all inputs weigh the same in two shards. */
static bool weigh_alike(const struct mean *mean, uint32_t one, uint32_t other)
{
    for (size_t i = 0; i < mean->inputs_count; i++)
        if (mean->inputs[i].by_shard[one] != mean->inputs[i].by_shard[other])
            return false;
    return true;
}

void mean_weigh_shards(struct mean *mean, const struct plan *plan, uint32_t f, uint64_t shards)
{
    uint64_t end = 0;
    mean->spans_count = 0;
    for (uint32_t s = 0; s < plan->fragments[f].shards_count; s++) {
        struct plan_shard shard = plan_shard(plan, f, s);
        if ((shards >> s & 1) == 0 || shard.begin == shard.end)
            continue;
        end += shard.end - shard.begin;
        if (mean->spans_count == 0 || !weigh_alike(mean, mean->spans[mean->spans_count - 1].shard, s))
            mean->spans[mean->spans_count++].shard = s;
        mean->spans[mean->spans_count - 1].end = end;
    }
}

size_t mean_places(const struct mean *mean)
{
    return places_of(mean->conf);
}

static struct codec_reader *readers_at(const struct mean *mean, size_t place)
{
    return mean->readers + (1 + place) * mean->inputs_count;
}

enum err mean_place(struct mean *mean, size_t place, size_t count, size_t *bad)
{
    struct codec_reader *there = readers_at(mean, place);
    for (size_t i = 0; i < mean->inputs_count; i++) {
        struct codec_reader *next = &mean->readers[i];
        *bad = i;
        there[i] = *next;
        TRY(codec_read_skip(next, count));
        if (next->values_left == 0)
            TRY(codec_read_end(next));
    }
    mean->looks[place] = mean->directed && direction_looks(mean->seed, mean->count, mean->pieces_count++, count);
    mean->at[place] = mean->placed;
    mean->placed += count;
    return ERR_OK;
}

/* Where there are more contributors than ever, or pieces are larger. */
static enum err room_to_decode(struct mean *mean, size_t values)
{
    if (values <= mean->decoded_room)
        return ERR_OK;
    mem_free(mean->decoded);
    mean->decoded = NULL;
    mean->decoded_room = 0;
    TRY(mem_new(values, sizeof(float), "contributions", &mean->decoded));
    mean->decoded_room = values;
    return ERR_OK;
}

/* Trimmed mean or median; no weights. */
static enum err middle(struct mean *mean, struct codec_reader *readers, struct codec *codec, float *out, size_t count,
                       size_t *bad)
{
    const float *decoded[MEAN_MEMBERS_MAX];
    TRY(room_to_decode(mean, mean->inputs_count * count));
    for (size_t i = 0; i < mean->inputs_count; i++) {
        float *values = mean->decoded + i * count;
        *bad = i;
        TRY(codec_read(codec, &readers[i], count, NULL, values));
        decoded[i] = values;
    }
    uint32_t trim = mean->conf->action == OUTLIER_MEDIAN ? MEAN_MEMBERS_MAX : mean->conf->trim;
    outlier_trimmed_mean(decoded, mean->inputs_count, trim, out, count);
    return ERR_OK;
}

/* ---- weighted means ---- */

/* What each input weighs in shard `s`, or in all: `weights`; and with its factor, as its values do. One that is scaled
 * down keeps its weight in the mean, one left out has none. */
static void weights_in(const struct mean *mean, uint32_t s, float *weights, float *scaled)
{
    for (size_t i = 0; i < mean->inputs_count; i++) {
        const struct mean_input *input = &mean->inputs[i];
        float own = mean->spans_count > 0 ? input->by_shard[s] : input->weight;
        weights[i] = input->factor > 0 ? own : 0;
        scaled[i] = own * input->factor;
    }
}

/* Adds up those inputs that weigh anything, or of these only who judges others, without going on in their frames.
 * `*all`: these are all that weigh anything. */
static enum err add_up(const struct mean *mean, const struct codec_reader *readers, struct codec *codec, bool judges,
                       const float *scaled, float *out, size_t count, bool *all, size_t *bad)
{
    *all = true;
    memset(out, 0, count * sizeof *out);
    for (size_t i = 0; i < mean->inputs_count; i++) {
        struct codec_reader reader = readers[i];
        bool adds = !judges || mean->inputs[i].judges;
        *bad = i;
        *all = *all && (adds || !(scaled[i] > 0));
        if (adds && scaled[i] > 0)
            TRY(codec_read(codec, &reader, count, &scaled[i], out));
    }
    return ERR_OK;
}

/* The products of an input's values with what the judges add up to, and with themselves. It is decoded once more: what
 * it is compared with is known only now, and to keep all inputs decoded would take memory for each. */
static enum err compare(struct codec_reader reader, struct codec *codec, const float *judges, size_t count,
                        double *along, double *square)
{
    *along = *square = 0;
    while (count > 0) {
        float *values;
        size_t n;
        TRY(codec_read_segment(codec, &reader, &values, &n));
        n = n < count ? n : count;
        *along = *along + outer_dot(values, judges, n);
        *square = *square + outer_square_sum(values, NULL, n);
        judges += n;
        count -= n;
    }
    return ERR_OK;
}

/* How all inputs point, against the sum of those that judge. */
static enum err note_directions(const struct mean *mean, const struct codec_reader *readers, struct codec *codec,
                                const float *scaled, const float *judges, size_t count, struct direction_sums *sums,
                                size_t *bad)
{
    double along[MEAN_MEMBERS_MAX], squares[MEAN_MEMBERS_MAX];
    bool judging[MEAN_MEMBERS_MAX];
    for (size_t i = 0; i < mean->inputs_count; i++) {
        *bad = i;
        judging[i] = mean->inputs[i].judges;
        TRY(compare(readers[i], codec, judges, count, &along[i], &squares[i]));
    }
    direction_add(judging, scaled, along, squares, mean->inputs_count, sums);
    return ERR_OK;
}

static enum err go_on(const struct mean *mean, struct codec_reader *readers, size_t count, size_t *bad)
{
    for (size_t i = 0; i < mean->inputs_count; i++) {
        *bad = i;
        TRY(codec_read_skip(&readers[i], count));
    }
    return ERR_OK;
}

/* Of values at a place in which each input weighs the same everywhere: as in shard `s`, where they differ by shard. */
static enum err weighted(const struct mean *mean, size_t place, struct codec *codec, uint32_t s, float *out,
                         size_t count, size_t *bad)
{
    float weights[MEAN_MEMBERS_MAX], scaled[MEAN_MEMBERS_MAX];
    struct codec_reader *readers = readers_at(mean, place);
    bool all = false;
    weights_in(mean, s, weights, scaled);
    if (mean->looks[place]) {
        struct direction_sums *sums = mean->directions + (1 + place) * mean->inputs_count;
        TRY(add_up(mean, readers, codec, true, scaled, out, count, &all, bad));
        TRY(note_directions(mean, readers, codec, scaled, out, count, sums, bad));
    }
    if (!all)
        TRY(add_up(mean, readers, codec, false, scaled, out, count, &all, bad));
    TRY(go_on(mean, readers, count, bad));
    outer_mean_finish(out, count, weights, mean->inputs_count);
    return ERR_OK;
}

/* The values of a place: those of one span behind those of the other. */
static enum err weighted_spans(const struct mean *mean, size_t place, struct codec *codec, float *out, size_t count,
                               size_t *bad)
{
    uint64_t at = mean->at[place], end = at + count;
    if (mean->spans_count == 0)
        return weighted(mean, place, codec, 0, out, count, bad);
    for (uint32_t k = 0; k < mean->spans_count; k++) {
        const struct mean_span *span = &mean->spans[k];
        if (span->end <= at || at == end)
            continue;
        size_t n = (size_t)((span->end < end ? span->end : end) - at);
        TRY(weighted(mean, place, codec, span->shard, out, n, bad));
        out += n;
        at += n;
    }
    return ERR_OK;
}

enum err mean_read(struct mean *mean, size_t place, struct codec *codec, float *out, size_t count, size_t *bad)
{
    return by_value(mean->conf) ? middle(mean, readers_at(mean, place), codec, out, count, bad)
                                : weighted_spans(mean, place, codec, out, count, bad);
}

/* ---- directions ---- */

void mean_gather(struct mean *mean)
{
    size_t count = mean->inputs_count, places = mean->directed ? places_of(mean->conf) : 0;
    for (size_t at = count; at < (1 + places) * count; at++) {
        direction_add_sums(&mean->directions[at], &mean->directions[at % count]);
        mean->directions[at] = (struct direction_sums){0};
    }
}

void mean_cosines(struct mean *mean)
{
    for (size_t i = 0; mean->directed && i < mean->inputs_count; i++) {
        double square = direction_cosine_square(&mean->directions[i]);
        float cosine = (float)sqrt(fabs(square));
        if (mean->inputs[i].judged)
            mean->inputs[i].cosine = square < 0 && cosine > 0 ? -cosine : cosine; /* no negative zero */
    }
}

size_t mean_culprit(const struct mean_input *inputs, size_t inputs_count, size_t count, struct codec *codec)
{
    size_t worst = 0;
    float most = -1;
    for (size_t i = 0; i < inputs_count; i++) {
        struct codec_reader reader;
        float *values;
        size_t n;
        if (codec_read_begin(inputs[i].frame, inputs[i].bytes, count, &reader) != ERR_OK)
            return i;
        do {
            if (codec_read_segment(codec, &reader, &values, &n) != ERR_OK)
                return i;
            for (size_t k = 0; k < n; k++) {
                if (!isfinite(values[k]))
                    return i;
                if (fabsf(values[k]) > most) {
                    most = fabsf(values[k]);
                    worst = i;
                }
            }
        } while (n > 0);
    }
    return worst;
}

double mean_weight(const struct mean_input *inputs, size_t inputs_count)
{
    double sum = 0;
    size_t weigh = 0;
    for (size_t i = 0; i < inputs_count; i++) {
        sum += (double)inputs[i].weight;
        weigh += inputs[i].weight > 0;
    }
    return weigh > 0 ? sum / (double)weigh : 0;
}
