/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/cut.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "common/mem.h"
#include "worker/utf8.h"

/* Of what a file says; real ones have 1 to 4 steps and patterns of some 100 bytes. */
enum { STEPS_MAX = 32, DEPTH_MAX = 8, PATTERN_BYTES_MAX = 16384, TEXT_BYTES_MAX = 1 << 24 };
/* What one match may take: ordinary ones take a few thousand. */
enum { MATCH_LIMIT = 1000000, DEPTH_LIMIT = 100000, HEAP_LIMIT_KIB = 65536 };

static const char gpt2_words[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

enum kind { PREPEND, REPLACE, COMPOSED, SPLIT, BYTES, PREFIX, UNDERLINE };
enum behavior { ISOLATED, REMOVED, CONTIGUOUS, WITH_PREVIOUS, WITH_NEXT };
enum prepends { NEVER, FIRST, ALWAYS };

struct step {
    enum kind kind;
    pcre2_code *regex;       /* what REPLACE and SPLIT look for; NULL: `text` */
    pcre2_match_data *found; /* of the regex */
    char *text;              /* owned: to look for, to put in front, or what stands for a blank */
    char *by;                /* owned: what REPLACE puts there */
    enum behavior behavior;
    bool invert;
    enum prepends prepends; /* of UNDERLINE */
};

struct cut {
    struct step step[STEPS_MAX];
    size_t count, normalizers; /* the first ones */
    pcre2_match_context *limits;
};

/* ---- pieces ---- */

void cut_pieces_free(struct cut_pieces *pieces)
{
    mem_free(pieces->text);
    mem_free(pieces->end);
    *pieces = (struct cut_pieces){0};
}

size_t cut_begin(const struct cut_pieces *pieces, size_t i)
{
    return i > 0 ? pieces->end[i - 1] : 0;
}

static enum err make_room(void *array, size_t *room, size_t need, size_t size)
{
    size_t more = *room > 0 ? *room : 256;
    if (need <= *room)
        return ERR_OK;
    while (more < need)
        more *= 2;
    if (*room == 0)
        TRY(mem_new(more, size, "words of a text", array));
    else
        TRY(mem_grow(array, *room, more, size, "words of a text"));
    *room = more;
    return ERR_OK;
}

/* Adds to the piece that is being written. */
static enum err put(struct cut_pieces *out, const char *text, size_t bytes)
{
    if (out->bytes + bytes > TEXT_BYTES_MAX)
        return err_set(ERR_ARG, "the text is longer than %d bytes once it is normalized", TEXT_BYTES_MAX);
    TRY(make_room(&out->text, &out->room, out->bytes + bytes + 1, 1));
    if (bytes > 0)
        memcpy(out->text + out->bytes, text, bytes);
    out->bytes += bytes;
    return ERR_OK;
}

/* Ends it, if there is anything in it. */
static enum err end_piece(struct cut_pieces *out)
{
    if (out->bytes == (out->count > 0 ? out->end[out->count - 1] : 0))
        return ERR_OK;
    TRY(make_room(&out->end, &out->ends_room, out->count + 1, sizeof *out->end));
    out->end[out->count++] = out->bytes;
    return ERR_OK;
}

/* ---- signs for bytes ---- */

/* GPT-2's: bytes that are visible as Latin-1 stand for themselves, the others for U+0100 and on, in order. */
static const struct {
    unsigned first, last, sign;
} hidden[] = {{0, 0x20, 0x100}, {0x7f, 0xa0, 0x121}, {0xad, 0xad, 0x143}};
enum { HIDDEN = sizeof hidden / sizeof hidden[0] };

unsigned cut_byte_sign(unsigned char byte)
{
    for (size_t i = 0; i < HIDDEN; i++)
        if (byte >= hidden[i].first && byte <= hidden[i].last)
            return hidden[i].sign + (byte - hidden[i].first);
    return byte;
}

int cut_sign_byte(unsigned code)
{
    for (size_t i = 0; i < HIDDEN; i++)
        if (code >= hidden[i].sign && code - hidden[i].sign <= hidden[i].last - hidden[i].first)
            return (int)(code - hidden[i].sign + hidden[i].first);
    return code < 0x100 && cut_byte_sign((unsigned char)code) == code ? (int)code : -1;
}

/* ---- matches ---- */

/* The next place from `from` on that the step looks for. */
static enum err find(const struct cut *cut, const struct step *step, const char *text, size_t bytes, size_t from,
                     size_t *begin, size_t *end)
{
    *begin = *end = bytes + 1;
    if (step->regex == NULL) {
        size_t length = strlen(step->text);
        const char *at = length > 0 ? memmem(text + from, bytes - from, step->text, length) : NULL;
        if (at != NULL) {
            *begin = (size_t)(at - text);
            *end = *begin + length;
        }
        return ERR_OK;
    }
    int code = pcre2_match(step->regex, (PCRE2_SPTR)text, bytes, from, PCRE2_NO_UTF_CHECK, step->found, cut->limits);
    if (code == PCRE2_ERROR_NOMATCH)
        return ERR_OK;
    if (code < 0)
        return err_set(ERR_CONF, "a pattern of the tokenizer takes too long on this text (PCRE2 says %d)", code);
    const PCRE2_SIZE *found = pcre2_get_ovector_pointer(step->found);
    *begin = found[0];
    *end = found[1] > found[0] ? found[1] : found[0]; /* \K can turn them round */
    return ERR_OK;
}

/* After an empty match the search goes on behind the next character. */
static size_t next_from(const char *text, size_t bytes, size_t begin, size_t end)
{
    size_t length = 1;
    uint32_t code;
    if (end > begin || end >= bytes)
        return end > begin ? end : bytes + 1;
    utf8_look(text + end, bytes - end, &length, &code);
    return end + length;
}

static enum err replace(const struct cut *cut, const struct step *step, const char *text, size_t bytes,
                        struct cut_pieces *out)
{
    size_t copied = 0, begin, end;
    for (size_t from = 0; from <= bytes; from = next_from(text, bytes, begin, end)) {
        TRY(find(cut, step, text, bytes, from, &begin, &end));
        if (begin > bytes)
            break;
        TRY(put(out, text + copied, begin - copied));
        TRY(put(out, step->by, strlen(step->by)));
        copied = end;
    }
    TRY(put(out, text + copied, bytes - copied));
    return end_piece(out);
}

/* ---- splitting ---- */

/* The stretches of a text, matches and what lies between them, come one by one; pieces begin and end by the behavior.
 */
struct splitter {
    const struct step *step;
    const char *text;
    struct cut_pieces *out;
    bool last_matched; /* the stretch before; a beginning counts as none */
};

static enum err take_stretch(struct splitter *s, size_t begin, size_t end, bool matched)
{
    const char *at = s->text + begin;
    size_t bytes = end - begin;
    bool last = s->last_matched, joins = false;
    matched = matched != s->step->invert;
    switch (s->step->behavior) {
    case REMOVED:
        if (matched)
            return end_piece(s->out);
        break;
    case ISOLATED: break;
    case CONTIGUOUS: joins = matched == last; break;
    case WITH_PREVIOUS: joins = matched && !last; break;
    case WITH_NEXT: joins = !matched && last; break;
    }
    if (bytes == 0)
        return ERR_OK;
    s->last_matched = matched;
    if (!joins)
        TRY(end_piece(s->out));
    return put(s->out, at, bytes);
}

static enum err split(const struct cut *cut, const struct step *step, const char *text, size_t bytes,
                      struct cut_pieces *out)
{
    struct splitter s = {.step = step, .text = text, .out = out};
    size_t done = 0, begin, end;
    for (size_t from = 0; from <= bytes; from = next_from(text, bytes, begin, end)) {
        TRY(find(cut, step, text, bytes, from, &begin, &end));
        if (begin > bytes)
            break;
        TRY(take_stretch(&s, done, begin, false));
        TRY(take_stretch(&s, begin, end, true));
        done = end;
    }
    TRY(take_stretch(&s, done, bytes, false));
    return end_piece(out);
}

/* ---- the other steps ---- */

/* Ranges in which every character is what NFC makes of it, whatever stands beside it. */
static bool is_composed(uint32_t code)
{
    static const struct {
        uint32_t from, to;
    } ranges[] = {{0, 0x2ff},       {0x391, 0x3c9},   {0x400, 0x481},   {0x660, 0x669},   {0x2150, 0x2188},
                  {0x48a, 0x52f},   {0x2002, 0x200d}, {0x2010, 0x2027}, {0x2030, 0x205e}, {0x20a0, 0x20bf},
                  {0x2190, 0x21ff}, {0x2500, 0x2712}, {0x3001, 0x3029}, {0x3041, 0x3096}, {0x309b, 0x30ff},
                  {0x4e00, 0x9fff}, {0xac00, 0xd7a3}, {0xfe0f, 0xfe0f}, {0xff01, 0xff9d}, {0x1f000, 0x1faff},
                  {0xfffd, 0xfffd}, {0x2b00, 0x2bff}};
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++)
        if (code >= ranges[i].from && code <= ranges[i].to)
            return true;
    return false;
}

static enum err check_composed(const char *text, size_t bytes)
{
    for (size_t at = 0, length; at < bytes; at += length) {
        uint32_t code;
        utf8_look(text + at, bytes - at, &length, &code);
        if (!is_composed(code))
            return err_set(ERR_ARG,
                           "U+%04X in the text: the tokenizer normalizes by NFC, which is not done here for this "
                           "character; leave it out, or give numbers",
                           (unsigned)code);
    }
    return ERR_OK;
}

static enum err to_signs(const char *text, size_t bytes, struct cut_pieces *out)
{
    for (size_t i = 0; i < bytes; i++) {
        char sign[UTF8_BYTES_MAX];
        TRY(put(out, sign, utf8_write(cut_byte_sign((unsigned char)text[i]), sign)));
    }
    return end_piece(out);
}

/* Metaspace: what stands for a blank, in front of the text, too; splitting is a step of its own. */
static enum err underline(const struct step *step, const char *text, size_t bytes, bool is_first,
                          struct cut_pieces *out)
{
    size_t length = strlen(step->text);
    bool begins = bytes > 0 && (text[0] == ' ' || (bytes >= length && memcmp(text, step->text, length) == 0));
    if (!begins && (step->prepends == ALWAYS || (step->prepends == FIRST && is_first)))
        TRY(put(out, step->text, length));
    for (size_t i = 0; i < bytes; i++)
        TRY(text[i] == ' ' ? put(out, step->text, length) : put(out, text + i, 1));
    return end_piece(out);
}

static enum err apply(const struct cut *cut, const struct step *step, const char *text, size_t bytes, bool is_first,
                      struct cut_pieces *out)
{
    switch (step->kind) {
    case PREPEND: TRY(put(out, step->text, strlen(step->text))); break;
    case PREFIX:
        if (text[0] != step->text[0])
            TRY(put(out, step->text, 1));
        break;
    case COMPOSED: TRY(check_composed(text, bytes)); break;
    case REPLACE: return replace(cut, step, text, bytes, out);
    case SPLIT: return split(cut, step, text, bytes, out);
    case BYTES: return to_signs(text, bytes, out);
    case UNDERLINE: return underline(step, text, bytes, is_first, out);
    }
    TRY(put(out, text, bytes));
    return end_piece(out);
}

/* Each step makes of all pieces new ones. */
static enum err apply_all(const struct cut *cut, size_t from, size_t to, const char *text, size_t bytes, bool is_first,
                          struct cut_pieces *out)
{
    TRY(put(out, text, bytes));
    TRY(end_piece(out));
    for (size_t s = from; s < to; s++) {
        struct cut_pieces in = *out;
        enum err err = ERR_OK;
        *out = (struct cut_pieces){0};
        for (size_t i = 0; err == ERR_OK && i < in.count; i++)
            err = apply(cut, &cut->step[s], in.text + cut_begin(&in, i), in.end[i] - cut_begin(&in, i),
                        is_first && i == 0, out);
        cut_pieces_free(&in);
        TRY(err);
    }
    return ERR_OK;
}

enum err cut_normalize(const struct cut *cut, const char *text, size_t bytes, struct cut_pieces *out)
{
    return apply_all(cut, 0, cut->normalizers, text, bytes, true, out);
}

enum err cut_words(const struct cut *cut, const char *text, size_t bytes, bool is_first, struct cut_pieces *out)
{
    return apply_all(cut, cut->normalizers, cut->count, text, bytes, is_first, out);
}

/* ---- reading ---- */

static const char *text_of(const json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}

static bool flag_of(const json_t *object, const char *key, bool otherwise)
{
    const json_t *value = json_object_get(object, key);
    return json_is_boolean(value) ? json_is_true(value) : otherwise;
}

static enum err add_step(struct cut *cut, enum kind kind, const char *text, struct step **out)
{
    *out = NULL;
    if (cut->count == STEPS_MAX)
        return err_set(ERR_CONF, "more than %d steps of normalizer and pre_tokenizer", STEPS_MAX);
    *out = &cut->step[cut->count++];
    (*out)->kind = kind;
    return text != NULL ? mem_strdup(text, &(*out)->text) : ERR_OK;
}

static enum err compile(struct step *step, const char *pattern)
{
    int code;
    PCRE2_SIZE at;
    if (strlen(pattern) > PATTERN_BYTES_MAX)
        return err_set(ERR_CONF, "a pattern of %zu bytes; at most %d can be read", strlen(pattern), PATTERN_BYTES_MAX);
    step->regex = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED,
                                PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &code, &at, NULL);
    if (step->regex == NULL)
        return err_set(ERR_CONF, "the pattern \"%.60s\", at place %zu of it", pattern, (size_t)at);
    step->found = pcre2_match_data_create_from_pattern(step->regex, NULL);
    return step->found != NULL ? ERR_OK : err_set(ERR_NOMEM, "out of memory for a pattern");
}

/* {"String": ...} or {"Regex": ...} */
static enum err read_pattern(struct step *step, const json_t *pattern, const char *of)
{
    const char *plain = text_of(pattern, "String"), *regex = text_of(pattern, "Regex");
    if (json_is_string(pattern))
        plain = json_string_value(pattern);
    if (plain != NULL)
        return mem_strdup(plain, &step->text);
    return regex != NULL ? compile(step, regex) : err_set(ERR_CONF, "a %s without a pattern", of);
}

static enum err add_split(struct cut *cut, const char *regex, enum behavior behavior, struct step **out)
{
    TRY(add_step(cut, SPLIT, NULL, out));
    (*out)->behavior = behavior;
    return regex != NULL ? compile(*out, regex) : ERR_OK;
}

static enum err read_split(struct cut *cut, const json_t *said)
{
    static const char *const names[] = {"Isolated", "Removed", "Contiguous", "MergedWithPrevious", "MergedWithNext"};
    const char *name = text_of(said, "behavior");
    struct step *step;
    size_t i = 0;
    while (i < sizeof names / sizeof names[0] && (name == NULL || strcmp(name, names[i]) != 0))
        i++;
    if (i == sizeof names / sizeof names[0])
        return err_set(ERR_CONF, "a Split with behavior %s", name != NULL ? name : "missing");
    TRY(add_split(cut, NULL, (enum behavior)i, &step));
    step->invert = flag_of(said, "invert", false);
    return read_pattern(step, json_object_get(said, "pattern"), "Split");
}

static enum err read_bytes(struct cut *cut, const json_t *said)
{
    struct step *step;
    if (flag_of(said, "add_prefix_space", true))
        TRY(add_step(cut, PREFIX, " ", &step));
    if (flag_of(said, "use_regex", true))
        TRY(add_split(cut, gpt2_words, ISOLATED, &step));
    return add_step(cut, BYTES, NULL, &step);
}

static enum err read_underline(struct cut *cut, const json_t *said)
{
    static const char *const names[] = {[NEVER] = "never", [FIRST] = "first", [ALWAYS] = "always"};
    const char *sign = text_of(said, "replacement"), *scheme = text_of(said, "prepend_scheme");
    struct step *step;
    size_t i = scheme == NULL ? (flag_of(said, "add_prefix_space", true) ? ALWAYS : NEVER) : 0;
    while (scheme != NULL && i < sizeof names / sizeof names[0] && strcmp(scheme, names[i]) != 0)
        i++;
    if (sign == NULL || sign[0] == '\0' || i == sizeof names / sizeof names[0])
        return err_set(ERR_CONF, "a Metaspace with prepend_scheme %s", scheme != NULL ? scheme : "missing");
    TRY(add_step(cut, UNDERLINE, sign, &step));
    step->prepends = (enum prepends)i;
    if (!flag_of(said, "split", true))
        return ERR_OK;
    TRY(add_split(cut, NULL, WITH_NEXT, &step));
    return mem_strdup(sign, &step->text);
}

static enum err read_normalizer(struct cut *cut, const char *type, const json_t *said)
{
    struct step *step;
    if (strcmp(type, "NFC") == 0)
        return add_step(cut, COMPOSED, NULL, &step);
    if (strcmp(type, "Prepend") == 0 && text_of(said, "prepend") != NULL)
        return add_step(cut, PREPEND, text_of(said, "prepend"), &step);
    if (strcmp(type, "Replace") != 0 || text_of(said, "content") == NULL)
        return err_set(ERR_CONF, "normalizer %s", type);
    TRY(add_step(cut, REPLACE, NULL, &step));
    TRY(mem_strdup(text_of(said, "content"), &step->by));
    return read_pattern(step, json_object_get(said, "pattern"), "Replace");
}

static enum err read_pre_tokenizer(struct cut *cut, const char *type, const json_t *said)
{
    struct step *step;
    if (strcmp(type, "ByteLevel") == 0)
        return read_bytes(cut, said);
    if (strcmp(type, "Split") == 0)
        return read_split(cut, said);
    if (strcmp(type, "Metaspace") == 0)
        return read_underline(cut, said);
    if (strcmp(type, "Digits") == 0)
        return add_split(cut, "\\p{N}", flag_of(said, "individual_digits", false) ? ISOLATED : CONTIGUOUS, &step);
    return err_set(ERR_CONF, "pre_tokenizer %s", type);
}

typedef enum err reader(struct cut *cut, const char *type, const json_t *said);

/* One step, or a Sequence of them under `list`, which may hold others. */
static enum err read_steps(struct cut *cut, const json_t *said, const char *list, reader *read, int depth)
{
    if (said == NULL || json_is_null(said))
        return ERR_OK;
    const char *type = text_of(said, "type");
    if (type == NULL || depth == DEPTH_MAX)
        return err_set(ERR_CONF, type == NULL ? "a step without a type" : "Sequences in Sequences in Sequences");
    if (strcmp(type, "Sequence") != 0)
        return read(cut, type, said);
    const json_t *steps = json_object_get(said, list);
    for (size_t i = 0; i < json_array_size(steps); i++)
        TRY(read_steps(cut, json_array_get(steps, i), list, read, depth + 1));
    return ERR_OK;
}

enum err cut_new(const json_t *normalizer, const json_t *pre_tokenizer, struct cut **out)
{
    enum err err;
    struct cut *cut;
    *out = NULL;
    TRY(mem_new(1, sizeof *cut, "a tokenizer", &cut));
    TRY_OUT(read_steps(cut, normalizer, "normalizers", read_normalizer, 0));
    cut->normalizers = cut->count;
    TRY_OUT(read_steps(cut, pre_tokenizer, "pretokenizers", read_pre_tokenizer, 0));
    cut->limits = pcre2_match_context_create(NULL);
    if (cut->limits == NULL) {
        err = err_set(ERR_NOMEM, "out of memory for a tokenizer");
        goto out;
    }
    pcre2_set_match_limit(cut->limits, MATCH_LIMIT);
    pcre2_set_depth_limit(cut->limits, DEPTH_LIMIT);
    pcre2_set_heap_limit(cut->limits, HEAP_LIMIT_KIB);
    *out = cut;
out:
    if (err != ERR_OK)
        cut_free(cut);
    return err;
}

void cut_free(struct cut *cut)
{
    if (cut == NULL)
        return;
    for (size_t i = 0; i < cut->count; i++) {
        pcre2_match_data_free(cut->step[i].found);
        pcre2_code_free(cut->step[i].regex);
        mem_free(cut->step[i].text);
        mem_free(cut->step[i].by);
    }
    pcre2_match_context_free(cut->limits);
    mem_free(cut);
}
