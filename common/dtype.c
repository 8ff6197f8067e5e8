/* SPDX-License-Identifier: Apache-2.0 */
#include "common/dtype.h"

#include <assert.h>
#include <string.h>

_Static_assert(sizeof(float) == 4, "tensors are IEEE single precision");

static const struct {
    const char *name, *tag;
    size_t bytes;
} kinds[] = {[DTYPE_F32] = {"f32", "F32", 4},
             [DTYPE_BF16] = {"bf16", "BF16", 2},
             [DTYPE_F16] = {"f16", "F16", 2},
             [DTYPE_OTHER] = {"other", "other", 0}};

const char *dtype_name(enum dtype dtype)
{
    return kinds[dtype].name;
}

enum err dtype_find(const char *name, enum dtype *out)
{
    for (int i = 0; i < DTYPE_OTHER; i++) {
        if (strcmp(name, kinds[i].name) != 0)
            continue;
        *out = (enum dtype)i;
        return ERR_OK;
    }
    return err_set(ERR_ARG, "--dtype %s: expected f32, bf16 or f16", name);
}

const char *dtype_tag(enum dtype dtype)
{
    return kinds[dtype].tag;
}

enum dtype dtype_of_tag(const char *tag)
{
    int i = 0;
    while (i < DTYPE_OTHER && strcmp(tag, kinds[i].tag) != 0)
        i++;
    return (enum dtype)i;
}

size_t dtype_bytes(enum dtype dtype)
{
    return kinds[dtype].bytes;
}

/* ---- one value ---- */

enum { F16_EXPONENT_BIAS = 15, F32_EXPONENT_BIAS = 127, F16_FRACTION = 10, F32_FRACTION = 23 };
enum { FRACTION_LOST = F32_FRACTION - F16_FRACTION, BIAS_LOST = F32_EXPONENT_BIAS - F16_EXPONENT_BIAS };
#define F32_INF 0x7f800000u
#define F16_INF 0x7c00u
#define F16_QUIET 0x0200u
#define BF16_QUIET 0x0040u
#define MAGNITUDE 0x7fffffffu

static uint32_t bits_of_f16(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000u) << 16, exponent = half >> F16_FRACTION & 0x1fu, fraction = half & 0x3ffu;
    if (exponent == 0x1fu)
        return sign | F32_INF | fraction << FRACTION_LOST;
    if (exponent == 0 && fraction == 0)
        return sign;
    if (exponent == 0) { /* it has no leading one yet */
        for (exponent = 1; (fraction & 0x400u) == 0; exponent--)
            fraction <<= 1;
        fraction &= 0x3ffu;
    }
    return sign | (exponent + BIAS_LOST) << F32_FRACTION | fraction << FRACTION_LOST;
}

/* `value` without its lowest bits, rounded. */
static uint32_t round_off(uint32_t value, uint32_t bits)
{
    uint32_t half = (uint32_t)1 << (bits - 1), odd = value >> bits & 1u;
    return (value + half - 1 + odd) >> bits;
}

static uint16_t f16_of_bits(uint32_t bits)
{
    uint32_t sign = bits >> 16 & 0x8000u, magnitude = bits & MAGNITUDE, exponent = magnitude >> F32_FRACTION;
    if (magnitude > F32_INF)
        return (uint16_t)(sign | F16_INF | F16_QUIET | (magnitude >> FRACTION_LOST & 0x3ffu));
    if (exponent >= BIAS_LOST + 0x1fu)
        return (uint16_t)(sign | F16_INF);
    if (exponent > BIAS_LOST) /* a carry out of the fraction goes into the exponent, where it belongs */
        return (uint16_t)(sign | round_off(magnitude - ((uint32_t)BIAS_LOST << F32_FRACTION), FRACTION_LOST));
    if (exponent + F16_FRACTION < BIAS_LOST) /* less than half of the smallest */
        return (uint16_t)sign;
    return (uint16_t)(sign | round_off((magnitude & 0x7fffffu) | 0x800000u, FRACTION_LOST + 1 + BIAS_LOST - exponent));
}

static uint16_t bf16_of_bits(uint32_t bits)
{
    if ((bits & MAGNITUDE) > F32_INF)
        return (uint16_t)(bits >> 16 | BF16_QUIET);
    return (uint16_t)round_off(bits, 16);
}

/* ---- arrays ---- */

void dtype_decode(enum dtype dtype, const void *from, size_t count, float *to)
{
    assert(dtype != DTYPE_OTHER);
    if (dtype == DTYPE_F32) {
        memcpy(to, from, count * sizeof *to);
        return;
    }
    const uint8_t *at = from;
    for (size_t i = 0; i < count; i++, at += 2) {
        uint16_t half = (uint16_t)(at[0] | at[1] << 8);
        uint32_t bits = dtype == DTYPE_BF16 ? (uint32_t)half << 16 : bits_of_f16(half);
        memcpy(&to[i], &bits, sizeof bits);
    }
}

size_t dtype_encode(enum dtype dtype, const float *from, size_t count, void *to)
{
    assert(dtype != DTYPE_OTHER);
    uint8_t *at = to;
    size_t lost = 0;
    if (dtype == DTYPE_F32) {
        memcpy(to, from, count * sizeof *from);
        return 0;
    }
    uint16_t inf = dtype == DTYPE_BF16 ? F32_INF >> 16 : F16_INF;
    for (size_t i = 0; i < count; i++, at += 2) {
        uint32_t bits;
        memcpy(&bits, &from[i], sizeof bits);
        uint16_t half = dtype == DTYPE_BF16 ? bf16_of_bits(bits) : f16_of_bits(bits);
        at[0] = (uint8_t)half;
        at[1] = (uint8_t)(half >> 8);
        lost += (bits & MAGNITUDE) < F32_INF && (half & 0x7fffu) == inf;
    }
    return lost;
}
