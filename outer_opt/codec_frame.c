/* SPDX-License-Identifier: Apache-2.0 */
#include "outer_opt/codec_frame.h"

#include <string.h>

#include "common/digest.h"

/*
 * Frame:  0  u32 magic "DLF1"      4  u8 version   5  u8 0         6  u16 block
 *         8  u32 segment values   12  u32 segments
 *        16  u64 values           24  u64 payload bytes
 *        32  32 bytes BLAKE2b over bytes 0..31 and the digest tree of the payload
 *        64  payload: segments
 * Segment: u8 codec, u8 planes, u16 param, u32 values, u32 bytes that follow; per plane u32 bytes (top bit: zstd),
 *          then that many bytes.
 */
enum { FRAME_MAGIC = 0x31464c44, DIGEST_OFFSET = 32 };
#define PLANE_ZSTD 0x80000000u

static struct digest digest_frame(const uint8_t *frame, size_t frame_bytes)
{
    struct digest payload = digest_tree(frame + CODEC_HEADER_BYTES, frame_bytes - CODEC_HEADER_BYTES);
    struct digest_state state;
    digest_begin(&state);
    digest_add(&state, frame, DIGEST_OFFSET);
    digest_add(&state, payload.byte, DIGEST_BYTES);
    return digest_end(&state);
}

void codec_frame_put_header(uint8_t *frame, size_t frame_bytes, uint32_t segments, size_t values_count)
{
    struct bytes_writer header = bytes_writer_init(frame, CODEC_HEADER_BYTES);
    bytes_put_u32(&header, FRAME_MAGIC);
    bytes_put_u8(&header, CODEC_FRAME_VERSION);
    bytes_put_u8(&header, 0);
    bytes_put_u16(&header, CODEC_BLOCK);
    bytes_put_u32(&header, CODEC_SEGMENT);
    bytes_put_u32(&header, segments);
    bytes_put_u64(&header, values_count);
    bytes_put_u64(&header, frame_bytes - CODEC_HEADER_BYTES);
    struct digest digest = digest_frame(frame, frame_bytes);
    bytes_put(&header, digest.byte, DIGEST_BYTES);
}

/* In order: length, magic, version, geometry, count, payload length. */
enum err codec_frame_get_header(const uint8_t *frame, size_t frame_bytes, size_t values_count, uint32_t *segments)
{
    struct bytes_reader header = bytes_reader_init(frame, frame_bytes);
    if (frame_bytes < CODEC_HEADER_BYTES)
        return err_set(ERR_PROTO, "codec frame of %zu bytes is shorter than its header", frame_bytes);
    if (bytes_get_u32(&header) != FRAME_MAGIC)
        return err_set(ERR_PROTO, "not a codec frame");
    unsigned version = bytes_get_u8(&header);
    if (version != CODEC_FRAME_VERSION)
        return err_set(ERR_PROTO, "codec frame of version %u; this program reads %d", version, CODEC_FRAME_VERSION);
    (void)bytes_get_u8(&header);
    unsigned block = bytes_get_u16(&header);
    uint32_t segment = bytes_get_u32(&header);
    *segments = bytes_get_u32(&header);
    uint64_t values = bytes_get_u64(&header);
    uint64_t payload = bytes_get_u64(&header);
    if (block != CODEC_BLOCK || segment != CODEC_SEGMENT || values % CODEC_BLOCK != 0)
        return err_set(ERR_PROTO, "codec frame with a geometry this program does not write");
    if (values != values_count)
        return err_set(ERR_PROTO, "codec frame of %llu values where %zu are due", (unsigned long long)values,
                       values_count);
    if (payload != frame_bytes - CODEC_HEADER_BYTES)
        return err_set(ERR_PROTO, "codec frame cut short or too long");
    return ERR_OK;
}

enum err codec_frame_check_digest(const uint8_t *frame, size_t frame_bytes)
{
    struct digest digest = digest_frame(frame, frame_bytes);
    if (memcmp(frame + DIGEST_OFFSET, digest.byte, DIGEST_BYTES) != 0)
        return err_set(ERR_PROTO, "codec frame was altered: its digest does not match");
    return ERR_OK;
}

/* Repetitions among bytes in no order are by chance: looking for them takes longer and saves less than coding bytes by
 * how often they are there, which zstd does with those it found no repetitions of. */
static void set_search(struct codec *codec, bool by_frequency)
{
    enum { LEAST_HASH_LOG = 6, LONGEST_MIN_MATCH = 7, BY_LEVEL = 0 };
    if (codec->by_frequency == by_frequency)
        return;
    codec->by_frequency = by_frequency;
    (void)ZSTD_CCtx_setParameter(codec->compress, ZSTD_c_strategy, by_frequency ? (int)ZSTD_fast : BY_LEVEL);
    (void)ZSTD_CCtx_setParameter(codec->compress, ZSTD_c_hashLog, by_frequency ? LEAST_HASH_LOG : BY_LEVEL);
    (void)ZSTD_CCtx_setParameter(codec->compress, ZSTD_c_minMatch, by_frequency ? LONGEST_MIN_MATCH : BY_LEVEL);
}

/* One plane at `out`, which has room for its raw form; zstd's only where it is shorter. */
static size_t put_plane(struct codec *codec, const struct plane *plane, bool compress, uint8_t *out)
{
    uint32_t mark = (uint32_t)plane->bytes;
    uint8_t *body = out + PLANE_MARK_BYTES;
    size_t packed = 0;
    if (compress && codec->zstd_level > 0 && plane->bytes > 1) {
        /* A destination smaller than the raw form makes zstd give up where it gains nothing. */
        packed = ZSTD_compress2(codec->compress, body, plane->bytes - 1, plane->data, plane->bytes);
        if (ZSTD_isError(packed))
            packed = 0;
    }
    if (packed > 0)
        mark = (uint32_t)packed | PLANE_ZSTD;
    else
        memcpy(body, plane->data, plane->bytes);
    memcpy(out, &mark, sizeof mark);
    return PLANE_MARK_BYTES + (packed > 0 ? packed : plane->bytes);
}

size_t codec_frame_put_segment(struct codec *codec, const struct codec_kind *kind, const struct segment *segment,
                               uint8_t *out)
{
    size_t at = SEGMENT_HEADER_BYTES;
    set_search(codec, kind->noise);
    for (unsigned i = 0; i < segment->planes_count; i++)
        at += put_plane(codec, &segment->plane[i], !kind->whole && !(kind->noise && i == 1), out + at);
    struct bytes_writer header = bytes_writer_init(out, SEGMENT_HEADER_BYTES);
    bytes_put_u8(&header, (uint8_t)kind->id);
    bytes_put_u8(&header, (uint8_t)segment->planes_count);
    bytes_put_u16(&header, segment->param);
    bytes_put_u32(&header, segment->count);
    bytes_put_u32(&header, (uint32_t)(at - SEGMENT_HEADER_BYTES));
    return at;
}

enum err codec_frame_get_segment(struct bytes_reader *payload, size_t values_left, struct segment *segment,
                                 unsigned *id, size_t *bytes)
{
    *segment = (struct segment){0};
    *id = bytes_get_u8(payload);
    segment->planes_count = bytes_get_u8(payload);
    segment->param = bytes_get_u16(payload);
    segment->count = bytes_get_u32(payload);
    *bytes = bytes_get_u32(payload);
    if (payload->failed || *bytes > bytes_left(payload))
        return err_set(ERR_PROTO, "codec frame ends inside a segment");
    if (segment->planes_count == 0 || segment->planes_count > PLANES_MAX || segment->count == 0 ||
        segment->count % CODEC_BLOCK != 0 || segment->count > values_left)
        return err_set(ERR_PROTO, "codec segment with a geometry this program does not write");
    return ERR_OK;
}

/* The next plane: inside the frame, or unpacked into codec->plane[i], at most `room` bytes of it. */
static enum err get_plane(struct codec *codec, struct bytes_reader *payload, unsigned i, size_t room,
                          struct plane *plane)
{
    uint32_t mark = bytes_get_u32(payload);
    size_t stored = mark & ~PLANE_ZSTD;
    const uint8_t *body = bytes_get(payload, stored);
    if (payload->failed)
        return err_set(ERR_PROTO, "codec frame ends inside a segment");
    if ((mark & PLANE_ZSTD) == 0) {
        if (stored > room)
            return err_set(ERR_PROTO, "codec segment of %zu bytes where at most %zu can be", stored, room);
        *plane = (struct plane){(uint8_t *)(uintptr_t)body, stored};
        return ERR_OK;
    }
    room = room < codec->plane_room[i] ? room : codec->plane_room[i];
    size_t got = ZSTD_decompressDCtx(codec->decompress, codec->plane[i], room, body, stored);
    if (ZSTD_isError(got))
        return err_set(ERR_PROTO, "codec segment does not unpack: %s", ZSTD_getErrorName(got));
    *plane = (struct plane){codec->plane[i], got};
    return ERR_OK;
}

enum err codec_frame_get_planes(struct codec *codec, const struct codec_kind *kind, struct bytes_reader *payload,
                                size_t bytes, struct segment *segment)
{
    size_t room[PLANES_MAX];
    size_t end = payload->at + bytes;
    if (segment->count > (kind->whole ? codec->segment_values : CODEC_SEGMENT))
        return err_set(ERR_PROTO, "codec segment with a geometry this program does not write");
    kind->room(kind, segment->count, room);
    for (unsigned i = 0; i < segment->planes_count; i++)
        TRY(get_plane(codec, payload, i, room[i], &segment->plane[i]));
    if (payload->at != end)
        return err_set(ERR_PROTO, "codec segment has bytes behind its last plane");
    return ERR_OK;
}
