/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tokenizer: text into tokens and back, by a tokenizer.json as Hugging Face's tokenizers write it.
 *
 * Reads byte-pair models (worker/bpe.h), byte-level or with bytes for what they lack; how a text is cut into words
 * (worker/cut.h); added tokens; and decoders. post_processor is left out: what a prompt shall begin with is to stand in
 * it, as in "<s>Once". The file is anyone's: it is read within limits, and a part that is not known is named. What only
 * encoding needs may be unknown: tokens are printed all the same. One thread calls.
 */
#ifndef WORKER_TOKENIZER_H
#define WORKER_TOKENIZER_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "common/err.h"
#include "worker/bpe.h"
#include "worker/utf8.h"

struct tokenizer;

/* `vocab`: the model's; a token beyond it is refused. ERR_CONF: what is unknown or damaged, ERR_IO: no such file. */
ERR_MUST_CHECK enum err tokenizer_open(const char *path, int64_t vocab, struct tokenizer **out);
void tokenizer_close(struct tokenizer *tokenizer);

/* One more than the largest id. */
int32_t tokenizer_end(const struct tokenizer *tokenizer);

/* Why tokenizer_encode() cannot be used; "": it can. */
const char *tokenizer_why_not(const struct tokenizer *tokenizer);

/* Appends the tokens of a text. ERR_ARG: it is no UTF-8, or holds what cannot be encoded. */
ERR_MUST_CHECK enum err tokenizer_encode(const struct tokenizer *tokenizer, const char *text, struct bpe_ids *ids);

/* What a text begins with that has nothing else yet: by the post_processor, or a usual name; -1: no such token. */
int32_t tokenizer_begin_token(const struct tokenizer *tokenizer);

/* A text on its way to a file, token by token. */
struct tokenizer_text {
    struct tokenizer *tokenizer; /* borrowed */
    struct utf8_stream stream;
    bool begun;
    unsigned stripped; /* characters of the beginning that were left out so far */
    bool strip_ended;
};
struct tokenizer_text tokenizer_text(struct tokenizer *tokenizer);

/* Writes what is whole by now: a token may end within a character. One without a text is written as <ID>. */
void tokenizer_put(struct tokenizer_text *text, int32_t id, FILE *out);
void tokenizer_finish(struct tokenizer_text *text, FILE *out);

#endif
