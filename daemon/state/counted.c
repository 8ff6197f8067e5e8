/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/state/counted.h"

#include <inttypes.h>
#include <string.h>

#include "common/bytes.h"
#include "common/mem.h"

void counted_clear(struct counted *counted)
{
    mem_free(counted->rows);
    *counted = (struct counted){0};
}

enum err counted_copy(const struct counted *from, struct counted *to)
{
    struct counted_row *rows = NULL;
    TRY(mem_new(from->count, sizeof *rows, "what is counted", &rows));
    if (from->count > 0)
        memcpy(rows, from->rows, from->count * sizeof *rows);
    counted_clear(to);
    *to = (struct counted){.rows = rows, .count = from->count};
    return ERR_OK;
}

/* ---- noting ---- */

static uint64_t lowest(uint64_t mask)
{
    return mask & (~mask + 1);
}

/* Puts a row among its member's, which begin at `from`. */
static void put(struct counted *counted, size_t from, const struct counted_row *row)
{
    size_t at = counted->count++;
    for (; at > from && lowest(counted->rows[at - 1].shards) > lowest(row->shards); at--)
        counted->rows[at] = counted->rows[at - 1];
    counted->rows[at] = *row;
}

/* A member's rows, with the new one's shards taken from the others. */
static size_t merge(const struct counted *old, size_t at, const struct counted_row *new, struct counted *out)
{
    size_t from = out->count;
    for (; at < old->count && old->rows[at].id == new->id; at++) {
        struct counted_row row = old->rows[at];
        row.shards &= ~new->shards;
        if (row.shards != 0)
            put(out, from, &row);
    }
    put(out, from, new);
    return at;
}

enum err counted_note(struct counted *counted, uint64_t shards, uint64_t version, const struct wire_meta *meta)
{
    struct counted out = {0};
    size_t at = 0;
    TRY(mem_new(counted->count + meta->contributors_count, sizeof *out.rows, "what is counted", &out.rows));
    for (uint32_t i = 0; i < meta->contributors_count; i++) {
        struct wire_contributor contributor = wire_meta_contributor(meta, i);
        struct counted_row row = {
            .id = contributor.id, .shards = shards, .version = version, .digest = contributor.digest};
        for (; at < counted->count && counted->rows[at].id < row.id; at++)
            out.rows[out.count++] = counted->rows[at];
        at = merge(counted, at, &row, &out);
    }
    for (; at < counted->count; at++)
        out.rows[out.count++] = counted->rows[at];
    mem_free(counted->rows);
    *counted = out;
    return ERR_OK;
}

/* ---- looking ---- */

uint64_t counted_since(const struct counted *counted, uint32_t id, uint64_t version)
{
    uint64_t shards = 0;
    for (size_t i = 0; i < counted->count; i++)
        if (counted->rows[i].id == id && counted->rows[i].version > version)
            shards |= counted->rows[i].shards;
    return shards;
}

uint64_t counted_last(const struct counted *counted, uint32_t id, uint64_t shards)
{
    uint64_t last = 0;
    for (size_t i = 0; i < counted->count; i++) {
        const struct counted_row *row = &counted->rows[i];
        if (row->id == id && (row->shards & shards) != 0 && row->version > last)
            last = row->version;
    }
    return last;
}

uint64_t counted_as(const struct counted *counted, uint32_t id, uint64_t version, const struct digest *digest)
{
    uint64_t shards = 0;
    for (size_t i = 0; i < counted->count; i++) {
        const struct counted_row *row = &counted->rows[i];
        if (row->id == id && row->version == version && digest_equal(&row->digest, digest))
            shards |= row->shards;
    }
    return shards;
}

/* ---- bytes: id u32, zero u32, shards u64, version u64, digest 32 bytes, for each row ---- */

size_t counted_bytes(const struct counted *counted)
{
    return counted->count * COUNTED_ROW_BYTES;
}

void counted_pack(const struct counted *counted, uint8_t *out)
{
    struct bytes_writer writer = bytes_writer_init(out, counted_bytes(counted));
    for (size_t i = 0; i < counted->count; i++) {
        const struct counted_row *row = &counted->rows[i];
        bytes_put_u32(&writer, row->id);
        bytes_put_u32(&writer, 0);
        bytes_put_u64(&writer, row->shards);
        bytes_put_u64(&writer, row->version);
        bytes_put(&writer, row->digest.byte, DIGEST_BYTES);
    }
}

/* In order, no shard of a member twice. */
static bool follows(const struct counted *counted, size_t i, uint64_t *seen)
{
    const struct counted_row *row = &counted->rows[i];
    if (i == 0 || row->id > row[-1].id) {
        *seen = row->shards;
        return row->shards != 0;
    }
    bool good = row->id == row[-1].id && row->shards != 0 && (row->shards & *seen) == 0 &&
                lowest(row->shards) > lowest(row[-1].shards);
    *seen |= row->shards;
    return good;
}

enum err counted_unpack(const uint8_t *bytes, size_t bytes_count, struct counted *counted)
{
    struct bytes_reader reader = bytes_reader_init(bytes, bytes_count);
    uint64_t seen = 0;
    if (bytes_count % COUNTED_ROW_BYTES != 0)
        return err_set(ERR_PROTO, "what is counted has %zu bytes", bytes_count);
    TRY(mem_new(bytes_count / COUNTED_ROW_BYTES, sizeof *counted->rows, "what is counted", &counted->rows));
    counted->count = bytes_count / COUNTED_ROW_BYTES;
    for (size_t i = 0; i < counted->count; i++) {
        struct counted_row *row = &counted->rows[i];
        row->id = bytes_get_u32(&reader);
        uint32_t zero = bytes_get_u32(&reader);
        row->shards = bytes_get_u64(&reader);
        row->version = bytes_get_u64(&reader);
        memcpy(row->digest.byte, bytes_get(&reader, DIGEST_BYTES), DIGEST_BYTES);
        if (zero == 0 && follows(counted, i, &seen))
            continue;
        counted_clear(counted);
        return err_set(ERR_PROTO, "what is counted has a row %zu out of order", i);
    }
    return ERR_OK;
}
