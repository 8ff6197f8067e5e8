/* SPDX-License-Identifier: Apache-2.0 */
/*
 * codec_frame: how segments lie in a frame: header and digest, then each segment's header and planes, packed by zstd
 * where that is shorter (docs/FORMATS.md 2). Private to codec.c.
 *
 * Bytes become numbers here and nowhere else, encoding beside decoding. It looks up no codec and does not know what
 * planes mean: a segment is read in two steps, its header first, which says whose planes follow.
 */
#ifndef OUTER_OPT_CODEC_FRAME_H
#define OUTER_OPT_CODEC_FRAME_H

#include "outer_opt/codec_kind.h"

enum { SEGMENT_HEADER_BYTES = 12, PLANE_MARK_BYTES = 4 };

/* Fills the CODEC_HEADER_BYTES before a payload that is complete; `frame_bytes` counts both. */
void codec_frame_put_header(uint8_t *frame, size_t frame_bytes, uint32_t segments, size_t values_count);
/* ERR_PROTO if it is none of this version for `values_count` values, or if its length is not the frame's. */
ERR_MUST_CHECK enum err codec_frame_get_header(const uint8_t *frame, size_t frame_bytes, size_t values_count,
                                               uint32_t *segments);
/* ERR_PROTO if the digest in the header, which has been read, is not that of the frame. */
ERR_MUST_CHECK enum err codec_frame_check_digest(const uint8_t *frame, size_t frame_bytes);

/* Writes a segment to `out`, which holds its header and for each plane a mark and the plane's bytes; returns how many
 * bytes it took. */
size_t codec_frame_put_segment(struct codec *codec, const struct codec_kind *kind, const struct segment *segment,
                               uint8_t *out);

/* The header of the next segment: `segment` without its planes, the number of its codec (any), and the bytes its
 * planes take. ERR_PROTO if it has no values, more than `values_left`, no whole blocks, or more planes than there are.
 */
ERR_MUST_CHECK enum err codec_frame_get_segment(struct bytes_reader *payload, size_t values_left,
                                                struct segment *segment, unsigned *id, size_t *bytes);
/* Its planes, borrowed from the frame or unpacked into codec->plane[], none larger than the kind has room for.
 * ERR_PROTO if they do not take exactly `bytes`, or if the kind makes no segments of so many values. */
ERR_MUST_CHECK enum err codec_frame_get_planes(struct codec *codec, const struct codec_kind *kind,
                                               struct bytes_reader *payload, size_t bytes, struct segment *segment);

#endif
