/*
 * codec: a range of outer gradient to one frame of bytes, and back.
 *
 * Owns the frame format (docs/FORMATS.md, CODEC_FRAME_VERSION) and, in struct codec, the scratch memory. Pure: no
 * socket, no file, no clock, no allocation after codec_new(). One struct codec per thread. Decoding accepts bytes from
 * strangers: no input reaches an assert or makes memory grow.
 *
 * Values come in whole blocks of CODEC_BLOCK. A frame is cut into segments of CODEC_SEGMENT values, each compressed on
 * its own, so that scratch stays in the cache whatever the size of the range.
 */
#ifndef OUTER_OPT_CODEC_H
#define OUTER_OPT_CODEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"
#include "outer_opt/vec.h"

/* 1: first version. */
enum { CODEC_FRAME_VERSION = 1 };
enum { CODEC_BLOCK = VEC_BLOCK, CODEC_SEGMENT = 1 << 17, CODEC_HEADER_BYTES = 48 };

/* Numbers on the wire; never reused. */
enum codec_id { CODEC_FP32 = 1, CODEC_BF16 = 2, CODEC_INT8 = 3, CODEC_E3M0 = 4 };

struct codec_conf {
    enum codec_id id;
    int zstd_level; /* 0: off */
};

struct codec;

ERR_MUST_CHECK enum err codec_new(const struct codec_conf *conf, struct codec **out);
void codec_free(struct codec *codec);

/* "fp32", "bf16", "int8", "e3m0"; NULL for a number that is none of these. */
const char *codec_name(enum codec_id id);

/* Raw bits per value before zstd, scales included. */
double codec_bits(enum codec_id id);

/* Largest frame codec_encode() makes of `values_count` values. */
size_t codec_frame_bytes_max(enum codec_id id, size_t values_count);

/* Encodes `values_count` (a multiple of CODEC_BLOCK) values of `source` into `frame`, which holds
 * codec_frame_bytes_max(). `residual` (may be NULL, may be source->residual) receives what is left over. ERR_NONFINITE:
 * a NaN, an Inf or a number beyond the format; `*fault` is then the index of the first value of its block. */
ERR_MUST_CHECK enum err codec_encode(struct codec *codec, const struct vec_source *source, size_t values_count,
                                     float *residual, uint8_t *frame, size_t *frame_bytes, size_t *fault);

/* Decodes a frame of exactly `values_count` values: values = decoded. A frame of any codec will do; it says which.
 * ERR_PROTO if it is cut short, of an unknown version or codec, or announces another count; `values` is then undefined.
 * The digest is not computed again: codec_check() does that once, when a frame arrives. */
ERR_MUST_CHECK enum err codec_decode(struct codec *codec, const uint8_t *frame, size_t frame_bytes, float *values,
                                     size_t values_count);

/* As codec_decode(), but sum = sum + weight * decoded. */
ERR_MUST_CHECK enum err codec_decode_add(struct codec *codec, const uint8_t *frame, size_t frame_bytes, float weight,
                                         float *sum, size_t values_count);

/* Checks header, length and digest of a frame without decoding it. */
ERR_MUST_CHECK enum err codec_check(const uint8_t *frame, size_t frame_bytes, size_t values_count);

#endif
