/* SPDX-License-Identifier: Apache-2.0 */
/*
 * codec: a range of outer gradient to one frame of bytes, and back.
 *
 * Owns the list of codecs, the frame format (docs/FORMATS.md 2) and, in struct codec, the scratch memory. Pure: no
 * socket, no file, no clock, no allocation after codec_new(). One struct codec per thread. Decoding accepts bytes from
 * strangers: no input reaches an assert or makes memory grow.
 *
 * A range is a list of parts, each with a codec of its own; values come in whole blocks of CODEC_BLOCK. Parts are cut
 * into segments of at most CODEC_SEGMENT values, each compressed on its own, so that scratch stays in the cache
 * whatever the size of the range; only PowerSGD takes a tensor whole. A frame says what it holds: any codec decodes it.
 */
#ifndef OUTER_OPT_CODEC_H
#define OUTER_OPT_CODEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"
#include "outer_opt/codec_types.h"
#include "outer_opt/vec_ops.h"

struct codec;

/* zstd_level 0: no lossless stage. */
ERR_MUST_CHECK enum err codec_new(int zstd_level, struct codec **out);
void codec_free(struct codec *codec);
/* From the next frame on. */
ERR_MUST_CHECK enum err codec_set_zstd(struct codec *codec, int level);
/* Makes room to encode POWERSGD parts of up to `factor_values` = (rows + cols) * rank, and to read segments of up to
 * `segment_values` (at least CODEC_SEGMENT; only POWERSGD has larger ones): a frame with a larger one is refused. */
ERR_MUST_CHECK enum err codec_reserve(struct codec *codec, size_t factor_values, size_t segment_values);

/* "fp32", ... "powersgd"; NULL for a number that is none of these. */
const char *codec_name(enum codec_id id);
/* Whether it works on whole tensors: then shards are cut between tensors. */
bool codec_on_tensors(enum codec_id id);
/* ERR_ARG: ratio or rank outside the codec's range. */
ERR_MUST_CHECK enum err codec_choice_check(const struct codec_choice *choice);

/* Largest frame codec_encode() makes of a range. */
size_t codec_frame_bytes_max(const struct codec_part *parts, size_t parts_count);
/* What of it one part takes. */
size_t codec_part_bytes_max(const struct codec_part *part);

/* Encodes the values of `source` that the parts name into `frame`, which holds codec_frame_bytes_max(). `residual`
 * (may be NULL, may be source->residual) receives the new residual at the same places. ERR_NONFINITE: a NaN, an Inf or
 * a number beyond the format; `*fault` is then where in `source` its block begins (PowerSGD: its row). */
ERR_MUST_CHECK enum err codec_encode(struct codec *codec, const struct codec_part *parts, size_t parts_count,
                                     const struct vec_source *source, float *residual, uint8_t *frame,
                                     size_t *frame_bytes, size_t *fault);

/* What a codec that is none on tensors would make of up to CODEC_SEGMENT values: bytes, and the sum of squares of the
 * residual. TOPK cannot be tried. ERR_NONFINITE as codec_encode(). */
ERR_MUST_CHECK enum err codec_try(struct codec *codec, const struct codec_choice *choice,
                                  const struct vec_source *source, size_t values_count, size_t *bytes, double *error);

/* Decodes a frame of exactly `values_count` values: values = decoded. A frame of any codec will do; it says which.
 * ERR_PROTO if it is cut short, of an unknown version or codec, or announces another count; `values` is then undefined.
 * The digest is not computed again: codec_check() does that once, when a frame arrives. */
ERR_MUST_CHECK enum err codec_decode(struct codec *codec, const uint8_t *frame, size_t frame_bytes, float *values,
                                     size_t values_count);

/* What codec_decode() would return, without the values. */
ERR_MUST_CHECK enum err codec_decodable(struct codec *codec, const uint8_t *frame, size_t frame_bytes,
                                        size_t values_count);

/* As codec_decode(), but sum = sum + weight * decoded. */
ERR_MUST_CHECK enum err codec_decode_add(struct codec *codec, const uint8_t *frame, size_t frame_bytes, float weight,
                                         float *sum, size_t values_count);

/* ---- piece by piece: what a frame is made of, or holds, need not be in memory at once ---- */

/* Where a reading stands; the frame is borrowed. */
struct codec_reader {
    const uint8_t *frame;
    size_t frame_bytes, at; /* of the present segment */
    uint32_t segments_left; /* the present one included */
    size_t values_left;     /* of the frame, that were not read */
    size_t inside;          /* values of the present segment that were read */
};
ERR_MUST_CHECK enum err codec_read_begin(const uint8_t *frame, size_t frame_bytes, size_t values_count,
                                         struct codec_reader *out);
/* The rest of the present segment, decoded, in memory of `codec`; the caller may write there; `*count` 0 at the frame's
 * end. ERR_PROTO as codec_decode(). */
ERR_MUST_CHECK enum err codec_read_segment(struct codec *codec, struct codec_reader *reader, float **values,
                                           size_t *count);
/* The next `count` values, in whole blocks, wherever segments end: values = decoded, or with `weight` values = values +
 * weight * decoded. Quickest where `count` ends with a segment. */
ERR_MUST_CHECK enum err codec_read(struct codec *codec, struct codec_reader *reader, size_t count, const float *weight,
                                   float *values);
/* Past the next `count` values, without decoding them: as far as headers tell. ERR_PROTO. */
ERR_MUST_CHECK enum err codec_read_skip(struct codec_reader *reader, size_t count);
/* Skips the rest of the present segment; returns through `*count` how many values. ERR_PROTO. */
ERR_MUST_CHECK enum err codec_read_skip_segment(struct codec_reader *reader, size_t *count);
/* After the last value: whether the frame ends there. ERR_PROTO. */
ERR_MUST_CHECK enum err codec_read_end(const struct codec_reader *reader);

/* Where a writing stands; `frame` holds codec_frame_bytes_max() of all parts that are put into it. */
struct codec_writer {
    uint8_t *frame;
    size_t begin, at, values;
    uint32_t segments;
};
struct codec_writer codec_write_begin(uint8_t *frame);
/* Elsewhere in the frame, for codec_write_take(). */
struct codec_writer codec_write_at(uint8_t *frame, size_t at);
/* One part more, as codec_encode() does. A part whose codec is none on tensors may come in several, each but the last
 * of a multiple of CODEC_SEGMENT values: the same frame comes of it. */
ERR_MUST_CHECK enum err codec_write(struct codec *codec, struct codec_writer *writer, const struct codec_part *part,
                                    const struct vec_source *source, float *residual, size_t *fault);
/* Moves the bytes that `elsewhere` wrote, at or behind the place of `writer`, to that place, and goes on behind them.
 */
void codec_write_take(struct codec_writer *writer, const struct codec_writer *elsewhere);
/* The header; returns the frame's bytes. */
size_t codec_write_end(const struct codec_writer *writer);

/* Checks header, length and digest of a frame without decoding it. */
ERR_MUST_CHECK enum err codec_check(const uint8_t *frame, size_t frame_bytes, size_t values_count);
/* Its digest alone: whether these are the bytes that were written, whatever they mean. */
ERR_MUST_CHECK enum err codec_intact(const uint8_t *frame, size_t frame_bytes);

#endif
