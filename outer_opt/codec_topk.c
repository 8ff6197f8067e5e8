/* SPDX-License-Identifier: Apache-2.0 */
/*
 * topk: of every 4096 values the largest, each as sign and one of two magnitudes (the mean of its bin), and where they
 * stand as gaps (SparseLoCo, 2508.15706). What is left out stays in the residual.
 *
 * Planes: per chunk u16 kept, bf16 low, bf16 high; the gaps, one byte each, 255 meaning 255 and the next byte too; two
 * bits per kept value, four to a byte, each chunk from a byte of its own.
 */
#include <string.h>

#include "outer_opt/codec_kind.h"
#include "outer_opt/fbits.h"

enum { CHUNK = 4096, CHUNK_HEADER = 6, GAP_MORE = 255 };

static size_t chunks_of(size_t count)
{
    return (count + CHUNK - 1) / CHUNK;
}

static void topk_room(const struct codec_kind *kind, size_t count, size_t room[PLANES_MAX])
{
    (void)kind;
    room[0] = chunks_of(count) * CHUNK_HEADER;
    room[1] = count;     /* half of the values at most, and gaps above 254 are rare by their sum */
    room[2] = count / 4; /* one in two, two bits each, would need half of it */
}

static float magnitude_of(float value)
{
    return bits_float(float_bits(value) & FBITS_MAGNITUDE);
}

static bool load_chunk(const struct vec_source *source, size_t begin, size_t count, float *restrict x, size_t *bad)
{
    for (size_t i = 0; i < count; i++) {
        float value = source->minuend[begin + i];
        if (source->subtrahend != NULL)
            value = value - source->subtrahend[begin + i];
        if (source->residual != NULL)
            value = value + source->residual[begin + i];
        x[i] = value;
        if ((float_bits(value) & FBITS_MAGNITUDE) >= FBITS_BF16_LIMIT) {
            *bad = begin + i;
            return false;
        }
    }
    return true;
}

/* The `kept`-th largest magnitude, as bits, found digit by digit; `*ties` of the values that have exactly it are to be
 * taken. */
static uint32_t border_of(const float *x, size_t count, size_t kept, size_t *ties)
{
    static const struct {
        unsigned shift, bits;
    } digits[] = {{20, 11}, {10, 10}, {0, 10}};
    uint32_t prefix = 0;
    for (int d = 0; d < 3; d++) {
        uint32_t histogram[1 << 11] = {0};
        uint32_t mask = (1u << digits[d].bits) - 1;
        unsigned above = digits[d].shift + digits[d].bits;
        for (size_t i = 0; i < count; i++) {
            uint32_t magnitude = float_bits(x[i]) & FBITS_MAGNITUDE;
            if (d == 0 || magnitude >> above == prefix)
                histogram[magnitude >> digits[d].shift & mask]++;
        }
        uint32_t digit = mask;
        while (histogram[digit] < kept) {
            kept -= histogram[digit];
            digit--;
        }
        prefix = prefix << digits[d].bits | digit;
    }
    *ties = kept;
    return prefix;
}

static size_t choose(const float *x, size_t count, float fraction, uint16_t *kept)
{
    size_t want = (size_t)((float)count * fraction);
    want += (float)want < (float)count * fraction;
    size_t ties, taken = 0;
    uint32_t border = border_of(x, count, want, &ties);
    if (border == 0) /* no more than `want` values are not zero */
        ties = 0;
    for (size_t i = 0; i < count; i++) {
        uint32_t magnitude = float_bits(x[i]) & FBITS_MAGNITUDE;
        bool take = magnitude > border || (magnitude == border && ties > 0);
        ties -= take && magnitude == border;
        kept[taken] = (uint16_t)i;
        taken += take;
        if (taken == want)
            break;
    }
    return taken;
}

/* The bins' means: the border between them is the mean of all that is kept. */
static float bins_of(const float *x, const uint16_t *kept, size_t kept_count, uint16_t scales[2])
{
    double sum = 0, sums[2] = {0};
    size_t counts[2] = {0};
    for (size_t i = 0; i < kept_count; i++)
        sum = sum + (double)magnitude_of(x[kept[i]]);
    float border = kept_count > 0 ? (float)(sum / (double)kept_count) : 0;
    for (size_t i = 0; i < kept_count; i++) {
        float a = magnitude_of(x[kept[i]]);
        sums[a >= border] = sums[a >= border] + (double)a;
        counts[a >= border]++;
    }
    for (int k = 0; k < 2; k++)
        scales[k] = counts[k] > 0 ? float_bf16((float)(sums[k] / (double)counts[k])) : 0;
    return border;
}

static uint8_t *put_gap(uint8_t *out, size_t gap)
{
    for (; gap >= GAP_MORE; gap -= GAP_MORE)
        *out++ = GAP_MORE;
    *out++ = (uint8_t)gap;
    return out;
}

static size_t topk_encode(struct codec *codec, const struct codec_kind *kind, const struct codec_part *part,
                          const struct vec_source *source, float *residual, struct segment *segment)
{
    float *x = codec->values;
    uint8_t *heads = codec->plane[0], *gaps = codec->plane[1], *marks = codec->plane[2];
    (void)kind;
    for (size_t begin = 0; begin < segment->count; begin += CHUNK) {
        size_t count = segment->count - begin < CHUNK ? segment->count - begin : CHUNK;
        size_t bad;
        uint16_t scales[2];
        if (!load_chunk(source, begin, count, x, &bad))
            return bad / CODEC_BLOCK;
        size_t kept = choose(x, count, part->choice.ratio, codec->kept);
        float border = bins_of(x, codec->kept, kept, scales);
        memcpy(heads, &(uint16_t){(uint16_t)kept}, 2);
        memcpy(heads + 2, scales, sizeof scales);
        heads += CHUNK_HEADER;
        memset(marks, 0, (kept + 3) / 4);
        if (residual != NULL)
            memcpy(residual + begin, x, count * sizeof *x);
        size_t next = 0;
        for (size_t i = 0; i < kept; i++) {
            size_t at = codec->kept[i];
            uint32_t high = magnitude_of(x[at]) >= border;
            uint32_t sign = float_bits(x[at]) >> 31;
            gaps = put_gap(gaps, at - next);
            next = at + 1;
            marks[i / 4] = (uint8_t)(marks[i / 4] | (sign << 1 | high) << 2 * (i % 4));
            if (residual != NULL)
                residual[begin + at] = x[at] - bits_float(float_bits(bf16_float(scales[high])) | sign << 31);
        }
        marks += (kept + 3) / 4;
    }
    segment->planes_count = 3;
    segment->plane[0] = (struct plane){codec->plane[0], (size_t)(heads - codec->plane[0])};
    segment->plane[1] = (struct plane){codec->plane[1], (size_t)(gaps - codec->plane[1])};
    segment->plane[2] = (struct plane){codec->plane[2], (size_t)(marks - codec->plane[2])};
    return blocks_of(segment->count);
}

/* One chunk into x; false if the planes do not hold it. */
static bool read_chunk(struct bytes_reader *heads, struct bytes_reader *gaps, struct bytes_reader *marks, float *x,
                       size_t count)
{
    size_t kept = bytes_get_u16(heads);
    float scale[2];
    scale[0] = bf16_float(bytes_get_u16(heads));
    scale[1] = bf16_float(bytes_get_u16(heads));
    const uint8_t *bits = bytes_get(marks, (kept + 3) / 4);
    if (heads->failed || marks->failed || kept > count)
        return false;
    memset(x, 0, count * sizeof *x);
    size_t at = 0;
    for (size_t i = 0; i < kept; i++, at++) {
        uint8_t byte;
        do {
            byte = bytes_get_u8(gaps);
            at += byte;
        } while (byte == GAP_MORE && !gaps->failed && at < count);
        if (gaps->failed || at >= count)
            return false;
        uint32_t code = (uint32_t)bits[i / 4] >> 2 * (i % 4) & 3u;
        x[at] = bits_float(float_bits(scale[code & 1u]) ^ (code >> 1) << 31);
    }
    return true;
}

static enum err topk_decode(struct codec *codec, const struct codec_kind *kind, const struct segment *segment,
                            const float *weight, float *values)
{
    if (segment->planes_count != 3)
        return err_set(ERR_PROTO, "codec segment of %s with %u planes", kind->name, segment->planes_count);
    struct bytes_reader heads = bytes_reader_init(segment->plane[0].data, segment->plane[0].bytes);
    struct bytes_reader gaps = bytes_reader_init(segment->plane[1].data, segment->plane[1].bytes);
    struct bytes_reader marks = bytes_reader_init(segment->plane[2].data, segment->plane[2].bytes);
    for (size_t begin = 0; begin < segment->count; begin += CHUNK) {
        size_t count = segment->count - begin < CHUNK ? segment->count - begin : CHUNK;
        if (!read_chunk(&heads, &gaps, &marks, codec->values, count))
            return err_set(ERR_PROTO, "codec segment of %s whose planes do not fit together", kind->name);
        if (values != NULL)
            codec_emit(codec, codec->values, count, weight, values + begin);
    }
    if (bytes_left(&heads) + bytes_left(&gaps) + bytes_left(&marks) != 0)
        return err_set(ERR_PROTO, "codec segment of %s has bytes behind its last chunk", kind->name);
    return ERR_OK;
}

const struct codec_kind codec_kind_topk = {CODEC_TOPK, "topk", false, topk_room, topk_encode, topk_decode, false};
