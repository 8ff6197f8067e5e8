/* SPDX-License-Identifier: Apache-2.0 */
/*
 * uniform: multiples of a step, several to a byte, so that zstd's Huffman coder comes near the entropy below 2.5 bits.
 *
 * Planes: steps (bf16 a block), packed levels, and the levels too large for the alphabet, one byte each in order. The
 * alphabet is chosen by the step: a coarse step leaves few levels, and a byte then holds more of them. The last symbol
 * of each alphabet says that the level stands in the third plane.
 */
#include "outer_opt/codec_kind.h"

/* segment->param is an index into these, or VEC_ALPHABETS: a byte a level. */
static const struct vec_alphabet alphabets[VEC_ALPHABETS] = VEC_ALPHABET_TABLE;
enum { WIDE = VEC_ALPHABETS };

/* Where the next larger alphabet begins to be shorter, on Gaussian values. */
static unsigned alphabet_for(float ratio)
{
    return ratio >= 1.6f ? VEC_RADIX_4 : ratio >= 0.9f ? VEC_RADIX_6 : ratio >= 0.35f ? VEC_RADIX_16 : WIDE;
}

static void uniform_room(const struct codec_kind *kind, size_t count, size_t room[PLANES_MAX])
{
    (void)kind;
    room[0] = 2 * blocks_of(count);
    room[1] = count; /* the widest alphabet */
    room[2] = count;
}

static size_t packed_bytes(unsigned alphabet, size_t blocks)
{
    return blocks * (alphabet == WIDE ? CODEC_BLOCK : alphabets[alphabet].group);
}

static size_t uniform_encode(struct codec *codec, const struct codec_kind *kind, const struct codec_part *part,
                             const struct vec_source *source, float *residual, struct segment *segment)
{
    size_t blocks = blocks_of(segment->count), escapes = 0;
    unsigned alphabet = alphabet_for(part->choice.ratio);
    (void)kind;
    int8_t *levels = alphabet == WIDE ? (int8_t *)codec->plane[1] : codec->levels;
    size_t good = codec->ops->levels_encode(source, blocks, part->choice.ratio, codec->plane[0], levels, residual);
    if (alphabet != WIDE && good == blocks)
        escapes = codec->ops->levels_pack[alphabet](levels, blocks, codec->plane[1], codec->plane[2]);
    segment->param = (uint16_t)alphabet;
    segment->planes_count = 3;
    segment->plane[0] = (struct plane){codec->plane[0], 2 * blocks};
    segment->plane[1] = (struct plane){codec->plane[1], packed_bytes(alphabet, blocks)};
    segment->plane[2] = (struct plane){codec->plane[2], escapes};
    return good;
}

static enum err uniform_decode(struct codec *codec, const struct codec_kind *kind, const struct segment *segment,
                               const float *weight, float *values)
{
    size_t blocks = blocks_of(segment->count), used = 0;
    unsigned alphabet = segment->param;
    const uint8_t *steps = segment->plane[0].data, *packed = segment->plane[1].data;
    const int8_t *levels = codec->levels;
    if (alphabet > WIDE)
        return err_set(ERR_PROTO, "codec segment of %s with an unknown alphabet", kind->name);
    if (segment->planes_count != 3 || segment->plane[0].bytes != 2 * blocks ||
        segment->plane[1].bytes != packed_bytes(alphabet, blocks))
        return err_set(ERR_PROTO, "codec segment of another length than %s makes of %u values", kind->name,
                       segment->count);
    if (alphabet == WIDE)
        levels = (const int8_t *)packed;
    else
        used = codec->ops->levels_unpack[alphabet](packed, blocks, segment->plane[2].data, segment->plane[2].bytes,
                                                   codec->levels);
    if (used == SIZE_MAX)
        return err_set(ERR_PROTO, "codec segment of %s lacks some of its large levels", kind->name);
    if (used != segment->plane[2].bytes)
        return err_set(ERR_PROTO, "codec segment of %s has more large levels than it refers to", kind->name);
    if (values == NULL)
        return ERR_OK;
    if (weight != NULL)
        codec->ops->levels_decode_add(steps, levels, blocks, *weight, values);
    else
        codec->ops->levels_decode(steps, levels, blocks, values);
    return ERR_OK;
}

const struct codec_kind codec_kind_uniform = {CODEC_UNIFORM,  "uniform",      false, uniform_room,
                                              uniform_encode, uniform_decode, false};
