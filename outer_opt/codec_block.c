/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The plain block codecs: of a fixed number of bytes a block, whose loops are in vec_ops.h.
 */
#include <string.h>

#include "outer_opt/codec_kind.h"
#include "outer_opt/vec.h"

/* Heads in one plane, bodies in the other. */
static void block_room(const struct codec_kind *kind, size_t count, size_t room[PLANES_MAX])
{
    const struct vec_codec *vec = &vec_best()->codec[kind->id];
    memset(room, 0, PLANES_MAX * sizeof *room);
    room[0] = blocks_of(count) * vec->head_bytes;
    room[1] = blocks_of(count) * (vec->raw_bytes - vec->head_bytes);
}

/* vec_ops.h writes bodies behind heads: both stand in codec->plane[1]. */
static size_t block_encode(struct codec *codec, const struct codec_kind *kind, const struct codec_part *part,
                           const struct vec_source *source, float *residual, struct segment *segment)
{
    size_t room[PLANES_MAX];
    (void)part;
    kind->room(kind, segment->count, room);
    uint8_t *raw = codec->plane[1];
    segment->planes_count = 2;
    segment->plane[0] = (struct plane){raw, room[0]};
    segment->plane[1] = (struct plane){raw + room[0], room[1]};
    return codec->ops->codec[kind->id].encode(source, blocks_of(segment->count), raw, residual);
}

static enum err block_decode(struct codec *codec, const struct codec_kind *kind, const struct segment *segment,
                             const float *weight, float *values)
{
    const struct vec_codec *vec = &codec->ops->codec[kind->id];
    const struct plane *heads = &segment->plane[0], *bodies = &segment->plane[1];
    size_t blocks = blocks_of(segment->count), room[PLANES_MAX];
    kind->room(kind, segment->count, room);
    if (segment->planes_count != 2 || heads->bytes != room[0] || bodies->bytes != room[1])
        return err_set(ERR_PROTO, "codec segment of another length than %s makes of %u values", kind->name,
                       segment->count);
    if (values == NULL)
        return ERR_OK;
    if (weight != NULL)
        vec->decode_add(heads->data, bodies->data, blocks, *weight, values);
    else
        vec->decode(heads->data, bodies->data, blocks, values);
    return ERR_OK;
}

#define BLOCK_KIND(name, NAME, noise)                                              \
    const struct codec_kind codec_kind_##name = {                                  \
        CODEC_##NAME, #name, false, block_room, block_encode, block_decode, noise, \
    }

BLOCK_KIND(fp32, FP32, true);
BLOCK_KIND(bf16, BF16, true);
BLOCK_KIND(int8, INT8, false);
BLOCK_KIND(e3m0, E3M0, false);
BLOCK_KIND(int4, INT4, false);
BLOCK_KIND(int2, INT2, false);
BLOCK_KIND(ternary, TERNARY, false);
