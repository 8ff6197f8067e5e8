/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/tokenizer.h"

#include <inttypes.h>
#include <string.h>

#include "common/fsio.h"
#include "common/mem.h"
#include "worker/cut.h"

/* Of what a file says; the largest real ones have some 40 MB, 1000 added tokens and 4 decoders. */
enum { FILE_BYTES_MAX = 256 << 20, ADDED_MAX = 65536, DECODERS_MAX = 16, DEPTH_MAX = 8, CONTENT_BYTES_MAX = 4096 };

struct added {
    char *text;   /* owned */
    char *sought; /* owned: as it is in a normalized text, where that is what it is looked for in */
    int32_t id;
    bool normalized, takes_left, takes_right; /* blanks beside it */
    int32_t next;                             /* with the same first byte, in the list of its kind; -1: none */
};

enum decoder_kind { OF_SIGNS, OF_BYTE_NAMES, REPLACES, OF_METASPACE, STRIPS, FUSES };

struct decoder {
    enum decoder_kind kind;
    char *from, *to; /* owned; `from`: also what STRIPS takes away */
    unsigned start, stop;
    bool drops_first; /* OF_METASPACE: of the first token there is no blank for it */
};

struct tokenizer {
    struct bpe *bpe;
    struct cut *cut; /* NULL: encoding is not possible */
    char why_not[BPE_WHY_BYTES];
    struct added *added;
    size_t added_count;
    int32_t first_added[2][256]; /* by `normalized` and first byte */
    struct decoder decoders[DECODERS_MAX];
    size_t decoders_count;
    bool apart; /* without a decoder: a blank between tokens */
    int32_t end, begin_token;
    char *scratch; /* of the longest token */
};

/* ---- decoding ---- */

static const struct added *added_with(const struct tokenizer *t, int32_t id)
{
    for (size_t i = 0; i < t->added_count; i++)
        if (t->added[i].id == id)
            return &t->added[i];
    return NULL;
}

/* "<0x0A>" */
static bool is_byte_name(const char *text, size_t bytes, unsigned *byte)
{
    int end = 0;
    return bytes == 6 && sscanf(text, "<0x%2X>%n", byte, &end) == 1 && end == 6;
}

/* All of a token, or none of it: one that holds something else is plain text. */
static size_t of_signs(char *text, size_t bytes)
{
    size_t length, made = 0;
    uint32_t code;
    for (size_t at = 0; at < bytes; at += length)
        if (utf8_look(text + at, bytes - at, &length, &code) != UTF8_WHOLE || cut_sign_byte(code) < 0)
            return bytes;
    for (size_t at = 0; at < bytes; at += length) {
        utf8_look(text + at, bytes - at, &length, &code);
        text[made++] = (char)cut_sign_byte(code);
    }
    return made;
}

/* In place: what is put there is never longer. */
static size_t replace(char *text, size_t bytes, const char *from, const char *to)
{
    size_t from_bytes = strlen(from), to_bytes = strlen(to), made = 0;
    for (size_t at = 0; at < bytes;) {
        if (bytes - at >= from_bytes && memcmp(text + at, from, from_bytes) == 0) {
            memmove(text + made, to, to_bytes);
            made += to_bytes;
            at += from_bytes;
        } else {
            text[made++] = text[at++];
        }
    }
    return made;
}

/* Takes up to `most` of `what` away from the front; returns how many. */
static unsigned strip_front(char *text, size_t *bytes, const char *what, unsigned most)
{
    size_t length = strlen(what);
    unsigned count = 0;
    while (count < most && *bytes >= length && memcmp(text, what, length) == 0) {
        *bytes -= length;
        memmove(text, text + length, *bytes);
        count++;
    }
    return count;
}

static void strip_back(const char *text, size_t *bytes, const char *what, unsigned most)
{
    size_t length = strlen(what);
    for (; most > 0 && *bytes >= length && memcmp(text + *bytes - length, what, length) == 0; most--)
        *bytes -= length;
}

/* The beginning of all text, when tokens have been joined. */
static void strip_beginning(struct tokenizer_text *text, const struct decoder *decoder, char *token, size_t *bytes)
{
    if (text->strip_ended || *bytes == 0)
        return;
    text->stripped += strip_front(token, bytes, decoder->from, decoder->start - text->stripped);
    text->strip_ended = *bytes > 0 || text->stripped == decoder->start;
}

/* A token's text in t->scratch, as it is to be read. */
static size_t render(struct tokenizer_text *text, const char *from, size_t bytes)
{
    const struct tokenizer *t = text->tokenizer;
    bool fused = false;
    char *token = t->scratch;
    unsigned byte;
    memcpy(token, from, bytes);
    token[bytes] = '\0';
    for (size_t i = 0; i < t->decoders_count; i++) {
        const struct decoder *decoder = &t->decoders[i];
        switch (decoder->kind) {
        case OF_SIGNS: bytes = of_signs(token, bytes); break;
        case OF_METASPACE:
            bytes = replace(token, bytes, decoder->from, decoder->drops_first && !text->begun ? "" : " ");
            break;
        case REPLACES: bytes = replace(token, bytes, decoder->from, decoder->to); break;
        case OF_BYTE_NAMES:
            if (is_byte_name(token, bytes, &byte)) {
                token[0] = (char)byte;
                bytes = 1;
            }
            break;
        case FUSES: fused = true; break;
        case STRIPS:
            if (fused) {
                strip_beginning(text, decoder, token, &bytes);
            } else {
                strip_front(token, &bytes, decoder->from, decoder->start);
                strip_back(token, &bytes, decoder->from, decoder->stop);
            }
            break;
        }
        token[bytes] = '\0';
    }
    return bytes;
}

struct tokenizer_text tokenizer_text(struct tokenizer *tokenizer)
{
    return (struct tokenizer_text){.tokenizer = tokenizer};
}

void tokenizer_put(struct tokenizer_text *text, int32_t id, FILE *out)
{
    struct tokenizer *t = text->tokenizer;
    size_t bytes = 0;
    const struct added *added = added_with(t, id);
    const char *from = added != NULL ? added->sought : bpe_text(t->bpe, id, &bytes);
    if (added != NULL)
        bytes = strlen(added->sought);
    if (from == NULL) {
        char name[16];
        snprintf(name, sizeof name, "<%" PRId32 ">", id);
        utf8_put(&text->stream, name, strlen(name), out);
    } else {
        if (t->apart && text->begun)
            utf8_put(&text->stream, " ", 1, out);
        bytes = render(text, from, bytes);
        utf8_put(&text->stream, t->scratch, bytes, out);
    }
    text->begun = true;
}

void tokenizer_finish(struct tokenizer_text *text, FILE *out)
{
    utf8_end(&text->stream, out);
}

/* ---- encoding ---- */

/* The nearest added token from `from` on, of these the longest; NULL: there is none. */
static const struct added *find_added(const struct tokenizer *t, bool normalized, const char *text, size_t bytes,
                                      size_t from, size_t *begin, size_t *end)
{
    const struct added *best = NULL;
    for (size_t at = from; at < bytes && best == NULL; at++) {
        *begin = *end = at;
        for (int32_t i = t->first_added[normalized][(uint8_t)text[at]]; i >= 0; i = t->added[i].next) {
            size_t length = strlen(t->added[i].sought);
            if (length <= *end - at || length > bytes - at || memcmp(text + at, t->added[i].sought, length) != 0)
                continue;
            best = &t->added[i];
            *end = at + length;
        }
    }
    return best;
}

static bool is_blank(char c)
{
    return c != '\0' && strchr(" \t\n\r\v\f", c) != NULL;
}

typedef enum err part_taker(const struct tokenizer *t, const char *text, size_t bytes, bool is_first,
                            struct bpe_ids *ids);

/* Added tokens of one kind are taken out of a text, and what is between them goes on. */
static enum err part_by_added(const struct tokenizer *t, bool normalized, const char *text, size_t bytes, bool is_first,
                              part_taker *take, struct bpe_ids *ids)
{
    size_t done = 0, begin, end;
    const struct added *added;
    while ((added = find_added(t, normalized, text, bytes, done, &begin, &end)) != NULL) {
        while (added->takes_left && begin > done && is_blank(text[begin - 1]))
            begin--;
        while (added->takes_right && end < bytes && is_blank(text[end]))
            end++;
        if (begin > done)
            TRY(take(t, text + done, begin - done, is_first && done == 0, ids));
        TRY(bpe_ids_add(ids, added->id));
        done = end;
    }
    return done < bytes ? take(t, text + done, bytes - done, is_first && done == 0, ids) : ERR_OK;
}

static enum err take_words(const struct tokenizer *t, const char *text, size_t bytes, bool is_first,
                           struct bpe_ids *ids)
{
    struct cut_pieces words = {0};
    enum err err = cut_words(t->cut, text, bytes, is_first, &words);
    for (size_t i = 0; err == ERR_OK && i < words.count; i++)
        err = bpe_encode(t->bpe, words.text + cut_begin(&words, i), words.end[i] - cut_begin(&words, i), ids);
    cut_pieces_free(&words);
    return err;
}

static enum err take_plain(const struct tokenizer *t, const char *text, size_t bytes, bool is_first,
                           struct bpe_ids *ids)
{
    struct cut_pieces normal = {0};
    enum err err = cut_normalize(t->cut, text, bytes, &normal);
    if (err == ERR_OK && normal.count > 0)
        err = part_by_added(t, true, normal.text, normal.bytes, is_first, take_words, ids);
    cut_pieces_free(&normal);
    return err;
}

enum err tokenizer_encode(const struct tokenizer *tokenizer, const char *text, struct bpe_ids *ids)
{
    size_t bytes = strlen(text);
    if (tokenizer->why_not[0] != '\0')
        return err_set(ERR_CONF, "the tokenizer cannot encode: %s", tokenizer->why_not);
    if (!utf8_valid(text, bytes))
        return err_set(ERR_ARG, "the text is not UTF-8");
    return part_by_added(tokenizer, false, text, bytes, true, take_plain, ids);
}

const char *tokenizer_why_not(const struct tokenizer *tokenizer)
{
    return tokenizer->why_not;
}

int32_t tokenizer_end(const struct tokenizer *tokenizer)
{
    return tokenizer->end;
}

int32_t tokenizer_begin_token(const struct tokenizer *tokenizer)
{
    return tokenizer->begin_token;
}

/* ---- reading: decoders ---- */

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text != NULL && strlen(text) <= CONTENT_BYTES_MAX ? text : NULL;
}

static unsigned count_of(const json_t *object, const char *key)
{
    json_int_t count = json_integer_value(json_object_get(object, key));
    return count > 0 && count < INT32_MAX ? (unsigned)count : 0;
}

static enum err read_strip(struct tokenizer *t, struct decoder *decoder, const json_t *said)
{
    const char *content = text_of(said, "content");
    bool fused = false;
    for (const struct decoder *before = t->decoders; before < decoder; before++)
        fused = fused || before->kind == FUSES;
    decoder->kind = STRIPS;
    decoder->start = count_of(said, "start");
    decoder->stop = count_of(said, "stop");
    if (content == NULL || content[0] == '\0' || (fused && decoder->stop > 0))
        return err_set(ERR_CONF, "decoder Strip of %s", fused ? "the end of a text" : "nothing");
    return mem_strdup(content, &decoder->from);
}

static enum err read_replace(struct decoder *decoder, const json_t *said)
{
    const json_t *pattern = json_object_get(said, "pattern");
    const char *from = json_is_string(pattern) ? json_string_value(pattern) : text_of(pattern, "String");
    const char *to = text_of(said, "content");
    decoder->kind = REPLACES;
    if (from == NULL || to == NULL || from[0] == '\0' || strlen(to) > strlen(from))
        return err_set(ERR_CONF, "decoder Replace by a pattern, or by what is longer");
    TRY(mem_strdup(from, &decoder->from));
    return mem_strdup(to, &decoder->to);
}

static enum err read_metaspace(struct decoder *decoder, const json_t *said)
{
    const char *sign = text_of(said, "replacement"), *scheme = text_of(said, "prepend_scheme");
    decoder->kind = OF_METASPACE;
    decoder->drops_first =
        scheme != NULL ? strcmp(scheme, "never") != 0 : !json_is_false(json_object_get(said, "add_prefix_space"));
    if (sign == NULL || sign[0] == '\0')
        return err_set(ERR_CONF, "decoder Metaspace without a replacement");
    return mem_strdup(sign, &decoder->from);
}

static enum err read_decoder(struct tokenizer *t, const json_t *said, int depth)
{
    const char *type = text_of(said, "type");
    if (type == NULL || depth == DEPTH_MAX || t->decoders_count == DECODERS_MAX)
        return err_set(ERR_CONF, type == NULL ? "a decoder without a type" : "too many decoders");
    if (strcmp(type, "Sequence") == 0) {
        const json_t *decoders = json_object_get(said, "decoders");
        for (size_t i = 0; i < json_array_size(decoders); i++)
            TRY(read_decoder(t, json_array_get(decoders, i), depth + 1));
        return ERR_OK;
    }
    struct decoder *decoder = &t->decoders[t->decoders_count++];
    if (strcmp(type, "Replace") == 0)
        return read_replace(decoder, said);
    if (strcmp(type, "Metaspace") == 0)
        return read_metaspace(decoder, said);
    if (strcmp(type, "Strip") == 0)
        return read_strip(t, decoder, said);
    if (strcmp(type, "ByteLevel") == 0)
        decoder->kind = OF_SIGNS;
    else if (strcmp(type, "ByteFallback") == 0)
        decoder->kind = OF_BYTE_NAMES;
    else if (strcmp(type, "Fuse") == 0)
        decoder->kind = FUSES;
    else
        return err_set(ERR_CONF, "decoder %.40s", type);
    return ERR_OK;
}

/* ---- reading: added tokens ---- */

/* What encoding looks for: the text as it stands, or as the normalizer makes it. */
static enum err set_sought(struct tokenizer *t, struct added *added)
{
    struct cut_pieces normal = {0};
    if (!added->normalized || t->cut == NULL)
        return mem_strdup(added->text, &added->sought);
    enum err err = cut_normalize(t->cut, added->text, strlen(added->text), &normal);
    if (err == ERR_OK || err == ERR_ARG) /* what it cannot normalize it refuses in a text, too */
        err = mem_strdup(err == ERR_OK && normal.count > 0 ? normal.text : added->text, &added->sought);
    cut_pieces_free(&normal);
    return err;
}

static enum err read_added(struct tokenizer *t, const json_t *said)
{
    struct added *added = &t->added[t->added_count];
    const json_t *id = json_object_get(said, "id");
    const char *text = text_of(said, "content");
    if (text == NULL || text[0] == '\0' || !json_is_integer(id) || json_integer_value(id) < 0 ||
        json_integer_value(id) >= BPE_TOKENS_MAX)
        return err_set(ERR_CONF, "added_tokens: entry %zu has no id from 0 to %d and text", t->added_count,
                       BPE_TOKENS_MAX - 1);
    *added = (struct added){.id = (int32_t)json_integer_value(id),
                            .normalized = json_is_true(json_object_get(said, "normalized")),
                            .takes_left = json_is_true(json_object_get(said, "lstrip")),
                            .takes_right = json_is_true(json_object_get(said, "rstrip"))};
    t->added_count++;
    if (json_is_true(json_object_get(said, "single_word")) && t->why_not[0] == '\0')
        snprintf(t->why_not, sizeof t->why_not, "added token \"%.40s\" with single_word", text);
    if (added->id >= t->end)
        t->end = added->id + 1;
    TRY(mem_strdup(text, &added->text));
    TRY(set_sought(t, added));
    int32_t *first = &t->first_added[added->normalized][(uint8_t)added->sought[0]];
    added->next = *first;
    *first = (int32_t)t->added_count - 1;
    return ERR_OK;
}

static enum err read_all_added(struct tokenizer *t, const json_t *list)
{
    size_t count = json_array_size(list);
    memset(t->first_added, -1, sizeof t->first_added);
    if (count > ADDED_MAX)
        return err_set(ERR_CONF, "added_tokens: %zu; at most %d can be read", count, ADDED_MAX);
    TRY(mem_new(count, sizeof *t->added, "added tokens", &t->added));
    for (size_t i = 0; i < count; i++)
        TRY(read_added(t, json_array_get(list, i)));
    return ERR_OK;
}

/* ---- reading: the file ---- */

static int32_t find_token(const struct tokenizer *t, const char *text)
{
    for (size_t i = 0; i < t->added_count; i++)
        if (strcmp(t->added[i].text, text) == 0)
            return t->added[i].id;
    return bpe_find(t->bpe, text, strlen(text));
}

/* The first thing that a template puts before the text, "A". */
static const char *begin_by(const json_t *post_processor, int depth)
{
    const char *found = NULL;
    const json_t *single = json_object_get(post_processor, "single");
    const json_t *processors = json_object_get(post_processor, "processors");
    found = json_string_value(json_object_get(json_object_get(json_array_get(single, 0), "SpecialToken"), "id"));
    for (size_t i = 0; found == NULL && depth < DEPTH_MAX && i < json_array_size(processors); i++)
        found = begin_by(json_array_get(processors, i), depth + 1);
    return found;
}

static void find_begin_token(struct tokenizer *t, const json_t *root)
{
    static const char *const usual[] = {"<|begin_of_text|>", "<|endoftext|>", "<s>", "<bos>"};
    const char *said = begin_by(json_object_get(root, "post_processor"), 0);
    t->begin_token = said != NULL ? find_token(t, said) : -1;
    for (size_t i = 0; t->begin_token < 0 && i < sizeof usual / sizeof usual[0]; i++)
        t->begin_token = find_token(t, usual[i]);
}

/* Of a normalizer or pre_tokenizer that is not known tokens can be printed all the same. */
static enum err read_cut(struct tokenizer *t, const json_t *root)
{
    enum err err = cut_new(json_object_get(root, "normalizer"), json_object_get(root, "pre_tokenizer"), &t->cut);
    snprintf(t->why_not, sizeof t->why_not, "%s", bpe_why_not(t->bpe));
    if (err != ERR_CONF)
        return err;
    snprintf(t->why_not, sizeof t->why_not, "%s", err_text());
    return ERR_OK;
}

static enum err make_scratch(struct tokenizer *t)
{
    size_t most = 0, bytes;
    for (int32_t id = 0; id < bpe_end(t->bpe); id++)
        if (bpe_text(t->bpe, id, &bytes) != NULL && bytes > most)
            most = bytes;
    for (size_t i = 0; i < t->added_count; i++)
        most = strlen(t->added[i].sought) > most ? strlen(t->added[i].sought) : most;
    return mem_new(most + 1, 1, "a token", &t->scratch);
}

static enum err read_root(struct tokenizer *t, const json_t *root, int64_t vocab)
{
    const json_t *decoder = json_object_get(root, "decoder");
    if (!json_is_object(json_object_get(root, "model")))
        return err_set(ERR_CONF, "no tokenizer.json: it has no object \"model\"");
    TRY(bpe_new(json_object_get(root, "model"), &t->bpe));
    t->end = bpe_end(t->bpe);
    TRY(read_cut(t, root));
    TRY(read_all_added(t, json_object_get(root, "added_tokens")));
    t->apart = decoder == NULL || json_is_null(decoder);
    if (!t->apart)
        TRY(read_decoder(t, decoder, 0));
    find_begin_token(t, root);
    TRY(make_scratch(t));
    if (t->end > vocab)
        return err_set(
            ERR_CONF, "has tokens up to %" PRId32 ", and the model a vocabulary of %" PRId64 ": it is of another model",
            t->end - 1, vocab);
    return ERR_OK;
}

enum err tokenizer_open(const char *path, int64_t vocab, struct tokenizer **out)
{
    enum err err;
    struct tokenizer *t = NULL;
    char *text = NULL;
    size_t bytes;
    json_t *root = NULL;
    json_error_t wrong;
    *out = NULL;
    TRY_OUT(mem_new(1, sizeof *t, "a tokenizer", &t));
    TRY_OUT(fsio_read(path, FILE_BYTES_MAX, &text, &bytes));
    root = json_loadb(text, bytes, 0, &wrong);
    err = root != NULL ? read_root(t, root, vocab) : err_set(ERR_CONF, "line %d: %s", wrong.line, wrong.text);
    if (err != ERR_OK)
        err = err_prefix(err, "tokenizer %s", path);
out:
    json_decref(root);
    mem_free(text);
    if (err != ERR_OK)
        tokenizer_close(t);
    else
        *out = t;
    return err;
}

void tokenizer_close(struct tokenizer *tokenizer)
{
    if (tokenizer == NULL)
        return;
    for (size_t i = 0; i < tokenizer->added_count; i++) {
        mem_free(tokenizer->added[i].text);
        mem_free(tokenizer->added[i].sought);
    }
    for (size_t i = 0; i < tokenizer->decoders_count; i++) {
        mem_free(tokenizer->decoders[i].from);
        mem_free(tokenizer->decoders[i].to);
    }
    mem_free(tokenizer->added);
    mem_free(tokenizer->scratch);
    cut_free(tokenizer->cut);
    bpe_free(tokenizer->bpe);
    mem_free(tokenizer);
}
