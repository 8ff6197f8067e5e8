#include "worker/data.h"

#include <glob.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/env.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/runspec.h"
#include "worker/shard.h"
#include "worker/sniff.h"

/* Rounds of the permutation; and what sets the draw of an epoch's cut apart from that of its order. */
enum { PERMUTE_ROUNDS = 4, CUT_SALT = 99 };

struct segment {
    struct shard shard;
    uint64_t train_count;          /* of its tokens, the first ones, for training */
    uint64_t train_windows_before; /* in the segments before this one */
    uint64_t held_out_windows_before;
};

struct data {
    struct data_conf conf;
    struct segment *segments;
    size_t segments_count;
    uint64_t train_windows, held_out_windows;
    uint64_t train_tokens, held_out_tokens;
};

/* ---- opening ---- */

/* A shard's header names its tokenizer: tokens of two in one run would be noise, and nothing else would show it. */
static enum err check_alike(const struct data *data, const struct segment *segment)
{
    const struct shard *first = &data->segments[0].shard, *shard = &segment->shard;
    if (shard->token_bytes == first->token_bytes)
        return ERR_OK;
    return err_set(ERR_CONF,
                   "data file %s: tokens of %u bits, and those of %s have %u: they are of different tokenizers; give "
                   "files of one kind",
                   shard->path, 8 * shard->token_bytes, first->path, 8 * first->token_bytes);
}

static enum err open_segments(struct data *data)
{
    glob_t found;
    enum err err = ERR_OK;
    int status = glob(data->conf.path, 0, NULL, &found);
    if (status == GLOB_NOMATCH)
        return err_set(ERR_CONF, "data file %s: no such file; set the path of your corpus", data->conf.path);
    if (status != 0)
        return err_set(ERR_IO, "data file %s: cannot search for it", data->conf.path);
    TRY_OUT(mem_new(found.gl_pathc, sizeof *data->segments, "the corpus", &data->segments));
    for (size_t i = 0; i < found.gl_pathc; i++) {
        struct segment *segment = &data->segments[i];
        data->segments_count = i + 1;
        TRY_OUT(shard_open(&segment->shard, found.gl_pathv[i], data->conf.format, data->conf.vocab));
        TRY_OUT(check_alike(data, segment));
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

/* The end of the corpus is held out, across segment borders if need be. */
static void split(struct data *data)
{
    uint64_t total = 0;
    for (size_t i = 0; i < data->segments_count; i++)
        total += data->segments[i].shard.count;
    uint64_t held = (uint64_t)((double)total * data->conf.held_out);
    data->held_out_tokens = held;
    data->train_tokens = total - held;
    for (size_t i = data->segments_count; i-- > 0;) {
        struct segment *segment = &data->segments[i];
        uint64_t take = held < segment->shard.count ? held : segment->shard.count;
        segment->train_count = segment->shard.count - take;
        held -= take;
    }
    for (size_t i = 0; i < data->segments_count; i++) {
        struct segment *segment = &data->segments[i];
        segment->train_windows_before = data->train_windows;
        segment->held_out_windows_before = data->held_out_windows;
        data->train_windows += windows_in(segment->train_count, data->conf.context);
        uint64_t held_out = segment->shard.count - segment->train_count;
        data->held_out_windows += held_out > 0 ? (held_out - 1) / (uint64_t)data->conf.context : 0;
    }
}

enum err data_open(const struct data_conf *conf, struct data **out)
{
    enum err err;
    struct data *data = NULL;
    *out = NULL;
    TRY_OUT(mem_new(1, sizeof *data, "the corpus", &data));
    data->conf = *conf;
    TRY_OUT(open_segments(data));
    split(data);
    if (data->train_windows < conf->streams_count)
        err = err_set(ERR_CONF,
                      "data file %s: %" PRIu64 " tokens for training are too few: %" PRIu32
                      " island(s) need at least %" PRIu64 " (context = %" PRId64 "); use a larger file or a shorter "
                      "context",
                      conf->path, data->train_tokens, conf->streams_count,
                      ((uint64_t)conf->streams_count + 1) * (uint64_t)conf->context, conf->context);
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
    for (size_t i = 0; i < data->segments_count; i++)
        shard_close(&data->segments[i].shard);
    mem_free(data->segments);
    mem_free(data);
}

/* Files that are no text train without any error, on noise. */
void data_look(const struct data *data)
{
    char what[SNIFF_TEXT_BYTES], first_what[SNIFF_TEXT_BYTES] = "", others[64] = "";
    const char *first = NULL;
    size_t more = 0;
    if (data->conf.format == RUNSPEC_TOKENS) /* their header says it */
        return;
    for (size_t i = 0; i < data->segments_count; i++) {
        const struct shard *shard = &data->segments[i].shard;
        if (!sniff(shard->map, shard->map_bytes, data->conf.format == RUNSPEC_BYTES, what))
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
        log_warn("data file %s%s: looks like %s; training takes %s as it is: unpack it, or convert it to plain text or "
                 "tokens",
                 first, others, first_what, data->conf.format == RUNSPEC_BYTES ? "every byte" : "every number");
}

uint64_t data_train_tokens(const struct data *data)
{
    return data->train_tokens;
}

uint64_t data_held_out_tokens(const struct data *data)
{
    return data->held_out_tokens;
}

/* ---- order of the windows ---- */

/* A permutation of [0, n): a Feistel network on the next even power of two, walked until it lands inside.
 * Random access, no table, the same everywhere. */
static uint64_t permute(uint64_t index, uint64_t n, uint64_t key)
{
    unsigned half_bits = 1;
    while ((uint64_t)1 << (2 * half_bits) < n)
        half_bits++;
    uint64_t mask = ((uint64_t)1 << half_bits) - 1;
    do {
        uint64_t left = index >> half_bits;
        uint64_t right = index & mask;
        for (uint64_t round = 0; round < PERMUTE_ROUNDS; round++) {
            uint64_t next = left ^ (env_mix64(right ^ env_mix64(key + round)) & mask);
            left = right;
            right = next;
        }
        index = left << half_bits | right;
    } while (index >= n);
    return index;
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

enum err data_batch(const struct data *data, uint64_t position, int64_t count, int32_t *tokens, int32_t *targets)
{
    uint64_t T = (uint64_t)data->conf.context;
    for (int64_t i = 0; i < count; i++) {
        uint64_t global = (position + (uint64_t)i) * data->conf.streams_count + data->conf.stream;
        uint64_t epoch = global / data->train_windows;
        uint64_t key = env_mix64(data->conf.seed ^ env_mix64(epoch + 1));
        uint64_t window = permute(global % data->train_windows, data->train_windows, key);
        size_t s = 0;
        while (s + 1 < data->segments_count && data->segments[s + 1].train_windows_before <= window)
            s++;
        const struct segment *segment = &data->segments[s];
        uint64_t begin = (window - segment->train_windows_before) * T;
        /* Each epoch cuts the text at other places. */
        uint64_t room = segment->train_count - 1 - T - begin;
        uint64_t shift = env_mix64(key + CUT_SALT) % T;
        begin += shift < room ? shift : room;
        TRY(fill(data, segment, begin, tokens + i * data->conf.context, targets + i * data->conf.context));
    }
    return ERR_OK;
}

enum err data_held_out(const struct data *data, uint64_t index, uint64_t total, int64_t count, int32_t *tokens,
                       int32_t *targets)
{
    if (data->held_out_windows == 0)
        return err_set(ERR_NOTFOUND,
                       "data file %s: the held-out part of %" PRIu64 " tokens holds no window of %" PRId64
                       "; raise [data] held_out in the run spec",
                       data->conf.path, data->held_out_tokens, data->conf.context);
    for (int64_t i = 0; i < count; i++) {
        uint64_t window = (index + (uint64_t)i) * data->held_out_windows / total % data->held_out_windows;
        size_t s = 0;
        while (s + 1 < data->segments_count && data->segments[s + 1].held_out_windows_before <= window)
            s++;
        const struct segment *segment = &data->segments[s];
        uint64_t begin =
            segment->train_count + (window - segment->held_out_windows_before) * (uint64_t)data->conf.context;
        TRY(fill(data, segment, begin, tokens + i * data->conf.context, targets + i * data->conf.context));
    }
    return ERR_OK;
}
