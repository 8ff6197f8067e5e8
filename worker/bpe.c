/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/bpe.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "common/env.h"
#include "common/mem.h"
#include "worker/utf8.h"

enum { IDS_ROOM_MIN = 64, TOKEN_BYTES_MAX = 65536 };

struct token {
    char *text; /* in `letters`; NULL: no token has this id */
    uint32_t bytes;
};

struct merge {
    uint64_t pair; /* two ids, each plus one; 0: nothing here */
    uint32_t rank;
    int32_t to;
};

struct bpe {
    char *letters;
    struct token *tokens; /* by id */
    size_t tokens_room;   /* one more than the largest id */
    int32_t *by_text;     /* a table of ids plus one, 0: nothing; `text_slots` is a power of two */
    size_t text_slots;
    struct merge *merges; /* by pair */
    size_t merge_slots;
    bool byte_fallback, fuse_unknown, ignore_merges;
    int32_t unknown;      /* -1: none */
    int32_t of_byte[256]; /* with byte_fallback; -1: none */
    char why_not[BPE_WHY_BYTES];
};

enum err bpe_ids_add(struct bpe_ids *ids, int32_t id)
{
    if (ids->count == ids->room) {
        size_t room = ids->room > 0 ? 2 * ids->room : IDS_ROOM_MIN;
        if (ids->id == NULL)
            TRY(mem_new(room, sizeof *ids->id, "tokens of a text", &ids->id));
        else
            TRY(mem_grow(&ids->id, ids->room, room, sizeof *ids->id, "tokens of a text"));
        ids->room = room;
    }
    ids->id[ids->count++] = id;
    return ERR_OK;
}

/* ---- tokens ---- */

static size_t slots_for(size_t count)
{
    size_t slots = 16;
    while (slots < 2 * count)
        slots *= 2;
    return slots;
}

static uint64_t hash_of(const char *text, size_t bytes)
{
    uint64_t hash = bytes;
    for (size_t i = 0; i < bytes; i += sizeof hash) {
        uint64_t part = 0;
        memcpy(&part, text + i, bytes - i < sizeof part ? bytes - i : sizeof part);
        hash = env_mix64(hash ^ part);
    }
    return hash;
}

const char *bpe_text(const struct bpe *bpe, int32_t id, size_t *bytes)
{
    if (id < 0 || (size_t)id >= bpe->tokens_room)
        return NULL;
    *bytes = bpe->tokens[id].bytes;
    return bpe->tokens[id].text;
}

/* Where a text is in the table, or would be. */
static size_t slot_of(const struct bpe *bpe, const char *text, size_t bytes)
{
    size_t slot = hash_of(text, bytes) & (bpe->text_slots - 1);
    for (; bpe->by_text[slot] != 0; slot = (slot + 1) & (bpe->text_slots - 1)) {
        const struct token *token = &bpe->tokens[bpe->by_text[slot] - 1];
        if (token->bytes == bytes && memcmp(token->text, text, bytes) == 0)
            break;
    }
    return slot;
}

int32_t bpe_find(const struct bpe *bpe, const char *text, size_t bytes)
{
    return bpe->by_text[slot_of(bpe, text, bytes)] - 1;
}

int32_t bpe_end(const struct bpe *bpe)
{
    return (int32_t)bpe->tokens_room;
}

static enum err measure_vocab(struct bpe *bpe, json_t *vocab, size_t *letters)
{
    const char *text;
    json_t *value;
    *letters = 0;
    if (json_object_size(vocab) == 0 || json_object_size(vocab) > BPE_TOKENS_MAX)
        return err_set(ERR_CONF, "model.vocab has %zu tokens; from 1 to %d can be read", json_object_size(vocab),
                       BPE_TOKENS_MAX);
    json_object_foreach (vocab, text, value) {
        json_int_t id = json_is_integer(value) ? json_integer_value(value) : -1;
        size_t bytes = strlen(text);
        if (id < 0 || id >= BPE_TOKENS_MAX)
            return err_set(ERR_CONF, "model.vocab: token \"%.40s\" has no id from 0 to %d", text, BPE_TOKENS_MAX - 1);
        if (bytes > TOKEN_BYTES_MAX)
            return err_set(ERR_CONF, "model.vocab: token \"%.40s...\" is longer than %d bytes", text, TOKEN_BYTES_MAX);
        *letters += bytes;
        if ((size_t)id >= bpe->tokens_room)
            bpe->tokens_room = (size_t)id + 1;
    }
    return ERR_OK;
}

static enum err read_vocab(struct bpe *bpe, json_t *vocab)
{
    const char *text;
    json_t *value;
    size_t letters;
    TRY(measure_vocab(bpe, vocab, &letters));
    TRY(mem_new(letters + 1, 1, "a vocabulary", &bpe->letters));
    TRY(mem_new(bpe->tokens_room, sizeof *bpe->tokens, "a vocabulary", &bpe->tokens));
    bpe->text_slots = slots_for(json_object_size(vocab));
    TRY(mem_new(bpe->text_slots, sizeof *bpe->by_text, "a vocabulary", &bpe->by_text));
    char *at = bpe->letters;
    json_object_foreach (vocab, text, value) {
        int32_t id = (int32_t)json_integer_value(value);
        struct token *token = &bpe->tokens[id];
        if (token->text != NULL)
            return err_set(ERR_CONF, "model.vocab: two tokens have the id %" PRId32, id);
        *token = (struct token){.text = at, .bytes = (uint32_t)strlen(text)};
        memcpy(at, text, token->bytes);
        at += token->bytes;
        bpe->by_text[slot_of(bpe, text, token->bytes)] = id + 1;
    }
    return ERR_OK;
}

/* ---- merges ---- */

static uint64_t pair_of(int32_t left, int32_t right)
{
    return (uint64_t)(left + 1) << 32 | (uint32_t)(right + 1);
}

static struct merge *merge_of(const struct bpe *bpe, uint64_t pair)
{
    size_t slot = env_mix64(pair) & (bpe->merge_slots - 1);
    while (bpe->merges[slot].pair != 0 && bpe->merges[slot].pair != pair)
        slot = (slot + 1) & (bpe->merge_slots - 1);
    return &bpe->merges[slot];
}

/* "a b", or ["a", "b"]; what merges is a token, and so is what comes of it. */
static enum err read_merge(struct bpe *bpe, const json_t *entry, size_t rank, char *joined)
{
    const char *left = json_string_value(json_array_get(entry, 0)),
               *right = json_string_value(json_array_get(entry, 1));
    size_t left_bytes, right_bytes;
    const char *line = json_string_value(entry), *blank = line != NULL ? strchr(line, ' ') : NULL;
    if (blank != NULL && strchr(blank + 1, ' ') == NULL) {
        left = line;
        left_bytes = (size_t)(blank - line);
        right = blank + 1;
    } else if (left != NULL && right != NULL && json_array_size(entry) == 2) {
        left_bytes = strlen(left);
    } else {
        return err_set(ERR_CONF, "model.merges: entry %zu is no pair", rank);
    }
    right_bytes = strlen(right);
    if (left_bytes > TOKEN_BYTES_MAX || right_bytes > TOKEN_BYTES_MAX)
        return err_set(ERR_CONF, "model.merges: entry %zu is too long", rank);
    memcpy(joined, left, left_bytes);
    memcpy(joined + left_bytes, right, right_bytes);
    int32_t a = bpe_find(bpe, left, left_bytes), b = bpe_find(bpe, right, right_bytes);
    int32_t to = bpe_find(bpe, joined, left_bytes + right_bytes);
    if (a < 0 || b < 0 || to < 0)
        return err_set(ERR_CONF, "model.merges: entry %zu (\"%.*s\" and \"%.40s\") names what is not in the vocabulary",
                       rank, (int)(left_bytes < 40 ? left_bytes : 40), left, right);
    *merge_of(bpe, pair_of(a, b)) = (struct merge){.pair = pair_of(a, b), .rank = (uint32_t)rank, .to = to};
    return ERR_OK;
}

static enum err read_merges(struct bpe *bpe, const json_t *merges)
{
    char *joined;
    size_t count = json_array_size(merges);
    if (!json_is_array(merges) || count > BPE_TOKENS_MAX)
        return err_set(ERR_CONF, "model.merges is no list of at most %d pairs", BPE_TOKENS_MAX);
    bpe->merge_slots = slots_for(count);
    TRY(mem_new(bpe->merge_slots, sizeof *bpe->merges, "merges", &bpe->merges));
    TRY(mem_new(2 * TOKEN_BYTES_MAX, 1, "a merge", &joined));
    enum err err = ERR_OK;
    for (size_t i = 0; err == ERR_OK && i < count; i++)
        err = read_merge(bpe, json_array_get(merges, i), i, joined);
    mem_free(joined);
    return err;
}

/* ---- the rest of the model ---- */

static bool is_said(const json_t *model, const char *key)
{
    const json_t *value = json_object_get(model, key);
    return json_is_string(value) ? json_string_length(value) > 0 : json_is_real(value) && json_real_value(value) > 0;
}

/* What decoding does not need, and encoding cannot do. */
static void look_for_unknown(struct bpe *bpe, const json_t *model)
{
    static const char *const keys[] = {"dropout", "continuing_subword_prefix", "end_of_word_suffix"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (is_said(model, keys[i]))
            snprintf(bpe->why_not, sizeof bpe->why_not, "model.%s", keys[i]);
}

static void find_bytes(struct bpe *bpe)
{
    for (unsigned byte = 0; byte < 256; byte++) {
        char text[8];
        snprintf(text, sizeof text, "<0x%02X>", byte);
        bpe->of_byte[byte] = bpe_find(bpe, text, strlen(text));
    }
}

static enum err read_model(struct bpe *bpe, const json_t *model)
{
    const char *type = json_string_value(json_object_get(model, "type"));
    json_t *vocab = json_object_get(model, "vocab"), *merges = json_object_get(model, "merges");
    if ((type != NULL && strcmp(type, "BPE") != 0) || !json_is_object(vocab) || merges == NULL)
        return err_set(ERR_CONF, "model is %s; BPE can be read", type != NULL ? type : "of no type");
    TRY(read_vocab(bpe, vocab));
    TRY(read_merges(bpe, merges));
    bpe->byte_fallback = json_is_true(json_object_get(model, "byte_fallback"));
    bpe->fuse_unknown = json_is_true(json_object_get(model, "fuse_unk"));
    bpe->ignore_merges = json_is_true(json_object_get(model, "ignore_merges"));
    const char *unknown = json_string_value(json_object_get(model, "unk_token"));
    bpe->unknown = unknown != NULL ? bpe_find(bpe, unknown, strlen(unknown)) : -1;
    find_bytes(bpe);
    look_for_unknown(bpe, model);
    return ERR_OK;
}

enum err bpe_new(const json_t *model, struct bpe **out)
{
    *out = NULL;
    struct bpe *bpe;
    TRY(mem_new(1, sizeof *bpe, "a tokenizer", &bpe));
    enum err err = read_model(bpe, model);
    if (err != ERR_OK) {
        bpe_free(bpe);
        return err;
    }
    *out = bpe;
    return ERR_OK;
}

void bpe_free(struct bpe *bpe)
{
    if (bpe == NULL)
        return;
    mem_free(bpe->letters);
    mem_free(bpe->tokens);
    mem_free(bpe->by_text);
    mem_free(bpe->merges);
    mem_free(bpe);
}

const char *bpe_why_not(const struct bpe *bpe)
{
    return bpe->why_not;
}

/* ---- a word ---- */

/* Symbols are a list in an array: a merge takes the second out. Candidates for merging are in a heap, the lowest rank
 * first and of equals the leftmost; one whose pair is no longer there is thrown away when its turn comes. */
struct symbol {
    int32_t id; /* -1: merged into the one before */
    int32_t before, after;
};
struct candidate {
    uint32_t rank;
    int32_t at, to;
    uint64_t pair;
};
struct word {
    const struct bpe *bpe;
    struct bpe_ids ids; /* as it begins */
    struct symbol *symbols;
    struct candidate *heap;
    size_t heap_count;
};

static bool goes_first(const struct candidate *a, const struct candidate *b)
{
    return a->rank != b->rank ? a->rank < b->rank : a->at < b->at;
}

static void push(struct word *word, int32_t at)
{
    if (at < 0 || word->symbols[at].after < 0)
        return;
    uint64_t pair = pair_of(word->symbols[at].id, word->symbols[word->symbols[at].after].id);
    const struct merge *merge = merge_of(word->bpe, pair);
    if (merge->pair == 0)
        return;
    struct candidate new = {.rank = merge->rank, .at = at, .to = merge->to, .pair = pair};
    size_t slot = word->heap_count++;
    for (; slot > 0 && goes_first(&new, &word->heap[(slot - 1) / 2]); slot = (slot - 1) / 2)
        word->heap[slot] = word->heap[(slot - 1) / 2];
    word->heap[slot] = new;
}

static struct candidate pop(struct word *word)
{
    struct candidate first = word->heap[0], last = word->heap[--word->heap_count];
    size_t slot = 0;
    for (size_t child; (child = 2 * slot + 1) < word->heap_count; slot = child) {
        if (child + 1 < word->heap_count && goes_first(&word->heap[child + 1], &word->heap[child]))
            child++;
        if (!goes_first(&word->heap[child], &last))
            break;
        word->heap[slot] = word->heap[child];
    }
    word->heap[slot] = last;
    return first;
}

static void merge_all(struct word *word)
{
    struct symbol *symbols = word->symbols;
    for (int32_t i = 0; i < (int32_t)word->ids.count; i++)
        push(word, i);
    while (word->heap_count > 0) {
        struct candidate next = pop(word);
        struct symbol *left = &symbols[next.at];
        if (left->id < 0 || left->after < 0 || pair_of(left->id, symbols[left->after].id) != next.pair)
            continue;
        struct symbol *right = &symbols[left->after];
        left->id = next.to;
        right->id = -1;
        left->after = right->after;
        if (left->after >= 0)
            symbols[left->after].before = next.at;
        push(word, left->before);
        push(word, next.at);
    }
}

/* What a character that is no token becomes: bytes, the unknown one, or nothing. */
static enum err add_unknown(struct word *word, const char *text, size_t bytes, bool *fuses)
{
    const struct bpe *bpe = word->bpe;
    bool have_bytes = bpe->byte_fallback;
    for (size_t i = 0; i < bytes; i++)
        have_bytes = have_bytes && bpe->of_byte[(uint8_t)text[i]] >= 0;
    for (size_t i = 0; have_bytes && i < bytes; i++)
        TRY(bpe_ids_add(&word->ids, bpe->of_byte[(uint8_t)text[i]]));
    if (have_bytes || bpe->unknown < 0)
        return ERR_OK;
    bool fused = *fuses && bpe->fuse_unknown;
    *fuses = true;
    return fused ? ERR_OK : bpe_ids_add(&word->ids, bpe->unknown);
}

static enum err begin_word(struct word *word, const char *text, size_t bytes)
{
    bool fuses = false; /* the last one was unknown */
    for (size_t at = 0, length; at < bytes; at += length) {
        uint32_t code;
        utf8_look(text + at, bytes - at, &length, &code);
        int32_t id = bpe_find(word->bpe, text + at, length);
        if (id < 0) {
            TRY(add_unknown(word, text + at, length, &fuses));
            continue;
        }
        fuses = false;
        TRY(bpe_ids_add(&word->ids, id));
    }
    return ERR_OK;
}

static enum err merge_word(struct word *word, struct bpe_ids *out)
{
    size_t count = word->ids.count;
    TRY(mem_new(count + 1, sizeof *word->symbols, "a word", &word->symbols));
    TRY(mem_new(3 * count + 1, sizeof *word->heap, "a word", &word->heap)); /* each merge adds two, at most */
    for (size_t i = 0; i < count; i++)
        word->symbols[i] = (struct symbol){
            .id = word->ids.id[i], .before = (int32_t)i - 1, .after = i + 1 < count ? (int32_t)i + 1 : -1};
    merge_all(word);
    for (int32_t i = 0; count > 0 && i >= 0; i = word->symbols[i].after)
        TRY(bpe_ids_add(out, word->symbols[i].id));
    return ERR_OK;
}

enum err bpe_encode(const struct bpe *bpe, const char *text, size_t bytes, struct bpe_ids *ids)
{
    int32_t whole = bpe->ignore_merges ? bpe_find(bpe, text, bytes) : -1;
    if (whole >= 0)
        return bpe_ids_add(ids, whole);
    struct word word = {.bpe = bpe};
    enum err err = begin_word(&word, text, bytes);
    if (err == ERR_OK)
        err = merge_word(&word, ids);
    mem_free(word.ids.id);
    mem_free(word.symbols);
    mem_free(word.heap);
    return err;
}
