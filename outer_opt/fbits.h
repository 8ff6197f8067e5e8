/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fbits: floats as bit patterns, and bf16. Everything static; one rounding where a value is rounded.
 */
#ifndef OUTER_OPT_FBITS_H
#define OUTER_OPT_FBITS_H

#include <stdint.h>
#include <string.h>

/* Magnitudes whose bits are these or more would round to a bf16 Inf; from FBITS_INF on they are Inf or NaN. */
#define FBITS_BF16_LIMIT 0x7f7f8000u
#define FBITS_INF 0x7f800000u
#define FBITS_MAGNITUDE 0x7fffffffu

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

/* Nearest, ties to even; for finite values below the limit. */
static inline uint16_t float_bf16(float value)
{
    uint32_t bits = float_bits(value);
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

#endif
