/*
 * The plain block codecs: of a fixed number of bytes a block, whose loops are in vec_ops.h.
 */
#include <string.h>

#include "outer_opt/codec_kind.h"
#include "outer_opt/vec.h"

/* Scales in one plane, codes in the other. */
static void block_room(const struct codec_kind *kind, size_t count, size_t room[PLANES_MAX])
{
    const struct vec_codec *vec = &vec_best()->codec[kind->vec];
    memset(room, 0, PLANES_MAX * sizeof *room);
    if (vec->scale_bytes == 0) {
        room[0] = blocks_of(count) * vec->raw_bytes;
    } else {
        room[0] = blocks_of(count) * vec->scale_bytes;
        room[1] = blocks_of(count) * (vec->raw_bytes - vec->scale_bytes);
    }
}

/* vec_ops.h wants scales and codes one behind the other: both stand in codec->plane[1]. */
static size_t block_encode(struct codec *codec, const struct codec_kind *kind, const struct codec_part *part,
                           const struct vec_source *source, float *residual, struct segment *segment)
{
    const struct vec_codec *vec = &codec->ops->codec[kind->vec];
    size_t blocks = blocks_of(segment->count);
    size_t room[PLANES_MAX];
    (void)part;
    kind->room(kind, segment->count, room);
    uint8_t *raw = codec->plane[1];
    segment->planes_count = vec->scale_bytes == 0 ? 1 : 2;
    segment->plane[0] = (struct plane){raw, room[0]};
    segment->plane[1] = (struct plane){raw + room[0], room[1]};
    return vec->encode(source, blocks, raw, residual);
}

static enum err block_decode(struct codec *codec, const struct codec_kind *kind, const struct segment *segment,
                             const float *weight, float *values)
{
    const struct vec_codec *vec = &codec->ops->codec[kind->vec];
    size_t blocks = blocks_of(segment->count);
    size_t room[PLANES_MAX];
    kind->room(kind, segment->count, room);
    unsigned planes = vec->scale_bytes == 0 ? 1 : 2;
    if (segment->planes_count != planes || segment->plane[0].bytes != room[0] ||
        (planes == 2 && segment->plane[1].bytes != room[1]))
        return err_set(ERR_PROTO, "codec segment of another length than %s makes of %u values", kind->name,
                       segment->count);
    const uint8_t *raw = segment->plane[0].data;
    if (values == NULL)
        return ERR_OK;
    if (planes == 2) {
        /* plane[1] was made with room for both: codes are moved behind their place, then the scales go before them. */
        memmove(codec->plane[1] + room[0], segment->plane[1].data, room[1]);
        memcpy(codec->plane[1], raw, room[0]);
        raw = codec->plane[1];
    }
    if (weight != NULL)
        vec->decode_add(raw, blocks, *weight, values);
    else
        vec->decode(raw, blocks, values);
    return ERR_OK;
}

#define BLOCK_KIND(name, NAME)                                                          \
    const struct codec_kind codec_kind_##name = {                                       \
        CODEC_##NAME, #name, false, VEC_##NAME, block_room, block_encode, block_decode, \
    }

BLOCK_KIND(fp32, FP32);
BLOCK_KIND(bf16, BF16);
BLOCK_KIND(int8, INT8);
BLOCK_KIND(e3m0, E3M0);
BLOCK_KIND(int4, INT4);
BLOCK_KIND(int2, INT2);
BLOCK_KIND(ternary, TERNARY);
