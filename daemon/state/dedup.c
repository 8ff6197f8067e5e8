/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/state/dedup.h"

#include <inttypes.h>
#include <string.h>

#include "common/bytes.h"
#include "common/mem.h"
#include "outer_opt/fbits.h"

void dedup_clear(struct dedup *dedup)
{
    mem_free(dedup->rows);
    *dedup = (struct dedup){0};
}

enum err dedup_copy(const struct dedup *from, struct dedup *to)
{
    struct dedup_row *rows = NULL;
    TRY(mem_new(from->count, sizeof *rows, "what is counted", &rows));
    if (from->count > 0)
        memcpy(rows, from->rows, from->count * sizeof *rows);
    dedup_clear(to);
    *to = (struct dedup){.rows = rows, .count = from->count};
    return ERR_OK;
}

/* In a row's direction until its version is judged: the result says that it is below. */
#define BELOW 0x80000000u

/* ---- noting ---- */

static uint64_t lowest(uint64_t mask)
{
    return mask & (~mask + 1);
}

/* Puts a row among its member's, which begin at `from`. */
static void put(struct dedup *dedup, size_t from, const struct dedup_row *row)
{
    size_t at = dedup->count++;
    for (; at > from && lowest(dedup->rows[at - 1].shards) > lowest(row->shards); at--)
        dedup->rows[at] = dedup->rows[at - 1];
    dedup->rows[at] = *row;
}

/* A member's rows, with the new one's shards taken from the others. */
static size_t merge(const struct dedup *old, size_t at, const struct dedup_row *new, struct dedup *out)
{
    size_t from = out->count;
    for (; at < old->count && old->rows[at].id == new->id; at++) {
        struct dedup_row row = old->rows[at];
        row.shards &= ~new->shards;
        if (row.shards != 0)
            put(out, from, &row);
    }
    put(out, from, new);
    return at;
}

/* The state in these shards before. Where they differ, as when they were of several versions, the least: nobody is
 * turned away from a shard for what it did in another. */
static uint32_t state_before(const struct dedup *dedup, uint32_t id, uint64_t shards)
{
    uint32_t least = DIRECTION_STATES;
    for (size_t i = 0; i < dedup->count; i++) {
        const struct dedup_row *row = &dedup->rows[i];
        if (row->id != id || (row->shards & shards) == 0)
            continue;
        least = row->direction < least ? row->direction : least;
        shards &= ~row->shards;
    }
    return shards == 0 ? least : 0; /* in the others it was never counted */
}

enum err dedup_note(struct dedup *dedup, uint64_t shards, uint64_t version, const struct wire_meta *meta)
{
    struct dedup out = {0};
    size_t at = 0;
    TRY(mem_new(dedup->count + meta->contributors_count, sizeof *out.rows, "what is counted", &out.rows));
    for (uint32_t i = 0; i < meta->contributors_count; i++) {
        struct wire_contributor contributor = wire_meta_contributor(meta, i);
        bool below = bits_float(contributor.cosine) < DIRECTION_LEAST;
        struct dedup_row row = {.id = contributor.id,
                                .direction = state_before(dedup, contributor.id, shards) | (below ? BELOW : 0),
                                .shards = shards,
                                .version = version,
                                .digest = contributor.digest};
        for (; at < dedup->count && dedup->rows[at].id < row.id; at++)
            out.rows[out.count++] = dedup->rows[at];
        at = merge(dedup, at, &row, &out);
    }
    for (; at < dedup->count; at++)
        out.rows[out.count++] = dedup->rows[at];
    mem_free(dedup->rows);
    *dedup = out;
    return ERR_OK;
}

/* ---- judging ---- */

static uint64_t values_of(uint64_t shards, const uint64_t *values)
{
    uint64_t sum = 0;
    for (; shards != 0; shards &= shards - 1)
        sum += values[__builtin_ctzll(shards)];
    return sum;
}

void dedup_judge(struct dedup *dedup, uint64_t version, const uint64_t *values)
{
    for (size_t i = 0, end; i < dedup->count; i = end) {
        uint64_t all = 0, below = 0, parts = 0, parts_below = 0;
        for (end = i; end < dedup->count && dedup->rows[end].id == dedup->rows[i].id; end++) {
            const struct dedup_row *row = &dedup->rows[end];
            bool now = row->version == version, is_below = now && (row->direction & BELOW) != 0;
            uint64_t here = now ? values_of(row->shards, values) : 0;
            all += here;
            below += is_below ? here : 0;
            parts += now;
            parts_below += is_below;
        }
        bool most = below > all - below && parts_below > parts - parts_below;
        for (size_t k = i; k < end; k++)
            if (dedup->rows[k].version == version)
                dedup->rows[k].direction = direction_next(dedup->rows[k].direction & ~BELOW, most);
    }
}

/* ---- looking ---- */

uint64_t dedup_turned(const struct dedup *dedup, size_t i)
{
    return direction_turned(dedup->rows[i].direction) ? dedup->rows[i].shards : 0;
}

uint64_t dedup_since(const struct dedup *dedup, uint32_t id, uint64_t version)
{
    uint64_t shards = 0;
    for (size_t i = 0; i < dedup->count; i++)
        if (dedup->rows[i].id == id && dedup->rows[i].version > version)
            shards |= dedup->rows[i].shards;
    return shards;
}

uint64_t dedup_last(const struct dedup *dedup, uint32_t id, uint64_t shards)
{
    uint64_t last = 0;
    for (size_t i = 0; i < dedup->count; i++) {
        const struct dedup_row *row = &dedup->rows[i];
        if (row->id == id && (row->shards & shards) != 0 && row->version > last)
            last = row->version;
    }
    return last;
}

uint64_t dedup_as(const struct dedup *dedup, uint32_t id, uint64_t version, const struct digest *digest)
{
    uint64_t shards = 0;
    for (size_t i = 0; i < dedup->count; i++) {
        const struct dedup_row *row = &dedup->rows[i];
        if (row->id == id && row->version == version && digest_equal(&row->digest, digest))
            shards |= row->shards;
    }
    return shards;
}

/* ---- bytes: id u32, direction u32, shards u64, version u64, digest 32 bytes, for each row ---- */

size_t dedup_bytes(const struct dedup *dedup)
{
    return dedup->count * DEDUP_ROW_BYTES;
}

void dedup_pack(const struct dedup *dedup, uint8_t *out)
{
    struct bytes_writer writer = bytes_writer_init(out, dedup_bytes(dedup));
    for (size_t i = 0; i < dedup->count; i++) {
        const struct dedup_row *row = &dedup->rows[i];
        bytes_put_u32(&writer, row->id);
        bytes_put_u32(&writer, row->direction);
        bytes_put_u64(&writer, row->shards);
        bytes_put_u64(&writer, row->version);
        bytes_put(&writer, row->digest.byte, DIGEST_BYTES);
    }
}

/* In order, no shard of a member twice. */
static bool follows(const struct dedup *dedup, size_t i, uint64_t *seen)
{
    const struct dedup_row *row = &dedup->rows[i];
    if (i == 0 || row->id > row[-1].id) {
        *seen = row->shards;
        return row->shards != 0;
    }
    bool good = row->id == row[-1].id && row->shards != 0 && (row->shards & *seen) == 0 &&
                lowest(row->shards) > lowest(row[-1].shards);
    *seen |= row->shards;
    return good;
}

enum err dedup_unpack(const uint8_t *bytes, size_t bytes_count, struct dedup *dedup)
{
    struct bytes_reader reader = bytes_reader_init(bytes, bytes_count);
    uint64_t seen = 0;
    if (bytes_count % DEDUP_ROW_BYTES != 0)
        return err_set(ERR_PROTO, "what is counted has %zu bytes", bytes_count);
    TRY(mem_new(bytes_count / DEDUP_ROW_BYTES, sizeof *dedup->rows, "what is counted", &dedup->rows));
    dedup->count = bytes_count / DEDUP_ROW_BYTES;
    for (size_t i = 0; i < dedup->count; i++) {
        struct dedup_row *row = &dedup->rows[i];
        row->id = bytes_get_u32(&reader);
        row->direction = bytes_get_u32(&reader);
        row->shards = bytes_get_u64(&reader);
        row->version = bytes_get_u64(&reader);
        memcpy(row->digest.byte, bytes_get(&reader, DIGEST_BYTES), DIGEST_BYTES);
        if (row->direction < DIRECTION_STATES && follows(dedup, i, &seen))
            continue;
        dedup_clear(dedup);
        return err_set(ERR_PROTO, "what is counted has a row %zu that is out of order or no row", i);
    }
    return ERR_OK;
}
