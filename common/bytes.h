/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bytes: the one place where integers become bytes and bytes become integers.
 *
 * A reader or writer walks over memory it borrows and never leaves it: past the end, a reader yields zeros and a
 * writer drops, and both stay `failed`. So a parser reads all its fields and asks once. Everything is little-endian.
 * Pure; no allocation.
 */
#ifndef COMMON_BYTES_H
#define COMMON_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct bytes_reader {
    const uint8_t *data; /* borrowed */
    size_t bytes;
    size_t at;
    bool failed; /* something was asked for that was not there */
};

struct bytes_writer {
    uint8_t *data; /* borrowed */
    size_t bytes_max;
    size_t at;
    bool failed; /* something did not fit */
};

struct bytes_reader bytes_reader_init(const void *data, size_t bytes);
uint8_t bytes_get_u8(struct bytes_reader *reader);
uint16_t bytes_get_u16(struct bytes_reader *reader);
uint32_t bytes_get_u32(struct bytes_reader *reader);
uint64_t bytes_get_u64(struct bytes_reader *reader);
/* A pointer to the next `count` bytes inside the reader's memory, or NULL (and failed). */
const uint8_t *bytes_get(struct bytes_reader *reader, size_t count);
size_t bytes_left(const struct bytes_reader *reader);

struct bytes_writer bytes_writer_init(void *data, size_t bytes_max);
void bytes_put_u8(struct bytes_writer *writer, uint8_t value);
void bytes_put_u16(struct bytes_writer *writer, uint16_t value);
void bytes_put_u32(struct bytes_writer *writer, uint32_t value);
void bytes_put_u64(struct bytes_writer *writer, uint64_t value);
void bytes_put(struct bytes_writer *writer, const void *data, size_t count);

#endif
