/*
 * The loops behind vec.h, compiled once per instruction set with ISA naming the table.
 *
 * Why plain loops: the compiler widens them to whatever the instruction set has, and because every operation is
 * elementwise IEEE single precision in a written order, all widths round alike. The file is compiled with
 * -ffp-contract=off: a fused multiply-add rounds once where the reference rounds twice.
 */
#include <stdbool.h>
#include <string.h>

#include "outer_opt/vec.h"

enum { B = VEC_BLOCK, HALF = VEC_BLOCK / 2 };

static inline uint32_t float_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float bits_float(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline float bf16_float(uint16_t half)
{
    return bits_float((uint32_t)half << 16);
}

/* x = minuend - subtrahend + residual for one block. */
static void load_block(const struct vec_source *source, size_t block, float *restrict x)
{
    const float *a = source->minuend + block * B;
    if (source->subtrahend != NULL) {
        const float *b = source->subtrahend + block * B;
        for (int i = 0; i < B; i++)
            x[i] = a[i] - b[i];
    } else {
        memcpy(x, a, B * sizeof *x);
    }
    if (source->residual != NULL) {
        const float *r = source->residual + block * B;
        for (int i = 0; i < B; i++)
            x[i] = x[i] + r[i];
    }
}

/* Bits of the largest magnitude. NaN and Inf have larger bit patterns than every number, so they win. */
static uint32_t absmax_bits(const float *restrict x)
{
    int32_t most = 0;
    for (int i = 0; i < B; i++) {
        int32_t magnitude = (int32_t)(float_bits(x[i]) & 0x7fffffffu);
        most = magnitude > most ? magnitude : most;
    }
    return (uint32_t)most;
}

/* The bf16 at or above a magnitude; 0x7f80 (Inf) when there is none. */
static uint16_t bf16_up(uint32_t magnitude_bits)
{
    return magnitude_bits >= 0x7f800000u ? 0x7f80u : (uint16_t)((magnitude_bits + 0xffffu) >> 16);
}

enum { BF16_INF = 0x7f80 };

/* Blocks this small would meet subnormal thresholds; both sides of a comparison are lifted by a power of two. */
static float lift_of(uint16_t scale)
{
    return scale < 0x2000u ? 0x1p64f : 1.0f;
}

static void store_residual(float *residual, size_t block, const float *restrict x, const float *restrict y)
{
    if (residual == NULL)
        return;
    float *restrict out = residual + block * B;
    for (int i = 0; i < B; i++)
        out[i] = x[i] - y[i];
}

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

static inline void e3m0_block(const uint8_t *raw, size_t blocks, size_t block, float *restrict y)
{
    uint16_t scale;
    memcpy(&scale, raw + 2 * block, sizeof scale);
    float s = bf16_float(scale);
    const uint8_t *restrict in = raw + 2 * blocks + block * HALF;
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

static inline void int8_block(const uint8_t *raw, size_t blocks, size_t block, float *restrict y)
{
    uint16_t scale;
    memcpy(&scale, raw + 2 * block, sizeof scale);
    float step = bf16_float(scale) / 127.0f;
    const uint8_t *restrict in = raw + 2 * blocks + block * B;
    for (int i = 0; i < B; i++)
        y[i] = (float)(int8_t)in[i] * step;
}

/* ---- bf16: nearest, ties to even ---- */

enum { BF16_RAW = 2 * B };

static size_t bf16_encode(const struct vec_source *source, size_t blocks, uint8_t *raw, float *residual)
{
    for (size_t block = 0; block < blocks; block++) {
        float x[B];
        float y[B];
        uint16_t half[B];
        load_block(source, block, x);
        /* Above the largest bf16 plus half a step a number would round to Inf. */
        if (absmax_bits(x) >= 0x7f7f8000u)
            return block;
        for (int i = 0; i < B; i++) {
            uint32_t bits = float_bits(x[i]);
            bits = bits + 0x7fffu + (bits >> 16 & 1u);
            half[i] = (uint16_t)(bits >> 16);
            y[i] = bits_float(bits & 0xffff0000u);
        }
        memcpy(raw + block * BF16_RAW, half, sizeof half);
        store_residual(residual, block, x, y);
    }
    return blocks;
}

static inline void bf16_block(const uint8_t *raw, size_t blocks, size_t block, float *restrict y)
{
    (void)blocks;
    uint16_t half[B];
    memcpy(half, raw + block * BF16_RAW, sizeof half);
    for (int i = 0; i < B; i++)
        y[i] = bf16_float(half[i]);
}

/* ---- fp32 ---- */

enum { FP32_RAW = 4 * B };

static size_t fp32_encode(const struct vec_source *source, size_t blocks, uint8_t *raw, float *residual)
{
    for (size_t block = 0; block < blocks; block++) {
        float x[B];
        load_block(source, block, x);
        if (absmax_bits(x) >= 0x7f800000u)
            return block;
        memcpy(raw + block * FP32_RAW, x, sizeof x);
        store_residual(residual, block, x, x);
    }
    return blocks;
}

static inline void fp32_block(const uint8_t *raw, size_t blocks, size_t block, float *restrict y)
{
    (void)blocks;
    memcpy(y, raw + block * FP32_RAW, B * sizeof *y);
}

/* ---- decoders: the same two loops around each block decoder ---- */

#define DEFINE_DECODERS(codec)                                                                  \
    static void codec##_decode(const uint8_t *raw, size_t blocks, float *values)                \
    {                                                                                           \
        for (size_t block = 0; block < blocks; block++)                                         \
            codec##_block(raw, blocks, block, values + block * B);                              \
    }                                                                                           \
    static void codec##_decode_add(const uint8_t *raw, size_t blocks, float weight, float *sum) \
    {                                                                                           \
        for (size_t block = 0; block < blocks; block++) {                                       \
            float y[B];                                                                         \
            float *restrict out = sum + block * B;                                              \
            codec##_block(raw, blocks, block, y);                                               \
            for (int i = 0; i < B; i++)                                                         \
                out[i] = out[i] + weight * y[i];                                                \
        }                                                                                       \
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

static void average(float *restrict theta, const float *restrict delta, size_t count)
{
    for (size_t i = 0; i < count; i++)
        theta[i] = theta[i] - delta[i];
}

#define TEXT_OF(name) #name
#define TABLE_TEXT(name) TEXT_OF(name)
#define TABLE_JOIN(a, b) a##b
#define TABLE_NAME(name) TABLE_JOIN(vec_ops_, name)

extern const struct vec_ops TABLE_NAME(ISA);
const struct vec_ops TABLE_NAME(ISA) = {
    .name = TABLE_TEXT(ISA),
    .codec =
        {
            [VEC_FP32] = {FP32_RAW, fp32_encode, fp32_decode, fp32_decode_add},
            [VEC_BF16] = {BF16_RAW, bf16_encode, bf16_decode, bf16_decode_add},
            [VEC_INT8] = {INT8_RAW, int8_encode, int8_decode, int8_decode_add},
            [VEC_E3M0] = {E3M0_RAW, e3m0_encode, e3m0_decode, e3m0_decode_add},
        },
    .divide = divide,
    .nesterov = nesterov,
    .heavy_ball = heavy_ball,
    .average = average,
};
