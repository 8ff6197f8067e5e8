/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/libdiloco/attach_types.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

static inline uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* ---- bf16: the upper half of an fp32 ---- */

static inline float from_bf16(uint16_t half)
{
    return float_of((uint32_t)half << 16);
}

/* Without a branch, and in signed numbers: so compilers do several at a time. */
static inline uint32_t round_bf16(uint32_t bits)
{
    uint32_t nearest = bits + 0x7fff + (bits >> 16 & 1);
    bool nan = (int32_t)(bits & 0x7fffffff) > 0x7f800000; /* rounding could make Inf of it */
    return (nan ? bits | 0x400000 : nearest) & 0xffff0000;
}

static inline uint16_t to_bf16(float value)
{
    return (uint16_t)(round_bf16(bits_of(value)) >> 16);
}

/* ---- binary16: 5 bits of exponent, 10 of fraction ---- */

static float from_f16(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000) << 16, rest = half & 0x7fff;
    if (rest >= 0x7c00)
        return float_of(sign | 0x7f800000 | (rest & 0x3ff) << 13);
    /* As if it were a number of fp32's exponents; the product, exact, puts both right: normal and denormal. */
    return float_of(sign | bits_of(float_of(rest << 13) * 0x1p112f));
}

static uint16_t to_f16(float value)
{
    uint32_t bits = bits_of(value), sign = bits >> 16 & 0x8000, rest = bits & 0x7fffffff;
    if (rest > 0x7f800000)
        return (uint16_t)(sign | 0x7e00 | (rest >> 13 & 0x3ff));
    if (rest >= bits_of(65520.0f)) /* half way from the largest to what would be next */
        return (uint16_t)(sign | 0x7c00);
    if (rest < bits_of(0x1p-14f)) /* denormal: in units of 2^-24, which the sum rounds to */
        return (uint16_t)(sign | (bits_of(float_of(rest) + 0.5f) - bits_of(0.5f)));
    rest += 0xfff + (rest >> 13 & 1);
    return (uint16_t)(sign | (rest - ((uint32_t)112 << 23)) >> 13);
}

/* ---- arrays ---- */

size_t attach_type_bytes(enum diloco_type type)
{
    return type == DILOCO_F32 ? 4 : type == DILOCO_BF16 || type == DILOCO_F16 ? 2 : 0;
}

/* Loops over bf16 and what goes with it are there twice, with the same bits: eight values at a time take half as long
 * as four, and all processors of today that train have that. */
#ifdef __x86_64__
#define WIDE __attribute__((target("avx2")))
#define HAS_WIDE __builtin_cpu_supports("avx2")
#else
#define WIDE
#define HAS_WIDE false
#endif
#define TWICE(name, parameters, arguments)  \
    WIDE static void name##_wide parameters \
    {                                       \
        name##_values arguments;            \
    }                                       \
    static void name parameters             \
    {                                       \
        if (HAS_WIDE)                       \
            name##_wide arguments;          \
        else                                \
            name##_values arguments;        \
    }
#define INLINE static inline __attribute__((always_inline))

INLINE void widen_bf16_values(const uint16_t *half, float *out, size_t count)
{
    for (size_t i = 0; i < count; i++)
        out[i] = from_bf16(half[i]);
}
TWICE(widen_bf16, (const uint16_t *half, float *out, size_t count), (half, out, count))

INLINE void narrow_bf16_values(const float *values, uint16_t *half, size_t count)
{
    for (size_t i = 0; i < count; i++)
        half[i] = to_bf16(values[i]);
}
TWICE(narrow_bf16, (const float *values, uint16_t *half, size_t count), (values, half, count))

INLINE void carry_in_values(float *values, const float *carry, size_t count)
{
    for (size_t i = 0; i < count; i++)
        values[i] += carry[i];
}
TWICE(carry_in, (float *values, const float *carry, size_t count), (values, carry, count))

INLINE void carry_out_bf16_values(float *values, float *carry, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        float rounded = float_of(round_bf16(bits_of(values[i])));
        uint32_t rest = bits_of(values[i] - rounded);
        carry[i] = float_of((rest & 0x7f800000) == 0x7f800000 ? 0 : rest);
        values[i] = rounded;
    }
}
TWICE(carry_out_bf16, (float *values, float *carry, size_t count), (values, carry, count))

void attach_widen(enum diloco_type type, const void *values, float *out, size_t count)
{
    const uint16_t *half = values;
    if (type == DILOCO_F32)
        memcpy(out, values, count * sizeof *out);
    else if (type == DILOCO_BF16)
        widen_bf16(half, out, count);
    for (size_t i = 0; type == DILOCO_F16 && i < count; i++)
        out[i] = from_f16(half[i]);
}

void attach_narrow(enum diloco_type type, const float *values, void *to, size_t count)
{
    uint16_t *half = to;
    if (type == DILOCO_F32)
        memcpy(to, values, count * sizeof *values);
    else if (type == DILOCO_BF16)
        narrow_bf16(values, half, count);
    for (size_t i = 0; type == DILOCO_F16 && i < count; i++)
        half[i] = to_f16(values[i]);
}

void attach_carry_in(float *values, const float *carry, size_t count)
{
    carry_in(values, carry, count);
}

static void carry_out_f16(float *values, float *carry, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        float rounded = from_f16(to_f16(values[i]));
        float rest = values[i] - rounded;
        carry[i] = __builtin_isfinite(rest) ? rest : 0;
        values[i] = rounded;
    }
}

void attach_carry_out(enum diloco_type type, float *values, float *carry, size_t count)
{
    if (type == DILOCO_BF16)
        carry_out_bf16(values, carry, count);
    else if (type == DILOCO_F16)
        carry_out_f16(values, carry, count);
    else
        memset(carry, 0, count * sizeof *carry);
}
