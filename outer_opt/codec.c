#include "outer_opt/codec.h"

#include <string.h>
#include <zstd.h>

#include "common/bytes.h"
#include "common/digest.h"
#include "common/mem.h"

/*
 * Frame:  0  u32 magic "DLF1"      4  u8 version   5  u8 codec   6  u16 block
 *         8  u32 segment values   12  u32 segments
 *        16  u64 values           24  u64 payload bytes
 *        32  16 bytes: start of BLAKE2b over bytes 0..31 and the payload
 *        48  payload: per segment u32 bytes (top bit: zstd), then that many bytes
 * Raw segment: what vec.h's encoder of that codec writes for its blocks.
 */
enum { FRAME_MAGIC = 0x31464c44, DIGEST_OFFSET = 32, DIGEST_SHORT_BYTES = 16 };
#define SEGMENT_ZSTD 0x80000000u

struct codec {
    struct codec_conf conf;
    const struct vec_ops *ops;
    ZSTD_CCtx *compress;
    ZSTD_DCtx *decompress;
    uint8_t *raw; /* one raw segment of the widest codec */
};

struct codec_row {
    enum codec_id id;
    enum vec_codec_id vec;
    const char *name;
};

static const struct codec_row rows[] = {
    {CODEC_FP32, VEC_FP32, "fp32"},
    {CODEC_BF16, VEC_BF16, "bf16"},
    {CODEC_INT8, VEC_INT8, "int8"},
    {CODEC_E3M0, VEC_E3M0, "e3m0"},
};

static const struct codec_row *row_of(unsigned id)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (rows[i].id == (enum codec_id)id)
            return &rows[i];
    return NULL;
}

static size_t raw_block_bytes(enum codec_id id)
{
    const struct codec_row *row = row_of(id);
    return row != NULL ? vec_best()->codec[row->vec].raw_bytes : 0;
}

enum { RAW_SEGMENT_MAX = CODEC_SEGMENT * sizeof(float) };

enum err codec_new(const struct codec_conf *conf, struct codec **out)
{
    enum err err;
    struct codec *codec = NULL;
    *out = NULL;
    if (row_of(conf->id) == NULL)
        return err_set(ERR_ARG, "no codec has number %d", (int)conf->id);
    TRY_OUT(mem_new(1, sizeof *codec, "a codec", &codec));
    codec->conf = *conf;
    codec->ops = vec_best();
    TRY_OUT(mem_new(RAW_SEGMENT_MAX, 1, "a codec's scratch", &codec->raw));
    codec->compress = ZSTD_createCCtx();
    codec->decompress = ZSTD_createDCtx();
    if (codec->compress == NULL || codec->decompress == NULL)
        err = err_set(ERR_NOMEM, "out of memory for zstd");
    else if (ZSTD_isError(ZSTD_CCtx_setParameter(codec->compress, ZSTD_c_compressionLevel, conf->zstd_level)))
        err = err_set(ERR_ARG, "zstd has no level %d", conf->zstd_level);
out:
    if (err != ERR_OK)
        codec_free(codec);
    else
        *out = codec;
    return err;
}

void codec_free(struct codec *codec)
{
    if (codec == NULL)
        return;
    ZSTD_freeCCtx(codec->compress);
    ZSTD_freeDCtx(codec->decompress);
    mem_free(codec->raw);
    mem_free(codec);
}

const char *codec_name(enum codec_id id)
{
    const struct codec_row *row = row_of(id);
    return row != NULL ? row->name : NULL;
}

double codec_bits(enum codec_id id)
{
    return 8.0 * (double)raw_block_bytes(id) / CODEC_BLOCK;
}

size_t codec_frame_bytes_max(enum codec_id id, size_t values_count)
{
    size_t segments = (values_count + CODEC_SEGMENT - 1) / CODEC_SEGMENT;
    return CODEC_HEADER_BYTES + segments * sizeof(uint32_t) + values_count / CODEC_BLOCK * raw_block_bytes(id);
}

static void digest_frame(const uint8_t *frame, size_t frame_bytes, struct digest *digest)
{
    struct digest_state state;
    digest_begin(&state);
    digest_add(&state, frame, DIGEST_OFFSET);
    digest_add(&state, frame + CODEC_HEADER_BYTES, frame_bytes - CODEC_HEADER_BYTES);
    *digest = digest_end(&state);
}

/* Writes one segment at `out`, which has room for its raw form; zstd's only where it is shorter. */
static size_t put_segment(struct codec *codec, size_t raw_bytes, uint8_t *out)
{
    uint32_t mark = (uint32_t)raw_bytes;
    uint8_t *body = out + sizeof mark;
    size_t packed = 0;
    if (codec->conf.zstd_level > 0) {
        /* A destination smaller than the raw form makes zstd give up where it gains nothing. */
        packed = ZSTD_compress2(codec->compress, body, raw_bytes - 1, codec->raw, raw_bytes);
        if (ZSTD_isError(packed))
            packed = 0;
    }
    if (packed > 0)
        mark = (uint32_t)packed | SEGMENT_ZSTD;
    else
        memcpy(body, codec->raw, raw_bytes);
    memcpy(out, &mark, sizeof mark);
    return sizeof mark + (packed > 0 ? packed : raw_bytes);
}

enum err codec_encode(struct codec *codec, const struct vec_source *source, size_t values_count, float *residual,
                      uint8_t *frame, size_t *frame_bytes, size_t *fault)
{
    const struct vec_codec *ops = &codec->ops->codec[row_of(codec->conf.id)->vec];
    if (values_count % CODEC_BLOCK != 0)
        return err_set(ERR_ARG, "%zu values are not whole blocks of %d", values_count, CODEC_BLOCK);
    size_t at = CODEC_HEADER_BYTES;
    uint32_t segments = 0;
    for (size_t begin = 0; begin < values_count; begin += CODEC_SEGMENT, segments++) {
        size_t count = values_count - begin < CODEC_SEGMENT ? values_count - begin : CODEC_SEGMENT;
        size_t blocks = count / CODEC_BLOCK;
        struct vec_source part = {
            .minuend = source->minuend + begin,
            .subtrahend = source->subtrahend != NULL ? source->subtrahend + begin : NULL,
            .residual = source->residual != NULL ? source->residual + begin : NULL,
        };
        size_t good = ops->encode(&part, blocks, codec->raw, residual != NULL ? residual + begin : NULL);
        if (good != blocks) {
            *fault = begin + good * CODEC_BLOCK;
            return err_set(ERR_NONFINITE, "NaN, Inf or a number too large for %s", codec_name(codec->conf.id));
        }
        at += put_segment(codec, blocks * ops->raw_bytes, frame + at);
    }
    struct bytes_writer header = bytes_writer_init(frame, CODEC_HEADER_BYTES);
    bytes_put_u32(&header, FRAME_MAGIC);
    bytes_put_u8(&header, CODEC_FRAME_VERSION);
    bytes_put_u8(&header, (uint8_t)codec->conf.id);
    bytes_put_u16(&header, CODEC_BLOCK);
    bytes_put_u32(&header, CODEC_SEGMENT);
    bytes_put_u32(&header, segments);
    bytes_put_u64(&header, values_count);
    bytes_put_u64(&header, at - CODEC_HEADER_BYTES);
    struct digest digest;
    digest_frame(frame, at, &digest);
    bytes_put(&header, digest.byte, DIGEST_SHORT_BYTES);
    *frame_bytes = at;
    return ERR_OK;
}

/* Header checks in order: length, magic, version, codec, geometry, count, payload length. */
static enum err parse_header(const uint8_t *frame, size_t frame_bytes, size_t values_count,
                             const struct codec_row **row)
{
    struct bytes_reader header = bytes_reader_init(frame, frame_bytes);
    if (frame_bytes < CODEC_HEADER_BYTES)
        return err_set(ERR_PROTO, "codec frame of %zu bytes is shorter than its header", frame_bytes);
    if (bytes_get_u32(&header) != FRAME_MAGIC)
        return err_set(ERR_PROTO, "not a codec frame");
    unsigned version = bytes_get_u8(&header);
    if (version != CODEC_FRAME_VERSION)
        return err_set(ERR_PROTO, "codec frame of version %u; this program reads %d", version, CODEC_FRAME_VERSION);
    unsigned id = bytes_get_u8(&header);
    *row = row_of(id);
    if (*row == NULL)
        return err_set(ERR_PROTO, "codec frame of unknown codec %u", id);
    unsigned block = bytes_get_u16(&header);
    uint32_t segment = bytes_get_u32(&header);
    uint32_t segments = bytes_get_u32(&header);
    uint64_t values = bytes_get_u64(&header);
    uint64_t payload = bytes_get_u64(&header);
    if (block != CODEC_BLOCK || segment != CODEC_SEGMENT || values % CODEC_BLOCK != 0 ||
        segments != (values + CODEC_SEGMENT - 1) / CODEC_SEGMENT)
        return err_set(ERR_PROTO, "codec frame with a geometry this program does not write");
    if (values != values_count)
        return err_set(ERR_PROTO, "codec frame of %llu values where %zu are due", (unsigned long long)values,
                       values_count);
    if (payload != frame_bytes - CODEC_HEADER_BYTES)
        return err_set(ERR_PROTO, "codec frame cut short or too long");
    return ERR_OK;
}

enum err codec_check(const uint8_t *frame, size_t frame_bytes, size_t values_count)
{
    const struct codec_row *row;
    TRY(parse_header(frame, frame_bytes, values_count, &row));
    struct digest digest;
    digest_frame(frame, frame_bytes, &digest);
    if (memcmp(frame + DIGEST_OFFSET, digest.byte, DIGEST_SHORT_BYTES) != 0)
        return err_set(ERR_PROTO, "codec frame was altered: its digest does not match");
    return ERR_OK;
}

/* The raw form of the next segment: inside the frame, or unpacked into codec->raw. */
static enum err get_segment(struct codec *codec, struct bytes_reader *payload, size_t raw_bytes, const uint8_t **raw)
{
    uint32_t mark = bytes_get_u32(payload);
    size_t stored = mark & ~SEGMENT_ZSTD;
    const uint8_t *body = bytes_get(payload, stored);
    if (payload->failed)
        return err_set(ERR_PROTO, "codec frame ends inside a segment");
    if ((mark & SEGMENT_ZSTD) == 0) {
        if (stored != raw_bytes)
            return err_set(ERR_PROTO, "codec segment of %zu bytes where %zu are due", stored, raw_bytes);
        *raw = body;
        return ERR_OK;
    }
    size_t got = ZSTD_decompressDCtx(codec->decompress, codec->raw, raw_bytes, body, stored);
    if (ZSTD_isError(got) || got != raw_bytes)
        return err_set(ERR_PROTO, "codec segment does not unpack: %s",
                       ZSTD_isError(got) ? ZSTD_getErrorName(got) : "wrong length");
    *raw = codec->raw;
    return ERR_OK;
}

static enum err decode(struct codec *codec, const uint8_t *frame, size_t frame_bytes, const float *weight, float *out,
                       size_t values_count)
{
    const struct codec_row *row;
    TRY(parse_header(frame, frame_bytes, values_count, &row));
    const struct vec_codec *ops = &codec->ops->codec[row->vec];
    struct bytes_reader payload = bytes_reader_init(frame + CODEC_HEADER_BYTES, frame_bytes - CODEC_HEADER_BYTES);
    for (size_t begin = 0; begin < values_count; begin += CODEC_SEGMENT) {
        size_t count = values_count - begin < CODEC_SEGMENT ? values_count - begin : CODEC_SEGMENT;
        size_t blocks = count / CODEC_BLOCK;
        const uint8_t *raw = NULL;
        TRY(get_segment(codec, &payload, blocks * ops->raw_bytes, &raw));
        if (weight != NULL)
            ops->decode_add(raw, blocks, *weight, out + begin);
        else
            ops->decode(raw, blocks, out + begin);
    }
    if (bytes_left(&payload) != 0)
        return err_set(ERR_PROTO, "codec frame has bytes behind its last segment");
    return ERR_OK;
}

enum err codec_decode(struct codec *codec, const uint8_t *frame, size_t frame_bytes, float *values, size_t values_count)
{
    return decode(codec, frame, frame_bytes, NULL, values, values_count);
}

enum err codec_decode_add(struct codec *codec, const uint8_t *frame, size_t frame_bytes, float weight, float *sum,
                          size_t values_count)
{
    return decode(codec, frame, frame_bytes, &weight, sum, values_count);
}
