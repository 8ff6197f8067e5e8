/*
 * data: a corpus on disk as batches of token sequences.
 *
 * What a file may be the run spec says, and worker/shard.h reads. A path may be a glob pattern; the files are taken in
 * name order. The last part is held out for validation and never trained on.
 *
 * Training windows are visited in a pseudo-random order that is a function of the seed alone; stream `i` of `n` takes
 * every n-th of them, so the streams of different islands are disjoint and each is a function of one number, the
 * position. Files are mapped, not read; one thread calls.
 */
#ifndef WORKER_DATA_H
#define WORKER_DATA_H

#include <stdint.h>

#include "common/err.h"

struct data;

struct data_conf {
    const char *path; /* file or glob pattern */
    int format;       /* enum runspec_format */
    int64_t vocab;    /* tokens at or above it are refused */
    int64_t context;  /* tokens in a window */
    double held_out;  /* fraction */
    uint64_t seed;
    uint32_t stream, streams_count;
};

/* ERR_CONF: missing, empty, too short, of another format, and what to do. */
ERR_MUST_CHECK enum err data_open(const struct data_conf *conf, struct data **out);
void data_close(struct data *data);

/* Logs a warning, one in all, if files look like something else than text or tokens: packed, a database, a program. */
void data_look(const struct data *data);

/* Tokens for training and held out. */
uint64_t data_train_tokens(const struct data *data);
uint64_t data_held_out_tokens(const struct data *data);

/* Fills tokens(count,context) and targets(count,context) with the stream's windows `position`, `position` + 1, ...
 * ERR_CORRUPT: a token outside the vocabulary, with file and place. */
ERR_MUST_CHECK enum err data_batch(const struct data *data, uint64_t position, int64_t count, int32_t *tokens,
                                   int32_t *targets);

/* The same for validation: windows `index` ... of `total` spread evenly over the held-out part. ERR_NOTFOUND if it
 * holds no window. */
ERR_MUST_CHECK enum err data_held_out(const struct data *data, uint64_t index, uint64_t total, int64_t count,
                                      int32_t *tokens, int32_t *targets);

#endif
