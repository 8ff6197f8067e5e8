/* SPDX-License-Identifier: Apache-2.0 */
#include "common/words.h"

#include <stdbool.h>
#include <string.h>

#include "common/mem.h"

static const char blanks[] = " \t\n";

static bool is_blank(char c)
{
    return c != '\0' && strchr(blanks, c) != NULL;
}

/* Copies the word that begins at `*from` to `*to`, with its end; a word never grows. */
static enum err take_word(const char **from, char **to)
{
    char quote = '\0';
    const char *at = *from;
    for (; *at != '\0' && (quote != '\0' || !is_blank(*at)); at++) {
        if (*at == quote)
            quote = '\0';
        else if (quote == '\0' && (*at == '\'' || *at == '"'))
            quote = *at;
        else if (*at == '\\' && quote != '\'' && at[1] != '\0')
            *(*to)++ = *++at;
        else
            *(*to)++ = *at;
    }
    if (quote != '\0')
        return err_set(ERR_CONF, "a %c without the one that ends it", quote);
    *(*to)++ = '\0';
    *from = at;
    return ERR_OK;
}

static enum err split(const char *from, struct words *words)
{
    char *to = words->text;
    for (from += strspn(from, blanks); *from != '\0'; from += strspn(from, blanks)) {
        if (words->count == WORDS_MAX)
            return err_set(ERR_CONF, "more than %d words", WORDS_MAX);
        words->word[words->count++] = to;
        TRY(take_word(&from, &to));
    }
    return ERR_OK;
}

enum err words_split(const char *line, struct words *words)
{
    *words = (struct words){.count = 0};
    /* A word's end takes the place of the blank after it; the last one has none. */
    TRY(mem_new(strlen(line) + 2, 1, "words", &words->text));
    enum err err = split(line, words);
    if (err != ERR_OK)
        words_free(words);
    return err;
}

void words_free(struct words *words)
{
    mem_free(words->text);
    *words = (struct words){.count = 0};
}
