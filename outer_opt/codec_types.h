/* SPDX-License-Identifier: Apache-2.0 */
/*
 * codec_types: what codecs are asked to do, and the sizes all of them keep to.
 *
 * The words that codec.h and its callers speak, and that each codec_*.c is told its task in. Other rooms get them with
 * codec.h. No function and no state: what a number means is in the codecs, how it is written in docs/FORMATS.md.
 */
#ifndef OUTER_OPT_CODEC_TYPES_H
#define OUTER_OPT_CODEC_TYPES_H

#include <stdint.h>

#include "common/codec_id.h"
#include "outer_opt/vec_ops.h"

/* The one that is written and read. 1: one codec a frame, no parts. 2: parts, planes. */
enum { CODEC_FRAME_VERSION = 4 };
enum { CODEC_BLOCK = VEC_BLOCK, CODEC_SEGMENT = 1 << 17, CODEC_HEADER_BYTES = 64, CODEC_RANK_MAX = 32 };

struct codec_choice {
    enum codec_id id;
    float ratio;   /* UNIFORM: step over rms, VEC_RATIO_MIN .. 8; TOPK: fraction of values kept, up to 0.5 */
    uint32_t rank; /* POWERSGD: 1 .. CODEC_RANK_MAX */
};

/* `count` values under one codec. Parts need not lie one behind the other in the arrays that are encoded; in the frame
 * they do. */
struct codec_part {
    uint64_t at;    /* its first value in source and residual */
    uint64_t count; /* a multiple of CODEC_BLOCK */
    struct codec_choice choice;
    /* POWERSGD alone: the matrix, row by row at the start of the part, rows * cols <= count; the rest is padding. */
    uint32_t rows, cols;
    /* POWERSGD: cols * rank values, carried from one encoding of this tensor to the next; zeros the first time. */
    float *factor;
};

#endif
