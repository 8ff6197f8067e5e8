/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loops behind vec_ops.h, and the table, compiled once per instruction set with ISA naming the table.
 *
 * Why plain loops: the compiler widens them to whatever the instruction set has, and because every operation is
 * elementwise IEEE single precision in a written order, all widths round alike. The file is compiled with
 * -ffp-contract=off: a fused multiply-add rounds once where the reference rounds twice.
 */
#include "outer_opt/vec_parts.h"

/* ---- E3M0: sign, three exponent bits, no mantissa; docs/FORMATS.md ---- */

enum { E3M0_RAW = 2 + HALF };

/* Magnitude code = how many of the seven borders are reached: 2^-7, then 1.5 * 2^-6 ... 1.5 * 2^-1. A border times
 * the bf16 scale is exact in fp32, and x / s >= border holds in fp32 exactly when x >= border * s does. */
static void e3m0_codes(const float *restrict x, uint16_t scale, uint32_t *restrict codes)
{
    float lift = lift_of(scale);
    float s = bf16_float(scale) * lift;
    float b1 = s * 0x1p-7f, b2 = s * 0x1.8p-6f, b3 = s * 0x1.8p-5f, b4 = s * 0x1.8p-4f;
    float b5 = s * 0x1.8p-3f, b6 = s * 0x1.8p-2f, b7 = s * 0x1.8p-1f;
    for (int i = 0; i < B; i++) {
        uint32_t bits = float_bits(x[i]);
        float a = bits_float(bits & 0x7fffffffu) * lift;
        uint32_t code = (uint32_t)(a >= b1) + (a >= b2) + (a >= b3) + (a >= b4) + (a >= b5) + (a >= b6) + (a >= b7);
        uint32_t sign = code != 0 ? bits >> 31 << 3 : 0; /* minus zero is never emitted */
        codes[i] = code | sign;
    }
}

/* code -> sign * s * 2^(code - 7), 0 -> 0 */
static inline float e3m0_value(uint32_t code, float s)
{
    uint32_t magnitude = code & 7;
    uint32_t power = magnitude != 0 ? (magnitude + 120u) << 23 : 0;
    return bits_float(float_bits(bits_float(power) * s) | (code & 8u) << 28);
}

static size_t e3m0_encode(const struct vec_source *source, size_t blocks, uint8_t *raw, float *residual)
{
    uint8_t *scales = raw;
    uint8_t *packed = raw + 2 * blocks;
    for (size_t block = 0; block < blocks; block++) {
        float x[B];
        uint32_t codes[B];
        load_block(source, block, x);
        uint16_t scale = bf16_up(absmax_bits(x));
        if (scale == BF16_INF)
            return block;
        memcpy(scales + 2 * block, &scale, sizeof scale);
        uint8_t *restrict out = packed + block * HALF;
        if (scale == 0) {
            memset(out, 0, HALF);
            memset(codes, 0, sizeof codes);
        } else {
            e3m0_codes(x, scale, codes);
            for (int i = 0; i < HALF; i++)
                out[i] = (uint8_t)(codes[i] | codes[i + HALF] << 4);
        }
        if (residual != NULL) {
            float y[B];
            float s = bf16_float(scale);
            for (int i = 0; i < B; i++)
                y[i] = e3m0_value(codes[i], s);
            store_residual(residual, block, x, y);
        }
    }
    return blocks;
}

static inline void e3m0_block(const uint8_t *heads, const uint8_t *bodies, size_t block, float *restrict y)
{
    uint16_t scale;
    memcpy(&scale, heads + 2 * block, sizeof scale);
    float s = bf16_float(scale);
    const uint8_t *restrict in = bodies + block * HALF;
    for (int i = 0; i < HALF; i++) {
        y[i] = e3m0_value(in[i] & 15u, s);
        y[i + HALF] = e3m0_value((uint32_t)in[i] >> 4, s);
    }
}

/* ---- int8: absmax, 255 levels ---- */

enum { INT8_RAW = 2 + B };

static size_t int8_encode(const struct vec_source *source, size_t blocks, uint8_t *raw, float *residual)
{
    const float round_magic =
        0x1.8p23f; /* adding and subtracting it rounds to the nearest whole number, ties to even */
    for (size_t block = 0; block < blocks; block++) {
        float x[B];
        float y[B];
        load_block(source, block, x);
        uint16_t scale = bf16_up(absmax_bits(x));
        if (scale == BF16_INF)
            return block;
        memcpy(raw + 2 * block, &scale, sizeof scale);
        float lift = lift_of(scale);
        float s = bf16_float(scale);
        float inverse = scale != 0 ? 127.0f / (s * lift) : 0;
        float step = s / 127.0f;
        uint8_t *restrict out = raw + 2 * blocks + block * B;
        for (int i = 0; i < B; i++) {
            float q = (x[i] * lift * inverse + round_magic) - round_magic;
            out[i] = (uint8_t)(int8_t)(int32_t)q;
            y[i] = q * step;
        }
        store_residual(residual, block, x, y);
    }
    return blocks;
}

static inline void int8_block(const uint8_t *heads, const uint8_t *bodies, size_t block, float *restrict y)
{
    uint16_t scale;
    memcpy(&scale, heads + 2 * block, sizeof scale);
    float step = bf16_float(scale) / 127.0f;
    const uint8_t *restrict in = bodies + block * B;
    for (int i = 0; i < B; i++)
        y[i] = (float)(int8_t)in[i] * step;
}

/* ---- bf16 and fp32: exponents apart from the rest. Of outer gradients they are much alike, and what is beside them is
 * not; so the sign is moved to the lowest place, and the highest byte is the exponent. ---- */

static inline uint32_t sign_last(uint32_t bits)
{
    return bits << 1 | bits >> 31;
}

static inline float sign_first(uint32_t turned)
{
    return bits_float(turned >> 1 | turned << 31);
}

/* ---- bf16: nearest, ties to even ---- */

enum { BF16_RAW = 2 * B };

static size_t bf16_encode(const struct vec_source *source, size_t blocks, uint8_t *raw, float *residual)
{
    for (size_t block = 0; block < blocks; block++) {
        float x[B];
        float y[B];
        uint8_t *restrict exponents = raw + block * B, *restrict rest = raw + (blocks + block) * B;
        load_block(source, block, x);
        /* Above the largest bf16 plus half a step a number would round to Inf. */
        if (absmax_bits(x) >= 0x7f7f8000u)
            return block;
        for (int i = 0; i < B; i++) {
            uint32_t bits = float_bits(x[i]);
            bits = (bits + 0x7fffu + (bits >> 16 & 1u)) & 0xffff0000u;
            exponents[i] = (uint8_t)(bits >> 23);
            rest[i] = (uint8_t)(bits >> 15 | bits >> 31); /* seven bits, and the sign */
            y[i] = bits_float(bits);
        }
        store_residual(residual, block, x, y);
    }
    return blocks;
}

static inline void bf16_block(const uint8_t *heads, const uint8_t *bodies, size_t block, float *restrict y)
{
    const uint8_t *restrict exponents = heads + block * B, *restrict rest = bodies + block * B;
    for (int i = 0; i < B; i++)
        y[i] = bits_float((uint32_t)exponents[i] << 23 | (uint32_t)(rest[i] >> 1) << 16 | (uint32_t)rest[i] << 31);
}

/* ---- fp32 ---- */

enum { FP32_RAW = 4 * B, FP32_REST = 3 * B };

/* Of what is beside the exponents the upper halves of all values, then the lowest bytes. */
static size_t fp32_encode(const struct vec_source *source, size_t blocks, uint8_t *raw, float *residual)
{
    for (size_t block = 0; block < blocks; block++) {
        float x[B];
        uint16_t upper[B];
        uint8_t *restrict exponents = raw + block * B, *restrict rest = raw + blocks * B + block * FP32_REST;
        load_block(source, block, x);
        if (absmax_bits(x) >= 0x7f800000u)
            return block;
        for (int i = 0; i < B; i++) {
            uint32_t turned = sign_last(float_bits(x[i]));
            exponents[i] = (uint8_t)(turned >> 24);
            upper[i] = (uint16_t)(turned >> 8);
            rest[2 * B + i] = (uint8_t)turned;
        }
        memcpy(rest, upper, sizeof upper);
        store_residual(residual, block, x, x);
    }
    return blocks;
}

static inline void fp32_block(const uint8_t *heads, const uint8_t *bodies, size_t block, float *restrict y)
{
    const uint8_t *restrict exponents = heads + block * B, *restrict rest = bodies + block * FP32_REST;
    uint16_t upper[B];
    memcpy(upper, rest, sizeof upper);
    for (int i = 0; i < B; i++)
        y[i] = sign_first((uint32_t)exponents[i] << 24 | (uint32_t)upper[i] << 8 | rest[2 * B + i]);
}

DEFINE_DECODERS(e3m0)
DEFINE_DECODERS(int8)
DEFINE_DECODERS(bf16)
DEFINE_DECODERS(fp32)

/* ---- outer optimizers ---- */

static void divide(float *restrict sum, size_t count, float divisor)
{
    for (size_t i = 0; i < count; i++)
        sum[i] = sum[i] / divisor;
}

static void add(float *restrict sum, const float *restrict values, size_t count, float weight)
{
    for (size_t i = 0; i < count; i++)
        sum[i] = sum[i] + weight * values[i];
}

static void scale(float *restrict values, size_t count, float factor)
{
    for (size_t i = 0; i < count; i++)
        values[i] = values[i] * factor;
}

/* Per block eight running sums, joined in pairs: an order that every vector width can keep. */
static double block_square_sum(const float *restrict x)
{
    double lane[8] = {0};
    for (int i = 0; i < B; i += 8)
        for (int k = 0; k < 8; k++)
            lane[k] = lane[k] + (double)x[i + k] * (double)x[i + k];
    return ((lane[0] + lane[1]) + (lane[2] + lane[3])) + ((lane[4] + lane[5]) + (lane[6] + lane[7]));
}

static double block_distance(const float *restrict a, const float *restrict b)
{
    double lane[8] = {0};
    for (int i = 0; i < B; i += 8)
        for (int k = 0; k < 8; k++) {
            double x = (double)a[i + k] - (double)b[i + k];
            lane[k] = lane[k] + x * x;
        }
    return ((lane[0] + lane[1]) + (lane[2] + lane[3])) + ((lane[4] + lane[5]) + (lane[6] + lane[7]));
}

static double block_product(const float *restrict a, const float *restrict b)
{
    double lane[8] = {0};
    for (int i = 0; i < B; i += 8)
        for (int k = 0; k < 8; k++)
            lane[k] = lane[k] + (double)a[i + k] * (double)b[i + k];
    return ((lane[0] + lane[1]) + (lane[2] + lane[3])) + ((lane[4] + lane[5]) + (lane[6] + lane[7]));
}

/* The blocks' sums are joined as a binary counter carries: neighbours of equal weight first. */
struct joined {
    double level[64];
    uint64_t held;
};

static void join(struct joined *joined, double sum)
{
    int k = 0;
    for (; (joined->held >> k & 1) != 0; k++) {
        sum = joined->level[k] + sum;
        joined->held &= ~((uint64_t)1 << k);
    }
    joined->level[k] = sum;
    joined->held |= (uint64_t)1 << k;
}

static double joined_total(const struct joined *joined)
{
    double total = 0;
    for (int k = 0; k < 64; k++)
        if ((joined->held >> k & 1) != 0)
            total = joined->level[k] + total;
    return total;
}

static double square_sum(const float *a, const float *b, size_t blocks)
{
    struct joined joined = {.held = 0};
    for (size_t block = 0; block < blocks; block++)
        join(&joined, b != NULL ? block_distance(a + block * B, b + block * B) : block_square_sum(a + block * B));
    return joined_total(&joined);
}

static double dot(const float *a, const float *b, size_t blocks)
{
    struct joined joined = {.held = 0};
    for (size_t block = 0; block < blocks; block++)
        join(&joined, block_product(a + block * B, b + block * B));
    return joined_total(&joined);
}

static void nesterov(float *restrict theta, float *restrict buffer, const float *restrict delta, size_t count, float lr,
                     float momentum)
{
    for (size_t i = 0; i < count; i++) {
        float next = momentum * buffer[i] + delta[i];
        buffer[i] = next;
        theta[i] = theta[i] - lr * (delta[i] + momentum * next);
    }
}

static void heavy_ball(float *restrict theta, float *restrict buffer, const float *restrict delta, size_t count,
                       float lr, float momentum)
{
    for (size_t i = 0; i < count; i++) {
        float next = momentum * buffer[i] + delta[i];
        buffer[i] = next;
        theta[i] = theta[i] - lr * next;
    }
}

static void clipped(float *restrict theta, float *restrict buffer, const float *restrict delta, size_t count, float lr,
                    float momentum, float limit)
{
    for (size_t i = 0; i < count; i++) {
        float next = momentum * buffer[i] + delta[i];
        next = next > limit ? limit : next;
        next = next < -limit ? -limit : next;
        buffer[i] = next;
        theta[i] = theta[i] - lr * next;
    }
}

static void average(float *restrict theta, const float *restrict delta, size_t count)
{
    for (size_t i = 0; i < count; i++)
        theta[i] = theta[i] - delta[i];
}

#define COARSE_FUNCTIONS(codec)                                                     \
    TABLE_NAME(vec_##codec##_encode_, ISA), TABLE_NAME(vec_##codec##_decode_, ISA), \
        TABLE_NAME(vec_##codec##_decode_add_, ISA)

const struct vec_ops
    TABLE_NAME(vec_ops_, ISA) =
        {
            .name = TABLE_TEXT(ISA),
            .codec =
                {
                    [CODEC_FP32] = {FP32_RAW, B, fp32_encode, fp32_decode, fp32_decode_add},
                    [CODEC_BF16] = {BF16_RAW, B, bf16_encode, bf16_decode, bf16_decode_add},
                    [CODEC_INT8] = {INT8_RAW, 2, int8_encode, int8_decode, int8_decode_add},
                    [CODEC_E3M0] = {E3M0_RAW, 2, e3m0_encode, e3m0_decode, e3m0_decode_add},
                    [CODEC_INT4] = {INT4_RAW, INT4_SCALES, COARSE_FUNCTIONS(int4)},
                    [CODEC_INT2] = {INT2_RAW, INT2_SCALES, COARSE_FUNCTIONS(int2)},
                    [CODEC_TERNARY] = {TERNARY_RAW, 2, COARSE_FUNCTIONS(ternary)},
                },
            .levels_encode = TABLE_NAME(vec_levels_encode_, ISA),
            .levels_decode = TABLE_NAME(vec_levels_decode_, ISA),
            .levels_decode_add = TABLE_NAME(vec_levels_decode_add_, ISA),
            .levels_pack = {TABLE_NAME(vec_pack_4_, ISA), TABLE_NAME(vec_pack_6_, ISA), TABLE_NAME(vec_pack_16_, ISA)},
            .levels_unpack = {TABLE_NAME(vec_unpack_4_, ISA), TABLE_NAME(vec_unpack_6_, ISA),
                              TABLE_NAME(vec_unpack_16_, ISA)},
            .add = add,
            .scale = scale,
            .square_sum = square_sum,
            .dot = dot,
            .divide = divide,
            .nesterov = nesterov,
            .heavy_ball = heavy_ball,
            .clipped = clipped,
            .average = average,
};
