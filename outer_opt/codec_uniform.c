/*
 * uniform: multiples of a step, several to a byte, so that zstd's Huffman coder comes near the entropy below 2.5 bits.
 *
 * Planes: steps (bf16 a block), packed levels, and the levels too large for the alphabet, one byte each in order. The
 * alphabet is chosen by the step: a coarse step leaves few levels, and a byte then holds more of them. The last symbol
 * of each alphabet says that the level stands in the third plane.
 */
#include <string.h>

#include "outer_opt/codec_kind.h"

struct alphabet {
    unsigned radix;    /* symbols, the escape included */
    unsigned per_byte; /* radix^per_byte <= 256 */
    unsigned group;    /* bytes of one block */
    int largest;       /* level magnitude that is no escape */
};

/* segment->param is an index into these. */
static const struct alphabet alphabets[] = {
    {4, 4, CODEC_BLOCK / 4, 1},
    {6, 3, (CODEC_BLOCK + 2) / 3, 2},
    {16, 2, CODEC_BLOCK / 2, 7},
    {256, 1, CODEC_BLOCK, 127},
};
enum { ALPHABETS = sizeof alphabets / sizeof alphabets[0], SLOTS_MAX = CODEC_BLOCK + 2, WIDE = 3 };

/* Where the next larger alphabet begins to be shorter, on Gaussian values. */
static unsigned alphabet_for(float ratio)
{
    return ratio >= 1.6f ? 0 : ratio >= 0.9f ? 1 : ratio >= 0.35f ? 2 : WIDE;
}

static void uniform_room(const struct codec_kind *kind, size_t count, size_t room[PLANES_MAX])
{
    (void)kind;
    room[0] = 2 * blocks_of(count);
    room[1] = count; /* the widest alphabet */
    room[2] = count;
}

/* Packs one block; returns how many escapes it wrote. */
static size_t pack_block(const struct alphabet *a, const int8_t *restrict levels, uint8_t *restrict out,
                         uint8_t *escapes)
{
    uint32_t symbols[SLOTS_MAX];
    uint32_t far = 0;
    for (unsigned i = CODEC_BLOCK; i < a->group * a->per_byte; i++)
        symbols[i] = (uint32_t)a->largest;
    for (int i = 0; i < CODEC_BLOCK; i++) {
        int32_t symbol = levels[i] + a->largest;
        uint32_t outside = symbol < 0 || symbol > 2 * a->largest;
        symbols[i] = outside ? a->radix - 1 : (uint32_t)symbol;
        far += outside;
    }
    for (unsigned i = 0; i < a->group; i++)
        out[i] = (uint8_t)symbols[i];
    for (unsigned k = 1, power = a->radix; k < a->per_byte; k++, power *= a->radix)
        for (unsigned i = 0; i < a->group; i++)
            out[i] = (uint8_t)(out[i] + power * symbols[k * a->group + i]);
    size_t written = 0;
    for (int i = 0; far > 0 && i < CODEC_BLOCK; i++)
        if (symbols[i] == a->radix - 1)
            escapes[written++] = (uint8_t)levels[i];
    return written;
}

static size_t uniform_encode(struct codec *codec, const struct codec_kind *kind, const struct codec_part *part,
                             const struct vec_source *source, float *residual, struct segment *segment)
{
    size_t blocks = blocks_of(segment->count);
    const struct alphabet *a = &alphabets[alphabet_for(part->choice.ratio)];
    (void)kind;
    size_t good =
        codec->ops->levels_encode(source, blocks, part->choice.ratio, codec->plane[0], codec->levels, residual);
    size_t escapes = 0;
    segment->param = (uint16_t)(a - alphabets);
    segment->planes_count = 3;
    if (a == &alphabets[WIDE]) {
        memcpy(codec->plane[1], codec->levels, segment->count);
    } else {
        for (size_t block = 0; good == blocks && block < blocks; block++)
            escapes += pack_block(a, codec->levels + block * CODEC_BLOCK, codec->plane[1] + block * a->group,
                                  codec->plane[2] + escapes);
    }
    segment->plane[0] = (struct plane){codec->plane[0], 2 * blocks};
    segment->plane[1] = (struct plane){codec->plane[1], blocks * a->group};
    segment->plane[2] = (struct plane){codec->plane[2], escapes};
    return good;
}

/* How many escapes the block held; `escapes` has `left` bytes. SIZE_MAX if they do not suffice. */
static size_t unpack_block(const struct alphabet *a, const uint8_t *restrict in, int8_t *restrict levels,
                           const uint8_t *escapes, size_t left)
{
    uint32_t symbols[SLOTS_MAX];
    uint32_t rest[CODEC_BLOCK];
    size_t used = 0;
    uint32_t far = 0;
    for (unsigned i = 0; i < a->group; i++)
        rest[i] = in[i];
    /* Division by 4, 6 and 16 as a product, exact below 256. */
    uint32_t inverse = (65536u + a->radix - 1) / a->radix;
    for (unsigned k = 0; k < a->per_byte; k++)
        for (unsigned i = 0; i < a->group; i++) {
            uint32_t above = rest[i] * inverse >> 16;
            symbols[k * a->group + i] = rest[i] - a->radix * above;
            rest[i] = above;
        }
    for (int i = 0; i < CODEC_BLOCK; i++) {
        levels[i] = (int8_t)((int32_t)symbols[i] - a->largest);
        far += symbols[i] == a->radix - 1;
    }
    if (far > left)
        return SIZE_MAX;
    for (int i = 0; used < far; i++)
        if (symbols[i] == a->radix - 1)
            levels[i] = (int8_t)escapes[used++];
    return used;
}

static enum err uniform_decode(struct codec *codec, const struct codec_kind *kind, const struct segment *segment,
                               const float *weight, float *values)
{
    size_t blocks = blocks_of(segment->count);
    if (segment->param >= ALPHABETS)
        return err_set(ERR_PROTO, "codec segment of %s with an unknown alphabet", kind->name);
    const struct alphabet *a = &alphabets[segment->param];
    if (segment->planes_count != 3 || segment->plane[0].bytes != 2 * blocks ||
        segment->plane[1].bytes != blocks * a->group)
        return err_set(ERR_PROTO, "codec segment of another length than %s makes of %u values", kind->name,
                       segment->count);
    size_t at = 0;
    if (a == &alphabets[WIDE]) {
        memcpy(codec->levels, segment->plane[1].data, segment->count);
    } else {
        for (size_t block = 0; block < blocks; block++) {
            size_t used =
                unpack_block(a, segment->plane[1].data + block * a->group, codec->levels + block * CODEC_BLOCK,
                             segment->plane[2].data + at, segment->plane[2].bytes - at);
            if (used == SIZE_MAX)
                return err_set(ERR_PROTO, "codec segment of %s lacks some of its large levels", kind->name);
            at += used;
        }
    }
    if (at != segment->plane[2].bytes)
        return err_set(ERR_PROTO, "codec segment of %s has more large levels than it refers to", kind->name);
    if (weight == NULL) {
        codec->ops->levels_decode(segment->plane[0].data, codec->levels, blocks, values);
        return ERR_OK;
    }
    codec->ops->levels_decode(segment->plane[0].data, codec->levels, blocks, codec->values);
    codec_emit(codec, codec->values, segment->count, weight, values);
    return ERR_OK;
}

const struct codec_kind codec_kind_uniform = {
    CODEC_UNIFORM, "uniform", false, -1, uniform_room, uniform_encode, uniform_decode,
};
