/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vec_parts: what the per-instruction-set files (vec_impl.c, vec_coarse.c, vec_pack.c) share; private to them,
 * everything static.
 */
#ifndef OUTER_OPT_VEC_PARTS_H
#define OUTER_OPT_VEC_PARTS_H

#include <stdbool.h>
#include <string.h>

#include "outer_opt/fbits.h"
#include "outer_opt/vec_ops.h"

enum { B = VEC_BLOCK, HALF = VEC_BLOCK / 2 };

/* x = minuend - subtrahend + residual for one block. */
static inline void load_block(const struct vec_source *source, size_t block, float *restrict x)
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
static inline uint32_t absmax_bits(const float *restrict x)
{
    int32_t most = 0;
    for (int i = 0; i < B; i++) {
        int32_t magnitude = (int32_t)(float_bits(x[i]) & 0x7fffffffu);
        most = magnitude > most ? magnitude : most;
    }
    return (uint32_t)most;
}

/* The bf16 at or above a magnitude; 0x7f80 (Inf) when there is none. */
static inline uint16_t bf16_up(uint32_t magnitude_bits)
{
    return magnitude_bits >= 0x7f800000u ? 0x7f80u : (uint16_t)((magnitude_bits + 0xffffu) >> 16);
}

enum { BF16_INF = 0x7f80 };

/* Blocks this small would meet subnormal thresholds; both sides of a comparison are lifted by a power of two. */
static inline float lift_of(uint16_t scale)
{
    return scale < 0x2000u ? 0x1p64f : 1.0f;
}

static inline void store_residual(float *residual, size_t block, const float *restrict x, const float *restrict y)
{
    if (residual == NULL)
        return;
    float *restrict out = residual + block * B;
    for (int i = 0; i < B; i++)
        out[i] = x[i] - y[i];
}

/* ---- decoders: the same two loops around each block decoder ---- */

#define DEFINE_DECODERS(codec)                                                                               \
    static void codec##_decode(const uint8_t *heads, const uint8_t *bodies, size_t blocks, float *values)    \
    {                                                                                                        \
        for (size_t block = 0; block < blocks; block++)                                                      \
            codec##_block(heads, bodies, block, values + block * B);                                         \
    }                                                                                                        \
    static void codec##_decode_add(const uint8_t *heads, const uint8_t *bodies, size_t blocks, float weight, \
                                   float *sum)                                                               \
    {                                                                                                        \
        for (size_t block = 0; block < blocks; block++) {                                                    \
            float y[B];                                                                                      \
            float *restrict out = sum + block * B;                                                           \
            codec##_block(heads, bodies, block, y);                                                          \
            for (int i = 0; i < B; i++)                                                                      \
                out[i] = out[i] + weight * y[i];                                                             \
        }                                                                                                    \
    }

#define TEXT_OF(name) #name
#define TABLE_TEXT(name) TEXT_OF(name)
#define TABLE_JOIN(a, b) a##b
#define TABLE_NAME(stem, name) TABLE_JOIN(stem, name)

/* vec_coarse.c's part of the table. */
#ifdef ISA
enum { INT4_SCALES = 8, INT4_RAW = INT4_SCALES + HALF };
enum { INT2_SCALES = 4, INT2_RAW = INT2_SCALES + VEC_BLOCK / 4 };
enum { TERNARY_GROUP = 52, TERNARY_RAW = 2 + TERNARY_GROUP };
#define DECLARE_CODEC(codec)                                     \
    extern vec_encode_fn TABLE_NAME(vec_##codec##_encode_, ISA); \
    extern vec_decode_fn TABLE_NAME(vec_##codec##_decode_, ISA); \
    extern vec_decode_add_fn TABLE_NAME(vec_##codec##_decode_add_, ISA)
DECLARE_CODEC(int4);
DECLARE_CODEC(int2);
DECLARE_CODEC(ternary);
extern vec_levels_encode_fn TABLE_NAME(vec_levels_encode_, ISA);
extern vec_levels_decode_fn TABLE_NAME(vec_levels_decode_, ISA);
extern vec_levels_decode_add_fn TABLE_NAME(vec_levels_decode_add_, ISA);

/* vec_pack.c's. */
#define DECLARE_ALPHABET(radix)                                     \
    extern vec_levels_pack_fn TABLE_NAME(vec_pack_##radix##_, ISA); \
    extern vec_levels_unpack_fn TABLE_NAME(vec_unpack_##radix##_, ISA)
DECLARE_ALPHABET(4);
DECLARE_ALPHABET(6);
DECLARE_ALPHABET(16);
#endif

#endif
