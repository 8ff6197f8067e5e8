/* SPDX-License-Identifier: Apache-2.0 */
#include "outer_opt/codec.h"

#include <string.h>

#include "common/mem.h"
#include "outer_opt/codec_frame.h"
#include "outer_opt/codec_kind.h"
#include "outer_opt/vec.h"

/* Every codec there is. */
static const struct codec_kind *const kinds[] = {
    &codec_kind_fp32, &codec_kind_bf16,    &codec_kind_int8,    &codec_kind_e3m0, &codec_kind_int4,
    &codec_kind_int2, &codec_kind_ternary, &codec_kind_uniform, &codec_kind_topk, &codec_kind_powersgd,
};

/* NULL for a number that is none. */
static const struct codec_kind *kind_of(unsigned id)
{
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (kinds[i]->id == (enum codec_id)id)
            return kinds[i];
    return NULL;
}

/* ---- making one ---- */

enum { PLANE_LARGE = CODEC_SEGMENT * sizeof(float) + CODEC_SEGMENT / CODEC_BLOCK * 8 };
enum { CHUNK_VALUES = 4096 };

static enum err alloc_scratch(struct codec *codec)
{
    static const size_t rooms[PLANES_MAX] = {PLANE_LARGE, PLANE_LARGE, CODEC_SEGMENT};
    for (int i = 0; i < PLANES_MAX; i++) {
        TRY(mem_new(rooms[i], 1, "a codec's scratch", &codec->plane[i]));
        codec->plane_room[i] = rooms[i];
    }
    TRY(mem_new(CODEC_SEGMENT, sizeof *codec->levels, "a codec's scratch", &codec->levels));
    TRY(mem_new(CODEC_SEGMENT, sizeof *codec->values, "a codec's scratch", &codec->values));
    TRY(mem_new(PLANE_LARGE + SEGMENT_HEADER_BYTES + PLANES_MAX * PLANE_MARK_BYTES, 1, "a codec's scratch",
                &codec->trial));
    return mem_new(CHUNK_VALUES, sizeof *codec->kept, "a codec's scratch", &codec->kept);
}

enum err codec_new(int zstd_level, struct codec **out)
{
    enum err err;
    struct codec *codec = NULL;
    *out = NULL;
    TRY_OUT(mem_new(1, sizeof *codec, "a codec", &codec));
    codec->ops = vec_best();
    TRY_OUT(alloc_scratch(codec));
    TRY_OUT(codec_reserve(codec, 0, CODEC_SEGMENT));
    codec->compress = ZSTD_createCCtx();
    codec->decompress = ZSTD_createDCtx();
    if (codec->compress == NULL || codec->decompress == NULL)
        err = err_set(ERR_NOMEM, "out of memory for zstd");
    else
        err = codec_set_zstd(codec, zstd_level);
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
    for (int i = 0; i < PLANES_MAX; i++)
        mem_free(codec->plane[i]);
    mem_free(codec->levels);
    mem_free(codec->values);
    mem_free(codec->kept);
    mem_free(codec->trial);
    mem_free(codec->factors);
    mem_free(codec->segment);
    mem_free(codec);
}

enum err codec_set_zstd(struct codec *codec, int level)
{
    if (ZSTD_isError(ZSTD_CCtx_setParameter(codec->compress, ZSTD_c_compressionLevel, level)))
        return err_set(ERR_ARG, "zstd has no level %d", level);
    codec->zstd_level = level;
    return ERR_OK;
}

enum err codec_reserve(struct codec *codec, size_t factor_values, size_t segment_values)
{
    mem_free(codec->factors);
    codec->factors = NULL;
    /* As floats, and once more as the halves that are sent. */
    if (factor_values > 0)
        TRY(mem_new(factor_values / 2 * 3 + 2, sizeof(float), "a codec's factors", &codec->factors));
    if (segment_values <= codec->segment_values)
        return ERR_OK;
    mem_free(codec->segment);
    codec->segment_values = 0;
    TRY(mem_new_unset(segment_values, sizeof(float), "a codec's scratch", &codec->segment));
    codec->segment_values = segment_values;
    return ERR_OK;
}

/* ---- about choices ---- */

const char *codec_name(enum codec_id id)
{
    const struct codec_kind *kind = kind_of(id);
    return kind != NULL ? kind->name : NULL;
}

bool codec_on_tensors(enum codec_id id)
{
    const struct codec_kind *kind = kind_of(id);
    return kind != NULL && kind->whole;
}

enum err codec_choice_check(const struct codec_choice *choice)
{
    if (kind_of(choice->id) == NULL)
        return err_set(ERR_ARG, "no codec has number %d", (int)choice->id);
    if (choice->id == CODEC_UNIFORM && !(choice->ratio >= VEC_RATIO_MIN && choice->ratio <= 8))
        return err_set(ERR_ARG, "uniform: a step of %g rms; from %g to 8 are possible", (double)choice->ratio,
                       (double)VEC_RATIO_MIN);
    if (choice->id == CODEC_TOPK && !(choice->ratio > 0 && choice->ratio <= 0.5f))
        return err_set(ERR_ARG, "topk: a fraction of %g; more than 0, at most 0.5", (double)choice->ratio);
    if (choice->id == CODEC_POWERSGD && (choice->rank < 1 || choice->rank > CODEC_RANK_MAX))
        return err_set(ERR_ARG, "powersgd: rank %u; 1 to %d are possible", choice->rank, CODEC_RANK_MAX);
    return ERR_OK;
}

static size_t segment_bytes_max(const struct codec_kind *kind, const struct codec_part *part, size_t count)
{
    size_t room[PLANES_MAX];
    size_t bytes = SEGMENT_HEADER_BYTES;
    kind->room(kind, count, room);
    if (kind->whole) /* the room is for any shape; this one is known */
        return bytes + PLANES_MAX * PLANE_MARK_BYTES + 12 +
               sizeof(uint16_t) * part->choice.rank * ((size_t)part->rows + part->cols);
    for (int i = 0; i < PLANES_MAX; i++)
        bytes += PLANE_MARK_BYTES + room[i];
    return bytes;
}

size_t codec_part_bytes_max(const struct codec_part *part)
{
    const struct codec_kind *kind = kind_of(part->choice.id);
    size_t count = (size_t)part->count;
    if (kind->whole)
        return segment_bytes_max(kind, part, count);
    size_t rest = count % CODEC_SEGMENT;
    return count / CODEC_SEGMENT * segment_bytes_max(kind, part, CODEC_SEGMENT) +
           (rest > 0 ? segment_bytes_max(kind, part, rest) : 0);
}

size_t codec_frame_bytes_max(const struct codec_part *parts, size_t parts_count)
{
    size_t bytes = CODEC_HEADER_BYTES;
    for (size_t i = 0; i < parts_count; i++)
        bytes += codec_part_bytes_max(&parts[i]);
    return bytes;
}

/* ---- encoding and decoding ---- */

static struct vec_source source_from(const struct vec_source *source, size_t begin)
{
    return (struct vec_source){
        .minuend = source->minuend + begin,
        .subtrahend = source->subtrahend != NULL ? source->subtrahend + begin : NULL,
        .residual = source->residual != NULL ? source->residual + begin : NULL,
    };
}

struct codec_writer codec_write_at(uint8_t *frame, size_t at)
{
    return (struct codec_writer){.frame = frame, .begin = at, .at = at};
}

struct codec_writer codec_write_begin(uint8_t *frame)
{
    return codec_write_at(frame, CODEC_HEADER_BYTES);
}

enum err codec_write(struct codec *codec, struct codec_writer *w, const struct codec_part *part,
                     const struct vec_source *source, float *residual, size_t *fault)
{
    const struct codec_kind *kind = kind_of(part->choice.id);
    size_t begin = (size_t)part->at, end = begin + (size_t)part->count;
    if (part->count % CODEC_BLOCK != 0 || part->count > UINT32_MAX)
        return err_set(ERR_ARG, "%llu values are not whole blocks of %d, or too many for one part",
                       (unsigned long long)part->count, CODEC_BLOCK);
    while (begin < end) {
        size_t count = end - begin;
        if (!kind->whole && count > CODEC_SEGMENT)
            count = CODEC_SEGMENT;
        struct vec_source here = source_from(source, begin);
        struct segment segment = {.count = (uint32_t)count};
        size_t good = kind->encode(codec, kind, part, &here, residual != NULL ? residual + begin : NULL, &segment);
        if (good != blocks_of(count)) {
            *fault = begin + good * CODEC_BLOCK;
            return err_set(ERR_NONFINITE, "NaN, Inf or a number too large for %s", kind->name);
        }
        w->at += codec_frame_put_segment(codec, kind, &segment, w->frame + w->at);
        w->values += count;
        w->segments++;
        begin += count;
    }
    return ERR_OK;
}

void codec_write_take(struct codec_writer *w, const struct codec_writer *elsewhere)
{
    size_t bytes = elsewhere->at - elsewhere->begin;
    if (elsewhere->begin != w->at)
        memmove(w->frame + w->at, elsewhere->frame + elsewhere->begin, bytes);
    w->at += bytes;
    w->values += elsewhere->values;
    w->segments += elsewhere->segments;
}

size_t codec_write_end(const struct codec_writer *w)
{
    codec_frame_put_header(w->frame, w->at, w->segments, w->values);
    return w->at;
}

enum err codec_encode(struct codec *codec, const struct codec_part *parts, size_t parts_count,
                      const struct vec_source *source, float *residual, uint8_t *frame, size_t *frame_bytes,
                      size_t *fault)
{
    struct codec_writer w = codec_write_begin(frame);
    *fault = 0;
    for (size_t i = 0; i < parts_count; i++)
        TRY(codec_write(codec, &w, &parts[i], source, residual, fault));
    *frame_bytes = codec_write_end(&w);
    return ERR_OK;
}

enum err codec_try(struct codec *codec, const struct codec_choice *choice, const struct vec_source *source,
                   size_t values_count, size_t *bytes, double *error)
{
    const struct codec_kind *kind = kind_of(choice->id);
    const struct codec_part part = {.count = values_count, .choice = *choice};
    struct segment segment = {.count = (uint32_t)values_count};
    if (kind->whole || choice->id == CODEC_TOPK || values_count > CODEC_SEGMENT)
        return err_set(ERR_ARG, "%s cannot be tried on %zu values", kind->name, values_count);
    if (kind->encode(codec, kind, &part, source, codec->values, &segment) != blocks_of(values_count))
        return err_set(ERR_NONFINITE, "NaN, Inf or a number too large for %s", kind->name);
    *bytes = codec_frame_put_segment(codec, kind, &segment, codec->trial);
    *error = codec->ops->square_sum(codec->values, NULL, blocks_of(values_count));
    return ERR_OK;
}

enum err codec_check(const uint8_t *frame, size_t frame_bytes, size_t values_count)
{
    uint32_t segments;
    TRY(codec_frame_get_header(frame, frame_bytes, values_count, &segments));
    return codec_frame_check_digest(frame, frame_bytes);
}

enum err codec_intact(const uint8_t *frame, size_t frame_bytes)
{
    if (frame_bytes < CODEC_HEADER_BYTES)
        return err_set(ERR_PROTO, "codec frame of %zu bytes is shorter than its header", frame_bytes);
    return codec_frame_check_digest(frame, frame_bytes);
}

/* The next segment, of at most `values_left` values, and what decodes it. */
static enum err get_segment(struct codec *codec, struct bytes_reader *payload, size_t values_left,
                            const struct codec_kind **kind, struct segment *segment)
{
    unsigned id;
    size_t bytes;
    TRY(codec_frame_get_segment(payload, values_left, segment, &id, &bytes));
    *kind = kind_of(id);
    if (*kind == NULL)
        return err_set(ERR_PROTO, "codec segment of unknown codec %u", id);
    return codec_frame_get_planes(codec, *kind, payload, bytes, segment);
}

/* ---- reading piece by piece ---- */

enum err codec_read_begin(const uint8_t *frame, size_t frame_bytes, size_t values_count, struct codec_reader *out)
{
    *out = (struct codec_reader){
        .frame = frame, .frame_bytes = frame_bytes, .at = CODEC_HEADER_BYTES, .values_left = values_count};
    return codec_frame_get_header(frame, frame_bytes, values_count, &out->segments_left);
}

enum err codec_read_end(const struct codec_reader *reader)
{
    if (reader->values_left != 0)
        return err_set(ERR_PROTO, "codec frame lacks %zu of the values it announces", reader->values_left);
    if (reader->segments_left != 0 || reader->at != reader->frame_bytes)
        return err_set(ERR_PROTO, "codec frame has bytes behind its last segment");
    return ERR_OK;
}

/* The present segment, and where it ends in the frame. */
static enum err present(struct codec *codec, const struct codec_reader *reader, const struct codec_kind **kind,
                        struct segment *segment, size_t *end)
{
    struct bytes_reader payload = bytes_reader_init(reader->frame, reader->frame_bytes);
    (void)bytes_get(&payload, reader->at);
    if (reader->segments_left == 0)
        return err_set(ERR_PROTO, "codec frame lacks %zu of the values it announces", reader->values_left);
    TRY(get_segment(codec, &payload, reader->values_left + reader->inside, kind, segment));
    *end = payload.at;
    return ERR_OK;
}

/* `count` values of the present segment were read. */
static void advance(struct codec_reader *reader, const struct segment *segment, size_t end, size_t count)
{
    reader->inside += count;
    reader->values_left -= count;
    if (reader->inside < segment->count)
        return;
    reader->inside = 0;
    reader->segments_left--;
    reader->at = end;
}

enum err codec_read_segment(struct codec *codec, struct codec_reader *reader, float **values, size_t *count)
{
    const struct codec_kind *kind;
    struct segment segment;
    size_t end;
    *count = 0;
    if (reader->values_left == 0)
        return codec_read_end(reader);
    TRY(present(codec, reader, &kind, &segment, &end));
    TRY(kind->decode(codec, kind, &segment, NULL, codec->segment));
    *values = codec->segment + reader->inside;
    *count = segment.count - reader->inside;
    advance(reader, &segment, end, *count);
    return ERR_OK;
}

enum err codec_read(struct codec *codec, struct codec_reader *reader, size_t count, const float *weight, float *values)
{
    while (count > 0) {
        const struct codec_kind *kind;
        struct segment segment;
        size_t end;
        TRY(present(codec, reader, &kind, &segment, &end));
        size_t take = segment.count - reader->inside < count ? segment.count - reader->inside : count;
        if (take == segment.count) {
            TRY(kind->decode(codec, kind, &segment, weight, values));
        } else {
            TRY(kind->decode(codec, kind, &segment, NULL, codec->segment));
            codec_emit(codec, codec->segment + reader->inside, take, weight, values);
        }
        advance(reader, &segment, end, take);
        values += take;
        count -= take;
    }
    return ERR_OK;
}

/* At most `most` values of the present segment. */
static enum err skip(struct codec_reader *reader, size_t most, size_t *count)
{
    struct bytes_reader payload = bytes_reader_init(reader->frame, reader->frame_bytes);
    struct segment segment;
    unsigned id;
    size_t bytes;
    (void)bytes_get(&payload, reader->at);
    if (reader->segments_left == 0)
        return err_set(ERR_PROTO, "codec frame lacks %zu of the values it announces", reader->values_left);
    TRY(codec_frame_get_segment(&payload, reader->values_left + reader->inside, &segment, &id, &bytes));
    *count = segment.count - reader->inside < most ? segment.count - reader->inside : most;
    advance(reader, &segment, payload.at + bytes, *count);
    return ERR_OK;
}

enum err codec_read_skip(struct codec_reader *reader, size_t count)
{
    for (size_t taken = 0; count > 0; count -= taken)
        TRY(skip(reader, count, &taken));
    return ERR_OK;
}

enum err codec_read_skip_segment(struct codec_reader *reader, size_t *count)
{
    return skip(reader, SIZE_MAX, count);
}

/* ---- reading at once ---- */

static enum err decode(struct codec *codec, const uint8_t *frame, size_t frame_bytes, const float *weight, float *out,
                       size_t values_count)
{
    struct codec_reader reader;
    TRY(codec_read_begin(frame, frame_bytes, values_count, &reader));
    for (size_t begin = 0; reader.values_left > 0;) {
        const struct codec_kind *kind;
        struct segment segment;
        size_t end;
        TRY(present(codec, &reader, &kind, &segment, &end));
        TRY(kind->decode(codec, kind, &segment, weight, out != NULL ? out + begin : NULL));
        begin += segment.count;
        advance(&reader, &segment, end, segment.count);
    }
    return codec_read_end(&reader);
}

enum err codec_decode(struct codec *codec, const uint8_t *frame, size_t frame_bytes, float *values, size_t values_count)
{
    return decode(codec, frame, frame_bytes, NULL, values, values_count);
}

enum err codec_decodable(struct codec *codec, const uint8_t *frame, size_t frame_bytes, size_t values_count)
{
    return decode(codec, frame, frame_bytes, NULL, NULL, values_count);
}

enum err codec_decode_add(struct codec *codec, const uint8_t *frame, size_t frame_bytes, float weight, float *sum,
                          size_t values_count)
{
    return decode(codec, frame, frame_bytes, &weight, sum, values_count);
}
