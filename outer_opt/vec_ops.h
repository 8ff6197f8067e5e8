/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vec_ops: the elementwise inner loops of codecs and outer optimizers, as one table.
 *
 * Owns what every table promises: vec_impl.c, vec_coarse.c and vec_pack.c are plain C, compiled once per instruction
 * set with the same floating-point rules (no contraction, no fast-math, round to nearest), so every table gives the
 * same bits; tests compare them. vec.h says which table to use. Pure: no allocation, no state, any thread. Lengths are
 * whole blocks of VEC_BLOCK values; arrays need no alignment.
 *
 * An encoder reads x = minuend - subtrahend + residual, one rounding per operation and in this order, quantises,
 * and writes the new residual, x - decoded, in one pass over memory.
 */
#ifndef OUTER_OPT_VEC_OPS_H
#define OUTER_OPT_VEC_OPS_H

#include <stddef.h>
#include <stdint.h>

#include "common/codec_id.h"

enum { VEC_BLOCK = 256 };

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "frames hold little-endian numbers, copied as they are");

struct vec_source {
    const float *minuend;
    const float *subtrahend; /* NULL: nothing is subtracted */
    const float *residual;   /* NULL: nothing is added */
};

/* Encoders write the raw form of `blocks` blocks (raw_bytes each): their heads, then their bodies. Unless `residual` is
 * NULL, the new residual goes there; it may be source->residual. They return the index of the first block that holds a
 * NaN, an Inf or a number beyond the format, or `blocks` if there is none; after a fault the outputs are undefined. */
typedef size_t vec_encode_fn(const struct vec_source *source, size_t blocks, uint8_t *raw, float *residual);
/* values = decoded */
typedef void vec_decode_fn(const uint8_t *heads, const uint8_t *bodies, size_t blocks, float *values);
/* sum = sum + weight * decoded */
typedef void vec_decode_add_fn(const uint8_t *heads, const uint8_t *bodies, size_t blocks, float weight, float *sum);

struct vec_codec {
    size_t raw_bytes;  /* of one block */
    size_t head_bytes; /* of these: its scales; of bf16 and fp32 the exponents, one byte each */
    vec_encode_fn *encode;
    vec_decode_fn *decode;
    vec_decode_add_fn *decode_add;
};

/* Those of which a block is packed by itself are CODEC_FP32 to CODEC_TERNARY. */
enum { VEC_CODECS = CODEC_TERNARY + 1 };

/* Uniform quantisation: per value the nearest multiple of a step of `ratio` times the block's root mean square, and per
 * block the step that these levels stand for (bf16, in `steps`): below a ratio of 2 the one that keeps the block's
 * length along itself, <decoded, x> = <x, x> within a hundredth; from 2 on that of the smallest error. `ratio` is
 * VEC_RATIO_MIN or more, so that a level fits in 8 bits. Returns as vec_encode_fn. */
#define VEC_RATIO_MIN 0.13f
typedef size_t vec_levels_encode_fn(const struct vec_source *source, size_t blocks, float ratio, uint8_t *steps,
                                    int8_t *levels, float *residual);
typedef void vec_levels_decode_fn(const uint8_t *steps, const int8_t *levels, size_t blocks, float *values);
/* The same, but sum = sum + weight * decoded. */
typedef void vec_levels_decode_add_fn(const uint8_t *steps, const int8_t *levels, size_t blocks, float weight,
                                      float *sum);

/* Levels several to a byte: of `radix` symbols the last says that the level is larger than `largest` and stands
 * elsewhere, one byte each, in order. A block takes `group` bytes; byte i holds the symbols of the levels i, group + i,
 * 2 group + i ..., the first one counting least. Places behind the block's end hold level 0. */
enum vec_alphabet_id { VEC_RADIX_4, VEC_RADIX_6, VEC_RADIX_16, VEC_ALPHABETS };
struct vec_alphabet {
    unsigned radix;
    unsigned per_byte; /* radix^per_byte <= 256 */
    unsigned group;    /* bytes of one block */
    int largest;
};
#define VEC_ALPHABET_TABLE                                                                        \
    {                                                                                             \
        [VEC_RADIX_4] = {4, 4, VEC_BLOCK / 4, 1}, [VEC_RADIX_6] = {6, 3, (VEC_BLOCK + 2) / 3, 2}, \
        [VEC_RADIX_16] = {16, 2, VEC_BLOCK / 2, 7},                                               \
    }
/* Writes the packed blocks, and what stands elsewhere to `far`, which has room for all levels; returns how many. */
typedef size_t vec_levels_pack_fn(const int8_t *levels, size_t blocks, uint8_t *packed, uint8_t *far);
/* `far` has `far_count` bytes; returns how many were taken, or SIZE_MAX if they do not suffice. Any bytes may come. */
typedef size_t vec_levels_unpack_fn(const uint8_t *packed, size_t blocks, const uint8_t *far, size_t far_count,
                                    int8_t *levels);

struct vec_ops {
    const char *name;
    struct vec_codec codec[VEC_CODECS]; /* by enum codec_id */
    vec_levels_encode_fn *levels_encode;
    vec_levels_decode_fn *levels_decode;
    vec_levels_decode_add_fn *levels_decode_add;
    vec_levels_pack_fn *levels_pack[VEC_ALPHABETS];
    vec_levels_unpack_fn *levels_unpack[VEC_ALPHABETS];
    /* sum[i] = sum[i] + weight * values[i] */
    void (*add)(float *sum, const float *values, size_t count, float weight);
    /* values[i] = values[i] * factor */
    void (*scale)(float *values, size_t count, float factor);
    /* Sum of (a - b)^2 in double, in an order that depends on `blocks` alone; `b` may be NULL. */
    double (*square_sum)(const float *a, const float *b, size_t blocks);
    /* Sum of a * b in double, in the same order. */
    double (*dot)(const float *a, const float *b, size_t blocks);
    /* sum[i] = sum[i] / divisor */
    void (*divide)(float *sum, size_t count, float divisor);
    /* buffer = momentum * buffer + delta;  theta = theta - lr * (delta + momentum * buffer)   (Sutskever et al. 2013,
     * PyTorch form) */
    void (*nesterov)(float *theta, float *buffer, const float *delta, size_t count, float lr, float momentum);
    /* buffer = momentum * buffer + delta;  theta = theta - lr * buffer */
    void (*heavy_ball)(float *theta, float *buffer, const float *delta, size_t count, float lr, float momentum);
    /* buffer = clamp(momentum * buffer + delta, -limit, limit);  theta = theta - lr * buffer   (CO2, 2401.16265) */
    void (*clipped)(float *theta, float *buffer, const float *delta, size_t count, float lr, float momentum,
                    float limit);
    /* theta = theta - delta */
    void (*average)(float *theta, const float *delta, size_t count);
};

/* One for each instruction set that the Makefile compiles for; vec.c chooses, nobody else names one. */
extern const struct vec_ops vec_ops_base, vec_ops_avx2, vec_ops_avx512;

#endif
