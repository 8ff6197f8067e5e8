/* SPDX-License-Identifier: Apache-2.0 */
/*
 * words: a line cut into words, as a shell cuts it, without a shell.
 *
 * Blanks part words. What stands between '…' or "…" belongs to one word, blanks and all; a backslash, but within '…',
 * takes the character after it as it is. Nothing is expanded, and no character is special but these. Any thread.
 */
#ifndef COMMON_WORDS_H
#define COMMON_WORDS_H

#include <stddef.h>

#include "common/err.h"

enum { WORDS_MAX = 64 };

struct words {
    char *word[WORDS_MAX + 1]; /* NULL after the last */
    size_t count;
    char *text; /* that they lie in */
};

/* ERR_CONF: a quote without its end, or too many words. After a failure nothing is left to free. */
ERR_MUST_CHECK enum err words_split(const char *line, struct words *words);
void words_free(struct words *words);

#endif
