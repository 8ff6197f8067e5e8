/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/state/mean.h"

#include <assert.h>
#include <math.h>
#include <string.h>

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
    *mean = (struct mean){0};
}

static size_t places_of(const struct outlier_conf *conf)
{
    return by_value(conf) ? 1 : MEAN_PLACES;
}

/* Of what is kept for an input: readers, and a square sum. */
static size_t input_bytes(const struct outlier_conf *conf)
{
    return (1 + places_of(conf)) * sizeof(struct codec_reader) + sizeof(double);
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
}

/* ---- means ---- */

/* Where there are more contributors than ever, or by another rule. */
static enum err room_for_inputs(struct mean *mean, size_t inputs)
{
    if (inputs <= mean->inputs_room)
        return ERR_OK;
    mem_free(mean->readers);
    mem_free(mean->squares);
    mean->readers = NULL;
    mean->squares = NULL;
    mean->inputs_room = 0;
    TRY(mem_new(inputs * (1 + places_of(mean->conf)), sizeof *mean->readers, "contributions", &mean->readers));
    TRY(mem_new(inputs, sizeof *mean->squares, "contributions", &mean->squares));
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
    *bad = 0;
    TRY(room_for_inputs(mean, inputs_count));
    for (size_t i = 0; i < inputs_count; i++) {
        *bad = i;
        inputs[i].factor = 1;
        inputs[i].norm = 0;
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

/* Of values in which each input weighs the same everywhere: as in shard `s`, where they differ by shard. */
static enum err weighted(const struct mean *mean, struct codec_reader *readers, struct codec *codec, uint32_t s,
                         float *out, size_t count, size_t *bad)
{
    float weights[MEAN_MEMBERS_MAX];
    memset(out, 0, count * sizeof *out);
    for (size_t i = 0; i < mean->inputs_count; i++) {
        const struct mean_input *input = &mean->inputs[i];
        const float own = mean->spans_count > 0 ? input->by_shard[s] : input->weight;
        const float weight = own * input->factor;
        *bad = i;
        /* One scaled down keeps its weight in the mean; one left out has none. */
        weights[i] = input->factor > 0 ? own : 0;
        if (input->factor > 0)
            TRY(codec_read(codec, &readers[i], count, &weight, out));
    }
    outer_mean_finish(out, count, weights, mean->inputs_count);
    return ERR_OK;
}

/* The values of a place: those of one span behind those of the other. */
static enum err weighted_spans(const struct mean *mean, size_t place, struct codec *codec, float *out, size_t count,
                               size_t *bad)
{
    struct codec_reader *readers = readers_at(mean, place);
    uint64_t at = mean->at[place], end = at + count;
    if (mean->spans_count == 0)
        return weighted(mean, readers, codec, 0, out, count, bad);
    for (uint32_t k = 0; k < mean->spans_count; k++) {
        const struct mean_span *span = &mean->spans[k];
        if (span->end <= at || at == end)
            continue;
        size_t n = (size_t)((span->end < end ? span->end : end) - at);
        TRY(weighted(mean, readers, codec, span->shard, out, n, bad));
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
    for (size_t i = 0; i < inputs_count; i++)
        sum += (double)inputs[i].weight;
    return sum / (double)inputs_count;
}
