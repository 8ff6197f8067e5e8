/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/utf8.h"

#include <string.h>

static const char replacement[] = "\xef\xbf\xbd"; /* U+FFFD */

/* By the first byte: how long, and between which bounds the second byte has to be (Unicode, table 3-7). */
static size_t length_by(uint8_t first, uint8_t *low, uint8_t *high)
{
    *low = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
    *high = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
    if (first < 0x80)
        return 1;
    if (first >= 0xc2 && first <= 0xdf)
        return 2;
    if (first >= 0xe0 && first <= 0xef)
        return 3;
    return first >= 0xf0 && first <= 0xf4 ? 4 : 0;
}

enum utf8_kind utf8_look(const char *text, size_t bytes, size_t *length, uint32_t *code)
{
    uint8_t low, high, first = (uint8_t)text[0];
    size_t whole = length_by(first, &low, &high);
    *length = 1;
    *code = first;
    if (whole == 0)
        return UTF8_BAD;
    if (whole > 1)
        *code = first & (0x7fu >> whole);
    for (; *length < whole && *length < bytes; (*length)++) {
        uint8_t next = (uint8_t)text[*length];
        if (next < low || next > high)
            return UTF8_BAD;
        *code = *code << 6 | (next & 0x3fu);
        low = 0x80;
        high = 0xbf;
    }
    return *length == whole ? UTF8_WHOLE : UTF8_CUT;
}

bool utf8_valid(const char *text, size_t bytes)
{
    size_t length;
    uint32_t code;
    for (; bytes > 0; text += length, bytes -= length)
        if (utf8_look(text, bytes, &length, &code) != UTF8_WHOLE)
            return false;
    return true;
}

size_t utf8_write(uint32_t code, char out[UTF8_BYTES_MAX])
{
    size_t bytes = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    static const uint8_t marks[] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (size_t i = bytes; i-- > 1; code >>= 6)
        out[i] = (char)(0x80 | (code & 0x3f));
    out[0] = (char)(marks[bytes] | code);
    return bytes;
}

/* Adds a byte to what is kept, and writes what cannot become another character. */
static void put_byte(struct utf8_stream *stream, char byte, FILE *out)
{
    size_t length;
    uint32_t code;
    stream->kept[stream->kept_bytes++] = byte;
    while (stream->kept_bytes > 0) {
        enum utf8_kind kind = utf8_look(stream->kept, stream->kept_bytes, &length, &code);
        if (kind == UTF8_CUT)
            return;
        if (kind == UTF8_WHOLE)
            fwrite(stream->kept, 1, length, out);
        else
            fputs(replacement, out);
        stream->kept_bytes -= length;
        memmove(stream->kept, stream->kept + length, stream->kept_bytes);
    }
}

void utf8_put(struct utf8_stream *stream, const char *text, size_t bytes, FILE *out)
{
    for (size_t i = 0; i < bytes; i++)
        put_byte(stream, text[i], out);
}

void utf8_end(struct utf8_stream *stream, FILE *out)
{
    if (stream->kept_bytes > 0)
        fputs(replacement, out);
    stream->kept_bytes = 0;
}
