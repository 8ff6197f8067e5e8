/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loops of the codecs below E3M0, compiled once per instruction set like vec_impl.c and under the same rules.
 *
 * Sums over a block run in sixteen lanes of a written order, so that they round alike at every vector width.
 */
#include "outer_opt/vec_parts.h"

enum { LANES = 16 };

/* In halves. */
static inline float lanes_sum(const float *lane)
{
    float eight[LANES / 2], four[LANES / 4];
    for (int k = 0; k < LANES / 2; k++)
        eight[k] = lane[k] + lane[k + LANES / 2];
    for (int k = 0; k < LANES / 4; k++)
        four[k] = eight[k] + eight[k + LANES / 4];
    return (four[0] + four[2]) + (four[1] + four[3]);
}

/* Nearest bf16 of a magnitude; Inf when it is beyond. */
static inline uint16_t bf16_near(float magnitude)
{
    return float_bits(magnitude) >= FBITS_BF16_LIMIT ? BF16_INF : float_bf16(magnitude);
}

/* The power of two that brings a block's largest magnitude to about one: sums of a block never overflow nor vanish. */
static inline float unit_of(uint32_t most_bits)
{
    int exponent = (int)(most_bits >> 23);
    int inverse = 254 - exponent;
    inverse = inverse < 1 ? 1 : inverse > 254 ? 254 : inverse;
    return bits_float((uint32_t)inverse << 23);
}

/* ---- int4: absmax of 64 values, 15 levels ---- */

enum { INT4_PARTS = 4, INT4_PART = B / INT4_PARTS };

size_t TABLE_NAME(vec_int4_encode_, ISA)(const struct vec_source *source, size_t blocks, uint8_t *raw, float *residual)
{
    const float round_magic = 0x1.8p23f;
    for (size_t block = 0; block < blocks; block++) {
        float x[B], y[B];
        uint32_t codes[B];
        uint16_t scales[INT4_PARTS];
        load_block(source, block, x);
        for (int p = 0; p < INT4_PARTS; p++) {
            int32_t most = 0;
            for (int i = p * INT4_PART; i < (p + 1) * INT4_PART; i++) {
                int32_t magnitude = (int32_t)(float_bits(x[i]) & 0x7fffffffu);
                most = magnitude > most ? magnitude : most;
            }
            scales[p] = bf16_up((uint32_t)most);
            if (scales[p] == BF16_INF)
                return block;
            float lift = lift_of(scales[p]);
            float s = bf16_float(scales[p]);
            float inverse = scales[p] != 0 ? 7.0f / (s * lift) : 0;
            float step = s / 7.0f;
            for (int i = p * INT4_PART; i < (p + 1) * INT4_PART; i++) {
                float q = (x[i] * lift * inverse + round_magic) - round_magic;
                codes[i] = (uint32_t)(int32_t)q & 15u;
                y[i] = q * step;
            }
        }
        memcpy(raw + INT4_SCALES * block, scales, sizeof scales);
        uint8_t *restrict out = raw + INT4_SCALES * blocks + block * HALF;
        for (int i = 0; i < HALF; i++)
            out[i] = (uint8_t)(codes[i] | codes[i + HALF] << 4);
        store_residual(residual, block, x, y);
    }
    return blocks;
}

static inline void int4_block(const uint8_t *heads, const uint8_t *bodies, size_t block, float *restrict y)
{
    uint16_t scales[INT4_PARTS];
    memcpy(scales, heads + INT4_SCALES * block, sizeof scales);
    const uint8_t *restrict in = bodies + block * HALF;
    for (int i = 0; i < HALF; i++) {
        y[i] = (float)((int32_t)((uint32_t)in[i] << 28) >> 28);
        y[i + HALF] = (float)((int32_t)((uint32_t)in[i] << 24) >> 28);
    }
    for (int p = 0; p < INT4_PARTS; p++) {
        float step = bf16_float(scales[p]) / 7.0f;
        for (int i = p * INT4_PART; i < (p + 1) * INT4_PART; i++)
            y[i] = y[i] * step;
    }
}

/* ---- bins by magnitude: the mean of each bin stands for its values (MuLoCo's statistical quantisation) ---- */

/* Mean magnitude of x * unit over the block. */
static inline float mean_magnitude(const float *restrict x, float unit)
{
    float lane[LANES] = {0};
    for (int i = 0; i < B; i += LANES)
        for (int k = 0; k < LANES; k++)
            lane[k] = lane[k] + bits_float(float_bits(x[i + k]) & 0x7fffffffu) * unit;
    return lanes_sum(lane) / B;
}

/* Means of the magnitudes below and from `border` on, still times unit; an empty bin has mean 0. */
static inline void bin_means(const float *restrict x, float unit, float border, float *low, float *high)
{
    float low_lane[LANES] = {0}, high_lane[LANES] = {0}, count_lane[LANES] = {0};
    for (int i = 0; i < B; i += LANES)
        for (int k = 0; k < LANES; k++) {
            float a = bits_float(float_bits(x[i + k]) & 0x7fffffffu) * unit;
            float is_high = a >= border ? 1.0f : 0.0f;
            high_lane[k] = high_lane[k] + is_high * a;
            low_lane[k] = low_lane[k] + (1.0f - is_high) * a;
            count_lane[k] = count_lane[k] + is_high;
        }
    float highs = lanes_sum(count_lane);
    *high = highs > 0 ? lanes_sum(high_lane) / highs : 0;
    *low = highs < B ? lanes_sum(low_lane) / (B - highs) : 0;
}

/* A magnitude over `unit` as bf16. unit is a power of two, so dividing rounds only where the result is subnormal. */
static inline uint16_t unscaled(float magnitude, float unit)
{
    return bf16_near(magnitude / unit);
}

/* ---- int2: sign and one of two magnitudes ---- */

/* Border between the magnitudes over the mean magnitude: Lloyd's for four levels of a Gaussian, 0.9816 / 0.7979. */
#define INT2_BORDER 1.2303f

size_t TABLE_NAME(vec_int2_encode_, ISA)(const struct vec_source *source, size_t blocks, uint8_t *raw, float *residual)
{
    for (size_t block = 0; block < blocks; block++) {
        float x[B], y[B], low, high;
        uint32_t codes[B];
        load_block(source, block, x);
        uint32_t most = absmax_bits(x);
        if (most >= 0x7f7f8000u)
            return block;
        float unit = unit_of(most);
        float border = mean_magnitude(x, unit) * INT2_BORDER;
        bin_means(x, unit, border, &low, &high);
        uint16_t scales[2] = {unscaled(low, unit), unscaled(high, unit)};
        float means[2] = {bf16_float(scales[0]), bf16_float(scales[1])};
        memcpy(raw + INT2_SCALES * block, scales, sizeof scales);
        for (int i = 0; i < B; i++) {
            uint32_t sign = float_bits(x[i]) >> 31;
            uint32_t is_high = bits_float(float_bits(x[i]) & 0x7fffffffu) * unit >= border;
            codes[i] = sign << 1 | is_high;
            y[i] = bits_float(float_bits(is_high ? means[1] : means[0]) | sign << 31);
        }
        uint8_t *restrict out = raw + INT2_SCALES * blocks + block * (B / 4);
        for (int i = 0; i < B / 4; i++)
            out[i] = (uint8_t)(codes[i] | codes[i + B / 4] << 2 | codes[i + B / 2] << 4 | codes[i + 3 * B / 4] << 6);
        store_residual(residual, block, x, y);
    }
    return blocks;
}

static inline void int2_block(const uint8_t *heads, const uint8_t *bodies, size_t block, float *restrict y)
{
    uint16_t scales[2];
    memcpy(scales, heads + INT2_SCALES * block, sizeof scales);
    uint32_t low = float_bits(bf16_float(scales[0]));
    uint32_t high = float_bits(bf16_float(scales[1]));
    const uint8_t *restrict in = bodies + block * (B / 4);
    for (int part = 0; part < 4; part++)
        for (int i = 0; i < B / 4; i++) {
            uint32_t code = (uint32_t)in[i] >> (2 * part) & 3u;
            y[part * (B / 4) + i] = bits_float((code & 1u ? high : low) ^ (code >> 1) << 31);
        }
}

/* ---- ternary: -s, 0, s; five values a byte ---- */

/* Border over the mean magnitude: Lloyd's for three levels of a Gaussian, 0.6120 / 0.7979. */
#define TERNARY_BORDER 0.7670f
enum { TERNARY_DIGITS = 5, TERNARY_SLOTS = TERNARY_DIGITS * TERNARY_GROUP, TERNARY_ZERO = 1 };

size_t TABLE_NAME(vec_ternary_encode_, ISA)(const struct vec_source *source, size_t blocks, uint8_t *raw,
                                            float *residual)
{
    for (size_t block = 0; block < blocks; block++) {
        float x[B], y[B], low, high;
        uint32_t digits[TERNARY_SLOTS];
        load_block(source, block, x);
        uint32_t most = absmax_bits(x);
        if (most >= 0x7f7f8000u)
            return block;
        float unit = unit_of(most);
        float border = mean_magnitude(x, unit) * TERNARY_BORDER;
        bin_means(x, unit, border, &low, &high);
        uint16_t scale = unscaled(high, unit);
        float s = bf16_float(scale);
        memcpy(raw + 2 * block, &scale, sizeof scale);
        for (int i = 0; i < B; i++) {
            uint32_t bits = float_bits(x[i]);
            uint32_t magnitude = bits & 0x7fffffffu;
            uint32_t far = magnitude != 0 && bits_float(magnitude) * unit >= border;
            uint32_t sign = bits >> 31;
            digits[i] = far ? 2u - 2u * sign : TERNARY_ZERO;
            y[i] = far ? bits_float(float_bits(s) | sign << 31) : 0.0f;
        }
        for (int i = B; i < TERNARY_SLOTS; i++)
            digits[i] = TERNARY_ZERO;
        uint8_t *restrict out = raw + 2 * blocks + block * TERNARY_GROUP;
        for (int i = 0; i < TERNARY_GROUP; i++)
            out[i] = (uint8_t)(digits[i] + 3 * digits[i + TERNARY_GROUP] + 9 * digits[i + 2 * TERNARY_GROUP] +
                               27 * digits[i + 3 * TERNARY_GROUP] + 81 * digits[i + 4 * TERNARY_GROUP]);
        store_residual(residual, block, x, y);
    }
    return blocks;
}

static inline void ternary_block(const uint8_t *heads, const uint8_t *bodies, size_t block, float *restrict y)
{
    uint16_t scale;
    memcpy(&scale, heads + 2 * block, sizeof scale);
    float s = bf16_float(scale);
    const uint8_t *restrict in = bodies + block * TERNARY_GROUP;
    uint32_t rest[TERNARY_GROUP];
    float slots[TERNARY_SLOTS];
    for (int i = 0; i < TERNARY_GROUP; i++)
        rest[i] = in[i];
    for (int digit = 0; digit < TERNARY_DIGITS; digit++)
        for (int i = 0; i < TERNARY_GROUP; i++) {
            uint32_t above = rest[i] * 171u >> 9; /* a third, exact below 256 */
            slots[digit * TERNARY_GROUP + i] = (float)((int32_t)(rest[i] - 3 * above) - TERNARY_ZERO) * s;
            rest[i] = above;
        }
    memcpy(y, slots, B * sizeof *y);
}

/* ---- levels: multiples of a step ---- */

/* Blocks that are encoded together: what one waits for, a sum or a division, is another's time to compute. */
enum { TOGETHER = 8 };

/* Roots of positive numbers, by Newton's method from above: only additions and divisions, so that every compiler and
 * library rounds alike. */
static inline void roots(float *restrict values)
{
    float guess[TOGETHER];
    for (int k = 0; k < TOGETHER; k++)
        guess[k] = bits_float((float_bits(values[k]) >> 1) + 0x1fc00000u);
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < TOGETHER; k++)
            guess[k] = 0.5f * (guess[k] + values[k] / guess[k]);
    memcpy(values, guess, sizeof guess);
}

static inline float dot(const float *restrict a, const float *restrict b)
{
    float lane[LANES] = {0};
    for (int i = 0; i < B; i += LANES)
        for (int k = 0; k < LANES; k++)
            lane[k] = lane[k] + a[i + k] * b[i + k];
    return lanes_sum(lane);
}

/* A magnitude over `unit`, with six bits of mantissa: what the levels are multiples of has to be right within a
 * hundredth, and fewer different steps compress better. */
static inline uint16_t six_bits(float magnitude, float unit)
{
    uint32_t bits = float_bits(magnitude / unit);
    return bits >= FBITS_BF16_LIMIT ? BF16_INF : (uint16_t)((bits + 0x10000u) >> 17 << 1);
}

/* From this ratio on a block of one magnitude may lie below half a step but for a few values. */
#define WIDE_RATIO 2.0f

/* How far a step may be stretched beyond that of the smallest error. Rounding to levels of a Gaussian block takes as
 * much with a ratio of 1.7; what takes more is a block in which few values have a level at all. */
#define STRETCH_MAX 1.25f

/* The step to send with levels q of a, of which `aq` is sum(a q) and `qq` is sum(q^2), and `aa` sum(a^2); 0 if all
 * levels are 0. Rounding takes values up and down, and in a block of few magnitudes all of them the same way. So the
 * step is stretched until the decoded block is as long along the block itself as that is: sum(a^2) / sum(a q). That
 * makes the values that have a level stand for those that have none. So it is at most STRETCH_MAX times the step of
 * the smallest error, sum(a q) / sum(q^2); then no block becomes longer than sqrt(STRETCH_MAX) times what it was. With
 * a wide ratio most values of a block may have no level; there it is the step of the smallest error itself, which never
 * lengthens. */
static inline float fitting_step(float aa, float aq, float qq, float ratio)
{
    if (!(aq > 0))
        return 0;
    const float nearest = aq / qq, whole = aa / aq, most = STRETCH_MAX * nearest;
    return ratio >= WIDE_RATIO ? nearest : whole < most ? whole : most;
}

/* The nearest multiple of a step whose inverse is given. It is within 8 bits: no value of a block is more than
 * sqrt(VEC_BLOCK) = 16 times its root mean square, and a step is at least VEC_RATIO_MIN of that. */
static inline float level_of(float a, float inverse)
{
    const float round_magic = 0x1.8p23f;
    return (a * inverse + round_magic) - round_magic;
}

/* Some blocks on their way: their values, brought to about one, and the steps of their levels. */
struct leveling {
    float x[TOGETHER][B], a[TOGETHER][B];
    uint32_t most[TOGETHER]; /* bits of the largest magnitude */
    float unit[TOGETHER], aa[TOGETHER], step[TOGETHER], inverse[TOGETHER];
};

/* The next `count` blocks. Returns how many are without fault before the first that is not. */
static inline size_t measure_blocks(const struct vec_source *source, size_t block, size_t count, struct leveling *l)
{
    for (size_t k = 0; k < count; k++) {
        load_block(source, block + k, l->x[k]);
        l->most[k] = absmax_bits(l->x[k]);
        if (l->most[k] >= FBITS_BF16_LIMIT)
            return k;
        l->unit[k] = unit_of(l->most[k]);
        for (int i = 0; i < B; i++)
            l->a[k][i] = l->x[k][i] * l->unit[k];
        l->aa[k] = dot(l->a[k], l->a[k]);
    }
    return count;
}

static inline void choose_steps(size_t count, float ratio, struct leveling *l)
{
    float mean[TOGETHER];
    for (size_t k = 0; k < TOGETHER; k++)
        mean[k] = k < count && l->aa[k] > 0 ? l->aa[k] / B : 1;
    roots(mean);
    for (size_t k = 0; k < count; k++) {
        l->step[k] = l->aa[k] > 0 ? mean[k] * ratio : 0;
        l->inverse[k] = l->step[k] > 0 ? 1.0f / l->step[k] : 0;
    }
}

/* The levels of block `k` of these, and the step to send. */
static inline uint16_t level_block(const struct leveling *l, size_t k, float ratio, float *restrict q,
                                   int8_t *restrict out)
{
    const float *restrict a = l->a[k];
    const float inverse = l->inverse[k];
    for (int i = 0; i < B; i++) {
        q[i] = level_of(a[i], inverse);
        out[i] = (int8_t)(int32_t)q[i];
    }
    return six_bits(fitting_step(l->aa[k], dot(a, q), dot(q, q), ratio), l->unit[k]);
}

size_t TABLE_NAME(vec_levels_encode_, ISA)(const struct vec_source *source, size_t blocks, float ratio, uint8_t *steps,
                                           int8_t *levels, float *residual)
{
    struct leveling l;
    for (size_t first = 0; first < blocks; first += TOGETHER) {
        size_t count = blocks - first < TOGETHER ? blocks - first : TOGETHER;
        size_t good = measure_blocks(source, first, count, &l);
        choose_steps(good, ratio, &l);
        for (size_t k = 0; k < good; k++) {
            float q[B], y[B];
            uint16_t sent = level_block(&l, k, ratio, q, levels + (first + k) * B);
            float s = bf16_float(sent);
            if (float_bits(level_of(bits_float(l.most[k]) * l.unit[k], l.inverse[k]) * s) >= FBITS_INF)
                return first + k;
            memcpy(steps + 2 * (first + k), &sent, sizeof sent);
            if (residual == NULL)
                continue;
            for (int i = 0; i < B; i++)
                y[i] = q[i] * s;
            store_residual(residual, first + k, l.x[k], y);
        }
        if (good < count)
            return first + good;
    }
    return blocks;
}

void TABLE_NAME(vec_levels_decode_, ISA)(const uint8_t *steps, const int8_t *levels, size_t blocks, float *values)
{
    for (size_t block = 0; block < blocks; block++) {
        uint16_t step;
        memcpy(&step, steps + 2 * block, sizeof step);
        float s = bf16_float(step);
        const int8_t *restrict in = levels + block * B;
        float *restrict out = values + block * B;
        for (int i = 0; i < B; i++)
            out[i] = (float)in[i] * s;
    }
}

void TABLE_NAME(vec_levels_decode_add_, ISA)(const uint8_t *steps, const int8_t *levels, size_t blocks, float weight,
                                             float *sum)
{
    for (size_t block = 0; block < blocks; block++) {
        uint16_t step;
        memcpy(&step, steps + 2 * block, sizeof step);
        float s = bf16_float(step);
        const int8_t *restrict in = levels + block * B;
        float *restrict out = sum + block * B;
        for (int i = 0; i < B; i++)
            out[i] = out[i] + weight * ((float)in[i] * s);
    }
}

DEFINE_DECODERS(int4)
DEFINE_DECODERS(int2)
DEFINE_DECODERS(ternary)

#define EXPORT_DECODERS(codec)                                                                                  \
    void TABLE_NAME(vec_##codec##_decode_, ISA)(const uint8_t *heads, const uint8_t *bodies, size_t blocks,     \
                                                float *values)                                                  \
    {                                                                                                           \
        codec##_decode(heads, bodies, blocks, values);                                                          \
    }                                                                                                           \
    void TABLE_NAME(vec_##codec##_decode_add_, ISA)(const uint8_t *heads, const uint8_t *bodies, size_t blocks, \
                                                    float weight, float *sum)                                   \
    {                                                                                                           \
        codec##_decode_add(heads, bodies, blocks, weight, sum);                                                 \
    }

EXPORT_DECODERS(int4)
EXPORT_DECODERS(int2)
EXPORT_DECODERS(ternary)
