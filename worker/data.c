/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/data.h"

#include <glob.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/env.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/mixture.h"
#include "common/runspec.h"
#include "worker/blend.h"
#include "worker/shard.h"
#include "worker/sniff.h"

/* What sets the draw of an epoch's cut apart from that of its order. */
enum { CUT_SALT = 99 };

struct segment {
    struct shard shard;
    uint64_t train_count;          /* of its tokens, the first ones, for training */
    uint64_t train_windows_before; /* in the segments before this one */
    uint64_t held_out_windows_before;
};

struct source {
    const char *path; /* of the mixture */
    char label[100];  /* "data file", or "data source NAME:"; a path comes next */
    struct segment *segments;
    size_t segments_count;
    uint64_t train_windows, held_out_windows;
    uint64_t train_tokens, held_out_tokens;
};

struct data {
    struct data_conf conf;
    struct mixture mixture;
    struct source *sources; /* as many as mixture.count */
    struct blend *train;
    struct blend *held_out; /* NULL: no source has a window for it */
};

/* ---- opening ---- */

/* A shard's header names its tokenizer: tokens of two in one run would be noise, and nothing else would show it. */
static enum err check_alike(const struct data *data, const struct shard *shard)
{
    const struct shard *first = &data->sources[0].segments[0].shard;
    if (shard->token_bytes == first->token_bytes)
        return ERR_OK;
    return err_set(ERR_CONF,
                   "data file %s: tokens of %u bits, and those of %s have %u: they are of different tokenizers; give "
                   "files of one kind",
                   shard->path, 8 * shard->token_bytes, first->path, 8 * first->token_bytes);
}

static enum err open_segments(const struct data *data, struct source *source)
{
    glob_t found;
    enum err err = ERR_OK;
    int status = glob(source->path, 0, NULL, &found);
    if (status == GLOB_NOMATCH)
        return err_set(ERR_CONF, "%s %s: no such file; set the path of your corpus", source->label, source->path);
    if (status != 0)
        return err_set(ERR_IO, "%s %s: cannot search for it", source->label, source->path);
    TRY_OUT(mem_new(found.gl_pathc, sizeof *source->segments, "the corpus", &source->segments));
    for (size_t i = 0; i < found.gl_pathc; i++) {
        struct segment *segment = &source->segments[i];
        source->segments_count = i + 1;
        TRY_OUT(shard_open(&segment->shard, found.gl_pathv[i], data->conf.format, data->conf.vocab));
        TRY_OUT(check_alike(data, &segment->shard));
    }
out:
    globfree(&found);
    return err;
}

/* Windows a stretch of tokens gives: each needs context + 1 tokens, starts may be shifted by up to context - 1. */
static uint64_t windows_in(uint64_t tokens, int64_t context)
{
    uint64_t T = (uint64_t)context;
    return tokens >= 2 * T ? (tokens - T) / T : tokens > T;
}

/* The end of the source is held out, across segment borders if need be. */
static void split(struct source *source, const struct data_conf *conf)
{
    uint64_t total = 0;
    for (size_t i = 0; i < source->segments_count; i++)
        total += source->segments[i].shard.count;
    uint64_t held = (uint64_t)((double)total * conf->held_out);
    source->held_out_tokens = held;
    source->train_tokens = total - held;
    for (size_t i = source->segments_count; i-- > 0;) {
        struct segment *segment = &source->segments[i];
        uint64_t take = held < segment->shard.count ? held : segment->shard.count;
        segment->train_count = segment->shard.count - take;
        held -= take;
    }
    for (size_t i = 0; i < source->segments_count; i++) {
        struct segment *segment = &source->segments[i];
        segment->train_windows_before = source->train_windows;
        segment->held_out_windows_before = source->held_out_windows;
        source->train_windows += windows_in(segment->train_count, conf->context);
        uint64_t held_out = segment->shard.count - segment->train_count;
        source->held_out_windows += held_out > 0 ? (held_out - 1) / (uint64_t)conf->context : 0;
    }
}

static enum err open_source(const struct data *data, struct source *source, const struct mixture_source *of)
{
    const struct data_conf *conf = &data->conf;
    source->path = of->path;
    if (of->name[0] != '\0')
        snprintf(source->label, sizeof source->label, "data source %s:", of->name);
    else
        snprintf(source->label, sizeof source->label, "data file");
    TRY(open_segments(data, source));
    split(source, conf);
    if (source->train_windows >= conf->streams_count)
        return ERR_OK;
    return err_set(ERR_CONF,
                   "%s %s: %" PRIu64 " tokens for training are too few: %" PRIu32 " island(s) need at least %" PRIu64
                   " (context = %" PRId64 "); use a larger file or a shorter context",
                   source->label, source->path, source->train_tokens, conf->streams_count,
                   ((uint64_t)conf->streams_count + 1) * (uint64_t)conf->context, conf->context);
}

/* What one source holds out another would train on. */
static enum err check_apart(const struct data *data, const struct source *source)
{
    for (const struct source *other = data->sources; other < source; other++)
        for (size_t i = 0; i < other->segments_count; i++)
            for (size_t j = 0; j < source->segments_count; j++) {
                const struct shard *a = &other->segments[i].shard, *b = &source->segments[j].shard;
                if (a->device == b->device && a->inode == b->inode)
                    return err_set(ERR_CONF, "%s %s: %s is in another source, too (%s %s); give each file to one",
                                   source->label, source->path, b->path, other->label, a->path);
            }
    return ERR_OK;
}

/* Windows of a stream in the whole run; as many as blend.h knows, if it is more. */
static uint64_t run_windows(const struct data_conf *conf)
{
    const uint64_t most = (uint64_t)1 << 47;
    return conf->steps < most / conf->windows_per_step ? conf->steps * conf->windows_per_step : most;
}

/* Validation is the same from the first step to the last, whatever the weights are by then. */
static enum err blend_held_out(struct data *data)
{
    double shares[MIXTURE_SOURCES_MAX], sum = 0;
    size_t count = data->mixture.count;
    blend_shares(data->train, run_windows(&data->conf), shares);
    for (size_t i = 0; i < count; i++)
        sum += shares[i] = data->sources[i].held_out_windows > 0 ? shares[i] : 0;
    return sum > 0 ? blend_even(shares, count, &data->held_out) : ERR_OK;
}

static enum err open_all(struct data *data)
{
    struct mixture *mixture = &data->mixture;
    enum err err = mixture_parse(data->conf.path, NULL, mixture);
    if (err == ERR_OK)
        err = mixture_check(mixture);
    if (err == ERR_OK)
        err = blend_new(mixture, data->conf.windows_per_step, &data->train);
    if (err != ERR_OK)
        return err_prefix(err, "data \"%s\"", data->conf.path);
    TRY(mem_new(mixture->count, sizeof *data->sources, "the corpus", &data->sources));
    for (size_t i = 0; i < mixture->count; i++) {
        TRY(open_source(data, &data->sources[i], &mixture->sources[i]));
        TRY(check_apart(data, &data->sources[i]));
    }
    return blend_held_out(data);
}

enum err data_open(const struct data_conf *conf, struct data **out)
{
    enum err err;
    struct data *data = NULL;
    *out = NULL;
    TRY_OUT(mem_new(1, sizeof *data, "the corpus", &data));
    data->conf = *conf;
    data->conf.windows_per_step = conf->windows_per_step > 0 ? conf->windows_per_step : 1;
    data->conf.steps = conf->steps > 0 ? conf->steps : 1;
    err = open_all(data);
out:
    if (err != ERR_OK)
        data_close(data);
    else
        *out = data;
    return err;
}

void data_close(struct data *data)
{
    if (data == NULL)
        return;
    for (size_t s = 0; data->sources != NULL && s < data->mixture.count; s++) {
        for (size_t i = 0; i < data->sources[s].segments_count; i++)
            shard_close(&data->sources[s].segments[i].shard);
        mem_free(data->sources[s].segments);
    }
    mem_free(data->sources);
    blend_free(data->train);
    blend_free(data->held_out);
    mixture_free(&data->mixture);
    mem_free(data);
}

/* ---- what is there ---- */

/* Files that are no text train without any error, on noise. */
static void look_at_files(const struct data *data)
{
    char what[SNIFF_TEXT_BYTES], first_what[SNIFF_TEXT_BYTES] = "", others[64] = "";
    const char *first = NULL;
    size_t more = 0;
    bool is_text = data->conf.format == RUNSPEC_BYTES;
    for (size_t s = 0; s < data->mixture.count; s++)
        for (size_t i = 0; i < data->sources[s].segments_count; i++) {
            const struct shard *shard = &data->sources[s].segments[i].shard;
            if (!sniff(shard->map, shard->map_bytes, is_text, what))
                continue;
            if (first != NULL) {
                more++;
                continue;
            }
            first = shard->path;
            memcpy(first_what, what, sizeof what);
        }
    if (more > 0)
        snprintf(others, sizeof others, ", and %zu more like it", more);
    if (first != NULL)
        log_warn("data file %s%s: looks like %s; training takes every %s as it is: unpack it, or convert it to plain "
                 "text or tokens",
                 first, others, first_what, is_text ? "byte" : "number");
}

static void tell_sources(const struct data *data)
{
    double shares[MIXTURE_SOURCES_MAX];
    uint64_t windows = run_windows(&data->conf);
    blend_shares(data->train, windows, shares);
    for (size_t s = 0; s < data->mixture.count; s++) {
        const struct source *source = &data->sources[s];
        double times = shares[s] * (double)windows * data->conf.streams_count / (double)source->train_windows;
        log_info("data source %s: %.1f %% of the run's windows, %" PRIu64 " tokens for training, used %.2f times%s",
                 data->mixture.sources[s].name, 100 * shares[s], source->train_tokens, times,
                 source->held_out_windows > 0 ? "" : "; its held-out part holds no window");
    }
}

void data_look(const struct data *data)
{
    if (data->conf.format != RUNSPEC_TOKENS) /* their header says what they are */
        look_at_files(data);
    if (data->mixture.count > 1)
        tell_sources(data);
}

uint64_t data_train_tokens(const struct data *data)
{
    uint64_t sum = 0;
    for (size_t s = 0; s < data->mixture.count; s++)
        sum += data->sources[s].train_tokens;
    return sum;
}

uint64_t data_held_out_tokens(const struct data *data)
{
    uint64_t sum = 0;
    for (size_t s = 0; s < data->mixture.count; s++)
        sum += data->sources[s].held_out_tokens;
    return sum;
}

bool data_holds_out(const struct data *data)
{
    return data->held_out != NULL;
}

/* ---- filling ---- */

static enum err fill(const struct data *data, const struct segment *segment, uint64_t begin, int32_t *tokens,
                     int32_t *targets)
{
    int64_t T = data->conf.context;
    for (int64_t i = 0; i <= T; i++) {
        uint64_t at = begin + (uint64_t)i;
        uint32_t token = shard_token(&segment->shard, at);
        if (token >= data->conf.vocab)
            return err_set(ERR_CORRUPT,
                           "data file %s: token %" PRIu32 " at place %" PRIu64 " is outside the vocabulary of %" PRId64,
                           segment->shard.path, token, at, data->conf.vocab);
        if (i < T)
            tokens[i] = (int32_t)token;
        if (i > 0)
            targets[i - 1] = (int32_t)token;
    }
    return ERR_OK;
}

/* Window `number` of the order in which a source is visited in a pass. */
static enum err fill_numbered(const struct data *data, const struct source *source, uint64_t pass, uint64_t number,
                              int32_t *tokens, int32_t *targets)
{
    uint64_t T = (uint64_t)data->conf.context;
    uint64_t key = deal_key(data->conf.seed, pass);
    uint64_t window = deal_shuffled(number, source->train_windows, key);
    size_t s = 0;
    while (s + 1 < source->segments_count && source->segments[s + 1].train_windows_before <= window)
        s++;
    const struct segment *segment = &source->segments[s];
    uint64_t begin = (window - segment->train_windows_before) * T;
    /* Each pass cuts the text at other places. */
    uint64_t room = segment->train_count - 1 - T - begin;
    uint64_t shift = env_mix64(key + CUT_SALT) % T;
    return fill(data, segment, begin + (shift < room ? shift : room), tokens, targets);
}

/* The stream's `index`-th window of one source. */
static enum err fill_train(const struct data *data, const struct source *source, uint64_t index, int32_t *tokens,
                           int32_t *targets)
{
    uint64_t global = index * data->conf.streams_count + data->conf.stream;
    return fill_numbered(data, source, global / source->train_windows, global % source->train_windows, tokens, targets);
}

enum err data_batch(const struct data *data, uint64_t position, int64_t count, int32_t *tokens, int32_t *targets)
{
    int64_t T = data->conf.context;
    for (int64_t i = 0; i < count; i++) {
        struct blend_place place = blend_at(data->train, position + (uint64_t)i);
        TRY(fill_train(data, &data->sources[place.source], place.index, tokens + i * T, targets + i * T));
    }
    return ERR_OK;
}

bool data_deals(const struct data *data)
{
    bool constant = true;
    for (size_t s = 0; s < data->mixture.count; s++)
        constant = constant && data->mixture.sources[s].points_count == 1;
    return constant;
}

/* Of a mixture the position says which source, and the how manieth of it; in the reserve, where it has an order of its
 * own, its turn does, and the position about which pass of that source the others are in. */
static enum err fill_dealt(const struct data *data, const struct deal_place *place, int32_t *tokens, int32_t *targets)
{
    const uint64_t most = (uint64_t)1 << 47; /* blend.h knows no more */
    uint64_t counts[MIXTURE_SOURCES_MAX], turns[MIXTURE_SOURCES_MAX];
    struct blend_place at = blend_at(data->train, (place->dealt ? place->position : place->turn) % most);
    const struct source *source = &data->sources[at.source];
    struct deal_place of = *place;
    blend_counts(data->train, place->position % most, counts);
    of.position = place->dealt ? at.index : counts[at.source];
    of.turn = at.index;
    blend_counts(data->train, (place->turn - place->since) % most, turns);
    of.since = !place->dealt && at.index > turns[at.source] ? at.index - turns[at.source] : 0;
    struct deal_window window = deal_window(&of, source->train_windows);
    log_debug("draws window %" PRIu64 " of pass %" PRIu64 " of source %zu%s", window.index, window.pass, at.source,
              place->dealt ? "" : ", of its own");
    return fill_numbered(data, source, window.pass, window.index, tokens, targets);
}

enum err data_batch_dealt(const struct data *data, const struct deal_place *places, int64_t count, int32_t *tokens,
                          int32_t *targets)
{
    int64_t T = data->conf.context;
    for (int64_t i = 0; i < count; i++)
        TRY(fill_dealt(data, &places[i], tokens + i * T, targets + i * T));
    return ERR_OK;
}

static enum err fill_held_out(const struct data *data, const struct source *source, uint64_t window, int32_t *tokens,
                              int32_t *targets)
{
    size_t s = 0;
    while (s + 1 < source->segments_count && source->segments[s + 1].held_out_windows_before <= window)
        s++;
    const struct segment *segment = &source->segments[s];
    uint64_t before = (window - segment->held_out_windows_before) * (uint64_t)data->conf.context;
    return fill(data, segment, segment->train_count + before, tokens, targets);
}

enum err data_held_out(const struct data *data, uint64_t index, uint64_t total, int64_t count, int32_t *tokens,
                       int32_t *targets)
{
    int64_t T = data->conf.context;
    uint64_t totals[MIXTURE_SOURCES_MAX];
    if (data->held_out == NULL)
        return err_set(ERR_NOTFOUND,
                       "data %s: the held-out part of %" PRIu64 " tokens holds no window of %" PRId64
                       "; raise [data] held_out in the run spec",
                       data->conf.path, data_held_out_tokens(data), data->conf.context);
    blend_counts(data->held_out, total, totals);
    for (int64_t i = 0; i < count; i++) {
        struct blend_place place = blend_at(data->held_out, (index + (uint64_t)i) % total);
        const struct source *source = &data->sources[place.source];
        uint64_t window = place.index * source->held_out_windows / totals[place.source];
        TRY(fill_held_out(data, source, window, tokens + i * T, targets + i * T));
    }
    return ERR_OK;
}
