/* SPDX-License-Identifier: Apache-2.0 */
/*
 * utf8: the characters of a text, and the whole ones of a text that comes in pieces.
 *
 * Takes any bytes; what is no UTF-8 it says, or writes as U+FFFD. Any thread.
 */
#ifndef WORKER_UTF8_H
#define WORKER_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum { UTF8_BYTES_MAX = 4 };

enum utf8_kind {
    UTF8_WHOLE, /* a character */
    UTF8_CUT,   /* the bytes end within one that could be */
    UTF8_BAD,   /* no character begins like this */
};

/* What the first of `bytes` bytes, at least one, are: `*length` of them belong together (for UTF8_BAD: what one U+FFFD
 * stands for), and are the character `*code`. */
enum utf8_kind utf8_look(const char *text, size_t bytes, size_t *length, uint32_t *code);

bool utf8_valid(const char *text, size_t bytes);

/* Writes a character below 0x110000; returns its bytes. */
size_t utf8_write(uint32_t code, char out[UTF8_BYTES_MAX]);

/* A text that comes in pieces which may end anywhere. Zeroed at the beginning. */
struct utf8_stream {
    char kept[UTF8_BYTES_MAX]; /* the beginning of a character */
    size_t kept_bytes;
};

/* Writes what is whole by now. */
void utf8_put(struct utf8_stream *stream, const char *text, size_t bytes, FILE *out);
/* Nothing more comes: what is kept was no character. */
void utf8_end(struct utf8_stream *stream, FILE *out);

#endif
