/* SPDX-License-Identifier: Apache-2.0 */
/*
 * data: a corpus on disk as batches of token sequences.
 *
 * What a file may be the run spec says, and worker/shard.h reads. A corpus is a file or a glob pattern, whose files are
 * taken in name order, or a mixture of several such sources with weights (common/mixture.h). The last part of each
 * source is held out for validation and never trained on.
 *
 * The training windows of a source are visited in a pseudo-random order that is a function of the seed alone; stream
 * `i` of `n` takes every n-th of them, so the streams of different islands are disjoint, whatever the weights of each,
 * and each is a function of one number, the position. Where the run deals the windows (common/deal.h), all islands have
 * one such order, of which each pass keeps a part in reserve. Which source the window at a position is of
 * worker/blend.h says. Files are mapped, not read; one thread calls.
 */
#ifndef WORKER_DATA_H
#define WORKER_DATA_H

#include <stdbool.h>
#include <stdint.h>

#include "common/deal.h"
#include "common/err.h"

struct data;

struct data_conf {
    const char *path; /* file, glob pattern or mixture */
    int format;       /* enum runspec_format */
    int64_t vocab;    /* tokens at or above it are refused */
    int64_t context;  /* tokens in a window */
    double held_out;  /* fraction */
    uint64_t seed;
    uint32_t stream, streams_count;
    uint64_t windows_per_step; /* of a stream; for weights that change with the steps. 0 is 1 */
    uint64_t steps;            /* of the run: validation has the sources in proportion to what it draws. 0 is 1 */
};

/* ERR_CONF: missing, empty, too short, of another format, a mixture that makes no sense, and what to do. */
ERR_MUST_CHECK enum err data_open(const struct data_conf *conf, struct data **out);
void data_close(struct data *data);

/* Logs a warning, one in all, if files look like something else than text or tokens: packed, a database, a program; and
 * of a mixture what each source has, and how much of it the run will use. */
void data_look(const struct data *data);

/* Tokens for training and held out, of all sources. */
uint64_t data_train_tokens(const struct data *data);
uint64_t data_held_out_tokens(const struct data *data);

/* Whether data_held_out() has a window to give. */
bool data_holds_out(const struct data *data);

/* Fills tokens(count,context) and targets(count,context) with the stream's windows `position`, `position` + 1, ...
 * ERR_CORRUPT: a token outside the vocabulary, with file and place. */
ERR_MUST_CHECK enum err data_batch(const struct data *data, uint64_t position, int64_t count, int32_t *tokens,
                                   int32_t *targets);

/* Whether windows can be dealt by the run: not of a mixture whose weights change with the steps, as how many windows of
 * a source were drawn before a position then depends on who drew when. */
bool data_deals(const struct data *data);
/* As data_batch(), of the windows at these places(count), whatever the stream is. */
ERR_MUST_CHECK enum err data_batch_dealt(const struct data *data, const struct deal_place *places, int64_t count,
                                         int32_t *tokens, int32_t *targets);

/* The same for validation: windows `index` ... of `total`, of each source in proportion to what the whole run draws of
 * it, spread evenly over its held-out part; sources whose held-out part holds no window are left out. ERR_NOTFOUND if
 * that is so of all. */
ERR_MUST_CHECK enum err data_held_out(const struct data *data, uint64_t index, uint64_t total, int64_t count,
                                      int32_t *tokens, int32_t *targets);

#endif
