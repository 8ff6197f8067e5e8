/* SPDX-License-Identifier: Apache-2.0 */
/*
 * codec_kind: what one codec is: the table of its functions, and what they are given to work with. Private to codec*.c.
 *
 * codec_block.c, codec_uniform.c, codec_topk.c and codec_lowrank.c define the kinds: each turns one segment of values
 * into planes of bytes and back, and knows nothing of the others, of headers or of zstd. codec.c chooses the kind and
 * walks over parts and segments; codec_frame.c lays planes into the frame.
 */
#ifndef OUTER_OPT_CODEC_KIND_H
#define OUTER_OPT_CODEC_KIND_H

#include <zstd.h>

#include "common/bytes.h"
#include "common/err.h"
#include "outer_opt/codec_types.h"
#include "outer_opt/vec_ops.h"

/* Streams of different statistics are kept apart, so that each is compressed with a table of its own. */
enum { PLANES_MAX = 3 };

struct plane {
    uint8_t *data; /* encoding: codec->plane[]; decoding: there, or inside the frame */
    size_t bytes;
};

/* One segment between its values and its bytes. */
struct segment {
    uint32_t count; /* values */
    uint16_t param; /* the codec's own */
    unsigned planes_count;
    struct plane plane[PLANES_MAX];
};

struct codec {
    int zstd_level;
    bool by_frequency; /* as zstd is set at present: it looks for next to no repetitions */
    const struct vec_ops *ops;
    ZSTD_CCtx *compress;
    ZSTD_DCtx *decompress;
    uint8_t *plane[PLANES_MAX];
    size_t plane_room[PLANES_MAX];
    int8_t *levels; /* CODEC_SEGMENT */
    float *values;  /* CODEC_SEGMENT */
    uint16_t *kept; /* TOPK: places within a chunk */
    uint8_t *trial; /* a segment that is only looked at */
    float *factors; /* POWERSGD: P, Q, and both as halves */
    float *segment; /* a decoded one, for codec_read_*() */
    size_t segment_values;
};

/* What one codec does. */
struct codec_kind {
    enum codec_id id;
    const char *name;
    bool whole; /* a part is one segment, whatever its size */
    /* Most bytes of each plane for `count` values; a decoder unpacks no more. */
    void (*room)(const struct codec_kind *kind, size_t count, size_t room[PLANES_MAX]);
    /* Fills segment->plane[] (data is given) from source; returns the index of the first faulty block, or the number of
     * blocks. */
    size_t (*encode)(struct codec *codec, const struct codec_kind *kind, const struct codec_part *part,
                     const struct vec_source *source, float *residual, struct segment *segment);
    /* values = decoded, or with `weight` values += weight * decoded; `values` NULL: neither. ERR_PROTO if the planes
     * are none it makes: whether they are does not depend on `values`. */
    enum err (*decode)(struct codec *codec, const struct codec_kind *kind, const struct segment *segment,
                       const float *weight, float *values);
    bool noise; /* is its second plane, and left as it is; of the first, how often which byte is there is all that zstd
                 * can make use of */
};

/* One for each codec; codec.c has the list of them. */
extern const struct codec_kind codec_kind_fp32, codec_kind_bf16, codec_kind_int8, codec_kind_e3m0, codec_kind_int4,
    codec_kind_int2, codec_kind_ternary; /* codec_block.c */
extern const struct codec_kind codec_kind_uniform, codec_kind_topk, codec_kind_powersgd;

static inline size_t blocks_of(size_t count)
{
    return count / CODEC_BLOCK;
}

/* Gives decoded values of a segment out: copied, or added with a weight. */
static inline void codec_emit(const struct codec *codec, const float *decoded, size_t count, const float *weight,
                              float *values)
{
    if (weight != NULL)
        codec->ops->add(values, decoded, count, *weight);
    else
        for (size_t i = 0; i < count; i++)
            values[i] = decoded[i];
}

#endif
