/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cut: a text into the words that merges may not cross.
 *
 * Owns what a tokenizer.json says under `normalizer` and `pre_tokenizer`: a row of steps, each of which turns pieces of
 * text into others. Regular expressions are PCRE2's, with Unicode's classes, and may take so many steps and no more:
 * the file is anyone's. A step that is not known makes all of it refuse, by name; nothing is left out in silence. One
 * thread calls.
 */
#ifndef WORKER_CUT_H
#define WORKER_CUT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "common/err.h"

struct cut;

/* Pieces of a text, one behind the other: piece `i` goes from where the one before ends to `end[i]`. Zeroed at the
 * beginning. */
struct cut_pieces {
    char *text;
    size_t bytes, room;
    size_t *end;
    size_t count, ends_room;
};
void cut_pieces_free(struct cut_pieces *pieces);
/* Where piece `i` begins. */
size_t cut_begin(const struct cut_pieces *pieces, size_t i);

/* ERR_CONF: a step, or a part of one, that is not known; the text names it. NULL and null are no steps. */
ERR_MUST_CHECK enum err cut_new(const json_t *normalizer, const json_t *pre_tokenizer, struct cut **out);
void cut_free(struct cut *cut);

/* The text as tokens have it: one piece, or none of an empty text. `text` is UTF-8. */
ERR_MUST_CHECK enum err cut_normalize(const struct cut *cut, const char *text, size_t bytes, struct cut_pieces *out);

/* Words of a normalized text. `is_first`: the text that was asked for begins here. */
ERR_MUST_CHECK enum err cut_words(const struct cut *cut, const char *text, size_t bytes, bool is_first,
                                  struct cut_pieces *out);

/* The character that stands for a byte in byte-level tokens; and back, -1: none. */
unsigned cut_byte_sign(unsigned char byte);
int cut_sign_byte(unsigned code);

#endif
