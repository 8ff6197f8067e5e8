/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/ctl/ctl_tokenizer.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/mem.h"

enum { BYTES = 256 };

/* Those that GPT-2's tables, and since then everybody's, show as themselves. */
static bool is_shown(int byte)
{
    return (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

/* The others are the characters from 256 on, in order. UTF-8, of two bytes at most. */
static void character_of(int byte, char text[3])
{
    int code = byte;
    if (!is_shown(byte)) {
        code = BYTES;
        for (int before = 0; before < byte; before++)
            code += !is_shown(before);
    }
    if (code < 0x80)
        snprintf(text, 3, "%c", code);
    else
        snprintf(text, 3, "%c%c", 0xc0 | code >> 6, 0x80 | (code & 0x3f));
}

static enum err text_of(json_t *root, char **text)
{
    char *dump = root != NULL ? json_dumps(root, JSON_INDENT(1) | JSON_PRESERVE_ORDER) : NULL;
    json_decref(root);
    if (dump == NULL)
        return err_set(ERR_NOMEM, "out of memory for a tokenizer");
    enum err err = mem_printf(text, "%s\n", dump);
    free(dump);
    return err;
}

/* Nothing is cut at spaces, joined or left out: text becomes its bytes, and bytes become text. */
enum err ctl_tokenizer(char **text)
{
    json_t *vocab = json_object();
    for (int byte = 0; byte < BYTES; byte++) {
        char character[3];
        character_of(byte, character);
        json_object_set_new(vocab, character, json_integer(byte));
    }
    json_t *level = json_pack("{s:s, s:b, s:b, s:b}", "type", "ByteLevel", "add_prefix_space", 0, "trim_offsets", 0,
                              "use_regex", 0);
    json_t *model = json_pack("{s:s, s:n, s:n, s:n, s:n, s:b, s:b, s:o, s:[]}", "type", "BPE", "dropout", "unk_token",
                              "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk", 0, "byte_fallback", 0,
                              "vocab", vocab, "merges");
    return text_of(json_pack("{s:s, s:n, s:n, s:[], s:n, s:O, s:n, s:o, s:o}", "version", "1.0", "truncation",
                             "padding", "added_tokens", "normalizer", "pre_tokenizer", level, "post_processor",
                             "decoder", level, "model", model),
                   text);
}

enum err ctl_tokenizer_config(int64_t context, char **text)
{
    return text_of(json_pack("{s:s, s:I, s:b, s:n, s:n, s:n}", "tokenizer_class", "PreTrainedTokenizerFast",
                             "model_max_length", (json_int_t)context, "clean_up_tokenization_spaces", 0, "bos_token",
                             "eos_token", "unk_token"),
                   text);
}
