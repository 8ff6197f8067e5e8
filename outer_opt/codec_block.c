/*
 * The plain block codecs, whose loops vec.h has, and the list of all codecs.
 */
#include <string.h>

#include "outer_opt/codec_parts.h"

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

/* vec.h wants scales and codes one behind the other: both stand in codec->plane[1]. */
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

#define BLOCK_KIND(id, vec, name)                                    \
    {                                                                \
        id, name, false, vec, block_room, block_encode, block_decode \
    }

static const struct codec_kind block_kinds[] = {
    BLOCK_KIND(CODEC_FP32, VEC_FP32, "fp32"),          BLOCK_KIND(CODEC_BF16, VEC_BF16, "bf16"),
    BLOCK_KIND(CODEC_INT8, VEC_INT8, "int8"),          BLOCK_KIND(CODEC_E3M0, VEC_E3M0, "e3m0"),
    BLOCK_KIND(CODEC_INT4, VEC_INT4, "int4"),          BLOCK_KIND(CODEC_INT2, VEC_INT2, "int2"),
    BLOCK_KIND(CODEC_TERNARY, VEC_TERNARY, "ternary"),
};

const struct codec_kind *codec_kind_of(unsigned id)
{
    static const struct codec_kind *const others[] = {&codec_kind_uniform, &codec_kind_topk, &codec_kind_powersgd};
    for (size_t i = 0; i < sizeof block_kinds / sizeof block_kinds[0]; i++)
        if (block_kinds[i].id == (enum codec_id)id)
            return &block_kinds[i];
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (others[i]->id == (enum codec_id)id)
            return others[i];
    return NULL;
}
