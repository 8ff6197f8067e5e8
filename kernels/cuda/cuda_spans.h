/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_spans: spans of a flat array as the optimizers take them: cut into pieces, a block each. Private to this folder.
 */
#ifndef KERNELS_CUDA_CUDA_SPANS_H
#define KERNELS_CUDA_CUDA_SPANS_H

#include <stdint.h>

enum { SPAN_PIECE = 4096 }; /* values of a piece at most; pieces end at multiples of it, or where their span ends */

struct span_piece {
    int64_t begin;
    int32_t count, decay;
};

struct kern_spans {
    int64_t count;             /* of pieces */
    struct span_piece *pieces; /* on the device; NULL if there are none */
    struct span_piece *host;   /* what is copied there: nobody says when that is done, so it stays */
};

#endif
