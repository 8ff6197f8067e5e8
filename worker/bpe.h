/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bpe: the vocabulary of a byte-pair tokenizer, and words into its tokens by its merges.
 *
 * Owns the `model` of a tokenizer.json: tokens by id and by text, pairs that merge, what becomes of characters that are
 * in no token. The file is anyone's: all that is out of bounds is refused by name. It knows neither how a text is cut
 * into words (worker/cut.h) nor what tokens look like on a screen (worker/tokenizer.h). One thread calls.
 */
#ifndef WORKER_BPE_H
#define WORKER_BPE_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"

enum { BPE_TOKENS_MAX = 1 << 20, BPE_WHY_BYTES = 200 };

struct bpe;

/* Tokens of a text so far; grown as need be. Zeroed at the beginning; free `id` with mem_free(). */
struct bpe_ids {
    int32_t *id;
    size_t count, room;
};
ERR_MUST_CHECK enum err bpe_ids_add(struct bpe_ids *ids, int32_t id);

/* From the object "model". ERR_CONF: of another type than BPE, or damaged. */
ERR_MUST_CHECK enum err bpe_new(const json_t *model, struct bpe **out);
void bpe_free(struct bpe *bpe);

/* Why bpe_encode() cannot be used; "": it can. */
const char *bpe_why_not(const struct bpe *bpe);

/* One more than the largest id. */
int32_t bpe_end(const struct bpe *bpe);

/* The text of a token, not ended by a zero byte; NULL: there is none with this id. */
const char *bpe_text(const struct bpe *bpe, int32_t id, size_t *bytes);

/* -1: no token has this text. */
int32_t bpe_find(const struct bpe *bpe, const char *text, size_t bytes);

/* Appends the tokens of a word, which is UTF-8. */
ERR_MUST_CHECK enum err bpe_encode(const struct bpe *bpe, const char *word, size_t bytes, struct bpe_ids *ids);

#endif
