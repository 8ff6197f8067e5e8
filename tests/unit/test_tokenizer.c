/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer: the same tokens and the same text as Hugging Face's tokenizers (0.23.3) for four small ones, which it
 * trained on the first 60000 bytes of Shakespeare (tests/vectors; under "cases" is what it makes of some texts); whole
 * characters only, unknown parts by name, and no file that breaks it. */
#include "tests/lib/testlib.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/fsio.h"
#include "common/mem.h"
#include "worker/cut.h"
#include "worker/tokenizer.h"

static const char *folder;
static const char *const names[] = {"gpt2", "llama3", "metaspace", "sentencepiece"};
enum { NAMES = sizeof names / sizeof names[0], VOCAB = 1000 };

static const char *path_of(const char *name)
{
    static char path[200];
    snprintf(path, sizeof path, "tests/vectors/tokenizer-%s.json", name);
    return path;
}

static struct tokenizer *open_named(const char *name)
{
    struct tokenizer *tokenizer;
    assert_ok(tokenizer_open(path_of(name), VOCAB, &tokenizer));
    return tokenizer;
}

/* What is printed of some tokens; free() it. */
static char *printed(struct tokenizer *tokenizer, const int32_t *ids, size_t count)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    struct tokenizer_text state = tokenizer_text(tokenizer);
    for (size_t i = 0; i < count; i++) {
        tokenizer_put(&state, ids[i], out);
        fflush(out);
        if (!utf8_valid(text, bytes))
            fail_msg("after token %zu a character is cut: \"%s\"", i, text);
    }
    tokenizer_finish(&state, out);
    fclose(out);
    return text;
}

static void check_case(const char *name, struct tokenizer *tokenizer, json_t *one)
{
    const char *text = json_string_value(json_object_get(one, "text"));
    const char *said = json_string_value(json_object_get(one, "said"));
    json_t *want = json_object_get(one, "ids");
    struct bpe_ids ids = {0};
    assert_ok(tokenizer_encode(tokenizer, text, &ids));
    bool same = ids.count == json_array_size(want);
    for (size_t i = 0; same && i < ids.count; i++)
        same = ids.id[i] == json_integer_value(json_array_get(want, i));
    for (size_t i = 0; !same && i < ids.count; i++)
        print_message("%d ", ids.id[i]);
    if (!same)
        fail_msg("%s: \"%s\": other tokens than %s", name, text, json_dumps(want, 0));
    char *got = printed(tokenizer, ids.id, ids.count);
    if (strcmp(got, said) != 0)
        fail_msg("%s: \"%s\" is printed as \"%s\"", name, said, got);
    free(got);
    mem_free(ids.id);
}

static void texts_are_the_tokens_that_the_original_makes(void **state)
{
    (void)state;
    for (size_t i = 0; i < NAMES; i++) {
        char vectors[100];
        json_t *one;
        size_t at;
        struct tokenizer *tokenizer = open_named(names[i]);
        assert_string_equal(tokenizer_why_not(tokenizer), "");
        snprintf(vectors, sizeof vectors, "tokenizer-%s", names[i]);
        json_t *cases = testlib_cases(vectors);
        assert_true(json_array_size(cases) >= 30);
        json_array_foreach (cases, at, one)
            check_case(names[i], tokenizer, one);
        tokenizer_close(tokenizer);
    }
}

static void a_character_is_printed_when_it_is_whole(void **state)
{
    (void)state;
    struct tokenizer *tokenizer = open_named("sentencepiece");
    /* <0xF0> <0x9F> <0x99> <0x82>, of which the last one makes the character; <0xNN> is token NN + 3. */
    const int32_t face[] = {0xf0 + 3, 0x9f + 3, 0x99 + 3, 0x82 + 3};
    char *text = printed(tokenizer, face, 4);
    assert_string_equal(text, "\xf0\x9f\x99\x82");
    free(text);
    const int32_t cut[] = {0xf0 + 3, 0x9f + 3, 0x41 + 3, 0xff + 3, 0x42 + 3, 0xe2 + 3};
    text = printed(tokenizer, cut, 6);
    assert_string_equal(text, "\xef\xbf\xbd"
                              "A"
                              "\xef\xbf\xbd"
                              "B"
                              "\xef\xbf\xbd"); /* U+FFFD for what was none */
    free(text);
    const int32_t beyond[] = {999, 0x41 + 3};
    text = printed(tokenizer, beyond, 2);
    assert_string_equal(text, "<999>A");
    free(text);
    tokenizer_close(tokenizer);
}

static void a_text_begins_with_what_the_file_says(void **state)
{
    (void)state;
    static const int32_t want[] = {0, 0, 1, 1}; /* <|endoftext|>, <|begin_of_text|> by the template, <s>, <s> */
    for (size_t i = 0; i < NAMES; i++) {
        struct tokenizer *tokenizer = open_named(names[i]);
        assert_int_equal(tokenizer_begin_token(tokenizer), want[i]);
        tokenizer_close(tokenizer);
    }
}

/* ---- files that are unlike ---- */

#define VOCABULARY "\"vocab\":{\"a\":0,\"b\":1,\"ab\":2,\"<unk>\":3}"
#define MODEL "\"model\":{\"type\":\"BPE\"," VOCABULARY ",\"merges\":[\"a b\"],\"unk_token\":\"<unk>\"}"

static enum err open_text(const char *text, struct tokenizer **out)
{
    return tokenizer_open(testlib_file(folder, "t.json", "%s", text), 10, out);
}

static void what_cannot_be_read_is_named(void **state)
{
    (void)state;
    static const struct {
        const char *text, *part;
    } cases[] = {
        {"", "line "},
        {"[]", "no object \"model\""},
        {"{\"model\":{\"type\":\"Unigram\"}}", "model is Unigram; BPE can be read"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{},\"merges\":[]}}", "model.vocab has 0 tokens"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":-1},\"merges\":[]}}", "token \"a\" has no id"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":1048576},\"merges\":[]}}",
         "token \"a\" has no id from 0 to 1048575"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":1,\"b\":1},\"merges\":[]}}", "two tokens have the id 1"},
        {"{\"model\":{\"type\":\"BPE\"," VOCABULARY ",\"merges\":[\"a c\"]}}",
         "entry 0 (\"a\" and \"c\") names what is not"},
        {"{\"model\":{\"type\":\"BPE\"," VOCABULARY ",\"merges\":[\"a b a\"]}}", "entry 0 is no pair"},
        {"{\"model\":{\"type\":\"BPE\"," VOCABULARY ",\"merges\":[7]}}", "entry 0 is no pair"},
        {"{\"model\":{\"type\":\"BPE\"," VOCABULARY ",\"merges\":7}}", "model.merges is no list"},
        {"{" MODEL ",\"decoder\":{\"type\":\"WordPiece\"}}", "decoder WordPiece"},
        {"{" MODEL ",\"decoder\":{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"a\"},\"content\":\"\"}}",
         "decoder Replace by a pattern"},
        {"{" MODEL ",\"added_tokens\":[{\"content\":\"x\"}]}", "added_tokens: entry 0 has no id"},
        {"{" MODEL ",\"added_tokens\":[{\"id\":11,\"content\":\"x\"}]}",
         "has tokens up to 11, and the model a vocabulary of 10: it is of another model"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":10},\"merges\":[]}}",
         "has tokens up to 10, and the model a vocabulary of 10"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct tokenizer *tokenizer;
        assert_fails(ERR_CONF, cases[i].part, open_text(cases[i].text, &tokenizer));
        assert_non_null(strstr(err_text(), "t.json"));
        assert_null(tokenizer);
    }
    struct tokenizer *tokenizer;
    assert_fails(ERR_NOTFOUND, "no/such/file", tokenizer_open("no/such/file", 10, &tokenizer));
}

/* A whole file whose text `ab` is one token, with a part that only encoding needs. */
static void what_only_encoding_needs_does_not_keep_tokens_from_the_screen(void **state)
{
    (void)state;
    static const struct {
        const char *part, *why;
    } cases[] = {
        {"\"normalizer\":{\"type\":\"NFKC\"}", "normalizer NFKC"},
        {"\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Lowercase\"}]}", "normalizer Lowercase"},
        {"\"pre_tokenizer\":{\"type\":\"BertPreTokenizer\"}", "pre_tokenizer BertPreTokenizer"},
        {"\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(\"},\"behavior\":\"Isolated\"}",
         "the pattern \"(\""},
        {"\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"a\"},\"behavior\":\"Other\"}",
         "behavior Other"},
        {"\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"_\",\"prepend_scheme\":\"x\"}",
         "prepend_scheme x"},
        {"\"pre_tokenizer\":{}", "a step without a type"},
        {"\"added_tokens\":[{\"id\":4,\"content\":\"x\",\"single_word\":true}]", "\"x\" with single_word"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[1000];
        struct tokenizer *tokenizer;
        struct bpe_ids ids = {0};
        snprintf(text, sizeof text, "{" MODEL ",\"decoder\":{\"type\":\"Fuse\"},%s}", cases[i].part);
        assert_ok(open_text(text, &tokenizer));
        if (strstr(tokenizer_why_not(tokenizer), cases[i].why) == NULL)
            fail_msg("%s: %s", cases[i].part, tokenizer_why_not(tokenizer));
        assert_fails(ERR_CONF, cases[i].why, tokenizer_encode(tokenizer, "ab", &ids));
        char *got = printed(tokenizer, (const int32_t[]){2, 0}, 2);
        assert_string_equal(got, "aba");
        free(got);
        tokenizer_close(tokenizer);
    }
}

/* Pieces of a text by one pre_tokenizer, with | between. */
static const char *cut_by(const char *json, const char *text)
{
    static char out[300];
    struct cut *cut;
    struct cut_pieces pieces = {0};
    json_t *said = json_loads(json, 0, NULL);
    assert_non_null(said);
    assert_ok(cut_new(NULL, said, &cut));
    assert_ok(cut_words(cut, text, strlen(text), true, &pieces));
    out[0] = '\0';
    for (size_t i = 0; i < pieces.count; i++)
        snprintf(out + strlen(out), sizeof out - strlen(out), "%s%.*s", i > 0 ? "|" : "",
                 (int)(pieces.end[i] - cut_begin(&pieces, i)), pieces.text + cut_begin(&pieces, i));
    cut_pieces_free(&pieces);
    cut_free(cut);
    json_decref(said);
    return out;
}

/* What the original says of "the-final--countdown" in its documentation. */
static void splits_part_as_their_behavior_says(void **state)
{
    (void)state;
#define BY(behavior) \
    "{\"type\":\"Split\",\"pattern\":{\"String\":\"-\"},\"invert\":false,\"behavior\":\"" behavior "\"}"
    static const char text[] = "the-final--countdown";
    assert_string_equal(cut_by(BY("Removed"), text), "the|final|countdown");
    assert_string_equal(cut_by(BY("Isolated"), text), "the|-|final|-|-|countdown");
    assert_string_equal(cut_by(BY("MergedWithPrevious"), text), "the-|final-|-|countdown");
    assert_string_equal(cut_by(BY("MergedWithNext"), text), "the|-final|-|-countdown");
    assert_string_equal(cut_by(BY("Contiguous"), text), "the|-|final|--|countdown");
    assert_string_equal(
        cut_by("{\"type\":\"Split\",\"pattern\":{\"Regex\":\"\\\\w+\"},\"invert\":true,\"behavior\":\"Removed\"}",
               text),
        "the|final|countdown");
    assert_string_equal(
        cut_by("{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(?=f)\"},\"behavior\":\"Isolated\"}", text),
        "the-|final--countdown"); /* matches of no length */
    assert_string_equal(cut_by("{\"type\":\"Digits\",\"individual_digits\":false}", "ab123c4"), "ab|123|c|4");
    assert_string_equal(
        cut_by("{\"type\":\"Metaspace\",\"replacement\":\"_\",\"prepend_scheme\":\"always\",\"split\":false}", "a b"),
        "_a_b");
    assert_string_equal(cut_by("{\"type\":\"ByteLevel\",\"add_prefix_space\":true,\"use_regex\":true}", "a b"),
                        "\xc4\xa0"
                        "a|\xc4\xa0"
                        "b");
}

static void a_pattern_that_never_ends_is_stopped(void **state)
{
    (void)state;
    struct tokenizer *tokenizer;
    struct bpe_ids ids = {0};
    assert_ok(open_text("{" MODEL
                        ",\"pre_tokenizer\":{\"type\":\"Split\",\"behavior\":\"Isolated\",\"pattern\":{\"Regex\":"
                        "\"(a+)+[cd]\"}}}",
                        &tokenizer));
    assert_fails(ERR_CONF, "a pattern of the tokenizer takes too long on this text",
                 tokenizer_encode(tokenizer, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab", &ids));
    mem_free(ids.id);
    tokenizer_close(tokenizer);
}

static void a_text_that_cannot_be_encoded_is_refused(void **state)
{
    (void)state;
    struct bpe_ids ids = {0};
    struct tokenizer *tokenizer = open_named("llama3"); /* NFC */
    assert_fails(ERR_ARG, "not UTF-8", tokenizer_encode(tokenizer, "a\xff", &ids));
    assert_fails(ERR_ARG, "U+0301 in the text: the tokenizer normalizes by NFC",
                 tokenizer_encode(tokenizer, "e\xcc\x81", &ids));
    mem_free(ids.id);
    tokenizer_close(tokenizer);
}

/* What a token adds within a text. */
static size_t piece_bytes(struct tokenizer *tokenizer, int32_t id)
{
    char *text = printed(tokenizer, (const int32_t[]){'a' + 3, id}, 2);
    size_t bytes = strlen(text) - 1;
    free(text);
    return bytes;
}

/* Long words take time by their length, not by its square. */
static void a_long_word_is_encoded(void **state)
{
    (void)state;
    enum { LONG = 40000 };
    char *text = calloc(1, LONG + 1);
    for (int i = 0; i < LONG; i++)
        text[i] = "the quality of mercy"[i % 20];
    struct tokenizer *tokenizer = open_named("sentencepiece");
    struct bpe_ids ids = {0};
    assert_ok(tokenizer_encode(tokenizer, text, &ids));
    size_t bytes = 0;
    for (size_t i = 0; i < ids.count; i++)
        bytes += piece_bytes(tokenizer, ids.id[i]);
    assert_int_equal(bytes, LONG + 1); /* and the blank in front, of which there is none on the screen */
    free(text);
    mem_free(ids.id);
    tokenizer_close(tokenizer);
}

/* Tokens of a text by a file that is written here. */
static void assert_encodes(const char *file, const char *text, const int32_t *want, size_t count)
{
    struct tokenizer *tokenizer;
    struct bpe_ids ids = {0};
    assert_ok(open_text(file, &tokenizer));
    assert_ok(tokenizer_encode(tokenizer, text, &ids));
    assert_int_equal(ids.count, count);
    assert_memory_equal(ids.id, want, count * sizeof *want);
    mem_free(ids.id);
    tokenizer_close(tokenizer);
}

static void a_word_that_is_a_token_needs_no_merges_where_they_are_ignored(void **state)
{
    (void)state;
#define IGNORING(merges) "{\"model\":{\"type\":\"BPE\"," VOCABULARY ",\"merges\":[],\"ignore_merges\":" merges "}}"
    assert_encodes(IGNORING("true"), "ab", (const int32_t[]){2}, 1);
    assert_encodes(IGNORING("false"), "ab", (const int32_t[]){0, 1}, 2);
}

static void of_added_tokens_the_longest_is_taken(void **state)
{
    (void)state;
    for (int turn = 0; turn < 2; turn++) {
        char file[1000];
        snprintf(file, sizeof file,
                 "{" MODEL ",\"added_tokens\":[{\"id\":%d,\"content\":\"%s\"},{\"id\":%d,\"content\":\"%s\"}]}",
                 5 + turn, turn == 0 ? "<x" : "<xy>", 6 - turn, turn == 0 ? "<xy>" : "<x");
        assert_encodes(file, "a<xy>ab<x", (const int32_t[]){0, 6, 2, 5}, 4);
    }
}

/* ---- damaged files ---- */

static void try_file(const char *path)
{
    struct tokenizer *tokenizer;
    struct bpe_ids ids = {0};
    if (tokenizer_open(path, VOCAB, &tokenizer) != ERR_OK)
        return;
    enum err err = tokenizer_encode(tokenizer, " to be, or <s> not 12 \xc3\xa9\xf0\x9f\x99\x82", &ids);
    assert_true(err == ERR_OK || err == ERR_CONF || err == ERR_ARG);
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    struct tokenizer_text state = tokenizer_text(tokenizer);
    for (size_t i = 0; i < ids.count; i++)
        tokenizer_put(&state, ids.id[i], out);
    for (int32_t id = -1; id < tokenizer_end(tokenizer) + 1 && id < 2000; id++)
        tokenizer_put(&state, id, out);
    tokenizer_finish(&state, out);
    fclose(out);
    assert_true(utf8_valid(text, bytes));
    free(text);
    mem_free(ids.id);
    tokenizer_close(tokenizer);
}

static void no_damaged_file_breaks_it(void **state)
{
    (void)state;
    const char *path = testlib_path(folder, "damaged.json");
    for (size_t n = 0; n < NAMES; n++) {
        char *text;
        size_t bytes;
        assert_ok(fsio_read(path_of(names[n]), 1 << 20, &text, &bytes));
        struct tokenizer *tokenizer;
        for (size_t cut = 0; cut + 1 < bytes; cut += 1 + bytes / 50) {
            assert_ok(fsio_replace(path, text, cut, 0600));
            assert_int_equal(tokenizer_open(path, VOCAB, &tokenizer), ERR_CONF);
        }
        struct env_rng rng = env_rng_init(n, 0);
        for (unsigned i = 0; i < testlib_seeds(60); i++) {
            size_t at[3];
            char was[3];
            for (int k = 0; k < 3; k++) {
                at[k] = (size_t)(env_rng_uniform(&rng) * (double)(bytes - 1));
                was[k] = text[at[k]];
                text[at[k]] =
                    k == 0 ? "0\"{[:,]}-"[i % 9] : text[(size_t)(env_rng_uniform(&rng) * (double)(bytes - 1))];
            }
            assert_ok(fsio_replace(path, text, bytes, 0600));
            try_file(path);
            for (int k = 3; k-- > 0;)
                text[at[k]] = was[k];
        }
        mem_free(text);
    }
}

static void every_failing_allocation_is_survived(void **state)
{
    (void)state;
    for (long n = 0; n < 100000; n++) {
        struct tokenizer *tokenizer = NULL;
        struct bpe_ids ids = {0};
        mem_fail_after(n);
        enum err err = tokenizer_open(path_of("llama3"), VOCAB, &tokenizer);
        if (err == ERR_OK)
            err = tokenizer_encode(tokenizer, "to be", &ids);
        mem_fail_after(-1);
        mem_free(ids.id);
        tokenizer_close(tokenizer);
        if (err == ERR_OK)
            return;
        assert_int_equal(err, ERR_NOMEM);
    }
    fail_msg("it never went well");
}

int main(void)
{
    folder = testlib_folder("tokenizer");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_are_the_tokens_that_the_original_makes),
        cmocka_unit_test(a_character_is_printed_when_it_is_whole),
        cmocka_unit_test(a_text_begins_with_what_the_file_says),
        cmocka_unit_test(what_cannot_be_read_is_named),
        cmocka_unit_test(what_only_encoding_needs_does_not_keep_tokens_from_the_screen),
        cmocka_unit_test(splits_part_as_their_behavior_says),
        cmocka_unit_test(a_pattern_that_never_ends_is_stopped),
        cmocka_unit_test(a_text_that_cannot_be_encoded_is_refused),
        cmocka_unit_test(a_long_word_is_encoded),
        cmocka_unit_test(a_word_that_is_a_token_needs_no_merges_where_they_are_ignored),
        cmocka_unit_test(of_added_tokens_the_longest_is_taken),
        cmocka_unit_test(no_damaged_file_breaks_it),
        cmocka_unit_test(every_failing_allocation_is_survived),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
