/* SPDX-License-Identifier: Apache-2.0 */
/* words: a line is cut as a shell would cut it, and nothing in it is expanded. */
#include "tests/lib/testlib.h"

#include <string.h>

#include "common/mem.h"
#include "common/words.h"

/* `want`: the words, each followed by '|'. */
static void assert_words(const char *line, const char *want)
{
    struct words words;
    char got[512] = "";
    assert_ok(words_split(line, &words));
    for (size_t i = 0; i < words.count; i++)
        strcat(strcat(got, words.word[i]), "|");
    assert_string_equal(got, want);
    assert_null(words.word[words.count]);
    words_free(&words);
}

static void blanks_part_words_and_quotes_keep_them(void **state)
{
    (void)state;
    assert_words("", "");
    assert_words("  \t ", "");
    assert_words("python3", "python3|");
    assert_words(" python3\t-u  train.py ", "python3|-u|train.py|");
    assert_words("a 'b c' \"d e\" f", "a|b c|d e|f|");
    assert_words("--name='one two'x\"y z\"", "--name=one twoxy z|");
    assert_words("'' a \"\"", "|a||");
    assert_words("'a\"b' \"c'd\"", "a\"b|c'd|");
    assert_words("a\\ b \\\"c \"d\\\"e\" 'f\\g' h\\\\ i\\", "a b|\"c|d\"e|f\\g|h\\|i\\|");
}

static void nothing_is_expanded(void **state)
{
    (void)state;
    assert_words("$HOME ~ * `id` $(id) a;b & > < | #x", "$HOME|~|*|`id`|$(id)|a;b|&|>|<|||#x|");
}

static void what_cannot_be_cut_is_refused(void **state)
{
    (void)state;
    struct words words;
    char many[2 * WORDS_MAX + 3];
    assert_fails(ERR_CONF, "a ' without", words_split("a 'b", &words));
    assert_fails(ERR_CONF, "a \" without", words_split("\"", &words));
    assert_int_equal(words.count, 0);
    for (int i = 0; i <= WORDS_MAX; i++)
        memcpy(many + 2 * i, "x ", 3);
    assert_fails(ERR_CONF, "more than 64 words", words_split(many, &words));
    many[2 * WORDS_MAX] = '\0';
    assert_ok(words_split(many, &words));
    assert_int_equal(words.count, WORDS_MAX);
    words_free(&words);
    mem_fail_after(0);
    enum err err = words_split("a", &words);
    mem_fail_after(-1);
    assert_int_equal(err, ERR_NOMEM);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blanks_part_words_and_quotes_keep_them),
        cmocka_unit_test(nothing_is_expanded),
        cmocka_unit_test(what_cannot_be_cut_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
