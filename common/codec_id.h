/* SPDX-License-Identifier: Apache-2.0 */
/*
 * codec_id: the codecs of an outer gradient, by the numbers that frames name them with (docs/FORMATS.md 2).
 *
 * A run's spec, the codecs and the vector loops under them speak of the same ones. No function and no state.
 */
#ifndef COMMON_CODEC_ID_H
#define COMMON_CODEC_ID_H

/* Numbers on the wire; never reused. */
enum codec_id {
    CODEC_ADAPTIVE =
        0, /* no codec itself: a run spec's choice to pick among the others, tensor by tensor; never on the wire */
    CODEC_FP32 = 1,
    CODEC_BF16 = 2,
    CODEC_INT8 = 3,    /* absmax per 256 values, 255 levels */
    CODEC_E3M0 = 4,    /* sign and 3 exponent bits (Streaming DiLoCo, 2501.18512) */
    CODEC_INT4 = 5,    /* absmax per 64 values, 15 levels */
    CODEC_INT2 = 6,    /* sign and one of two magnitudes, each the mean of its bin (MuLoCo, 2505.23725) */
    CODEC_TERNARY = 7, /* -s, 0, s; s the mean of the values that are not 0 (after TernGrad, 1705.07878) */
    CODEC_UNIFORM = 8, /* multiples of ratio * rms per 256 values, entropy-coded */
    CODEC_TOPK = 9, /* the largest of every 4096 values, 2 bits each, and where they stand (SparseLoCo, 2508.15706) */
    CODEC_POWERSGD = 10 /* two thin factors of a matrix (1905.13727) */
};

#endif
