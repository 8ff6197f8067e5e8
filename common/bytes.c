/* SPDX-License-Identifier: Apache-2.0 */
#include "common/bytes.h"

#include <string.h>

struct bytes_reader bytes_reader_init(const void *data, size_t bytes)
{
    return (struct bytes_reader){.data = data, .bytes = bytes};
}

size_t bytes_left(const struct bytes_reader *reader)
{
    return reader->bytes - reader->at;
}

const uint8_t *bytes_get(struct bytes_reader *reader, size_t count)
{
    if (reader->failed || count > bytes_left(reader)) {
        reader->failed = true;
        return NULL;
    }
    const uint8_t *here = reader->data + reader->at;
    reader->at += count;
    return here;
}

static uint64_t get_le(struct bytes_reader *reader, unsigned width)
{
    const uint8_t *here = bytes_get(reader, width);
    if (here == NULL)
        return 0;
    uint64_t value = 0;
    for (unsigned i = 0; i < width; i++)
        value |= (uint64_t)here[i] << (8 * i);
    return value;
}

uint8_t bytes_get_u8(struct bytes_reader *reader)
{
    return (uint8_t)get_le(reader, 1);
}

uint16_t bytes_get_u16(struct bytes_reader *reader)
{
    return (uint16_t)get_le(reader, 2);
}

uint32_t bytes_get_u32(struct bytes_reader *reader)
{
    return (uint32_t)get_le(reader, 4);
}

uint64_t bytes_get_u64(struct bytes_reader *reader)
{
    return get_le(reader, 8);
}

struct bytes_writer bytes_writer_init(void *data, size_t bytes_max)
{
    return (struct bytes_writer){.data = data, .bytes_max = bytes_max};
}

void bytes_put(struct bytes_writer *writer, const void *data, size_t count)
{
    if (writer->failed || count > writer->bytes_max - writer->at) {
        writer->failed = true;
        return;
    }
    if (count > 0)
        memcpy(writer->data + writer->at, data, count);
    writer->at += count;
}

static void put_le(struct bytes_writer *writer, uint64_t value, unsigned width)
{
    uint8_t raw[8];
    for (unsigned i = 0; i < width; i++)
        raw[i] = (uint8_t)(value >> (8 * i));
    bytes_put(writer, raw, width);
}

void bytes_put_u8(struct bytes_writer *writer, uint8_t value)
{
    put_le(writer, value, 1);
}

void bytes_put_u16(struct bytes_writer *writer, uint16_t value)
{
    put_le(writer, value, 2);
}

void bytes_put_u32(struct bytes_writer *writer, uint32_t value)
{
    put_le(writer, value, 4);
}

void bytes_put_u64(struct bytes_writer *writer, uint64_t value)
{
    put_le(writer, value, 8);
}
